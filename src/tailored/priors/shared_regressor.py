"""Regressors shared by all tasks, fitted out of fold.

Tasks are adapted to the residuals of a weighted sum of regressors.  Residuals of rows that a regressor was fitted to are too
small.  The training tasks are therefore split into folds, and each fold is predicted by a clone that was fitted to the other
folds.  Folds consist of whole tasks, because the regressors have not been fitted to any rows of a new task either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags

from .._utils.records import Record
from .._utils.threads import single_threaded_openmp
from ..feature_maps import SideVector
from ..tasks.rows import Array, Matrix, dense
from ..tasks.task_set import TaskSet

Index = NDArray[np.intp]

#: Number of rows above which a regressor may use several threads.
MANY_ROWS = 20_000
#: Maximum number of folds.
FOLDS = 5
#: Maximum number of entries of sparse rows that are made dense, for a regressor that needs dense input (800 MB).
MAX_DENSE = 100_000_000


@dataclass(frozen=True)
class SharedRegressor(Record):
    """A weighted sum of regressors, whose inputs are the columns of a row and the encoded side information of its task."""

    weights: tuple[float, ...]
    parts: tuple[Any, ...]  # regressors with a ``predict``, fitted to all training tasks
    folds: tuple[tuple[Any, ...], ...] = ()  # the same regressors, fitted without the tasks of each fold
    encoder: SideVector | None = None  # encodes the side information; None if it is not used

    def encode(self, tasks: TaskSet) -> Array:
        """Return the encoded side information of each task, (T, k); k is 0 if it is not used."""
        return np.zeros((len(tasks), 0)) if self.encoder is None else self.encoder.transform(tasks)

    def predict(self, X: Matrix, inputs: Array, folds: Index | None = None) -> Array:
        """Predict rows X (n, ..) with encoded side information (n, k), using the regressors of each row's fold."""
        return self.predict_parts(X, inputs, folds) @ np.array(self.weights)

    def predict_parts(self, X: Matrix, inputs: Array, folds: Index | None = None) -> Array:
        """Return the predictions of each part, (n, p), without its weight."""
        folds = np.full(X.shape[0], -1) if folds is None else folds
        out = np.empty((X.shape[0], len(self.weights)))
        for fold in np.unique(folds):
            rows = slice(None) if (folds == fold).all() else folds == fold
            for j, part in enumerate(self.parts if fold < 0 else self.folds[fold]):
                out[rows, j] = _predicted(part, X[rows], inputs[rows])
        return out

    def residual_tasks(self, tasks: TaskSet, folds: Index | None = None) -> TaskSet:
        """Return the tasks with residuals as targets; ``folds`` (T,) are the folds of training tasks, -1 for new tasks."""
        inputs = np.repeat(self.encode(tasks), tasks.sizes, axis=0)
        at = None if folds is None else np.repeat(folds, tasks.sizes)
        return tasks.replace(y=tasks.y - self.predict(tasks.X, inputs, at), encoding=None)


class OutOfFold(NamedTuple):
    """A shared regressor with the fold (T,) of each training task."""

    regressor: SharedRegressor
    folds: Index

    def predict_parts(self, tasks: TaskSet) -> Array:
        """Return the out-of-fold predictions of each part for the rows of the training tasks, (n, p)."""
        shared, folds = self.regressor, np.repeat(self.folds, tasks.sizes)
        return shared.predict_parts(tasks.X, np.repeat(shared.encode(tasks), tasks.sizes, axis=0), folds)

    def weighted(self, weights: Array, tasks: TaskSet) -> OutOfFold:
        """Return the weighted sum of the parts with positive weights, which are also fitted to all tasks."""
        shared, used = self.regressor, [j for j, weight in enumerate(weights) if weight > 0] or [0]
        folds = tuple(tuple(parts[j] for j in used) for parts in shared.folds)
        parts = tuple(_fitted(part, tasks, shared.encoder) for part in folds[0])
        weights_used = tuple(float(weights[j]) for j in used)
        return self._replace(regressor=SharedRegressor(weights_used, parts, folds, shared.encoder))

    def folds_of(self, positions: Index) -> Index:
        """Return the folds of the training tasks at these positions; position -1 gives fold -1."""
        return np.where(positions < 0, -1, self.folds[positions])


