"""Parts of predictions that all tasks share: effects of columns, and regressors that are fitted out of fold.

They are subtracted from the targets (for classes and counts, from the linear predictors), and the prior is learned for the
residuals.  Effects are curves of columns, products of two columns, and effects of categories.  On the rows to which a regressor was fitted, its
residuals are too small.  The training tasks are therefore split into folds, and each fold is predicted by a clone that was
fitted to the other folds.  Folds consist of whole tasks, because no rows of a new task are used to fit the regressors either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import get_tags

from .._utils.records import Record
from .._utils.threads import single_threaded_openmp
from .._utils.validation import check_real, check_shape
from ..feature_maps import SideVector
from ..feature_maps.side_features import Curve
from ..gaussian.responses import Response
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
class SharedPart(Record):
    """Base class of the shared parts, which may use side information."""

    encoder: SideVector | None = field(default=None, kw_only=True)  # None if side information is not used

    @property
    def n_inputs(self) -> int:
        return 0 if self.encoder is None else len(self.encoder.origins)

    def encode(self, tasks: TaskSet) -> Array:
        """Return the encoded side information of each task, (T, k); k is 0 if it is not used."""
        return np.zeros((len(tasks), 0)) if self.encoder is None else self.encoder.transform(tasks)

    def encode_rows(self, tasks: TaskSet) -> Array:
        """Return the encoded side information of the task of each row, (n, k)."""
        return np.repeat(self.encode(tasks), tasks.sizes, axis=0)


@dataclass(frozen=True)
class SharedCurve(Record):
    """A nonlinear function of one column, or a smooth function of it that is multiplied by a feature of the side information."""

    curve: Curve
    coef: Array  # (k,) coefficients of the basis functions
    level: float  # constant that is subtracted, so that the mean over the training rows is zero
    by: int = -1  # position of the feature of the side information; -1 if not multiplied
    centre: float = 0.0  # constant that is subtracted from this feature

    def restore(self) -> None:
        check_shape("coef", self.coef, self.curve.n_features)

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.curve.column,)

    def __call__(self, X: Array, inputs: Array) -> Array:
        values = self.curve(X) @ self.coef - self.level
        return np.asarray(values if self.by < 0 else values * (inputs[:, self.by] - self.centre))

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        differs = f" that differs by {side_names[self.by]}" if self.by >= 0 else ""
        return f"a curve of {names[self.curve.column]}{differs}"


@dataclass(frozen=True)
class SharedProduct(Record):
    """The product of two centred columns and a coefficient, minus ``level``, its mean over the training rows."""

    columns: tuple[int, int]
    centre: tuple[float, float]
    coef: float
    level: float

    def __call__(self, X: Array, inputs: Array) -> Array:
        (i, j), (a, b) = self.columns, self.centre
        return np.asarray(self.coef * (X[:, i] - a) * (X[:, j] - b) - self.level)

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        i, j = self.columns
        return f"the product of {names[i]} and {names[j]} (centred, coefficient {self.coef:.3g})"


@dataclass(frozen=True)
class SharedLevels(Record):
    """An effect for each category of a column, or for each value of a numeric column, shrunk towards zero."""

    column: int
    effects: Array  # (n,) effect of each category code or value
    variances: Array  # (n,) variances of the errors of the effects
    variance: float  # estimated variance of the effects, and of the error for an unknown category or value
    values: Array | None = None  # (n,) the values, increasing; None for the codes of categories

    def restore(self) -> None:
        check_shape("effects", self.effects, None)
        check_shape("variances", self.variances, len(self.effects))
        if (self.variances < 0).any():
            raise ValueError("variances: must not be negative")
        check_real("variance", self.variance, 0.0, 1e300)

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.column,)

    @property
    def is_coded(self) -> bool:
        """Whether the column has category codes, which nothing else uses."""
        return self.values is None

    def _positions(self, X: Array) -> NDArray[np.intp]:
        """Return the position of the category or value of each row; -1 if it is missing or did not occur in training."""
        x = X[:, self.column]
        if self.values is None:
            return np.where((x >= 0) & (x < len(self.effects)), x, -1).astype(np.intp)
        at = np.minimum(np.searchsorted(self.values, x), len(self.values) - 1)
        return np.where(self.values[at] == x, at, -1)

    def __call__(self, X: Array, inputs: Array) -> Array:
        return np.append(self.effects, 0.0)[self._positions(X)]

    def errors_of(self, X: Array) -> tuple[NDArray[np.intp], Array]:
        """Return the category of each row (n,), and the error variance of each category; unknown categories are last."""
        category = self._positions(X)
        codes, other = np.unique(X[category < 0, self.column], return_inverse=True)
        category[category < 0] = len(self.effects) + other
        return category, np.append(self.variances, np.full(len(codes), self.variance))

    def error_variances(self, X: Array) -> Array:
        """Return the error variance of the effect of each row, (n,)."""
        category, variances = self.errors_of(X)
        return np.asarray(variances[category])

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        name, std = names[self.column], float(np.sqrt(self.variance))
        return f"effects of {len(self.effects)} values of {name} (std {std:.3g})"


#: A single shared effect.
SharedEffect = SharedCurve | SharedProduct | SharedLevels


@dataclass(frozen=True)
class SharedEffects(SharedPart):
    """The sum of the shared effects, in the units of the targets or of the linear predictor."""

    effects: tuple[SharedEffect, ...]
    skewness: float = 0.0  # of the responses of the training tasks, see `Likelihood.skewness`

    @property
    def levels(self) -> list[SharedLevels]:
        """The effects of categories and of values."""
        return [effect for effect in self.effects if isinstance(effect, SharedLevels)]

    @property
    def coded_columns(self) -> list[int]:
        """Positions of the columns of category codes."""
        return [one.column for one in self.levels if one.is_coded]

    def describe(self, names: Sequence[str], side_names: Sequence[str]) -> str:
        """Return a description of the effects, given the names of the columns of X and of the side information."""
        side = [] if self.encoder is None else [side_names[origin] for origin in self.encoder.origins]
        return "; ".join(effect.describe(names, side) for effect in self.effects)

    def check_columns(self, n_features: int) -> None:
        """Raise ValueError if the position of a column or of a side feature is out of range."""
        for effect in self.effects:
            if not all(0 <= j < n_features for j in effect.columns):
                raise ValueError(f"shared: columns must be positions below {n_features}")
            if isinstance(effect, SharedCurve) and effect.by >= self.n_inputs:
                raise ValueError(f"shared: by must be below {self.n_inputs}")

    def predict(self, X: Matrix, inputs: Array) -> Array:
        """Return the sum of the effects for each row, (n,); ``inputs`` (n, k) are encoded side information."""
        rows = dense(X)
        return sum((effect(rows, inputs) for effect in self.effects), np.zeros(len(rows)))

    def error_variances(self, X: Matrix) -> Array:
        """Return the error variance of the category effects of each row, (n,)."""
        rows = dense(X)
        return sum((one.error_variances(rows) for one in self.levels), np.zeros(len(rows)))

    def own_columns(self, X: Matrix) -> Matrix:
        """Return the rows with category codes replaced by zeros."""
        if not self.coded_columns:
            return X
        rows = dense(X).copy()
        rows[:, self.coded_columns] = 0.0
        return rows

    def residual_tasks(self, tasks: TaskSet, response: Response) -> TaskSet:
        """Remove the effects from tasks: subtract them from targets, or for classes and counts add them to log exposure."""
        part = self.predict(tasks.X, self.encode_rows(tasks))
        rest = response.without_part(tasks, part, self.error_variances(tasks.X), self.skewness)
        return rest.replace(X=self.own_columns(tasks.X))


@dataclass(frozen=True)
class SharedRegressor(SharedPart):
    """A weighted sum of regressors, whose inputs are the columns of a row and the encoded side information of its task."""

    weights: tuple[float, ...]
    parts: tuple[Any, ...]  # regressors with a ``predict``, fitted to all training tasks
    folds: tuple[tuple[Any, ...], ...] = ()  # the same regressors, fitted without the tasks of each fold

    def predict(self, X: Matrix, inputs: Array, folds: Index | None = None) -> Array:
        """Predict rows X (n, ..) with encoded side information (n, k), by the regressors of ``folds`` (n,), as in `Posterior`."""
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
        at = None if folds is None else np.repeat(folds, tasks.sizes)
        return tasks.replace(y=tasks.y - self.predict(tasks.X, self.encode_rows(tasks), at), encoding=None)


class OutOfFold(NamedTuple):
    """A shared regressor with the fold (T,) of each training task."""

    regressor: SharedRegressor
    folds: Index

    def predict_parts(self, tasks: TaskSet) -> Array:
        """Return the out-of-fold predictions of each part for the rows of the training tasks, (n, p)."""
        folds = np.repeat(self.folds, tasks.sizes)
        return self.regressor.predict_parts(tasks.X, self.regressor.encode_rows(tasks), folds)

    def weighted(self, weights: Array, tasks: TaskSet) -> OutOfFold:
        """Return the sum of the parts with positive weights, fitted to all tasks; if there are none, the first part with weight zero."""
        shared, used = self.regressor, [j for j, weight in enumerate(weights) if weight > 0] or [0]
        folds = tuple(tuple(parts[j] for j in used) for parts in shared.folds)
        parts = tuple(_fitted(part, tasks, shared.encode_rows(tasks)) for part in folds[0])
        weights_used = tuple(float(weights[j]) for j in used)
        return self._replace(regressor=replace(shared, weights=weights_used, parts=parts, folds=folds))

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
    shared = SharedRegressor((1.0,) * len(regressors), (), encoder=encoder)
    others = [tasks[folds != fold] for fold in range(n_folds)]
    fitted = tuple(
        tuple(_fitted(each, some, shared.encode_rows(some)) for each in regressors) for some in others
    )
    return OutOfFold(replace(shared, folds=fitted), folds)


def default_regressors() -> list[Any]:
    """Return the regressors of ``common="auto"``: gradient boosting with small trees, and a random forest.

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
        raise TypeError(f"common: {common!r} is not a regressor, because it does not have {absent}")


def _fitted(regressor: Any, tasks: TaskSet, inputs: Array) -> Any:
    fresh = clone(regressor)
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
        raise ValueError(f"{found}. Pass a regressor that accepts sparse rows, such as Ridge().")
    return np.hstack([dense(X), inputs])


def _call(regressor: Any, failure: str, call: Callable[[], Any]) -> Any:
    """Call the user's regressor; add its name to the message of any error."""
    try:
        return call()
    except Exception as error:
        raise ValueError(f"common: {type(regressor).__name__} {failure}: {error}") from error
