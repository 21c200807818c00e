"""What all meta-learners share: reading tasks, adapting to new ones, predicting, scoring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .._utils.records import MAY_BE_NAN, Fitted
from .._utils.threads import single_threaded_blas
from .._utils.validation import (
    check_choice,
    check_clip,
    check_int,
    check_labels,
    check_positive,
    check_psd,
    check_shape,
)
from ..feature_maps import FeatureMap
from ..files.format import save
from ..losses import Loss, get_loss
from ..priors.base import Prior, adapt_tasks
from ..priors.intervals import Calibration, calibrate
from ..representation.base import Conditioning
from ..representation.bias import Bias
from ..sources.cuda.tensors import is_tensor
from ..tasks import Encoding, Scaling, TaskSet
from ..tasks.episodes import ORDERS, SupportSampling
from ..within import solving
from ._on_device import weights_of_tasks, weights_of_tensors
from ._reading import (
    align_side_info,
    check_names,
    clean_task,
    encoded_rows,
    has_no_rows,
    read_tasks,
    refuse_side_info,
)
from ._scoring import ScoredByTask
from ._summarising import Summarised
from ._using import Predicts
from .task_regressor import TaskRegressor

Array = NDArray[np.float64]

#: Largest number of entries of posterior covariances that are stored for the training tasks.
MAX_COVARIANCES = 4_000_000


class MetaLearner(Predicts, ScoredByTask, Summarised, Fitted, RegressorMixin, BaseEstimator):
    """Base of the meta-learners.

    Attributes
    ----------
    prior_ : Prior
        All that was learned.  ``conditioning_`` (τ), ``bias_`` (b), ``feature_map_``, ``clip_`` and
        ``calibration_`` are views of it.
    loss_ : Loss
        What errors are measured with.
    task_labels_ : array (T,)
        Labels of the tasks of the last call of `fit` or `partial_fit`.
    task_posterior_ : Posterior
        Their posterior, for `predict` and `predict_tasks`.  Covariances are kept if intervals are calibrated and they
        take at most four million numbers.
    n_features_in_, feature_names_in_, n_side_info_in_
    columns_in_ : dict
        Names of the columns "task", "target" and "side_info" that the tasks were read from, where they had some.
    encoding_ : Encoding or None
        How the table of `TaskSet.from_frame` was read; frames of rows are read the same way by all methods.
    """

    loss_: Loss
    prior_: Prior
    n_features_in_: int
    n_side_info_in_: int
    feature_names_in_: NDArray[Any]
    columns_in_: dict[str, Any]
    encoding_: Encoding | None = None
    n_iter_: int
    n_tasks_seen_: int
    scale_: float
    search_results_: list[dict[str, Any]]
    validation_error_: Annotated[float, MAY_BE_NAN] | None
    best_params_: dict[str, float]
    #: Whether `partial_fit` was called: then a pickle contains the state of the stream, with some rows.
    _goes_on = False
    #: Whether the learner works in the user's units, and not in scaled ones.
    _in_user_units = True
    #: Least number of features.
    _min_features: int = 1
    # set by the subclasses' constructors
    loss: Any
    fit_intercept: bool
    tol: float
    max_iter: int

    # What scikit-learn's metadata routing passes on without being asked.
    __metadata_request__fit = {"groups": True, "side_info": True}  # noqa: RUF012
    __metadata_request__predict = {"groups": True, "side_info": True}  # noqa: RUF012
    __metadata_request__score = {"groups": True, "side_info": True}  # noqa: RUF012

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # A single task gives a meta-learner nothing to learn from but the identity.
        tags.regressor_tags.poor_score = True
        return tags

    @property
    def conditioning_(self) -> Conditioning:
        """(H, C) of ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``."""
        return self.prior_.paper_form().conditioning

    @property
    def bias_(self) -> Bias:
        """(B, b₀) of the prior mean ``b(s) = Bφ + b₀``."""
        return self.prior_.paper_form().bias

    @property
    def feature_map_(self) -> FeatureMap | None:
        """Φ; None where the prior does not depend on the task."""
        return self.prior_.paper_form().feature_map

    @property
    def task_weights_(self) -> Array:
        """Weights (T, d) of the tasks of the last `fit` or `partial_fit`, the intercept last."""
        return self.task_posterior_.weights

    @property
    def clip_(self) -> tuple[float, float] | None:
        """Range of the predictions."""
        return self.prior_.clip

    @property
    def calibration_(self) -> Calibration | None:
        """Errors of held-out tasks that intervals are made from, where they were counted."""
        return self.prior_.calibration

    # ------------------------------------------------------------------ saving

    def save(self, path: Any) -> None:
        """Write the learner to one file without pickle, atomically; `tailored.load` reads it.

        The file contains what `adapt`, `predict` and `score` need, and no training rows.  It cannot contain a feature map
        that is a function or a scikit-learn transformer, nor labels of tasks that are not numbers, words or tuples of these.
        A common regressor is written in the format of skops (install ``tailored[common]``).  Such a file is read with
        ``load(path, trust_regressor=True)``, and by the version of scikit-learn that fitted the regressor.
        """
        check_is_fitted(self, "prior_")
        save(path, self)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle contains: no training rows, unless `partial_fit` was called and can be continued."""
        state: dict[str, Any] = dict(super().__getstate__())
        if not self._goes_on:
            state.pop("_stream", None)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Unlike a pickle, a copy in memory leaves nothing out.
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update(deepcopy(self.__dict__, memo))
        return made

    def restore(self) -> None:
        if any(name.endswith("_") for name in vars(self)):
            self._check_fitted()

    def _check_fitted(self) -> None:
        for name in ("loss_", "prior_", "n_features_in_", "n_side_info_in_", "columns_in_"):
            if not hasattr(self, name):
                raise ValueError(f"{name}: is missing")
        prior, d = self.prior_, self.n_features_in_ + self.prior_.fit_intercept
        if bool(self.fit_intercept) != prior.fit_intercept:
            raise ValueError(
                f"fit_intercept: is {self.fit_intercept}, but the learner was fitted with {prior.fit_intercept}; fit again"
            )
        check_shape("prior_.scaling.columns", prior.scaling.columns, d)
        if hasattr(self, "feature_names_in_"):
            check_shape("feature_names_in_", self.feature_names_in_, self.n_features_in_)
        check_int("n_side_info_in_", self.n_side_info_in_, 0)
        names = self.columns_in_.get("side_info")
        if set(self.columns_in_) != {"task", "target", "side_info"} or (
            names is not None and len(names) != self.n_side_info_in_
        ):
            raise ValueError("columns_in_: must have task, target and the names of the side information")
        if hasattr(self, "task_labels_") != hasattr(self, "task_posterior_"):
            raise ValueError("task_labels_: labels and posterior of tasks must come together")
        if hasattr(self, "task_labels_"):
            check_shape("task_labels_", self.task_labels_, len(self.task_posterior_))
            check_labels("task_labels_", self.task_labels_)
            prior.check_posterior(self.task_posterior_)

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None) -> Self:
        """Learn from many tasks; see the subclasses."""
        raise NotImplementedError

    @contextmanager
    def _all_or_nothing(self, *, reset: bool) -> Iterator[None]:
        """A call that fails leaves the learner as it was; ``reset`` forgets what was learned before."""
        before = dict(vars(self))
        try:
            if reset:
                for name in before:
                    if name in ("_stream", "_goes_on") or (name.endswith("_") and not name.startswith("_")):
                        delattr(self, name)
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _check_common(self) -> None:
        """Check the constructor's arguments that all learners share."""
        self.loss_ = get_loss(self.loss)
        check_positive("tol", self.tol)
        check_int("max_iter", self.max_iter)
        inner = getattr(self, "inner", None)
        if inner is not None:
            check_choice("inner", inner, solving.WITHIN)

    def _read(
        self, X: Any, y: Any = None, groups: Any = None, side_info: Any = None, *, reset: bool = False
    ) -> TaskSet:
        tasks = read_tasks(
            self, X, y, groups, side_info, loss=self.loss_, reset=reset, min_features=self._min_features
        )
        if hasattr(self, "prior_"):
            self._check_new(tasks)
        elif self._in_user_units:
            Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
        if reset and not len(tasks.y):
            raise ValueError("X: none of the tasks has a row; there is nothing to learn from")
        if reset:
            self.n_side_info_in_ = 0 if tasks.side_info is None else tasks.side_info.shape[1]
            read = tasks.encoding
            if read is not None:
                self.encoding_ = read
            task, target = (None, None) if read is None else (read.task, read.target)
            self.columns_in_ = {"task": task, "target": target, "side_info": tasks.side_names}
        return tasks

    def _read_held_out(self, validation: TaskSet) -> TaskSet:
        """Tasks that the user set aside to choose on."""
        tasks = self._read(validation)
        if not len(tasks.y):
            raise ValueError(
                "validation: none of its tasks has a row to be predicted; give tasks with rows, or leave it out"
            )
        # Under the names of `fit`, where either has none: they are joined.
        names, side_names = getattr(self, "feature_names_in_", None), self.columns_in_["side_info"]
        return tasks.replace(side_names=side_names, feature_names=names)

    def _check_new(self, tasks: TaskSet) -> None:
        """Raise ValueError for rows that are too large for the scale of `fit`."""
        self.prior_.scaling.check(tasks.X, tasks.y, getattr(self, "feature_names_in_", None))

    def _clip(self, y: Array) -> tuple[float, float] | None:
        """The argument ``clip``; "train" is the range of all targets since the last `fit`, these included."""
        clip = check_clip(getattr(self, "clip", None), y)
        before = self.clip_ if hasattr(self, "prior_") else None
        if before is None or clip is None:
            return clip
        return min(before[0], clip[0]), max(before[1], clip[1])

    def _initial_representation(self, value: Any) -> Array:
        """C₀ (or θ) as a (d, d) matrix: None is the identity, a number a multiple of it."""
        d = self.n_features_in_ + bool(self.fit_intercept)
        if value is None:
            return np.eye(d)
        if np.ndim(value) == 0:
            if not np.isfinite(value) or value < 0:
                raise ValueError(f"initial_representation: a number must be finite and >= 0, got {value!r}")
            return float(value) * np.eye(d)
        return check_psd(value, "initial_representation", d)

    def _within_settings(self) -> dict[str, Any]:
        """What the prior has to know of the within-task algorithm, where it is the user's choice."""
        return {
            "loss": self.loss_,
            "inner": getattr(self, "inner", "exact"),
            "tol": self.tol,
            "max_iter": self.max_iter,
        }

    def _raw_units(self) -> Scaling:
        return Scaling.raw(self.n_features_in_, self.fit_intercept)

    def _remember(self, tasks: TaskSet, folds: NDArray[np.intp] | None = None) -> None:
        """Store the posterior of the tasks for `predict`; ``folds`` are those of training tasks, see `Posterior`."""
        prior = self.prior_
        keep = prior.quantile is not None or (
            prior.calibration is not None and len(tasks) * prior.covariance_shape[0] ** 2 <= MAX_COVARIANCES
        )
        self.task_labels_ = tasks.labels
        self.task_posterior_ = adapt_tasks(prior, tasks, covariances=keep, folds=folds, n_jobs=self.n_jobs)

    # ------------------------------------------------------------------ adapting

    def adapt(self, X: Any = None, y: Any = None, *, side_info: Any = None) -> TaskRegressor:
        """Fit one new task from a few rows.

        Parameters
        ----------
        X, y : arrays (n, d), (n,), optional
            The task's rows; none at all gives the prediction of the prior.
        side_info : optional
            The task's side information, where the feature map reads it.

        Returns
        -------
        TaskRegressor
            Fitted, with ``coef_``, ``intercept_``, ``representation_`` and ``dual_gap_``.
        """
        task = self._one_task(X, y, side_info)
        names = getattr(self, "feature_names_in_", None)
        return TaskRegressor.adapted(self.prior_, task, names, self.encoding_)

    def adapt_many(self, tasks: Any, y: Any = None, *, groups: Any = None, side_info: Any = None) -> Any:
        """Fit many new tasks at once.

        Parameters
        ----------
        tasks : TaskSet, or array (n, d) with ``y`` and ``groups``
            Or tensors of torch on the learner's ``device``, where there is one.

        Returns
        -------
        array (n_tasks, d), or a tensor
            Weights of each task, in the order of a `TaskSet`; with ``fit_intercept`` a last column holds the
            intercepts.
        """
        check_is_fitted(self, "prior_")
        if self.prior_.quantile is not None:
            raise ValueError(
                "adapt_many: quantiles of a pinball loss are not linear in the row, weights alone do not give them; "
                "use adapt, or predict_tasks for many tasks, or fit with loss='absolute'"
            )
        if is_tensor(tasks):
            return weights_of_tensors(self, tasks, y, groups, side_info)
        tasks = self._read(tasks, y, groups, side_info)
        if getattr(self, "device", None) is not None and self.prior_.mixture is not None:
            return weights_of_tasks(self, tasks)
        return adapt_tasks(self.prior_, tasks, covariances=False, n_jobs=self.n_jobs).weights

    def representation(
        self, X: Any = None, y: Any = None, *, side_info: Any = None, columns: Any = None
    ) -> Array:
        """θ = n^p τ(s): the (d, d) representation tailored to the task (p: see `Prior`).

        ``columns`` are positions of inputs that it is wanted for, the intercept being the last; all by default.
        """
        task = self._one_task(X, y, side_info)
        return self._representations(task, columns)[0]

    def representations(self, tasks: TaskSet) -> Array:
        """θ of many tasks, (n_tasks, d, d)."""
        check_is_fitted(self, "prior_")
        return self._representations(self._read(tasks), None)

    def _representations(self, tasks: TaskSet, columns: Any) -> Array:
        with single_threaded_blas():
            taus = self.prior_.representation(tasks, columns, raw=True)
        return np.asarray(taus * self.prior_.size_factors(tasks.sizes)[:, None, None])

    def _one_task(self, X: Any, y: Any, side_info: Any) -> TaskSet:
        if not hasattr(self, "prior_"):  # scikit-learn's check alone costs as much as the solve
            check_is_fitted(self, "prior_")
        if side_info is not None:
            refuse_side_info(self)
        if X is not None and not isinstance(X, TaskSet) and has_no_rows(X, self.n_features_in_, y):
            X = y = None
        if X is None:
            if y is not None:
                raise ValueError("y: got targets without rows; pass X as well")
            # A row to read the description with, which is then forgotten.
            task = TaskSet(np.zeros((1, self.n_features_in_)), [0.0], None, side_info)
            task = task.without_rows()
            self._check_new(task)
            return align_side_info(self, task)
        if isinstance(X, TaskSet):
            return self._read(X, y, None, side_info)
        clean = clean_task(X, y, side_info, self.n_features_in_, self.prior_.scaling)
        if clean is not None:
            task = clean
        else:
            # scikit-learn's validation warns of arrays without names, as the tasks of a frame's TaskSet are.
            X, names = encoded_rows(self, X)
            task = TaskSet(X, y, None, side_info)
            task = task if names is None else task.replace(feature_names=names)
            check_names(self, task)
            task = align_side_info(self, task)
            self._check_new(task)
        self.loss_.check_targets(task.y)
        return task

    def calibrate_intervals(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        support: Any = None,
        order: str | None = None,
    ) -> Self:
        """Count how far predictions miss on held-out tasks, for `TaskRegressor.predict_interval`.

        `adapt` then returns models that give intervals with the coverage asked for, averaged over new tasks
        like these.  `EmpiricalBayesLearner` does this in `fit` by itself, with tasks that take turns in
        being held out.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            Tasks that the learner was not fitted to.
        y, groups, side_info
            See `TaskSet`.
        support : int, float, pair of these, optional
            How many rows of a new task will be given: a number, a fraction, or a range (low, high).  Intervals are
            counted at these and at a few other numbers of rows, from none on.  By default what
            `EmpiricalBayesLearner` was told, if anything.
        order : {"random", "given"}, optional
            Whether these are random rows or the first ones; "random" by default, or what was told.
        """
        check_is_fitted(self, "prior_")
        told = self._arrival()
        arrival = SupportSampling.of(
            told.support if support is None else support,
            ORDERS[told.in_order] if order is None else order,
        )
        # Rows are drawn by position, and the order of tasks must not matter.
        tasks = self._read(X, y, groups, side_info).in_label_order()
        calibration = calibrate([(tasks, self.prior_)], [0], arrival, self.n_jobs)
        if calibration is None:
            raise ValueError("X: no task has a row that can be held out; give tasks with rows")
        self.prior_ = replace(self.prior_, calibration=calibration)
        return self
