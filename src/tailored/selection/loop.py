"""Run the steps of the selection.

Each step starts from the model accepted so far and may replace it; all candidates are scored on the
same held-out tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from .._utils.progress import Stages
from ..gaussian.side import SideStructure
from ..priors.base import Prior
from ..priors.shared import SharedEffects
from ..tasks.rows import Array
from .data import Fold, TrainingData, folds_of
from .rule import Score
from .structures import Structure


@dataclass(frozen=True)
class Candidate(Score):
    """A structure that competed: its fits to the training tasks of each fold, and their results."""

    structure: Structure
    folds: Sequence[Fold]
    models: Sequence[Any]
    priors: Sequence[Prior]

    @property
    def result(self) -> dict[str, Any]:
        """The structure, the error and the density."""
        return {**self.structure.describe(), "error": self.error, "density": self.mean_density}


def held_out(
    structure: Structure, folds: Sequence[Fold], models: Sequence[Any] | None = None
) -> Candidate:
    """Fit a structure to the training tasks of each fold, unless ``models`` are its fits, and score
    it on the held-out tasks.
    """

    def score(fold: Fold, model: Any) -> tuple[Prior, tuple[Array, Array, Array]]:
        prior = structure.prior(fold.data, model, fold)
        return prior, fold.score(structure.log_evidence(fold.held_out, model), prior)

    in_parallel = folds[0].data.in_parallel
    if models is None:
        models = in_parallel(lambda fold: fold.training.fit(structure), folds)
    priors, scores = zip(*in_parallel(score, folds, models), strict=True)
    density, errors, prior_errors = map(np.concatenate, zip(*scores, strict=True))
    return Candidate(density, errors, prior_errors, structure, folds, models, priors)


class Table(list[Candidate]):
    """All candidates, in the order in which they competed."""

    def compete(self, *arguments: Any) -> Candidate:
        """Add a row, see `held_out`."""
        self.append(held_out(*arguments))
        return self[-1]

    def of(self, folds: Sequence[Fold]) -> dict[Structure, Candidate]:
        """Return the candidates for the structure of the prior in these folds."""
        rows = (row for row in self if row.structure.is_final and row.folds is folds)
        return {row.structure: row for row in rows}


class FittedEffects(NamedTuple):
    """Shared effects fitted to all tasks, and corrections for their errors, to be applied to the
    model of the residuals.
    """

    effects: SharedEffects
    #: (d, d) to be added to the error covariance of b, in squared units of the targets
    mean_errors: Array
    growth: tuple[float, float]  # multiples of W and of the noise


@dataclass(frozen=True)
class State:
    """What the steps have accepted."""

    original: TrainingData
    data: TrainingData  # without the shared effects
    folds: Sequence[Fold]
    effects: FittedEffects | None = None
    side: SideStructure | None = None
    best: Candidate | None = None
    single: Candidate | None = None  # the selected Gaussian, whose errors guard richer structures
    offset: float = 0.0  # added to predictions
    without_rows: float = 0.0  # fraction of `difference` by which means without rows are moved

    @classmethod
    def of(cls, original: TrainingData, effects: FittedEffects | None = None) -> Self:
        data = original if effects is None else original.without(effects.effects)
        return cls(original, data, folds_of(data), effects)

    def views(
        self, data: TrainingData, learn: Callable[[TrainingData], TrainingData]
    ) -> list[Fold]:
        """Return the folds of other data, which ``learn`` returns for the training tasks."""

        def view(fold: Fold) -> Fold:
            train = data.tasks[fold.split.train]
            learned = learn(replace(data, tasks=train, n_validation=0))
            return fold if learned is self.data else Fold.of(learned, fold.split)

        return data.in_parallel(view, self.folds)


class Step(Protocol):
    """A step of the selection, see `rule`."""

    __name__: str

    def __call__(self, state: State, table: Table) -> State:
        """Propose models, let them compete in the table, and return what is accepted.

        Parts of the data that are accepted, such as shared effects, are fitted to all tasks.
        """


def search(data: TrainingData, steps: Sequence[Step], stage: Stages) -> tuple[State, Table]:
    """Return what the steps accept, and the table of all that competed."""
    state, table = State.of(data), Table()
    for step in steps:
        stage.begin(step.__name__.split("_", 1)[1].replace("_", " "))
        state = step(state, table)
        stage(1)
    return state, table
