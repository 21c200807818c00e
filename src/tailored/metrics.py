"""Scorers of learners of many tasks, for cross-validation over whole tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import get_scorer
from sklearn.utils.metadata_routing import MetadataRequest

from ._utils.validation import check_choice
from .tasks import TaskSet
from .tasks.episodes import ORDERS


class _Predicted(RegressorMixin, BaseEstimator):
    """Predictions that were made already, as scikit-learn's metrics want them."""

    def __init__(self, predictions: NDArray[np.float64]) -> None:
        self.predictions = predictions

    def fit(self, X: Any, y: Any) -> _Predicted:
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        return self.predictions


class TaskScorer:
    """Adapt to some rows of each task and score the predictions of the others; see `task_scorer`."""

    def __init__(self, scoring: str, support: float | int, order: str, random_state: Any) -> None:
        self.scoring = scoring
        self.support = support
        self.order = order
        self.random_state = random_state

    def __call__(
        self, estimator: Any, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None
    ) -> float:
        # The last step of a pipeline is the learner; what stands before it sees the rows only.
        estimator = getattr(estimator, "best_estimator_", estimator)
        steps = getattr(estimator, "steps", None)
        if steps is not None:
            X, estimator = estimator[:-1].transform(X) if len(steps) > 1 else X, steps[-1][1]
            estimator = getattr(estimator, "best_estimator_", estimator)
        if not hasattr(estimator, "predict_tasks"):
            raise TypeError(
                f"estimator: task_scorer scores learners of many tasks, got {type(estimator).__name__}"
            )
        if not isinstance(X, TaskSet) and groups is None:
            raise ValueError(
                "groups: task_scorer needs the task of each row; pass params={'groups': ...} with metadata routing "
                "enabled (sklearn.set_config(enable_metadata_routing=True))"
            )
        tasks = X if isinstance(X, TaskSet) else TaskSet(X, y, groups, side_info)
        support, query = tasks.support_query(
            self.support, random_state=self.random_state, shuffle=self.order == "random"
        )
        predicted = _Predicted(estimator.predict_tasks(query, support, coverage=None)["prediction"])
        return float(get_scorer(self.scoring)(predicted, query.X, query.y))

    def get_metadata_routing(self) -> MetadataRequest:
        """The groups and the side information are asked for."""
        request = MetadataRequest(owner=self)
        for name in ("groups", "side_info"):
            request.score.add_request(param=name, alias=True)
        return request

    def __repr__(self) -> str:
        order = "" if self.order == ORDERS[0] else f", order={self.order!r}"
        return f"task_scorer({self.scoring!r}, support={self.support!r}{order})"


def task_scorer(
    scoring: str = "neg_mean_absolute_error",
    *,
    support: float | int = 0.5,
    order: str = "random",
    random_state: Any = 0,
) -> TaskScorer:
    """A scorer for `GridSearchCV` and `cross_val_score` over whole tasks.

    Parameters
    ----------
    scoring : str
        The name of one of scikit-learn's scorers, applied to the predictions of all query rows.
    support : float or int, default=0.5
        Fraction or number of rows of each task to adapt on.
    order : {"random", "given"}, default="random"
        Whether these are random rows, or the first ones and later ones are predicted.
    random_state : int, RandomState or None, default=0
        Draws these rows.
    """
    get_scorer(scoring)  # an unknown name is an error here, and not a score of NaN later
    return TaskScorer(scoring, support, check_choice("order", order, ORDERS), random_state)
