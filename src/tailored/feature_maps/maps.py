"""The feature maps: their base class, maps of a task's rows, maps of the side information, and user-defined maps."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from .._utils.algebra import ridge
from .._utils.records import Stored
from .._utils.validation import (
    check_positive,
    check_psd,
    is_missing,
    name_some,
    native,
    warn,
)
from ..exceptions import UnknownCategoryWarning
from ..tasks.rows import Array, Scaling, dense, dense_rows
from ..tasks.task_set import TaskSet


class FeatureMap(Stored, ABC):
    """Base class of the feature maps; ``fit`` reads training tasks, and ``transform`` returns features (T, k)."""

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
        return ValueError(
            f"feature_map: this {type(self).__name__} is not fitted; call fit(tasks) first"
        )


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
    """The paper's map for Jester: each rated item becomes a unit vector, whose angle depends on the rating.

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
            reason = (
                "the tasks have no rows from which to learn the rating scale; give low and high"
            )
            raise ValueError(f"feature_map: {reason}")
        low = float(tasks.y.min()) if self.low is None else self.low
        high = float(tasks.y.max()) if self.high is None else self.high
        if low > high:
            raise ValueError(f"low must be at most high; got {low} and {high}.")
        self.scale = low, high
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
    """The side information itself: numbers, missing-value indicators, and indicators of categories, in this order.

    Observed values of a numeric table are not changed.  If a table also has categorical columns, these are one-hot encoded (an unknown
    category gives zeros) and the numeric columns are standardised, so that all have comparable scales.

    A missing number is replaced by the mean of the column in training.  A column with missing numbers in training also
    gets a missing-value indicator.  A missing category is encoded as a separate category if categories were missing in
    training, and as zeros otherwise.
    """

    needs_rows, needs_side_info = False, True
    #: The categories of each column, with None for missing values; None instead of the list for a numeric column.
    categories: list[list[Any] | None] | None = None
    #: Means, shifts and scales of the numeric columns, (3, m).
    numbers: Array | None = None
    #: Positions of the numeric columns with a missing-value indicator.
    indicated: tuple[int, ...] = ()

    def fit(self, tasks: TaskSet) -> SideVector:
        table = _side_table(tasks)
        for j, column in enumerate(table.T):
            if len(column) and all(is_missing(value) for value in column):
                name = repr(tasks.side_names[j]) if tasks.side_names else str(j)
                raise ValueError(
                    f"side_info: column {name} has no value in any task; drop the column"
                )
        mixed = table.dtype == object
        self.categories = [_categories(column) if mixed else None for column in table.T]
        values = table[:, self._numeric].astype(float)
        means = np.nanmean(values, axis=0) if values.size else np.zeros(values.shape[1])
        shifts, scales = np.zeros_like(means), np.ones_like(means)
        if mixed:
            deviations = np.array([np.std(column[~np.isnan(column)]) for column in values.T])
            shifts, scales = means, np.where(deviations > 0.0, deviations, 1.0)
        self.numbers = np.array([means, shifts, scales])
        missing = np.isnan(values).any(axis=0)
        self.indicated = tuple(np.array(self._numeric, dtype=int)[missing].tolist())
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return self._encode(tasks)[0]

    def known(self, tasks: TaskSet) -> NDArray[np.bool_]:
        """Return whether each feature of each task is observed, not imputed, (T, k)."""
        return self._encode(tasks)[1]

    @property
    def _numeric(self) -> list[int]:
        return [j for j, values in enumerate(self.categories or ()) if values is None]

    @property
    def _categorical(self) -> list[tuple[int, list[Any]]]:
        return [(j, values) for j, values in enumerate(self.categories or ()) if values is not None]

    @property
    def origins(self) -> list[int]:
        """The table column that each feature comes from."""
        return [
            *self._numeric,
            *self.indicated,
            *(j for j, values in self._categorical for _ in values),
        ]

    def contrasts(self) -> list[tuple[int, str, dict[int, float]]]:
        """Return (column, category, feature changes) for a unit of each number, each missing-value indicator, and each category against the first."""
        assert self.numbers is not None
        scales = self.numbers[2].tolist()
        found = [(j, "", {f: 1.0 / scales[f]}) for f, j in enumerate(self._numeric)]
        found += [(j, "missing", {f: 1.0}) for f, j in enumerate(self.indicated, len(found))]
        first = len(found)
        for j, values in self._categorical:
            names = ["missing" if value is None else str(value) for value in values]
            found += [(j, name, {first + i: 1.0, first: -1.0}) for i, name in enumerate(names) if i]
            first += len(values)
        return found

    def _encode(self, tasks: TaskSet) -> tuple[Array, NDArray[np.bool_]]:
        """Return the features, and a mask of the observed ones."""
        if self.categories is None or self.numbers is None:
            raise self._not_fitted()
        table = _side_table(tasks)
        if table.shape[1] != len(self.categories):
            raise ValueError(
                f"side_info: expected {len(self.categories)} columns as in fit, got {table.shape[1]}"
            )
        means, shifts, scales = self.numbers
        values = _as_numbers(table[:, self._numeric])
        missing = np.isnan(values)
        features = [(np.where(missing, means, values) - shifts) / scales]
        features.append(missing[:, np.searchsorted(self._numeric, self.indicated)].astype(float))
        for j, categories in self._categorical:
            name = repr(tasks.side_names[j]) if tasks.side_names else str(j)
            features.append(_one_hot(table[:, j], categories, name))
        encoded = np.hstack(features)
        known = np.ones(encoded.shape, dtype=bool)
        known[:, : len(means)] = ~missing
        return encoded, known


