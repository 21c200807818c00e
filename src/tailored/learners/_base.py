"""What all meta-learners share: reading tasks, adapting to new ones, predicting, scoring."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import within
from .._threads import single_threaded_blas
from .._validation import check_choice, check_clip, check_int, check_positive, check_psd
from ..feature_maps import FeatureMap
from ..losses import Loss, get_loss
from ..objectives import prior_predictions
from ..regressor import TaskRegressor
from ..representation.bias import Bias
from ..representation.blocks import representation
from ..representation.conditioning import Conditioning
from ..solvers.trajectory import compress
from ..tasks import Rows, TaskSet
from ..tasks.rows import batches, clipped, predictions, task_means, with_constant

Array = NDArray[np.float64]


class MetaLearner(RegressorMixin, BaseEstimator):
    """Base of the meta-learners.

    **Tasks of different sizes.**  A task with n rows is solved under ``θ = n^p τ(s)`` and prior mean b(s),
    p = ``size_exponent_``.  The paper's algorithm has p = 0: θ = τ(s) whatever n.  The practical one has
    p = 1: its τ(s) is W / σ², prior covariance over noise variance, and because the within-task objective
    averages over the rows, ``w ~ N(b, W)`` is the prior that θ = n W / σ² stands for (squared loss).

    Attributes
    ----------
    conditioning_ : Conditioning
        τ, in units of the raw features of ``feature_map_``.
    bias_ : Bias
        The prior mean b(s).
    feature_map_ : FeatureMap or None
    loss_ : Loss
        What errors are measured with.
    within_loss_ : Loss
        What a task is fitted with; the same, except in the practical algorithm.
    size_exponent_ : int
        p in the rule above.
    clip_ : (low, high) or None
        Range of the predictions.
    calibration_ : Calibration
        Errors of held-out tasks that intervals are made from, where `calibrate_intervals` or the practical
        algorithm has counted them.
    task_labels_, task_weights_ : arrays (T,), (T, d)
        Tasks of the last call of `fit` or `partial_fit` and their adapted weights, for `predict`.
    n_features_in_, feature_names_in_
    """

    conditioning_: Conditioning
    bias_: Bias
    feature_map_: FeatureMap | None
    loss_: Loss
    within_loss_: Loss
    size_exponent_: int
    clip_: tuple[float, float] | None
    # set by the subclasses' constructors
    loss: Any
    inner: str
    fit_intercept: bool
    tol: float
    max_iter: int
    n_jobs: int | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # A single task gives a meta-learner nothing to learn from but the identity.
        tags.regressor_tags.poor_score = True
        return tags

    # ------------------------------------------------------------------ reading

    def _tasks(
        self, X: Any, y: Any = None, groups: Any = None, side_info: Any = None, *, reset: bool
    ) -> TaskSet:
        """A `TaskSet` from either form of input, checked against the features seen in ``fit``."""
        if isinstance(X, TaskSet):
            for name, value in (("y", y), ("groups", groups), ("side_info", side_info)):
                if value is not None:
                    raise TypeError(
                        f"{name}: a TaskSet brings its own {name}; pass X, y, groups or a TaskSet"
                    )
            tasks = X
            if len(tasks) == 0:
                raise ValueError("X: the task set is empty; give at least one task")
            names = tasks.feature_names
            if reset:
                self.n_features_in_ = tasks.n_features
                if names is not None:
                    self.feature_names_in_ = np.asarray(names, dtype=object)
                elif hasattr(self, "feature_names_in_"):
                    del self.feature_names_in_
            elif tasks.n_features != self.n_features_in_:
                raise ValueError(
                    f"X has {tasks.n_features} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )
            elif (
                names is not None
                and hasattr(self, "feature_names_in_")
                and list(names) != list(self.feature_names_in_)
            ):
                raise ValueError(
                    "The feature names should match those that were passed during fit: expected "
                    f"{list(self.feature_names_in_)}, got {list(names)}"
                )
        else:
            X, y = validate_data(
                self,
                X,
                y,
                reset=reset,
                accept_sparse="csr",
                dtype=np.float64,
                y_numeric=True,
                ensure_all_finite=False,
            )
            tasks = TaskSet(X, y, groups, side_info)
        self._check_targets(tasks, get_loss(self.loss) if reset else self.loss_)
        return tasks

    @staticmethod
    def _check_targets(tasks: TaskSet, loss: Loss) -> None:
        try:
            loss.check_targets(tasks.y)
        except ValueError as error:
            for task in tasks:
                try:
                    loss.check_targets(task.y)
                except ValueError:
                    raise ValueError(f"{error} (first in task {task.label!r})") from None
            raise

    def _check_common(self) -> None:
        """Check the constructor's arguments that all learners share."""
        self.loss_ = self.within_loss_ = get_loss(self.loss)
        self.size_exponent_ = 0
        check_choice("inner", self.inner, within.WITHIN)
        check_positive("tol", self.tol)
        check_int("max_iter", self.max_iter)

    def _set_clip(self, tasks: TaskSet, *, reset: bool) -> None:
        """Read ``clip``; "train" is the range of all targets since the last reset."""
        before = None if reset else self.clip_
        self.clip_ = check_clip(getattr(self, "clip", None), tasks.y)
        if before is not None and self.clip_ is not None:
            self.clip_ = min(before[0], self.clip_[0]), max(before[1], self.clip_[1])

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

    def _rows(self, tasks: TaskSet) -> Rows:
        X = tasks.X
        if self.fit_intercept:
            if tasks.is_sparse:
                X = sparse.hstack([X, np.ones((X.shape[0], 1))], format="csr")
            else:
                X = with_constant(X)
        return Rows(X, tasks.y, tasks.offsets)

    @staticmethod
    def _columns(rows: Rows) -> list[NDArray[np.intp]]:
        """Non-zero columns of each task of sparse rows."""
        X: Any = rows.X
        pointers = X.indptr[rows.offsets]
        return [np.unique(X.indices[a:b]).astype(np.intp) for a, b in pairwise(pointers)]

    def _features(self, tasks: TaskSet, *, one: bool = False) -> Array:
        if self.feature_map_ is None:
            return np.zeros((len(tasks), 0))
        phis = (self.feature_map_.transform_one if one else self.feature_map_.transform)(tasks)
        expected = getattr(self, "n_side_", phis.shape[1])
        if phis.shape[1] != expected:
            raise ValueError(
                f"side_info: the feature map gives {phis.shape[1]} features, in fit it gave {expected}; "
                "give the same side information columns as in fit"
            )
        if not np.isfinite(phis).all():
            bad = tasks.labels[np.flatnonzero(~np.isfinite(phis).all(axis=1))[0]]
            raise ValueError(f"feature_map: NaN or infinity in the features of task {bad!r}")
        return phis

    # ------------------------------------------------------------------ adapting

    def adapt_many(self, tasks: TaskSet) -> Array:
        """Fit many new tasks at once.

        Parameters
        ----------
        tasks : TaskSet

        Returns
        -------
        array (n_tasks, d)
            Weights of each task; with ``fit_intercept`` a last column holds the intercepts.
        """
        check_is_fitted(self, "conditioning_")
        tasks = self._tasks(tasks, reset=False)
        with single_threaded_blas():
            return np.concatenate(
                [self._adapt_batch(batch) for batch in batches(tasks, getattr(self, "rank", None))]
            )

    def _adapt_batch(self, tasks: TaskSet) -> Array:
        return self._solve_batch(self._rows(tasks), self._features(tasks), self.conditioning_, self.bias_)

    def _solve_batch(self, rows: Rows, phis: Array, conditioning: Conditioning, bias: Bias) -> Array:
        """Weights (T, d) of the tasks under the given conditioning function and prior mean."""
        means = bias.evaluate(phis) if bias.moves else None
        options: dict[str, Any] = {"inner": self.inner, "tol": self.tol, "max_iter": self.max_iter}
        factors = self._size_factors(np.diff(rows.offsets))
        if not sparse.issparse(rows.X):
            offset = prior_predictions(rows, means)
            thetas = conditioning.evaluate(phis)
            solution = within.solve_many(
                *rows,
                thetas * factors[:, None, None] if self.size_exponent_ else thetas,
                self.within_loss_,
                offset=offset,
                n_jobs=self.n_jobs,
                **options,
            )
            return solution.coef if means is None else solution.coef + means
        weights = np.zeros((len(phis), conditioning.n_features))
        for t, columns in enumerate(self._columns(rows)):
            start, stop = rows.offsets[t], rows.offsets[t + 1]
            n = int(stop - start)
            if n:
                one = compress(Rows(rows.X[start:stop], rows.y[start:stop], np.array([0, n])), columns)
                offset = None if means is None else one.X @ means[t, columns]
                theta = factors[t] * conditioning(phis[t], columns)
                solved = within.solve(one.X, one.y, theta, self.within_loss_, offset=offset, **options)
                dual = self._dual_direction(solved, one.X, theta)
                weights[t] = factors[t] * conditioning.multiply(phis[t], columns, dual)
            if means is not None:
                weights[t] += means[t]
        return weights

    def _size_factors(self, sizes: NDArray[np.int64]) -> Array:
        """n^p of each task; a task without rows is its prior mean, and its θ is shown as τ(s)."""
        return np.maximum(sizes, 1).astype(float) ** self.size_exponent_

    def _dual_direction(self, solution: within.WithinSolution, X: Array, theta: Array) -> Array:
        """g with ``w = θ g``: the block of w that was solved determines the rest of it through g."""
        if self.inner == "exact":
            return -X.T @ solution.alpha / len(solution.alpha)
        # The online estimate is a mean of iterates: recover its averaged dual from the iterates' α.
        n = len(solution.alpha)
        tail = np.cumsum((1.0 / np.arange(1, n + 1))[::-1])[::-1]
        return -X.T @ (solution.alpha * tail) / n

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
        rows, theta, mean = self._prior(X, y, side_info)
        model = TaskRegressor.__new__(TaskRegressor)
        model.representation = theta
        model.bias = mean
        model.loss = self.loss if self.within_loss_ == self.loss_ else self.within_loss_.name
        model.inner = self.inner
        model.fit_intercept = self.fit_intercept
        model.tol = self.tol
        model.max_iter = self.max_iter
        model.clip = model.clip_ = getattr(self, "clip_", None)
        model._solve(rows.X, rows.y, theta, mean, self.within_loss_)
        calibration = getattr(self, "calibration_", None)
        if calibration is not None:
            # Copies: the rows are the user's, who may change them before asking for intervals.
            model._calibration, model._support = calibration, (rows.X.copy(), rows.y.copy())
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            model.feature_names_in_ = names
        return model

    def calibrate_intervals(
        self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None
    ) -> Self:
        """Count how far predictions miss on held-out tasks, for `TaskRegressor.predict_interval`.

        `adapt` then returns models that give intervals with the coverage asked for, averaged over new tasks
        like these.  ``ConditionalLearner()`` does this in `fit` by itself, with tasks that take turns in
        being held out.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            Tasks that the learner was not fitted to.
        y, groups, side_info
            See `TaskSet`.
        """
        from ..calibration import calibrate_on

        check_is_fitted(self, "conditioning_")
        tasks = self._tasks(X, y, groups, side_info, reset=False)

        def adapt_tasks(support: TaskSet) -> tuple[Array, Array]:
            rows, phis = self._rows(support), self._features(support)
            weights = self._solve_batch(rows, phis, self.conditioning_, self.bias_)
            factors = self._size_factors(support.sizes)[:, None, None]
            return weights, self.conditioning_.evaluate(phis) * factors

        with single_threaded_blas():
            calibration = calibrate_on([(tasks, adapt_tasks)], bool(self.fit_intercept), [0])
        if calibration is None:
            raise ValueError("X: no task has a row that can be held out; give tasks with rows")
        self.calibration_ = calibration
        return self

    def representation(self, X: Any = None, y: Any = None, *, side_info: Any = None) -> Array:
        """θ = n^p τ(s): the (d, d) representation tailored to the task (p: see `size_exponent_`)."""
        return np.array(self._prior(X, y, side_info)[1])

    def _prior(self, X: Any, y: Any, side_info: Any) -> tuple[Rows, Array, Array | None]:
        """Dense rows of one task, its representation and its prior mean."""
        if not hasattr(self, "conditioning_"):  # scikit-learn's check alone costs as much as the solve
            check_is_fitted(self, "conditioning_")
        task = self._one_task(X, y, side_info)
        phi = self._features(task, one=True)[0]
        rows = self._rows(task)
        if sparse.issparse(rows.X):
            rows = Rows(rows.X.toarray(), rows.y, rows.offsets)
        theta = representation(self.conditioning_, phi)
        if self.size_exponent_:
            theta = theta * float(max(len(rows.y), 1) ** self.size_exponent_)
        return rows, theta, self.bias_(phi) if self.bias_.moves else None

    def _one_task(self, X: Any, y: Any, side_info: Any) -> TaskSet:
        if X is None:
            if y is not None:
                raise ValueError("y: got targets without rows; pass X as well")
            known = self.feature_map_
            if side_info is not None and known is not None and known.needs_rows and not known.needs_side_info:
                raise ValueError(
                    "side_info: this learner reads the task's own rows, not side information; pass X and y"
                )
            empty = np.empty((0, self.n_features_in_))
            return TaskSet.from_tasks(
                [(empty, np.empty(0), side_info)] if side_info is not None else [(empty, np.empty(0))]
            )
        clean = (
            type(X) is np.ndarray
            and type(y) is np.ndarray
            and X.dtype == y.dtype == np.float64
            and X.ndim == 2
            and X.shape == (len(y), self.n_features_in_)
            and y.ndim == 1
            and len(y) > 0
            and (side_info is None or _is_vector(side_info))
        )
        if clean and np.isfinite(X.sum()) and np.isfinite(y.sum()):
            # The ordinary case, checked by hand: scikit-learn's validation costs more than the fit.
            self.loss_.check_targets(y)
            offsets = np.array([0, len(y)])
            # Views, because a TaskSet freezes its arrays and these are the user's.
            clean_X, clean_y = np.ascontiguousarray(X)[:], np.ascontiguousarray(y)[:]
            side = None if side_info is None else side_info[None].copy()
            return TaskSet.from_arrays(clean_X, clean_y, offsets, np.zeros(1, dtype=int), side)
        return self._tasks(X, y, None, side_info, reset=False)

    # ------------------------------------------------------------------ using

    def predict(self, X: Any, groups: Any = None) -> Array:
        """Predictions for rows of tasks that were seen in ``fit``.

        Parameters
        ----------
        X : array (n, d)
        groups : array (n,), optional
            Label of each row's task; may be left out when there was only one.
        """
        check_is_fitted(self, "task_weights_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        if groups is None:
            if len(self.task_labels_) != 1:
                raise ValueError(
                    f"groups: the learner was fitted on {len(self.task_labels_)} tasks; say which task each "
                    "row belongs to, or use adapt(X_few, y_few).predict(X) for a new one"
                )
            positions = np.zeros(X.shape[0], dtype=int)
        else:
            positions = self._positions(groups, X.shape[0])
        weights = self.task_weights_[positions]
        d = X.shape[1]
        if sparse.issparse(X):
            prediction = np.asarray(X.multiply(weights[:, :d]).sum(axis=1)).ravel()
        else:
            prediction = np.einsum("ij,ij->i", X, weights[:, :d])
        if self.fit_intercept:
            prediction = prediction + weights[:, d]
        return clipped(prediction, getattr(self, "clip_", None))

    def _positions(self, groups: Any, n_rows: int) -> NDArray[np.intp]:
        groups = np.asarray(groups)
        if groups.shape != (n_rows,):
            raise ValueError(f"groups: expected {n_rows} labels, one per row of X, got shape {groups.shape}")
        where = {label: t for t, label in enumerate(self.task_labels_.tolist())}
        try:
            return np.array([where[label] for label in groups.tolist()], dtype=np.intp)
        except KeyError as error:
            raise ValueError(
                f"groups: task {error.args[0]!r} was not seen in fit; use adapt(X_few, y_few) for a new task"
            ) from None

    def _remember(self, tasks: TaskSet, weights: Array | None = None) -> None:
        """Adapt the tasks at hand (unless that was done already) so that `predict` can serve them."""
        self.task_labels_ = tasks.labels
        self.task_weights_ = self.adapt_many(tasks) if weights is None else weights
        # What was counted for intervals belongs to the representation before this one.
        self.__dict__.pop("calibration_", None)

    def task_errors(
        self, tasks: TaskSet, query: TaskSet | None = None, *, support: float | int = 0.5, loss: Any = None
    ) -> Array:
        """Error of each task on rows that were not used to adapt to it.

        Parameters
        ----------
        tasks : TaskSet
            The tasks; adapted on all rows when ``query`` is given, on ``support`` of them otherwise.
        query : TaskSet, optional
            Further rows of the same tasks, in the same order.
        support : float or int, default=0.5
            Fraction or number of rows of each task to adapt on.
        loss : str or Loss, optional
            What to average over the query rows; the learner's own loss by default.

        Returns
        -------
        array (n_tasks,)
        """
        check_is_fitted(self, "conditioning_")
        if query is None:
            tasks, query = tasks.support_query(support, random_state=getattr(self, "random_state", None))
        elif len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")
        measure = self.loss_ if loss is None else get_loss(loss)
        return task_means(measure.value(self._predict_rows(tasks, query), query.y), query.offsets)

    def _predict_rows(self, support: TaskSet, query: TaskSet) -> Array:
        prediction = predictions(self._rows(query), self.adapt_many(support))
        return clipped(prediction, getattr(self, "clip_", None))

    def score(
        self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None, support: float | int = 0.5
    ) -> float:
        """R² over the query rows after adapting to the support rows of each task.

        Every task, seen or new, is adapted on ``support`` (a fraction or a number) of its rows and
        scored on the rest.
        """
        from sklearn.metrics import r2_score  # slow to import, and only needed here

        check_is_fitted(self, "conditioning_")
        tasks = self._tasks(X, y, groups, side_info, reset=False)
        adapt_on, query = tasks.support_query(support, random_state=getattr(self, "random_state", None))
        return float(r2_score(query.y, self._predict_rows(adapt_on, query)))

    def save(self, path: Any) -> None:
        """Write the learner to one file without pickle; `tailored.load` reads it back."""
        from ..persistence import save

        save(self, path)

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None) -> Self:
        raise NotImplementedError


def _is_vector(side_info: Any) -> bool:
    """Whether the side information of one task is a clean vector of numbers, which needs no reading."""
    return (
        type(side_info) is np.ndarray
        and side_info.ndim == 1
        and side_info.dtype == np.float64
        and side_info.size > 0
        and bool(np.isfinite(side_info).all())
    )
