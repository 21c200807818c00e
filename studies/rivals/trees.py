"""MERF and GPBoost: trees with a random intercept for each task."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored.tasks.rows import segment_sums
from tailored.tasks.task_set import TaskSet

from .base import Baseline

Array = NDArray[np.float64]


class TreesAndIntercepts(Baseline):
    """Trees of the columns and the side information, and a random intercept for each task, fitted
    by another program.

    The programs predict new groups by the trees alone.  Here a new task's intercept is the best
    linear predictor from the residuals of its rows.
    """

    package: str
    trees_: Any  # predicts, in units of the target
    variance_: float  # of the intercepts
    noise_: float

    @classmethod
    def missing(cls) -> str | None:
        found = importlib.util.find_spec(cls.package)
        return (
            None
            if found
            else f"the package {cls.package} is not installed (python -m pip install '.[rivals]' in a checkout)"
        )

    @abstractmethod
    def _grow(self, columns: Array, y: Array, task: NDArray[np.int64]) -> None:
        """Leave the trees and the two variances."""

    def _fit(self, tasks: TaskSet) -> None:
        reason = self.missing()
        if reason is not None:
            raise RuntimeError(reason)
        self._fit_side(tasks)
        # MERF starts from variances of one: the target's own unit must not decide how far its few
        # steps get.
        self.unit_ = float(tasks.y.std()) or 1.0
        with _hushed():
            task = np.repeat(np.arange(len(tasks)), tasks.sizes)
            self._grow(self._columns(tasks), tasks.y / self.unit_, task)

    def _predict(self, support: TaskSet, query: TaskSet) -> Array:
        asked = self.trees_(self._columns(query)) if len(query.y) else np.zeros(0)
        if len(support.y):
            left = support.y / self.unit_ - self.trees_(self._columns(support))
            sums = segment_sums(left, support.offsets)
            # The best linear predictor again: of one number for each task it has a closed form.
            intercepts = self.variance_ * sums / (support.sizes * self.variance_ + self.noise_)
            asked = asked + np.repeat(intercepts, query.sizes)
        return np.asarray(self.unit_ * asked)


class MixedEffectsForest(TreesAndIntercepts):
    """MERF: a random forest of ``n_estimators`` trees, fitted ``max_iter`` times (steps of EM)."""

    package = "merf"

    def __init__(self, n_estimators: int = 100, max_iter: int = 10, random_state: Any = 0) -> None:
        self.n_estimators = n_estimators
        self.max_iter = max_iter
        self.random_state = random_state

    def _grow(self, columns: Array, y: Array, task: NDArray[np.int64]) -> None:
        import pandas as pd
        from merf import MERF
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(self.n_estimators, random_state=self.random_state, n_jobs=1)
        model = MERF(forest, max_iterations=self.max_iter)
        model.fit(columns, np.ones((len(task), 1)), pd.Series(task), y)
        self.trees_ = model.trained_fe_model.predict
        self.variance_ = float(model.D_hat_history[-1][0, 0])
        self.noise_ = float(model.sigma2_hat_history[-1])


class BoostedMixedModel(TreesAndIntercepts):
    """GPBoost: boosted trees with Newton leaves.

    Depth, rows per leaf and the number of trees (at most ``max_iter``) have the least squared error
    in a five-fold cross-validation over tasks.
    """

    package = "gpboost"

    def __init__(self, max_iter: int = 500, random_state: int = 0) -> None:
        self.max_iter = max_iter
        self.random_state = random_state

    def _grow(self, columns: Array, y: Array, task: NDArray[np.int64]) -> None:
        import gpboost as gpb

        order = np.random.default_rng(self.random_state).permutation(task.max() + 1)
        folds = [np.isin(task, part) for part in np.array_split(order, 5)]
        rows = gpb.Dataset(columns, y, params={"verbose": -1}, free_raw_data=False)
        fixed = {
            "learning_rate": 0.05,
            "leaves_newton_update": True,
            "num_leaves": 1024,
            "num_threads": 1,
            "verbose": -1,
        }
        found = gpb.grid_search_tune_parameters(
            param_grid={"max_depth": [1, 2, 3, 5], "min_data_in_leaf": [5, 50]},
            params=fixed,
            train_set=rows,
            gp_model=gpb.GPModel(group_data=task, likelihood="gaussian", num_parallel_threads=1),
            folds=[(np.flatnonzero(~held_out), np.flatnonzero(held_out)) for held_out in folds],
            num_boost_round=self.max_iter,
            early_stopping_rounds=20,
            metric="l2",
            verbose_eval=0,
        )
        effects = gpb.GPModel(group_data=task, likelihood="gaussian", num_parallel_threads=1)
        model = gpb.train({**fixed, **found["best_params"]}, rows, found["best_iter"], effects)
        self.trees_ = partial(model.predict, pred_latent=True, ignore_gp_model=True)
        self.noise_, self.variance_ = np.ravel(effects.get_cov_pars(format_pandas=False))[:2]


@contextmanager
def _hushed() -> Iterator[None]:
    """No warnings and no messages: MERF sets up the root logger when it is imported, and reports
    every step.
    """
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
