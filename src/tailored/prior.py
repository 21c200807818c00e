"""The one record that learning ends in, whichever way it went."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._utils.records import Record, cached_property
from .closed_form import ClosedForm
from .common import CommonPart
from .feature_maps import FeatureMap
from .intervals import Calibration
from .losses import Absolute, Loss, Squared
from .representation import Bias, Conditioning
from .tasks import Units


@dataclass(frozen=True)
class Prior(Record):
    """What was learned, ``s -> (τ(s), b(s))``, and all that adapting to a task needs.

    A snapshot: its arrays are read-only, and learning on makes a new one.

    **Tasks of different sizes.**  A task with n rows is solved under ``θ = n^p τ(s)`` and prior mean b(s),
    p = ``size_exponent``.  The paper's algorithm has p = 0: θ = τ(s) whatever n.  Empirical Bayes has p = 1: its
    τ(s) is W / σ², prior covariance over noise variance, and because the within-task objective averages over
    the rows, ``w ~ N(b, W)`` is the prior that θ = n W / σ² stands for (squared loss).

    Attributes
    ----------
    conditioning : Conditioning
        τ, for the features as ``feature_map`` gives them.
    bias : Bias
        The prior mean b.
    units : Units
        Those that τ and b are in, and that tasks are fitted in.
    feature_map : FeatureMap or None
        Φ; None where neither depends on the task.
    loss, inner, tol, max_iter
        What a task is fitted with; see `TaskRegressor`.
    size_exponent : int
        p in the rule above.
    clip : (low, high) or None
        Range of the predictions.
    calibration : Calibration or None
        Errors of held-out tasks that intervals are made from.
    common : CommonPart or None
        What all tasks share beyond b(s); τ and b, and the calibration, are those of tasks whose targets are what it
        leaves (`tailored.adapting.left_to_tasks`).
    quantile : float or None
        The quantile of the targets that is predicted: the fitted model plus so many spreads as the calibration says.
        None is the fitted model itself.
    """

    conditioning: Conditioning
    bias: Bias
    units: Units
    feature_map: FeatureMap | None = None
    loss: Loss = field(default_factory=Absolute)
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000
    size_exponent: int = 0
    clip: tuple[float, float] | None = None
    calibration: Calibration | None = None
    common: CommonPart | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        for part in (self.conditioning, self.bias):
            for value in vars(part).values():
                if isinstance(value, np.ndarray):
                    value.flags.writeable = False

    @property
    def fit_intercept(self) -> bool:
        """Whether the last of the d inputs is a constant column that the user's rows lack."""
        return self.units.fit_intercept

    @cached_property
    def closed_form(self) -> ClosedForm | None:
        """How its tasks are solved in one pass: for the squared loss and the models of empirical Bayes; else None."""
        if not isinstance(self.loss, Squared) or self.inner != "exact" or self.size_exponent != 1:
            return None
        return ClosedForm.of(self.units, self.feature_map, self.conditioning, self.bias)

    def __getstate__(self) -> dict[str, Any]:
        return self.state()

    def size_factors(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """n^p of each task; a task without rows is its prior mean, and its θ is shown as τ(s)."""
        return np.maximum(sizes, 1).astype(float) ** self.size_exponent

    def state(self) -> dict[str, Any]:
        """Its parts by name; `tailored.archive` writes them."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Prior:
        """The prior that `state` was taken of."""
        return cls(**state)
