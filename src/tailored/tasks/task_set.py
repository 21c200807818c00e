"""Many small tasks as flat arrays with offsets, and a label and side information for each task."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .._utils.frames import (
    Frame,
    RowsLike,
    SideInfoLike,
    ValuesLike,
    check_target,
    is_frame,
    read_frame,
    require_columns,
)
from .._utils.records import Stored, cached_property
from .._utils.tables import Table
from .._utils.validation import (
    RandomState,
    canonical_csr,
    check_choice,
    check_features,
    check_finite,
    check_fraction,
    check_int,
    check_real,
    check_rng,
    is_integer,
    name_some,
    native,
)
from .describing import describe
from .encoding import ROW_VALUES, Encoding, SideInfo, as_columns, class_positions
from .formula import parse
from .reading import (
    collect,
    distinct_labels,
    group_rows,
    label_keys,
    offsets_of,
    positions_of,
    read_labels,
    read_long_table,
    read_side_info,
    row_keys,
    side_of_tasks,
)

#: A number of rows of a task (int), or a fraction of them (float).
Share = int | float


class Task(NamedTuple):
    """One task: its rows (a view), its targets, its side information (or None) and its label."""

    X: Any
    y: np.ndarray
    side_info: np.ndarray | None
    label: Any


class TaskSet(Stored):
    """Many small tasks, in the order in which their labels first appear.

    The rows of task t are ``X[offsets[t]:offsets[t + 1]]``, in the order given.  The arrays are
    read-only.

    Parameters
    ----------
    X : array-like, sparse matrix or dataframe of shape (N, d)
        The rows of all tasks, in any order.  Sparse input becomes CSR and stays sparse.
    y : array-like of shape (N,)
        The targets.
    groups : array-like of shape (N,), optional
        The task label of each row.  If None, all rows are one task.
    side_info : mapping, pandas DataFrame or array, optional
        By task: a mapping from label to a number, a vector or a dict, or a pandas DataFrame or
        Series whose index contains the labels.  By row: an (N, q) array.  For a single task without
        `groups`: a vector, a dict or a frame of one row.
    sample_weight : array-like of shape (N,), optional
        Positive precisions, as in lme4: a row of weight v has noise variance σ²/v.  For counts and
        classes, the likelihood of a row is raised to the power v.
    frequency_weight : array-like of shape (N,), optional
        How often each row was observed; rows with frequency 0 are dropped.
    exposure : array-like of shape (N,), optional
        Positive exposures of counts, such as a time or an area: the mean is exposure times rate.
    encoding : Encoding, optional
        How to read the columns if `X` is a dataframe; by default as in `from_frame`.

    Attributes
    ----------
    X, y : arrays (N, d) and (N,)
        Rows and targets.
    offsets, labels : arrays (T + 1,) and (T,)
        Where the rows of each task start, and its label.
    side_info : array (T, q) or None
        Numbers, or objects if a column is not numeric.
    feature_names, side_names : sequences of str, or None
        Names of the columns.
    encoding : Encoding or None
        How a dataframe was read.
    sample_weight, frequency_weight, exposure : arrays (N,) or None
        Values of the rows.
    """

    X: Any
    y: NDArray[np.float64]
    offsets: NDArray[np.int64]
    labels: np.ndarray
    side_info: np.ndarray | None
    side_names: list[str] | None
    feature_names: np.ndarray | None
    encoding: Encoding | None
    sample_weight: NDArray[np.float64] | None
    frequency_weight: NDArray[np.float64] | None
    exposure: NDArray[np.float64] | None

    def __init__(
        self,
        X: RowsLike,
        y: ValuesLike,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        sample_weight: ValuesLike = None,
        frequency_weight: ValuesLike = None,
        exposure: ValuesLike = None,
        encoding: Encoding | None = None,
    ) -> None:
        values = {
            "sample_weight": sample_weight,
            "frequency_weight": frequency_weight,
            "exposure": exposure,
        }
        rows, read_as = encode_rows(X, encoding)
        target = check_target(y, rows.shape[0])
        grouping = group_rows(groups, len(target))
        if read_as is not None and encoding is not None:
            side_info, values = read_as.read_columns(X, side_info, **values)
        side = read_side_info(side_info, grouping, has_labels=groups is not None)
        self._store(**collect(rows, target, grouping, side, read_as, values)[0])

    @classmethod
    def from_frame(
        cls,
        frame: Frame,
        *,
        task: str | Sequence[str],
        target: str | None,
        features: Sequence[str] | None = None,
        side_info: SideInfoLike = None,
        side_columns: Sequence[str] | None = None,
        encoding: Encoding | None = None,
        missing: str = "error",
        sample_weight: str | None = None,
        frequency_weight: str | None = None,
        exposure: str | None = None,
        time: str | None = None,
    ) -> Self:
        """Read tasks from a long dataframe (pandas, polars or pyarrow) with a row per observation.

        Categorical features become indicators, one for each category except the first, or, with
        more than 20 categories, codes.  Ordered categories become their positions, or their values
        if all are numbers.  Dates become days since the first day; see `describe`.

        Parameters
        ----------
        frame : dataframe
            The table.
        task : str or sequence of str
            The column of task labels.  With several columns, each combination of their values is a
            task.
        target : str or None
            The column to predict.  If None, the rows have no targets, and zeros are stored.
        features : sequence of str, optional
            The feature columns; by default all remaining ones.  Without `side_info` and
            `side_columns`, those that are constant within every task then become side information,
            with a warning, if at least 10 tasks have two or more rows.
        side_info : dataframe or mapping, optional
            A row per task: a dataframe with the column `task`, a pandas DataFrame whose index holds
            the labels, or a mapping from label to row.
        side_columns : sequence of str, optional
            Columns of `frame`, constant within each task, that are the side information.
        encoding : Encoding, optional
            ``encoding`` of a task set, or ``encoding_`` of a learner, to read the columns in the
            same way.
        missing : {"error", "drop", "impute"}, default="error"
            How to treat rows with a missing task, target or feature.  "impute" drops rows without a
            task or a target, and replaces missing features by the mean of their column; columns
            with at least ten missing values also get an indicator.
        sample_weight, frequency_weight, exposure : str, optional
            Columns with these values of each row; see `TaskSet`.
        time : str, optional
            The feature (numbers or dates) that is the time of a row.  `EmpiricalBayesLearner` then
            also tries noise that is correlated in time, for numeric targets, at most 12 columns and
            5,000 tasks, and not with ``frequency_weight``.
        """
        task = task if isinstance(task, str) else as_columns(task)
        fields, _ = read_long_table(
            frame,
            task,
            target,
            features=features,
            side_info=side_info,
            side_columns=side_columns,
            encoding=encoding,
            missing=missing,
            row_columns={
                "sample_weight": sample_weight,
                "frequency_weight": frequency_weight,
                "exposure": exposure,
            },
            time=time,
        )
        return cls.from_arrays(**fields)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        frame: Any,
        *,
        side_info: SideInfoLike = None,
        side_columns: Sequence[str] | None = None,
        missing: str = "error",
        sample_weight: str | None = None,
        frequency_weight: str | None = None,
        exposure: str | None = None,
        time: str | None = None,
    ) -> Self:
        """Read tasks from a long dataframe with a formula of lme4, such as ``"score ~ hours * kind
        + (hours | school)"``.

        `EmpiricalBayesLearner` and `EmpiricalBayesClassifier` fit its random effects, unless
        ``varying`` is set; other learners ignore them.  Needs formulaic.

        Parameters
        ----------
        formula : str
            Fixed effects, with the operators of R, and one group: ``(1 | g)``, ``(x | g)``, ``(x ||
            g)`` for uncorrelated effects, ``(x | a:b)`` for combinations of two columns.  ``C(x)``
            treats numbers as categories.  Functions are I, log, exp, sqrt and some others.
        frame : dataframe
            Columns are read as by `from_frame`, but categories always become indicators.
        missing : {"error", "drop"}, default="error"
            How to treat rows with missing values.
        side_info, side_columns, sample_weight, frequency_weight, exposure, time
            See `from_frame`.
        """
        check_choice("missing", missing, ("error", "drop"))
        parsed = parse(formula)
        used = [parsed.target, *as_columns(parsed.task), *parsed.columns]
        require_columns(read_frame(frame, "frame"), "formula", used)
        fields, _ = read_long_table(
            frame,
            parsed.task,
            parsed.target,
            features=parsed.columns,
            side_info=side_info,
            side_columns=side_columns,
            missing=missing,
            row_columns={
                "sample_weight": sample_weight,
                "frequency_weight": frequency_weight,
                "exposure": exposure,
            },
            time=time,
            formula=parsed,
        )
        return cls.from_arrays(**fields)

    @classmethod
    def from_tasks(cls, tasks: Iterable[Sequence[Any]], labels: ValuesLike = None) -> Self:
        """Join tasks given one by one as ``(X, y)``, ``(X, y, side_info)`` or `Task` records.

        X is an array or a sparse matrix; a task may have no rows: X of shape (0, d). Labels default
        to 0 .. T-1, or to those of the records.
        """
        if not isinstance(tasks, Iterable):
            raise TypeError(f"tasks: expected a list of (X, y), got {type(tasks).__name__}.")
        entries = list(tasks)
        if not entries:
            raise ValueError("tasks is empty: pass at least one task.")
        if labels is None:
            labels = [e.label if isinstance(e, Task) else t for t, e in enumerate(entries)]
        unique = distinct_labels(labels, len(entries))
        keys = native(unique)
        parts = [_read_entry(entry, label) for entry, label in zip(entries, keys, strict=True)]
        rows, targets, sides = (list(part) for part in zip(*parts, strict=True))
        without = [label for label, side in zip(keys, sides, strict=True) if side is None]
        if without and len(without) < len(keys):
            raise ValueError(
                f"side_info is missing for task {name_some(without)}: pass it for all or none."
            )
        side_info = SideInfo() if without else side_of_tasks(sides, keys)
        return cls.from_arrays(
            _stack(rows),
            np.concatenate(targets),
            offsets_of([len(y) for y in targets]),
            unique,
            side_info.values,
            side_names=side_info.names,
        )

    @classmethod
    def from_arrays(
        cls,
        X: RowsLike,
        y: ValuesLike,
        offsets: np.ndarray,
        labels: np.ndarray,
        side_info: SideInfoLike = None,
        **others: Any,
    ) -> Self:
        """Return a task set of valid arrays, without checks; the arrays become read-only.

        Attributes that are not among the ``others`` are None.
        """
        self = cls.__new__(cls)
        self._store(X=X, y=y, offsets=offsets, labels=labels, side_info=side_info, **others)
        return self

    def replace(self, **changes: Any) -> Self:
        """Return a shallow copy with other values of some attributes, like `dataclasses.replace`,
        without checks.
        """
        return self.from_arrays(**{**self.__getstate__(), **changes})

    def with_indicators(self) -> TaskSet:
        """Return the tasks with indicators instead of category codes."""
        if self.encoding is None or not self.encoding.levels:
            return self
        encoding, X = self.encoding.with_indicators(self.X)
        return self.replace(X=X, encoding=encoding, feature_names=encoding.feature_names)

    def _store(self, **values: Any) -> None:
        vars(self).update(dict.fromkeys(FIELDS), **values)
        for value in values.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            elif value is not None and sp.issparse(value):
                for array in (value.data, value.indices, value.indptr):
                    array.flags.writeable = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._store(**state)  # makes the arrays read-only again, which pickle does not

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_side_info(self) -> int:
        return 0 if self.side_info is None else self.side_info.shape[1]

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.X))

    @property
    def row_weights(self) -> NDArray[np.float64] | None:
        """Weight of each row in sums over rows: its precision times its frequency; None without
        weights.
        """
        weights = [each for each in (self.sample_weight, self.frequency_weight) if each is not None]
        return None if not weights else np.asarray(np.prod(weights, axis=0))

    @property
    def n_observed(self) -> NDArray[np.float64]:
        """Number of rows per task, counted with their frequencies, (T,)."""
        if self.frequency_weight is None:
            return self.sizes.astype(float)
        return np.asarray(
            np.bincount(self.task_of_row, self.frequency_weight, len(self)), dtype=float
        )

    def rows(self, index: slice | np.ndarray) -> dict[str, Any]:
        """Return the values of the rows at these positions, by attribute."""
        values = {name: getattr(self, name) for name in ("X", "y", *ROW_VALUES)}
        return {name: None if value is None else value[index] for name, value in values.items()}

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of rows per task, (T,)."""
        return self.offsets[1:] - self.offsets[:-1]  # faster than np.diff

    def single_rows(self) -> Self:
        """Return the tasks with each row repeated according to its frequency, so that a split can
        divide the copies.

        If these would be too many, there are fewer copies with larger frequencies. Fractional
        frequencies are not divided.
        """
        if (n := self.frequency_weight) is None:
            return self
        most = max(100_000 // max(len(n), 1), 4)  # copies of a row
        copies = np.where(n == np.rint(n), np.minimum(n, most), 1.0).astype(np.int64)
        index, first = np.repeat(np.arange(len(n)), copies), offsets_of(copies)
        values, copies = self.rows(index), copies[index]
        # A row of frequency n becomes c copies: the integers (n + i) // c, i < c, differ by at most
        # one and sum to n.
        parts = (n[index] + np.arange(len(index)) - first[index]) // copies
        values["frequency_weight"] = np.where(copies > 1, parts, n[index])
        return self.replace(**values, offsets=first[self.offsets])

    def describe(self) -> Table:
        """Return the content of the set and how it was read, as a printable table."""
        return describe(self)

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Task]:
        return (self[t] for t in range(len(self)))

    def __repr__(self) -> str:
        sizes = self.sizes
        per_task = f", {sizes.min()} to {sizes.max()} per task" if len(sizes) else ""
        side = None if self.side_info is None else f"{self.n_side_info} columns"
        kind = "sparse" if self.is_sparse else "dense"
        return (
            f"TaskSet(n_tasks={len(self)}, n_features={self.n_features}, "
            f"rows={len(self.y)}{per_task}, side_info={side}, {kind})"
        )

    @overload
    def __getitem__(self, key: int | np.integer) -> Task: ...

    @overload
    def __getitem__(self, key: slice | Sequence[int] | Sequence[bool] | np.ndarray) -> Self: ...

    def __getitem__(self, key: Any) -> Task | Self:
        if is_integer(key):
            t = range(len(self))[key]
            own = slice(*self.offsets[t : t + 2].tolist())
            side = None if self.side_info is None else self.side_info[t]
            return Task(self.X[own], self.y[own], side, native(self.labels[t : t + 1])[0])
        rows: slice | np.ndarray
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(len(self))
            key = slice(start, max(start, stop))
            offsets = self.offsets[start : key.stop + 1]
            rows, offsets = slice(offsets[0], offsets[-1]), offsets - offsets[0]  # views
        else:
            try:
                key = np.arange(len(self))[key]
            except IndexError as error:
                raise IndexError(
                    f"{error}. Tasks are taken by position: an integer, a slice, a list of "
                    "integers, or a boolean mask. For labels, use tasks[tasks.index_of(labels)]."
                ) from None
            positions, counts = np.unique(key, return_counts=True)
            if len(positions) < len(key):
                raise ValueError(
                    f"task {name_some(native(self.labels[positions[counts > 1]]))} is taken more "
                    "than once, but the labels of a TaskSet must be distinct."
                )
            rows, offsets = rows_of_tasks(self.offsets, key)
        side = None if self.side_info is None else self.side_info[key]
        return self.replace(
            **self.rows(rows), offsets=offsets, labels=self.labels[key], side_info=side
        )

    def index_of(self, labels: ValuesLike) -> np.ndarray:
        """Return the positions (n,) of labels (a list, an array, or a single label); raise
        ValueError for unknown labels.

        A tuple is a single label.
        """
        is_single = isinstance(labels, str | bytes | tuple | frozenset) or not hasattr(
            labels, "__len__"
        )
        wanted = read_labels([labels] if is_single else labels, "labels")
        positions = positions_of(wanted, self.labels)
        if (positions < 0).any():
            raise ValueError(
                f"labels: there is no task {name_some(native(wanted[positions < 0]))} in this set. "
                f"It has labels such as {name_some(native(self.labels), 3)}."
            )
        return positions

    def with_rows(self, mask: np.ndarray, sizes: np.ndarray) -> Self:
        """Return the same tasks with only the rows in the mask; `sizes` has the number of these
        rows per task.
        """
        rows = np.flatnonzero(mask)
        return self.replace(**self.rows(rows), offsets=offsets_of(sizes))

    def without_rows(self) -> Self:
        """Return the same tasks without any rows."""
        return self.with_rows(np.zeros(len(self.y), dtype=bool), np.zeros(len(self), np.int64))

    def in_label_order(self, seed: int = 0) -> Self:
        """Return the tasks in a pseudorandom order, that of their hashed labels.

        Draws and sums in this order do not depend on the order in which the tasks were given.
        """
        keys = label_keys(self.labels, seed)
        return self if (keys[1:] >= keys[:-1]).all() else self[np.argsort(keys, kind="stable")]

    def support_of(self, query: TaskSet) -> Self:
        """Return the tasks of `query`, in the same order, with their rows in this set.

        A task may have no rows. Side information is taken from the query, or else from this set,
        which must then have all tasks.
        """
        at = self.positions_of_tasks(query)
        is_new = at < 0
        rows, offsets = rows_of_tasks(self.offsets, at, np.where(is_new, 0, self.sizes[at]))
        side, names = query.side_info, query.side_names
        if side is None and self.side_info is not None:
            if is_new.any():
                raise ValueError(
                    f"side_info: task {name_some(native(query.labels[is_new]))} of query has no "
                    "support rows, and so no side information; pass it with the query."
                )
            side, names = self.side_info[at], self.side_names
        columns = {"side_info": side, "side_names": names}
        return self.replace(**self.rows(rows), **columns, offsets=offsets, labels=query.labels)

    def positions_of_tasks(self, query: TaskSet) -> NDArray[np.int64]:
        """Return the position in this set of each task of `query`, −1 if absent.

        Raise ValueError if both sets have tasks, but none in common.
        """
        at = positions_of(query.labels, self.labels)
        if len(query) and len(self) and (at < 0).all():
            mine, theirs = (name_some(native(each.labels), 3) for each in (self, query))
            raise ValueError(
                f"support: none of its tasks is in query (support has {mine}, query {theirs}). "
                "Leave out support to predict without rows."
            )
        return at

    def split(
        self, sizes: Sequence[float], random_state: RandomState = None, shuffle: bool = True
    ) -> list[Self]:
        """Split into sets of whole tasks.

        Parameters
        ----------
        sizes : sequence of int, or of float
            Numbers of tasks, or fractions with a sum of at most 1.
        random_state : int, RandomState, Generator or None
            Seed.
        shuffle : bool
            If False, the tasks are taken in order.
        """
        counts = _task_counts(sizes, len(self))
        order = check_rng(random_state).permutation(len(self)) if shuffle else np.arange(len(self))
        *parts, _ = np.split(order, np.cumsum(counts))
        return [self[part] for part in parts]

    def support_query(
        self, support: float = 0.5, random_state: RandomState = None, shuffle: bool = True
    ) -> tuple[Self, Self]:
        """Split the rows of each task into a support and a query set with the same tasks.

        Every task with rows has at least one query row.

        Parameters
        ----------
        support : float in (0, 1), or int >= 0
            Fraction of the rows (at least one of two or more), or number of rows.
        random_state : int, RandomState, Generator or None
            Seed.
        shuffle : bool
            If False, the first rows are the support.
        """
        self = self.single_rows()
        n_support, keys = row_counts(check_share("support", support), self.sizes), None
        if shuffle:
            seed = np.frombuffer(check_rng(random_state).bytes(8), dtype="<u8")
            keys = row_keys(seed, self.task_of_row, row_ranks(self))
        chosen = row_ranks(self, keys) < n_support[self.task_of_row]
        return self.with_rows(chosen, n_support), self.with_rows(~chosen, self.sizes - n_support)

    @property
    def task_of_row(self) -> NDArray[np.intp]:
        """Position of the task of each row, (n,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @classmethod
    def concat(cls, sets: Iterable[TaskSet], *, relabel: bool = False) -> Self:
        """Join task sets, one after the other.

        Their labels must be distinct. With `relabel`, they are replaced by numbers from 0.
        """
        sets = list(sets)
        if not sets:
            raise ValueError("sets is empty: pass at least one TaskSet.")
        first = check_same_columns(sets)
        values: dict[str, Any] = {"labels": np.arange(sum(map(len, sets)))}
        if not relabel:
            labels = [label for each in sets for label in native(each.labels)]
            values["labels"] = distinct_labels(labels, len(labels))
        for name in ROW_VALUES:
            parts = [getattr(each, name) for each in sets]
            if any(part is not None for part in parts):
                values[name] = np.concatenate(
                    [
                        np.ones(len(each.y)) if part is None else part
                        for each, part in zip(sets, parts, strict=True)
                    ]
                )
        if first.side_info is not None:  # float64 and objects become objects
            values["side_info"] = np.concatenate([each.side_info for each in sets])
        return cls.from_arrays(
            _stack([each.X for each in sets]),
            np.concatenate([each.y for each in sets]),
            offsets_of(np.concatenate([each.sizes for each in sets])),
            side_names=first.side_names,
            feature_names=first.feature_names,
            encoding=first.encoding if all(e.encoding == first.encoding for e in sets) else None,
            **values,
        )

    @classmethod
    def merge(cls, sets: Iterable[TaskSet]) -> Self:
        """Join task sets whose tasks may have equal labels: their rows are joined, in order.

        Tasks are in the order in which their labels first appear. Their side information must be
        the same in every set.
        """
        sets = list(sets)
        if len(sets) == 1:
            return sets[0]  # type: ignore[return-value]
        joined = cls.concat(sets, relabel=True)
        grouping = group_rows(
            [label for each in sets for label in native(each.labels)], len(joined)
        )
        order = np.argsort(np.repeat(grouping.codes, joined.sizes), kind="stable")
        sizes = np.bincount(grouping.codes, weights=joined.sizes)
        side = joined.side_info
        if side is not None:
            side = read_side_info(SideInfo(side, joined.side_names), grouping).values
        return joined.replace(
            **joined.rows(order), offsets=offsets_of(sizes), labels=grouping.labels, side_info=side
        )


def row_ranks(tasks: TaskSet, keys: np.ndarray | None = None) -> NDArray[np.int64]:
    """Return the rank (n,) of every row among the rows of its task.

    Rows are in the given order, or in that of the ``keys`` (n,).
    """
    task = tasks.task_of_row
    rank = position = np.arange(len(task)) - tasks.offsets[task]
    if keys is not None:
        rank = np.empty_like(position)
        rank[np.lexsort((keys, task))] = position
    return rank


def no_tasks(n_features: int) -> TaskSet:
    """Return a set without tasks."""
    none = np.zeros(0, dtype=np.int64)
    return TaskSet.from_arrays(
        np.zeros((0, n_features)), np.zeros(0), np.zeros(1, dtype=np.int64), none
    )


def check_same_columns(sets: Sequence[TaskSet]) -> TaskSet:
    """Raise ValueError if task sets differ in their columns; return the first set."""
    first = sets[0]
    for i, other in enumerate(sets):
        for name in ("n_features", "feature_names", "side_names", "n_side_info"):
            mine, theirs = getattr(first, name), getattr(other, name)
            if not np.array_equal(mine, theirs) and (first.n_features or name != "feature_names"):
                raise ValueError(
                    f"sets[{i}] has {name} {theirs}, and sets[0] has {mine}: they must agree."
                )
    return first


def _stack(parts: list[Any]) -> Any:
    if any(sp.issparse(part) for part in parts):
        return canonical_csr(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


def _read_entry(entry: Any, label: Hashable) -> tuple[Any, np.ndarray, SideInfoLike]:
    """Return the rows, the targets and the side information of one of `TaskSet.from_tasks`."""
    if not isinstance(entry, list | tuple) or len(entry) not in (2, 3, 4):
        raise TypeError(
            f"task {label!r} must be a tuple (X, y) or (X, y, side_info); got {entry!r}."
        )
    X, y, side = (*entry, None)[:3]
    if is_frame(X):
        raise TypeError(
            f"task {label!r}: X is a dataframe. Join the tables, add a column of labels, and use "
            "TaskSet.from_frame."
        )
    try:
        X = check_features(X, 0)
        y = check_target(y, X.shape[0])
        check_finite(X, "X")
        check_finite(y, "y")
    except ValueError as error:
        raise ValueError(f"Task {label!r}: {error}") from error
    return X, y, side


def encode_rows(
    X: RowsLike, encoding: Encoding | None, min_rows: int = 1
) -> tuple[Any, Encoding | None]:
    """Return rows (n, d) as numbers, and how their columns were read: by this encoding, or by one
    made from them.

    The encoding is None for arrays, and for frames whose column names are not all strings. Columns
    that the encoding does not have are ignored.
    """
    frame = read_frame(X, "X") if is_frame(X) else None
    if frame is None or not all(isinstance(name, str) for name in frame.columns):
        return check_features(X, min_rows), None
    if encoding is None:
        encoding, values = Encoding.of(frame, frame.columns, None, None)
    else:
        # X has no targets, so the classes are not needed.
        encoding, values = replace(encoding, classes=()), encoding.encode_features(frame)
    return check_features(values, min_rows), encoding


def class_labels(tasks: TaskSet) -> np.ndarray:
    """Return the classes of the rows if the table had classes, otherwise the targets, as integers
    if all are integers.
    """
    classes = () if tasks.encoding is None else tasks.encoding.classes
    with np.errstate(invalid="ignore"):
        integers = tasks.y.astype(np.int64)  # a task set has floats, even if the table had integers
    if classes:
        return np.array(classes)[integers]
    return integers if (integers == tasks.y).all() else tasks.y


def check_task_set(tasks: TaskSet) -> None:
    """Raise TypeError if the argument ``tasks`` is not a task set."""
    if not isinstance(tasks, TaskSet):
        raise TypeError(
            f"tasks must be a TaskSet; got {type(tasks).__name__}. Make one with "
            "TaskSet.from_frame(frame, task=..., target=...)."
        )


def target_positions(tasks: TaskSet, classes: ArrayLike) -> np.ndarray:
    """Return the positions of a task set's targets among the classes of a learner."""
    # The table may lack some of the learner's classes.
    return class_positions(classes, class_labels(tasks))


