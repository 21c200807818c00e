"""The previous state of the art: one representation in a trace ball, and a regularisation
parameter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tailored.paper.algorithm_1 import StepSizes, Surrogate, Trajectory, run
from tailored.paper.prior import RepresentationPrior
from tailored.tasks.rows import Rows

from .searched import Array, SearchedLearner


def project_trace_ball(matrix: Array, radius: float) -> Array:
    """Nearest matrix of ``{θ ⪰ 0, Tr θ <= radius}`` in Frobenius norm (of the symmetric part)."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    values = np.maximum(values, 0.0)
    if values.sum() > radius:
        # The eigenvalues move to the simplex: all lose the same amount, and none falls below zero.
        # Counted from the largest one, beside which the radius may be rounding.
        values = values - values[-1]
        falling = values[::-1]
        losses = (np.cumsum(falling) - radius) / np.arange(1, len(falling) + 1)
        values = np.maximum(values - losses[np.flatnonzero(falling > losses)[-1]], 0.0)
    return np.asarray((vectors * values) @ vectors.T)


class TraceBall(Trajectory):
    """A run in terms of C = θ/λ, whose steps project on ``{C ⪰ 0, Tr C <= radius}``, radius = 1/λ.

    A step of θ is λ² times one of C.
    """

    def __init__(self, step_size: float, radius: float, d: int) -> None:
        super().__init__(StepSizes(step_size * radius**2, 0.0), np.eye(d) * (radius / d), 0)
        self.radius = radius

    def step(self, gradient: Array, *more: Any) -> None:
        change = self.steps.C * gradient
        if not np.isfinite(change).all():
            raise OverflowError("the iterate C is no longer finite")
        self.C = project_trace_ball(self.C - change, self.radius)


class TraceConstrainedLearner(SearchedLearner):
    """``min over θ ⪰ 0, Tr θ <= 1 of E min_w 1/n Σ ℓ(<x_i, w>, y_i) + λ/2 wᵀθ†w`` by projected SGD.

    The unconditional method of the earlier literature (Remark 1, Eq. 15): its meta-objective is the
    regularised empirical risk alone, so that nothing but the trace constraint keeps θ small and the
    scale is left to a second hyper-parameter.  Returns the average of the iterates from ``θ =
    I/d``; within a task this is our problem at the representation θ/λ, which is what
    ``representation`` gives.

    Parameters
    ----------
    step_size : "search" or float, default="search"
        Step of θ.
    regularization : "search" or float, default="search"
        λ.
    loss, inner, fit_intercept, tol, n_jobs, random_state
        As for `UnconditionalLearner`.
    """

    _grid: ClassVar = {
        "step_size": tuple(np.logspace(-4, 1, 6)),
        "regularization": tuple(np.logspace(-4, 1, 6)),
    }

    def _train(
        self,
        start: RepresentationPrior,
        rows: Rows,
        phis: Array,
        candidates: list[dict[str, float]],
    ) -> list[RepresentationPrior | None]:
        runs: list[Trajectory] = [
            TraceBall(each["step_size"], 1.0 / each["regularization"], rows.X.shape[1])
            for each in candidates
        ]
        surrogate = Surrogate(start.algorithm, 0.0)
        run(runs, rows, phis, np.ones(len(phis)), surrogate, n_jobs=self.n_jobs)
        return [None if one.failure else replace(start, conditioning=one.average()) for one in runs]
