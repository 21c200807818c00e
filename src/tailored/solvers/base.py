"""What the solver of Algorithm 1 gets and returns: the problem and the solution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._utils.records import Record
from ..priors.representation import RepresentationPrior
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning
from ..tasks.rows import Array, Index, Rows
from .objectives import Objective

#: Returns the mean error of a conditioning function and a prior mean on given tasks; further arguments replace their φ.
HeldOutError = Callable[..., float]


class DivergenceError(ValueError):
    """The iterates overflowed with every step size that was tried."""


@dataclass(frozen=True)
class StepSizes(Record):
    """Constant steps for ``C``, ``H`` and the prior mean ``b``."""

    C: float
    H: float
    bias: float

    def __str__(self) -> str:
        if self.C == self.H == self.bias:
            return f"{self.C:g}"
        return f"(C: {self.C:g}, H: {self.H:g}, bias: {self.bias:g})"


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


@dataclass(frozen=True)
class Problem:
    """An objective, the training tasks to minimise it on, and an error on held-out tasks for selection."""

    start: RepresentationPrior  # H = 0, C = C₀, b = 0; all other fields are those of the learned prior
    objective: Objective
    batch: TaskBatch  # the training tasks
    held_out_error: HeldOutError | None = None  # None if the step size is given
    rank: int | None = None  # number of directions of H that are kept; None keeps all
    tune_scale: bool = False  # whether to select a scalar multiple of τ on the held-out tasks
    n_jobs: int | None = None
    tick: Callable[[int], None] | None = None  # advances the progress bar

    def prior(self, conditioning: Conditioning, bias: Bias) -> RepresentationPrior:
        """Return the prior with learned parameters."""
        return replace(self.start, conditioning=conditioning, bias=bias)


@dataclass(frozen=True)
class Solution:
    """Result of `ProjectedSGD.solve`."""

    prior: RepresentationPrior  # a snapshot, not changed when the solver continues from ``state``
    steps: StepSizes  # the selected step sizes
    state: Any  # state from which the next call of the solver can continue
    history: list[dict[str, Any]]  # candidates with their error on the held-out tasks
    error: float | None  # the smallest error in ``history``
    errors: dict[
        str, float
    ]  # errors on the held-out tasks of independent, unconditional and conditional learning
    scale: float  # the selected multiple of τ, already applied in ``prior``
    n_iter: int
