"""The recommended learner: empirical Bayes with a mixture of linear mixed models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.frames import RowsLike, SideInfoLike, ValuesLike, is_dask, is_tensor
from .._utils.validation import RandomState, check_choice, is_integer, name_some, warn
from ..exceptions import UnhelpfulWarning
from ..gaussian.moments import COMPILED_COLUMNS, LARGEST_STATISTICS
from ..gaussian.responses import RESPONSES, Response
from ..losses import LOSSES, Absolute, Loss, MarginLoss, Pinball
from ..priors.intervals import Calibration
from ..priors.shared import SharedEffects
from ..priors.side_features import SideFeatures
from ..scale.base import MemorySource, Reader, Statistics, TaskSource
from ..scale.cuda import DeviceSource
from ..scale.dask import DaskSource
from ..scale.disk import DiskSource
from ..scale.scan import TaskScan
from ..scale.tensors import TensorTasks, check_device
from ..selection.data import Settings, TrainingData, has_many_columns
from ..selection.learn import learn
from ..selection.steps import STEPS
from ..tasks.describing import data_notes
from ..tasks.encoding import ROW_VALUES, TaskColumns
from ..tasks.episodes import SupportLike
from ..tasks.formula import Formula
from ..tasks.rows import Scaling, in_content_order
from ..tasks.task_set import TaskSet
from .base import MetaLearner, seed_of
from .reading import feature_names, fit_arguments, read, read_tensors

#: Names of the losses for counts.
COUNTS = ("poisson", "negative_binomial")
#: Maximum number of columns of tasks with noise that is correlated in time.
MOST_COLUMNS = 12


@dataclass(kw_only=True, eq=False, repr=False)
class EmpiricalBayesLearner(MetaLearner):
    """Learn a prior for the coefficients of each task by empirical Bayes: the learner to start
    with.

    It fits a linear mixed model by REML, or a mixture of them by EM. Structures of the model are
    compared on held-out tasks; the page "Concepts" has the rule, and `summary` the comparison.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        What is predicted: "squared" gives means, "absolute" medians, ``Pinball(q)`` calibrated
        q-quantiles, and "poisson" means of counts, with a dispersion if held-out tasks need one.
        "negative_binomial" always has one.
    varying : None or list of str or int, default=None
        Columns with random slopes, by name or position; [] is a random-intercept model.  By default
        those of the formula, or else all or none, as selected.
    covariance : None, "full" or "diagonal", default=None
        Covariance of the random effects: "full" is lme4's ``(x | g)``, and "diagonal" is ``(x ||
        g)``. With it, or with a formula, the model is as stated, without curves or products of
        columns.  None selects the covariance unless a formula gives it.
    reml : bool, default=True
        Estimate the variances of a Gaussian prior by restricted maximum likelihood, as lme4 does,
        unless correlations are shrunk; False uses maximum likelihood.
    fit_intercept : bool, default=True
        Fit an intercept, and centre columns and targets.
    n_support : int, float, pair of these, "first", ("first", ...) or None, default=None
        Which rows of a new task will be observed: a number of random rows, a fraction, or a range
        (low, high) of one of these; ``"first"``, ``("first", 3)`` or ``("first", 1, 5)`` for first
        rows, as in forecasts.  Held-out errors and intervals are those of such tasks.  None means
        any number.
    n_jobs : int, optional
        Number of parallel jobs; results do not depend on it.
    device : None or "cuda", default=None
        Device for EM over many tasks and for `adapt_many`; `fit` and `adapt_many` then accept torch
        tensors.
    progress : bool, default=False
        Show a progress bar on a terminal.
    random_state : int, RandomState or None, default=0
        Seed of folds, support rows and initial values.  The order of the tasks does not matter.

    Attributes
    ----------
    structure_ : dict
        The selected model structure.
    n_components_ : int
        Number of components of the mixture.
    scale_ : float
        Selected multiple of the low-rank covariance; 1 unless there are many columns.
    side_structure_ : dict or None
        Which columns of the side information affect the prior mean, and how.
    search_results_ : list of dict
        The compared structures with "error" and log predictive "density" on held-out tasks.
    validation_error_ : float
        Error of the selected model on the held-out tasks.
    """

    loss: str | Loss = "squared"
    varying: Iterable[str | int] | None = None
    covariance: str | None = None
    reml: bool = True
    fit_intercept: bool = True
    n_support: SupportLike = None
    n_jobs: int | None = None
    device: str | None = None
    progress: bool = False
    random_state: RandomState = 0

    #: Maximum number of folds for selection; tests use fewer to be faster.
    _n_folds = 5
    _steps = STEPS  # studies leave out some

    _scales = True

    @property
    def _row_values(self) -> tuple[str, ...]:
        return ROW_VALUES if self.loss_.name in COUNTS else ROW_VALUES[:2]

    def fit(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        task: TaskColumns | None = None,
        target: str | None = None,
        validation: TaskSet | None = None,
        sample_weight: ValuesLike = None,
        frequency_weight: ValuesLike = None,
        exposure: ValuesLike = None,
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : dataframe with ``task`` and ``target``, array with ``y``, ``groups``, TaskSet, TaskScan
            The model for a `tailored.scan` is selected on a random sample of at most 5,000 tasks,
            and then fitted to every task of the scan. Models of counts are fitted to the sample
            only. With more than 5,000 tasks, their posteriors are not stored; pass their rows to
            `predict_tasks` as support.
        y, groups, side_info
            See `TaskSet`; without ``groups`` all rows are one task.
        task, target : str, optional
            Columns of the task labels and of the targets of a dataframe, which is read by
            `TaskSet.from_frame` with its defaults, and with these ``side_info``, weights and
            exposures.  For other options, pass a TaskSet.
        validation : TaskSet, optional
            Tasks on which models are compared; by default, the training tasks are cross-validated,
            or split once if there are 500 or more (2,000 with many columns). With at most 5,000
            training tasks, the selected model is fitted to both.
        sample_weight, frequency_weight, exposure : arrays (n,), optional
            Precisions and frequencies of the rows, and exposures of counts; see `TaskSet`.  With
            ``task``, names of columns.
        """
        values = dict(zip(ROW_VALUES, (sample_weight, frequency_weight, exposure), strict=True))
        data, values = fit_arguments(X, y, groups, side_info, task, target, **values)
        X, y, groups, side_info = data
        with self._all_or_nothing(reset=True):
            self._check_parameters()
            seed = seed_of(self.random_state)
            if isinstance(X, TaskScan):
                self._fit_scan(X, seed, validation)
            elif is_tensor(X):
                tensors = read_tensors(self, X, y, groups, side_info, reset=True, **values)
                self._fit_source(DeviceSource(tensors, seed), seed, validation)
            else:
                tasks = read(self, X, y, groups, side_info, reset=True, **values)
                self._fit_tasks(tasks, seed, validation)
                if groups is not None or isinstance(X, TaskSet):
                    self._warn_about(tasks, feature_names(self))
        return self

    def _warn_about(self, tasks: TaskSet, names: NDArray[Any] | None = None) -> None:
        for text in data_notes(tasks, names, may_vary=self.varying is None):
            warn(f"fit: {text}")

    def _fit_tasks(self, tasks: TaskSet, seed: int, validation: TaskSet | None) -> None:
        """Learn from tasks in memory; the model is selected on a sample if there are more than
        5,000 tasks and few columns.
        """
        d = tasks.n_features + bool(self.fit_intercept)
        source = MemorySource(tasks, seed, joblib.effective_n_jobs(self.n_jobs))
        sample = source.reservoir.sample
        if source.reservoir.is_whole or has_many_columns(sample, d):
            self._fit_sample(tasks, seed, validation)
        elif self.device is not None and d <= COMPILED_COLUMNS:
            tensors = TensorTasks.from_tasks(tasks, check_device(self.device))
            self._fit_sample(sample, seed, validation, DeviceSource(tensors, seed, tasks))
        else:
            self._fit_sample(sample, seed, validation, source)
            if len(tasks) * d * d <= LARGEST_STATISTICS:
                self._remember(tasks)

    def _fit_source(self, source: TaskSource, seed: int, validation: TaskSet | None) -> None:
        """Learn from tasks that are not in memory; responses other than Gaussian are fitted to the
        sample only.
        """
        sample = read(self, source.reservoir.sample, reset=True)
        if not source.reservoir.is_whole and not isinstance(self.loss_, Response):
            self._fit_sample(sample, seed, validation, source)
            return
        self._fit_sample(sample, seed, validation)
        if not source.reservoir.is_whole:
            warn(
                f"X: the {self.loss_.name} loss was fitted to a random sample of {len(sample):,} "
                "tasks; predict_tasks(query, support=rows) adapts to the others"
            )

    def _fit_sample(
        self,
        sample: TaskSet,
        seed: int,
        validation: TaskSet | None,
        source: TaskSource | None = None,
    ) -> None:
        """Learn from a sample, and store its posterior, or fit the selected model to all tasks of
        the ``source``, if there is one.
        """
        held_out = None if validation is None else self._read_held_out(validation)
        if self.loss_.name in COUNTS and not sample.y.any():
            raise ValueError(
                "y: all counts are zero, so rates cannot be estimated; pass tasks with events"
            )
        try:
            self._learn(sample, seed, held_out, source)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "X, y: the fit is not finite; columns, targets, weights or exposures differ too "
                "much in size. Rescale them."
            ) from error
        if source is None:
            self._remember(sample)

    def _learn(
        self, tasks: TaskSet, seed: int, validation: TaskSet | None, source: TaskSource | None
    ) -> None:
        """Learn a prior, and set the fitted attributes."""
        quantile = self.loss_.quantile if isinstance(self.loss_, Pinball) else None
        # In this order, draws and rounding do not depend on the labels or on the order of the
        # user's tasks.
        ordered = together = in_content_order(tasks, seed)
        if validation is not None:
            together = TaskSet.concat([ordered, in_content_order(validation, seed)], relabel=True)
        settings = self._settings(seed, together)
        if settings.time is not None and source is not None:
            raise ValueError(
                "time: needs at most 5,000 tasks in memory; leave it out, or fit to fewer tasks"
            )
        side = None if together.side_info is None else SideFeatures.fit(together)
        data = TrainingData(together, side, len(together) - len(ordered), settings)
        source_in = None if source is None else partial(_statistics, source)
        learned = learn(data, self._steps, progress=self.progress, source_in=source_in)
        # The mean of equal targets has no error.
        if learned.warning is not None and np.ptp(together.y) > 0:
            warn(learned.warning, UnhelpfulWarning)
        if quantile is not None:
            _check_quantile(quantile, learned.prior.calibration, len(together))
        self.prior_ = replace(
            learned.prior,
            quantile=quantile,
            # The multiples of the standard deviation are those of held-out errors of the mean.
            offset=learned.prior.offset if quantile is None else 0.0,
            has_exposure=tasks.exposure is not None,
            feature_range=self._feature_range(tasks.X),
        )
        best, effects = learned.best, learned.side
        self.structure_, self.n_components_ = best.structure.describe(), best.structure.n_components
        self.scale_, self.validation_error_ = best.structure.scale, best.error
        self.side_structure_ = None if effects is None else effects.describe()
        self.search_results_ = [each.result for each in learned.candidates]
        self.training_summary_ = learned.training_summary
        self.n_iter_ = 1

    def _settings(self, seed: int, tasks: TaskSet) -> Settings:
        formula = self._formula
        # A formula and a covariance state the model for the rows, as in lme4, so that nothing is
        # added to it.
        is_stated = self.covariance is not None or (
            self.encoding_ is not None and self.encoding_.formula is not None
        )
        return Settings(
            # A quantile is the mean plus a calibrated multiple of the standard deviation.  Models
            # are compared as for medians.
            loss=Absolute() if isinstance(self.loss_, Pinball) else self.loss_,
            fit_intercept=bool(self.fit_intercept),
            seed=seed,
            n_jobs=self.n_jobs,
            arrival=self._sampling(),
            device=self.device,
            varying=self._varying_positions(tasks),
            proposes=not is_stated and self.device is None,
            levels={} if self.encoding_ is None else self.encoding_.levels,
            n_folds=self._n_folds,
            covariance=self.covariance or (None if formula is None else formula.covariance),
            reml=bool(self.reml),
            time=self._time_position(tasks),
        )

    def _check_loss(self) -> None:
        of_numbers = [name for name, kind in LOSSES.items() if not issubclass(kind, MarginLoss)]
        of_classes = ("logistic", "hinge", "binomial", "bernoulli")
        if isinstance(self.loss, MarginLoss) or self.loss in of_classes:
            raise ValueError(
                f"loss: {self.loss!r} is not supported here. For classes, use "
                "EmpiricalBayesClassifier; for counts, loss='poisson'; for margin losses, "
                "ConditionalLearner."
            )
        if isinstance(self.loss, Loss):
            self.loss_ = self.loss
        else:
            name = check_choice("loss", self.loss, [*of_numbers, *COUNTS])
            self.loss_ = RESPONSES[name]() if name in COUNTS else LOSSES[name]()

    def _check_parameters(self) -> None:
        self._check_loss()
        if isinstance(self.loss_, Response) and self.device is not None:
            raise ValueError(f"device: must be None for the {self.loss_.name} loss")
        if self.device is not None:
            check_device(self.device)
        self._sampling()
        if self.covariance is not None:
            check_choice("covariance", self.covariance, ("full", "diagonal"), also="None")

    @property
    def _formula(self) -> Formula | None:
        """The formula that the tasks were read with, if it determines the random effects."""
        return (
            None if self.encoding_ is None or self.varying is not None else self.encoding_.formula
        )

    def _varying_positions(self, tasks: TaskSet) -> tuple[int, ...] | None:
        """Return the positions of the coefficients that vary (the intercept is last); None if they
        are to be selected.
        """
        varying, formula = self.varying, self._formula
        if formula is not None:
            varying, has_one = formula.varying, formula.has_intercept
            if has_one != self.fit_intercept:
                raise ValueError(
                    f"fit_intercept: the formula has {'an' if has_one else 'no'} intercept; pass "
                    f"fit_intercept={has_one}"
                )
        if varying is None:
            return None
        if isinstance(varying, str) or not hasattr(varying, "__iter__"):
            raise TypeError(
                f"varying: expected a list of columns, got {varying!r}; write [{varying!r}]"
            )
        if len(tasks) < 2:
            raise ValueError(
                "varying: needs at least two tasks, got 1; pass more tasks, or leave it out"
            )
        found = {position for column in varying for position in self._column_positions(column)}
        if self.fit_intercept and (formula is None or formula.has_random_intercept):
            found.add(self.n_features_in_)
        if not found:
            raise ValueError(
                "varying: [] with fit_intercept=False leaves no random effects; name a column"
            )
        return tuple(sorted(found))

    def _time_position(self, tasks: TaskSet) -> int | None:
        """Return the position of the column of times, if there is one."""
        if self.encoding_ is None or self.encoding_.time is None:
            return None
        found = self.encoding_.positions(self.encoding_.time)
        refused = {
            "a column of numbers or dates": len(found) != 1,
            "a loss for numbers": isinstance(self.loss_, Response),
            "device=None": self.device is not None,
            "rows without frequencies": tasks.frequency_weight is not None,
            f"at most {MOST_COLUMNS} columns": tasks.n_features > MOST_COLUMNS,
        }
        for what, is_refused in refused.items():
            if is_refused:
                raise ValueError(f"time: needs {what}; leave it out")
        return found[0]

    def _column_positions(self, column: str | int) -> list[int]:
        d, names = self.n_features_in_, feature_names(self)
        if is_integer(column):
            if not 0 <= column < d:
                raise ValueError(
                    f"varying: there is no column {column}; positions are 0 to {d - 1}"
                )
            return [int(column)]
        if names is None:
            raise ValueError(
                f"varying: columns have no names here; pass the position of {column!r}, or fit to "
                "a frame (set_output(transform='pandas') in a pipeline)"
            )
        by_name = [j for j, name in enumerate(names) if name == column]
        found = by_name if self.encoding_ is None else self.encoding_.positions(column)
        if not found:
            raise ValueError(
                f"varying: {column!r} is not a feature. The features are {name_some(names, 12)}."
            )
        return found

    def _fit_scan(self, scan: TaskScan, seed: int, validation: TaskSet | None) -> None:
        """Learn from a scan."""
        source: DaskSource | DiskSource
        with TemporaryDirectory(prefix="tailored-") as folder:
            if is_dask(scan.table):
                source = DaskSource(scan, seed)
            else:
                n_threads = joblib.effective_n_jobs(self.n_jobs)
                source = DiskSource(scan, Path(folder), seed, n_threads)
            self._fit_source(source, seed, validation)
            self._warn_about(source.reservoir.sample)


def _statistics(
    source: TaskSource,
    scaling: Scaling,
    side: SideFeatures | None,
    response: Response,
    effects: SharedEffects | None = None,
) -> Statistics:
    """Return statistics of all tasks of a source, after the shared effects are subtracted."""
    residuals = None if effects is None else partial(effects.residual_tasks, response=response)
    return source.statistics(Reader(scaling, side, residuals, response))


def _check_quantile(quantile: float, calibration: Calibration | None, n_tasks: int) -> None:
    """Raise ValueError or warn if there are too few held-out tasks for a quantile."""
    if calibration is None:
        raise ValueError(
            "loss: quantiles are calibrated on held-out tasks; pass at least two tasks"
        )
    least = min(quantile, 1.0 - quantile) + 1e-12
    if any(1.0 - weights.sum() > least for weights in calibration.weights):
        warn(
            f"loss: {n_tasks} tasks are too few to calibrate {100.0 * quantile:g} % quantiles; the "
            "extreme scores of held-out tasks are used"
        )
