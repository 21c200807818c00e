"""The one record that learning ends in, whichever way it went."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ._utils.records import Record, cached_property
from ._utils.validation import check_choice, check_fraction, check_int, check_positive, check_shape
from .closed_form import ClosedForm
from .common import CommonPart
from .feature_maps import FeatureMap, SideMap
from .intervals import Calibration
from .losses import Absolute, Loss, Squared
from .representation import Bias, Conditioning, LowRank
from .tasks import Scaling
from .within import WITHIN


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
    units : Scaling
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
    units: Scaling
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

    def size_factors(self, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """n^p of each task; a task without rows is its prior mean, and its θ is shown as τ(s)."""
        return np.maximum(sizes, 1).astype(float) ** self.size_exponent

    def restore(self) -> None:
        d, k = len(self.units.columns), self.conditioning.n_side
        if self.conditioning.n_features != d:
            raise ValueError(f"conditioning: has {self.conditioning.n_features} columns, units have {d}")
        check_shape("bias.constant", self.bias.constant, d)
        if self.bias.conditional:
            check_shape("bias.linear", self.bias.linear, d, k)
        if self.feature_map is None and k:
            raise ValueError(f"feature_map: is missing, and the conditioning has {k} features")
        check_choice("inner", self.inner, WITHIN)
        check_positive("tol", self.tol)
        check_int("max_iter", self.max_iter)
        check_int("size_exponent", self.size_exponent, 0)
        if self.size_exponent > 1:
            raise ValueError("size_exponent: must be 0 or 1")
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError("clip: the lower end is above the upper end")
        gaussian = isinstance(self.loss, Squared) and self.inner == "exact" and self.size_exponent == 1
        if isinstance(self.conditioning, LowRank) and not (
            gaussian and isinstance(self.feature_map, SideMap | None)
        ):
            raise ValueError(
                "conditioning: of many columns needs the squared loss and features of side information"
            )
        if self.quantile is not None:
            check_fraction("quantile", self.quantile)
            if self.calibration is None or not gaussian:
                raise ValueError("quantile: needs a calibration and the squared loss")
