"""Evaluate learners on tasks that they were not fitted to.

`evaluate` cross-validates over whole tasks.  It predicts the same rows of a held-out task for every number of support
rows and every method, so that all errors are comparable.  `task_scorer` makes a scorer for scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.utils.metadata_routing import MetadataRequest

from . import baselines
from ._utils.frames import as_frame
from ._utils.progress import LOG, progress_bar
from ._utils.tables import Table, format_number, json_value, plural, wrap
from ._utils.validation import check_choice, check_fraction, check_int
from .gaussian.responses import Bernoulli, Response
from .learners.classifier import EmpiricalBayesClassifier, task_probabilities
from .learners.empirical_bayes import EmpiricalBayesLearner
from .learners.reading import tasks_to_score
from .losses import Loss, error_name
from .tasks.episodes import ORDERS
from .tasks.reading import label_keys
from .tasks.rows import Array, standard_errors, task_means
from .tasks.task_set import TaskSet, row_copies, target_positions

__all__ = ["Evaluation", "evaluate", "task_scorer", "usual_methods"]

#: Default numbers of support rows.
SUPPORTS = (0, 1, 2, 5, 10, 20, 50)
#: A default number of support rows is used if at least this fraction of the tasks has more rows.
ENOUGH = 0.5


def usual_methods(loss: str | Loss = "squared") -> dict[str, Any]:
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
    def mean(self) -> Array:
        """Errors averaged over tasks, (n_methods, n_supports)."""
        return self.errors.mean(axis=2)

    @property
    def standard_error(self) -> Array:
        """Standard errors of the means over tasks, (n_methods, n_supports)."""
        return standard_errors(self.errors)

    @property
    def has_intervals(self) -> bool:
        """Whether the first method has prediction intervals."""
        return bool(np.isfinite(self.covered[0]).all())

    @property
    def tables(self) -> dict[str, Table]:
        """A table of each score by name, the error first: means over tasks with standard errors, by number of support rows.

        The table of errors also has the coverage of the first method's intervals.
        """
        found = {}
        for name, values in self.by_name.items():
            pairs = zip(self.methods, values.mean(axis=2), standard_errors(values), strict=True)
            rows = [[method, *map(_with_error, means, errors)] for method, means, errors in pairs]
            if values is self.errors and self.has_intervals:
                covered = (f"{100 * fraction:.1f} %" for fraction in self.covered[0])
                rows.append([f"inside {100 * self.coverage:g} % intervals", *covered])
            title = (
                f"Mean {name} on {plural(len(self.labels), 'new task')}, by number of support rows"
            )
            found[name] = Table.of_rows(
                title, ["method", *map(str, self.supports)], rows, n_printed=len(rows)
            )
        return found

    @property
    def caption(self) -> list[str]:
        """Sentences that define the numbers of the ``tables`` and each baseline."""
        known = {**baselines.BASELINES, **baselines.RESPONSE_BASELINES}
        texts = {name: str(known[name].__doc__) for name in self.methods if name in known}
        about = [f"{name}: {text.splitlines()[0].replace('`', '')}" for name, text in texts.items()]
        return ["± is the standard error over tasks. All columns have the same query rows.", *about]

    def __str__(self) -> str:
        tables = "\n\n".join(map(str, self.tables.values()))
        return "\n".join(
            [tables, "", *(line for text in self.caption for line in wrap(text, "  "))]
        )

    __repr__ = __str__

    def to_frame(self) -> Any:
        """Return the predictions of the first method as a frame, e.g. to plot residuals.

        It has a line for each predicted row and number of support rows: "task", "row" (see ``rows``), "target", "support", and
        "prediction" or, for each class, "probability_<class>".
        """
        targets: Any = self.targets
        targets = np.array(self.classes)[targets.astype(np.intp)] if self.classes else targets
        by_row: dict[str, Any] = {
            "task": self.labels[self.groups],
            "row": self.rows,
            "target": targets,
        }
        columns: dict[str, Any] = {
            name: np.tile(column, len(self.supports)) for name, column in by_row.items()
        }
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


def evaluate(
    tasks: TaskSet,
    methods: Mapping[str, Any] | None = None,
    *,
    supports: Sequence[int] | None = None,
    n_folds: int = 5,
    order: str = "random",
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
        Learners or baselines; clones of them are fitted.  By default `usual_methods`.  If one of them is a classifier, or
        the target of a table has classes, all methods must predict probabilities and are scored by them.
    supports : sequence of int, optional
        Numbers of support rows.  Only tasks with more rows than the largest number are evaluated; the other tasks are
        used for fitting only.  By default those of 0, 1, 2, 5, 10, 20 and 50 that at least half of the tasks exceed.
    n_folds : int, default=5
        Number of folds of tasks; with fewer tasks, each task is a fold.
    order : {"random", "first"}, default="random"
        Whether the support rows are random rows, or the first rows of a task, as in forecasts of rows in time order.
    loss : str or Loss, optional
        Loss whose error is averaged over the rows of a task: "squared" is the mean squared error, "absolute" the mean
        absolute error, "poisson" and "negative_binomial" half the Poisson deviance.  The log loss is used for classes.
        By default, the loss of the `EmpiricalBayesLearner` among the methods; "squared" if there is none, or if several
        have different losses.  The default learner is fitted with this loss.
    coverage : float, default=0.9
        Nominal coverage of the prediction intervals.
    random_state : int, default=0
        Seed of the folds and of the support rows, which depend on the task labels but not on the order of the tasks.
    progress : bool, default=False
        Show a progress bar.
    """
    if not isinstance(tasks, TaskSet):
        raise TypeError(f"tasks: expected a TaskSet, got {type(tasks).__name__}")
    if not isinstance(methods, Mapping | None) or not all(
        hasattr(m, "fit") for m in (methods or {}).values()
    ):
        raise TypeError(
            "methods: expected a dict of names and learners, such as {'mine': EmpiricalBayesLearner()}"
        )
    n_folds = check_int("n_folds", n_folds, minimum=2)
    random_state = check_int("random_state", random_state, 0)
    check_choice("order", order, ORDERS)
    check_fraction("coverage", coverage)
    classes: tuple[Any, ...] = () if tasks.encoding is None else tasks.encoding.classes
    if classes or any(map(is_classifier, (methods or {}).values())):
        loss, classes = Bernoulli(), classes or tuple(np.unique(tasks.y).tolist())
        tasks = tasks.replace(y=target_positions(tasks, classes))
    if loss is None:
        own = [m.loss for m in (methods or {}).values() if isinstance(m, EmpiricalBayesLearner)]
        loss = own[0] if own and all(each == own[0] for each in own) else "squared"
    measure = baselines.find_loss(loss)
    methods = usual_methods(loss) if methods is None else dict(methods)
    # Folds and support rows are drawn by position.  Sort the tasks so that their order does not affect the result.
    by_label = np.argsort(label_keys(tasks.labels, random_state), kind="stable")
    sizes = _supports(tasks.single_rows(), supports)
    draws: dict[str, Any] = {"random_state": random_state, "shuffle": order == "random"}
    folds = _folds(tasks, by_label, sizes, min(n_folds, len(tasks)), draws)
    with progress_bar("evaluate", len(folds) * len(methods), enabled=progress) as advance:
        by_name, predictions = _score_folds(tasks, folds, methods, measure, coverage, advance)
    evaluated = np.sort(np.concatenate([fold.tasks for fold in folds]))
    groups = np.concatenate([np.repeat(fold.tasks, fold.query.sizes) for fold in folds])
    scores = {score: values[:, :, evaluated] for score, values in by_name.items()}
    covered, widths = scores.pop("covered"), scores.pop("width")
    return Evaluation(
        methods=tuple(methods),
        supports=sizes,
        errors=scores.pop(error_name(measure.name)),
        covered=covered.mean(axis=2),
        widths=widths.mean(axis=2),
        labels=tasks.labels[evaluated],
        n_query=len(groups),
        loss=measure.name,
        coverage=float(coverage),
        scores=scores,
        predictions=predictions,
        targets=np.concatenate([fold.query.y for fold in folds]),
        groups=np.searchsorted(evaluated, groups),
        classes=classes,
        covered_error=standard_errors(covered),
        rows=np.concatenate([fold.rows for fold in folds]),
    )


