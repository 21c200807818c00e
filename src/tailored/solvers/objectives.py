"""Objectives of the meta-learners: values and gradients for batches of tasks.

Every objective returns for each task its value, its gradient in the representation θ as
``sym(left rightᵀ) + gram · XᵀX``, and its gradient in the prior mean b.  The
conditioning functions and the optimisers work with any objective.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..losses import Loss
from ..tasks.rows import Array, Rows, predictions, segment_sums
from ..within import solving


@dataclass(frozen=True)
class MetaGradient:
    """Values and gradients of T tasks: value and gram are (T,); left, right and bias are (T, d)."""

    value: Array
    left: Array
    right: Array
    gram: Array
    bias: Array

    def theta(self, t: int, X: Array) -> Array:
        """Return the gradient in θ of task ``t`` with rows ``X``, a (d, d) matrix."""
        product = np.outer(self.left[t], self.right[t])
        gradient = 0.5 * (product + product.T)
        if self.gram[t]:
            gradient += self.gram[t] * (X.T @ X)
        return gradient


class Objective(ABC):
    """Base of the objectives."""

    needs_query: ClassVar[bool]  # whether training tasks are split into support and query rows
    loss: Loss
    tol: float
    max_iter: int

    @abstractmethod
    def __call__(self, support: Rows, query: Rows | None, thetas: Array, means: Array | None) -> MetaGradient:
        """Return values and gradients at representations ``thetas`` (T, d, d) and prior means ``means`` (T, d)."""

    def _solve(
        self, support: Rows, thetas: Array, means: Array | None, inner: str = "exact"
    ) -> solving.WithinSolution:
        offset = None if means is None else predictions(support, means)
        options: Any = {"inner": inner, "tol": self.tol, "max_iter": self.max_iter}
        return solving.solve_many(*support, thetas, self.loss, offset=offset, **options)


@dataclass(frozen=True)
class Surrogate(Objective):
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
    needs_query: ClassVar[bool] = False

    def __call__(self, support: Rows, query: Rows | None, thetas: Array, means: Array | None) -> MetaGradient:
        X, _, offsets = support
        solution = self._solve(support, thetas, means, self.inner)
        n = np.maximum(np.diff(offsets), 1)
        u = segment_sums(X * solution.alpha[:, None], offsets) / n[:, None]
        gram = np.where(np.diff(offsets) > 0, 2.0 * self.lipschitz**2 / n**2, 0.0)
        energy = np.empty(len(n))
        for t in range(len(n)):
            rows = X[offsets[t] : offsets[t + 1]]
            energy[t] = np.einsum("ij,ij->", rows @ thetas[t], rows)
        return MetaGradient(solution.value + gram * energy, -0.5 * u, u, gram, u)


@dataclass(frozen=True)
class Query(Objective):
    """Loss of the support solution on the query rows, ``1/m Σ_q ℓ(<x_q, w(θ, b)>, y_q)``.

    A dual variable at a bound of its interval does not change with θ.  The other, free rows F solve a linear system
    with the matrix ``K_FF + n q I``, where K = X θ Xᵀ.  q is the curvature of the conjugate: 1 for the squared loss, 0 for
    piecewise-linear losses, for which this is the active-set derivative.  With ``v = X_qᵀ ∂ℓ/m`` and
    ``c = (K_FF + n q I)⁻¹ X_F θ v`` the gradient in θ is the symmetric part of ``(v − X_Fᵀ c)(−Xᵀα/n)ᵀ`` and the
    gradient in b is ``v − X_Fᵀ c``.
    """

    loss: Loss
    tol: float = 1e-8
    max_iter: int = 1000
    needs_query: ClassVar[bool] = True

    def __call__(self, support: Rows, query: Rows | None, thetas: Array, means: Array | None) -> MetaGradient:
        if query is None:
            raise ValueError("the query objective needs query rows")
        X, y, offsets = support
        solution = self._solve(support, thetas, means)
        coef = solution.coef if means is None else solution.coef + means
        T, d = coef.shape
        prediction = predictions(query, coef)
        m = np.maximum(np.diff(query.offsets), 1)
        value = segment_sums(self.loss.value(prediction, query.y), query.offsets) / m
        slope = self.loss.subgradient(prediction, query.y)
        v = segment_sums(query.X * slope[:, None], query.offsets) / m[:, None]
        left, right = v.copy(), np.zeros((T, d))
        for t in range(T):
            rows = slice(offsets[t], offsets[t + 1])
            Xt, alpha = X[rows], solution.alpha[rows]
            n = len(alpha)
            if n == 0:
                continue
            right[t] = -Xt.T @ alpha / n
            free, curvature = self.loss.free_curvature(alpha, y[rows])
            if free.any():
                XF = Xt[free]
                XF_theta = XF @ thetas[t]
                system = XF_theta @ XF.T
                system[np.diag_indices_from(system)] += n * curvature[free]
                if not (np.isfinite(system).all() and np.isfinite(v[t]).all()):
                    # The iterate diverges; an infinite value tells the caller.
                    value[t] = np.inf
                    continue
                # Duplicated rows make K_FF singular if q = 0; all solutions give the same X_Fᵀ c.
                c = np.linalg.lstsq(system, XF_theta @ v[t], rcond=1e-12)[0]
                left[t] = v[t] - XF.T @ c
        return MetaGradient(value, left, right, np.zeros(T), left)


#: Valid values of a learner's ``objective``.
OBJECTIVES: dict[str, type[Surrogate] | type[Query]] = {"surrogate": Surrogate, "query": Query}
