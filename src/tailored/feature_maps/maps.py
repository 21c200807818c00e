"""The feature maps: their base class, maps of a task's rows, maps of the side information, and user-defined maps."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from .._utils.algebra import ridge
from .._utils.records import Fitted
from .._utils.validation import (
    check_divisor,
    check_positive,
    check_psd,
    check_real,
    check_shape,
    is_missing,
    name_some,
    native,
    outside,
)
from ..exceptions import UnknownCategoryWarning
from ..tasks.rows import Array, Scaling, dense, dense_rows
from ..tasks.task_set import TaskSet


class FeatureMap(Fitted, ABC):
    """Base of the feature maps: ``fit`` on the training tasks, ``transform`` to (T, k)."""

    #: Whether the map needs the task's rows.
    needs_rows: ClassVar[bool] = True
    #: Whether the map needs the task's side information.
    needs_side_info: ClassVar[bool] = False

    def fit(self, tasks: TaskSet) -> FeatureMap:
        """Learn parameters from the tasks; most maps have none."""
        return self

    @abstractmethod
    def transform(self, tasks: TaskSet) -> Array:
        """Return the features of every task, (T, k)."""

    def __repr__(self) -> str:
        """Return the class name and the constructor arguments."""
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def _not_fitted(self) -> ValueError:
        return ValueError(f"feature_map: this {type(self).__name__} is not fitted; call fit(tasks) first")


def check_features(phis: Array, tasks: TaskSet, n_side: int | None = None) -> Array:
    """Return the features; raise ValueError if one is not finite or their number differs from that in fit."""
    if n_side is not None and phis.shape[1] != n_side:
        raise ValueError(
            f"side_info: the feature map gives {phis.shape[1]} features, but it gave {n_side} in fit; "
            "give the same side information columns as in fit"
        )
    if not np.isfinite(phis).all():
        bad = native(tasks.labels[~np.isfinite(phis).all(axis=1)])[0]
        raise ValueError(f"feature_map: NaN or infinity in the features of task {bad!r}")
    return phis


class MeanEmbedding(FeatureMap):
    """``φ = 1/n Σ vec(x_i (y_i, 1)ᵀ)`` in R^{2d}: the paper's map for clusters and MovieLens."""

    def transform(self, tasks: TaskSet) -> Array:
        mean = _averaging_matrix(tasks)
        weighted = mean @ sparse.diags_array(tasks.y)
        return np.hstack([dense(weighted @ tasks.X), dense(mean @ tasks.X)])


class AngleMap(FeatureMap):
    """The paper's map for Jester: each rated item becomes a unit vector whose angle is its rating.

    ``φ = (cos(a) ⊙ c, sin(a) ⊙ c, 1)`` in R^{2d+1}, ``a = Σ x_i · π/4 · (M − y_i)/(M − m)``,
    ``c = Σ x_i``; items without a rating give (0, 0).

    Parameters
    ----------
    low, high : float, optional
        Bounds m and M of the rating scale; by default the range of the training targets.
    """

    scale: tuple[float, float] | None  # (m, M) in use; None before `fit`, unless both are given

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = low
        self.high = high
        self.scale = None if low is None or high is None else (low, high)

    def fit(self, tasks: TaskSet) -> AngleMap:
        if not len(tasks.y) and self.scale is None:
            reason = "the tasks have no rows from which to learn the rating scale; give low and high"
            raise ValueError(f"feature_map: {reason}")
        low = float(tasks.y.min()) if self.low is None else self.low
        self.scale = low, float(tasks.y.max()) if self.high is None else self.high
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.scale is None:
            raise self._not_fitted()
        low, high = self.scale
        angle = (np.pi / 4) * (high - tasks.y) / (high - low if high > low else 1.0)
        total = _averaging_matrix(tasks)
        total.data[:] = 1.0
        count = dense(total @ tasks.X)
        angles = dense((total @ sparse.diags_array(angle)) @ tasks.X)
        return np.hstack([np.cos(angles) * count, np.sin(angles) * count, np.ones((len(tasks), 1))])


