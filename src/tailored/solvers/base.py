"""What a solver is given, what it returns, and what it has to say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..objectives import Objective
from ..prior import Prior
from ..representation import Bias, Conditioning
from ..tasks import TaskSet
from .batch import TaskBatch
from .trajectory import Callback

Array = NDArray[np.float64]

#: Mean error on the held-out tasks of a conditioning function and a prior mean.
Judge = Callable[[Conditioning, Bias], float]


class DivergenceError(ValueError):
    """The iterates overflowed with every step that was tried."""


@dataclass(frozen=True)
class Problem:
    """An objective, tasks to minimise it on, and tasks to judge the result by.

    Attributes
    ----------
    start : Prior
        H = 0, C = C₀, b = 0, and everything else that the learned prior will have.
    objective : Objective
    tasks : TaskSet
        The training tasks as the user gave them.
    batch : TaskBatch
        The same as solvers see them, in the order of the stream.
    redraw : callable
        ``redraw(i)`` is the batch in its i-th division into support and query rows; 0 is ``batch`` itself.
    judge : Judge or None
        Error on held-out tasks; None for solvers that need none.
    has_start : bool
        Whether the user gave C₀; without one, a solver may find a better start.
    rank : int or None
        Directions of H that are kept; None keeps all.
    calibrate : bool
        Whether a scalar multiple of τ may be chosen on the held-out tasks.
    scale_features : bool
        Whether φ acts as if it had unit root-mean-square norm.
    seed : list of int
        For the solver's own draws.
    n_jobs : int or None
    tick : callable or None
        Told the progress.
    """

    start: Prior
    objective: Objective
    tasks: TaskSet
    batch: TaskBatch
    redraw: Callable[[int], TaskBatch]
    judge: Judge | None = None
    has_start: bool = False
    rank: int | None = None
    calibrate: bool = False
    scale_features: bool = True
    seed: list[int] = field(default_factory=list)
    n_jobs: int | None = None
    tick: Callable[[int], None] | None = None

    def solved(self, conditioning: Conditioning, bias: Bias) -> Prior:
        """The prior with what was learned."""
        return replace(self.start, conditioning=conditioning, bias=bias)


@dataclass(frozen=True)
class Solution:
    """What every solver returns.

    Attributes
    ----------
    prior : Prior
        A snapshot: going on from ``state`` makes another one.
    state : object
        Where the solver stands, for its next call.
    history : list of dict
        What was tried, with its error on the held-out tasks.
    error : float or None
        The least of them.
    scale : float
        The multiple of τ that is part of the prior.
    n_iter : int
    details : dict
        Fitted attributes of this solver alone, such as the step that was chosen.
    """

    prior: Prior
    state: Any
    history: list[dict[str, Any]]
    error: float | None
    scale: float
    n_iter: int
    details: dict[str, Any]


class Solver(BaseEstimator, ABC):
    """Base of the solvers: settings in the constructor, work in `solve`.

    scikit-learn's base class is there for its parameters alone, so that a grid search can reach
    ``solver__step``.
    """

    #: Whether tasks may come in pieces (`partial_fit`).
    streams: ClassVar[bool] = True
    #: Whether the tasks of `fit` are visited in the order given; else this order must not matter.
    in_given_order: ClassVar[bool] = False

    @property
    def needs_held_out(self) -> bool:
        """Whether the solver chooses something on held-out tasks."""
        return True

    def state(self) -> dict[str, Any]:
        """Constructor arguments that rebuild it."""
        settings: dict[str, Any] = self.get_params(deep=False)
        return settings

    @abstractmethod
    def n_ticks(self, n_tasks: int) -> int:
        """How often `Problem.tick` will be advanced, at most."""

    @abstractmethod
    def check(self, *, inner: str, rank: int | None, conditional: bool) -> None:
        """Raise a ValueError that names the argument if these settings cannot be honoured."""

    @abstractmethod
    def solve(self, problem: Problem, state: Any = None, callback: Callback | None = None) -> Solution:
        """Minimise, from the start or from the ``state`` of an earlier solution, which is left as it is."""
