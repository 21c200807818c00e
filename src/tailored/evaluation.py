"""Evaluate learners on tasks that they were not fitted to.

`evaluate` cross-validates over whole tasks.  It predicts the same rows of a held-out task for every
number of support rows and every method, so that all errors are comparable.  `task_scorer` makes a
scorer for scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.utils.metadata_routing import MetadataRequest

from ._utils.frames import as_frame
from ._utils.progress import LOG, progress_bar
from ._utils.tables import Table, format_number, plural, wrap
from ._utils.validation import check_fraction, check_int
from .baselines import BASELINES, DESCRIPTIONS, Baseline
from .gaussian.responses import RESPONSES, Bernoulli, Response
from .learners.classifier import EmpiricalBayesClassifier, task_probabilities
from .learners.empirical_bayes import EmpiricalBayesLearner
from .learners.reading import tasks_to_score
from .losses import Loss, error_name, get_loss
from .tasks.episodes import SupportLike, SupportSampling, split_first
from .tasks.reading import label_keys
from .tasks.rows import Array, standard_errors, task_means
from .tasks.task_set import TaskSet, row_copies, target_positions

__all__ = ["Evaluation", "task_scorer"]

#: Default numbers of support rows, of which those are used that at least half of the tasks exceed.
SUPPORTS = (0, 1, 2, 5, 10, 20, 50)


def default_methods(loss: str | Loss = "squared", learner: Any = None) -> dict[str, Any]:
    """Return a learner for this loss, and the baselines, by their names in tables."""
    response = find_loss(loss)
    if isinstance(response, Bernoulli):
        return {"tailored": learner or EmpiricalBayesClassifier(), **BASELINES["classes"]}
    learner = learner or EmpiricalBayesLearner(loss=loss)
    if isinstance(response, Response):
        return {"tailored": learner, **BASELINES["counts"]}
    mixed = clone(BASELINES["numbers"]["mixed model"])
    mixed.set_params(fit_intercept=learner.fit_intercept)  # a formula determines it
    return {"tailored": learner, **BASELINES["numbers"], "mixed model": mixed}


def find_loss(loss: str | Loss) -> Loss:
    """Return the loss with this name, which may be one for classes or counts.

    A loss is returned unchanged.
    """
    return RESPONSES[loss]() if isinstance(loss, str) and loss in RESPONSES else get_loss(loss)


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """Errors of methods on new tasks; ``print`` shows tables, and `to_frame` returns one.

    Attributes
    ----------
    methods : tuple of str
    supports : tuple of int
        Numbers of support rows of each new task.
    labels : array (n_tasks,)
        The evaluated tasks.
    scores : dict of str to array (n_methods, n_supports, n_tasks)
        Means over the rows of each task.  First is the error, such as "squared error"; for classes
        "log loss", for counts "half Poisson deviance".  Then "Brier score" and "accuracy" for
        classes, and "absolute error" for counts. "covered" is whether the target is in the
        prediction interval, and "width" the width of the interval; they are NaN for methods without
        intervals.
    predictions : frame
        Predictions of the first method: "task", "row" (position in ``tasks.y``), "target",
        "support", and "prediction" or, for each class, "probability_<class>".
    coverage : float
        Nominal coverage of the intervals.
    classes : tuple
        Labels of the classes; empty for numeric targets and counts.
    """

    methods: tuple[str, ...]
    supports: tuple[int, ...]
    labels: NDArray[Any]
    scores: dict[str, Array]
    predictions: Any
    coverage: float
    classes: tuple[Any, ...] = ()

    @property
    def error_name(self) -> str:
        """Name of the error."""
        return next(iter(self.scores))

    @property
    def errors(self) -> Array:
        """Mean error of each task, (n_methods, n_supports, n_tasks)."""
        return self.scores[self.error_name]

    @property
    def mean(self) -> Array:
        """Errors averaged over tasks, (n_methods, n_supports)."""
        return self.errors.mean(axis=2)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the means over tasks, (n_methods, n_supports)."""
        return standard_errors(self.errors)

    @property
    def covered(self) -> Array:
        """Fractions of targets inside the intervals, (n_methods, n_supports)."""
        return self.scores["covered"].mean(axis=2)

    @property
    def has_intervals(self) -> bool:
        """Whether the first method has prediction intervals."""
        return bool(np.isfinite(self.covered[0]).all())

    @property
    def tables(self) -> list[Table]:
        """Tables of the scores, the error first.

        Means over tasks with standard errors, by number of support rows.

        The table of errors also has the coverage of the first method's intervals.
        """
        found = []
        for name, values in self.scores.items():
            if name in ("covered", "width"):
                continue
            rows = []
            pairs = zip(values.mean(axis=2), standard_errors(values), strict=True)
            for method, (means, errors) in zip(self.methods, pairs, strict=True):
                rows.append([method, *map(_with_error, means, errors)])
            if name == self.error_name and self.has_intervals:
                covered = (f"{100 * fraction:.1f} %" for fraction in self.covered[0])
                rows.append([f"inside {100 * self.coverage:g} % intervals", *covered])
            tasks = plural(len(self.labels), "new task")
            title = f"Mean {name} on {tasks}, by number of support rows"
            columns = ["method", *map(str, self.supports)]
            found.append(Table.of_rows(title, columns, rows, n_printed=len(rows)))
        return found

    @property
    def caption(self) -> list[str]:
        """Sentences that define the numbers of the ``tables`` and each baseline."""
        known = (f"{name}: {DESCRIPTIONS[name]}" for name in self.methods if name in DESCRIPTIONS)
        return ["± is the standard error over tasks. All columns have the same query rows.", *known]

    def __str__(self) -> str:
        tables = "\n\n".join(map(str, self.tables))
        return "\n".join(
            [tables, "", *(line for text in self.caption for line in wrap(text, "  "))]
        )

    __repr__ = __str__

    def to_frame(self) -> Any:
        """Return a line for every method and number of support rows: errors, standard errors,
        further scores.
        """
        columns: dict[str, Any] = {
            "method": np.repeat(self.methods, len(self.supports)),
            "rows": np.tile(self.supports, len(self.methods)),
            "error": self.mean.ravel(),
            "standard_error": self.standard_error.ravel(),
        }
        for name, values in list(self.scores.items())[1:]:
            columns[name.lower().replace(" ", "_")] = values.mean(axis=2).ravel()
        return as_frame(columns)


