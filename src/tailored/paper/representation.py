"""Conditioning functions τ(s), Eqs. 16 to 18 of the paper.

    τ(s) = (M φ)ᵀ M φ + C = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    φ = Φ(s) (k,),  C ⪰ 0 (d, d)

M (p, d, k) is a tensor, and ``H ⪰ 0`` (dk, dk) has the entries ``H[(i−1)k + h, (j−1)k + z] = <M(:,
i, h), M(:, j, z)>`` (Prop. 3, Eq. 17).  T_Φ is the set of all these functions (Eq. 18), and those
with H = 0 are T^const.

`Conditioning` stores ``H = A Aᵀ``, where the columns of A are the slices of M.  Then ``τ(s) = V Vᵀ
+ C`` with ``V = (I_d ⊗ φᵀ) A`` (d, p).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record

Array = NDArray[np.float64]

#: Eigenvalues below this fraction of the largest one, in absolute value, are rounding noise.
RANK_TOLERANCE = 1e-14


def slices(directions: Array, phis: Array, n_features: int) -> Array:
    """Return ``Aᵀ (I ⊗ φ_s)`` for A (dk, r) at many feature vectors (T, k): an array (T, r, d)."""
    (T, k), r = phis.shape, directions.shape[1]
    return (phis @ directions.T.reshape(r * n_features, k).T).reshape(T, r, n_features)


@dataclass(frozen=True, eq=False)
class Conditioning(Record):
    """A learned function τ; without directions in A, it is the constant C (unconditional)."""

    C: Array  # (d, d)
    root: Array  # A with H = A Aᵀ, (dk, r)

    @classmethod
    def constant(cls, C: Array, n_side: int = 0) -> Self:
        """Return τ(s) = C, a function of k = ``n_side`` features with H = 0."""
        return cls(C, np.zeros((len(C) * n_side, 0)))

    @property
    def n_side(self) -> int:
        """The number k of features."""
        return len(self.root) // max(len(self.C), 1)

    @property
    def H(self) -> Array:
        """H as a (dk, dk) matrix."""
        return self.root @ self.root.T

    @property
    def depends_on_task(self) -> bool:
        """Whether τ can differ between tasks: H ≠ 0, or τ is given by the user."""
        return bool(self.root.size)

    def evaluate(self, phis: Array) -> Array:
        """Return τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""
        taus = np.broadcast_to(self.C, (len(phis), *self.C.shape))
        if not self.depends_on_task:
            return taus
        taus = taus.copy()
        for start in range(0, len(phis), 64):  # blocks limit the memory
            block = slice(start, start + 64)
            V = slices(self.root, phis[block], len(self.C))
            taus[block] += V.transpose(0, 2, 1) @ V
        return taus

    def scale(self, factor: float) -> Self:
        """Return the conditioning function ``factor · τ``."""
        return type(self)(factor * self.C, np.sqrt(factor) * self.root)

    def mean(self, moment: Array) -> Array:
        """Return the mean of τ over tasks with mean φφᵀ = ``moment`` (k, k)."""
        M = self.root.reshape(len(self.C), len(moment), -1)
        return np.asarray(self.C + np.einsum("ihp,hz,jzp->ij", M, moment, M, optimize=True))


class Given(Conditioning):
    """τ(s) given by the user: φ(s) has its entries, row by row (`feature_maps.CallableMap`)."""

    depends_on_task = True

    @property
    def n_side(self) -> int:
        return len(self.C) ** 2

    @property
    def H(self) -> Array:
        raise AttributeError("H_: a given function τ has no H; representation() returns its values")

    def evaluate(self, phis: Array) -> Array:
        return phis.reshape(-1, *self.C.shape)
