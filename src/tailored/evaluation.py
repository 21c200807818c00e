"""Evaluate learners on tasks that they were not fitted to.

`evaluate` cross-validates over whole tasks.  It predicts the same rows of a held-out task for every number of support
rows and every method, so that all errors are comparable.  `task_scorer` makes a scorer for scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.utils.metadata_routing import MetadataRequest

from . import baselines
from ._utils.frames import as_frame
from ._utils.progress import LOG, progress_bar
from ._utils.validation import check_choice, check_fraction, check_int
from .gaussian.responses import Bernoulli, Response
from .learners.classifier import EmpiricalBayesClassifier, task_probabilities
from .learners.empirical_bayes import EmpiricalBayesLearner
from .learners.reading import tasks_to_score
from .losses import error_name
from .summaries.tables import format_number, json_value
from .tasks.encoding import target_positions
from .tasks.episodes import ORDERS
from .tasks.reading import label_keys
from .tasks.rows import Array, standard_errors, task_means
from .tasks.task_set import TaskSet

__all__ = ["Evaluation", "evaluate", "task_scorer", "usual_methods"]

#: Default numbers of support rows.
SUPPORTS = (0, 1, 2, 5, 10, 20, 50)
#: A default number of support rows is used if at least this fraction of the tasks has more rows.
ENOUGH = 0.5


def usual_methods(loss: Any = "squared") -> dict[str, Any]:
    """Return `EmpiricalBayesLearner` with this loss, and the baselines, by their names in tables.

    With the loss "bernoulli", the learner is an `EmpiricalBayesClassifier`.
    """
    response = baselines.find_loss(loss)
    if not isinstance(response, Response):
        simple: dict[str, Any] = {name: kind() for name, kind in baselines.BASELINES.items()}
    else:
        simple = {name: kind(response.name) for name, kind in baselines.RESPONSE_BASELINES.items()}
    is_binary = isinstance(response, Bernoulli)
    return {
        "tailored": EmpiricalBayesClassifier() if is_binary else EmpiricalBayesLearner(loss=loss),
        **simple,
    }


@dataclass(frozen=True)
class Evaluation:
    """Errors of methods on new tasks.

    Attributes
    ----------
    methods : tuple of str
    supports : tuple of int
        Numbers of support rows of each new task.
    errors : array (n_methods, n_supports, n_tasks)
        Mean error of each evaluated task; the log loss for classes and half the Poisson deviance for counts.
    covered, widths : arrays (n_methods, n_supports)
        Fraction of targets inside the prediction intervals, and mean width of the intervals.  Both are averaged over
        tasks, and NaN for methods without intervals.
    labels : array (n_tasks,)
    n_query : int
        Number of rows that were predicted, for each number of support rows.
    loss : str
    coverage : float
        Nominal coverage of the intervals.
    scores : dict of str to array (n_methods, n_supports, n_tasks)
        Further scores: "Brier score" and "accuracy" for classes, "absolute error" for counts.
    predictions : array (n_supports, n_query) or (n_supports, n_query, n_classes)
        Predictions of the first method; class probabilities if the target has classes.
    targets, groups, rows : arrays (n_query,)
        Target of each predicted row (for classes, the position in ``classes``), position of its task in ``labels``, and
        position of the row in ``tasks.X`` and ``tasks.y``.
    classes : tuple
        Labels of the classes; empty for numeric targets and counts.
    covered_error : array (n_methods, n_supports)
        Standard errors of ``covered`` over tasks.
    """

    methods: tuple[str, ...]
    supports: tuple[int, ...]
    errors: Array
    covered: Array
    widths: Array
    labels: NDArray[Any]
    n_query: int
    loss: str
    coverage: float
    scores: dict[str, Array] = field(default_factory=dict)
    predictions: Array | None = None
    targets: Array | None = None
    groups: NDArray[np.intp] | None = None
    classes: tuple[Any, ...] = ()
    covered_error: Array = field(default_factory=lambda: np.full((1, 1), np.nan))
    rows: NDArray[np.intp] | None = None

    @property
    def by_name(self) -> dict[str, Array]:
        """Errors and further scores by their names, (n_methods, n_supports, n_tasks) each."""
        return {error_name(self.loss): self.errors, **self.scores}

    @property
    def caption(self) -> str:
        """Caption of a table of errors: the definition of its numbers and of each baseline."""
        known = {**baselines.BASELINES, **baselines.RESPONSE_BASELINES}
        about = [f"{name}: {known[name].__doc__}".split("\n")[0] for name in self.methods if name in known]
        first = "± is the standard error over tasks. Every column predicts the same query rows."
        return "\n".join([first, *about]).replace("`", "")

    @property
    def mean(self) -> Array:
        """Errors averaged over tasks, (n_methods, n_supports)."""
        return self.errors.mean(axis=2)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the means over tasks, (n_methods, n_supports)."""
        return standard_errors(self.errors)

    def __repr__(self) -> str:
        title = f"Mean {error_name(self.loss)} on {len(self.labels)} new tasks, by number of support rows"
        rows = [["method", *map(str, self.supports)]]
        rows += [[name, *row] for name, row in zip(self.methods, cells(self.errors), strict=True)]
        if len(rows) > 8:  # at most ten lines
            rows[7:] = [[f"({len(rows) - 7} more)"] + [""] * len(self.supports)]
        if np.isfinite(self.covered[0]).all():
            covered = [f"{100 * fraction:.1f} %" for fraction in self.covered[0]]
            rows.append([f"inside {100 * self.coverage:g} % intervals", *covered])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([title, *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)])

    def to_frame(self) -> Any:
        """Return the predictions of the first method as a frame, e.g. to plot residuals.

        It has a line for each predicted row and number of support rows: "task", "row" (see ``rows``), "target", "support", and
        "prediction" or, for each class, "probability_<class>".
        """
        targets: Any = self.targets
        targets = np.array(self.classes)[targets.astype(np.intp)] if self.classes else targets
        by_row: Any = {"task": self.labels[self.groups], "row": self.rows, "target": targets}
        columns: Any = {name: np.tile(column, len(self.supports)) for name, column in by_row.items()}
        columns["support"] = np.repeat(self.supports, len(targets))
        names = [f"probability_{name}" for name in self.classes] or ["prediction"]
        values = np.reshape(np.asarray(self.predictions), (len(columns["support"]), -1))
        return as_frame(columns | dict(zip(names, values.T, strict=True)))

    def records(self) -> list[dict[str, Any]]:
        """Return one dict for every method and number of support rows; "loss" is the name of the error."""
        mean, error = self.mean, self.standard_error
        means = ((name, values.mean(axis=2)) for name, values in self.scores.items())
        further = {name.lower().replace(" ", "_"): values for name, values in means}
        return [
            {
                "method": method,
                "rows": rows,
                "loss": error_name(self.loss),
                "error": float(mean[i, j]),
                "standard_error": float(error[i, j]),
                **{name: float(values[i, j]) for name, values in further.items()},
                "covered": json_value(self.covered[i, j]),
                "width": json_value(self.widths[i, j]),
            }
            for i, method in enumerate(self.methods)
            for j, rows in enumerate(self.supports)
        ]


