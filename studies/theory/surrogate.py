"""The surrogate of one representation over many tasks, and its minimiser with a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tailored._utils.threads import single_threaded_blas
from tailored.losses import get_loss
from tailored.paper.algorithm_1 import Surrogate
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows
from tailored.tasks.task_set import TaskSet

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SurrogateMinimum:
    """Result of `MeanSurrogate.minimise`."""

    representation: Array
    value: float
    #: The minimum over all representations of at most twice this trace is at most this much below
    #: ``value``.
    gap: float


class MeanSurrogate:
    """``θ -> 1/T Σ_t [min_w R_{Z_t,θ}(w) + 2L²/n² Tr(θ X_tᵀX_t)]`` over given tasks (Eq. 22).

    Parameters
    ----------
    tasks : TaskSet
        Dense, each with at least one row.
    loss : str or Loss, default="absolute"
        Lipschitz.
    """

    def __init__(self, tasks: TaskSet, loss: Any = "absolute") -> None:
        fitted = get_loss(loss)
        rows = Rows(tasks.X, tasks.y, tasks.offsets)
        self._tasks = [rows.tasks(t, t + 1) for t in range(len(tasks))]
        self._objective = Surrogate(WithinTask(fitted), fitted.lipschitz)

    def __call__(self, theta: Array) -> float:
        return self.value_and_gradient(theta)[0]

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """The mean over the tasks and its gradient in θ."""
        with single_threaded_blas():
            found = [self._objective(task, theta) for task in self._tasks]
        values, gradients = map(np.array, zip(*found, strict=True))
        return float(values.mean()), gradients.mean(axis=0)

    def minimise(self, start: Array, max_iter: int = 200) -> SurrogateMinimum:
        """Minimise over θ ⪰ 0 through a square factor, ``θ = FFᵀ``, by L-BFGS.

        The factor has full size, so a local minimum is a global one; the gap certifies it all the
        same: ``f(θ) - f(θ') <= <∇f(θ), θ> - Tr(θ') λ_min(∇f(θ))`` for every θ', by convexity.
        """
        d = len(start)

        def objective(flat: Array) -> tuple[float, Array]:
            F = flat.reshape(d, d)
            value, gradient = self.value_and_gradient(F @ F.T)
            return value, 2.0 * (gradient @ F).ravel()

        # A singular start would keep its null space for ever: the gradient in F vanishes there.
        factor = np.linalg.cholesky(start + 1e-3 * max(np.trace(start) / d, 1e-3) * np.eye(d))
        options = {"maxiter": max_iter, "ftol": 1e-14, "gtol": 1e-9}
        result = minimize(objective, factor.ravel(), jac=True, method="L-BFGS-B", options=options)
        F = result.x.reshape(d, d)
        theta = F @ F.T
        value, gradient = self.value_and_gradient(theta)
        lowest = min(float(np.linalg.eigvalsh(gradient)[0]), 0.0)
        return SurrogateMinimum(
            theta, value, float(np.sum(gradient * theta)) - 2.0 * np.trace(theta) * lowest
        )