def _with_error(mean: float, error: float) -> str:
    return f"{format_number(mean)} ± {error:.2g}"


class _Fold(NamedTuple):
    """A partition into training tasks and held-out tasks, which have the same query rows for every number of support rows."""

    train: NDArray[np.intp]  # positions of the training tasks
    tasks: NDArray[np.intp]  # positions of the held-out tasks
    supports: list[TaskSet]
    query: TaskSet
    rows: NDArray[np.intp]  # positions of the query rows


def _folds(
    tasks: TaskSet,
    order: NDArray[np.intp],
    sizes: Sequence[int],
    n_folds: int,
    draws: dict[str, Any],
) -> list[_Fold]:
    """Divide tasks, in this order, into folds; a fold without a task of more than ``sizes[-1]`` rows is left out."""
    single = tasks[order].single_rows()
    is_evaluated = single.sizes > sizes[-1]
    if (n_evaluated := int(is_evaluated.sum())) < 2:
        needed = f"two tasks with more than {sizes[-1]} rows are needed, found {n_evaluated} of {len(tasks)}"
        advice = "more tasks" + ", or smaller numbers in `supports`" * (len(tasks) > 1)
        raise ValueError(f"tasks: at least {needed}. Use {advice}.")
    number = (
        np.random.default_rng([draws["random_state"], len(tasks)]).permutation(len(tasks)) % n_folds
    )
    folds = []
    for k in range(n_folds):
        held_out = np.flatnonzero(is_evaluated & (number == k))
        if not len(held_out):
            continue
        is_support, n_support = single[held_out].support_rows(sizes[-1], **draws)
        pool = single[held_out].with_rows(is_support, n_support)
        query = single[held_out].with_rows(~is_support, single.sizes[held_out] - n_support)
        supports = [
            pool if n >= pool.sizes.max() else pool.support_query(n, **draws)[0] for n in sizes
        ]
        positions = order[held_out]
        rows = np.concatenate(
            [np.arange(tasks.offsets[t], tasks.offsets[t + 1]) for t in positions]
        )
        rows = np.repeat(rows, row_copies(tasks)[rows])[~is_support]
        folds.append(_Fold(order[number != k], positions, supports, query, rows))
    return folds