def cells(values: Array) -> list[list[str]]:
    """Return scores (n_methods, n_supports, n_tasks) as text: means over tasks and their standard errors."""
    pairs = zip(values.mean(axis=2), standard_errors(values), strict=True)
    return [[f"{format_number(m)} ± {e:.2g}" for m, e in zip(*pair, strict=True)] for pair in pairs]


def evaluate(
    tasks: TaskSet,
    methods: Mapping[str, Any] | None = None,
    *,
    supports: Sequence[int] | None = None,
    n_folds: int = 5,
    order: str = "random",
    loss: Any = "squared",
    coverage: float = 0.9,
    random_state: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Cross-validate methods over whole tasks, for several numbers of support rows.

    Parameters
    ----------
    tasks : TaskSet
    methods : mapping of str to estimators, optional
        Learners or baselines; clones of them are fitted.  By default `usual_methods`.  If one of them is a classifier, or
        the target of a table has classes, all methods must predict probabilities and are scored by them.
    supports : sequence of int, optional
        Numbers of support rows.  Only tasks with more rows than the largest number are evaluated; the other tasks are used
        for fitting.  By default those of 0, 1, 2, 5, 10, 20 and 50 that at least half of the tasks exceed.
    n_folds : int, default=5
        Number of folds of tasks; with fewer tasks, each task is a fold.
    order : {"random", "first"}, default="random"
        Whether the support rows are random rows, or the first rows of a task, as in forecasts of rows in time order.
    loss : str or Loss, default="squared"
        Loss whose error is averaged over the rows of a task: "squared" is the mean squared error, "absolute" the mean
        absolute error, "poisson" and "negative_binomial" half the Poisson deviance.  The log loss is used for classes.
        The default learner is fitted with this loss.  Pass it to your own learners as well.
    coverage : float, default=0.9
        Nominal coverage of the prediction intervals.
    random_state : int, default=0
        Seed of the folds and of the support rows, which depend on the task labels but not on the order of the tasks.
    progress : bool, default=False
        Show a progress bar.
    """
    if not isinstance(tasks, TaskSet):
        raise TypeError(f"tasks: expected a TaskSet, got {type(tasks).__name__}")
    n_folds = check_int("n_folds", n_folds, minimum=2)
    random_state = check_int("random_state", random_state, 0)
    check_choice("order", order, ORDERS)
    check_fraction("coverage", coverage)
    classes: tuple[Any, ...] = () if tasks.encoding is None else tasks.encoding.classes
    if classes or any(map(is_classifier, (methods or {}).values())):
        loss, classes = Bernoulli(), classes or tuple(np.unique(tasks.y).tolist())
        tasks = tasks.replace(y=target_positions(tasks, classes))
    measure = baselines.find_loss(loss)
    methods = usual_methods(loss) if methods is None else dict(methods)
    # Folds and support rows are drawn by position.  Sort the tasks so that their order does not affect the result.
    by_label = np.argsort(label_keys(tasks.labels, random_state), kind="stable")
    compact, numbered = tasks[by_label], tasks.replace(y=np.arange(len(tasks.y), dtype=float))[by_label]
    tasks, numbered = compact.single_rows(), numbered.single_rows()
    sizes = _supports(tasks, supports)
    evaluated = np.flatnonzero(tasks.sizes > sizes[-1])
    if len(evaluated) < 2:
        found = f"{len(evaluated)} of {len(tasks)} tasks have more than {sizes[-1]} rows"
        advice = "more tasks" + ", or smaller numbers in `supports`" * (len(tasks) > 1)
        raise ValueError(f"tasks: {found}, and an evaluation needs two. Use {advice}.")
    n_folds = min(n_folds, len(tasks))
    fold = np.random.default_rng([random_state, len(tasks)]).permutation(len(tasks)) % n_folds
    shape = (len(methods), len(sizes), len(tasks))
    by_name: dict[str, Array] = {}
    kept: list[tuple[Any, ...]] = []
    draws: dict[str, Any] = {"random_state": random_state, "shuffle": order == "random"}
    with progress_bar("evaluate", n_folds * len(methods), enabled=progress) as advance:
        for k in range(n_folds):
            held_out = evaluated[fold[evaluated] == k]
            if not len(held_out):
                continue
            train = compact[np.flatnonzero(fold != k)]
            pool, query = tasks[held_out].support_query(sizes[-1], **draws)
            own: list[Array] = []
            for i, (name, method) in enumerate(methods.items()):
                LOG.info("evaluate: part %d of %d, %s", k + 1, n_folds, name)
                fitted = clone(method).fit(train)
                for j, n_support in enumerate(sizes):
                    support = pool
                    if n_support < pool.sizes.max(initial=0):
                        support, _ = pool.support_query(n_support, **draws)
                    prediction, lower, upper = _predict(fitted, support, query, coverage)
                    own += [prediction] if i == 0 else []
                    inside = np.where(np.isnan(lower), np.nan, (query.y >= lower) & (query.y <= upper))
                    by_row = baselines.scores(prediction, query.y, measure)
                    for score, values in {**by_row, "covered": inside, "width": upper - lower}.items():
                        table = by_name.setdefault(score, np.full(shape, np.nan))
                        table[i, j, held_out] = task_means(values, query.offsets, query.frequency_weight)
                advance(1)
            rows = numbered[held_out].support_query(sizes[-1], **draws)[1].y.astype(np.intp)
            kept.append((np.array(own), query.y, np.repeat(held_out, query.sizes), rows))
    evaluated = evaluated[np.argsort(by_label[evaluated])]
    further = {score: values[:, :, evaluated] for score, values in by_name.items()}
    covered, widths = further.pop("covered"), further.pop("width")
    predictions, targets, groups, positions = zip(*kept, strict=True)
    position = np.empty(len(tasks), dtype=np.intp)
    position[evaluated] = np.arange(len(evaluated))
    errors = further.pop(next(iter(further))), covered.mean(axis=2), widths.mean(axis=2)
    more: Any = {"labels": tasks.labels[evaluated], "n_query": sum(map(len, targets)), "loss": measure.name}
    more |= {"predictions": np.concatenate(predictions, axis=1), "targets": np.concatenate(targets)}
    more |= {"groups": position[np.concatenate(groups)], "rows": np.concatenate(positions)}
    more |= {"scores": further, "classes": classes, "covered_error": standard_errors(covered)}
    return Evaluation(tuple(methods), sizes, *errors, coverage=float(coverage), **more)


def _supports(tasks: TaskSet, supports: Sequence[int] | None) -> tuple[int, ...]:
    if supports is not None:
        if isinstance(supports, str) or np.ndim(supports) != 1 or not len(supports):
            raise ValueError(f"supports: expected numbers of rows such as [0, 5, 10], got {supports!r}")
        return tuple(sorted({check_int("supports", rows, minimum=0) for rows in supports}))
    return tuple(rows for rows in SUPPORTS if rows == 0 or np.mean(tasks.sizes > rows) >= ENOUGH)


def _predict(fitted: Any, support: TaskSet, query: TaskSet, coverage: float) -> tuple[Array, Array, Array]:
    """Return predictions and the lower and upper bounds of their intervals; NaN for methods without intervals."""
    missing = np.full(len(query.y), np.nan)
    if isinstance(fitted, baselines.Baseline):
        return fitted.predict_rows(support, query), missing, missing
    if is_classifier(fitted):
        return baselines.class_probabilities(fitted.predict_tasks(query, support)), missing, missing
    table = fitted.predict_tasks(query, support, coverage=coverage)
    return table["prediction"], table["lower"], table["upper"]


class _Predicted(RegressorMixin, BaseEstimator):
    """An estimator with fixed predictions, for scikit-learn's scorers."""

    def __init__(self, predictions: Array) -> None:
        self.predictions = predictions

    def predict(self, X: Any) -> Array:
        return self.predictions


class _Classified(ClassifierMixin, BaseEstimator):
    """A classifier with fixed probabilities, for scikit-learn's scorers."""

    def __init__(self, classes_: NDArray[Any], probabilities: Array) -> None:
        self.classes_, self.probabilities = classes_, probabilities

    def predict_proba(self, X: Any) -> Array:
        return self.probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.classes_[self.probabilities.argmax(axis=1)])


