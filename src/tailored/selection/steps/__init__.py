"""The steps of the selection, in the order of the rule."""

from __future__ import annotations

from ..loop import Step
from .covariance import select_covariance
from .factors import accept_effects_on_factors, select_factors
from .low_rank import accept_low_rank
from .mixtures import accept_mixture
from .noise import accept_correlated_noise, accept_dispersion
from .shared_effects import accept_shared_effects
from .side_information import accept_side_information
from .without_rows import accept_mean_without_rows, accept_offset

STEPS: tuple[Step, ...] = (
    accept_shared_effects,
    accept_dispersion,
    accept_correlated_noise,
    accept_side_information,
    select_covariance,
    accept_low_rank,
    accept_mixture,
    accept_offset,
    accept_mean_without_rows,
)
#: With many columns.
STEPS_OF_FACTORS: tuple[Step, ...] = (select_factors, accept_effects_on_factors)
