"""Variational EM for a mixed model with many columns and a low-rank plus diagonal covariance.

    y_i = Σ_j x_ij (b_j + <f_j, z_t> + δ_tj) + u_t + ε_i ,    (z_t, u_t) ~ N(μ + v(s_t) A, S),  δ_tj
~ N(0, D_j),  ε ~ N(0, σ²)

The coefficients of a task are ``w_j = b_j + <f_j, z> + δ_j``, and the intercept u if the model has
one.  Most columns occur in few tasks, so the columns have a prior, (b_j, f_j) ~ N(m, Λ), and their
posterior is approximated by independent Gaussians (variational Bayes: Lim and Teh, 2007).  EM
alternates between scores, columns and the other parameters.  No update lowers the variational
bound, except possibly those of A and γ: the prior of A is not part of it.  All columns are updated
at once: to the optimum for one-hot rows, otherwise by a step that cannot overshoot.  The prior of A
is A_p ~ N(0, γ_p S).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..tasks.rows import BATCH_FLOATS, Array
from .factors import FactorRows, Factors, RowModel, Systems, add_rows

#: The variance of a column (D_j + σ² for one-hot rows, otherwise D_j) is shrunk to the typical one,
#: by this many pseudo-tasks.
NOISE_TASKS = 20.0


@dataclass(frozen=True)
class FactorModel:
    """Model parameters and the posterior of the columns.  The scores (z, u) have length q = r, or r
    + 1 with an intercept.
    """

    columns: Array  # (d, 1 + r) posterior means of (b_j, f_j)
    column_covariances: Array  # (d, 1 + r, 1 + r) posterior covariances of (b_j, f_j)
    column_mean: Array  # (1 + r,) m
    column_covariance: Array  # (1 + r, 1 + r) Λ
    variances: Array  # (d,) D
    noise: float  # σ²
    typical_noise: (
        float  # variance of a column without rows: D_j + σ² for one-hot rows, otherwise D_j
    )
    score_mean: Array  # (q,) μ
    score_covariance: Array  # (q, q) S
    effect: Array  # (p, q) A
    relevance: Array  # (p,) γ

    @property
    def rank(self) -> int:
        return self.columns.shape[1] - 1

    @property
    def has_intercept(self) -> bool:
        return len(self.score_mean) > self.rank

    @classmethod
    def start(
        cls, n_columns: int, rank: int, *, has_intercept: bool, n_side: int = 0, seed: list[int]
    ) -> FactorModel:
        """Return an initial model for targets of unit size, with small random factors."""
        q = rank + has_intercept
        columns = np.zeros((n_columns, 1 + rank))
        columns[:, 1:] = 0.1 * np.random.default_rng(seed).standard_normal((n_columns, rank))
        covariance = np.diag(np.concatenate([[1.0], np.full(rank, 0.05)]))
        covariances = np.repeat(0.01 * covariance[None], n_columns, axis=0)
        noises = np.full(n_columns, 0.5), 0.5, 1.0
        S = np.diag(np.concatenate([np.ones(rank), np.full(q - rank, 0.5)]))
        scores = np.zeros(q), S, np.zeros((n_side, q)), np.zeros(n_side)
        return cls(columns, covariances, np.zeros(1 + rank), covariance, *noises, *scores)

    def whitened(self) -> FactorModel:
        """Return the same model in coordinates in which z has the prior covariance I."""
        r = self.rank
        root = np.linalg.cholesky(self.score_covariance[:r, :r])
        of_columns, of_scores = np.eye(1 + r), np.eye(len(self.score_mean))
        of_columns[1:, 1:], of_scores[:r, :r] = root, np.linalg.inv(root).T
        return replace(
            self,
            columns=self.columns @ of_columns,
            column_covariances=of_columns.T @ self.column_covariances @ of_columns,
            column_mean=self.column_mean @ of_columns,
            column_covariance=of_columns.T @ self.column_covariance @ of_columns,
            score_mean=self.score_mean @ of_scores,
            score_covariance=of_scores.T @ self.score_covariance @ of_scores,
            effect=self.effect @ of_scores,
        )

    def prior(self) -> Factors:
        """Return the prior of the coefficients of a task; the uncertainty of the columns is part of
        the diagonal.
        """
        r, d = self.rank, len(self.columns)
        q = len(self.score_mean)
        root = np.linalg.cholesky(self.score_covariance) if q else np.zeros((0, 0))
        factors = self.columns[:, 1:] @ root[:r]
        mean = self.columns[:, 0] + self.columns[:, 1:] @ self.score_mean[:r]
        h = np.concatenate([[1.0], self.score_mean[:r]])
        second = np.outer(h, h)
        second[1:, 1:] += self.score_covariance[:r, :r]
        diagonal = self.variances + np.einsum("jab,ab->j", self.column_covariances, second)
        if self.has_intercept:
            factors = np.vstack([factors, root[r:]])
            mean, diagonal = np.append(mean, self.score_mean[r]), np.append(diagonal, 0.0)
        effect = np.zeros((len(mean), len(self.effect)))
        effect[:d] = self.columns[:, 1:] @ self.effect[:, :r].T
        effect[d:] = self.effect[:, r:].T
        return Factors(mean, factors, diagonal, self.noise, effect)


@dataclass
class FactorSums:
    """Expected sufficient statistics, summed over tasks.

    ``curvature`` is an upper bound of ``precision``, with which all columns can be updated at once.
    For one-hot rows the two are equal, and ``residual`` and ``n_rows`` are zero.
    """

    precision: Array  # (d, 1 + r, 1 + r) precision that rows add to (b_j, f_j)
    gradient: Array  # (d, 1 + r) gradient of the expected log-likelihood
    curvature: Array  # (d, 1 + r, 1 + r)
    count: Array  # (d,) number of tasks that use a column
    square: (
        Array  # (d,) squared residuals of the rows of a column (one-hot), or second moments of δ
    )
    residual: float  # second moment of ε
    n_rows: float  # number of rows
    score_square: Array  # (q, q) second moments of the scores about μ
    side_score: Array  # (1 + p, q) Σ (1, v) (score − μ)ᵀ
    side_square: Array  # (1 + p, 1 + p) Σ (1, v) (1, v)ᵀ
    log_evidence: float

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask (d,) of the columns that at least one task uses."""
        return self.count > 0

    @classmethod
    def zero(cls, model: FactorModel) -> FactorSums:
        d, width = model.columns.shape
        p, q = model.effect.shape
        columns = np.zeros((d, width, width)), np.zeros((d, width)), np.zeros((d, width, width))
        scores = np.zeros((q, q)), np.zeros((1 + p, q)), np.zeros((1 + p, 1 + p))
        return cls(*columns, np.zeros(d), np.zeros(d), 0.0, 0.0, *scores, 0.0)