@dataclass(frozen=True, repr=False, eq=False)
class TaskScorer:
    """Scorer that adapts to some rows of each task and scores the predictions of its other rows."""

    scoring: str
    n_support: float | int
    order: str
    random_state: Any

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
            raise TypeError(f"estimator: task_scorer scores learners of many tasks, got {kind}")
        if not isinstance(X, TaskSet) and groups is None:
            raise ValueError(
                "groups: task_scorer needs the task of each row; pass params={'groups': ...} with metadata routing "
                "enabled (sklearn.set_config(enable_metadata_routing=True))"
            )
        tasks = tasks_to_score(estimator, X, y, groups, side_info)
        draws: Any = {"random_state": self.random_state, "shuffle": self.order == "random"}
        support, query = tasks.support_query(self.n_support, **draws)
        score = get_scorer(self.scoring)
        if not hasattr(estimator, "learners_"):
            predicted = _Predicted(estimator.predict_tasks(query, support, coverage=None)["prediction"])
            return float(score(predicted, query.X, query.y))
        P = task_probabilities(estimator.learners_, query, support)
        labels = estimator.classes_[query.y.astype(np.intp)]
        return float(score(_Classified(estimator.classes_, P), query.X, labels))

    def get_metadata_routing(self) -> MetadataRequest:
        """Request ``groups`` and ``side_info``."""
        request = MetadataRequest(owner=self)
        for name in ("groups", "side_info"):
            request.score.add_request(param=name, alias=True)
        return request

    def __repr__(self) -> str:
        order = "" if self.order == ORDERS[0] else f", order={self.order!r}"
        return f"task_scorer({self.scoring!r}, n_support={self.n_support!r}{order})"


def task_scorer(
    scoring: str = "neg_mean_absolute_error",
    *,
    n_support: float | int = 0.5,
    order: str = "random",
    random_state: Any = 0,
) -> TaskScorer:
    """Make a scorer for `GridSearchCV` and `cross_val_score` over whole tasks.

    Parameters
    ----------
    scoring : str
        Name of one of scikit-learn's scorers, applied to the predictions of all query rows.
    n_support : float or int, default=0.5
        Fraction or number of support rows of each task; small tasks have fewer, because one row is always scored.
    order : {"random", "first"}, default="random"
        Whether the support rows are random rows, or the first rows of a task.
    random_state : int, RandomState or None, default=0
        Seed of the support rows.
    """
    get_scorer(scoring)  # raise for an unknown name now; in cross-validation the score would be NaN
    return TaskScorer(scoring, n_support, check_choice("order", order, ORDERS), random_state)
