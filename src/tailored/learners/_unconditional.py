"""The unconditional learner: one representation for all tasks."""

from __future__ import annotations

from typing import Any

from ._streaming import _StreamingLearner


class UnconditionalLearner(_StreamingLearner):
    """One representation θ = C for all tasks, learned from the stream of tasks.

    The unconditional counterpart of `ConditionalLearner`: the same algorithm with H = 0.

    Parameters
    ----------
    loss, inner, objective, bias, fit_intercept, clip, solver, batch_size, max_passes, step_size, step_sizes, \
theory_constants, initial_representation, lipschitz, calibrate, validation_fraction, support, tol, max_iter, \
n_jobs, progress, random_state
        As for `ConditionalLearner` (``bias`` is "none" or "shared").
    """

    _conditional = False
    feature_map = None
    rank = None
    step_ratios = (0.0,)
    scale_features = True

    def __init__(
        self,
        *,
        loss: Any = "absolute",
        inner: str = "exact",
        objective: str = "surrogate",
        bias: str = "none",
        fit_intercept: bool = False,
        clip: Any = None,
        solver: str = "projected",
        batch_size: int = 32,
        max_passes: int = 50,
        step_size: Any = "search",
        step_sizes: Any = None,
        theory_constants: dict[str, float] | None = None,
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
        self.batch_size = batch_size
        self.max_passes = max_passes
        self.step_size = step_size
        self.step_sizes = step_sizes
        self.theory_constants = theory_constants
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bias == "conditional":
            raise ValueError(
                "bias: 'conditional' needs side information; use ConditionalLearner, or 'shared'"
            )
