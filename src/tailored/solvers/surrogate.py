"""The paper's convex surrogate, which Algorithm 1 minimises: values and gradients for batches of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..losses import Loss
from ..tasks.rows import Array, Rows, predictions, segment_sums
from ..within import solving


class SurrogateGradient(NamedTuple):
    """Values (T,), factors ``gram`` (T,) of XᵀX in the gradients in θ, and gradients ``bias`` (T, d) in b, of T tasks."""

    value: Array
    gram: Array
    bias: Array

    def theta(self, t: int, X: Array) -> Array:
        """Return the gradient in θ of task ``t`` with rows ``X``, a (d, d) matrix."""
        u = self.bias[t]
        return np.asarray(np.outer(-0.5 * u, u) + self.gram[t] * (X.T @ X))


@dataclass(frozen=True)
class Surrogate:
    """The paper's convex surrogate (Eq. surrogate_linear).

    ``min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ (w − b)ᵀθ†(w − b)  +  2L²/n² Tr(θ XᵀX)``

    With u = Xᵀα / n for the dual solution α, the gradient in θ is ``−½ u uᵀ + (2L²/n²) XᵀX`` and the gradient in b
    is ``u``.  The paper also writes u as −θ†w, which is zero outside Ran(θ); with it, an iterate θ = 0 would never change.
    """

    loss: Loss
    lipschitz: float
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000

    def __call__(self, rows: Rows, thetas: Array, means: Array | None = None) -> SurrogateGradient:
        """Return values and gradients at representations ``thetas`` (T, d, d) and prior means ``means`` (T, d)."""
        X, _, offsets = rows
        solution = solving.solve_many(
            *rows,
            thetas,
            self.loss,
            offset=None if means is None else predictions(rows, means),
            inner=self.inner,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        n = np.maximum(np.diff(offsets), 1)
        u = segment_sums(X * solution.alpha[:, None], offsets) / n[:, None]
        gram = np.where(np.diff(offsets) > 0, 2.0 * self.lipschitz**2 / n**2, 0.0)
        energy = np.empty(len(n))
        for t in range(len(n)):
            task = X[offsets[t] : offsets[t + 1]]
            energy[t] = np.einsum("ij,ij->", task @ thetas[t], task)
        return SurrogateGradient(solution.value + gram * energy, gram, u)