def fit_factors(rows: FactorRows, model: FactorModel, *, max_iter: int = 60) -> FactorModel:
    """Run EM from ``model`` until three steps raise the bound by less than 1e-5 per row, for at
    most ``max_iter`` steps.
    """
    last, n_small = -np.inf, 0
    for i in range(max_iter):
        sums = factor_sums(model, rows)
        now = bound(model, sums)
        n_small = n_small + 1 if now - last < 1e-5 * rows.n_rows else 0
        if n_small == 3:
            break
        last = now
        model = step(model, sums, update_noise=i % 2 == 1)
    return model


def factor_sums(model: FactorModel, rows: FactorRows) -> FactorSums:
    """Return the expected sufficient statistics, computed in batches of tasks to limit memory."""
    sums = FactorSums.zero(model)
    size = max(1, BATCH_FLOATS // max(len(model.score_mean), 1) ** 2)
    for start in range(0, len(rows), size):
        _add_tasks(
            model, rows if size >= len(rows) else rows.take(slice(start, start + size)), sums
        )
    if rows.one_hot:
        sums.curvature = sums.precision
    return sums


def _add_tasks(model: FactorModel, rows: FactorRows, sums: FactorSums) -> None:
    q, T = len(model.score_mean), len(rows)
    inverse = np.linalg.inv(model.score_covariance)
    means = model.score_mean + rows.side @ model.effect
    right = means @ inverse
    constant = np.einsum("tq,tq->t", right, means) + np.linalg.slogdet(model.score_covariance)[1]
    systems = Systems(np.repeat(inverse[None], T, axis=0), right, constant)
    loadings, intercept = np.zeros((len(model.columns), q)), np.zeros(q)
    loadings[:, : model.rank], intercept[model.rank :] = model.columns[:, 1:], 1.0
    left = rows.y - rows.X @ model.columns[:, 0]
    of_rows = RowModel(loadings, intercept, model.variances, model.noise, model.column_covariances)
    blocks = add_rows(systems, rows, left, of_rows)
    scores, covariances, log_evidence = systems.solve()
    sums.log_evidence += float(log_evidence.sum())
    deviations = scores - model.score_mean
    known = np.hstack([np.ones((T, 1)), rows.side])
    sums.score_square += deviations.T @ deviations + covariances.sum(axis=0)
    sums.side_score += known.T @ deviations
    sums.side_square += known.T @ known
    if rows.one_hot:
        _add_columns(sums, rows, left, of_rows, scores, covariances)
    r = model.rank
    for t, (used, X, B, G, e) in enumerate(blocks):
        z, C, D = scores[t], covariances[t], model.variances[used]
        rest = e - G @ z
        h = np.concatenate([[1.0], z[:r]])
        second = np.outer(h, h)
        second[1:, 1:] += C[:r, :r]
        BX = B @ X
        weights = np.einsum("ij,ij->j", X, BX)
        gradient = np.outer(BX.T @ rest, h)
        gradient[:, 1:] -= BX.T @ G @ C[:, :r]
        sums.gradient[used] += gradient
        sums.precision[used] += weights[:, None, None] * second
        # In each row (Σ_j x_j c_j)² ≤ (Σ_j |x_j|) Σ_j |x_j| c_j², and B ≤ the diagonal of its
        # absolute row sums.
        size = np.abs(X)
        curvature = size.T @ (size.sum(axis=1) * np.abs(B).sum(axis=1))
        sums.curvature[used] += curvature[:, None, None] * second
        sums.count[used] += 1.0
        # Second moments of δ and of ε.
        uncertain = np.einsum("jab,ab->j", model.column_covariances[used], second)
        root = np.linalg.cholesky(C) if len(C) else C
        half = np.hstack([rest[:, None], G @ root, X * np.sqrt(uncertain)])
        sums.square[used] += D**2 * ((BX.T @ half) ** 2).sum(axis=1) + D - D**2 * weights
        sums.residual += (
            model.noise**2 * float(np.sum((B @ half) ** 2) - np.trace(B)) + len(X) * model.noise
        )
        sums.n_rows += len(X)


def _add_columns(
    sums: FactorSums,
    rows: FactorRows,
    left: Array,
    model: RowModel,
    scores: Array,
    covariances: Array,
) -> None:
    """Add one-hot rows to the sums of their columns, in place, given the posterior of the scores.

    The sums of squared residuals do not include the uncertainty of the columns.
    """
    loadings, intercept, noises = model.loadings, model.constant, model.diagonal + model.noise
    column, x = rows.X.indices, rows.X.data
    (d, q), r = loadings.shape, sums.gradient.shape[1] - 1
    fitted = (
        x * np.einsum("na,na->n", loadings[column], scores[rows.task])
        + (scores @ intercept)[rows.task]
    )
    rest, h = left - fitted, np.hstack([np.ones((len(rows), 1)), scores[:, :r]])
    uses, signed = rows.table(np.ones(len(x))).T, rows.table(x).T
    # The image of ``g = x f_j + intercept`` under the covariances of the scores, multiplied by x
    # and summed over rows.
    images = covariances @ intercept
    C = (uses @ covariances.reshape(len(rows), q * q)).reshape(d, q, q)
    of_factors, of_intercept = np.einsum("jab,jb->ja", C, loadings), signed @ images
    second = (uses @ (h[:, :, None] * h[:, None, :]).reshape(len(h), -1)).reshape(d, 1 + r, 1 + r)
    second[:, 1:, 1:] += C[:, :r, :r]
    gradient = rows.table(x * rest).T @ h
    gradient[:, 1:] -= (of_factors + of_intercept)[:, :r]
    sums.count += np.bincount(column, minlength=d)
    sums.precision += second / noises[:, None, None]
    sums.gradient += gradient / noises[:, None]
    sums.square += np.bincount(column, weights=rest**2, minlength=d) + uses @ (images @ intercept)
    sums.square += np.einsum("ja,ja->j", loadings, of_factors + 2.0 * of_intercept)


def bound(model: FactorModel, sums: FactorSums) -> float:
    """Return the variational bound: the log evidence under the posterior of the columns, minus its
    KL divergence from the prior.

    The log prior that shrinks the variances of the columns is added, without its constant.
    """
    width = model.columns.shape[1]
    inverse = np.linalg.inv(model.column_covariance)
    centred = model.columns - model.column_mean
    distance = np.einsum("ja,ab,jb->j", centred, inverse, centred)
    distance += np.einsum("jab,ab->j", model.column_covariances, inverse)
    roots = np.linalg.cholesky(model.column_covariances)
    log_dets = -2.0 * np.log(np.einsum("jaa->ja", roots)).sum(axis=1)
    log_dets += np.linalg.slogdet(model.column_covariance)[1]
    divergence = 0.5 * float(np.sum(distance - width + log_dets))
    parts = model.variances[sums.seen] + (0.0 if sums.n_rows else model.noise)
    shrunk = float(np.sum(np.log(model.typical_noise / parts) - model.typical_noise / parts))
    return sums.log_evidence - divergence + 0.5 * NOISE_TASKS * shrunk


def step(model: FactorModel, sums: FactorSums, *, update_noise: bool = False) -> FactorModel:
    """Return the model after one step.

    With rows that are not one-hot, a step updates either D and σ² (``update_noise``) or the
    columns.  It always updates the priors of the scores and of the columns.
    """
    if sums.n_rows == 0:
        moved = _one_hot_noise(model, _move_columns(model, sums), sums)
    elif update_noise:
        variances, typical = _shrunk(sums.square, model, sums)
        moved = replace(
            model, variances=variances, noise=sums.residual / sums.n_rows, typical_noise=typical
        )
    else:
        moved = _move_columns(model, sums)
    return _column_prior(_score_prior(moved, sums).whitened(), sums.seen)


def _move_columns(model: FactorModel, sums: FactorSums) -> FactorModel:
    inverse = np.linalg.inv(model.column_covariance)
    covariances = np.linalg.inv(inverse + sums.precision)
    same = sums.curvature is sums.precision
    steps = covariances if same else np.linalg.inv(inverse + sums.curvature)
    gradient = sums.gradient - (model.columns - model.column_mean) @ inverse
    columns = model.columns + np.einsum("jab,jb->ja", steps, gradient)
    covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
    return replace(model, columns=columns, column_covariances=covariances)


def _one_hot_noise(before: FactorModel, model: FactorModel, sums: FactorSums) -> FactorModel:
    """Update the noise variance D_j + σ² of each column.

    Only these sums are identified, so σ² is set to the smallest of them.
    """
    moves = model.columns - before.columns
    change = np.einsum("ja,jab,jb->j", moves, sums.precision, moves)
    change -= 2.0 * np.einsum("ja,ja->j", moves, sums.gradient)
    change += np.einsum("jab,jab->j", model.column_covariances, sums.precision)
    squares = np.maximum(sums.square + (before.variances + before.noise) * change, 0.0)
    noises, typical = _shrunk(squares, before, sums)
    noise = float(noises.min())
    return replace(model, variances=noises - noise, noise=noise, typical_noise=typical)


def _shrunk(squares: Array, model: FactorModel, sums: FactorSums) -> tuple[Array, float]:
    """Return the variances of the columns, shrunk to the typical variance, and the new typical
    variance.
    """
    variances = (squares + NOISE_TASKS * model.typical_noise) / (sums.count + NOISE_TASKS)
    typical = 1.0 / float(np.mean(1.0 / variances[sums.seen]))
    return np.where(sums.seen, variances, typical), typical


def _score_prior(model: FactorModel, sums: FactorSums) -> FactorModel:
    """Update μ, A and S by the regression of the scores on (1, v(s)), and γ by MacKay's update
    (1992).
    """
    kept = np.append(True, model.relevance > 0)
    gamma, q = model.relevance[kept[1:]], len(model.score_mean)
    square, cross = sums.side_square[np.ix_(kept, kept)], sums.side_score[kept]
    covariance = np.linalg.inv(square + np.diag(np.append(0.0, 1.0 / gamma)))
    beta = covariance @ cross
    fitted = beta.T @ cross
    S = (sums.score_square - fitted - fitted.T + beta.T @ square @ beta) / square[0, 0]
    S = 0.5 * (S + S.T)
    effect, relevance = np.zeros_like(model.effect), np.zeros(len(model.relevance))
    if len(gamma) and q:
        effect[kept[1:]] = beta[1:]
        n_known = np.maximum(1.0 - np.diag(covariance)[1:] / gamma, 1e-9)
        sizes = np.einsum("pa,ap->p", beta[1:], np.linalg.solve(S, beta[1:].T)) / q
        gamma = gamma * np.clip(sizes / n_known / gamma, 0.01, 100.0)
        # Without this threshold, the γ of an irrelevant feature never reaches zero.
        gamma[gamma * np.diag(square)[1:] < 1e-4 * square[0, 0]] = 0.0
        relevance[kept[1:]] = gamma
        effect[relevance == 0.0] = 0.0
    score_mean = model.score_mean + beta[0]
    return replace(
        model, score_mean=score_mean, effect=effect, relevance=relevance, score_covariance=S
    )


def _column_prior(model: FactorModel, seen: NDArray[np.bool_]) -> FactorModel:
    """Update m and Λ from the columns that occur in the rows; set the posterior of the other
    columns to this prior.
    """
    mean = model.columns[seen].mean(axis=0)
    centred = model.columns[seen] - mean
    covariance = (centred.T @ centred + model.column_covariances[seen].sum(axis=0)) / seen.sum()
    covariance += 1e-9 * np.trace(covariance) * np.eye(len(covariance))
    columns, covariances = model.columns.copy(), model.column_covariances.copy()
    columns[~seen], covariances[~seen] = mean, covariance
    return replace(
        model,
        columns=columns,
        column_covariances=covariances,
        column_mean=mean,
        column_covariance=covariance,
    )
