"""What a step of EM has to know of the rows: sums over tasks that add up, given the parameters.

One-hot rows have noise of their own and take systems as large as the scores; tasks of other rows take one of
the size of their rows.  Either way only the columns that a task uses are touched.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ..tasks.rows import BATCH_FLOATS
from .factor_kernels import column_sums, score_systems
from .factor_model import FactorModel
from .factor_rows import FactorRows

Array = NDArray[np.float64]


@dataclass
class FactorMoments:
    """Sums over tasks.

    Attributes
    ----------
    weight, gradient : arrays (d, 1 + r, 1 + r), (d, 1 + r)
        Precision that the rows give to each column's (b, f), and how the expected log-likelihood rises from their means.
    bound : array (d, 1 + r, 1 + r)
        At least ``weight``, such that all columns may move at once; the same for one-hot rows.
    count, square : arrays (d,)
        Tasks that use a column; squared residuals of its rows (one-hot), or squares of its deviations δ.
    residual, n_rows : float
        Squares of ε, and their number; zero for one-hot rows.
    score_square : array (q, q)
        Second moments of the scores less μ.
    side_score, side_square : arrays (1 + p, q), (1 + p, 1 + p)
        Σ (1, v) (score − μ)ᵀ and Σ (1, v) (1, v)ᵀ.
    evidence : float
        Of the rows: less the divergence of the columns, what EM climbs.
    """

    weight: Array
    gradient: Array
    bound: Array
    count: Array
    square: Array
    residual: float
    n_rows: float
    score_square: Array
    side_score: Array
    side_square: Array
    evidence: float

    @classmethod
    def zero(cls, model: FactorModel) -> FactorMoments:
        d, width = model.columns.shape
        p, q = model.side.shape
        weight = np.zeros((d, width, width))
        return cls(
            weight,
            np.zeros((d, width)),
            weight.copy(),
            np.zeros(d),
            np.zeros(d),
            0.0,
            0.0,
            np.zeros((q, q)),
            np.zeros((1 + p, q)),
            np.zeros((1 + p, 1 + p)),
            0.0,
        )

    def merge(self, other: FactorMoments) -> FactorMoments:
        """The sums over the tasks of both."""
        return FactorMoments(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass
class _Systems:
    """Posteriors of the scores of some tasks: precision (T, q, q) and right side (T, q), filled from the prior on."""

    precision: Array
    right: Array
    constant: Array

    @classmethod
    def prior(cls, model: FactorModel, side: Array) -> _Systems:
        inverse = np.linalg.inv(model.scores)
        means = model.level + side @ model.side
        right = means @ inverse
        log_det = float(np.linalg.slogdet(model.scores)[1])
        constant = np.einsum("tq,tq->t", right, means) + log_det
        precision = np.repeat(inverse[None], len(side), axis=0)
        return cls(precision, right, constant)

    def solve(self) -> tuple[Array, Array, float]:
        """Means (T, q), covariances (T, q, q), and the evidence of all tasks."""
        covariances = np.asarray(np.linalg.inv(self.precision), dtype=np.float64)
        scores = np.einsum("tab,tb->ta", covariances, self.right)
        fitted = float(np.sum(scores * self.right))
        log_dets = float(np.linalg.slogdet(self.precision)[1].sum())
        return scores, covariances, 0.5 * (fitted - log_dets - float(self.constant.sum()))


def moments(model: FactorModel, rows: FactorRows) -> FactorMoments:
    """The sums that a step of EM needs, in pieces whose systems fit into memory."""
    sums = FactorMoments.zero(model)
    size = max(1, BATCH_FLOATS // max(len(model.level), 1) ** 2)
    add = _add_one_hot if rows.one_hot else _add_general
    for start in range(0, len(rows), size):
        add(model, rows.tasks(start, start + size), sums)
    if rows.one_hot:
        sums.bound = sums.weight
    return sums


def posterior_scores(model: FactorModel, rows: FactorRows) -> tuple[Array, Array]:
    """Means (T, q) and covariances (T, q, q) of the scores of one-hot tasks."""
    scores, covariances, _ = _one_hot_systems(model, rows).solve()
    return scores, covariances


def _one_hot_systems(model: FactorModel, rows: FactorRows) -> _Systems:
    systems = _Systems.prior(model, rows.side)
    score_systems(
        rows.X.indices,
        rows.X.data,
        rows.y,
        rows.offsets,
        model.columns,
        model.spread,
        model.variances + model.noise,
        int(model.has_intercept),
        systems.precision,
        systems.right,
        systems.constant,
    )
    return systems


def _add_one_hot(model: FactorModel, rows: FactorRows, sums: FactorMoments) -> None:
    scores, covariances, evidence = _one_hot_systems(model, rows).solve()
    column_sums(
        rows.X.indices,
        rows.X.data,
        rows.y,
        rows.offsets,
        model.columns,
        model.variances + model.noise,
        int(model.has_intercept),
        scores,
        covariances,
        sums.weight,
        sums.gradient,
        sums.count,
        sums.square,
    )
    sums.evidence += evidence
    _add_scores(model, rows.side, scores, covariances, sums)


def _add_scores(
    model: FactorModel, side: Array, scores: Array, covariances: Array, sums: FactorMoments
) -> None:
    deviations = scores - model.level
    known = np.hstack([np.ones((len(side), 1)), side])
    sums.score_square += deviations.T @ deviations + covariances.sum(axis=0)
    sums.side_score += known.T @ deviations
    sums.side_square += known.T @ known


def _add_general(model: FactorModel, rows: FactorRows, sums: FactorMoments) -> None:
    """Rows of any kind, task by task, through the covariance ``A = X D Xᵀ + σ²I`` of what the scores leave."""
    r = model.rank
    systems = _Systems.prior(model, rows.side)
    kept = []
    for t, (used, X, y) in enumerate(rows.blocks):
        columns, spread, D = model.columns[used], model.spread[used], model.variances[used]
        A = (X * D) @ X.T + model.noise * np.eye(len(X))
        B = np.linalg.inv(A)
        G = np.hstack([X @ columns[:, 1:], np.ones((len(X), int(model.has_intercept)))])
        e, seen = y - X @ columns[:, 0], B @ X
        sure = np.einsum("ij,ij->j", X, seen)
        systems.precision[t] += G.T @ B @ G
        systems.precision[t][:r, :r] += np.tensordot(sure, spread[:, 1:, 1:], 1)
        systems.right[t] += G.T @ B @ e
        systems.right[t][:r] -= sure @ spread[:, 0, 1:]
        log_det = float(np.linalg.slogdet(2.0 * np.pi * A)[1])
        systems.constant[t] += e @ B @ e + sure @ spread[:, 0, 0] + log_det
        kept.append((used, X, B, G, e, seen, sure))
    scores, covariances, evidence = systems.solve()
    sums.evidence += evidence
    _add_scores(model, rows.side, scores, covariances, sums)
    for (used, X, B, G, e, seen, sure), z, C in zip(kept, scores, covariances, strict=True):
        left = e - G @ z
        h = np.concatenate([[1.0], z[:r]])
        second = np.outer(h, h)
        second[1:, 1:] += C[:r, :r]
        pull = seen.T @ left
        gradient = np.outer(pull, h)
        gradient[:, 1:] -= seen.T @ G @ C[:, :r]
        sums.gradient[used] += gradient
        sums.weight[used] += sure[:, None, None] * second
        # |Σ_j a_j|² ≤ (Σ_j |x_j|) Σ_j a_j² / |x_j|, row by row and, for B, row against row.
        size = np.abs(X)
        bound = size.T @ (size.sum(axis=1) * np.abs(B).sum(axis=1))
        sums.bound[used] += bound[:, None, None] * second
        sums.count[used] += 1.0
        # The residuals' second moment, seen through what is δ and what is ε of it.
        unsure = np.einsum("jab,ab->j", model.spread[used], second)
        half = np.hstack([left[:, None], G @ _root(C), X * np.sqrt(unsure)])
        D = model.variances[used]
        sums.square[used] += D**2 * ((seen.T @ half) ** 2).sum(axis=1) + D - D**2 * sure
        sums.residual += model.noise**2 * float(np.sum((B @ half) ** 2) - np.trace(B)) + len(X) * model.noise
        sums.n_rows += len(X)


def _root(C: Array) -> Array:
    return np.asarray(np.linalg.cholesky(C), dtype=np.float64) if len(C) else C
