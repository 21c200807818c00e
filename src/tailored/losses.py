"""Losses l(p, y) of a prediction p and a target y, for the within-task problem and its dual.

A loss is defined by the parameters of its conjugate in p, l*(a, y) = sup over p of a p - l(p, y).
For all losses of this module except the logistic one, the conjugate is a quadratic on an interval
(a dual box):

    l*(a, y) = a linear + 1/2 quadratic a^2   on [lower, upper], infinity elsewhere.

`LOSSES` maps the names to the classes.  To add a loss with a dual box, define its class and add it
there.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._utils.records import Stored
from ._utils.validation import (
    check_choice,
    check_fraction,
    check_positive,
    name_some,
)

Floats = NDArray[np.float64]
__all__ = ["Huber", "Pinball"]


class DualBox(NamedTuple):
    """Parameters of the conjugates for n targets, in new arrays; linear, lower and upper are (n,).

    ``quadratic`` is positive for smooth losses.  The logistic loss has no dual box: its ``linear``
    is the targets, and further fields have no meaning.
    """

    linear: Floats
    lower: Floats
    upper: Floats
    quadratic: float = 0.0
    logistic: bool = False


def _dual_box(
    y: ArrayLike, lower: float | Floats, upper: float | Floats, quadratic: float = 0.0
) -> DualBox:
    """Return the dual box of targets y (n,) with these bounds, whose linear term is y."""
    linear = np.array(y, dtype=np.float64)
    lower, upper = (np.full(linear.shape, end, dtype=np.float64) for end in (lower, upper))
    return DualBox(linear, lower, upper, quadratic)


@dataclass(frozen=True)
class Loss(Stored, ABC):
    """Base class of the losses, convex in p.  ``value``, ``error`` and ``subgradient`` are
    elementwise and broadcast.

    l(p, y) is the maximum over lower <= a <= upper of a (p - linear) - quadratic/2 a^2, with the
    dual box of y; losses without a dual box define the methods anew.
    """

    name: ClassVar[str]

    @abstractmethod
    def dual_box(self, y: ArrayLike) -> DualBox:
        """Return the parameters of the conjugates for targets y (n,)."""

    @property
    def lipschitz(self) -> float:
        """Lipschitz constant in the prediction; infinity if there is none."""
        box = self.dual_box(1.0)
        return float(np.maximum(-box.lower, box.upper))

    def value(self, p: ArrayLike, y: ArrayLike) -> Floats:
        """Return l(p, y)."""
        slope, box = self.subgradient(p, y), self.dual_box(y)
        residual = np.subtract(p, box.linear, dtype=np.float64)
        return np.asarray(slope * (residual - 0.5 * box.quadratic * slope))

    def error(self, p: ArrayLike, y: ArrayLike) -> Floats:
        """Return the error that tables show: l(p, y), or (p - y)^2 for the squared loss."""
        return self.value(p, y)

    def subgradient(self, p: ArrayLike, y: ArrayLike) -> Floats:
        """Return a subgradient of l(., y) at p; at a kink, the one nearest to 0."""
        linear, lower, upper, quadratic, _ = self.dual_box(y)
        residual = np.subtract(p, linear, dtype=np.float64)
        if quadratic:
            return np.clip(residual / quadratic, lower, upper)
        return np.where(residual > 0.0, upper, np.where(residual < 0.0, lower, 0.0))

    def check_targets(self, y: ArrayLike, name: str = "y") -> None:
        """Raise a ValueError if a target is outside the loss's domain."""


class MarginLoss(Loss):
    """Base class of the losses that are functions of the margin y p, with targets -1 and +1."""

    def check_targets(self, y: ArrayLike, name: str = "y") -> None:
        values = np.unique(np.asarray(y))
        bad = values[~np.isin(values, (-1, 1))]
        if bad.size:
            raise ValueError(
                f"The {self.name} loss needs targets -1 and +1, but {name} contains "
                f"{name_some(bad)}. "
                f"Recode two classes first, for example with np.where({name} == positive, 1, -1)."
            )


@dataclass(frozen=True)
class Absolute(Loss):
    """l(p, y) = |p - y|."""

    name: ClassVar[str] = "absolute"

    def dual_box(self, y: ArrayLike) -> DualBox:
        return _dual_box(y, -1.0, 1.0)


@dataclass(frozen=True)
class Pinball(Loss):
    """``l(p, y) = q (y - p)_+ + (1 - q) (p - y)_+``, minimised by the q-quantile."""

    quantile: float = 0.5
    name: ClassVar[str] = "pinball"

    def __post_init__(self) -> None:
        check_fraction("quantile", self.quantile)

    def dual_box(self, y: ArrayLike) -> DualBox:
        return _dual_box(y, -self.quantile, 1.0 - self.quantile)


@dataclass(frozen=True)
class Huber(Loss):
    """``l(p, y) = 1/2 (p - y)^2`` where ``|p - y| <= delta``, and ``delta |p - y| - delta^2/2``
    beyond.
    """

    delta: float = 1.35
    name: ClassVar[str] = "huber"

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)

    def dual_box(self, y: ArrayLike) -> DualBox:
        return _dual_box(y, -self.delta, self.delta, quadratic=1.0)


@dataclass(frozen=True)
class Squared(Loss):
    """l(p, y) = 1/2 (p - y)^2."""

    name: ClassVar[str] = "squared"

    def dual_box(self, y: ArrayLike) -> DualBox:
        return _dual_box(y, -np.inf, np.inf, quadratic=1.0)

    def value(self, p: ArrayLike, y: ArrayLike) -> Floats:
        return 0.5 * self.error(p, y)

    def error(self, p: ArrayLike, y: ArrayLike) -> Floats:
        # The factor 1/2 is for the within-task problem only; users expect the squared error.
        return np.subtract(p, y, dtype=np.float64) ** 2


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """l(p, y) = log(1 + exp(-y p)) for targets y in {-1, +1}.

    With b = -a y in [0, 1] the conjugate is b log b + (1 - b) log(1 - b).
    """

    name: ClassVar[str] = "logistic"

    def value(self, p: ArrayLike, y: ArrayLike) -> Floats:
        return np.logaddexp(0.0, -np.multiply(p, y, dtype=np.float64))

    def subgradient(self, p: ArrayLike, y: ArrayLike) -> Floats:
        margin = np.multiply(p, y, dtype=np.float64)
        return -np.asarray(y, dtype=np.float64) * np.exp(-np.logaddexp(0.0, margin))

    def dual_box(self, y: ArrayLike) -> DualBox:
        signs = np.array(y, dtype=np.float64)
        return DualBox(signs, signs, signs, quadratic=1.0, logistic=True)


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """l(p, y) = (1 - y p)_+ for targets y in {-1, +1}."""

    name: ClassVar[str] = "hinge"

    def dual_box(self, y: ArrayLike) -> DualBox:
        slope = np.negative(y, dtype=np.float64)
        return _dual_box(y, np.minimum(slope, 0.0), np.maximum(slope, 0.0))


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Absolute, Pinball, Huber, Squared, Logistic, Hinge)
}


def error_name(loss: str) -> str:
    """Return the name of the loss's error in tables, e.g. "squared error"."""
    if loss == "bernoulli":
        return "log loss"
    if loss in ("poisson", "negative_binomial"):
        return "half Poisson deviance"
    return f"{loss} {'error' if loss in ('absolute', 'squared') else 'loss'}"


def get_loss(loss: str | Loss) -> Loss:
    """Return the loss with this name; a loss is returned unchanged."""
    return loss if isinstance(loss, Loss) else LOSSES[check_choice("loss", loss, LOSSES)]()
