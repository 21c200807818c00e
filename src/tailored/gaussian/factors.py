"""Sparse rows of tasks with many columns, and the posterior of their coefficients under a low-rank
plus diagonal covariance.

    w ~ N(b + Γ v(s), FFᵀ + D) ,    y = Xw + noise of variance σ²

The coefficients are ``w = b + Γ v(s) + F z + δ`` with scores z ~ N(0, I) and deviations δ ~ N(0,
D).  The posterior of the scores of a task needs a q x q system.  For *one-hot* rows (a single entry
±1, in a column that no other row of the task uses), the deviations add to the noise of each row.
For other rows, each task needs the n x n inverse of ``XDXᵀ + σ²I``. The cost of these systems
depends on the columns that the task uses, not on d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from .._utils.records import Record, cached_property
from ..tasks.rows import Array, Scaling, dense, segment_sums, sparse_products
from ..tasks.task_set import TaskSet, rows_of_tasks
from .mixture import EVIDENCE, Want
from .moments import NO_SUMS, Expected

Index = NDArray[np.intp]


def scaled_rows(X: Any, units: Scaling) -> sparse.csr_array:
    """Scale dense or sparse rows as in a model, and return them as a CSR array without the constant
    column.
    """
    d = X.shape[1]
    shifted = dense(X) - units.shift[:d] if units.shift.any() else X
    out = sparse.csr_array(sparse.csr_array(shifted) * (1.0 / units.columns[:d])[None, :])
    out.eliminate_zeros()
    out.sort_indices()
    return out


@dataclass(frozen=True)
class FactorRows:
    """Sparse rows of T tasks, without the constant column."""

    X: sparse.csr_array  # (N, d)
    y: Array  # (N,)
    starts: NDArray[np.int64]  # (T + 1,) first row of each task, and N
    side: Array  # (T, p) features v(s) of the side information; p may be 0

    @classmethod
    def of(cls, tasks: TaskSet, units: Scaling, side: Array | None = None) -> FactorRows:
        """Return the scaled rows of tasks."""
        v = np.zeros((len(tasks), 0)) if side is None else side
        return cls(scaled_rows(tasks.X, units), units.targets(tasks.y), tasks.offsets, v)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def n_rows(self) -> int:
        return len(self.y)

    def roughly(self) -> Self:
        """Return the same rows, as approximations are not needed."""
        return self

    def take(self, index: Index | slice) -> FactorRows:
        """Return the tasks at these positions."""
        rows, starts = rows_of_tasks(self.starts, np.arange(len(self))[index])
        return FactorRows(self.X[rows], self.y[rows], starts, self.side[index])

    @cached_property
    def task(self) -> Index:
        """Index of the task of each row, (N,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def blocks(self) -> list[tuple[Index, Array]]:
        """For each task, the columns that it uses, and its rows in these columns, dense."""
        out = []
        for start, stop in pairwise(self.starts):
            block = self.X[start:stop]
            used, at = np.unique(block.indices, return_inverse=True)
            X = np.zeros((stop - start, len(used)))
            X[np.repeat(np.arange(stop - start), np.diff(block.indptr)), at] = block.data
            out.append((used.astype(np.intp), X))
        return out

    def table(self, values: Array) -> sparse.csr_array:
        """Return the values (N,) of one-hot rows as a sparse array of tasks and columns, (T, d)."""
        return sparse.csr_array(
            (values, self.X.indices, self.starts), shape=(len(self), self.X.shape[1])
        )

    @cached_property
    def one_hot(self) -> bool:
        """Whether each row has one entry, ±1, in a column that no other row of its task uses."""
        if not (np.diff(self.X.indptr) == 1).all() or not (np.abs(self.X.data) == 1.0).all():
            return False
        at = self.task * self.X.shape[1] + self.X.indices
        return len(np.unique(at)) == len(at)


@dataclass(frozen=True)
class Factors(Record):
    """Parameters of the model in the module docstring; with an intercept, the constant column is
    the last.
    """

    mean: Array  # (d,) b
    factors: Array  # (d, q) F
    diagonal: Array  # (d,) D
    noise: float  # σ²
    effect: Array  # (d, p) Γ

    def scaled(self, c: float, e: float) -> Factors:
        """Return the model with the covariance e (c FFᵀ + D) and the noise variance eσ²."""
        factors = np.sqrt(c * e) * self.factors
        return Factors(self.mean, factors, e * self.diagonal, e * self.noise, self.effect)


def row_variances(model: Factors, X: sparse.csr_array, task: Index, covariances: Array) -> Array:
    """Return the variance of ``<x, w>`` of each row, for given covariances (T, q, q) of the scores
    of the tasks.

    The deviation of a column has its prior variance, even if the task has observed the column.
    """
    d = X.shape[1]
    loadings, deviations = X @ model.factors[:d], X.multiply(X) @ model.diagonal[:d]
    if len(model.mean) > d:
        loadings, deviations = loadings + model.factors[d], deviations + model.diagonal[d]
    return np.asarray(np.einsum("na,nab,nb->n", loadings, covariances[task], loadings) + deviations)


class Systems(NamedTuple):
    """Linear systems of the scores of tasks: posterior precisions (T, q, q), right-hand sides (T,
    q), constants (T,).

    A constant is minus twice the log evidence, without the terms that `solve` adds.
    """

    precision: Array
    right: Array
    constant: Array

    def solve(self) -> tuple[Array, Array, Array]:
        """Return the means (T, q) and covariances (T, q, q) of the scores, and the log evidence
        (T,).
        """
        covariances = np.asarray(np.linalg.inv(self.precision), dtype=np.float64)
        scores = np.einsum("tab,tb->ta", covariances, self.right)
        fitted = np.einsum("ta,ta->t", scores, self.right)
        log_determinants = np.linalg.slogdet(self.precision)[1]
        return scores, covariances, 0.5 * (fitted - log_determinants - self.constant)


class RowModel(NamedTuple):
    """The model of a row: ``y − <x, b> = <xF + constant, z> + <x, δ> + noise``, given the scores z
    of its task.
    """

    loadings: Array  # (d, q) F
    constant: Array  # (q,)
    diagonal: Array  # (d,) D, the variances of δ
    noise: float  # σ²
    #: (d, 1 + r, 1 + r) posterior covariances of b_j and of the first r loadings of each column
    column_covariances: Array


class Block(NamedTuple):
    """The rows of one task, if they are not one-hot."""

    used: Index  # (m,) columns that the task uses
    X: Array  # (n, m) rows in these columns
    inverse: Array  # (n, n) (XDXᵀ + σ²I)⁻¹
    loadings: Array  # (n, q) the coefficients of the scores in each row
    left: Array  # (n,) y − X b


def add_rows(systems: Systems, rows: FactorRows, left: Array, model: RowModel) -> list[Block]:
    """Add rows with ``left`` = y − <x, b> to the systems of their tasks, in place.

    Return a block for each task, or an empty list for one-hot rows.
    """
    if rows.one_hot:
        _add_one_hot(systems, rows, left, model)
        return []
    blocks, r = [], model.column_covariances.shape[1] - 1
    for t, (used, X) in enumerate(rows.blocks):
        A = (X * model.diagonal[used]) @ X.T + model.noise * np.eye(len(X))
        B = np.asarray(np.linalg.inv(A), dtype=np.float64)
        G, e = X @ model.loadings[used] + model.constant, left[rows.starts[t] : rows.starts[t + 1]]
        weights, C = np.einsum("ij,ij->j", X, B @ X), model.column_covariances[used]
        systems.precision[t] += G.T @ B @ G
        systems.precision[t, :r, :r] += np.tensordot(weights, C[:, 1:, 1:], 1)
        systems.right[t] += G.T @ B @ e
        systems.right[t, :r] -= weights @ C[:, 0, 1:]
        systems.constant[t] += (
            e @ B @ e + weights @ C[:, 0, 0] + float(np.linalg.slogdet(2.0 * np.pi * A)[1])
        )
        blocks.append(Block(used, X, B, G, e))
    return blocks


def _add_one_hot(systems: Systems, rows: FactorRows, left: Array, model: RowModel) -> None:
    (precision, right, total), (d, q) = systems, model.loadings.shape
    x, C, weights = rows.X.data, model.column_covariances, 1.0 / (model.diagonal + model.noise)
    of_rows, uses, r = weights[rows.X.indices], rows.table(np.ones(len(x))), C.shape[1] - 1
    # Products of ``xF + constant``, summed over the rows of each task; x² = 1.
    second = model.loadings[:, :, None] * model.loadings[:, None, :]
    second[:, :r, :r] += C[:, 1:, 1:]
    second *= weights[:, None, None]
    mixed = (rows.table(of_rows * x) @ model.loadings)[:, :, None] * model.constant
    precision += (
        (uses @ second.reshape(d, q * q)).reshape(len(rows), q, q)
        + mixed
        + mixed.transpose(0, 2, 1)
    )
    precision += (uses @ weights)[:, None, None] * np.outer(model.constant, model.constant)
    right += rows.table(of_rows * x * left) @ model.loadings
    right += segment_sums(of_rows * left, rows.starts)[:, None] * model.constant
    right[:, :r] -= uses @ (weights[:, None] * C[:, 0, 1:])
    total += segment_sums(of_rows * left**2 - np.log(of_rows / (2.0 * np.pi)), rows.starts)
    total += uses @ (weights * C[:, 0, 0])


def posterior(rows: FactorRows, model: Factors, *, want: Want = EVIDENCE) -> Expected:
    """Return the posterior of each task: means (T, 1, d) of the coefficients, and covariances (T,
    q, q) of the scores.
    """
    T, (d, q), n_columns = len(rows), model.factors.shape, rows.X.shape[1]
    has_intercept = d > n_columns
    if has_intercept and model.diagonal[-1] != 0.0:
        raise ValueError(
            "diagonal: must be zero for the intercept, whose variance belongs to the factors"
        )
    loadings, diagonal = model.factors[:n_columns], model.diagonal[:n_columns]
    constant = model.factors[-1] if has_intercept else np.zeros(q)
    means = model.mean + rows.side @ model.effect.T
    products = sparse_products(rows.X, means, rows.task)
    left = rows.y - (products + means[rows.task, -1] if has_intercept else products)
    systems = Systems(np.repeat(np.eye(q)[None], T, axis=0), np.zeros((T, q)), np.zeros(T))
    of_rows = RowModel(loadings, constant, diagonal, model.noise, np.zeros((n_columns, 1, 1)))
    blocks = add_rows(systems, rows, left, of_rows)
    scores, covariances, log_evidence = systems.solve()
    if want.means:
        means += scores @ model.factors.T
        for t, (used, X, B, G, e) in enumerate(blocks):
            means[t, used] += diagonal[used] * (X.T @ (B @ (e - G @ scores[t])))
        if rows.one_hot:
            column, x = rows.X.indices, rows.X.data
            seen = x[:, None] * loadings[column] + constant
            left = left - np.einsum("na,na->n", seen, scores[rows.task])
            variances = diagonal[column]
            means[rows.task, column] += variances * x * left / (variances + model.noise)
    means, covariances = means[: T * want.means, None], covariances[: T * want.covariances]
    return Expected(log_evidence, np.ones((T, 1)), means, covariances, NO_SUMS)


def recalibrate(held_out: Sequence[FactorRows], models: Sequence[Factors]) -> tuple[float, float]:
    """Return the (c, e) of `Factors.scaled` with the highest evidence on held-out tasks, with one
    model for each fold.
    """

    def loss(logs: Array) -> float:
        c, e = np.exp(logs)
        pairs = zip(held_out, models, strict=True)
        return -sum(
            float(posterior(rows, model.scaled(c, e)).log_evidence.sum()) for rows, model in pairs
        )

    options = {
        "maxiter": 40,
        "xatol": 0.01,
        "initial_simplex": [[0.0, 0.0], [0.3, 0.0], [0.0, 0.2]],
    }
    c, e = np.exp(minimize(loss, np.zeros(2), method="Nelder-Mead", options=options).x)
    return float(c), float(e)
