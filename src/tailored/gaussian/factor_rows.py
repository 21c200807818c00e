"""The rows of many tasks for a model with many columns: only what is stored of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._utils.records import cached_property
from ..tasks import TaskSet, Units
from ..tasks.rows import dense

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def stored(X: Any, units: Units) -> sparse.csr_array:
    """Rows, dense or sparse, in these units, without the constant column."""
    d = X.shape[1]
    shifted = dense(X) - units.shift[:d] if units.shift.any() else X
    out = sparse.csr_array(sparse.csr_array(shifted) * (1.0 / units.columns[:d])[None, :])
    out.eliminate_zeros()
    out.sort_indices()
    return out


@dataclass(frozen=True)
class FactorRows:
    """Stored entries of the rows of T tasks, without the constant column.

    Attributes
    ----------
    X : CSR array (N, d)
    y : array (N,)
    offsets : array (T + 1,)
    side : array (T, p)
        Features v(s) of the descriptions; p may be 0.
    """

    X: sparse.csr_array
    y: Array
    offsets: NDArray[np.int64]
    side: Array

    @classmethod
    def of(cls, tasks: TaskSet, units: Units, side: Array | None = None) -> FactorRows:
        """The rows in these units."""
        known = np.zeros((len(tasks), 0)) if side is None else side
        return cls(stored(tasks.X, units), units.targets(tasks.y), tasks.offsets, known)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def n_columns(self) -> int:
        return int(self.X.shape[1])

    def tasks(self, start: int, stop: int) -> FactorRows:
        """Tasks start .. stop - 1."""
        if start == 0 and stop >= len(self):
            return self
        offsets = self.offsets[start : stop + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        return FactorRows(self.X[rows], self.y[rows], offsets - offsets[0], self.side[start:stop])

    def take(self, index: Index) -> FactorRows:
        """The tasks at these positions."""
        sizes = np.diff(self.offsets)[index]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[index] - offsets[:-1], sizes)
        return FactorRows(self.X[rows], self.y[rows], offsets, self.side[index])

    def without_side(self) -> FactorRows:
        return replace(self, side=np.zeros((len(self), 0)))

    @cached_property
    def task(self) -> Index:
        """The task of every row."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def blocks(self) -> list[tuple[Index, Array, Array]]:
        """The columns that each task uses, its rows at them, dense, and its targets."""
        out = []
        for start, stop in pairwise(self.offsets):
            block = self.X[start:stop]
            used, place = np.unique(block.indices, return_inverse=True)
            X = np.zeros((stop - start, len(used)))
            X[np.repeat(np.arange(stop - start), np.diff(block.indptr)), place] = block.data
            out.append((used.astype(np.intp), X, self.y[start:stop]))
        return out

    @cached_property
    def one_hot(self) -> bool:
        """Whether each row is one entry, 1 or -1, in a column of its own: what deviates there is noise, too."""
        if not (np.diff(self.X.indptr) == 1).all() or not (np.abs(self.X.data) == 1.0).all():
            return False
        place = self.task * self.n_columns + self.X.indices
        return len(np.unique(place)) == len(place)
