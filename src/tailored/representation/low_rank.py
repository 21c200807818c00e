"""One representation for all tasks, of more columns than a matrix of them could hold."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_shape
from ._base import Array, Conditioning, Index

#: Columns up to which the whole matrix is formed where somebody asks for it.
MOST_COLUMNS = 1000


class LowRank(Conditioning):
    """``τ(s) = F Fᵀ + diag(D)`` for every task: factors plus a diagonal.

    Parameters
    ----------
    factors : array (d, q)
        F.
    diagonal : array (d,)
        D, not negative.
    n_side : int
    """

    def __init__(self, factors: Array, diagonal: Array, n_side: int = 0) -> None:
        self.factors = np.array(factors, dtype=float)
        self.diagonal = np.array(diagonal, dtype=float)
        self.n_side = n_side
        check_shape("diagonal", self.diagonal, None)
        check_shape("factors", self.factors, len(self.diagonal), None)

    @property
    def n_features(self) -> int:
        return len(self.diagonal)

    @property
    def C(self) -> Array:  # type: ignore[override]
        """The whole matrix, where there are few enough columns."""
        d = self.n_features
        if d > MOST_COLUMNS:
            raise ValueError(
                f"representation: the matrix of all {d} columns is not formed (at most {MOST_COLUMNS} are); ask for "
                "some of them, representation(columns=[..])"
            )
        return self(np.zeros(0), np.arange(d))

    def restore(self) -> None:
        if (self.diagonal < 0).any():
            raise ValueError("diagonal: must not be negative")

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        if columns is None:
            return self.C
        some = self.factors[columns]
        return some @ some.T + np.diag(self.diagonal[columns])

    def evaluate(self, phis: Array) -> Array:
        C = self.C
        return np.broadcast_to(C, (len(phis), *C.shape))

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        out = self.factors @ (self.factors[columns].T @ vector)
        out[columns] += self.diagonal[columns] * vector
        return np.asarray(out)

    def scale(self, factor: float) -> LowRank:
        return LowRank(np.sqrt(factor) * self.factors, factor * self.diagonal, self.n_side)

    def tensor(self) -> Array:
        return np.zeros((0, self.n_features, self.n_side))
