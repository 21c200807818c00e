"""Ragged tasks as flat arrays plus offsets, with a label and side information for each task."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
import scipy.sparse as sp

from .._utils.records import cached_property
from .._utils.validation import (
    check_finite,
    check_positions,
    check_rng,
    check_target,
    is_integer,
    name_some,
    native,
)
from . import _descriptions, _frames
from ._describing import Description
from ._descriptions import Side
from ._frames import Grouping, Rows
from ._joining import Task, check_alike, join_entries, offsets_of, stack
from ._long_frames import LongTable, task_columns
from ._splitting import check_share, row_counts, support_rows, task_counts
from .encoding import Encoding

FIELDS = ("X", "y", "offsets", "labels", "side_info", "side_names", "feature_names", "encoding")


class TaskSet:
    """Many small tasks, in the order in which their labels first appear.

    The rows of task t are ``X[offsets[t]:offsets[t + 1]]``, in the order given. Arrays are the set's own and
    read-only.

    Parameters
    ----------
    X : array-like, sparse matrix or dataframe of shape (N, d)
        The rows of all tasks, in any order; sparse input becomes CSR and stays sparse.
    y : array-like of shape (N,)
    groups : array-like of shape (N,), optional
        The label of each row's task: integers, strings or other hashable values. None: one task, labelled 0.
    side_info : mapping, pandas DataFrame or array, optional
        Side information, found by label: a mapping from label to row (a number, a vector, or a dict of named
        values), a pandas DataFrame or Series whose index holds the labels, or an (N, q) array with a row for
        every row of `X`, constant within each task. A single task also takes its vector as it is; without
        `groups`, a dict of named values, a named Series or a frame of one row as well.

    Attributes
    ----------
    X : ndarray or csr_array of shape (N, d), float64
    y : ndarray of shape (N,), float64
    offsets : ndarray of shape (T + 1,), int64
    labels : ndarray of shape (T,)
    side_info : ndarray of shape (T, q) or None
        float64, or object if a column is not numeric; the numeric columns then hold floats.
    side_names : list of str or None
    feature_names : ndarray of str (object) or None
    encoding : Encoding or None
        How the frame that the tasks were read from was read.
    """

    X: Rows
    y: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    side_info: np.ndarray | None
    side_names: list[str] | None
    feature_names: np.ndarray | None
    encoding: Encoding | None

    def __init__(self, X: Any, y: Any, groups: Any = None, side_info: Any = None) -> None:
        rows, names = _frames.read_features(X)
        target = check_target(_frames.read_target(y), rows.shape[0])
        grouping = _frames.group_rows(groups, len(target))
        side = _descriptions.read_side(side_info, grouping, anonymous=groups is None)
        self._gather(rows, target, grouping, side, names)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        task: str | Sequence[str],
        target: str | None,
        features: Sequence[str] | None = None,
        side_info: Any = None,
        side_columns: Sequence[str] | None = None,
        encoding: Encoding | None = None,
        missing: str = "error",
    ) -> Self:
        """Read tasks from a long dataframe (pandas, polars or pyarrow) with a row per observation.

        Words become indicators, one for each but the first, ordered categories (of pandas, or an Enum of polars) their
        places, dates days since the first one, booleans 0 and 1 (`describe`). Words of descriptions stay words.

        Parameters
        ----------
        frame : dataframe
        task, target : str
            The columns of task labels and of the quantity to predict (None: rows without targets, such as those to be
            predicted; zeros stand for them). Of several columns of labels each combination is a task, labelled by a tuple.
        features : sequence of str, optional
            The columns of inputs; all remaining ones when absent (but for the index that pandas puts into its files).
        side_info : dataframe or mapping, optional
            A row per task, in any order: a dataframe with the column `task`, a pandas DataFrame whose index
            holds the labels, or a mapping from label to row. Labels that `frame` lacks are ignored.
        side_columns : sequence of str, optional
            Columns of `frame` itself, constant within each task, as the side information.
        encoding : Encoding, optional
            That of another set, or ``encoding_`` of a learner: columns are found and read as there, by their names.
        missing : {"error", "drop"}, default="error"
            What is done with rows without a task, a target or one of the inputs.
        """
        task = task if isinstance(task, str) else tuple(task_columns(task))
        return cls.from_grouped(
            *LongTable(frame, task, target, features, side_info, side_columns, encoding, missing).read()
        )

    def describe(self) -> Description:
        """What the set holds and how it was read, to be printed."""
        return Description.of(self)

    @classmethod
    def from_grouped(
        cls,
        X: Rows,
        y: np.ndarray,
        grouping: Grouping,
        side: Side,
        names: np.ndarray | None,
        encoding: Encoding | None = None,
    ) -> Self:
        """Make a set of rows whose tasks are known, in any order; values are checked."""
        self = cls.__new__(cls)
        self._gather(X, y, grouping, side, names, encoding)
        return self

    @classmethod
    def from_tasks(cls, tasks: Iterable[Sequence[Any]], labels: Any = None) -> Self:
        """Join tasks given one by one as ``(X, y)``, ``(X, y, s)`` or `Task` records.

        Labels default to 0 .. T-1, or to those of the records. A task may have no rows: X of shape (0, d).
        """
        entries = list(tasks)
        if not entries:
            raise ValueError("tasks is empty: Found array with 0 sample(s) while a minimum of 1 is required.")
        return cls.from_arrays(*join_entries(entries, labels))

    @classmethod
    def concat(cls, sets: Iterable[TaskSet], *, relabel: bool = False) -> Self:
        """Join task sets, one after the other.

        Their labels must differ, or ``relabel`` numbers the tasks anew (a stream can bring the same user twice).
        """
        sets = list(sets)
        if not sets:
            raise ValueError("sets is empty: pass at least one TaskSet.")
        first = check_alike(sets)
        n_tasks = sum(map(len, sets))
        if relabel:
            labels = np.arange(n_tasks)
        else:
            labels = _frames.read_distinct([key for s in sets for key in native(s.labels)], n_tasks)
        sides = [s.side_info for s in sets if s.side_info is not None]
        return cls.from_arrays(
            stack([s.X for s in sets]),
            np.concatenate([s.y for s in sets]),
            offsets_of(np.concatenate([s.sizes for s in sets])),
            labels,
            np.concatenate(sides) if sides else None,
            first.side_names,
            first.feature_names,
            first.encoding if all(s.encoding == first.encoding for s in sets) else None,
        )

    @classmethod
    def from_arrays(
        cls,
        X: Rows,
        y: np.ndarray,
        offsets: np.ndarray,
        labels: np.ndarray,
        side_info: np.ndarray | None = None,
        side_names: list[str] | None = None,
        feature_names: np.ndarray | None = None,
        encoding: Encoding | None = None,
    ) -> Self:
        """Make a set of clean arrays without looking at them; they become read-only."""
        self = cls.__new__(cls)
        self._store(X, y, offsets, labels, side_info, side_names, feature_names, encoding)
        return self

    def _gather(
        self,
        X: Rows,
        y: np.ndarray,
        grouping: Grouping,
        side: Side,
        names: np.ndarray | None,
        encoding: Encoding | None = None,
    ) -> None:
        """Check the values, then bring the rows of each task together."""
        codes, labels = grouping.codes, grouping.labels

        def where(row: int) -> str:
            return f"task {native(labels[codes[row] : codes[row] + 1])[0]!r}, row {row}"

        check_finite(X, "X", where, names)
        check_finite(y, "y", where)
        if (np.diff(codes) < 0).any():
            order = np.argsort(codes, kind="stable")
            X, y = X[order], y[order]
        else:
            # never freeze the user's arrays, nor change with them; sparse rows are a copy already
            X, y = X if sp.issparse(X) else X.copy(), y.copy()
        offsets = offsets_of(np.bincount(codes, minlength=len(labels)))
        self._store(X, y, offsets, grouping.labels, side.values, side.names, names, encoding)

    def _store(self, *values: Any) -> None:
        for name, value in zip(FIELDS, values, strict=True):
            setattr(self, name, value)
            for array in (value.data, value.indices, value.indptr) if sp.issparse(value) else (value,):
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        # rebuilt through from_arrays, because unpickled arrays are writeable again
        return type(self).from_arrays, tuple(getattr(self, name) for name in FIELDS)

    def state(self) -> dict[str, Any]:
        """Its arrays and names; `tailored.archive` writes them."""
        state = {name: getattr(self, name) for name in FIELDS}
        if self.is_sparse:
            state["X"] = (self.X.data, self.X.indices, self.X.indptr, tuple(self.X.shape))
        if self.side_info is not None and self.side_info.dtype == object:
            state["side_info"] = self.side_info.tolist()
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The set that `state` was taken of."""
        X, side = state["X"], state["side_info"]
        if isinstance(X, tuple):
            X = sp.csr_array(X[:3], shape=X[3])
        if isinstance(side, list):
            table = np.empty((len(side), len(state["side_names"] or side[0])), dtype=object)
            table[:] = side
            side = table
        return cls.from_arrays(**{**state, "X": X, "side_info": side})

    @property
    def n_tasks(self) -> int:
        return len(self.labels)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.X))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Rows per task, (T,)."""
        sizes = np.diff(self.offsets)
        sizes.flags.writeable = False
        return sizes

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {label: t for t, label in enumerate(native(self.labels))}

    def _is_label(self, value: Any) -> bool:
        """Whether a tuple or the like is one task's label, and not a list of them."""
        return isinstance(value, Hashable) and value in self._positions

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Task]:
        bounds = self.offsets.tolist()
        for t in range(len(self)):
            yield self._task(t, bounds[t], bounds[t + 1])

    def _task(self, t: int, start: int, stop: int) -> Task:
        side = None if self.side_info is None else self.side_info[t]
        task = Task(self.X[start:stop], self.y[start:stop], side, native(self.labels[t : t + 1])[0])
        if self.feature_names is not None or self.side_names is not None:
            task.feature_names, task.side_names = self.feature_names, self.side_names
        return task

    def __repr__(self) -> str:
        sizes = self.sizes
        per_task = f", {sizes.min()} to {sizes.max()} per task" if len(sizes) else ""
        side = None if self.side_info is None else f"{self.side_info.shape[1]} columns"
        return (
            f"TaskSet(n_tasks={len(self)}, n_features={self.n_features}, rows={len(self.y)}{per_task}, "
            f"side_info={side}, {'sparse' if self.is_sparse else 'dense'})"
        )

    @overload
    def __getitem__(self, key: int | np.integer) -> Task: ...

    @overload
    def __getitem__(self, key: slice | Sequence[int] | Sequence[bool] | np.ndarray) -> Self: ...

    def __getitem__(self, key: Any) -> Task | Self:
        if is_integer(key):
            if not -len(self) <= key < len(self):
                raise IndexError(f"position {key} is out of range: there are {len(self)} tasks.")
            t = int(key) % len(self)
            return self._task(t, self.offsets[t], self.offsets[t + 1])
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._run(start, max(start, stop))
            return self._take(np.arange(start, stop, step))
        return self._take(check_positions(key, len(self)))

    def _run(self, start: int, stop: int) -> Self:
        """Tasks start .. stop-1, as views."""
        offsets = self.offsets[start : stop + 1]
        rows = slice(offsets[0], offsets[-1])
        side = None if self.side_info is None else self.side_info[start:stop]
        arrays = self.X[rows], self.y[rows], offsets - offsets[0], self.labels[start:stop], side
        return self.from_arrays(*arrays, self.side_names, self.feature_names, self.encoding)

    def _take(self, index: np.ndarray) -> Self:
        ascending = np.sort(index)
        twice = ascending[1:][ascending[1:] == ascending[:-1]]
        if len(twice):
            label = native(self.labels[twice])[0]
            raise ValueError(f"task {label!r} is taken twice: the labels of a TaskSet are distinct.")
        sizes = self.sizes[index]
        offsets = offsets_of(sizes)
        rows = np.repeat(self.offsets[index] - offsets[:-1], sizes) + np.arange(offsets[-1])
        side = None if self.side_info is None else self.side_info[index]
        arrays = self.X[rows], self.y[rows], offsets, self.labels[index], side
        return self.from_arrays(*arrays, self.side_names, self.feature_names, self.encoding)

    def index_of(self, labels: Any) -> np.ndarray:
        """Return the positions of labels (a list, an array, or a single one), always as a 1-D array."""
        single = isinstance(labels, str | bytes) or not hasattr(labels, "__len__") or self._is_label(labels)
        asked = _frames.read_labels([labels] if single else labels, "labels")
        asked = native(asked) if isinstance(asked, np.ndarray) else asked
        lost = [label for label in asked if label not in self._positions]
        if lost:
            known = name_some(self._positions, 3)
            raise ValueError(
                f"labels holds {name_some(lost)}, unknown here; tasks have labels such as {known}."
            )
        return np.array([self._positions[label] for label in asked], dtype=np.int64)

    def split(self, sizes: Sequence[float], random_state: Any = None, shuffle: bool = True) -> list[Self]:
        """Split into sets of whole tasks.

        Parameters
        ----------
        sizes : sequence of int, or of float
            Numbers of tasks, or fractions with a sum of at most 1; fractions that sum to 1 use every task.
        random_state : int, RandomState, Generator or None
        shuffle : bool
            False takes the tasks in order.
        """
        counts = task_counts(sizes, len(self))
        order = check_rng(random_state).permutation(len(self)) if shuffle else np.arange(len(self))
        ends = np.cumsum(counts)
        return [self._take(order[end - count : end]) for end, count in zip(ends, counts, strict=True)]

    def support_query(
        self, support: float = 0.5, random_state: Any = None, shuffle: bool = True
    ) -> tuple[Self, Self]:
        """Split the rows of each task into a support and a query set with the same tasks.

        Every task keeps at least one query row and, under a fraction, one support row if it has two rows.
        Rows keep their relative order on both sides. Which rows of a task are drawn depends on
        `random_state`, the task's position and its number of rows, not on the other tasks.

        Parameters
        ----------
        support : float in (0, 1), or int >= 0
            Fraction of the rows (half a row rounds up), or their number; 0 leaves every task without support.
        random_state : int, RandomState, Generator or None
        shuffle : bool
            False takes the first rows as support.
        """
        wanted = row_counts(check_share("support", support), self.sizes)
        chosen = support_rows(self.offsets, wanted, check_rng(random_state) if shuffle else None)
        return self.with_rows(chosen, wanted), self.with_rows(~chosen, self.sizes - wanted)

    def with_rows(self, mask: np.ndarray, sizes: np.ndarray) -> Self:
        """The same tasks with only the rows of the mask, `sizes` of them in each."""
        rows = np.flatnonzero(mask)
        arrays = self.X[rows], self.y[rows], offsets_of(sizes), self.labels, self.side_info
        return self.from_arrays(*arrays, self.side_names, self.feature_names, self.encoding)
