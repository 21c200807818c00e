"""The paper's convex surrogate (Eqs. 19 to 23), which Algorithm 1 minimises.

    L(θ) = min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ wᵀθ†w  +  2L²/n² Tr(θ XᵀX)         (Eq. 22)

With u = Xᵀα / n for the dual solution α, its gradient in θ is ``−½ u uᵀ + (2L²/n²) XᵀX`` (Eq. 108).
Eq. 23 also writes u as −θ†w, which is zero outside Ran(θ); with it, θ = 0 would never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..losses import Loss
from ..tasks.rows import Array, Rows, segment_sums
from . import within_task as solving


class SurrogateGradient(NamedTuple):
    """Values (T,), vectors u (T, d), and factors 2L²/n² (T,) of XᵀX in the gradients of T tasks."""

    value: Array
    u: Array
    gram: Array

    def theta(self, t: int, X: Array) -> Array:
        """Return the gradient in θ of task ``t`` with rows ``X``, a (d, d) matrix."""
        u = self.u[t]
        return np.asarray(np.outer(-0.5 * u, u) + self.gram[t] * (X.T @ X))


@dataclass(frozen=True)
class Surrogate:
    """The surrogate with a loss, its Lipschitz constant L, and a within-task algorithm."""

    loss: Loss
    lipschitz: float
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000

    def __call__(self, rows: Rows, thetas: Array) -> SurrogateGradient:
        """Return values and gradients at representations ``thetas`` (T, d, d)."""
        X, _, offsets = rows
        solution = solving.solve_many(
            *rows, thetas, self.loss, inner=self.inner, tol=self.tol, max_iter=self.max_iter
        )
        sizes = np.diff(offsets)
        n = np.maximum(sizes, 1)
        u = segment_sums(X * solution.alpha[:, None], offsets) / n[:, None]
        gram = np.where(sizes > 0, 2.0 * self.lipschitz**2 / n**2, 0.0)
        energy = np.empty(len(n))
        for t in range(len(n)):
            task = X[offsets[t] : offsets[t + 1]]
            energy[t] = np.einsum("ij,ij->", task @ thetas[t], task)
        return SurrogateGradient(solution.value + gram * energy, u, gram)
