"""The unconditional learner: one representation for all tasks."""

from __future__ import annotations

from typing import Any

from ..solvers import Solver
from ._objective import ObjectiveLearner


class UnconditionalLearner(ObjectiveLearner):
    """One representation θ = C for all tasks, learned from the stream of tasks.

    The unconditional counterpart of `ConditionalLearner`: the same objectives with H = 0.

    Parameters
    ----------
    loss, inner, objective, bias, fit_intercept, clip, solver, initial_representation, lipschitz, calibrate, \
validation_fraction, support, tol, max_iter, n_jobs, progress, random_state
        As for `ConditionalLearner` (``bias`` is "none" or "shared").
    """

    # no H, and so no features, no rank
    feature_map = None
    rank = None
    scale_features = True

    def __init__(
        self,
        *,
        loss: Any = "absolute",
        inner: str = "exact",
        objective: str = "surrogate",
        bias: str = "none",
        fit_intercept: bool = True,
        clip: Any = None,
        solver: Any = "projected",
        initial_representation: Any = None,
        lipschitz: float | None = None,
        calibrate: bool = True,
        validation_fraction: float = 0.2,
        support: float = 0.5,
        tol: float = 1e-8,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        progress: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.loss = loss
        self.inner = inner
        self.objective = objective
        self.bias = bias
        self.fit_intercept = fit_intercept
        self.clip = clip
        self.solver = solver
        self.initial_representation = initial_representation
        self.lipschitz = lipschitz
        self.calibrate = calibrate
        self.validation_fraction = validation_fraction
        self.support = support
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

    def _check_parameters(self) -> Solver:
        if self.bias == "conditional":
            raise ValueError(
                "bias: 'conditional' needs side information; use ConditionalLearner, or 'shared'"
            )
        return super()._check_parameters()