class RidgeEstimate(FeatureMap):
    """Ridge estimate of the task's weights, ``(X̂ᵀX̂ + λI) w = X̂ᵀy`` with X̂ = [X, 1]; φ in R^{d+1}.

    Parameters
    ----------
    alpha : float, default=1.0
        λ; the paper uses 1 for Lenk.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def transform(self, tasks: TaskSet) -> Array:
        check_positive("alpha", self.alpha)
        Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
        out = np.empty((len(tasks), tasks.n_features + 1))
        # One system per task, because batched products round differently and a stream may be split anywhere.
        for t, task in enumerate(tasks):
            out[t] = ridge(dense_rows(task.X, True), task.y, self.alpha)
        return out


def _averaging_matrix(tasks: TaskSet) -> sparse.csr_array:
    """Return the (T, N) matrix that averages the rows of each task (zero for a task without rows)."""
    Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
    sizes = tasks.sizes
    weights = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
    shape = (len(tasks), len(weights))
    return sparse.csr_array((weights, np.arange(len(weights)), tasks.offsets), shape=shape)


class SideVector(FeatureMap):
    """The side information itself.

    Numeric tables are not changed.  If a table also has categorical columns, these are one-hot encoded (an unknown
    category gives zeros) and the numeric columns are standardised, so that all have comparable scales.

    A missing number is replaced by the mean of the column in training.  A column with missing numbers in training also
    gets a missing-value indicator.  A missing category is encoded as a separate category if categories were missing in
    training, and as zeros otherwise.
    """

    needs_rows, needs_side_info = False, True
    #: Column means, if the table is numeric.
    means: Array | None = None
    #: Positions of the columns with a missing-value indicator, if the table is numeric.
    indicated: tuple[int, ...] = ()
    #: The categories, or mean and standard deviation, of each column, if the table has categories.
    categories: list[dict[str, Any]] | None

    def __init__(self) -> None:
        self.categories = None

    def restore(self) -> None:
        if self.means is not None:
            check_shape("means", self.means, None)
        n = 0 if self.means is None else len(self.means)
        if sorted(set(self.indicated)) != list(self.indicated) or not all(0 <= j < n for j in self.indicated):
            raise ValueError("indicated: must be increasing positions of numeric columns")
        for i, code in enumerate(self.categories or ()):
            _check_code(code, f"categories.{i}")

    def fit(self, tasks: TaskSet) -> SideVector:
        table = _side_table(tasks)
        for j, column in enumerate(table.T):
            if len(column) and all(is_missing(value) for value in column):
                name = repr(tasks.side_names[j]) if tasks.side_names else str(j)
                raise ValueError(f"side_info: column {name} has no value in any task; drop the column")
        if table.dtype == object:
            self.categories, self.means, self.indicated = [_encoding(column) for column in table.T], None, ()
        else:
            missing = np.isnan(table)
            self.categories, self.means = None, np.nanmean(table, axis=0)
            self.indicated = tuple(np.flatnonzero(missing.any(axis=0)).tolist())
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return self._encode(tasks)[0]

    def known(self, tasks: TaskSet) -> NDArray[np.bool_]:
        """Return whether each feature of each task is observed, not imputed, (T, k)."""
        return self._encode(tasks)[1]

    @property
    def origins(self) -> list[int]:
        """The table column that each feature comes from."""
        if self.categories is None:
            assert self.means is not None
            return [*range(len(self.means)), *self.indicated]
        widths = [
            1 + bool(code.get("indicator", False)) if "mean" in code else len(code["values"])
            for code in self.categories
        ]
        return np.repeat(np.arange(len(widths)), widths).tolist()

    def contrasts(self) -> list[tuple[int, str, dict[int, float]]]:
        """Return (column, category, feature changes) for a unit of each number, and for each category against the first."""
        found, origins = list[tuple[int, str, dict[int, float]]](), self.origins
        for f, column in enumerate(origins):
            first, code = origins.index(column), {} if self.categories is None else self.categories[column]
            if "values" not in code:
                unit = {f: 1.0 / code.get("deviation", 1.0)} if f == first else {f: 1.0}
                found.append((column, "" if f == first else "missing", unit))
            elif f > first:
                value = code["values"][f - first]
                found.append((column, "missing" if value is None else str(value), {f: 1.0, first: -1.0}))
        return found

    def _encode(self, tasks: TaskSet) -> tuple[Array, NDArray[np.bool_]]:
        """Return the features, and a mask of the observed ones."""
        table = _side_table(tasks)
        codes = self.means if self.categories is None else self.categories
        if codes is not None and table.shape[1] != len(codes):
            raise ValueError(f"side_info: expected {len(codes)} columns as in fit, got {table.shape[1]}")
        if self.categories is None:
            values = _as_numbers(table, "the side information")
            missing = np.isnan(values)
            indicators = missing[:, list(self.indicated)]
            if missing.any() and self.means is not None:
                values = np.where(missing, self.means, values)
            return np.hstack([values, indicators]), np.hstack([~missing, np.ones_like(indicators)])
        names = [repr(name) for name in tasks.side_names] if tasks.side_names else range(len(self.categories))
        columns = zip(table.T, self.categories, names, strict=True)
        features, known = zip(*(_encoded(*column) for column in columns), strict=True)
        return np.hstack(features), np.hstack(known)


def _check_code(code: dict[str, Any], name: str) -> None:
    """Raise a ValueError unless this is the encoding of one column."""
    if set(code) == {"values"}:
        values = code["values"]
        if not isinstance(values, list) or len(set(values)) != len(values):
            raise ValueError(f"{name}: values must be a list of different categories")
    elif {"mean", "deviation"} <= set(code) <= {"mean", "deviation", "indicator"}:
        check_real(f"{name}.mean", code["mean"])
        check_divisor(f"{name}.deviation", check_real(f"{name}.deviation", code["deviation"]))
    else:
        raise ValueError(f"{name}: must have values, or a mean and a deviation")


def _as_numbers(table: NDArray[Any], what: str) -> Array:
    """Convert a table that was numeric in fit to floats; raise ValueError if it contains strings."""
    try:
        if table.dtype == object and any(isinstance(value, str) for value in table.ravel()):
            raise ValueError("strings")
        return table.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"side_info: {what} was numeric in fit and contains text now; give the same columns as in fit"
        ) from error


def _encoding(column: NDArray[Any]) -> dict[str, Any]:
    known = [value for value in column if not is_missing(value)]
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in known):
        values = np.array(known, dtype=float)
        return {
            "mean": float(values.mean()),
            "deviation": float(values.std()) or 1.0,
            "indicator": len(known) < len(column),
        }
    categories = sorted(set(known), key=lambda value: (str(type(value)), value))
    return {"values": [*categories, None] if len(known) < len(column) else categories}


def _encoded(column: NDArray[Any], encoding: dict[str, Any], name: Any) -> tuple[Array, NDArray[np.bool_]]:
    """Return the features for one column of a table with categories, and a mask; warn about unknown categories."""
    missing = np.array([is_missing(value) for value in column], dtype=bool)
    if "mean" in encoding:
        numbers = _as_numbers(np.where(missing, encoding["mean"], column), "one of its columns")
        parts = [(numbers - encoding["mean"]) / encoding["deviation"]]
        if encoding.get("indicator", False):
            parts.append(missing.astype(float))
        known = np.column_stack([~missing, *(np.ones_like(missing) for _ in parts[1:])])
        return np.column_stack(parts), known
    positions = {value: j for j, value in enumerate(encoding["values"])}
    out, unknown = np.zeros((len(column), len(positions))), dict[Any, None]()
    for t, value in enumerate(column):
        j = positions.get(None if missing[t] else value)
        if j is not None:
            out[t, j] = 1.0
        elif not missing[t]:
            unknown[value] = None
    if unknown:
        treatment = "none of these, with zero indicators" if None in positions else "a missing value"
        warnings.warn(
            f"side_info: column {name}: {name_some(unknown, 3)} did not appear in training, "
            f"which had {name_some([v for v in positions if v is not None], 3)}. It is treated as {treatment}.",
            UnknownCategoryWarning,
            stacklevel=outside(),
        )
    return out, np.ones(out.shape, dtype=bool)


class Transformer(FeatureMap):
    """Any scikit-learn transformer applied to the table of side information; ``fitted`` is its fitted clone."""

    needs_rows, needs_side_info = False, True

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer
        self.fitted: Any = None

    def fit(self, tasks: TaskSet) -> Transformer:
        self.fitted = clone(self.transformer).fit(_side_table(tasks))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.fitted is None:
            raise self._not_fitted()
        return dense(self.fitted.transform(_side_table(tasks)))


class CallableMap(FeatureMap):
    """``φ = function(s)``, a 1-D array, where s is the side information of a task.

    s is a 1-D array in the order of the columns, of objects if there are categories.  Where tasks have no side information,
    s is the task itself, with ``X``, ``y`` and ``label``, as in the paper's experiments.  For a function of both, derive
    a class from `FeatureMap`.
    """

    needs_rows = False
    _argument: ClassVar[str] = "feature_map"

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self._reads_side_info = False

    def fit(self, tasks: TaskSet) -> Self:
        self._reads_side_info = tasks.side_info is not None
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self._reads_side_info and tasks.side_info is None:
            reason = "is a function of the side information and none was given; pass it"
            raise ValueError(f"side_info: {self._argument} {reason}")
        return self._checked(
            [self.function(task if task.side_info is None else task.side_info) for task in tasks], tasks
        )

    def _checked(self, values: list[Any], tasks: TaskSet) -> Array:
        rows: list[Array] = []
        for value, label in zip(values, native(tasks.labels), strict=True):
            phi = np.atleast_1d(np.asarray(value, dtype=float))
            if phi.ndim != 1 or (rows and len(phi) != len(rows[0])):
                expected = f" of length {len(rows[0])}, as for the first task" if rows else ""
                raise ValueError(
                    f"feature_map: the callable must return a 1-D vector{expected}; for task {label!r} it returned "
                    f"shape {phi.shape}"
                )
            rows.append(phi)
        return check_features(np.array(rows), tasks)


class GivenMap(CallableMap):
    """The entries of ``τ = function(s)``, row by row: φ for `representation.conditioning.Given`."""

    _argument = "tau"

    def __init__(self, function: Callable[[Any], Any], n_features: int) -> None:
        super().__init__(function)
        self.n_features = n_features

    def _checked(self, values: list[Any], tasks: TaskSet) -> Array:
        d, taus = self.n_features, []
        for value, label in zip(values, native(tasks.labels), strict=True):
            tau, name = np.asarray(value), f"tau of task {label!r}"
            if tau.shape != (d, d):
                raise ValueError(f"{name} must be a ({d}, {d}) matrix; got shape {tau.shape}.")
            taus.append(check_psd(tau, name, d))
        return np.array(taus).reshape(len(tasks), d * d)


def _side_table(tasks: TaskSet) -> NDArray[Any]:
    if tasks.side_info is None:
        raise ValueError(
            "side_info: this feature map needs side information and none was given; "
            "pass side_info=, or select a feature map of the task's own rows such as feature_map='mean'"
        )
    return tasks.side_info
