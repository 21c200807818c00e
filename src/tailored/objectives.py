"""What the meta-learner minimises, one value and one gradient per task.

Every objective answers the same question for a batch of tasks: its value, its gradient in the
representation θ as ``sym(left rightᵀ) + gram · XᵀX``, and its gradient in the prior mean b.
Neither the conditioning function nor the optimiser needs to know which objective it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from . import within
from .losses import Loss
from .tasks import Rows
from .tasks.rows import predictions, segment_sums

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MetaGradient:
    """Values and gradients of T tasks; see the module's text for the meaning of the parts."""

    value: Array
    left: Array
    right: Array
    gram: Array
    bias: Array

    def theta(self, t: int, X: Array) -> Array:
        """The gradient in θ of task ``t``, whose rows are ``X``, as a (d, d) matrix."""
        product = np.outer(self.left[t], self.right[t])
        gradient = 0.5 * (product + product.T)
        if self.gram[t]:
            gradient += self.gram[t] * (X.T @ X)
        return gradient


class Objective(ABC):
    """``needs_query``: whether training tasks are split into support and query rows."""

    needs_query: ClassVar[bool]

    @abstractmethod
    def __call__(
        self, support: Rows, query: Rows | None, thetas: Array, biases: Array | None
    ) -> MetaGradient:
        """Values and gradients of the tasks at representations ``thetas`` (T, d, d) and prior means (T, d)."""

    def with_lipschitz(self, lipschitz: float) -> Objective:
        """The same objective with another Lipschitz constant, where it has one."""
        return self


@dataclass(frozen=True)
class Surrogate(Objective):
    """The paper's convex surrogate (Eq. surrogate_linear).

    ``min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ (w − b)ᵀθ†(w − b)  +  2L²/n² Tr(θ XᵀX)``

    With u = Xᵀα / n for the dual solution α, the gradient in θ is ``−½ u uᵀ + (2L²/n²) XᵀX`` and the
    one in b is ``u``.  The paper also writes u as −θ†w, which only sees Ran(θ): started at θ = 0 it
    would never leave it.
    """

    loss: Loss
    lipschitz: float
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000
    needs_query: ClassVar[bool] = False

    def __call__(
        self, support: Rows, query: Rows | None, thetas: Array, biases: Array | None
    ) -> MetaGradient:
        X, y, offsets = support
        solution = within.solve_many(
            X,
            y,
            offsets,
            thetas,
            self.loss,
            inner=self.inner,
            offset=None if biases is None else predictions(support, biases),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        n = np.maximum(np.diff(offsets), 1)
        u = segment_sums(X * solution.alpha[:, None], offsets) / n[:, None]
        gram = np.where(np.diff(offsets) > 0, 2.0 * self.lipschitz**2 / n**2, 0.0)
        energy = np.empty(len(n))
        for t in range(len(n)):
            rows = X[offsets[t] : offsets[t + 1]]
            energy[t] = np.einsum("ij,ij->", rows @ thetas[t], rows)
        return MetaGradient(solution.value + gram * energy, -0.5 * u, u, gram, u)

    def with_lipschitz(self, lipschitz: float) -> Surrogate:
        return replace(self, lipschitz=lipschitz)


@dataclass(frozen=True)
class Query(Objective):
    """Loss of the support solution on the query rows, ``1/m Σ_q ℓ(<x_q, w(θ, b)>, y_q)``.

    Where a dual variable sits at the end of its interval it does not move with θ; on the free rows F,
    ``(K_FF + n q I) α_F`` moves with the right-hand side (q: curvature of the conjugate; 1 for the
    squared loss, 0 for piecewise-linear ones, for which this is the active-set derivative).  With
    ``v = X_qᵀ ∂ℓ/m`` and ``c = (K_FF + n q I)⁻¹ X_F θ v`` the gradient in θ is the symmetric part
    of ``(v − X_Fᵀ c)(−Xᵀα/n)ᵀ`` and the one in b is ``v − X_Fᵀ c``.
    """

    loss: Loss
    tol: float = 1e-8
    max_iter: int = 1000
    needs_query: ClassVar[bool] = True

    def __call__(
        self, support: Rows, query: Rows | None, thetas: Array, biases: Array | None
    ) -> MetaGradient:
        if query is None:
            raise ValueError("the query objective needs query rows")
        X, y, offsets = support
        offset = None if biases is None else predictions(support, biases)
        solution = within.solve_many(
            X, y, offsets, thetas, self.loss, offset=offset, tol=self.tol, max_iter=self.max_iter
        )
        coef = solution.coef if biases is None else solution.coef + biases
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
                    # an iterate that has gone too far: whoever asked sees it in the value
                    value[t] = np.inf
                    continue
                # Duplicated rows make K_FF singular when q = 0; any solution gives the same X_Fᵀ c.
                c = np.linalg.lstsq(system, XF_theta @ v[t], rcond=1e-12)[0]
                left[t] = v[t] - XF.T @ c
        return MetaGradient(value, left, right, np.zeros(T), left)


#: Valid values of a learner's ``objective``.
OBJECTIVES: dict[str, type[Surrogate] | type[Query]] = {"surrogate": Surrogate, "query": Query}
