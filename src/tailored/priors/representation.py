"""The prior of the paper: a conditioning function (H, C), a prior mean (B, b₀) and a within-task algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.algebra import solve as solve_systems
from .._utils.validation import check_choice, check_int, check_positive, check_shape, native
from ..feature_maps import FeatureMap
from ..feature_maps.base import check_features
from ..losses import Absolute, Loss, Squared
from ..representation.base import Conditioning
from ..representation.bias import Bias
from ..representation.blocks import BlockDiagonal
from ..representation.dense import Constant
from ..tasks.rows import BATCH_FLOATS, Rows, predictions
from ..tasks.task_set import TaskSet
from ..within import solving
from .base import Array, Prior, Support

Labels = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class RepresentationPrior(Prior):
    """``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` and ``b(s) = Bφ + b₀`` for features φ = Φ(s).

    A task with n rows is solved under ``θ = n^p τ(s)`` with prior mean b(s).  The paper has p = 0.  The form of a Gaussian
    prior (`Prior.paper_form`) has p = 1, because the within-task objective is a mean over rows.  Loss and within-task
    algorithm are those of `TaskRegressor`.
    """

    conditioning: Conditioning  # τ as a function of φ
    bias: Bias  # b as a function of φ
    feature_map: FeatureMap | None = None  # Φ; None where neither depends on the task
    loss: Loss = field(default_factory=Absolute)
    inner: str = "exact"
    tol: float = 1e-8
    max_iter: int = 1000
    size_exponent: int = 0  # p

    block_floats = BATCH_FLOATS
    parallel_blocks = False

    def __post_init__(self) -> None:
        for part in (self.conditioning, self.bias):
            for value in vars(part).values():
                if isinstance(value, np.ndarray):
                    value.flags.writeable = False

    def restore(self) -> None:
        super().restore()
        d, k = self.n_weights, self.conditioning.n_side
        if self.conditioning.n_features != d:
            raise ValueError(f"conditioning: has {self.conditioning.n_features} columns, the scaling has {d}")
        check_shape("bias.constant", self.bias.constant, d)
        if self.bias.conditional:
            check_shape("bias.linear", self.bias.linear, d, k)
        if self.feature_map is None and k:
            raise ValueError(f"feature_map: is missing, and the conditioning has {k} features")
        check_choice("inner", self.inner, solving.WITHIN)
        check_positive("tol", self.tol)
        check_int("max_iter", self.max_iter)
        if self.size_exponent not in (0, 1):
            raise ValueError("size_exponent: must be 0 or 1")

    @classmethod
    def of_gaussian(cls, prior: Prior, tau: Array | Conditioning) -> RepresentationPrior:
        """Return a Gaussian prior in the form of the paper.

        ``tau`` are the τ_k (K, d, d) of a mixture, or τ itself.  ``φ = (√r, b(s))``, H is block diagonal on √r and
        ``B = (0 | I)``; with one component H = 0 and C = τ.
        """
        d = prior.n_weights
        K = len(tau) if isinstance(tau, np.ndarray) and len(tau) > 1 else 0
        if isinstance(tau, Conditioning):
            conditioning = tau
        elif K:
            conditioning = BlockDiagonal(tau, K + d)
        else:
            conditioning = Constant(tau[0], d)
        return cls(
            **{each.name: getattr(prior, each.name) for each in fields(Prior)},
            conditioning=conditioning,
            bias=Bias("conditional", np.zeros(d), np.hstack([np.zeros((d, K)), np.eye(d)])),
            # The tasks that features are computed from have residuals as targets already.
            feature_map=PriorFeatures(replace(prior, regressor=None)),
            loss=Squared(),
            size_exponent=1,
        )

    @property
    def task_settings(self) -> dict[str, Any]:
        return {"loss": self.loss, "inner": self.inner, "tol": self.tol, "max_iter": self.max_iter}

    @property
    def reads_side_info(self) -> bool:
        return self.feature_map is not None and self.feature_map.needs_side_info

    def size_factors(self, sizes: NDArray[np.int64]) -> Array:
        return np.maximum(sizes, 1).astype(float) ** self.size_exponent

    def features(self, tasks: TaskSet) -> Array:
        """Return φ of residual tasks, (T, k)."""
        if self.feature_map is None:
            return np.zeros((len(tasks), 0))
        return check_features(self.feature_map.transform(tasks), tasks, self.conditioning.n_side)

    def _represent(self, tasks: TaskSet, change: Array) -> Array:
        return np.asarray(change @ self.conditioning.evaluate(self.features(tasks)) @ change.T)

    def _mean(self, tasks: TaskSet) -> Array:
        return self.bias.evaluate(self.features(tasks))

    def mean_at_centre(self) -> Array | None:
        return None if self.bias.conditional else np.array(self.bias.constant)

    def paper_form(self) -> RepresentationPrior:
        return self

    def _solve(self, tasks: TaskSet, covariances: bool, n_jobs: int | None) -> tuple[Array, Array]:
        rows, phis = self.scaling.rows(tasks), self.features(tasks)
        weights = self.solve(rows, phis, n_jobs, tasks.labels)
        if not covariances:
            return weights, np.zeros((0, 0, 0))
        thetas = self.conditioning.evaluate(phis) * self.size_factors(tasks.sizes)[:, None, None]
        dense = Rows(self.scaling.dense(tasks.X), rows.y, rows.offsets)
        return weights, _covariances(dense, thetas)

    def solve(
        self, rows: Rows, phis: Array, n_jobs: int | None = None, labels: Labels | None = None
    ) -> Array:
        """Return weights (T, d) of scaled rows with the given features, by the within-task algorithm."""
        means = self.bias.evaluate(phis) if self.bias.moves else None
        factors = self.size_factors(rows.sizes)
        if not rows.is_sparse:
            thetas = self.conditioning.evaluate(phis)
            solution = solving.solve_many(
                *rows,
                thetas * factors[:, None, None] if self.size_exponent else thetas,
                offset=None if means is None else predictions(rows, means),
                n_jobs=n_jobs,
                labels=labels,
                **self.task_settings,
            )
            return solution.coef if means is None else solution.coef + means
        out = np.zeros((len(phis), self.conditioning.n_features))
        names = native(labels) if isinstance(labels, np.ndarray) else labels
        for t, columns in enumerate(rows.columns()):
            one = rows.tasks(t, t + 1)
            if len(one.y):
                one = one.compressed(columns)
                offset = None if means is None else one.X @ means[t, columns]
                theta = factors[t] * self.conditioning(phis[t], columns)
                label = None if names is None else names[t]
                solved = solving.solve(one.X, one.y, theta, offset=offset, label=label, **self.task_settings)
                direction = _dual_direction(solved, one.X, self.inner)
                out[t] = factors[t] * self.conditioning.multiply(phis[t], columns, direction)
                # For large columns the product above keeps rounding only.
                out[t, columns] = solved.coef
            if means is not None:
                out[t] += means[t]
        return out

    def certificate(self, support: Support) -> tuple[float, int]:
        assert isinstance(support, TaskSet)
        task = self.residual_tasks(support)
        X, y = self.scaling.dense(task.X), self.scaling.targets(task.y)
        phi = self.features(task)[0]
        theta = self.conditioning(phi) * self.size_factors(task.sizes)[0]
        with warnings.catch_warnings():
            # The first solution has warned.
            warnings.simplefilter("ignore", ConvergenceWarning)
            offset = X @ self.bias(phi) if self.bias.moves else None
            solution = solving.solve(X, y, theta, offset=offset, **self.task_settings)
        return solution.gap, solution.n_iter


class PriorFeatures(FeatureMap):
    """Features of a `MixturePrior` or `FactorPrior` in the form of the paper: φ = (√r, b(s)), or b(s) for one component."""

    def __init__(self, prior: Any) -> None:
        self.prior = prior

    @property
    def needs_side_info(self) -> bool:  # type: ignore[override]
        return self.prior.reads_side_info

    def transform(self, tasks: TaskSet) -> Array:
        """Return φ of each residual task, (T, k)."""
        shares, mean = self.prior.shares(tasks), self.prior.mean(tasks)
        return mean if shares.shape[1] < 2 else np.hstack([np.sqrt(shares), mean])


def _dual_direction(solution: solving.WithinSolution, X: Array, inner: str) -> Array:
    """Return g with ``w = θ g``, which determines the weights of columns that the task does not use."""
    n = len(solution.alpha)
    if inner == "exact":
        return -X.T @ solution.alpha / n
    # The one-pass estimate is a mean of iterates: average their dual variables in the same way.
    tail = np.cumsum((1.0 / np.arange(1, n + 1))[::-1])[::-1]
    return -X.T @ (solution.alpha * tail) / n


def _covariances(rows: Rows, thetas: Array) -> Array:
    """Return ``(I + θXᵀX/n)⁻¹ θ/n`` of each task, (T, d, d); θ of a task without rows."""
    out = np.array(thetas)
    d = thetas.shape[1]
    for n in np.unique(rows.sizes[rows.sizes > 0]):
        same = np.flatnonzero(rows.sizes == n)
        X = rows.X[rows.offsets[same][:, None] + np.arange(n)]
        theta = thetas[same]
        if n < d:
            across = X @ theta
            inner = across @ X.transpose(0, 2, 1) + n * np.eye(n)
            out[same] = (theta - across.transpose(0, 2, 1) @ solve_systems(inner, across)) / n
        else:
            gram = X.transpose(0, 2, 1) @ X
            out[same] = solve_systems(np.eye(d) + theta @ gram / n, theta) / n
    return out