def _categories(column: NDArray[Any]) -> list[Any] | None:
    """Return the categories of a column of a table with objects; None if it is numeric."""
    known = [value for value in column if not is_missing(value)]
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in known):
        return None
    categories = sorted(set(known), key=lambda value: (str(type(value)), value))
    return [*categories, None] if len(known) < len(column) else categories


def _as_numbers(columns: NDArray[Any]) -> Array:
    """Convert columns that were numeric in fit to floats; raise ValueError if they contain text."""
    try:
        if columns.dtype == object and any(isinstance(value, str) for value in columns.ravel()):
            raise ValueError("text")
        return columns.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "side_info: a column was numeric in fit and contains text now; give the same columns as in fit"
        ) from error


def _one_hot(column: NDArray[Any], categories: list[Any], name: str) -> Array:
    """Return the indicators of the categories of a column; warn about unknown categories."""
    positions = {value: j for j, value in enumerate(categories)}
    out, unknown = np.zeros((len(column), len(positions))), dict[Any, None]()
    for t, value in enumerate(column):
        missing = is_missing(value)
        j = positions.get(None if missing else value)
        if j is not None:
            out[t, j] = 1.0
        elif not missing:
            unknown[value] = None
    if unknown:
        treatment = (
            "none of these, with zero indicators" if None in positions else "a missing value"
        )
        warn(
            f"side_info: column {name}: {name_some(unknown, 3)} did not appear in training, "
            f"which had {name_some([v for v in positions if v is not None], 3)}. Such values are treated as {treatment}.",
            UnknownCategoryWarning,
        )
    return out


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

    s is a 1-D array in the order of the columns, of objects if there are categories.  If the tasks have no side information,
    s is the task itself, with ``X``, ``y`` and ``label``, as in the paper's experiments.  For a function of both, derive
    a class from `FeatureMap`.
    """

    needs_rows = False
    _argument: ClassVar[str] = "feature_map"

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self._reads_side_info = False

    @property
    def needs_side_info(self) -> bool:  # type: ignore[override]
        """Whether the tasks of `fit` had side information, which the function then reads."""
        return self._reads_side_info

    def fit(self, tasks: TaskSet) -> Self:
        self._reads_side_info = tasks.side_info is not None
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self._reads_side_info and tasks.side_info is None:
            reason = "is a function of the side information, but none was given; pass it"
            raise ValueError(f"side_info: {self._argument} {reason}")
        return self._checked(
            [self.function(task if task.side_info is None else task.side_info) for task in tasks],
            tasks,
        )

    def _checked(self, values: list[Any], tasks: TaskSet) -> Array:
        rows: list[Array] = []
        for value, label in zip(values, native(tasks.labels), strict=True):
            try:
                phi = np.atleast_1d(np.asarray(value, dtype=float))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{self._argument}: the function must return numbers; for task {label!r} it returned {value!r}"
                ) from None
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
            "side_info: this feature map needs side information, but none was given; "
            "pass side_info=, or select a feature map of the task's own rows such as feature_map='mean'"
        )
    return tasks.side_info
