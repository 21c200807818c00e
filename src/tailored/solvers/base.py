"""Interface of the solvers: their base class, the problem they solve and the solution they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from .._utils.records import Stored
from ..priors.representation import RepresentationPrior
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning
from ..tasks.rows import Array, Index, Rows, joined
from ..tasks.task_set import TaskSet
from .objectives import Objective

#: Returns the mean error of a conditioning function and a prior mean on the held-out tasks.
HeldOutError = Callable[[Conditioning, Bias], float]


class DivergenceError(ValueError):
    """The iterates overflowed with every step size that was tried."""


@dataclass(frozen=True)
class TaskBatch:
    """The training tasks in the form that solvers use, in stream order.

    ``squared_scale`` is c², the mean of ‖φ‖².  Dividing φ by c is the same as multiplying the step of H by c⁻⁴ and the
    step of B by c⁻².  `fit` uses one value for all tasks.  A stream uses the
    running mean up to and including each task.
    """

    support: Rows
    query: Rows | None
    phis: Array  # features φ of the tasks, (T, k)
    squared_scale: Array  # (T,)
    columns: Sequence[Index] | None = None  # non-zero columns of each sparse task

    def __len__(self) -> int:
        return len(self.phis)

    def slice(self, start: int, stop: int) -> TaskBatch:
        """Return the tasks from ``start`` to ``stop``."""
        query = None if self.query is None else self.query.tasks(start, stop)
        columns = None if self.columns is None else self.columns[start:stop]
        features = self.phis[start:stop], self.squared_scale[start:stop]
        return TaskBatch(self.support.tasks(start, stop), query, *features, columns)


def concatenate(batches: Sequence[TaskBatch]) -> TaskBatch:
    """Join several batches into one."""
    if len(batches) == 1:
        return batches[0]
    queries = [batch.query for batch in batches if batch.query is not None]
    return TaskBatch(
        joined([batch.support for batch in batches]),
        joined(queries) if queries else None,
        np.concatenate([batch.phis for batch in batches]),
        np.concatenate([batch.squared_scale for batch in batches]),
        [columns for batch in batches for columns in batch.columns or ()] or None,
    )


@dataclass(frozen=True)
class Problem:
    """An objective, the training tasks to minimise it on, and an error on held-out tasks for selection."""

    start: RepresentationPrior  # H = 0, C = C₀, b = 0; all other fields are those of the learned prior
    objective: Objective
    tasks: TaskSet  # the training tasks as passed by the user
    batch: TaskBatch  # the same tasks in the form that solvers use
    redraw: Callable[[int], TaskBatch]  # returns the i-th split into support and query rows; 0 is ``batch``
    held_out_error: HeldOutError | None = None  # None for solvers that do not use held-out tasks
    has_start: bool = False  # whether the user passed C₀; otherwise a solver may choose its own initial value
    rank: int | None = None  # number of directions of H that are kept; None keeps all
    tune_scale: bool = False  # whether to select a scalar multiple of τ on the held-out tasks
    seed: list[int] = field(default_factory=list)  # seed of the solver's random numbers
    n_jobs: int | None = None
    tick: Callable[[int], None] | None = None  # advances the progress bar

    def prior(self, conditioning: Conditioning, bias: Bias) -> RepresentationPrior:
        """Return the prior with learned parameters."""
        return replace(self.start, conditioning=conditioning, bias=bias)


@dataclass(frozen=True)
class Solution:
    """Result of every solver."""

    prior: RepresentationPrior  # a snapshot, not changed when a solver continues from ``state``
    state: Any  # state from which the next call of the solver can continue
    history: list[dict[str, Any]]  # candidates or iterates with their error on the held-out tasks
    error: float | None  # the smallest error in ``history``
    scale: float  # the selected multiple of τ, already applied in ``prior``
    n_iter: int
    details: dict[str, Any]  # fitted attributes that only this solver has, such as the selected step size


class Solver(Stored, BaseEstimator, ABC):
    """Base of the solvers: settings in the constructor, computation in `solve`.

    `BaseEstimator` provides ``get_params`` and ``set_params``, so that a grid search can set ``solver__step``.
    """

    streams: ClassVar[bool] = True  # whether tasks are used one after another, which `partial_fit` needs

    @property
    def needs_held_out(self) -> bool:
        """Whether the solver uses held-out tasks for selection."""
        return True

    @abstractmethod
    def n_ticks(self, n_tasks: int) -> int:
        """Return the largest number of calls of `Problem.tick`."""

    @abstractmethod
    def check(self, *, inner: str, rank: int | None, conditional: bool) -> None:
        """Raise a ValueError that names the argument if the settings are not valid."""

    @abstractmethod
    def solve(self, problem: Problem, state: Any = None) -> Solution:
        """Minimise from the initial value, or from the ``state`` of an earlier solution, which is not modified."""
