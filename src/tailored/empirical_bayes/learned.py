"""What learning ends in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..gaussian.mixture import Mixture
from ..gaussian.side import SideStructure
from ..priors.base import Prior
from ..priors.shared_regressor import OutOfFold
from ..summaries.training import TrainingSummary
from .prior_mean import LevelBias

Array = NDArray[np.float64]


class AnyForm(Protocol):
    """A form of the prior: a mixture's, or factors plus a diagonal."""

    @property
    def n_components(self) -> int: ...

    def describe(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Learned:
    """The prior, and what was tried on the way.

    ``form`` and ``scale`` were chosen on held-out tasks, ``side`` says what the description may move in b(s), and
    ``penalty`` is the one on the part of b(s) that is learned on query rows (None: left out).  ``errors`` are those of
    the held-out tasks, fold after fold, in the user's units.  ``model`` is the form's, before its τ was scaled (None
    where columns are many), and ``biases`` what query rows added to its b(s).  ``training_summary`` is kept of the tasks for a
    summary, ``common`` is what all was learned beside, and ``complaint`` what the user is to be warned of.
    """

    prior: Prior
    form: AnyForm
    scale: float
    side: SideStructure | None
    penalty: float | None
    errors: Array
    validation_error: float
    results: list[dict[str, Any]]
    model: Mixture | None
    biases: tuple[LevelBias, ...]
    training_summary: TrainingSummary
    common: OutOfFold | None = None
    complaint: str | None = None