def _score_folds(
    tasks: TaskSet,
    folds: Sequence[_Fold],
    methods: Mapping[str, Any],
    loss: Loss,
    coverage: float,
    advance: Callable[[int], object],
) -> tuple[dict[str, Array], Array]:
    """Return the scores by name, (n_methods, n_supports, n_tasks), and the predictions of the first method."""
    by_name: dict[str, Array] = {}
    predictions = []
    for k, fold in enumerate(folds):
        train, own = tasks[fold.train], list[Array]()
        for i, (name, method) in enumerate(methods.items()):
            LOG.info("evaluate: part %d of %d, %s", k + 1, len(folds), name)
            fitted = clone(method).fit(train)
            for j, support in enumerate(fold.supports):
                prediction, scores = _score(fitted, support, fold.query, loss, coverage)
                own += [prediction] if i == 0 else []
                for score, values in scores.items():
                    unknown = np.full((len(methods), len(fold.supports), len(tasks)), np.nan)
                    by_name.setdefault(score, unknown)[i, j, fold.tasks] = values
            advance(1)
        predictions.append(np.array(own))
    return by_name, np.concatenate(predictions, axis=1)


def _score(
    fitted: Any, support: TaskSet, query: TaskSet, loss: Loss, coverage: float
) -> tuple[Array, dict[str, Array]]:
    """Return the predictions, and the mean of each score over the rows of each task, with "covered" and "width"."""
    prediction, lower, upper = _predict(fitted, support, query, coverage)
    inside = np.where(np.isnan(lower), np.nan, (query.y >= lower) & (query.y <= upper))
    by_row = {
        **baselines.scores(prediction, query.y, loss),
        "covered": inside,
        "width": upper - lower,
    }
    weights = query.frequency_weight
    return prediction, {
        name: task_means(values, query.offsets, weights) for name, values in by_row.items()
    }


def _supports(tasks: TaskSet, supports: Sequence[int] | None) -> tuple[int, ...]:
    if supports is not None:
        if isinstance(supports, str) or np.ndim(supports) != 1 or not len(supports):
            raise ValueError(
                f"supports: expected numbers of rows such as [0, 5, 10], got {supports!r}"
            )
        return tuple(sorted({check_int("supports", rows, minimum=0) for rows in supports}))
    return tuple(rows for rows in SUPPORTS if rows == 0 or np.mean(tasks.sizes > rows) >= ENOUGH)


def _predict(
    fitted: Any, support: TaskSet, query: TaskSet, coverage: float
) -> tuple[Array, Array, Array]:
    """Return predictions and the lower and upper bounds of their intervals; NaN for methods without intervals."""
    missing = np.full(len(query.y), np.nan)
    if isinstance(fitted, baselines.Baseline):
        return fitted.predict_rows(support, query), missing, missing
    if is_classifier(fitted):
        return baselines.class_probabilities(fitted.predict_tasks(query, support)), missing, missing
    table = fitted.predict_tasks(query, support, coverage=coverage)
    return table["prediction"], table["lower"], table["upper"]


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
    n_support: float | int
    order: str
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
                f"estimator: task_scorer needs a learner with predict_tasks, such as EmpiricalBayesLearner, got {kind}"
            )
        if not isinstance(X, TaskSet) and groups is None:
            raise ValueError(
                "groups: task_scorer needs the task of each row; pass params={'groups': ...} with metadata routing "
                "enabled (sklearn.set_config(enable_metadata_routing=True))"
            )
        tasks = tasks_to_score(estimator, X, y, groups, side_info)
        draws: dict[str, Any] = {
            "random_state": self.random_state,
            "shuffle": self.order == "random",
        }
        support, query = tasks.support_query(self.n_support, **draws)
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
        order = "" if self.order == ORDERS[0] else f", order={self.order!r}"
        return f"task_scorer({self.scoring!r}, n_support={self.n_support!r}{order})"


def task_scorer(
    scoring: str = "neg_mean_absolute_error",
    *,
    n_support: float | int = 0.5,
    order: str = "random",
    random_state: int = 0,
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
