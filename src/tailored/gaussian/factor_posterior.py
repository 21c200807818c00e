"""Tasks under ``w ~ N(b, FFᵀ + D)`` and noise of variance one: their weights, and what is left open.

One-hot tasks take a system as large as the factors, others one of the size of their rows, on their own columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from ..tasks.rows import dense, segment_sums, sparse_products
from .factor_rows import FactorRows

Array = NDArray[np.float64]


class FactorPosterior(NamedTuple):
    """Weights (T, d), covariances (T, q, q) of the factors' scores, and ‖y − Xw‖² (T,)."""

    weights: Array
    covariances: Array
    squares: Array


class Weights(NamedTuple):
    """The prior of the weights of T tasks; the constant column is the last of the d, where ``fit_intercept``.

    ``factors`` (d, q), ``diagonal`` (d,) and ``means`` (T, d), in units of the noise.
    """

    factors: Array
    diagonal: Array
    means: Array
    fit_intercept: bool

    @property
    def constant(self) -> Array:
        """The row of F that every row sees."""
        return self.factors[-1] if self.fit_intercept else np.zeros(self.factors.shape[1])


def adapt_factors(prior: Weights, rows: FactorRows) -> FactorPosterior:
    """Posterior means of the weights, task by task, without a matrix of all columns."""
    left = rows.y - predicted(rows.X, rows.task, prior.means, prior.fit_intercept)
    find = _one_hot if rows.one_hot and not (prior.fit_intercept and prior.diagonal[-1]) else _general
    return find(prior, rows, left)


def predicted(X: sparse.csr_array, task: Any, weights: Array, fit_intercept: bool) -> Array:
    """``<x, w>`` of rows without the constant column by the weights (T, d) of their tasks."""
    found = sparse_products(X, weights, task)
    return found + weights[task, -1] if fit_intercept else found


def variances(prior: Weights, X: sparse.csr_array, task: Any, covariances: Array) -> Array:
    """Variance of ``<x, w>`` for rows of tasks, a column's own deviation being as open as it was."""
    seen = X @ prior.factors[: X.shape[1]] + prior.constant
    open_still = X.multiply(X) @ prior.diagonal[: X.shape[1]]
    if prior.fit_intercept:
        open_still = open_still + prior.diagonal[-1]
    return np.asarray(np.einsum("na,nab,nb->n", seen, covariances[task], seen) + open_still)


def _one_hot(prior: Weights, rows: FactorRows, left: Array) -> FactorPosterior:
    T, q = len(rows), prior.factors.shape[1]
    precision, right = np.repeat(np.eye(q)[None], T, axis=0), np.zeros((T, q))
    column, x = rows.X.indices, rows.X.data
    fold_in(column, x, left, rows.offsets, prior.factors, prior.constant, prior.diagonal, precision, right)
    covariances = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    scores = np.einsum("tab,tb->ta", covariances, right)
    weights = prior.means + scores @ prior.factors.T
    seen = x[:, None] * prior.factors[column] + prior.constant
    left = left - np.einsum("na,na->n", seen, scores[rows.task])
    own = prior.diagonal[column]
    weights[rows.task, column] += own * x * left / (own + 1.0)
    squares = segment_sums((left / (own + 1.0)) ** 2, rows.offsets)
    return FactorPosterior(weights, covariances, squares)


def _general(prior: Weights, rows: FactorRows, left: Array) -> FactorPosterior:
    T, q = len(rows), prior.factors.shape[1]
    weights, covariances, squares = prior.means.copy(), np.empty((T, q, q)), np.zeros(T)
    d = rows.n_columns
    for t in range(T):
        span = slice(int(rows.offsets[t]), int(rows.offsets[t + 1]))
        block = rows.X[span]
        used = np.unique(block.indices)
        X = dense(block[:, used])
        if prior.fit_intercept:
            used, X = np.append(used, d), np.hstack([X, np.ones((len(X), 1))])
        D, F = prior.diagonal[used], prior.factors[used]
        G = X @ F
        B = np.linalg.inv((X * D) @ X.T + np.eye(len(X)))
        covariances[t] = np.linalg.inv(np.eye(q) + G.T @ B @ G)
        score = covariances[t] @ (G.T @ (B @ left[span]))
        rest = B @ (left[span] - G @ score)
        weights[t] += prior.factors @ score
        weights[t, used] += D * (X.T @ rest)
        # B takes off what is δ, and what is left of the noise is it.
        squares[t] = rest @ rest
    return FactorPosterior(weights, covariances, squares)


@njit(cache=True)
def fold_in(
    column: Any,
    value: Any,
    left: Any,
    offsets: Any,
    factors: Any,
    constant: Any,
    diagonal: Any,
    precision: Any,
    right: Any,
) -> None:
    """Add one-hot rows to the systems of their tasks' scores, in place."""
    q = factors.shape[1]
    seen = np.empty(q)
    for t in range(len(offsets) - 1):
        for i in range(offsets[t], offsets[t + 1]):
            j = column[i]
            sure = 1.0 / (diagonal[j] + 1.0)
            for a in range(q):
                seen[a] = value[i] * factors[j, a] + constant[a]
            for a in range(q):
                right[t, a] += sure * seen[a] * left[i]
                for k in range(q):
                    precision[t, a, k] += sure * seen[a] * seen[k]
