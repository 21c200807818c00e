"""Feature maps Φ: the side information of a task in, a vector φ (k,) out.

Data set maps ("mean", "ridge", "angle", "fourier") read the task's own rows; "vector" and
transformers read the side information that came with the task; a callable reads both.  All of them
are invariant to the order of the rows.  Scaling φ to unit root-mean-square norm over the training
tasks is the learners' business: the raw norm of a mean embedding can be as small as 0.06, and the
effect of a step of H on τ goes with its fourth power.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from ._validation import check_choice
from .tasks import Task, TaskSet

Array = NDArray[np.float64]


def _task_means(tasks: TaskSet) -> sparse.csr_array:
    """The (T, N) matrix that averages the rows of each task (zero for a task without rows)."""
    sizes = tasks.sizes
    weights = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
    shape = (len(tasks), len(weights))
    return sparse.csr_array((weights, np.arange(len(weights)), tasks.offsets), shape=shape)


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix, dtype=float)


class FeatureMap(ABC):
    """Base of all maps: ``fit`` on the training tasks, ``transform`` to (T, k)."""

    #: What the map reads; `adapt` uses it to say what is missing.
    needs_rows: bool = True
    needs_side_info: bool = False

    def fit(self, tasks: TaskSet) -> FeatureMap:
        """Learn what has to be learned from the tasks (most maps: nothing)."""
        return self

    @abstractmethod
    def transform(self, tasks: TaskSet) -> Array:
        """Features of every task, (T, k)."""

    def transform_one(self, task: TaskSet) -> Array:
        """Features of a set of one task, (1, k); a map may do this faster than `transform`."""
        return self.transform(task)

    def state(self) -> dict[str, Any]:
        """Constructor arguments and fitted numbers that rebuild the map (for saving)."""
        return dict(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        vars(self).update(state)


class MeanEmbedding(FeatureMap):
    """``φ = 1/n Σ vec(x_i (y_i, 1)ᵀ)`` in R^{2d}: the paper's map for clusters and MovieLens."""

    def transform(self, tasks: TaskSet) -> Array:
        mean = _task_means(tasks)
        weighted = mean @ sparse.diags_array(tasks.y)
        return np.hstack([_dense(weighted @ tasks.X), _dense(mean @ tasks.X)])


