"""MERF: a random forest with a random intercept for each task."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored.baselines import Baseline
from tailored.tasks.rows import segment_sums
from tailored.tasks.task_set import TaskSet

Array = NDArray[np.float64]


class MixedEffectsForest(Baseline):
    """MERF: a random forest of the columns and the description, and a random intercept for each task.

    MERF itself predicts new groups by the forest alone.  Here a new task's intercept is the best linear
    predictor from the residuals of its rows.

    Parameters
    ----------
    n_estimators, max_iter : int
        Trees of the forest, and its fits (steps of EM).
    clip
        See `Baseline`.
    random_state : int, RandomState or None, default=0
    """

    def __init__(
        self, n_estimators: int = 100, max_iter: int = 10, clip: Any = None, random_state: Any = 0
    ) -> None:
        self.n_estimators = n_estimators
        self.max_iter = max_iter
        self.clip = clip
        self.random_state = random_state

    @classmethod
    def missing(cls) -> str | None:
        found = importlib.util.find_spec("merf")
        return None if found else "the package merf is not installed (pip install 'tailored[rivals]')"

    def _fit(self, tasks: TaskSet) -> None:
        reason = self.missing()
        if reason is not None:
            raise RuntimeError(reason)
        self._fit_side(tasks)
        import pandas as pd
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(self.n_estimators, random_state=self.random_state, n_jobs=1)
        task = pd.Series(np.repeat(np.arange(len(tasks)), tasks.sizes))
        # It starts from variances of one: the target's own unit must not decide how far its few steps get.
        self.unit_ = float(tasks.y.std()) or 1.0
        with _hushed():
            from merf import MERF

            model = MERF(forest, max_iterations=self.max_iter)
            model.fit(self._columns(tasks), np.ones((len(task), 1)), task, tasks.y / self.unit_)
        self.forest_ = model.trained_fe_model
        self.variance_ = float(model.D_hat_history[-1][0, 0])
        self.noise_ = float(model.sigma2_hat_history[-1])

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        asked = self.forest_.predict(self._columns(query)) if len(query.y) else np.zeros(0)
        if len(support.y):
            left = support.y / self.unit_ - self.forest_.predict(self._columns(support))
            sums = segment_sums(left, support.offsets)
            # The best linear predictor again: of one number for each task it has a closed form.
            intercepts = self.variance_ * sums / (support.sizes * self.variance_ + self.noise_)
            asked = asked + np.repeat(intercepts, query.sizes)
        return np.asarray(self.unit_ * asked)


@contextmanager
def _hushed() -> Iterator[None]:
    """No warnings and no messages: MERF sets up the root logger when it is imported, and reports every step."""
    root = logging.getLogger()
    level, handlers, disabled = root.level, root.handlers[:], root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        root.handlers[:] = handlers