#: The attributes of a task set.
FIELDS = tuple(TaskSet.__annotations__)


def rows_of_tasks(
    offsets: np.ndarray, index: np.ndarray, sizes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the tasks at these positions, in this order, and the offsets of the
    selection.
    """
    sizes = np.diff(offsets)[index] if sizes is None else sizes
    selected = offsets_of(sizes)
    return np.repeat(offsets[index] - selected[:-1], sizes) + np.arange(selected[-1]), selected


def check_share(name: str, value: object) -> Share:
    """Check a number of rows (0 or more) or a fraction strictly between 0 and 1, and return it."""
    return check_int(name, value, minimum=0) if is_integer(value) else check_fraction(name, value)


def row_counts(share: Share, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of support rows of each task.

    At least one row is left for the query. A fraction gives at least one row if there are two; half
    a row is rounded up.
    """
    most = np.maximum(sizes - 1, 0)
    if is_integer(share):
        return np.minimum(int(share), most)
    # 1e-9 compensates rounding in products such as 0.29 * 50.
    part = np.floor(share * sizes + 0.5 + 1e-9).astype(np.int64)
    return np.clip(part, np.minimum(1, most), most)


def _task_counts(sizes: Sequence[float], n_tasks: int) -> list[int]:
    """Return numbers of tasks for `split`; cumulative sums of fractions are rounded, half a task
    upwards.
    """
    values = list(sizes) if np.ndim(sizes) == 1 else []
    if not values:
        raise ValueError(
            f"sizes must be a list of numbers or fractions, such as [0.8, 0.2]; got {sizes!r}."
        )
    if all(is_integer(v) for v in values):
        counts = [check_int(f"sizes[{i}]", v) for i, v in enumerate(values)]
        if sum(counts) > n_tasks:
            raise ValueError(f"sizes={values} needs {sum(counts)} tasks, but there are {n_tasks}.")
        return counts
    shares = [check_real(f"sizes[{i}]", v, 0.0, 1.0) for i, v in enumerate(values)]
    if sum(shares) > 1 + 1e-9:
        raise ValueError(f"sizes={values} sums to {sum(shares):g}; it may be at most 1.")
    ends = np.floor(np.cumsum(shares) * n_tasks + 0.5 + 1e-9).astype(np.int64)
    counts = np.diff(ends, prepend=0).tolist()
    if 0 in counts:
        raise ValueError(
            f"sizes={values} gives no task to sizes[{counts.index(0)}]; number of tasks: "
            f"{n_tasks}. Use a larger fraction."
        )
    return counts