def _with_error(mean: float, error: float) -> str:
    return f"{format_number(mean)} ± {error:.2g}"


def evaluate(
    tasks: TaskSet,
    methods: Mapping[str, Any] | None = None,
    *,
    supports: SupportLike = None,
    n_folds: int = 5,
    loss: str | Loss | None = None,
    coverage: float = 0.9,
    random_state: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Cross-validate methods over whole tasks, for several numbers of support rows.

    Parameters
    ----------
    tasks : TaskSet
    methods : mapping of str to estimators, optional
        Learners or baselines; clones of them are fitted.  By default the learner with its defaults
        and the `tailored.baselines.BASELINES` for this kind of target.  If one of them is a
        classifier, or the target of a table has classes, all methods must predict probabilities and
        are scored by them.
    supports : sequence of int, "first" or ("first", ...), optional
        Numbers of support rows.  Only tasks with more rows than the largest number are evaluated;
        the other tasks are used for fitting only.  By default those of 0, 1, 2, 5, 10, 20 and 50
        that at least half of the tasks exceed.  Support rows are random rows; with ``"first"`` or
        ``("first", 0, 5)`` they are the first rows of a task, as in forecasts of rows in time
        order.
    n_folds : int, default=5
        Number of folds of tasks; with fewer tasks, each task is a fold.
    loss : str or Loss, optional
        Loss whose error is averaged over the rows of a task: "squared" is the mean squared error,
        "absolute" the mean absolute error, "poisson" and "negative_binomial" half the Poisson
        deviance.  The log loss is used for classes. By default, the loss of the first
        `EmpiricalBayesLearner` among the methods, or "squared".  The default learner is fitted with
        this loss.
    coverage : float, default=0.9
        Nominal coverage of the prediction intervals.
    random_state : int, default=0
        Seed of the folds and of the support rows, which depend on the task labels but not on the
        order of the tasks.
    progress : bool, default=False
        Show a progress bar.
    """
    if not isinstance(tasks, TaskSet):
        raise TypeError(f"tasks: expected a TaskSet, got {type(tasks).__name__}")
    if not isinstance(methods, Mapping | None) or not all(
        hasattr(m, "fit") for m in (methods or {}).values()
    ):
        raise TypeError(
            "methods: expected a dict of names and learners, such as {'mine': "
            "EmpiricalBayesLearner()}"
        )
    n_folds = check_int("n_folds", n_folds, minimum=2)
    random_state = check_int("random_state", random_state, 0)
    check_fraction("coverage", coverage)
    classes: tuple[Any, ...] = () if tasks.encoding is None else tasks.encoding.classes
    if classes or any(map(is_classifier, (methods or {}).values())):
        loss, classes = Bernoulli(), classes or tuple(np.unique(tasks.y).tolist())
        tasks = tasks.replace(y=target_positions(tasks, classes))
    if loss is None:
        own = [m.loss for m in (methods or {}).values() if isinstance(m, EmpiricalBayesLearner)]
        loss = own[0] if own else "squared"
    methods = default_methods(loss) if methods is None else dict(methods)
    in_order, numbers = split_first(supports)
    draws: dict[str, Any] = {"random_state": random_state, "shuffle": not in_order}
    folds = _folds(tasks, _supports(tasks, supports, numbers), min(n_folds, len(tasks)), draws)
    shape = len(methods), len(folds[0].supports), len(tasks)
    scores: dict[str, Array] = {}
    predictions = []
    with progress_bar("evaluate", len(folds) * len(methods), enabled=progress) as advance:
        for k, fold in enumerate(folds):
            for i, (name, method) in enumerate(methods.items()):
                LOG.info("evaluate: part %d of %d, %s", k + 1, len(folds), name)
                fitted = clone(method).fit(tasks[fold.train])
                for j, (n, support) in enumerate(fold.supports.items()):
                    predicted, found = _score(
                        fitted, support, fold.query, find_loss(loss), coverage
                    )
                    for score, values in found.items():
                        scores.setdefault(score, np.full(shape, np.nan))[i, j, fold.tasks] = values
                    if i == 0:
                        predictions.append(_columns(tasks, fold, n, predicted, classes))
                advance(1)
    evaluated = np.sort(np.concatenate([fold.tasks for fold in folds]))
    joined = {name: np.concatenate([each[name] for each in predictions]) for name in predictions[0]}
    return Evaluation(
        methods=tuple(methods),
        supports=tuple(folds[0].supports),
        labels=tasks.labels[evaluated],
        scores={name: values[:, :, evaluated] for name, values in scores.items()},
        predictions=as_frame(joined),
        coverage=coverage,
        classes=classes,
    )


def _columns(
    tasks: TaskSet, fold: _Fold, n_support: int, predicted: Array, classes: tuple[Any, ...]
) -> dict[str, Any]:
    """Return columns of the predictions of a fold, given this number of support rows."""
    targets: Any = fold.query.y
    names = [f"probability_{label}" for label in classes] or ["prediction"]
    return {
        "task": tasks.labels[np.repeat(fold.tasks, fold.query.sizes)],
        "row": fold.rows,
        "target": np.array(classes)[targets.astype(np.intp)] if classes else targets,
        "support": np.full(len(targets), n_support),
        **dict(zip(names, predicted.reshape(len(targets), -1).T, strict=True)),
    }


class _Fold(NamedTuple):
    """A partition into training tasks and held-out tasks, which have the same query rows for every
    number of support rows.
    """

    train: NDArray[np.intp]  # positions of the training tasks
    tasks: NDArray[np.intp]  # positions of the held-out tasks
    supports: dict[int, TaskSet]
    query: TaskSet
    rows: NDArray[np.intp]  # positions of the query rows


def _supports(tasks: TaskSet, supports: Any, numbers: list[Any]) -> tuple[int, ...]:
    if not numbers:
        sizes = tasks.single_rows().sizes
        return tuple(rows for rows in SUPPORTS if rows == 0 or np.mean(sizes > rows) >= 0.5)
    try:
        return tuple(sorted({check_int("supports", rows, minimum=0) for rows in numbers}))
    except TypeError:
        raise ValueError(
            f"supports: expected numbers of rows such as [0, 5, 10], got {supports!r}"
        ) from None


def _folds(
    tasks: TaskSet, supports: tuple[int, ...], n_folds: int, draws: dict[str, Any]
) -> list[_Fold]:
    """Divide tasks into folds; a fold without a task of more than ``supports[-1]`` rows is left
    out.
    """
    # Folds and support rows are drawn by position, so sort the tasks: their order must not affect
    # the result.
    order = np.argsort(label_keys(tasks.labels, draws["random_state"]), kind="stable")
    single = tasks[order].single_rows()
    is_evaluated = single.sizes > supports[-1]
    if (n_evaluated := int(is_evaluated.sum())) < 2:
        found = f"found {n_evaluated} of {len(tasks)}"
        advice = "more tasks" + ", or smaller numbers in `supports`" * (len(tasks) > 1)
        raise ValueError(
            f"tasks: at least two tasks with more than {supports[-1]} rows are needed, {found}. "
            f"Use {advice}."
        )
    rng = np.random.default_rng([draws["random_state"], len(tasks)])
    number = rng.permutation(len(tasks)) % n_folds
    folds = []
    for k in range(n_folds):
        held_out = np.flatnonzero(is_evaluated & (number == k))
        if not len(held_out):
            continue
        is_support, n_support = single[held_out].support_rows(supports[-1], **draws)
        pool = single[held_out].with_rows(is_support, n_support)
        query = single[held_out].with_rows(~is_support, single.sizes[held_out] - n_support)
        chosen = {
            n: pool if n >= pool.sizes.max() else pool.support_query(n, **draws)[0]
            for n in supports
        }
        positions = order[held_out]
        rows = np.concatenate(
            [np.arange(tasks.offsets[t], tasks.offsets[t + 1]) for t in positions]
        )
        rows = np.repeat(rows, row_copies(tasks)[rows])[~is_support]
        folds.append(_Fold(order[number != k], positions, chosen, query, rows))
    return folds


def _score(
    fitted: Any, support: TaskSet, query: TaskSet, loss: Loss, coverage: float
) -> tuple[Array, dict[str, Array]]:
    """Return the predictions, and the mean of each score over the rows of each task."""
    lower = upper = np.full(len(query.y), np.nan)
    if isinstance(fitted, Baseline):
        predicted = fitted.predict_rows(support, query)
    elif is_classifier(fitted):
        predicted = class_probabilities(fitted.predict_tasks(query, support))
    else:
        table = fitted.predict_tasks(query, support, coverage=coverage)
        predicted, lower, upper = (table[name] for name in ("prediction", "lower", "upper"))
    by_row = _scores_of_rows(predicted, query.y, loss)
    inside = (query.y >= lower) & (query.y <= upper)
    by_row["covered"] = np.where(np.isnan(lower), np.nan, inside)
    by_row["width"] = upper - lower
    weights = query.frequency_weight
    return predicted, {
        name: task_means(values, query.offsets, weights) for name, values in by_row.items()
    }


def class_probabilities(table: NDArray[np.void]) -> Array:
    """Return the probability of each class, (n, K), from the structured array of a classifier's
    ``predict_tasks``.
    """
    columns = [table[name] for name in (table.dtype.names or ())[1:]]
    return np.column_stack(columns if len(columns) > 1 else [1.0 - columns[0], columns[0]])


def _scores_of_rows(prediction: Array, y: Array, loss: Loss) -> dict[str, Array]:
    """Return the scores of each row by name, the error first.

    For classes, predictions are probabilities (n, K).
    """
    if prediction.ndim == 1:
        scores = {error_name(loss.name): loss.error(prediction, y)}
        if isinstance(loss, Response):
            scores["absolute error"] = np.abs(prediction - y)
        return scores
    n_classes = prediction.shape[1]
    observed = y[:, None] == np.arange(n_classes)
    # Clip, so that no row has an infinite log loss.
    own = np.clip((prediction * observed).sum(axis=1), 1e-6, 1.0 - 1e-6)
    squares = ((prediction - observed) ** 2).sum(axis=1)
    return {
        "log loss": -np.log(own),
        "Brier score": 0.5 * squares if n_classes == 2 else squares,
        "accuracy": 1.0 * (prediction.argmax(axis=1) == y),
    }


class _Predicted(RegressorMixin, BaseEstimator):
    """Regressor that returns its input, so that scikit-learn's scorers can score predictions."""

    def predict(self, X: Array) -> Array:
        return X


class _Classified(ClassifierMixin, BaseEstimator):
    """Classifier whose input is probabilities, so that scikit-learn's scorers can score them."""

    def __init__(self, classes_: NDArray[Any]) -> None:
        self.classes_ = classes_

    def predict_proba(self, X: Array) -> Array:
        return X

    def predict(self, X: Array) -> NDArray[Any]:
        return np.asarray(self.classes_[X.argmax(axis=1)])


@dataclass(frozen=True, repr=False, eq=False)
class TaskScorer:
    """Scorer that adapts to some rows of each task and scores the predictions of its other rows."""

    scoring: str
    n_support: SupportLike
    random_state: int

    def __call__(
        self, estimator: Any, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None
    ) -> float:
        # The learner is the last step of a pipeline; the steps before it transform the rows.
        estimator = getattr(estimator, "best_estimator_", estimator)
        steps = getattr(estimator, "steps", None)
        if steps is not None:
            X, estimator = estimator[:-1].transform(X) if len(steps) > 1 else X, steps[-1][1]
            estimator = getattr(estimator, "best_estimator_", estimator)
        if not hasattr(estimator, "predict_tasks"):
            kind = type(estimator).__name__
            raise TypeError(
                "estimator: task_scorer needs a learner with predict_tasks, such as "
                f"EmpiricalBayesLearner, got {kind}"
            )
        if not isinstance(X, TaskSet) and groups is None:
            raise ValueError(
                "groups: task_scorer needs the task of each row; pass params={'groups': ...} "
                "with metadata routing "
                "enabled (sklearn.set_config(enable_metadata_routing=True))"
            )
        tasks = tasks_to_score(estimator, X, y, groups, side_info)
        support, query = SupportSampling.of(self.n_support).split(tasks, self.random_state)
        score = get_scorer(self.scoring)
        if not is_classifier(estimator):
            predicted = estimator.predict_tasks(query, support, coverage=None)["prediction"]
            return float(score(_Predicted(), predicted, query.y))
        P = task_probabilities(estimator.learners_, query, support)
        labels = estimator.classes_[query.y.astype(np.intp)]
        return float(score(_Classified(estimator.classes_), P, labels))

    def get_metadata_routing(self) -> MetadataRequest:
        """Return a request for ``groups`` and ``side_info``."""
        request = MetadataRequest(owner=self)
        for name in ("groups", "side_info"):
            request.score.add_request(param=name, alias=True)
        return request

    def __repr__(self) -> str:
        return f"task_scorer({self.scoring!r}, n_support={self.n_support!r})"


def task_scorer(
    scoring: str = "neg_mean_absolute_error",
    *,
    n_support: SupportLike = 0.5,
    random_state: int = 0,
) -> TaskScorer:
    """Make a scorer for `GridSearchCV` and `cross_val_score` over whole tasks.

    Parameters
    ----------
    scoring : str
        Name of one of scikit-learn's scorers, applied to the predictions of all query rows.
    n_support : default=0.5
        The support rows of each task, as in `EmpiricalBayesLearner`; of a range, its middle.  Small
        tasks have fewer, because one row is always scored.
    random_state : int, RandomState or None, default=0
        Seed of the support rows.
    """
    get_scorer(scoring)  # raise for an unknown name now; in cross-validation the score would be NaN
    SupportSampling.of(n_support)  # likewise
    return TaskScorer(scoring, n_support, random_state)
