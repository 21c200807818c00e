"""Conditioning functions of fitted mixtures and factor models: one block of H per feature, or factors and a diagonal."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_cone, check_shape
from .base import Array, Conditioning, Index

#: Largest number of columns for which the full matrix of a `LowRank` is formed.
MOST_COLUMNS = 1000


class BlockDiagonal(Conditioning):
    """``τ(s) = Σ_h φ_h² W_h`` over the first m features: H has the diagonal blocks W_h and is zero elsewhere.

    With φ_h = √r_h this is a mixture of representations with proportions r_h.

    Parameters
    ----------
    blocks : array (m, d, d)
        The W_h, positive semidefinite.
    n_side : int
        k, the number of all features; those after the first m have no effect.
    """

    def __init__(self, blocks: Array, n_side: int) -> None:
        self.blocks = np.array(blocks, dtype=float)
        self.n_side = n_side
        check_shape("blocks", self.blocks, None, self.blocks.shape[-1], self.blocks.shape[-1])
        if len(self.blocks) > n_side:
            raise ValueError(
                f"n_side: must be at least the number of blocks, {len(self.blocks)}; got {n_side}"
            )
        self.C = np.zeros(self.blocks.shape[1:])

    def restore(self) -> None:
        check_cone("blocks", self.blocks)

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        tau = self.evaluate(phi[None])[0]
        return tau if columns is None else tau[np.ix_(columns, columns)]

    def evaluate(self, phis: Array) -> Array:
        return np.tensordot(phis[:, : len(self.blocks)] ** 2, self.blocks, 1)

    def scale(self, factor: float) -> BlockDiagonal:
        return BlockDiagonal(factor * self.blocks, self.n_side)

    def dense_H(self) -> Array:
        d, k = self.n_features, self.n_side
        H = np.zeros((d, k, d, k))
        for feature, block in enumerate(self.blocks):
            H[:, feature, :, feature] = block
        return H.reshape(d * k, d * k)


class LowRank(Conditioning):
    """``τ(s) = F Fᵀ + diag(D)`` for every task: factors plus a diagonal, for many columns.

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
        """The full matrix, if there are at most `MOST_COLUMNS` columns."""
        d = self.n_features
        if d > MOST_COLUMNS:
            raise ValueError(
                f"representation: the matrix of all {d} columns is too large (at most {MOST_COLUMNS}). Select some "
                "columns, for example representation(columns=[0, 1])"
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

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        out = self.factors @ (self.factors[columns].T @ vector)
        out[columns] += self.diagonal[columns] * vector
        return np.asarray(out)

    def scale(self, factor: float) -> LowRank:
        return LowRank(np.sqrt(factor) * self.factors, factor * self.diagonal, self.n_side)

    def dense_H(self) -> Array:
        return np.zeros((self.n_features * self.n_side, self.n_features * self.n_side))