class RidgeEstimate(FeatureMap):
    """Tikhonov solution of the task, ``(X̂ᵀX̂ + λI) w = X̂ᵀy`` with X̂ = [X, 1]; φ in R^{d+1}.

    Parameters
    ----------
    alpha : float, default=1.0
        λ; the paper uses 1 for Lenk.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def transform(self, tasks: TaskSet) -> Array:
        d = tasks.n_features
        out = np.zeros((len(tasks), d + 1))
        # Tasks of one size at a time: a batched solve costs a fraction of a loop, and because the shapes
        # are the task's own, its bits do not depend on the other tasks.
        for n in np.unique(tasks.sizes[tasks.sizes > 0]):
            which = np.flatnonzero(tasks.sizes == n)
            rows = (tasks.offsets[which][:, None] + np.arange(n)).ravel()
            X = np.ones((len(which), n, d + 1))
            X[:, :, :d] = _dense(tasks.X[rows]).reshape(len(which), n, d)
            y = tasks.y[rows].reshape(len(which), n, 1)
            Xt = np.ascontiguousarray(X.transpose(0, 2, 1))
            if n <= d:
                dual = np.linalg.solve(X @ Xt + self.alpha * np.eye(n), y)
                out[which] = (Xt @ dual)[:, :, 0]
            else:
                out[which] = np.linalg.solve(Xt @ X + self.alpha * np.eye(d + 1), Xt @ y)[:, :, 0]
        return out

    def transform_one(self, task: TaskSet) -> Array:
        n, d = task.X.shape
        if task.is_sparse or n <= d:
            return self.transform(task)
        gram = np.empty((d + 1, d + 1))
        gram[:d, :d] = task.X.T @ task.X
        gram[d, :d] = gram[:d, d] = task.X.sum(axis=0)
        gram[d, d] = n
        gram.flat[:: d + 2] += self.alpha
        right = np.append(task.y @ task.X, task.y.sum())
        return np.linalg.solve(gram, right)[None]


class AngleMap(FeatureMap):
    """The paper's map for Jester: each rated item becomes a unit vector whose angle is its rating.

    ``φ = (cos(a) ⊙ c, sin(a) ⊙ c, 1)`` in R^{2d+1}, ``a = Σ x_i · π/4 · (M − y_i)/(M − m)``,
    ``c = Σ x_i``; items without a rating give (0, 0).

    Parameters
    ----------
    low, high : float, optional
        The rating scale m, M; taken from the training targets when absent.
    """

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low = low
        self.high = high

    def fit(self, tasks: TaskSet) -> AngleMap:
        if self.low is None:
            self.low = float(tasks.y.min())
        if self.high is None:
            self.high = float(tasks.y.max())
        return self

    def transform(self, tasks: TaskSet) -> Array:
        assert self.low is not None
        assert self.high is not None
        span = self.high - self.low
        angle = (np.pi / 4) * (self.high - tasks.y) / (span if span > 0 else 1.0)
        total = _task_means(tasks)
        total.data[:] = 1.0
        count = _dense(total @ tasks.X)
        angles = _dense((total @ sparse.diags_array(angle)) @ tasks.X)
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

    def __init__(self, n_components: int = 50, gamma: float | None = None, random_state: Any = 0) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.random_state = random_state
        self.frequencies: Array | None = None
        self.phases: Array | None = None

    def fit(self, tasks: TaskSet) -> FourierEmbedding:
        X = _dense(tasks.X)
        variance = float(X.var())
        gamma = self.gamma if self.gamma is not None else 1.0 / (X.shape[1] * (variance or 1.0))
        rng = check_random_state(self.random_state)
        self.frequencies = np.sqrt(2.0 * gamma) * rng.normal(size=(X.shape[1], self.n_components))
        self.phases = rng.uniform(0.0, 2.0 * np.pi, size=self.n_components)
        return self

    def transform(self, tasks: TaskSet) -> Array:
        out = np.zeros((len(tasks), 2 * self.n_components))
        # Task by task: the bits of a matrix product depend on its shape, and a stream may be cut anywhere.
        for t, task in enumerate(tasks):
            if len(task.y):
                features = np.cos(task.X @ self.frequencies + self.phases)
                out[t] = np.concatenate([task.y @ features, features.sum(axis=0)]) / len(task.y)
        return np.sqrt(2.0 / self.n_components) * out


class SideVector(FeatureMap):
    """The side information as it is.

    Numeric tables are taken unchanged.  When a table also has categorical columns, these become
    one-hot (a category unseen in training gives zeros) and the numeric columns are standardised, so
    that an age in years does not drown the rest.
    """

    needs_rows = False
    needs_side_info = True

    def __init__(self) -> None:
        #: Of a table with categories: per column its categories, or its (mean, deviation).
        self.categories: list[Any] | None = None

    def fit(self, tasks: TaskSet) -> SideVector:
        table = _side_table(tasks)
        if table.dtype == object:
            self.categories = [_encoding(table[:, j]) for j in range(table.shape[1])]
        return self

    def transform(self, tasks: TaskSet) -> Array:
        table = _side_table(tasks)
        if self.categories is None:
            try:
                return table.astype(float)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "side_info: the side information was numeric in fit and has text now; "
                    "give the same columns as in fit"
                ) from error
        if table.shape[1] != len(self.categories):
            raise ValueError(
                f"side_info: expected {len(self.categories)} columns as in fit, got {table.shape[1]}"
            )
        from sklearn.preprocessing import OneHotEncoder  # slow to import, rarely needed

        parts = []
        for column, encoding in zip(table.T, self.categories, strict=True):
            if "mean" in encoding:
                parts.append((column.astype(float)[:, None] - encoding["mean"]) / encoding["deviation"])
            else:
                encoder = OneHotEncoder(
                    categories=[np.array(encoding["values"], dtype=object)],
                    handle_unknown="ignore",
                    sparse_output=False,
                )
                parts.append(encoder.fit_transform(column.astype(object)[:, None]))
        return np.hstack(parts)


def _encoding(column: NDArray[Any]) -> dict[str, Any]:
    if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in column):
        values = column.astype(float)
        return {"mean": float(values.mean()), "deviation": float(values.std()) or 1.0}
    return {"values": sorted(set(column.tolist()), key=lambda value: (str(type(value)), value))}


class Transformer(FeatureMap):
    """Any scikit-learn transformer applied to the table of side information."""

    needs_rows = False
    needs_side_info = True

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, tasks: TaskSet) -> Transformer:
        self.transformer = clone(self.transformer).fit(_side_table(tasks))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        return _dense(self.transformer.transform(_side_table(tasks)))


class CallableMap(FeatureMap):
    """``φ = function(task)`` where the task has ``X``, ``y``, ``side_info`` and ``label``."""

    needs_rows = False

    def __init__(self, function: Callable[[Task], Any]) -> None:
        self.function = function

    def transform(self, tasks: TaskSet) -> Array:
        rows: list[Array] = []
        for task in tasks:
            phi = np.atleast_1d(np.asarray(self.function(task), dtype=float))
            if phi.ndim != 1 or not np.isfinite(phi).all():
                raise ValueError(
                    f"feature_map: the callable must return a finite 1-D vector; for task {task.label!r} "
                    f"it returned shape {phi.shape}"
                    + ("" if np.isfinite(phi).all() else " with NaN or infinity")
                )
            if rows and len(phi) != len(rows[0]):
                raise ValueError(
                    f"feature_map: the callable returned {len(phi)} features for task {task.label!r} "
                    f"and {len(rows[0])} for the first task; the number must not change"
                )
            rows.append(phi)
        return np.array(rows)


def _side_table(tasks: TaskSet) -> NDArray[Any]:
    if tasks.side_info is None:
        raise ValueError(
            "side_info: this feature map reads the side information of a task and none was given; "
            "pass side_info=, or choose a feature map of the task's own rows such as feature_map='mean'"
        )
    return tasks.side_info


#: Valid names of a learner's ``feature_map`` (besides "auto", a callable or a transformer); "posterior" joins
#: them in `tailored.posterior_map`, which stands on models that stand on feature maps.
FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    "mean": MeanEmbedding,
    "ridge": RidgeEstimate,
    "angle": AngleMap,
    "fourier": FourierEmbedding,
    "vector": SideVector,
}


def get_feature_map(spec: Any, *, has_side_info: bool) -> FeatureMap:
    """The map that a learner's ``feature_map`` argument stands for, not yet fitted.

    ``"auto"`` is "vector" when the tasks carry side information and "ridge" otherwise.
    """
    if isinstance(spec, str):
        if spec == "auto":
            spec = "vector" if has_side_info else "ridge"
        return FEATURE_MAPS[check_choice("feature_map", spec, [*FEATURE_MAPS, "auto"])]()
    if isinstance(spec, FeatureMap):
        copied = spec.__class__.__new__(spec.__class__)
        copied.__dict__.update(spec.__dict__)
        return copied
    if hasattr(spec, "transform") and hasattr(spec, "fit"):
        return Transformer(spec)
    if callable(spec):
        return CallableMap(spec)
    raise TypeError(
        f"feature_map: expected one of {sorted(FEATURE_MAPS)}, 'auto', a FeatureMap, a callable or a "
        f"scikit-learn transformer, got {type(spec).__name__}"
    )
