"""Base class of the meta-learners: read tasks, adapt to new tasks, predict, score and save."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .._utils.files import PathLike
from .._utils.frames import (
    RowsLike,
    SideInfoLike,
    ValuesLike,
    is_frame,
    is_tensor,
)
from .._utils.records import Stored, restored_on_failure
from .._utils.threads import single_threaded_blas
from .._utils.validation import (
    RandomState,
    check_choice,
    check_fraction,
    check_int,
    check_rng,
    is_integer,
    warn,
)
from ..files import save
from ..losses import Loss, get_loss
from ..priors.base import (
    Posterior,
    Predicted,
    Prior,
    QueryRows,
    adapt_tasks,
    calibrate,
    needs_covariances,
    predict,
    predict_blocks,
)
from ..priors.intervals import Calibration
from ..priors.mixture import weights_on_device
from ..scale.tensors import TensorTasks, check_device
from ..selection.training_summary import TrainingSummary
from ..show.model import effects_frame, errors_of_means
from ..show.summary import Summary, summarise
from ..tasks.encoding import Encoding
from ..tasks.episodes import SupportLike, SupportSampling
from ..tasks.reading import positions_of
from ..tasks.rows import Array, Index, Matrix, column_range, task_means
from ..tasks.task_set import TaskSet, check_task_set
from . import reading
from .adapted_task import AdaptedTask, AdaptedTasks, check_calibration
from .reading import feature_names
from .totals import joint_rows, table_of_totals

#: Maximum number of entries in the posterior covariances of the training tasks, if they are stored
#: for intervals only.
MAX_COVARIANCES = 4_000_000
#: Metadata that scikit-learn routes by default.
ROUTED = {"groups": True, "side_info": True}


def seed_of(random_state: RandomState) -> int:
    """Return a seed, drawn from a random state."""
    rng, stop = check_rng(random_state), np.iinfo(np.int32).max
    return int(rng.integers(stop) if isinstance(rng, np.random.Generator) else rng.randint(stop))


class MetaLearner(Stored, RegressorMixin, BaseEstimator):
    """Base of the meta-learners."""

    loss_: Loss  # the loss for `task_errors` and for errors on held-out tasks
    prior_: Prior  # the learned prior; ``calibration_`` is a part of it
    n_features_in_: int
    n_side_info_in_: int
    feature_names_in_: NDArray[Any]
    #: Column names for "task", "target" and "side_info", each None if there are no names.
    columns_in_: dict[str, Any]
    #: Encoding of the table that the training tasks were read from; all methods use it to read
    #: tables of rows.
    encoding_: Encoding | None = None
    #: (T,) labels of the tasks in the last call of `fit` or `partial_fit`
    task_labels_: NDArray[Any]
    #: Posterior of these tasks, for `predict` and `predict_tasks`.  Covariances are stored if
    #: predictions of quantiles, classes or counts need them, and for intervals if they have at most
    #: four million entries.
    task_posterior_: Posterior
    training_summary_: TrainingSummary
    # Constructor arguments of the subclasses; the values are for learners that lack them.
    loss: str | Loss
    n_jobs: int | None
    fit_intercept: bool
    random_state: RandomState
    device: str | None = None
    feature_map: object = None
    rank: int | None = None
    scale_features: bool = True
    n_support: SupportLike = None
    #: Whether the learner scales values of any size, has effects of category codes, which otherwise
    #: become indicators, and needs no columns if it has an intercept.
    _scales = False

    __metadata_request__fit = __metadata_request__predict = __metadata_request__score = ROUTED

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Scores in scikit-learn's estimator checks are poor, because a single task does not
        # determine a prior.
        tags.regressor_tags.poor_score = True
        return tags

    @property
    def task_weights_(self) -> Array:
        """Weights of the tasks in the last `fit` or `partial_fit`: (T, d), or (T, d + 1) with an
        intercept, which is last.
        """
        return self.task_posterior_.weights

    @property
    def calibration_(self) -> Calibration | None:
        """Scores of held-out tasks from which intervals are computed; None without calibration."""
        return self.prior_.calibration

    @property
    def _row_values(self) -> tuple[str, ...]:
        """The values per row that the learner can use, see `TaskSet`."""
        return ()

    def save(self, path: PathLike) -> None:
        """Write the learner to one file without pickle, atomically; `tailored.load` reads it.

        The file contains training rows only if noise is correlated in time.  Task labels must be
        numbers, strings or tuples of these.
        """
        check_is_fitted(self, "prior_")
        save(path, self)

    @contextmanager
    def _all_or_nothing(self, *, reset: bool) -> Iterator[None]:
        """Check ``n_jobs`` and the boolean arguments; restore the learner if the call fails.

        ``reset`` deletes the fitted attributes of earlier calls.
        """
        for name in ("fit_intercept", "tune_scale", "scale_features", "reml", "progress"):
            if not isinstance(value := getattr(self, name, False), bool | np.bool_):
                raise TypeError(f"{name} must be True or False; got {value!r}.")
        if self.n_jobs is not None and (not is_integer(self.n_jobs) or self.n_jobs == 0):
            raise ValueError(
                f"n_jobs: expected None, a number of cores, or -1 for all; got {self.n_jobs!r}"
            )
        with restored_on_failure(self):
            for name in list(vars(self)) if reset else ():
                if name == "_stream" or (name.endswith("_") and not name.startswith("_")):
                    delattr(self, name)
            yield

    def _check_loss(self) -> None:
        self.loss_ = get_loss(self.loss)

    def _read_held_out(self, validation: TaskSet) -> TaskSet:
        """Read the tasks that the user passed for validation."""
        tasks = reading.read(self, validation)
        if not len(tasks.y):
            raise ValueError(
                "validation: none of its tasks has a row; pass tasks with rows, or leave it out"
            )
        # Validation tasks are joined with the training tasks, so they need the same names of side
        # information.
        return tasks.replace(side_names=self.columns_in_["side_info"])

    def _feature_range(self, X: Matrix) -> Array:
        """Return the range of each column of all training rows since the last `fit`, (2, d).

        The bounds are rounded outwards by up to 1/32 of the range, so that model files do not
        contain the exact extremes of training rows.  Bounds that are already round, and constant
        columns, are stored as they are.
        """
        low, high = column_range(X)
        before = self.prior_.feature_range if hasattr(self, "prior_") else None
        if before is not None:
            low, high = np.minimum(before[0], low), np.maximum(before[1], high)
        # Powers of two, so that the rounded numbers are exact.
        step = 2.0 ** np.floor(np.log2(np.where(high > low, high - low, 1.0))) / 32.0
        rounded = np.floor(low / step) * step, np.ceil(high / step) * step
        return np.where(high > low, rounded, (low, high))

    def _remember(self, tasks: TaskSet) -> None:
        """Store the posterior of the tasks for `predict`."""
        prior = self.prior_
        fits = len(tasks) * prior.covariance_shape[0] ** 2 <= MAX_COVARIANCES
        # Predictions of quantiles, classes and counts depend on the covariances; otherwise, only
        # intervals do.
        keep = needs_covariances(prior, None) or (needs_covariances(prior, 0.9) and fits)
        self.task_labels_ = tasks.labels
        self.task_posterior_ = adapt_tasks(prior, tasks, covariances=keep, n_jobs=self.n_jobs)

    def adapt(
        self,
        X: RowsLike | None = None,
        y: ValuesLike = None,
        *,
        side_info: SideInfoLike = None,
        sample_weight: ValuesLike = None,
        frequency_weight: ValuesLike = None,
        exposure: ValuesLike = None,
    ) -> AdaptedTask:
        """Fit a model of one new task from a few rows.

        Parameters
        ----------
        X, y : arrays (n, d), (n,), optional
            Rows of the task; without rows, the model is that of the prior.  Columns of a frame are
            matched by name here and in all methods, and others are ignored.
        side_info : optional
            Side information of the task, if the learner was fitted with side information.
        sample_weight, frequency_weight, exposure : arrays (n,), optional
            See `TaskSet`; for `EmpiricalBayesLearner` only.  ``exposure`` is required if `fit` had
            exposures.
        """
        if not hasattr(self, "prior_"):  # scikit-learn's check alone costs as much as adapting
            check_is_fitted(self, "prior_")
        task = reading.read_one_task(
            self,
            X,
            y,
            side_info,
            sample_weight=sample_weight,
            frequency_weight=frequency_weight,
            exposure=exposure,
        )
        if self.prior_.reads_side_info:
            reading.require_side_info(self, task, "pass side_info={}")
        return AdaptedTask.of(self.prior_, task, feature_names(self), self.encoding_)

    def adapt_many(
        self,
        tasks: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        **row_values: ValuesLike,
    ) -> AdaptedTasks:
        """Return the coefficients of many new tasks; see `predict_tasks` for predictions and
        `coefficients` without rows.

        Parameters
        ----------
        tasks : TaskSet, or array (n, d) with ``y`` and ``groups``
            Torch tensors on the ``device`` of the learner are also accepted, if it has one.
        **row_values : arrays (n,)
            ``sample_weight``, ``frequency_weight`` and ``exposure``, see `TaskSet`.
        """
        check_is_fitted(self, "prior_")
        if is_tensor(tasks):
            tensors = reading.read_tensors(self, tasks, y, groups, side_info, **row_values)
            weights = weights_on_device(self.prior_, tensors)
            return AdaptedTasks(tensors.labels, weights, self.prior_.fit_intercept)
        tasks = reading.read(self, tasks, y, groups, side_info, **row_values)
        if self.device is not None:
            tensors = TensorTasks.from_tasks(tasks, check_device(self.device))
            weights = weights_on_device(self.prior_, tensors).cpu().numpy()
        else:
            weights = adapt_tasks(self.prior_, tasks, covariances=False, n_jobs=self.n_jobs).weights
        return AdaptedTasks(tasks.labels, weights, self.prior_.fit_intercept)

    def coefficients(self, side_info: SideInfoLike, *, return_std: bool = False) -> Any:
        """Return the expected coefficients of tasks with this side information, before any of their
        rows is observed.

        Parameters
        ----------
        side_info : array or dataframe with a row per task, or mapping from label to row
            The side information of the tasks.
        return_std : bool, default=False
            Also return the standard errors of these expectations.  The prior of the effects of side
            information is treated as known, so they are too small where slopes hardly differ
            between tasks or are highly correlated.

        Returns
        -------
        array (T, d), or (T, d + 1) with an intercept, which is last; a pair with return_std
            In the user's units, without effects that all tasks share.
        """
        check_is_fitted(self, "prior_")
        tasks = reading.read_contexts(self, side_info)
        weights = adapt_tasks(self.prior_, tasks, covariances=False, n_jobs=self.n_jobs).weights
        if not return_std:
            return weights
        if (errors := errors_of_means(self, tasks)) is None:
            raise ValueError(
                "return_std: the prior of this learner has no standard errors; use return_std=False"
            )
        return weights, errors

    def representation(
        self,
        X: RowsLike | None = None,
        y: ValuesLike = None,
        *,
        side_info: SideInfoLike = None,
        columns: list[int] | None = None,
    ) -> Array:
        """Return the representation θ of a task, (d, d), or of each task of a `TaskSet`, (T, d, d).

        θ is τ(s), times the number of rows (at least 1) for `EmpiricalBayesLearner`.

        Parameters
        ----------
        X, y, side_info
            See `adapt`. X may also be a TaskSet.
        columns : list of int, optional
            Positions of columns (the intercept is the last); all by default.
        """
        check_is_fitted(self, "prior_")
        many = isinstance(X, TaskSet)
        tasks = reading.read(self, X) if many else reading.read_one_task(self, X, y, side_info)
        with single_threaded_blas():
            thetas = self.prior_.representation(tasks, columns)
        return thetas if many else np.asarray(thetas[0])

    def predict(
        self,
        X: RowsLike,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        exposure: ValuesLike = None,
        *,
        support: RowsLike | None = None,
    ) -> Array:
        """Predict rows of training tasks from their posterior, and rows of other tasks from the
        prior.

        Training tasks are those of the last call of `fit` or `partial_fit`.

        Parameters
        ----------
        X : array (n, d), dataframe or TaskSet
            Without ``groups``, a dataframe with the task column of `fit`, or a TaskSet, is
            predicted by `predict_tasks`, which explains ``support``, ``side_info`` and
            ``exposure`` (the name of a column).
        groups : array (n,), optional
            Label of each row's task; optional if X has them, or if the learner was fitted to one
            task.
        side_info : optional
            Side information of new tasks; see `TaskSet`.  By default it is read from columns of a
            frame X, or else missing.
        exposure : array (n,), optional
            Exposure of counts, which multiplies the rates; by default the column used in `fit` if X
            is a frame, else 1.
        support : dataframe or TaskSet, optional
            Observed rows of tasks, if X has the labels of its rows.
        """
        return self._predicted(X, groups, side_info, exposure, support, None).prediction

    def predict_interval(
        self,
        X: RowsLike,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        exposure: ValuesLike = None,
        *,
        support: RowsLike | None = None,
        coverage: float = 0.9,
    ) -> Array:
        """Predict intervals that contain the targets of rows with probability ``coverage``.

        Returns
        -------
        array (n, 2)
            Lower and upper bounds, see `AdaptedTask.predict_interval`.  The other arguments are
            those of `predict`.
        """
        check_is_fitted(self, "prior_")
        check_fraction("coverage", coverage)
        check_calibration(self.prior_, "predict_interval")
        found = self._predicted(X, groups, side_info, exposure, support, coverage)
        return np.stack([found.lower, found.upper], axis=1)

    def _predicted(
        self,
        X: RowsLike,
        groups: ValuesLike,
        side_info: SideInfoLike,
        exposure: ValuesLike,
        support: RowsLike | None,
        coverage: float | None,
    ) -> Predicted:
        """Predict rows for `predict` and `predict_interval`, in their order."""
        check_is_fitted(self, "prior_")
        if reading.has_labels(X, groups, self.columns_in_["task"]):
            query = reading.read_query(self, X, support, None, None, side_info, exposure, name="X")
            return self._predict_query(query.checked(self), coverage)
        if support is not None:
            raise TypeError(
                "support: X must be a TaskSet, or a dataframe with the task column of fit, and "
                "groups None; for other rows, use adapt(X, y).predict(X)"
            )
        if not hasattr(self, "task_posterior_"):
            raise ValueError(
                "groups: this learner was fitted to more tasks than it stores; "
                "predict_tasks(query, support=rows) adapts to any task"
            )
        reading.refuse_side_info(self, side_info)
        rows, exposure, weight = reading.read_rows(self, self.prior_, self.encoding_, X, exposure)
        if side_info is None and self.encoding_ is not None and is_frame(X):
            side_info = self.encoding_.read_columns(X, None)[0]
        labels = reading.labels_of_rows(self, X, groups, rows.shape[0])
        positions = positions_of(labels, self.task_labels_)
        query_rows, is_new = QueryRows(rows, positions, exposure, weight), positions < 0
        if is_new.any():
            empty, task = reading.tasks_without_rows(self, labels, is_new, side_info)
            covariances = needs_covariances(self.prior_, coverage)
            posterior = adapt_tasks(self.prior_, empty, covariances=covariances, n_jobs=self.n_jobs)
            new_rows = query_rows.at(is_new)._replace(task=task)
            table = np.empty((4, len(labels)))
            table[:, is_new] = predict(self.prior_, posterior, new_rows, coverage)
            if not is_new.all():
                table[:, ~is_new] = self._predict_known(query_rows.at(~is_new), coverage)
            found = Predicted(*table)
        else:
            found = self._predict_known(query_rows, coverage)
        self.prior_.warn_far_rows(rows, feature_names(self))
        return found

    def predict_tasks(
        self,
        query: RowsLike,
        support: RowsLike | None = None,
        *,
        coverage: float | None = 0.9,
        task: str | None = None,
        target: str | None = None,
        side_info: SideInfoLike = None,
        exposure: str | None = None,
    ) -> Any:
        """Predict rows of many tasks with intervals, and return one table.

        A task in ``support`` is adapted to these rows only, even if it is a training task.  Other
        training tasks are predicted from their posterior if `fit` stored it, and all other tasks
        from the prior.

        Parameters
        ----------
        query : dataframe (pandas, polars, pyarrow) or TaskSet
            Rows to predict.  The column of ``sample_weight`` of `fit`, if present, is used for the
            intervals.
        support : dataframe or TaskSet, optional
            Observed rows with targets.
        coverage : float or None, default=0.9
            Nominal coverage of the intervals; with None they are not computed, which is faster.
        task, target : str, optional
            Columns of the task labels and of the targets; by default those of the
            `TaskSet.from_frame` passed to `fit`.
        side_info : dataframe or mapping, optional
            Side information of the tasks; see `TaskSet.from_frame`.  By default it is read from
            columns of the query or of the support.
        exposure : str, optional
            Column of the exposures of counts in query and support; by default the column used in
            `fit`, if any.

        Returns
        -------
        dataframe of the query's library, or structured array
            One row per query row, in the same order: the label of the task (``"task"`` in an
            array), ``"prediction"``, ``"lower"``, ``"upper"`` and ``"std"``, see `AdaptedTask`. The
            last three are NaN without ``coverage`` and, for numbers, without calibration.
        """
        if coverage is not None:
            check_fraction("coverage", coverage)
        rows = reading.read_query(self, query, support, task, target, side_info, exposure)
        rows = rows.checked(self)
        return rows.table(self._predict_query(rows, coverage)._asdict())

    def _predict_query(self, query: reading.Query, coverage: float | None) -> Predicted:
        """Predict the query rows, in the order of the query."""
        tasks, support = query.tasks, query.support
        # Positions among the training tasks; -1 for new tasks and tasks with support rows.
        positions = np.full(len(tasks), -1, dtype=np.intp)
        if hasattr(self, "task_posterior_") and len(tasks):
            positions = positions_of(tasks.labels, self.task_labels_)
            if support is not None:
                positions = np.where(support.positions_of_tasks(tasks) < 0, positions, -1)
        known, new = np.flatnonzero(positions >= 0), np.flatnonzero(positions < 0)
        is_known = np.repeat(positions >= 0, tasks.sizes)
        found = np.empty((4, len(query.order)))
        if len(new):
            some = tasks[new] if len(known) else tasks
            adapted = query.support_of(some)
            reading.require_side_info(self, adapted, "pass it, or tables that have it")
            predicted = predict_blocks(self.prior_, adapted, some, coverage, self.n_jobs)
            found[:, query.order[~is_known]] = predicted
        if len(known):
            some = tasks[known]
            rows = QueryRows.of(some)._replace(task=np.repeat(positions[known], some.sizes))
            found[:, query.order[is_known]] = self._predict_known(rows, coverage)
        self.prior_.warn_far_rows(tasks.X, feature_names(self))
        self._warn_same_numbers(tasks, positions)
        return Predicted(*found)

    def _warn_same_numbers(self, tasks: TaskSet, positions: Index) -> None:
        """Warn if tasks are predicted as training tasks because both are labelled 0, 1, 2, .."""
        if not (positions >= 0).any() or len(tasks) == len(self.task_labels_):
            return
        numbered = all(
            labels.dtype.kind in "iu" and np.array_equal(np.sort(labels), np.arange(len(labels)))
            for labels in (tasks.labels, self.task_labels_)
        )
        if numbered:
            last = len(tasks) - 1
            found = f"labels 0 to {last} also occur" if last else "label 0 also occurs"
            warn(
                f"task: {found} in the training data, so these tasks are predicted as training "
                "tasks. Relabel tasks that are new."
            )

    def sample(
        self,
        query: RowsLike,
        support: RowsLike | None = None,
        *,
        n_draws: int = 1000,
        task: str | None = None,
        target: str | None = None,
        side_info: SideInfoLike = None,
        exposure: str | None = None,
        random_state: RandomState = None,
    ) -> Array:
        """Draw the targets of rows of many tasks from their joint predictive distribution.

        The draws include the errors of coefficients and of fixed effects, and the noise, but not
        those of variances.  They are not calibrated.

        Parameters
        ----------
        query, support, task, target, side_info, exposure
            See `predict_tasks`. Training tasks need their rows as support.
        n_draws : int, default=1000
            Number of draws.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        array (n_draws, n)
            One column per query row, in the same order.
        """
        n_draws = check_int("n_draws", n_draws, 1)
        rng = np.random.default_rng(seed_of(random_state))
        rows = reading.read_query(self, query, support, task, target, side_info, exposure)
        rows = rows.checked(self)
        joint = joint_rows(self, "sample", rows, calibrated=False)
        draws = joint.draw(n_draws, rng)
        self.prior_.warn_far_rows(rows.tasks.X, feature_names(self))
        return draws if (np.diff(rows.order) > 0).all() else draws[:, np.argsort(rows.order)]

    def predict_totals(
        self,
        query: RowsLike,
        support: RowsLike | None = None,
        *,
        by: str | ValuesLike = None,
        weights: str | ValuesLike = None,
        statistic: str = "total",
        coverage: float = 0.9,
        task: str | None = None,
        target: str | None = None,
        side_info: SideInfoLike = None,
        exposure: str | None = None,
        n_draws: int = 1000,
        random_state: RandomState = 0,
    ) -> Any:
        """Predict totals or means of the targets of many rows, with intervals, and return one
        table.

        The distribution of a total is that of `sample`, with calibrated variances for numbers.
        With a few dozen training tasks, the intervals are too narrow, because variances are treated
        as known.

        Parameters
        ----------
        query, support, task, target, side_info, exposure
            See `predict_tasks`. Training tasks need their rows as support.
        by : str, array (n,) or None, default=None
            Column of the query, or labels of its rows; each value gets a total.  For a TaskSet,
            "task" means its tasks.
        weights : str or array (n,), optional
            Column of the query, or numbers: how many units each row stands for, such as the
            population of a cell.  Each unit has its own noise.
        statistic : {"total", "mean"}, default="total"
            Whether targets are added or averaged.
        coverage : float, default=0.9
            Nominal coverage of the intervals.
        n_draws, random_state
            Number and seed of the draws, where they are needed.

        Returns
        -------
        dataframe of the query's library, or structured array
            One row per value of ``by``: the value, ``"prediction"``, ``"lower"``, ``"upper"`` and
            ``"std"``. They are exact for numeric targets and a single Gaussian prior, and otherwise
            those of draws.
        """
        check_choice("statistic", statistic, ["total", "mean"])
        check_fraction("coverage", coverage)
        n_draws = check_int("n_draws", n_draws, 2)
        rng = np.random.default_rng(seed_of(random_state))
        rows = reading.read_query(self, query, support, task, target, side_info, exposure)
        rows = rows.checked(self)
        joint = joint_rows(self, "predict_totals", rows, calibrated=True)
        is_mean = statistic == "mean"
        table = table_of_totals(joint, rows, by, weights, is_mean, coverage, n_draws, rng)
        self.prior_.warn_far_rows(rows.tasks.X, feature_names(self))
        return table

    def _predict_known(self, rows: QueryRows, coverage: float | None) -> Predicted:
        """Predict rows of training tasks."""
        if needs_covariances(self.prior_, coverage) and self.task_posterior_.covariances is None:
            reason = "their posterior covariances were not stored. Pass their rows as support."
            n_tasks = len(np.unique(rows.task))
            warn(f"coverage: no intervals for {n_tasks} training tasks: {reason}")
        return predict(self.prior_, self.task_posterior_, rows, coverage)

    def _sampling(self, n_support: SupportLike = None) -> SupportSampling:
        """Return which rows of new tasks are observed; by default, those of the learner's
        ``n_support``.
        """
        return SupportSampling.of(self.n_support if n_support is None else n_support)

    def task_errors(
        self,
        tasks: TaskSet,
        query: TaskSet | None = None,
        *,
        n_support: SupportLike = None,
        loss: str | Loss | None = None,
    ) -> Array:
        """Return the error (T,) of each task on rows that were not used to adapt its model; NaN if
        there are none.

        Parameters
        ----------
        tasks : TaskSet
            Support rows if ``query`` is given; otherwise, ``n_support`` rows of each task are.
        query : TaskSet, optional
            Further rows of the same tasks, with the tasks in the same order.
        n_support : optional
            As in `EmpiricalBayesLearner`; of a range, its middle.  The default is the learner's
            ``n_support``, or one half of the rows.
        loss : str or Loss, optional
            Loss whose error is averaged; by default the learner's.
        """
        check_is_fitted(self, "prior_")
        check_task_set(tasks)
        if query is None:
            tasks, query = self._sampling(n_support).split(tasks, self.random_state)
        elif len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")
        query = reading.read(self, query)
        measure = self.loss_ if loss is None else get_loss(loss)
        prediction = predict_blocks(
            self.prior_, reading.read(self, tasks), query, None, self.n_jobs
        ).prediction
        return task_means(measure.error(prediction, query.y), query.offsets, query.frequency_weight)

    def score(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        n_support: SupportLike = None,
        sample_weight: ValuesLike = None,
        exposure: ValuesLike = None,
    ) -> float:
        """Return R² over the query rows after adapting to the support rows of each task.

        The model of each task is adapted to ``n_support`` rows and scored on the other rows.
        ``sample_weight`` weights rows in the score, not in the adaptation.
        """
        from sklearn.metrics import r2_score  # slow to import, and only needed here

        check_is_fitted(self, "prior_")
        row_values = {"sample_weight": sample_weight, "exposure": exposure}
        tasks = reading.read(self, X, y, groups, side_info, **row_values)
        support, query, weights = reading.rows_to_score(self, tasks, n_support, sample_weight)
        prediction = predict_blocks(self.prior_, support, query, None, self.n_jobs).prediction
        if len(query.y) < 2:
            raise ValueError(
                f"X: R² needs at least two query rows, got {len(query.y)}; pass more rows"
            )
        return float(r2_score(query.y, prediction, sample_weight=weights))

    def calibrate_intervals(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        n_support: SupportLike = None,
    ) -> Self:
        """Calibrate prediction intervals on held-out tasks.

        `EmpiricalBayesLearner` does this in `fit`, on the tasks that it holds out.

        Parameters
        ----------
        X : TaskSet, frame with the columns of fit, or array (n, d) with ``y`` and ``groups``
            Tasks that the learner was not fitted to.
        y, groups, side_info
            See `TaskSet`.
        n_support : optional
            As in `EmpiricalBayesLearner`; by default the learner's ``n_support``, if it has one.
        """
        check_is_fitted(self, "prior_")
        if not self.prior_.response.is_gaussian:
            raise ValueError(
                "calibrate_intervals: intervals of counts are those of the model; omit the call"
            )
        # Rows are drawn by task position; in label order, the result does not depend on the order
        # of the user's tasks.
        tasks = reading.read(self, X, y, groups, side_info).in_label_order()
        sampling = self._sampling(n_support)
        calibration = calibrate([(tasks, self.prior_)], [0], sampling, self.n_jobs)
        if calibration is None:
            raise ValueError("X: none of the tasks has a row; pass tasks with rows")
        self.prior_ = replace(self.prior_, calibration=calibration)
        return self

    def effects(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        coverage: float = 0.9,
    ) -> Any:
        """Adapt to tasks, and return their coefficients with intervals.

        Parameters
        ----------
        X : TaskSet, frame with the columns of fit, or array (n, d) with ``y`` and ``groups``
            New tasks or training tasks.
        y, groups, side_info
            See `TaskSet`.
        coverage : float, default=0.9
            Nominal coverage of the intervals.

        Returns
        -------
        pandas data frame, or structured array if pandas is not installed
            One row per task and coefficient: ``"task"``, ``"column"``, ``"effect"`` (posterior mean
            of the coefficient; log odds or log rates for classes and counts), ``"std"`` (its
            standard error), ``"lower"`` and ``"upper"``, and ``"prior"`` (prior mean given the side
            information; ``effect - prior`` is the random effect). For the paper's learners, and
            with many columns, ``"effect"`` is the coefficient of `adapt`, and standard errors are
            NaN.
        """
        check_is_fitted(self, "prior_")
        check_fraction("coverage", coverage)
        return effects_frame(self, reading.read(self, X, y, groups, side_info), coverage)

    def summary(self, *, details: bool = False) -> Summary:
        """Summarise the fitted model as text, as tables in a notebook, and as data frames.

        It starts with the verdict: what was fitted, how good it is on held-out tasks, and what
        matters.  ``details`` prints all tables.  ``summary().to_frame("effects")`` returns one as a
        data frame in both cases; ``summary().tables`` has their names.
        """
        return summarise(self, type(self).__name__, "a target of 1", details=details)
