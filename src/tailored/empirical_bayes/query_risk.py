"""The conditional part of the prior mean, learned on the query risk: a convex problem.

The first pass gives a task weights w; a change ``Bψ(s)`` of its prior mean moves them by ``R Bψ(s)``,
R being the task's `influence`.  A query row x is then predicted by ``<x, w> + <Rᵀx, Bψ(s)>``, linear in B.
What is gained over the Gaussian model is that the loss is the one the user asked for: the median
instead of the mean where targets are skewed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from .._utils.records import cached_property
from ..losses import BoxLoss, DualBox, Loss

Array = NDArray[np.float64]

#: Penalties tried, strongest first; each starts from the solution of the one before.
PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
#: Width of the rounded kink, relative to the mean residual of the first pass.
SMOOTHING = 0.1
#: The constant column of ψ is an ordinary shared mean and hardly needs a penalty.
CONSTANT_PENALTY = 1e-3
#: Newton's steps at most, and the largest slope of the objective, which is about one, that is taken for zero.
NEWTON_STEPS, FLAT = 100, 1e-12
#: Numbers in B above which its second derivatives are not formed.
LARGEST_NEWTON = 1500


def smoothed(box: DualBox, prediction: Array, width: float) -> tuple[Array, Array]:
    """Values and slopes of a loss with its kinks rounded: ``½ width α²`` added to its conjugate.

    The absolute loss becomes Huber's, (p − y)² / (2 width) where |p − y| ≤ width.
    """
    beyond = prediction - box.linear
    shrunk = np.sign(beyond) * np.maximum(np.abs(beyond) - box.kink, 0.0)
    curvature = box.quadratic + width
    slope = np.clip(shrunk / curvature, box.lower, box.upper)
    return slope * beyond - 0.5 * curvature * slope**2 - box.kink * np.abs(slope), slope


@dataclass(frozen=True)
class QueryBias:
    """min over B of the smoothed query risk plus ``½ penalty ‖B‖²``, both in units of the first pass.

    Attributes
    ----------
    directions : array (N, d)
        ``Rᵀx`` of each query row.
    features : array (N, k)
        ψ of each query row's task, the constant first.
    prediction, target, weight : arrays (N,)
        First-pass predictions, targets, and weights that sum to one.
    loss : Loss
    unit : float
        Unit of the targets in which B is small or large.
    """

    directions: Array
    features: Array
    prediction: Array
    target: Array
    weight: Array
    loss: Loss
    unit: float = 1.0

    @cached_property
    def _box(self) -> DualBox:
        assert isinstance(self.loss, BoxLoss)
        return self.loss.dual_box(self.target)

    @cached_property
    def residual(self) -> float:
        """Mean absolute residual of the first pass (never quite zero, because it is divided by)."""
        return max(float(self.weight @ np.abs(self.target - self.prediction)), 1e-9 * self.unit)

    @cached_property
    def risk(self) -> float:
        """Mean loss of the first pass, likewise."""
        return max(float(self.weight @ self.loss.value(self.prediction, self.target)), 1e-9 * self.unit)

    def predict(self, B: Array) -> Array:
        """Predictions of the query rows with the prior means moved by Bψ."""
        return self.prediction + np.einsum("nk,nk->n", self.directions @ B, self.features)

    def value_and_gradient(self, flat: Array, penalty: float) -> tuple[float, Array]:
        """The objective at B (d, k), given and differentiated as a flat vector."""
        B = flat.reshape(self.directions.shape[1], self.features.shape[1])
        values, slopes = smoothed(self._box, self.predict(B), SMOOTHING * self.residual)
        slopes *= self.weight / self.risk
        pull = self._pull(penalty)
        value = self.weight @ values / self.risk + 0.5 * np.sum(pull * B * B)
        gradient = (self.directions * slopes[:, None]).T @ self.features + pull * B
        return float(value), gradient.ravel()

    def _pull(self, penalty: float) -> Array:
        """Penalty on each column of B, (k,)."""
        pull = np.full(self.features.shape[1], penalty * (self.unit / self.residual) ** 2)
        pull[0] *= CONSTANT_PENALTY
        return pull

    def second_derivatives(self, B: Array, penalty: float) -> Array:
        """Those of the objective at B, (dk, dk), in the order of the flat vector."""
        box, width = self._box, SMOOTHING * self.residual
        slopes = smoothed(box, self.predict(B), width)[1]
        # Where the loss is a straight line, nothing bends; a slope of zero is one inside a kink.
        bent = (slopes > box.lower) & (slopes < box.upper) & ((slopes != 0.0) | (box.kink == 0.0))
        moved = self.directions[bent][:, :, None] * self.features[bent][:, None, :]
        moved = moved.reshape(len(moved), B.size)
        curvature = np.broadcast_to(1.0 / (box.quadratic + width), bent.shape)[bent]
        bends = (moved * (self.weight[bent] * curvature / self.risk)[:, None]).T @ moved
        return np.asarray(bends + np.diag(np.tile(self._pull(penalty), len(B))))

    def settle(self, penalty: float, start: Array) -> Array:
        """The minimiser itself, by Newton's method from a ``start`` near it.

        L-BFGS stops where the objective hardly falls, and with small penalties that depends on the units of the
        data; few rows lie where the rounded loss bends, so that second derivatives are cheap.
        """
        if start.size > LARGEST_NEWTON:
            return self.fit(penalty, start, max_iter=1000)
        B = start
        for _ in range(NEWTON_STEPS):
            value, gradient = self.value_and_gradient(B.ravel(), penalty)
            if np.abs(gradient).max() < FLAT:
                break
            step = np.linalg.solve(self.second_derivatives(B, penalty), -gradient)
            promised, length = float(gradient @ step), 1.0
            while length > 1e-10:
                moved = B + length * step.reshape(B.shape)
                if self.value_and_gradient(moved.ravel(), penalty)[0] <= value + 1e-4 * length * promised:
                    break
                length /= 2.0
            else:
                break  # rounding: nothing is lower
            B = moved
        return B

    def fit(self, penalty: float, start: Array | None = None, max_iter: int = 60) -> Array:
        """B (d, k), by L-BFGS from ``start``."""
        shape = self.directions.shape[1], self.features.shape[1]
        result = minimize(
            self.value_and_gradient,
            np.zeros(shape[0] * shape[1]) if start is None else start.ravel(),
            args=(penalty,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxcor": 20},
        )
        return np.asarray(result.x).reshape(shape)
