"""A mixed model of many columns: few factors and a diagonal, every column with a prior of its own.

    y_i = Σ_j x_ij (b_j + <f_j, z_t> + δ_tj) + u_t + ε_i ,    (z_t, u_t) ~ N(μ + A v(s_t), S),  δ_tj ~ N(0, D_j),  ε ~ N(0, σ²)

A task's weights are ``w_j = b_j + <f_j, z> + δ_j`` and the intercept u (where there is one), so that their
covariance is W = FFᵀ + D.  Most columns are seen by few tasks: (b_j, f_j) ~ N(m, Λ) says what they are before
that, and how sure one is of them afterwards (variational Bayes: Lim and Teh, 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FactorModel:
    """Parameters, and the posterior of the columns.

    Attributes
    ----------
    columns, spread : arrays (d, 1 + r), (d, 1 + r, 1 + r)
        Means and covariances of (b_j, f_j).
    centre, scatter : arrays (1 + r,), (1 + r, 1 + r)
        m and Λ.
    variances : array (d,)
        D.
    noise, usual : float
        σ²; and what a column's noise is like before it is seen.
    level, scores : arrays (q,), (q, q)
        μ and S of (z, u); q is r, or r + 1 where there is an intercept.
    side : array (p, q)
        A.
    """

    columns: Array
    spread: Array
    centre: Array
    scatter: Array
    variances: Array
    noise: float
    usual: float
    level: Array
    scores: Array
    side: Array

    @property
    def rank(self) -> int:
        return self.columns.shape[1] - 1

    @property
    def has_intercept(self) -> bool:
        return len(self.level) > self.rank

    @classmethod
    def start(
        cls,
        n_columns: int,
        rank: int,
        *,
        has_intercept: bool,
        n_side: int = 0,
        seed: list[int],
    ) -> FactorModel:
        """Where EM begins, for targets of unit size: small random factors."""
        q = rank + has_intercept
        columns = np.zeros((n_columns, 1 + rank))
        columns[:, 1:] = 0.1 * np.random.default_rng(seed).standard_normal((n_columns, rank))
        scatter = np.diag(np.concatenate([[1.0], np.full(rank, 0.05)]))
        return cls(
            columns,
            np.repeat(0.01 * scatter[None], n_columns, axis=0),
            np.zeros(1 + rank),
            scatter,
            np.full(n_columns, 0.5),
            0.5,
            1.0,
            np.zeros(q),
            np.diag(np.concatenate([np.ones(rank), np.full(q - rank, 0.5)])),
            np.zeros((n_side, q)),
        )

    def wider(self, rank: int, seed: list[int]) -> FactorModel:
        """The same model with further factors, small and random, to go on from."""
        r, new = self.rank, rank - self.rank
        fresh = FactorModel.start(
            len(self.columns), rank, has_intercept=self.has_intercept, n_side=len(self.side), seed=seed
        )
        old = np.concatenate([np.arange(r), np.arange(rank, len(fresh.level))])
        columns, spread, scatter = fresh.columns.copy(), fresh.spread.copy(), fresh.scatter.copy()
        columns[:, : 1 + r] = self.columns
        columns[:, 1 + r :] *= np.sqrt(self.variances.mean() + self.noise)
        spread[:, : 1 + r, : 1 + r] = self.spread
        scatter[: 1 + r, : 1 + r] = self.scatter
        level, scores, side = fresh.level.copy(), fresh.scores.copy(), fresh.side.copy()
        level[old], side[:, old] = self.level, self.side
        scores[np.ix_(old, old)] = self.scores
        centre = np.concatenate([self.centre, np.zeros(new)])
        return replace(
            self,
            columns=columns,
            spread=spread,
            centre=centre,
            scatter=scatter,
            level=level,
            scores=scores,
            side=side,
        )

    def with_side(self, n_side: int) -> FactorModel:
        """The same model before anything is known of descriptions with so many features."""
        return replace(self, side=np.zeros((n_side, len(self.level))))

    def whitened(self) -> FactorModel:
        """The same model with ``S_zz = I``: nothing that it says of targets, and of columns, changes."""
        r = self.rank
        if r == 0:
            return self
        root = np.linalg.cholesky(self.scores[:r, :r])
        there, back = np.eye(1 + r), np.eye(len(self.level))
        there[1:, 1:], back[:r, :r] = root, np.linalg.inv(root).T
        return replace(
            self,
            columns=self.columns @ there,
            spread=there.T @ self.spread @ there,
            centre=self.centre @ there,
            scatter=there.T @ self.scatter @ there,
            level=self.level @ back,
            scores=back.T @ self.scores @ back,
            side=self.side @ back,
        )

    def weights_prior(self) -> WeightsPrior:
        """Mean and covariance of a task's weights, the intercept last, with what is unsure about the columns."""
        r, d = self.rank, len(self.columns)
        root = np.linalg.cholesky(self.scores) if len(self.level) else np.zeros((0, 0))
        factors = self.columns[:, 1:] @ root[:r]
        mean = self.columns[:, 0] + self.columns[:, 1:] @ self.level[:r]
        h = np.concatenate([[1.0], self.level[:r]])
        second = np.outer(h, h)
        second[1:, 1:] += self.scores[:r, :r]
        diagonal = self.variances + np.einsum("jab,ab->j", self.spread, second)
        if self.has_intercept:
            factors = np.vstack([factors, root[r:]])
            mean, diagonal = np.append(mean, self.level[r]), np.append(diagonal, 0.0)
        effect = np.zeros((len(mean), len(self.side)))
        effect[:d] = self.columns[:, 1:] @ self.side[:, :r].T
        effect[d:] = self.side[:, r:].T
        return WeightsPrior(mean, factors, diagonal, self.noise, effect)


@dataclass(frozen=True)
class WeightsPrior:
    """``w ~ N(b + Γ v(s), FFᵀ + D)`` and the noise σ²: what adapting needs of a `FactorModel`.

    Attributes
    ----------
    mean, factors, diagonal : arrays (d,), (d, q), (d,)
    noise : float
    effect : array (d, p)
        Γ.
    """

    mean: Array
    factors: Array
    diagonal: Array
    noise: float
    effect: Array
