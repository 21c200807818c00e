"""The registry of feature maps, maps joined to one, and adapted weights as features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from .._utils.validation import check_choice, check_divisor
from ..tasks.task_set import TaskSet
from .base import Array, FeatureMap, mean_norm
from .rows import AngleMap, FourierEmbedding, MeanEmbedding, PosteriorMean, RidgeEstimate
from .side_info import CallableMap, SideVector, Transformer

#: Valid names of a learner's ``feature_map``, besides "auto".
FEATURE_MAPS: dict[str, Callable[[], FeatureMap]] = {
    "mean": MeanEmbedding,
    "ridge": RidgeEstimate,
    "angle": AngleMap,
    "fourier": FourierEmbedding,
    "vector": SideVector,
    "tuned ridge": partial(RidgeEstimate, "auto"),
    "posterior mean": PosteriorMean,
}


def get_feature_map(spec: Any, *, has_side_info: bool) -> FeatureMap:
    """Return the map that a learner's ``feature_map`` argument specifies, not yet fitted.

    ``"auto"`` is "vector" if the tasks have side information and "ridge" otherwise.  A list gives `JoinedMaps`, and a
    meta-learner gives its `AdaptedWeights`.
    """
    if isinstance(spec, str):
        if spec == "auto":
            spec = "vector" if has_side_info else "ridge"
        return FEATURE_MAPS[check_choice("feature_map", spec, [*FEATURE_MAPS, "auto"])]()
    if isinstance(spec, FeatureMap):
        copied = spec.__class__.__new__(spec.__class__)
        copied.__dict__.update(spec.__dict__)
        return copied
    if isinstance(spec, list | tuple):
        return JoinedMaps(spec)
    if hasattr(spec, "adapt_many") and not isinstance(spec, type):
        return AdaptedWeights(spec)
    if hasattr(spec, "transform") and hasattr(spec, "fit"):
        return Transformer(spec)
    if callable(spec):
        return CallableMap(spec)
    raise TypeError(
        f"feature_map: expected one of {sorted(FEATURE_MAPS)}, 'auto', a FeatureMap, a callable, a "
        f"scikit-learn transformer, a meta-learner or a list of these, got {type(spec).__name__}"
    )


class JoinedMaps(FeatureMap):
    """``φ = (φ_1 / a_1, φ_2 / a_2, ..)``: the features of several maps, concatenated.

    The a_i scale the norm of each block to root mean square one over the training tasks, so that all maps have the
    same weight.  ``feature_map=["vector", "ridge"]`` joins a task's side information and an estimate from its rows.

    Parameters
    ----------
    maps : sequence
        Anything that a learner accepts as ``feature_map``.
    """

    parts: list[FeatureMap]
    norms: list[float]

    def __init__(self, maps: Sequence[Any] = ()) -> None:
        self.maps = list(maps)
        self.parts = []
        self.norms = []

    def restore(self) -> None:
        if len(self.parts) != len(self.norms):
            raise ValueError("norms: must be one for each map")
        check_divisor("norms", self.norms)

    @property
    def needs_rows(self) -> bool:
        return any(part.needs_rows for part in self.parts)

    @property
    def needs_side_info(self) -> bool:
        return any(part.needs_side_info for part in self.parts)

    def fit(self, tasks: TaskSet) -> JoinedMaps:
        if not self.maps:
            raise ValueError("feature_map: give at least one map to join")
        has_side_info = tasks.side_info is not None
        self.parts = [get_feature_map(spec, has_side_info=has_side_info).fit(tasks) for spec in self.maps]
        self.norms = [mean_norm(part.transform(tasks)) for part in self.parts]
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if not self.parts:
            raise self._not_fitted()
        return np.hstack(
            [part.transform(tasks) / norm for part, norm in zip(self.parts, self.norms, strict=True)]
        )


class AdaptedWeights(FeatureMap):
    """``φ = w(s) / c``: the weights of the task under a first meta-learner.

    c scales their norm to root mean square one over the training tasks.  The weights of a training task are a function
    of its rows and of a few meta-parameters, as those of a new task are, so that no rows need to be held out.

    ``ConditionalLearner(UnconditionalLearner(), ...)`` is the paper's algorithm refined once.  Its search includes
    H = 0, which is the first model, so that the refinement is used only if it lowers the validation error.

    Parameters
    ----------
    learner : meta-learner
        An unfitted learner is cloned and fitted to the training tasks.  A fitted one is used unchanged; scikit-learn's
        `clone` keeps it in ``feature_map=AdaptedWeights(first)``, but not in ``feature_map=first``.
    unit_norm : bool, default=False
        Divide by the norm of the task's own weights instead, which keeps their direction only.
    constant : bool, default=False
        Append a constant 1.  C is the constant part of τ(s) already.  A constant in φ adds terms that are odd in w(s),
        which do not help if w and −w are equally likely.
    """

    model: Any  # the fitted learner, or None
    norm: float

    def __init__(self, learner: Any = None, *, unit_norm: bool = False, constant: bool = False) -> None:
        self.learner = learner
        self.unit_norm = unit_norm
        self.constant = constant
        self.model = learner if hasattr(learner, "prior_") else None
        self.norm = 1.0

    def state(self) -> dict[str, Any]:
        # The fitted learner has the arguments of the unfitted one.
        return {**super().state(), "learner": self.learner if self.model is None else None}

    def restore(self) -> None:
        if self.model is not None and not hasattr(self.model, "prior_"):
            raise ValueError("model: must be a fitted learner")
        check_divisor("norm", self.norm)
        self.learner = self.learner if self.model is None else self.model

    @property
    def needs_side_info(self) -> bool:
        feature_map = None if self.model is None else self.model.feature_map_
        return feature_map is not None and feature_map.needs_side_info

    def fit(self, tasks: TaskSet) -> AdaptedWeights:
        fitted = hasattr(self.learner, "prior_")
        self.model = self.learner if fitted else clone(self.learner).fit(tasks)
        self.norm = mean_norm(np.asarray(self.model.adapt_many(tasks)))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.model is None:
            raise self._not_fitted()
        d = tasks.n_features + bool(self.model.fit_intercept)
        weights = np.asarray(self.model.adapt_many(tasks)) if len(tasks) else np.zeros((0, d))
        if self.unit_norm:
            norms = np.sqrt(np.einsum("td,td->t", weights, weights))
            features = weights / np.where(norms > 0, norms, 1.0)[:, None]
        else:
            features = weights / self.norm
        return np.hstack([features, np.ones((len(weights), 1))]) if self.constant else features
