"""The step size γ of Algorithm 1: given, or selected on held-out tasks of the stream, as in the
paper's experiments (Sec. 5).

All candidates share one pass over the training tasks, and `select` compares the means of their
iterates on held-out tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
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
    def searches(self) -> bool:
        """Whether the step size is selected on held-out tasks."""
        return isinstance(self.step, str)

    def candidates(self, *, conditional: bool) -> list[StepSizes]:
        """Return the steps to try; the smallest ratio is first, so that a tie selects the simpler
        model.

        Raise an error that names the argument if the settings are not valid.
        """
        if not self.searches:
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
class Trial:
    """A run of Algorithm 1 and a multiple of τ, with their error on the held-out tasks."""

    run: Trajectory
    scale: float
    prior: RepresentationPrior  # of the mean of the iterates, multiplied by ``scale``
    error: float  # infinity if the iterates overflowed, NaN without held-out tasks

    @property
    def row(self) -> dict[str, float]:
        """The row of ``search_results_``."""
        steps = self.run.steps
        return {"step_C": steps.C, "step_H": steps.H, "scale": self.scale, "error": self.error}


def try_runs(
    runs: Sequence[Trajectory],
    start: RepresentationPrior,
    error_of: Callable[[RepresentationPrior], float] | None,
    scales: Sequence[float],
    n_jobs: int | None,
) -> list[Trial]:
    """Return a trial of each run with each multiple of τ; ``start`` is the prior of C₀."""

    def trials_of(run: Trajectory) -> list[Trial]:
        if run.failure:
            return [Trial(run, scale, start, np.inf) for scale in scales]
        with single_threaded_blas():
            average, trials = run.average(), []
            for scale in scales:
                prior = replace(start, conditioning=average.scale(scale))
                error = np.nan if error_of is None else error_of(prior)
                trials.append(Trial(run, scale, prior, error))
        return trials

    parallel = Parallel(n_jobs=n_jobs, require="sharedmem")
    return [
        trial for trials in parallel(delayed(trials_of)(run) for run in runs) for trial in trials
    ]


def select(tried: Sequence[Trial], candidates: Sequence[StepSizes]) -> Trial:
    """Return the candidate with the smallest error, and the first of those if there are several.

    Other runs are only compared with the candidates.
    """
    sound = [each for each in tried if each.run.steps in candidates and not each.run.failure]
    if not sound:
        raise ValueError(
            f"step: the iterates overflow with step {', '.join(map(str, candidates))} "
            f"({tried[0].run.failure}); give a smaller step, or rescale X and y"
        )
    return min(sound, key=lambda trial: trial.error)