def fit_out_of_fold(
    regressors: Sequence[Any], tasks: TaskSet, seed: list[int], *, reads_side_info: bool = True
) -> OutOfFold:
    """Fit clones of ``regressors`` to the tasks outside each fold; all weights are one."""
    n_filled = int((tasks.sizes > 0).sum())
    if n_filled < 2:
        raise ValueError(f"common: a shared regressor needs at least two tasks with rows, got {n_filled}")
    encoder = SideVector().fit(tasks) if reads_side_info and tasks.side_info is not None else None
    # Tasks with rows are assigned first, so that every fold has rows.
    order = np.random.default_rng(seed).permutation(len(tasks))
    order = order[np.argsort(tasks.sizes[order] == 0, kind="stable")]
    n_folds = min(FOLDS, n_filled)
    folds = np.empty(len(tasks), dtype=np.intp)
    folds[order] = np.arange(len(tasks)) % n_folds
    others = (tasks[folds != fold] for fold in range(n_folds))
    fitted = tuple(tuple(_fitted(each, some, encoder) for each in regressors) for some in others)
    return OutOfFold(SharedRegressor((1.0,) * len(regressors), (), fitted, encoder), folds)


def default_regressors() -> list[Any]:
    """Return the regressors of ``common="auto"``: gradient boosting and a random forest, both with small trees.

    They estimate means whatever the loss of the learner is, because their residuals are modelled as Gaussian.  The number of
    trees is fixed, because early stopping on random rows of the same tasks would stop too late.
    """
    # Imported here because the import is slow.
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

    boosting = {"max_iter": 150, "learning_rate": 0.1, "max_leaf_nodes": 8, "min_samples_leaf": 20}
    forest = {"n_estimators": 50, "max_leaf_nodes": 500, "min_samples_leaf": 5, "max_features": 0.5}
    return [
        HistGradientBoostingRegressor(early_stopping=False, random_state=0, **boosting),
        RandomForestRegressor(random_state=0, **forest),
    ]


def check_regressor(common: Any) -> None:
    """Raise TypeError unless ``common`` is a regressor that can be cloned."""
    if isinstance(common, type):
        raise TypeError(f"common: got the class {common.__name__}; pass a regressor, {common.__name__}()")
    missing = [name for name in ("fit", "predict", "get_params") if not hasattr(common, name)]
    if missing:
        absent = ", ".join(missing)
        raise TypeError(f"common: expected None, a name or a regressor, got {common!r} without {absent}")


def _fitted(regressor: Any, tasks: TaskSet, encoder: SideVector | None) -> Any:
    fresh = clone(regressor)
    inputs = np.repeat(SharedRegressor((), (), (), encoder).encode(tasks), tasks.sizes, axis=0)
    columns = _columns(fresh, tasks.X, inputs)
    with nullcontext() if len(tasks.y) > MANY_ROWS else single_threaded_openmp():
        # Pass a copy of the targets: some regressors write into them, and those of a TaskSet are read-only.
        _call(fresh, "cannot be fitted", lambda: fresh.fit(columns, tasks.y.copy()))
    return fresh


def _predicted(regressor: Any, X: Matrix, inputs: Array) -> Array:
    """Return finite predictions of shape (n,), or raise ValueError."""
    n, name = X.shape[0], type(regressor).__name__
    if n == 0:
        return np.zeros(0)
    columns = _columns(regressor, X, inputs)
    out = np.asarray(_call(regressor, "cannot predict", lambda: regressor.predict(columns)), dtype=float)
    if out.shape != (n,):
        raise ValueError(f"common: {name} predicts shape {out.shape} for {n} rows; expected ({n},)")
    if not np.isfinite(out).all():
        raise ValueError(f"common: {name} predicts NaN or infinity")
    return out


def _columns(regressor: Any, X: Matrix, inputs: Array) -> Matrix:
    """Join the columns of rows and side information; sparse rows stay sparse if the regressor accepts them."""
    if not sparse.issparse(X):
        return np.hstack([X, inputs])
    if get_tags(regressor).input_tags.sparse:
        return sparse.hstack([X, sparse.csr_array(inputs)], format="csr") if inputs.shape[1] else X
    if X.shape[0] * X.shape[1] > MAX_DENSE:
        found = f"common: {type(regressor).__name__} does not take sparse rows, and X is too large to be made dense"
        raise ValueError(f"{found}. Pass a regressor that does, such as Ridge().")
    return np.hstack([dense(X), inputs])


def _call(regressor: Any, failure: str, call: Callable[[], Any]) -> Any:
    """Call the user's regressor; add its name to the message of any error."""
    try:
        return call()
    except Exception as error:
        raise ValueError(f"common: {type(regressor).__name__} {failure}: {error}") from error
