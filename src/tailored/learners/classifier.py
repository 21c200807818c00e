"""Classification by empirical Bayes with binary responses; with more than two classes, each class
against the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._utils.files import PathLike
from .._utils.frames import RowsLike, SideInfoLike, ValuesLike
from .._utils.records import Stored
from .._utils.validation import RandomState, name_some, native, refuse_masked
from ..files import save
from ..gaussian.responses import Bernoulli
from ..scale.scan import TaskScan
from ..show.summary import Summaries, Summary, summarise
from ..tasks.encoding import TaskColumns, class_positions
from ..tasks.episodes import SupportLike
from ..tasks.rows import Array, Index
from ..tasks.task_set import TaskSet, check_task_set, class_labels, target_positions
from .adapted_task import AdaptedTask
from .base import ROUTED
from .empirical_bayes import EmpiricalBayesLearner
from .reading import (
    OWN_VALUES,
    WITHOUT_Y,
    fit_arguments,
    read_query,
    read_table,
    refuse_other_arguments,
    rows_to_score,
    tasks_to_score,
)


def _probabilities(columns: Sequence[Array]) -> Array:
    """Return probabilities (n, K), given those of the second class, or of each class against the
    rest.
    """
    if len(columns) == 1:
        return np.column_stack([1.0 - columns[0], columns[0]])
    table = np.column_stack(columns)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _targets(codes: NDArray[Any], n_classes: int) -> list[Array]:
    """Return the binary targets of each model: one model for the second class, or one per class if
    there are more than two.
    """
    return [(codes == k).astype(float) for k in ((1,) if n_classes == 2 else range(n_classes))]


def _classes_and_codes(X: RowsLike, y: ValuesLike) -> tuple[NDArray[Any], Index]:
    """Return the sorted classes of the targets ``y`` of rows or of the task set X, and the position
    of each target among them.
    """
    if isinstance(X, TaskSet):
        if X.encoding is not None and X.encoding.classes:
            # All classes of the table, so that parts of it have the same columns of probabilities.
            return np.array(X.encoding.classes), X.y.astype(np.intp)
        labels = class_labels(X)
    elif isinstance(X, TaskScan):
        raise TypeError("X: a classifier does not take a scan; pass a TaskSet of a sample of tasks")
    elif y is None:
        raise ValueError(WITHOUT_Y)
    else:
        refuse_masked("y", y)
        labels = column_or_1d(y, warn=True)
        with np.errstate(over="ignore", invalid="ignore"):  # the check adds the labels
            assert_all_finite(labels, input_name="y")
    # `type_of_target` casts numbers to integers, which may overflow.  Many classes are an error in
    # `fit`, without its warning.
    with np.errstate(invalid="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        if type_of_target(labels) == "continuous":
            raise ValueError(
                "y: Unknown label type: continuous; for proportions, pass two rows each, one per "
                "class, with their numbers as frequency_weight"
            )
        check_classification_targets(labels)
    return np.unique(labels, return_inverse=True)


def task_probabilities(
    learners: Sequence[EmpiricalBayesLearner],
    query: RowsLike,
    support: TaskSet | None,
    *options: ValuesLike,
) -> Array:
    """Return the probabilities (n, K) of the query rows; targets of the support rows are positions
    of classes.  The options are ``groups`` and ``side_info`` of `predict`.
    """
    columns = []
    targets = _targets(np.zeros(0) if support is None else support.y, max(len(learners), 2))
    for learner, target in zip(learners, targets, strict=True):
        rows = None if support is None else support.replace(y=target)
        columns.append(learner.predict(query, *options, support=rows))
    return _probabilities(columns)


class _Classifier(Stored, ClassifierMixin, BaseEstimator):
    """Base of the classifiers: classes and decision values from probabilities."""

    classes_: NDArray[Any]
    predict_proba: Any

    def predict(self, X: RowsLike, *args: Any, **options: Any) -> NDArray[Any]:
        """Return the most probable class of each row; further arguments are those of
        `predict_proba`.
        """
        most_probable = self.predict_proba(X, *args, **options).argmax(axis=1)
        return np.asarray(self.classes_[most_probable])

    def decision_function(self, X: RowsLike, *args: Any, **options: Any) -> Array:
        """Return the logits of the probabilities, (n,) for two classes, (n, K) for more; see
        `predict_proba`.
        """
        P = self.predict_proba(X, *args, **options)
        return np.asarray(logit(P[:, 1] if len(self.classes_) == 2 else P))

    def _targets(self, y: ValuesLike) -> list[Array]:
        """Return the binary targets of each model."""
        codes = class_positions(self.classes_, y)
        return _targets(codes, len(self.classes_))

    def save(self, path: PathLike) -> None:
        """Write the model to one file without pickle; `tailored.load` reads it back."""
        check_is_fitted(self, "classes_")
        save(path, self)


@dataclass(eq=False, repr=False)
class TaskClassifier(_Classifier):
    """Classifier of one task; returned by `EmpiricalBayesClassifier.adapt`.

    Attributes
    ----------
    classes_ : array (K,)
        Labels of the classes, sorted.
    models_ : list of AdaptedTask
        The model of the second class, or of each class against the rest if there are more than two.
    coef_, intercept_ : arrays (1, d) and (1,), or (K, d) and (K,)
        Their coefficients, in log odds.
    """

    classes_: NDArray[Any] = field(init=False)
    models_: list[AdaptedTask] = field(init=False)

    @property
    def n_features_in_(self) -> int:
        return self.models_[0].n_features_in_

    @property
    def coef_(self) -> Array:
        return np.stack([model.coef_ for model in self.models_])

    @property
    def intercept_(self) -> Array:
        return np.array([model.intercept_ for model in self.models_])

    def fit(self, X: RowsLike, y: ValuesLike) -> Self:
        """Raise TypeError; use `EmpiricalBayesClassifier.adapt`."""
        raise TypeError("TaskClassifier: fit is not supported; use EmpiricalBayesClassifier.adapt")

    def predict_proba(self, X: RowsLike) -> Array:
        """Return the probability of each class (n, K), averaged over the posterior of the
        coefficients.
        """
        check_is_fitted(self, "models_")
        return _probabilities([model.predict(X) for model in self.models_])

    def update(self, X: RowsLike, y: ValuesLike) -> Self:
        """Add further rows of the task; see `AdaptedTask.update`."""
        check_is_fitted(self, "models_")
        for model, target in zip(self.models_, self._targets(y), strict=True):
            model.update(X, target)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class EmpiricalBayesClassifier(_Classifier):
    """Learn a prior for the logistic models of many tasks, and classify rows of new tasks from a
    few rows.

    The model is a generalised linear mixed model with the logit link, whose prior is selected as in
    `EmpiricalBayesLearner`. More than two classes have a model of each class against the rest, and
    the probabilities of a row are divided by their sum.

    Parameters
    ----------
    varying, fit_intercept, n_support, n_jobs, progress, random_state
        See `EmpiricalBayesLearner`.

    Attributes
    ----------
    classes_ : array (K,)
        Labels of the classes, sorted.
    learners_ : list of EmpiricalBayesLearner
        The learner of the second class, or of each class against the rest if there are more than
        two.
    """

    varying: Iterable[str | int] | None = None
    fit_intercept: bool = True
    n_support: SupportLike = None
    n_jobs: int | None = None
    progress: bool = False
    random_state: RandomState = 0

    classes_: NDArray[Any] = field(init=False)
    learners_: list[EmpiricalBayesLearner] = field(init=False)

    __metadata_request__fit = __metadata_request__predict = __metadata_request__score = ROUTED
    __metadata_request__predict_proba = __metadata_request__decision_function = ROUTED

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getattr__(self, name: str) -> Any:
        # Attributes that are equal for all classes are read from the first learner.
        of_data = ("n_features_in_", "feature_names_in_", "n_side_info_in_", "columns_in_")
        if name in (*of_data, "encoding_", "task_labels_") and "learners_" in vars(self):
            return getattr(self.learners_[0], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def structure_(self) -> Any:
        """The selected model structure; a list with one per class if there are more than two."""
        found = [learner.structure_ for learner in self.learners_]
        return found[0] if len(found) == 1 else found

    def fit(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        task: TaskColumns | None = None,
        target: str | None = None,
        sample_weight: ValuesLike = None,
        frequency_weight: ValuesLike = None,
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : dataframe with ``task`` and ``target``, array with ``y`` and ``groups``, or TaskSet
            The training tasks.
        y : array (n,)
            Labels of the classes: numbers, strings or booleans.
        groups, side_info, task, target, sample_weight, frequency_weight
            See `EmpiricalBayesLearner.fit`.  ``sample_weight`` is the power to which a
            row's likelihood is raised.
        """
        weights = {"sample_weight": sample_weight, "frequency_weight": frequency_weight}
        data, weights = fit_arguments(X, y, groups, side_info, task, target, **weights)
        X, y, groups, side_info = data
        rest = {"groups": groups, "side_info": side_info, **weights}
        if isinstance(X, TaskSet):
            refuse_other_arguments(OWN_VALUES, y=y, **rest)
        classes, codes = _classes_and_codes(X, y)
        if len(classes) < 2:
            only = name_some(native(classes))
            raise ValueError(f"y: there is only one class, {only}; a classifier needs at least two")
        n_single = int((np.bincount(codes) == 1).sum())
        if len(classes) > 2 and 2 * n_single > len(classes):
            raise ValueError(
                f"y: {n_single} of its {len(classes)} classes have a single row. For numbers, use "
                "EmpiricalBayesLearner; otherwise join rare classes."
            )
        learners = []
        for binary in _targets(codes, len(classes)):
            learner = EmpiricalBayesLearner(**self.get_params(deep=False), loss=Bernoulli())
            own = (X.replace(y=binary),) if isinstance(X, TaskSet) else (X, binary)
            learners.append(learner.fit(*own, **rest))
        self.classes_, self.learners_ = classes, learners
        return self

    def adapt(
        self, X: RowsLike | None = None, y: ValuesLike = None, **options: Any
    ) -> TaskClassifier:
        """Return the classifier of one new task, from a few rows or from none.

        For the options ``side_info``, ``sample_weight`` and ``frequency_weight`` see
        `EmpiricalBayesLearner.adapt`.
        """
        if not hasattr(self, "learners_"):  # scikit-learn's check alone costs a tenth of adapting
            check_is_fitted(self, "learners_")
        targets = [None] * len(self.learners_) if y is None else self._targets(y)
        pairs = zip(self.learners_, targets, strict=True)
        adapted = TaskClassifier()
        adapted.classes_ = self.classes_
        adapted.models_ = [learner.adapt(X, target, **options) for learner, target in pairs]
        return adapted

    def predict_proba(
        self,
        X: RowsLike,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        support: RowsLike | None = None,
    ) -> Array:
        """Return the probability of each class (n, K); rows of tasks that were not in `fit` are
        predicted from the prior.

        Probabilities are averages over a Gaussian with the mean and covariance of the coefficients'
        posterior.  Parameters are those of `EmpiricalBayesLearner.predict`.
        """
        check_is_fitted(self, "learners_")
        observed = self._coded_rows(support, {})
        return task_probabilities(self.learners_, X, observed, groups, side_info)

    def predict_tasks(
        self,
        query: RowsLike,
        support: RowsLike | None = None,
        *,
        task: TaskColumns | None = None,
        target: str | None = None,
        side_info: SideInfoLike = None,
    ) -> Any:
        """Predict probabilities for rows of many tasks, and return one table.

        For the parameters, see `EmpiricalBayesLearner.predict_tasks`.  The columns are the task
        label and "probability" (of ``classes_[1]``), or ``"probability_<class>"`` for each class
        if there are more than two.
        """
        check_is_fitted(self, "learners_")
        rows = read_query(self.learners_[0], query, support, task, target, side_info, None)
        observed = None if rows.support is None else self._coded(rows.support)
        P = task_probabilities(self.learners_, rows.tasks, observed)[np.argsort(rows.order)]
        columns = {"probability": P[:, 1]}
        if len(self.classes_) > 2:
            columns = {f"probability_{name}": P[:, k] for k, name in enumerate(self.classes_)}
        return rows.table(columns)

    def sample(self, query: Any, support: Any = None, **options: Any) -> Array:
        """Draw targets of two classes, 1 for ``classes_[1]`` and 0 for ``classes_[0]``; see
        `EmpiricalBayesLearner.sample`.
        """
        return self._of_two_classes("sample").sample(
            query, self._coded_rows(support, options), **options
        )

    def predict_totals(self, query: Any, support: Any = None, **options: Any) -> Any:
        """Predict the number or fraction of units in ``classes_[1]``, for two classes; see
        `EmpiricalBayesLearner.predict_totals`.
        """
        learner = self._of_two_classes("predict_totals")
        return learner.predict_totals(query, self._coded_rows(support, options), **options)

    def _coded_rows(self, support: Any, options: dict[str, Any]) -> TaskSet | None:
        """Return support rows with positions of classes as targets; ``options`` may name the
        columns.
        """
        if support is None:
            return None
        names = {role: options.get(role) or self.columns_in_[role] for role in ("task", "target")}
        return self._coded(read_table(self.learners_[0], support, "support", **names)[0])

    def _coded(self, tasks: TaskSet) -> TaskSet:
        """Return tasks with positions of this model's classes as targets."""
        check_task_set(tasks)
        return tasks.replace(y=target_positions(tasks, self.classes_))

    def score(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        n_support: SupportLike = None,
        sample_weight: ValuesLike = None,
    ) -> float:
        """Return the accuracy on the query rows after adapting to the support rows of each task.

        For the arguments, see `EmpiricalBayesLearner.score`.
        """
        check_is_fitted(self, "learners_")
        tasks = tasks_to_score(self, X, y, groups, side_info, sample_weight=sample_weight)
        support, query, weights = rows_to_score(self, tasks, n_support, sample_weight)
        if not len(query.y):
            raise ValueError("X: there are no query rows to score; pass tasks with rows")
        is_right = task_probabilities(self.learners_, query, support).argmax(axis=1) == query.y
        return float(np.average(is_right, weights=weights))

    def _of_two_classes(self, method: str) -> EmpiricalBayesLearner:
        """Return the only learner if there are two classes; raise ValueError if there are more."""
        check_is_fitted(self, "learners_")
        if len(self.learners_) > 1:
            raise ValueError(
                f"{method}: there are more than two classes; fit a target with two classes, such "
                "as one class against the others"
            )
        return self.learners_[0]

    def effects(self, tasks: TaskSet, **options: Any) -> Any:
        """Return the coefficients of each task for the log odds of ``classes_[1]``; see
        `EmpiricalBayesLearner.effects`.
        """
        return self._of_two_classes("effects").effects(self._coded(tasks), **options)

    def summary(self, *, details: bool = False) -> Summary | Summaries:
        """Return the summary of the model, with odds ratios; see `EmpiricalBayesLearner.summary`.

        With more than two classes, return `summaries`, which print one after the other.
        """
        found = self.summaries(details=details)
        return found if len(found) > 1 else next(iter(found.values()))

    def summaries(self, *, details: bool = False) -> Summaries:
        """Return a dict with the summary of the model of each class against the others.

        With two classes, there is only the model of the second class.
        """
        check_is_fitted(self, "learners_")
        classes = native(self.classes_)
        names = {label: f"Class {label!r} against the other classes" for label in classes}
        if len(classes) == 2:
            names = {classes[1]: type(self).__name__}
        return Summaries(
            {
                label: summarise(learner, name, repr(label), details=details)
                for (label, name), learner in zip(names.items(), self.learners_, strict=True)
            }
        )
