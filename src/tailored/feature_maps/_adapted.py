"""Refinement: the adapted weights of a first model as the side information of a second one."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ..tasks import TaskSet
from ._base import Array, FeatureMap, mean_norm


class AdaptedWeights(FeatureMap):
    """``φ = (w(s) / c, 1)``: the weights that a first meta-learner gives the task, and a constant.

    c brings their norm to root mean square one over the training tasks.  The weights of a training task are a
    function of its rows and of a few meta-parameters, as those of a new task are, and so they need no
    held-out rows.

    ``ConditionalLearner(UnconditionalLearner(), step_size="search")`` is the paper's algorithm refined once:
    its search includes "H does not move", which is the first model again, so that the refinement is used
    where it pays on held-out tasks.

    Parameters
    ----------
    learner : meta-learner
        An unfitted one is cloned and fitted to the training tasks.  A fitted one is used as it is, as long as
        nobody clones it: scikit-learn's `clone` of a learner also clones a learner among its arguments, which
        is then fitted again.  ``feature_map=AdaptedWeights(first)`` keeps it.

    Attributes
    ----------
    model : meta-learner or None
        The fitted one.
    """

    def __init__(self, learner: Any = None) -> None:
        self.learner = learner
        self.model: Any = learner if hasattr(learner, "conditioning_") else None
        self.norm = 1.0

    @property
    def needs_side_info(self) -> bool:  # type: ignore[override]
        known = None if self.model is None else self.model.feature_map_
        return known is not None and known.needs_side_info

    def fit(self, tasks: TaskSet) -> AdaptedWeights:
        fitted = hasattr(self.learner, "conditioning_")
        self.model = self.learner if fitted else clone(self.learner).fit(tasks)
        self.norm = mean_norm(self.model.adapt_many(tasks))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.model is None:
            raise ValueError("feature_map: this AdaptedWeights is not fitted; call fit(tasks) first")
        d = tasks.n_features + bool(self.model.fit_intercept)
        weights = self.model.adapt_many(tasks) if len(tasks) else np.zeros((0, d))
        return np.hstack([weights / self.norm, np.ones((len(tasks), 1))])

    def transform_one(self, task: TaskSet) -> Array:
        if self.model is None or task.is_sparse or task.side_info is not None or not len(task.y):
            return self.transform(task)
        adapted = self.model.adapt(task.X, task.y)
        intercept = [adapted.intercept_] if self.model.fit_intercept else []
        return np.concatenate([np.append(adapted.coef_, intercept) / self.norm, [1.0]])[None]

    def state(self) -> dict[str, Any]:
        return {"model": self.model, "norm": self.norm}

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.learner = self.model
