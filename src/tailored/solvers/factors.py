"""The objective as a function of factors of the conditioning function, which need no projection.

With ``H = M Mᵀ``, M (dk, r), and ``C = F Fᵀ``, F (d, d), the representation and the prior mean of a task are

    τ(s) = V Vᵀ + F Fᵀ ,   V = (I ⊗ φᵀ) M  (d, r) ,        b(s) = B φ + b₀ ,

positive semidefinite whatever M and F.  If G is an objective's gradient in θ and g its gradient in b, those
of the mean over T tasks are

    dM = 2/T Σ_t (I ⊗ φ_t) G_t V_t ,   dF = 2/T Σ_t G_t F ,   dB = 1/T Σ_t g_t φ_tᵀ ,   db₀ = 1/T Σ_t g_t ,

so that nothing larger than M and a few tasks' representations is ever formed.  Not convex: M = 0 is a saddle
and the columns of F are only determined up to a rotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import joblib
import numpy as np
from numpy.typing import NDArray

from ..objectives import MetaGradient, Objective
from ..representation import Bias, Conditioning, Constant, Factored
from ..tasks import Rows
from .batch import TaskBatch

Array = NDArray[np.float64]

#: Floats that the representations and slices of a piece of the tasks may take at once (16 MB).
PIECE_FLOATS = 2_000_000
#: Tasks in a piece at most, so that several jobs find something to do.
PIECE_TASKS = 64


@dataclass(frozen=True)
class Factors:
    """M (d, k, r), F (d, d), B (d, k) and b₀ (d,); parts that do not move have a dimension of length 0."""

    M: Array
    F: Array
    B: Array
    b0: Array

    @classmethod
    def of(cls, F: Array, n_side: int, rank: int, bias: Bias) -> Factors:
        """M = 0 and the given F and prior mean."""
        d = len(F)
        return cls(
            np.zeros((d, n_side, min(rank, d * n_side))),
            np.array(F),
            bias.linear.copy(),
            bias.constant.copy() if bias.moves else np.zeros(0),
        )

    def pack(self) -> Array:
        """All numbers as one vector, which is what an optimiser works on."""
        return np.concatenate([getattr(self, field.name).ravel() for field in fields(self)])

    def unpack(self, vector: Array) -> Factors:
        """Factors of the same shapes with the numbers of ``vector``."""
        parts, start = [], 0
        for field in fields(self):
            like = getattr(self, field.name)
            parts.append(vector[start : start + like.size].reshape(like.shape))
            start += like.size
        return Factors(*parts)

    def slices(self, phis: Array) -> Array:
        """V_t of each task, (T, d, r)."""
        d, k, r = self.M.shape
        return (phis @ self.M.transpose(1, 0, 2).reshape(k, d * r)).reshape(len(phis), d, r)

    def means(self, phis: Array) -> Array | None:
        """b(s) of each task, (T, d), or None if it is zero."""
        if not self.b0.size:
            return None
        return self.b0 + phis @ self.B.T if self.B.size else np.tile(self.b0, (len(phis), 1))

    def mapped(self, transform: Array, phi_scale: float, unit: float) -> Factors:
        """The same functions of raw rows X and features φ, for factors of ``X @ transform`` and
        ``φ / phi_scale`` whose prior mean is measured in ``unit``."""
        return Factors(
            np.tensordot(transform, self.M, 1) / phi_scale,
            transform @ self.F,
            unit / phi_scale * transform @ self.B,
            unit * transform @ self.b0 if self.b0.size else self.b0,
        )

    def conditioning(self, rank: int | None) -> Conditioning:
        """(H, C) in the library's own form: H through an orthonormal basis of its range."""
        C = self.F @ self.F.T
        if not self.M.size:
            return Constant(C, self.M.shape[1])
        return Factored.from_tensor(np.ascontiguousarray(self.M.transpose(2, 0, 1)), C, rank)

    def bias(self, kind: str) -> Bias:
        out = Bias.zero(kind, len(self.F), self.M.shape[1])
        if out.moves:
            out.constant = self.b0.copy()
        if out.conditional:
            out.linear = self.B.copy()
        return out


