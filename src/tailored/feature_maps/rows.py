"""Feature maps of the task's own rows: averages over the rows, and estimates of the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from .._utils.algebra import solve
from .._utils.validation import check_choice, check_divisor, check_positive, check_shape
from ..gaussian.em import fit_mixed_model
from ..gaussian.mixture import Mixture, Want
from ..gaussian.rows import statistics_of
from ..tasks.rows import BATCH_FLOATS, Scaling, batches, dense
from ..tasks.task_set import TaskSet
from .base import Array, FeatureMap, averaging_matrix, by_size, mean_norm

#: Candidates for λ of the tuned ridge estimate, in multiples of the mean squared norm of a row.
PENALTIES = tuple(float(value) for value in np.logspace(-4, 4, 17))


class MeanEmbedding(FeatureMap):
    """``φ = 1/n Σ vec(x_i (y_i, 1)ᵀ)`` in R^{2d}: the paper's map for clusters and MovieLens."""

    def transform(self, tasks: TaskSet) -> Array:
        mean = averaging_matrix(tasks)
        weighted = mean @ sparse.diags_array(tasks.y)
        return np.hstack([dense(weighted @ tasks.X), dense(mean @ tasks.X)])


class AngleMap(FeatureMap):
    """The paper's map for Jester: each rated item becomes a unit vector whose angle is its rating.

    ``φ = (cos(a) ⊙ c, sin(a) ⊙ c, 1)`` in R^{2d+1}, ``a = Σ x_i · π/4 · (M − y_i)/(M − m)``,
    ``c = Σ x_i``; items without a rating give (0, 0).

    Parameters
    ----------
    low, high : float, optional
        The rating scale m, M; by default the range of the training targets.
    """

    #: (m, M) in use; None before `fit`, unless both are given.
    scale: tuple[float, float] | None

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = low
        self.high = high
        self.scale = None if low is None or high is None else (low, high)

    def fit(self, tasks: TaskSet) -> AngleMap:
        if not len(tasks.y) and self.scale is None:
            raise ValueError(
                "feature_map: the tasks have no rows from which to learn the rating scale; give low and high"
            )
        low = float(tasks.y.min()) if self.low is None else self.low
        self.scale = low, float(tasks.y.max()) if self.high is None else self.high
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.scale is None:
            raise self._not_fitted()
        low, high = self.scale
        angle = (np.pi / 4) * (high - tasks.y) / (high - low if high > low else 1.0)
        total = averaging_matrix(tasks)
        total.data[:] = 1.0
        count = dense(total @ tasks.X)
        angles = dense((total @ sparse.diags_array(angle)) @ tasks.X)
        return np.hstack([np.cos(angles) * count, np.sin(angles) * count, np.ones((len(tasks), 1))])


class FourierEmbedding(FeatureMap):
    """Mean embedding of random Fourier features: ``1/n Σ vec(ψ(x_i) (y_i, 1)ᵀ)`` in R^{2D}.

    ``ψ(x) = √(2/D) cos(Ωᵀx + β)`` approximates the Gaussian kernel ``exp(−gamma ‖x − x'‖²)``.

    Parameters
    ----------
    n_components : int, default=50
        D.
    gamma : float, optional
        Default: 1 / (d · variance of the inputs), as scikit-learn's ``gamma="scale"``.
    random_state : int, RandomState or None
        Draws Ω and β.
    """

    frequencies: Array | None
    phases: Array | None

    def __init__(self, n_components: int = 50, gamma: float | None = None, random_state: Any = 0) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state
        self.frequencies = None
        self.phases = None

    def restore(self) -> None:
        if self.frequencies is not None and self.phases is not None:
            check_shape("frequencies", self.frequencies, None, self.n_components)
            check_shape("phases", self.phases, self.n_components)

    def fit(self, tasks: TaskSet) -> FourierEmbedding:
        Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
        X = dense(tasks.X)
        variance = float(X.var()) if X.size else 0.0
        # A smaller variance has no finite inverse.
        width = variance if variance > 1e-200 else 1.0
        gamma = self.gamma if self.gamma is not None else 1.0 / (max(X.shape[1], 1) * width)
        rng = check_random_state(self.random_state)
        self.frequencies = np.sqrt(2.0 * gamma) * rng.normal(size=(X.shape[1], self.n_components))
        self.phases = rng.uniform(0.0, 2.0 * np.pi, size=self.n_components)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.frequencies is None or self.phases is None:
            raise self._not_fitted()
        out = np.zeros((len(tasks), 2 * self.n_components))
        # One product per task: rounding depends on the shape of a product, and a stream may be split anywhere.
        for t, task in enumerate(tasks):
            if len(task.y):
                features = np.cos(task.X @ self.frequencies + self.phases)
                out[t] = np.concatenate([task.y @ features, features.sum(axis=0)]) / len(task.y)
        return np.sqrt(2.0 / self.n_components) * out


