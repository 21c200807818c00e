"""What all tasks share beyond the linear prior mean: a regressor of rows and descriptions, fitted out of fold.

Tasks are tailored on what the regressor leaves.  What it leaves of rows that it was fitted to is too little, so the
tasks to learn from are taken in parts, and the rows of a part are predicted by a regressor that was fitted to the
others; the one in use is fitted to all.  Parts are made of whole tasks: a new task is one that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags

from ._utils.records import Record
from ._utils.threads import single_threaded_openmp
from .feature_maps import SideVector
from .tasks import TaskSet
from .tasks.rows import dense

Array = NDArray[np.float64]

#: From this number of rows on, several threads of a regressor pay.
MANY_ROWS = 20_000
#: Parts that the tasks are taken in, at most.
PARTS = 5
#: Numbers in sparse rows that are filled up for a regressor that takes no sparse rows (800 MB).
MOST_DENSE = 100_000_000


@dataclass(frozen=True)
class CommonPart(Record):
    """A fitted regressor that reads the columns of a row and, after them, the description of its task.

    Attributes
    ----------
    regressor : object
        With a ``predict``.
    encoder : SideVector or None
        Numbers of a description; None where it is not read.
    """

    regressor: Any
    encoder: SideVector | None = None

    def describe(self, tasks: TaskSet) -> Array:
        """Numbers (T, k) that stand for the tasks' descriptions; k = 0 where they are not read."""
        return np.zeros((len(tasks), 0)) if self.encoder is None else self.encoder.transform(tasks)

    def predict(self, X: Any, described: Array) -> Array:
        """Predictions of rows ``X`` whose tasks are described by the rows of ``described``."""
        if X.shape[0] == 0:
            return np.zeros(0)
        read = _inputs(self.regressor, X, described)
        found = _told(self.regressor, "cannot predict", lambda: self.regressor.predict(read))
        return _checked(self.regressor, found, X.shape[0])

    def of(self, tasks: TaskSet) -> Array:
        """Predictions of all rows of tasks."""
        return self.predict(tasks.X, np.repeat(self.describe(tasks), tasks.sizes, axis=0))

    def leave(self, tasks: TaskSet) -> TaskSet:
        """The tasks with the targets that are left to them."""
        return with_targets(tasks, tasks.y - self.of(tasks))


class OutOfFold(NamedTuple):
    """The part that is fitted to all tasks, and the tasks with what regressors that had not seen them leave.

    ``others`` are these regressors, and ``part_of`` (T,) says which one has not seen a task.
    """

    part: CommonPart
    left: TaskSet
    others: tuple[CommonPart, ...]
    part_of: NDArray[np.intp]

    def leave(self, tasks: TaskSet, places: NDArray[np.intp]) -> TaskSet:
        """What is left of further tasks, and of those learned from: ``places`` (T,) are theirs among these, or −1.

        A task that was learned from has here the rows that it had there.
        """
        y = self.part.leave(tasks).y.copy()
        for t in np.flatnonzero(places >= 0):
            first, last = self.left.offsets[places[t] : places[t] + 2]
            y[tasks.offsets[t] : tasks.offsets[t + 1]] = self.left.y[first:last]
        return with_targets(tasks, y)