@dataclass(frozen=True)
class FactoredObjective:
    """Mean over the tasks of a batch of ``objective``, with b(s) = ``unit`` · (Bφ + b₀)."""

    objective: Objective
    unit: float = 1.0
    n_jobs: int | None = None

    def __call__(self, factors: Factors, batch: TaskBatch) -> tuple[float, Factors]:
        """The value, and its gradient as factors of the same shapes.

        The tasks go in pieces whose bounds do not depend on ``n_jobs``; neither do the sums.
        """
        pieces = joblib.Parallel(n_jobs=self.n_jobs, require="sharedmem")(
            joblib.delayed(self._piece)(factors, batch.slice(start, stop))
            for start, stop in _bounds(factors, len(batch))
        )
        T = max(len(batch), 1)
        value = sum(value for value, _ in pieces) / T
        return value, Factors(*(sum(arrays) / T for arrays in zip(*(g for _, g in pieces), strict=True)))

    def _piece(self, factors: Factors, batch: TaskBatch) -> tuple[float, tuple[Array, ...]]:
        """Sums over the tasks of the value and of the gradient in M, F, B and b₀."""
        V, means = factors.slices(batch.phis), factors.means(batch.phis)
        if means is not None:
            means = self.unit * means
        if batch.columns is None:
            value, GV, GF, g = self._dense(V, factors.F, means, batch)
        else:
            value, GV, GF, g = self._sparse(V, factors.F, means, batch, batch.columns)
        d, k, r = factors.M.shape
        dM = 2.0 * (batch.phis.T @ GV.reshape(len(GV), d * r)).reshape(k, d, r).transpose(1, 0, 2)
        dB = self.unit * g.T @ batch.phis if factors.B.size else factors.B
        db0 = self.unit * g.sum(axis=0) if factors.b0.size else factors.b0
        return value, (dM, 2.0 * GF, dB, db0)

    def _dense(
        self, V: Array, F: Array, means: Array | None, batch: TaskBatch
    ) -> tuple[float, Array, Array, Array]:
        """Value, G_t V_t (T, d, r), Σ_t G_t F (d, d) and g_t (T, d)."""
        T, d, r = V.shape
        C = F @ F.T
        # without an H there is one θ for all tasks, and the within-task solver notices
        thetas = np.matmul(V, V.transpose(0, 2, 1)) + C if r else np.broadcast_to(C, (T, d, d))
        result = self.objective(batch.support, batch.query, thetas, means)
        GV = _times(result, V)
        left, right = result.left, result.right
        total = 0.5 * (left.T @ right + right.T @ left)
        if result.gram.any():
            X, offsets = batch.support.X, batch.support.offsets
            total += (X * np.repeat(result.gram, np.diff(offsets))[:, None]).T @ X
            for t in range(T if r else 0):
                rows = X[offsets[t] : offsets[t + 1]]
                GV[t] += result.gram[t] * (rows.T @ (rows @ V[t]))
        return float(result.value.sum()), GV, total @ F, result.bias

    def _sparse(
        self,
        V: Array,
        F: Array,
        means: Array | None,
        batch: TaskBatch,
        columns: Sequence[NDArray[np.intp]],
    ) -> tuple[float, Array, Array, Array]:
        """The same where every task only touches the block of its own non-zero columns."""
        value, GV, GF, g = 0.0, np.zeros_like(V), np.zeros_like(F), np.zeros((len(V), len(F)))
        for t, own in enumerate(columns):
            one = batch.slice(t, t + 1)
            query = None if one.query is None else one.query.compressed(own)
            one = replace(one, support=one.support.compressed(own), query=query, columns=None)
            mean = None if means is None else means[t : t + 1, own]
            part, GV_own, GF_own, g_own = self._dense(V[t : t + 1, own], F[own], mean, one)
            value += part
            GV[t, own], g[t, own] = GV_own[0], g_own[0]
            GF[own] += GF_own
        return value, GV, GF, g


def _times(result: MetaGradient, V: Array) -> Array:
    """sym(left rightᵀ) V of each task."""
    on_left = np.einsum("td,tdr->tr", result.left, V)
    on_right = np.einsum("td,tdr->tr", result.right, V)
    return 0.5 * (
        result.left[:, :, None] * on_right[:, None, :] + result.right[:, :, None] * on_left[:, None, :]
    )


def _bounds(factors: Factors, n_tasks: int) -> Iterator[tuple[int, int]]:
    d, _, r = factors.M.shape
    size = max(1, min(PIECE_TASKS, PIECE_FLOATS // (d * max(d, r))))
    for start in range(0, n_tasks, size):
        yield start, min(start + size, n_tasks)


def transformed(batch: TaskBatch, transform: Array, phi_scale: float) -> TaskBatch:
    """The batch with rows ``X @ transform`` and features ``φ / phi_scale``; sparse rows want a diagonal."""

    def rows(part: Rows) -> Rows:
        if batch.columns is None:
            return Rows(part.X @ transform, part.y, part.offsets)
        return Rows((part.X * np.diag(transform)[None, :]).tocsr(), part.y, part.offsets)

    query = None if batch.query is None else rows(batch.query)
    return replace(batch, support=rows(batch.support), query=query, phis=batch.phis / phi_scale)
