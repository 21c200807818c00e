"""Conditioning functions of fitted mixtures and factor models: one block of H per feature, or factors and a diagonal."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_cone, check_shape
from .base import RANK_TOLERANCE, Array, Conditioning, Index

#: Largest number of columns for which the full matrix of a `LowRank` is formed.
MOST_COLUMNS = 1000


class BlockDiagonal(Conditioning):
    """``τ(s) = Σ_h φ_h² W_h + C`` over some of the features h: H has the diagonal blocks W_h and is zero elsewhere.

    With φ_h = √r_h this is a mixture of representations with proportions r_h.

    Parameters
    ----------
    blocks : array (m, d, d)
        The W_h, positive semidefinite.
    features : array (m,)
        Positions of their features; the other features have no effect.
    C : array (d, d)
    n_side : int
        k, the number of all features.
    """

    def __init__(self, blocks: Array, features: Index, C: Array, n_side: int) -> None:
        self.blocks = np.array(blocks, dtype=float)
        self.features = np.array(features, dtype=np.intp)
        self.C = np.array(C, dtype=float)
        self.n_side = n_side
        check_shape("C", self.C, len(self.C), len(self.C))
        check_shape("features", self.features, None)
        check_shape("blocks", self.blocks, len(self.features), *self.C.shape)
        if ((self.features < 0) | (self.features >= n_side)).any():
            raise ValueError(f"features: must be positions below {n_side}")

    def restore(self) -> None:
        super().restore()
        check_cone("blocks", self.blocks)

    def __call__(self, phi: Array, columns: Index | None = None) -> Array:
        squares = phi[self.features] ** 2
        blocks = self.blocks if columns is None else self.blocks[:, columns[:, None], columns]
        return np.tensordot(squares, blocks, 1) + self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        squares = phis[:, self.features] ** 2
        return np.tensordot(squares, self.blocks, 1) + self.C

    def scale(self, factor: float) -> BlockDiagonal:
        return BlockDiagonal(factor * self.blocks, self.features, factor * self.C, self.n_side)

    def tensor(self) -> Array:
        values, vectors = np.linalg.eigh(self.blocks)
        parts = [np.zeros((0, self.n_features, self.n_side))]
        for feature, own, directions in zip(self.features, values, vectors, strict=True):
            keep = own > RANK_TOLERANCE * max(float(values.max()), 0.0)
            part = np.zeros((int(keep.sum()), self.n_features, self.n_side))
            part[:, :, feature] = (directions[:, keep] * np.sqrt(own[keep])).T
            parts.append(part)
        return np.concatenate(parts)


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
