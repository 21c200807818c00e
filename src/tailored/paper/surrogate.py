"""The paper's convex surrogate (Eqs. 19 to 23), which Algorithm 1 minimises.

The risk of a task is at most the expectation of the regularised empirical risk at its minimiser
plus a trace (Eqs. 19 to 21), so Algorithm 1 minimises the expectation over tasks of

    L(θ) = min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ wᵀθ†w  +  2L²/n Tr(θ XᵀX/n) ,   θ = τ_{H,C}(s)      (Eq.
    22).

It is convex in (H, C) (Prop. 4), and its gradients are G in C and ``(I ⊗ φ) G (I ⊗ φᵀ)`` in H (Eq.
23).  With ``u = Xᵀα / n`` for the dual solution α, ``G = −½ u uᵀ + (2L²/n²) XᵀX`` (Eq. 108).  The
display after Eq. 23 also writes u as −θ†w, which is zero outside Ran(θ); with it, θ = 0 would never
change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..tasks.rows import Array, Rows, segment_sums
from .within_task import WithinTask


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
    """The surrogate of a within-task algorithm, with L."""

    algorithm: WithinTask
    lipschitz: float

    def __call__(self, rows: Rows, thetas: Array) -> SurrogateGradient:
        """Return values and gradients at representations ``thetas`` (T, d, d)."""
        solution, sizes = self.algorithm.solve(rows, thetas), rows.sizes
        n = np.maximum(sizes, 1)
        u = segment_sums(rows.X * solution.alpha[:, None], rows.offsets) / n[:, None]
        gram = np.where(sizes > 0, 2.0 * self.lipschitz**2 / n**2, 0.0)
        energy = np.empty(len(n))
        for t, theta in enumerate(thetas):
            X = rows.X[rows.offsets[t] : rows.offsets[t + 1]]
            energy[t] = np.einsum("ij,ij->", X @ theta, X)
        return SurrogateGradient(solution.value + gram * energy, u, gram)
