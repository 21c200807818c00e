"""The steps of the selection, in the order of the rule."""

from __future__ import annotations

from ..loop import Step
from .correlated_noise import accept_correlated_noise
from .covariance import select_covariance
from .dispersion import accept_dispersion
from .factors import accept_effects_on_factors, select_factors
from .low_rank import accept_low_rank
from .mixtures import accept_mixture
from .shared_effects import accept_shared_effects
from .side_information import accept_side_information

STEPS: tuple[Step, ...] = (
    accept_shared_effects,
    accept_dispersion,
    accept_correlated_noise,
    accept_side_information,
    select_covariance,
    accept_low_rank,
    accept_mixture,
)
#: With many columns.
STEPS_OF_FACTORS: tuple[Step, ...] = (select_factors, accept_effects_on_factors)
