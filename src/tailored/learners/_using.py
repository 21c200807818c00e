"""What a fitted meta-learner is used for: predictions of rows, and of many new tasks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.validation import check_fraction, numbers_of, outside, refuse_masked
from ..priors.base import Posterior, Predicted, Prior, adapt_tasks, needs_covariances, predict, predict_blocks
from ..tasks import Encoding, TaskSet
from ..tasks.encoding import collect_unknown
from ..tasks.labels import positions_of
from ._reading import (
    ColumnNames,
    align_side_info,
    check_names,
    encoded_rows,
    prediction_table,
    read_query,
    read_support,
    refuse_side_info,
    require_side_info,
    task_positions,
    tasks_without_rows,
)

Array = NDArray[np.float64]


class Predicts:
    """Predictions of a meta-learner; `MetaLearner` learns the prior that they come from."""

    prior_: Prior
    n_side_info_in_: int
    encoding_: Encoding | None = None
    task_labels_: NDArray[Any]
    task_posterior_: Posterior
    n_jobs: int | None

    def _read(
        self, X: Any, y: Any = None, groups: Any = None, side_info: Any = None, *, reset: bool = False
    ) -> TaskSet:
        raise NotImplementedError

    def _check_new(self, tasks: TaskSet) -> None:
        raise NotImplementedError

    def predict(self, X: Any, groups: Any = None, side_info: Any = None) -> Array:
        """Predictions for rows of tasks: those seen in ``fit`` by their weights, others by the prior.

        Parameters
        ----------
        X : array (n, d)
        groups : array (n,), optional
            Label of each row's task; may be left out when there was only one.
        side_info : optional
            Of the tasks that were not seen, where the prior reads it; see `TaskSet`.  Without it, its values are
            missing ones.
        """
        check_is_fitted(self, "prior_")
        if not hasattr(self, "task_posterior_"):
            raise ValueError(
                "groups: this learner was fitted to a scan of more tasks than it keeps weights of; "
                "predict_tasks(query, support=rows) adapts to the rows of any task"
            )
        if side_info is not None:
            refuse_side_info(self)
        X, names = encoded_rows(self, X)
        if names is None:
            refuse_masked("X", X)
            with numbers_of("X"):
                X = validate_data(
                    self,
                    X,
                    accept_sparse="csr",
                    dtype=np.float64,
                    reset=False,
                    ensure_min_samples=0,
                    ensure_min_features=0,
                )
        self.prior_.scaling.check(X, names=getattr(self, "feature_names_in_", None))
        if groups is None:
            if len(self.task_labels_) != 1:
                raise ValueError(
                    f"groups: the learner was fitted on {len(self.task_labels_)} tasks; say which task each "
                    "row belongs to, or use adapt(X_few, y_few).predict(X) for a new one"
                )
            positions = np.zeros(X.shape[0], dtype=int)
        else:
            positions = task_positions(self.task_labels_, groups, X.shape[0])
        prediction = np.empty(X.shape[0])
        new = positions < 0
        if new.any():
            # Tasks that were not in `fit` have no rows here; side information that is not given is missing.
            if side_info is None and self.n_side_info_in_:
                side_info = np.full((X.shape[0], self.n_side_info_in_), np.nan)
            empty, task = tasks_without_rows(X[new], groups, new, side_info)
            empty = align_side_info(self, empty)
            self._check_new(empty)
            covariances = needs_covariances(self.prior_, None)
            posterior = adapt_tasks(self.prior_, empty, covariances=covariances, n_jobs=self.n_jobs)
            prediction[new] = predict(self.prior_, posterior, X[new], task).prediction
        if not new.all():
            known = predict(self.prior_, self.task_posterior_, X[~new], positions[~new])
            prediction[~new] = known.prediction
        return prediction

    def predict_tasks(
        self,
        query: Any,
        support: Any = None,
        *,
        coverage: float | None = 0.9,
        task: str | None = None,
        target: str | None = None,
        side_info: Any = None,
    ) -> Any:
        """One table of predictions with intervals for many tasks: new ones, adapted to their support rows, and known ones.

        Tasks are found by their labels, in any order.  A task of the support is adapted to its rows there and to nothing
        else, also if it was seen in `fit`: the rows of `fit` are not kept.  Another task that was seen in `fit` is predicted by
        what was learned of it there, as `predict` does, and needs no description.  All others are predicted by the prior
        (with their descriptions, where there are some), and so is a task that a `TaskSet` has in ``support`` without a
        row.  Support rows of tasks that nothing is asked about are left aside.

        Parameters
        ----------
        query : dataframe (pandas, polars, pyarrow) or TaskSet
            Rows to predict.  Columns are found by their names, and others than those of `fit` are left aside.
        support : dataframe or TaskSet, optional
            Rows with targets.
        coverage : float or None, default=0.9
            Of the intervals; None leaves them out, which is faster.
        task, target : str, optional
            Columns of the labels and of the targets; known where the learner was fitted on a `TaskSet.from_frame`.
        side_info : dataframe or mapping, optional
            Descriptions of the query's tasks, as `TaskSet.from_frame` reads them.  By default they are columns of the
            query, or of the support, with the names that they had in `fit`.

        Returns
        -------
        dataframe of the query's library, or structured array
            The query's rows in their order (and with their pandas index): the label of the task (``"task"`` in an
            array), ``"prediction"``, ``"lower"``, ``"upper"`` and ``"std"``, see `TaskRegressor`.  The last three are
            NaN where they were not asked for, or where the learner has no calibration (`calibrate_intervals`).
        """
        check_is_fitted(self, "prior_")
        if coverage is not None:
            check_fraction("coverage", coverage)
        names = ColumnNames.of(self, task, target)
        if side_info is not None:
            refuse_side_info(self)
        with collect_unknown():
            asked = read_query(query, names, side_info)
            given = read_support(support, names)
        check_names(self, asked.tasks)
        if given is not None:
            check_names(self, given)
        if not len(asked.order):
            return prediction_table(Predicted(*np.zeros((4, 0))), query, asked, names)
        self._check_new(asked.tasks)
        at = self._known(asked.tasks, given)
        if (at < 0).all():
            found = self._adapted(asked.tasks, given, names, coverage)
        else:
            known, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
            parts = [self._as_learned(asked.tasks[known], at[known], coverage)]
            if len(new):
                parts.append(self._adapted(asked.tasks[new], given, names, coverage))
            which = np.repeat(at < 0, asked.tasks.sizes)
            order = np.argsort(np.argsort(which, kind="stable"))
            found = Predicted(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))
        return prediction_table(found, query, asked, names)

    def _adapted(
        self, asked: TaskSet, given: TaskSet | None, names: ColumnNames, coverage: float | None
    ) -> Predicted:
        """Predictions of tasks that are adapted here."""
        adapt_on = self._read(
            require_side_info(asked.without_rows() if given is None else given.support_of(asked), names)
        )
        return predict_blocks(self.prior_, adapt_on, asked, coverage, self.n_jobs)

    def _known(self, asked: TaskSet, given: TaskSet | None) -> NDArray[np.intp]:
        """Places of tasks among those of `fit`; −1 for others, and for those of the support."""
        new = np.full(len(asked), -1, dtype=np.intp)
        at = positions_of(asked.labels, self.task_labels_) if hasattr(self, "task_posterior_") else new
        if given is not None:
            at = np.where(given.positions_of_tasks(asked) < 0, at, new)
        if (at >= 0).any() and len(asked) != len(self.task_labels_):
            self._warn_of_numbers(asked)
        return at

    def _warn_of_numbers(self, asked: TaskSet) -> None:
        """Tasks that nobody named are numbered, and new ones have the numbers of those of `fit`."""
        if all(
            labels.dtype.kind in "iu" and np.array_equal(np.sort(labels), np.arange(len(labels)))
            for labels in (asked.labels, self.task_labels_)
        ):
            warnings.warn(
                f"query: its tasks are numbered 0 to {len(asked) - 1}, as the first ones of fit are, and are taken for these. "
                "Give labels of their own where they are new ones",
                UserWarning,
                stacklevel=outside(),
            )

    def _as_learned(self, asked: TaskSet, at: NDArray[np.intp], coverage: float | None) -> Predicted:
        """Predictions of tasks at these places among those of `fit`, by what was learned of them."""
        if needs_covariances(self.prior_, coverage) and not self.task_posterior_.has_covariances:
            warnings.warn(
                f"coverage: no intervals for {len(at)} training tasks: their posterior covariances were not stored. Pass "
                "their rows as support",
                UserWarning,
                stacklevel=outside(),
            )
        return predict(self.prior_, self.task_posterior_, asked.X, np.repeat(at, asked.sizes), coverage)
