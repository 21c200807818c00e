"""H that is block diagonal over the features: every feature has a representation of its own."""

from __future__ import annotations

import numpy as np

from .._utils.validation import check_cone, check_shape
from ._base import RANK_TOLERANCE, Array, Conditioning, Index


class BlockDiagonal(Conditioning):
    """``τ(s) = Σ_h φ_h² W_h + C`` over some of the features h: H has the blocks W_h and nothing beside them.

    With φ_h = √r_h this is a mixture of representations, each with its share r_h.

    Parameters
    ----------
    blocks : array (m, d, d)
        The W_h, positive semidefinite.
    features : array (m,)
        Which features they belong to; the others do not speak.
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
        there = phi[self.features]
        if columns is None:
            return ((there * there) @ self._flat()).reshape(self.C.shape) + self.C
        blocks = self.blocks[:, columns[:, None], columns]
        return np.tensordot(there * there, blocks, 1) + self._C_block(columns)

    def evaluate(self, phis: Array) -> Array:
        there = phis[:, self.features]
        tau = ((there * there) @ self._flat()).reshape(len(phis), *self.C.shape)
        tau += self.C
        return tau

    def multiply(self, phi: Array, columns: Index, vector: Array) -> Array:
        there = phi[self.features]
        images = self.blocks[:, :, columns] @ vector
        return (there * there) @ images + self.C[:, columns] @ vector

    def scale(self, factor: float) -> BlockDiagonal:
        return BlockDiagonal(factor * self.blocks, self.features, factor * self.C, self.n_side)

    def tensor(self) -> Array:
        values, vectors = np.linalg.eigh(self.blocks)
        parts = []
        for feature, own, directions in zip(self.features, values, vectors, strict=True):
            keep = own > RANK_TOLERANCE * max(float(values.max()), 0.0)
            part = np.zeros((int(keep.sum()), self.n_features, self.n_side))
            part[:, :, feature] = (directions[:, keep] * np.sqrt(own[keep])).T
            parts.append(part)
        return np.concatenate([np.zeros((0, self.n_features, self.n_side)), *parts])

    def _flat(self) -> Array:
        return self.blocks.reshape(len(self.blocks), -1)
