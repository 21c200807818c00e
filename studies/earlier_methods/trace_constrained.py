"""The previous state of the art: one representation in a trace ball, and a regularisation
parameter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tailored.paper.algorithm_1 import (
    RunningMean,
    StepSizes,
    StreamBatch,
    Surrogate,
    Trajectory,
    run,
)
from tailored.paper.prior import RepresentationPrior
from tailored.paper.representation import Factored
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


class TraceBall(Factored):
    """A constant representation C that every step projects on ``{C ⪰ 0, Tr C <= radius}``."""

    def __init__(self, C: Array, radius: float) -> None:
        super().__init__(C, 0)
        self.radius = radius

    def step(self, gradient: Array, phi: Array, step_C: float, *more: Any) -> None:
        if not np.isfinite(step_C * gradient).all():
            raise OverflowError("the iterate C is no longer finite")
        self.C = project_trace_ball(self.C - step_C * gradient, self.radius)


class TraceConstrainedLearner(SearchedLearner):
    """``min over θ ⪰ 0, Tr θ <= 1 of E min_w 1/n Σ ℓ(<x_i, w>, y_i) + λ/2 wᵀθ†w`` by projected SGD.

    The unconditional method of the earlier literature (Remark no_lambda, Eq.
    previous_unconditional_oracle): its meta-objective is the regularised empirical risk alone, so
    that nothing but the trace constraint keeps θ small and the scale is left to a second
    hyper-parameter.  Returns the average of the iterates from ``θ = I/d``; within a task this is
    our problem at the representation θ/λ, which is what ``representation`` gives.

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
        trajectories = [_start(rows.X.shape[1], **candidate) for candidate in candidates]
        batch = StreamBatch(rows, phis, np.ones(len(phis)))
        done = run(trajectories, batch, Surrogate(start.algorithm, 0.0), n_jobs=self.n_jobs)
        return [None if one.failure else replace(start, conditioning=one.average()) for one in done]


def _start(d: int, step_size: float, regularization: float) -> Trajectory:
    """The run in terms of C = θ/λ: radius 1/λ, and a step of θ is λ² times one of C."""
    radius = 1.0 / regularization
    start = np.eye(d) * (radius / d)
    steps = StepSizes(step_size * radius**2, 0.0)
    return Trajectory(steps, TraceBall(start, radius), RunningMean(d, 0))
