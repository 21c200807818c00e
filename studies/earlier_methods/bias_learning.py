"""Biased regularisation: the representation is fixed, the mean of the weights is learned."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from tailored.representation.conditioning import Bias
from tailored.solvers.algorithm_1 import StepSizes, Trajectory
from tailored.tasks.rows import Rows

from .searched import Array, Learned, SearchedLearner


class _BiasLearner(SearchedLearner):
    _kind: str
    _grid: ClassVar = {
        "step_size": tuple(np.logspace(-3, 1, 5)),
        "regularization": tuple(np.logspace(-4, 0, 5)),
    }

    def _train(
        self, rows: Rows, phis: Array, candidates: list[dict[str, float]]
    ) -> list[Learned | None]:
        d, k = rows.X.shape[1], phis.shape[1]
        trajectories = []
        for candidate in candidates:
            theta = np.eye(d) / candidate["regularization"]
            steps = StepSizes(0.0, 0.0, candidate["step_size"])
            bias = Bias.zero(self._kind, d, k)
            trajectories.append(Trajectory.start(steps, theta, bias, k, None))
        return self._run(trajectories, rows, phis)


class UnconditionalBiasLearner(_BiasLearner):
    """``min over b of E min_w 1/n Σ ℓ(<x_i, w>, y_i) + λ/2 ‖w - b‖²`` by SGD, the mean of the iterates.

    Helps when the weight vectors of the tasks are close to one vector, rather than in one subspace.

    Parameters
    ----------
    step_size : "search" or float, default="search"
        Step of b.
    regularization : "search" or float, default="search"
        λ; the representation is ``I/λ``.
    loss, inner, fit_intercept, tol, n_jobs, random_state
        As for `UnconditionalLearner`.
    """

    _kind = "shared"


class ConditionalBiasLearner(_BiasLearner):
    """As `UnconditionalBiasLearner` with a mean for each task, ``b(s) = BΦ(s) + b₀``.

    The companion of the paper's method: it tailors a vector to the task where the paper tailors a
    representation.

    Parameters
    ----------
    feature_map : str, callable, transformer or FeatureMap, default="auto"
        As for `ConditionalLearner`; features act as if they had unit root-mean-square norm.
    step_size, regularization, loss, inner, fit_intercept, tol, n_jobs, random_state
        As for `UnconditionalBiasLearner`.
    """

    _kind = "conditional"

    def __init__(
        self,
        feature_map: Any = "auto",
        *,
        step_size: Any = "search",
        regularization: Any = "search",
        loss: Any = "absolute",
        inner: str = "exact",
        fit_intercept: bool = True,
        tol: float = 1e-8,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            step_size=step_size,
            regularization=regularization,
            loss=loss,
            inner=inner,
            fit_intercept=fit_intercept,
            tol=tol,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.feature_map = feature_map
