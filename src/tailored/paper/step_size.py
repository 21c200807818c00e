"""The step size γ of Algorithm 1: given, or selected on held-out tasks of the stream, as in the
paper's experiments (Sec. 5).

All candidates share one pass over the training tasks, and `select` compares the means of their
iterates on held-out tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator

from .._utils.records import Stored
from .._utils.threads import single_threaded_blas
from .._utils.validation import check_choice, check_nonnegative
from ..tasks.rows import Array, Rows, mean_error, predictions
from .algorithm_1 import StepSizes, Trajectory
from .prior import RepresentationPrior

#: The paper's grid: 14 values, log-spaced over [1e-5, 1e5].
PAPER_STEP_SIZES = tuple(float(step) for step in np.logspace(-5, 5, 14))
#: The default grid of the search, which is coarser because every step is tried with several ratios
#: for H.
STEP_SIZES = tuple(float(step) for step in np.logspace(-4, 4, 9))
#: Multiples of τ that are tried; 1 is first, so that a tie keeps the learned τ.
SCALES = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0)


@dataclass(eq=False, repr=False)
class ProjectedSGD(Stored, BaseEstimator):
    """The paper's Algorithm 1: one projected step per task, and the mean of the iterates.

    Parameters
    ----------
    step : "search", float or pair of floats, default="search"
        A pair is (step of C, step of H). "search" selects the step on held-out tasks.
        `tailored.paper.theory.learned_function` returns that of Theorem 5.
    step_sizes : sequence of floats, default=(1e-4, 1e-3, .., 1e4)
        Candidate steps of C in the search.
    step_ratios : sequence of floats, default=(0, 1, 10)
        Candidate ratios (step of H) / (step of C); 0 is unconditional learning.
    """

    step: Any = "search"
    _: KW_ONLY
    step_sizes: Any = STEP_SIZES
    step_ratios: Any = (0.0, 1.0, 10.0)

    @property
    def needs_held_out(self) -> bool:
        """Whether the step size is selected on held-out tasks."""
        return isinstance(self.step, str)

    def candidates(self, *, conditional: bool) -> list[StepSizes]:
        """Return the steps to try; the smallest ratio is first, so that a tie selects the simpler
        model.

        Raise an error that names the argument if the settings are not valid.
        """
        if not self.needs_held_out:
            steps = _numbers("step", self.step if np.ndim(self.step) else [self.step] * 2)
            if len(steps) != 2:
                raise ValueError(f"step: expected a pair (step of C, step of H), got {self.step!r}")
            return [StepSizes(*steps)]
        check_choice("step", self.step, ["search"], also="a number or a pair of numbers")
        sizes = _numbers("step_sizes", self.step_sizes)
        ratios = sorted(set(_numbers("step_ratios", self.step_ratios))) if conditional else [0.0]
        return [StepSizes(step, ratio * step) for ratio in ratios for step in sizes]


def _numbers(name: str, values: Any) -> list[float]:
    """Return the values of an argument as a list of at least one number."""
    if np.ndim(values) != 1 or len(values) == 0:
        raise ValueError(f"{name}: expected a list of at least one number, got {values!r}")
    return [check_nonnegative(name, value) for value in values]


def held_out_error(support: Rows, query: Rows, phis: Array, prior: RepresentationPrior) -> float:
    """Return the mean over tasks with features φ (T, k) of the mean error on their query rows;
    infinity if weights overflow or no task has query rows.
    """
    try:
        weights = prior.solve(support, phis).coef
    except OverflowError:
        return np.inf
    return mean_error(prior.loss.error(predictions(query, weights), query.y), query.offsets)


@dataclass(frozen=True)
class Selection:
    """The selected run, and the errors of all runs on the held-out tasks, if there are any."""

    prior: RepresentationPrior  # of the mean of its iterates, multiplied by ``scale``
    run: Trajectory
    scale: float = 1.0
    error: float | None = None  # the smallest error of a candidate
    history: Sequence[dict[str, float]] = ()  # the candidates with their errors
    #: errors of independent, unconditional and conditional learning
    errors: dict[str, float] = field(default_factory=dict)


def select(
    runs: Sequence[Trajectory],
    candidates: Sequence[StepSizes],
    start: RepresentationPrior,
    error_of: Callable[[RepresentationPrior], float] | None,
    scales: Sequence[float],
    n_jobs: int | None,
) -> Selection:
    """Return the candidate and the multiple of τ with the smallest error on the held-out tasks.

    ``start`` is the prior of C₀.  Runs that are not candidates are compared only.  Without
    ``error_of``, the first run is selected.
    """
    failed = [str(run.steps) for run in runs if run.failure and run.steps in candidates]
    if len(failed) == len(candidates):
        raise ValueError(
            f"step: the iterates overflow with step {', '.join(failed)} ({runs[0].failure}); "
            "give a smaller step, or rescale X and y"
        )
    if error_of is None:
        return Selection(replace(start, conditioning=runs[0].average()), runs[0])

    def errors_of(run: Trajectory) -> list[tuple[float, float, Trajectory, RepresentationPrior]]:
        if run.failure:
            return [(np.inf, scale, run, start) for scale in scales]
        with single_threaded_blas():
            average = run.average()
            priors = [replace(start, conditioning=average.scale(scale)) for scale in scales]
            return [(error_of(p), s, run, p) for p, s in zip(priors, scales, strict=True)]

    parallel = Parallel(n_jobs=n_jobs, require="sharedmem")
    tried = [row for rows in parallel(delayed(errors_of)(run) for run in runs) for row in rows]
    history = [
        {"step_C": run.steps.C, "step_H": run.steps.H, "scale": scale, "error": error}
        for error, scale, run, _ in tried
        if run.steps in candidates
    ]
    # The first minimum among the candidates that did not overflow, even if all errors are infinite.
    sound = (row for row in tried if row[2].steps in candidates and not row[2].failure)
    error, scale, best, prior = min(sound, key=lambda row: row[0])
    errors = {
        "independent": error_of(start),
        "unconditional": min(row[0] for row in tried if row[2].steps.H == 0.0),
    }
    if start.conditioning.n_side:
        errors["conditional"] = error
    return Selection(prior, best, scale, error, history, errors)
