"""Evaluate learners on tasks that they were not fitted to.

`evaluate` cross-validates over whole tasks.  It predicts the same rows of a held-out task for every
number of support rows and every method, so that all errors are comparable.  `task_scorer` makes a
scorer for scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.utils.metadata_routing import MetadataRequest
from threadpoolctl import threadpool_limits

from .._utils.frames import as_frame
from .._utils.progress import progress_bar
from .._utils.tables import Table, format_number, plural
from .._utils.validation import check_fraction, check_int
from ..gaussian.responses import RESPONSES, Bernoulli, Response
from ..learners.classifier import EmpiricalBayesClassifier, task_probabilities
from ..learners.empirical_bayes import EmpiricalBayesLearner
from ..learners.reading import tasks_to_score
from ..losses import Loss, error_name, get_loss
from ..show.displays import PALETTE, new_axes, shortened
from ..tasks.episodes import SupportLike, SupportSampling, split_first
from ..tasks.reading import label_keys
from ..tasks.rows import Array, standard_errors, task_means
from ..tasks.task_set import TaskSet, check_task_set, target_positions
from .baselines import BASELINES, DESCRIPTIONS, Baseline

__all__ = ["BASELINES", "Evaluation", "task_scorer"]


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """Errors of methods on new tasks; ``print`` shows tables, `to_frame` returns one, and `plot`
    draws them.

    Attributes
    ----------
    methods, supports : tuples of str and int
        The methods, and the numbers of support rows of each new task.
    labels : array (n_tasks,)
        The evaluated tasks.
    scores : dict of str to array (n_methods, n_supports, n_tasks)
        Means over the rows of each task: the error first, such as "squared error"; "covered" and
        "width" are those of the prediction interval.
    predictions : frame
        Predictions of the first method.
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
    def covered(self) -> Array:
        """Fractions of targets inside the intervals, (n_methods, n_supports)."""
        return self.scores["covered"].mean(axis=2)

    @property
    def has_intervals(self) -> bool:
        """Whether the first method has prediction intervals."""
        return bool(np.isfinite(self.covered[0]).all())

    @property
    def tables(self) -> list[Table]:
        """Tables of the scores: means over tasks with standard errors, by number of support rows;
        the last table defines each baseline.
        """
        found = []
        definitions = [
            f"{name}: {text}" for name, text in DESCRIPTIONS.items() if name in self.methods
        ]
        caption = "± is the standard error over tasks. All columns have the same query rows."
        names = [name for name in self.scores if name not in ("covered", "width")]
        for name in names:
            mean, error = self.scores[name].mean(axis=2), standard_errors(self.scores[name])
            rows = [
                [method, *map(_with_error, *pair)]
                for method, *pair in zip(self.methods, mean, error, strict=True)
            ]
            if name == names[0] and self.has_intervals:
                covered = (f"{100 * fraction:.1f} %" for fraction in self.covered[0])
                rows.append([f"inside {100 * self.coverage:g} % intervals", *covered])
            tasks = plural(len(self.labels), "new task")
            title = f"Mean {name} on {tasks}, by number of support rows"
            text = " ".join([caption, *definitions]) if name == names[-1] else ""
            columns = ["method", *map(str, self.supports)]
            found.append(Table.of_rows(title, columns, rows, text, n_printed=len(rows)))
        return found

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    __repr__ = __str__

    def to_frame(self) -> Any:
        """Return a line for every method and number of support rows: errors, standard errors,
        further scores.
        """
        columns: dict[str, Any] = {
            "method": np.repeat(self.methods, len(self.supports)),
            "rows": np.tile(self.supports, len(self.methods)),
            "error": self.mean.ravel(),
            "standard_error": standard_errors(self.errors).ravel(),
        }
        for name, values in list(self.scores.items())[1:]:
            columns[name.lower().replace(" ", "_")] = values.mean(axis=2).ravel()
        return as_frame(columns)

    def plot(self, ax: Any = None) -> Any:
        """Draw the errors, with bands of one standard error, on ``ax`` or in a new figure; return
        the axes.  Errors far above the others are left out.
        """
        x, own = np.arange(len(self.supports)), self.mean[0]
        error = standard_errors(self.errors[0])
        ax = new_axes(4.4, 3.5) if ax is None else ax
        styles = cycle(zip(PALETTE, "o^sDvPX", strict=True))
        for name, mean, (color, marker) in zip(self.methods, self.mean, styles, strict=False):
            ax.plot(x, mean, label=shortened(name), color=color, marker=marker)
        ax.fill_between(x, own - error, own + error, color=PALETTE[0], alpha=0.18)
        # Baselines with very large errors at few rows would flatten the other lines.
        top = max(1.1 * own.max(), 2.5 * np.median(self.mean))
        ax.set_ylim(top=min(top, ax.get_ylim()[1]))
        ax.set_xticks(x, [f"{n:,}" for n in self.supports])
        xlabel = f"support rows ({len(self.labels):,} tasks)"
        ax.set(xlabel=xlabel, ylabel=f"mean {self.error_name}")
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
        return ax