def fit_common(
    regressor: Any, tasks: TaskSet, seed: list[int], *, reads_description: bool = True
) -> OutOfFold:
    """Fit clones of ``regressor`` to all tasks, and to all but each of `PARTS` parts of them.

    Which part a task belongs to is drawn from ``seed``.
    """
    filled = int((tasks.sizes > 0).sum())
    if filled < 2:
        raise ValueError(
            f"common: {filled} task with rows; what tasks share is learned from two tasks on, leave common out"
        )
    encoder = SideVector().fit(tasks) if reads_description and tasks.side_info is not None else None
    whole = _fitted(regressor, tasks, encoder)
    # Tasks with rows take turns, so that no part is empty.
    order = np.random.default_rng(seed).permutation(len(tasks))
    order = order[np.argsort(tasks.sizes[order] == 0, kind="stable")]
    part_of = np.empty(len(tasks), dtype=np.intp)
    part_of[order] = np.arange(len(tasks)) % min(PARTS, filled)
    y = tasks.y.copy()
    part_of_row = np.repeat(part_of, tasks.sizes)
    others = tuple(_fitted(regressor, tasks[part_of != part], encoder) for part in range(min(PARTS, filled)))
    for part, other in enumerate(others):
        y[part_of_row == part] -= other.of(tasks[part_of == part])
    return OutOfFold(whole, with_targets(tasks, y), others, part_of)


def default_regressor() -> Any:
    """A booster of small trees; nothing in it is random.

    Of the mean, whatever the learner's loss: what it leaves goes into a Gaussian model, whose tasks correct the rest.
    It stops at a fixed number of trees, as rows that are drawn from the tasks at hand would stop it too late.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor  # slow to import, and only needed here

    return HistGradientBoostingRegressor(
        learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=20, early_stopping=False, random_state=0
    )


def with_targets(tasks: TaskSet, y: Array) -> TaskSet:
    """The same tasks with other targets."""
    return tasks.replace(y=y, encoding=None)


def check_regressor(common: Any) -> None:
    """Refuse what is no regressor before anything is fitted."""
    if isinstance(common, type):
        raise TypeError(f"common: got the class {common.__name__}; pass a regressor, {common.__name__}()")
    lacks = [name for name in ("fit", "predict", "get_params") if not hasattr(common, name)]
    if lacks:
        raise TypeError(
            f'common: expected None, "auto" or a scikit-learn regressor, got {common!r} without {", ".join(lacks)}'
        )


def _fitted(regressor: Any, tasks: TaskSet, encoder: SideVector | None) -> CommonPart:
    fresh = CommonPart(clone(regressor), encoder)
    read = _inputs(fresh.regressor, tasks.X, np.repeat(fresh.describe(tasks), tasks.sizes, axis=0))
    # A copy: the tasks' own targets are read-only, which some regressors cannot bear.
    with nullcontext() if len(tasks.y) > MANY_ROWS else single_threaded_openmp():
        _told(regressor, "cannot be fitted", lambda: fresh.regressor.fit(read, tasks.y.copy()))
    return fresh


def _inputs(regressor: Any, X: Any, described: Array) -> Any:
    """The columns of the rows, then those of the descriptions; sparse where the rows are and the regressor may."""
    if not sparse.issparse(X):
        return np.hstack([X, described])
    if get_tags(regressor).input_tags.sparse:
        return sparse.hstack([X, sparse.csr_array(described)], format="csr") if described.shape[1] else X
    if X.shape[0] * X.shape[1] > MOST_DENSE:
        raise ValueError(
            f"common: {_name(regressor)} takes no sparse rows, and these {X.shape[0]} rows of {X.shape[1]} columns "
            "are too many to be filled up; pass a regressor that takes sparse rows, such as Ridge()"
        )
    return np.hstack([dense(X), described])


def _told(regressor: Any, what: str, call: Callable[[], Any]) -> Any:
    """The result of a call of the user's regressor; its errors say whose they are."""
    try:
        return call()
    except Exception as error:
        raise ValueError(f"common: {_name(regressor)} {what}: {error}") from error


def _checked(regressor: Any, found: Any, n_rows: int) -> Array:
    found = np.asarray(found, dtype=float)
    if found.shape != (n_rows,):
        raise ValueError(
            f"common: {_name(regressor)} predicts shape {found.shape} for {n_rows} rows; expected ({n_rows},)"
        )
    if not np.isfinite(found).all():
        raise ValueError(f"common: {_name(regressor)} predicts NaN or infinity")
    return found


def _name(regressor: Any) -> str:
    return type(regressor).__name__
