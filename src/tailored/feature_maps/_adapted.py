"""Refinement: the adapted weights of a first model as the side information of a second one."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from .._utils.validation import check_divisor
from ..tasks import TaskSet
from ._base import Array, FeatureMap, mean_norm


class AdaptedWeights(FeatureMap):
    """``φ = w(s) / c``: the weights that a first meta-learner gives the task.

    c brings their norm to root mean square one over the training tasks.  The weights of a training task are a
    function of its rows and of a few meta-parameters, as those of a new task are, and so they need no
    held-out rows.

    ``ConditionalLearner(UnconditionalLearner(), ...)`` is the paper's algorithm refined once:
    its search includes "H does not move", which is the first model again, so that the refinement is used
    where it pays on held-out tasks.

    Parameters
    ----------
    learner : meta-learner
        An unfitted one is cloned and fitted to the training tasks.  A fitted one is used as it is, as long as
        nobody clones it: scikit-learn's `clone` of a learner also clones a learner among its arguments, which
        is then fitted again.  ``feature_map=AdaptedWeights(first)`` keeps it.
    unit_norm : bool, default=False
        Divide by the norm of the task's own weights instead: only their direction speaks.
    constant : bool, default=False
        Append a constant 1.  C is the constant part of τ(s) already; what a constant in φ adds are terms that
        are odd in w(s), which only mislead where w and −w are equally likely.

    Attributes
    ----------
    model : meta-learner or None
        The fitted one.
    """

    model: Any
    norm: float

    def __init__(self, learner: Any = None, *, unit_norm: bool = False, constant: bool = False) -> None:
        self.learner = learner
        self.unit_norm = unit_norm
        self.constant = constant
        self.model = learner if hasattr(learner, "prior_") else None
        self.norm = 1.0

    @property
    def needs_side_info(self) -> bool:
        known = None if self.model is None else self.model.feature_map_
        return known is not None and known.needs_side_info

    def fit(self, tasks: TaskSet) -> AdaptedWeights:
        fitted = hasattr(self.learner, "prior_")
        self.model = self.learner if fitted else clone(self.learner).fit(tasks)
        self.norm = mean_norm(self.model.adapt_many(tasks))
        return self

    def transform(self, tasks: TaskSet) -> Array:
        if self.model is None:
            raise ValueError("feature_map: this AdaptedWeights is not fitted; call fit(tasks) first")
        d = tasks.n_features + bool(self.model.fit_intercept)
        weights = self.model.adapt_many(tasks) if len(tasks) else np.zeros((0, d))
        return self._scaled(weights)

    def transform_one(self, task: TaskSet) -> Array:
        if self.model is None or task.is_sparse or task.side_info is not None or not len(task.y):
            return self.transform(task)
        adapted = self.model.adapt(task.X, task.y)
        intercept = [adapted.intercept_] if self.model.fit_intercept else []
        return self._scaled(np.append(adapted.coef_, intercept)[None])

    def _scaled(self, weights: Array) -> Array:
        if self.unit_norm:
            norms = np.sqrt(np.einsum("td,td->t", weights, weights))
            features = weights / np.where(norms > 0, norms, 1.0)[:, None]
        else:
            features = weights / self.norm
        return np.hstack([features, np.ones((len(weights), 1))]) if self.constant else features

    def state(self) -> dict[str, Any]:
        # The fitted learner has the arguments of the unfitted one.
        return {**super().state(), "learner": self.learner if self.model is None else None}

    def restore(self) -> None:
        if self.model is not None and not hasattr(self.model, "prior_"):
            raise ValueError("model: must be a fitted learner")
        check_divisor("norm", self.norm)
        self.learner = self.learner if self.model is None else self.model