def evaluate(
    tasks: TaskSet,
    methods: Any = None,
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
        The tasks.
    methods : learner, or mapping of str to learners and baselines, optional
        Clones of them are fitted.  A single learner, by default `EmpiricalBayesLearner`, is
        compared with the `tailored.evaluation.BASELINES` for this kind of target.  For classes, all
        methods must predict probabilities.
    supports : sequence of int, "first" or ("first", ...), optional
        Numbers of random support rows, or, with ``"first"`` or ``("first", 0, 5)``, of first rows.
        Tasks with more rows than the largest number are evaluated, the others only used for
        fitting.  By default those of 0, 1, 2, 5, 10, 20 and 50 that at least half of the tasks
        exceed.
    n_folds : int, default=5
        Number of folds of tasks.
    loss : str or Loss, optional
        Loss whose error is averaged over the rows of a task, such as "squared" or "absolute"; for
        counts and classes, half the Poisson deviance and the log loss.  By default that of the
        first `EmpiricalBayesLearner` among the methods, or "squared".
    coverage : float, default=0.9
        Nominal coverage of the prediction intervals.
    random_state : int, default=0
        Seed of the folds and of the support rows.
    progress : bool, default=False
        Show a progress bar.
    """
    check_task_set(tasks)
    n_folds = check_int("n_folds", n_folds, minimum=2)
    random_state = check_int("random_state", random_state, 0)
    check_fraction("coverage", coverage)
    tasks, named, loss, classes = _prepared(tasks, methods, loss)
    folds = _folds(tasks, supports, min(n_folds, len(tasks)), random_state)
    supports = tuple(folds[0].supports)
    shape = len(named), len(supports), len(tasks)
    scores: dict[str, Array] = {}
    predictions = []
    # With few rows, the threads of scikit-learn's boosting wait longer than they compute.
    one_thread = threadpool_limits(1 if len(tasks.y) < 50_000 else None, user_api="openmp")
    bar = progress_bar("evaluate", len(folds) * len(named), enabled=progress)
    with one_thread, bar as advance:
        for fold in folds:
            for i, method in enumerate(named.values()):
                fitted = clone(method).fit(tasks[fold.train])
                for j, (n, support) in enumerate(fold.supports.items()):
                    predicted, found = _score(fitted, support, fold.query, loss, coverage)
                    for name, values in found.items():
                        scores.setdefault(name, np.full(shape, np.nan))[i, j, fold.tasks] = values
                    if i == 0:
                        predictions.append((fold.rows, n, predicted))
                advance(1)
    evaluated = np.sort(np.concatenate([fold.tasks for fold in folds]))
    return Evaluation(
        methods=tuple(named),
        supports=supports,
        labels=tasks.labels[evaluated],
        scores={name: values[:, :, evaluated] for name, values in scores.items()},
        predictions=_prediction_frame(tasks, classes, predictions),
        coverage=coverage,
        classes=classes,
    )


def _prepared(
    tasks: TaskSet, methods: Any, loss: str | Loss | None
) -> tuple[TaskSet, dict[str, Any], Loss, tuple[Any, ...]]:
    """Return tasks with positions of classes as targets, the methods by name, the loss, and the
    classes, if there are any.
    """
    classes: tuple[Any, ...] = () if tasks.encoding is None else tasks.encoding.classes
    if methods is None:
        squared = "squared" if loss is None else loss
        methods = EmpiricalBayesClassifier() if classes else EmpiricalBayesLearner(loss=squared)
    named = dict(methods) if isinstance(methods, Mapping) else {"tailored": methods}
    if not all(hasattr(method, "fit") for method in named.values()):
        raise TypeError(
            "methods: expected a learner, or a dict of names and learners, such as {'mine': "
            "EmpiricalBayesLearner()}"
        )
    if classes or any(map(is_classifier, named.values())):
        loss, classes = Bernoulli(), classes or tuple(np.unique(tasks.y).tolist())
        tasks = tasks.replace(y=target_positions(tasks, classes))
    if loss is None:
        own = [each.loss for each in named.values() if isinstance(each, EmpiricalBayesLearner)]
        loss = own[0] if own else "squared"
    if isinstance(loss, str):
        loss = RESPONSES[loss]() if loss in RESPONSES else get_loss(loss)
    if not isinstance(methods, Mapping):
        kind = "classes" if classes else "counts" if isinstance(loss, Response) else "numbers"
        named |= BASELINES[kind]
        if kind == "numbers":  # a formula determines the intercept
            mixed = clone(named["mixed model"])
            named["mixed model"] = mixed.set_params(fit_intercept=methods.fit_intercept)
    return tasks, named, loss, classes


def _with_error(mean: float, error: float) -> str:
    """Format a mean and its standard error in the same notation."""
    text = format_number(mean)
    if "e" in text:
        return f"{text} ± {error:.1e}"
    return f"{text} ± {np.format_float_positional(error, 2, fractional=False, trim='-')}"


def _prediction_frame(
    tasks: TaskSet, classes: tuple[Any, ...], parts: Sequence[tuple[Any, int, Array]]
) -> Any:
    """Return predictions as a frame; ``parts`` are positions of rows, the number of support rows,
    and predictions.
    """
    rows, predicted = (np.concatenate([part[i] for part in parts]) for i in (0, 2))
    n_support = np.concatenate([np.full(len(part), n) for part, n, _ in parts])
    targets = tasks.y[rows]
    columns = {
        "task": tasks.labels[tasks.task_of_row[rows]],
        "row": rows,
        "target": np.array(classes)[targets.astype(int)] if classes else targets,
        "support": n_support,
    }
    names = [f"probability_{label}" for label in classes] or ["prediction"]
    return as_frame(columns | dict(zip(names, predicted.reshape(len(rows), -1).T, strict=True)))


class _Fold(NamedTuple):
    """A partition into training tasks and held-out tasks, which have the same query rows for every
    number of support rows.
    """

    train: NDArray[np.intp]  # positions of the training tasks
    tasks: NDArray[np.intp]  # positions of the held-out tasks
    supports: dict[int, TaskSet]
    query: TaskSet
    rows: NDArray[np.intp]  # positions of the query rows


def _folds(tasks: TaskSet, supports: Any, n_folds: int, random_state: int) -> list[_Fold]:
    """Divide tasks into folds; a fold without a task of more rows than the largest number of
    support rows is left out.
    """
    in_order, numbers = split_first(supports)
    draws: dict[str, Any] = {"random_state": random_state, "shuffle": not in_order}
    # Folds and support rows are drawn by position, so sort the tasks: their order must not affect
    # the result.
    order = np.argsort(label_keys(tasks.labels, random_state), kind="stable")
    single = tasks[order].single_rows()
    numbered = tasks.replace(y=np.arange(float(len(tasks.y))))[order]
    if not numbers:
        exceeded = [rows for rows in (1, 2, 5, 10, 20, 50) if np.mean(single.sizes > rows) >= 0.5]
        numbers = [0, *exceeded]
    counts = sorted({check_int("supports", rows, minimum=0) for rows in numbers})
    is_evaluated = single.sizes > counts[-1]
    if is_evaluated.sum() < 2:
        found = f"{is_evaluated.sum()} of {len(tasks)} tasks have more than {counts[-1]} rows"
        raise ValueError(
            f"tasks: {found}, and at least two are needed. Use more tasks, or smaller numbers in "
            "`supports`."
        )
    rng = np.random.default_rng([random_state, len(tasks)])
    number = rng.permutation(len(tasks)) % n_folds
    folds = []
    for k in range(n_folds):
        held_out = np.flatnonzero(is_evaluated & (number == k))
        if not len(held_out):
            continue
        pool, query = single[held_out].support_query(counts[-1], **draws)
        rows = numbered[held_out].support_query(counts[-1], **draws)[1].y.astype(np.intp)
        chosen = {
            n: pool if n >= pool.sizes.max() else pool.support_query(n, **draws)[0] for n in counts
        }
        folds.append(_Fold(order[number != k], order[held_out], chosen, query, rows))
    return folds


def _score(
    fitted: Any, support: TaskSet, query: TaskSet, loss: Loss, coverage: float
) -> tuple[Array, dict[str, Array]]:
    """Return the predictions, and the mean of each score over the rows of each task."""
    lower = upper = np.full(len(query.y), np.nan)
    if isinstance(fitted, Baseline):
        predicted = fitted.predict_rows(support, query)
    elif is_classifier(fitted):
        predicted = task_probabilities(fitted.learners_, query, support)
    else:
        table = fitted.predict_tasks(query, support, coverage=coverage)
        predicted, lower, upper = (table[name] for name in ("prediction", "lower", "upper"))
    y, weights = query.y, query.frequency_weight
    if predicted.ndim == 1:
        by_row = {error_name(loss.name): loss.error(predicted, y)}
        if isinstance(loss, Response):
            by_row["absolute error"] = np.abs(predicted - y)
    else:
        observed = y[:, None] == np.arange(predicted.shape[1])
        # Clip, so that no row has an infinite log loss.
        own = np.clip((predicted * observed).sum(axis=1), 1e-6, 1.0 - 1e-6)
        squares = ((predicted - observed) ** 2).sum(axis=1)
        by_row = {
            "log loss": -np.log(own),
            "Brier score": 0.5 * squares if predicted.shape[1] == 2 else squares,
            "accuracy": 1.0 * (predicted.argmax(axis=1) == y),
        }
    by_row["covered"] = np.where(np.isnan(lower), np.nan, (y >= lower) & (y <= upper))
    by_row["width"] = upper - lower
    return predicted, {
        name: task_means(values, query.offsets, weights) for name, values in by_row.items()
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


@dataclass(frozen=True)
class task_scorer:
    """Scorer for `GridSearchCV` and `cross_val_score` over whole tasks.

    It adapts to some rows of each task, and scores the predictions of its other rows.

    Parameters
    ----------
    scoring : str
        Name of one of scikit-learn's scorers, applied to the predictions of all query rows.
    n_support : default=0.5
        As in `EmpiricalBayesLearner`; of a range, its middle.  One row of a task is always scored.
    random_state : int, RandomState or None, default=0
        Seed of the support rows.
    """

    scoring: str = "neg_mean_absolute_error"
    n_support: SupportLike = field(default=0.5, kw_only=True)
    random_state: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        # Raise for invalid arguments now; in cross-validation the score would be NaN.
        get_scorer(self.scoring)
        SupportSampling.of(self.n_support)

    def __call__(
        self, estimator: Any, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None
    ) -> float:
        """Return the score of a fitted learner, which may be in a search or the last step of a
        pipeline.
        """
        estimator = getattr(estimator, "best_estimator_", estimator)
        if (steps := getattr(estimator, "steps", None)) is not None:
            X = estimator[:-1].transform(X) if len(steps) > 1 else X
            estimator = steps[-1][1]
        if not hasattr(estimator, "predict_tasks"):
            raise TypeError(
                "estimator: task_scorer needs a learner with predict_tasks, such as "
                f"EmpiricalBayesLearner, got {type(estimator).__name__}"
            )
        if not isinstance(X, TaskSet) and groups is None:
            raise ValueError(
                "groups: task_scorer needs the task of each row; pass params={'groups': ...} with "
                "metadata routing enabled (sklearn.set_config(enable_metadata_routing=True))"
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