class RidgeEstimate(FeatureMap):
    """Ridge estimate of the task's weights, ``(X̂ᵀX̂ + λI) w = X̂ᵀy`` with X̂ = [X, 1]; φ in R^{d+1}.

    Parameters
    ----------
    alpha : float or "auto", default=1.0
        λ; the paper uses 1 for Lenk.  "auto" (the map's name is then "tuned ridge") is the λ with the smallest
        leave-one-out squared error over all rows of the training tasks.
    """

    penalty: float | None  # the λ in use; None before "auto" has been fitted

    def __init__(self, alpha: float | str = 1.0) -> None:
        self.alpha = alpha
        self.penalty = None if isinstance(alpha, str) else alpha

    def fit(self, tasks: TaskSet) -> RidgeEstimate:
        if isinstance(self.alpha, str):
            check_choice("alpha", self.alpha, ["auto"])
            rows = sum(group.y.size for group in by_size(tasks))
            squares = sum(float(np.sum(group.X**2)) for group in by_size(tasks))
            penalties = np.array(PENALTIES) * (squares / rows if rows else 1.0)
            errors = leave_one_out(tasks, penalties)
            # The largest first, so that a tie selects the smaller weights.
            self.penalty = float(penalties[::-1][np.argmin(errors[::-1])])
        else:
            self.penalty = check_positive("alpha", self.alpha)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.penalty is None:
            raise self._not_fitted()
        d = tasks.n_features
        out = np.zeros((len(tasks), d + 1))
        for which, X, targets in by_size(tasks):
            n = X.shape[1]
            Xt = np.ascontiguousarray(X.transpose(0, 2, 1))
            y = targets[:, :, None]
            if n <= d:
                dual = solve(X @ Xt + self.penalty * np.eye(n), y)
                out[which] = (Xt @ dual)[:, :, 0]
            else:
                out[which] = solve(Xt @ X + self.penalty * np.eye(d + 1), Xt @ y)[:, :, 0]
        return out


def leave_one_out(tasks: TaskSet, penalties: Array) -> Array:
    """Return the sum of squared leave-one-out errors over all rows, for each of the penalties (m,).

    One eigendecomposition per task gives them in closed form.  Without row i its residual is ``e_i / (1 − h_ii)``,
    where h_ii is its leverage, or ``a_i / G_ii`` with ``G = (X̂X̂ᵀ + λI)⁻¹`` and ``a = Gy``.
    """
    total = np.zeros(len(penalties))
    for _, X, y in by_size(tasks):
        n, p = X.shape[1:]
        Xt = X.transpose(0, 2, 1)
        # The smaller of the two matrices: with few rows 1 − h_ii would cancel, G does not.
        values, vectors = np.linalg.eigh(X @ Xt if n < p else Xt @ X)
        values = np.maximum(values, 0.0)
        basis = vectors if n < p else X @ vectors
        coordinates = (basis.transpose(0, 2, 1) @ y[:, :, None])[:, :, 0]
        for j, penalty in enumerate(penalties):
            inverse = 1.0 / (values + penalty)
            fitted = (basis @ (inverse * coordinates)[:, :, None])[:, :, 0]
            diagonal = (basis**2 @ inverse[:, :, None])[:, :, 0]
            residuals = fitted / diagonal if n < p else (y - fitted) / (1.0 - diagonal)
            total[j] += np.sum(residuals**2)
    return total


class PosteriorMean(FeatureMap):
    """``φ = (m(s) / c, 1)`` in R^{d+2}: the posterior mean m of the task's weights, and a constant.

    m is computed under ``w ~ N(b, W)``, ``y = [X, 1] w + noise``, whose b, W and noise variance are fitted to the
    training tasks by EM.  c scales its norm to root mean square one over the training tasks.  A task without rows has
    m = b.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether the model has an intercept; φ is in R^{d+1} otherwise.
    """

    units: Scaling | None
    mixture: Mixture | None
    norm: float

    def __init__(self, fit_intercept: bool = True) -> None:
        self.fit_intercept = fit_intercept
        self.units = None
        self.mixture = None
        self.norm = 1.0

    def restore(self) -> None:
        check_divisor("norm", self.norm)
        if self.mixture is not None and self.units is not None:
            check_shape("mixture.means", self.mixture.means, None, len(self.units.columns))
            if self.units.fit_intercept != self.fit_intercept:
                raise ValueError("units: must have an intercept as the map has")
            if self.mixture.side is not None or self.mixture.gates is not None:
                raise ValueError("mixture: must not depend on side information")

    def fit(self, tasks: TaskSet) -> PosteriorMean:
        d = tasks.n_features + self.fit_intercept
        self.units = Scaling.of(tasks, self.fit_intercept)
        # One batch is enough to estimate d² parameters.
        n_tasks = min(len(tasks), max(1, BATCH_FLOATS // d**2))
        sample = tasks[np.unique(np.linspace(0, len(tasks) - 1, n_tasks).astype(np.intp))]
        self.mixture = fit_mixed_model(statistics_of(sample, self.units))
        self.norm = mean_norm(self.weights(sample))
        return self

    def weights(self, tasks: TaskSet) -> Array:
        """Return m (T, d), scaled as the training tasks."""
        if self.mixture is None or self.units is None:
            raise self._not_fitted()
        parts = (statistics_of(batch, self.units) for batch in batches(tasks))
        return np.concatenate([part.posterior(self.mixture, Want(means=True)).mean for part in parts])

    def transform(self, tasks: TaskSet) -> Array:
        return np.hstack([self.weights(tasks) / self.norm, np.ones((len(tasks), 1))])
