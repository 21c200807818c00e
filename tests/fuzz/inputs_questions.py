"""Questions: fitted learners and parts on their own are asked odd ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from inputs_checks import check_model, check_probabilities, check_table
from inputs_data import FORMS, Drawn, as_arguments, as_response, draw, draw_shape, in_form, scaled
from inputs_learners import LEARNERS, Rng, response_of
from inputs_verdict import attempt, check_ends, check_finite
from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
)
from tailored.feature_maps import FEATURE_MAPS, get_feature_map
from tailored.learners.base import MetaLearner
from tailored.losses import Pinball
from tailored.solvers import ProjectedSGD


@cache
def fitted(name: str) -> tuple[Any, TaskSet, np.ndarray]:
    """A learner that odd questions are put to, its tasks, and the units of their columns and targets."""
    rng = np.random.default_rng([7, *name.encode()])
    described = "described" in name
    drawn = draw_shape(rng, "usual", 3, 2 if described else 0)
    m = 6 if described else 4
    factors = np.ones(m)
    if "mixed units" in name:
        factors = 10.0 ** np.array([50.0, -55.0, 3.0, 40.0, -45.0, 35.0])[:m]
    drawn = scaled(drawn, factors)
    tasks = drawn.tasks()
    maker: Any = EmpiricalBayesLearner()
    if "paper" in name:
        maker = ConditionalLearner(solver=ProjectedSGD(0.1))
    elif "independent" in name:
        maker = IndependentLearner(loss="squared")
    elif "quantile" in name:
        maker = EmpiricalBayesLearner(loss=Pinball(0.7))
    elif response_of(name.split(", ")[0]):
        maker = LEARNERS[name.split(", ")[0]][1](rng).set_params(fit_intercept=True)
        codes = (
            np.exp(np.clip(tasks.y, -2, 3))
            if response_of(name.split(", ")[0]) == "counts"
            else tasks.y > 0
        )
        tasks = tasks.replace(y=np.floor(codes.astype(float)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = maker.fit(tasks)
        if "paper" in name or "independent" in name:
            learner.calibrate_intervals(tasks)
    return learner, tasks, factors


FITTED = (
    "empirical Bayes", "empirical Bayes, described", "empirical Bayes, mixed units", "empirical Bayes, mixed units, described",
    "empirical Bayes, quantile", "the paper's", "the paper's, described", "independent",
    "classifier", "classifier, described", "poisson", "poisson, described", "negative binomial",
)  # fmt: skip


def ask_one(rng: Rng, seen: dict[str, str]) -> None:
    """Put an odd question to a learner that was fitted before."""
    name = str(rng.choice(FITTED))
    learner, known, factors = fitted(name)
    side = known.side_info.shape[1] if known.side_info is not None else 0
    drawn = draw(
        rng,
        n_features=3 if rng.random() < 0.9 else None,
        side=side if rng.random() < 0.9 else None,
        calm=0.4,
    )
    if rng.random() < 0.7 and drawn.n_features == 3 and "mixed units" in name:
        wide = np.ones(
            4
            + (
                len(drawn.parts[0][2])
                if drawn.has_side and drawn.parts[0][2].dtype != object
                else 0
            )
        )
        n = min(len(wide), len(factors))
        wide[:n] = factors[:n]
        if drawn.classes["shape"] in (
            "usual",
            "some empty tasks",
            "one row each",
        ) and drawn.has_side == bool(side):
            drawn = scaled(drawn, wide)
    if response_of(name.split(", ")[0]):
        drawn = as_response(rng, drawn, str(response_of(name.split(", ")[0])))
    is_classifier = isinstance(learner, EmpiricalBayesClassifier)
    calls = META if isinstance(learner, MetaLearner) else CLASSES if is_classifier else BASE
    call = str(rng.choice(list(calls)))
    seen.update(drawn.classes, call=call, learner=name)
    calls[call](rng, learner, known, drawn, seen)


def _one_task(rng: Rng, drawn: Drawn, seen: dict[str, str]) -> tuple[Any, Any, Any]:
    X, y, s = drawn.parts[int(rng.integers(len(drawn.parts)))]
    form = str(
        rng.choice(
            [
                "arrays",
                "Fortran order",
                "strided",
                "read-only",
                "float32",
                "integers",
                "objects",
                "lists",
                "csr",
            ]
        )
    )
    seen["form"] = form
    if X.ndim == 2 and y.ndim == 1:
        X, y = in_form(X, y, form)
    return X, y, s


def _adapt(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
    X, y, s = _one_task(rng, drawn, seen)
    model = attempt(lambda: learner.adapt(X, y, side_info=s), learner)
    if model is not None:
        query = known.X[:4] if rng.random() < 0.5 else X
        check_model(model, query)


def _update(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
    first = known[0]
    model = learner.adapt(first.X, first.y, side_info=first.side_info)
    X, y, _ = _one_task(rng, drawn, seen)
    if attempt(lambda: model.update(X, y), model) is not None:
        check_model(model, known.X[:4])


def _predict_model(
    rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]
) -> None:
    first = known[0]
    model = learner.adapt(first.X, first.y, side_info=first.side_info)
    X, _, _ = _one_task(rng, drawn, seen)
    for method in ("predict", "predict_std", "predict_interval"):
        found = attempt(lambda method=method: getattr(model, method)(X), model)
        if found is not None:
            (
                check_ends
                if method == "predict_interval"
                else lambda v, method=method: check_finite(method, v)
            )(found)


def _predict(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
    X, y, s = _one_task(rng, drawn, seen)
    labels = [*known.labels.tolist()[:2], "nobody", ("x", 1), None]
    groups: Any = [labels[i] for i in rng.integers(0, len(labels) - (rng.random() < 0.8), len(y))]
    if rng.random() < 0.1:
        groups = groups[:-1]
    side = None if s is None or rng.random() < 0.5 else np.tile(s, (len(y), 1))
    found = attempt(lambda: learner.predict(X, groups=groups, side_info=side), learner)
    if found is not None:
        check_finite("predict", found)


def _tasks_of(rng: Rng, drawn: Drawn, seen: dict[str, str]) -> TaskSet | None:
    seen["form"] = str(rng.choice(["task set", "sparse task set", "pandas", "polars"]))
    made = attempt(lambda: as_arguments(rng, drawn, seen["form"]))
    return None if made is None else made[0][0]


def _many(method: str) -> Callable[..., None]:
    def call(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
        tasks = _tasks_of(rng, drawn, seen)
        if tasks is None:
            return
        query = tasks if rng.random() < 0.5 else known
        if method == "task_errors":
            found = attempt(lambda: learner.task_errors(tasks, query), learner)
            if found is not None:
                check_finite(method, found[query.sizes > 0])
        elif method == "predict_rows":
            found = attempt(lambda: learner.predict_rows(tasks, query), learner)
            if found is not None:
                check_finite(method, found)
        elif method == "predict_tasks":
            support = None if rng.random() < 0.2 else tasks
            found = attempt(lambda: learner.predict_tasks(query, support), learner)
            # A learner that was calibrated after fit has no intervals for its tasks, and warns of it.
            kept = (
                learner.task_posterior_.has_covariances
                or not np.isin(query.labels, learner.task_labels_).any()
            )
            if found is not None:
                check_table(found, learner.calibration_ is not None and kept)
        else:
            found = attempt(lambda: getattr(learner, method)(tasks), learner)
            if found is not None:
                check_finite(method, found)

    return call


def _representation(
    rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]
) -> None:
    X, y, s = _one_task(rng, drawn, seen)
    if rng.random() < 0.3:
        X = y = None
    found = attempt(lambda: learner.representation(X, y, side_info=s), learner)
    if found is not None:
        check_finite("representation", found)


META: dict[str, Callable[..., None]] = {
    "adapt": _adapt,
    "update": _update,
    "predict of a model": _predict_model,
    "predict": _predict,
    "adapt_many": _many("adapt_many"),
    "predict_tasks": _many("predict_tasks"),
    "task_errors": _many("task_errors"),
    "score": _many("score"),
    "representations": _many("representation"),
    "representation": _representation,
}


def _classify(method: str) -> Callable[..., None]:
    """A question to a classifier, whose tasks have the classes 0 and 1."""

    def call(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
        if method in ("predict_tasks", "score"):
            tasks = _tasks_of(rng, drawn, seen)
            if tasks is not None and method == "score":
                attempt(lambda: check_finite("score", learner.score(tasks)), learner)
            elif tasks is not None:
                support = None if rng.random() < 0.2 else tasks
                table = attempt(lambda: learner.predict_tasks(tasks, support), learner)
                if table is not None:
                    check_probabilities(np.asarray(table["probability"])[:, None])
            return
        X, y, s = _one_task(rng, drawn, seen)
        if method == "predict_proba":
            groups = [["nobody", *known.labels.tolist()][i % 3] for i in range(len(y))]
            P = attempt(lambda: learner.predict_proba(X, groups=groups), learner)
        else:
            model = attempt(lambda: learner.adapt(X, y, side_info=s), learner)
            if model is not None and method == "update":
                attempt(lambda: model.update(X, y), model)
            P = None if model is None else attempt(lambda: model.predict_proba(known.X[:4]), model)
        if P is not None:
            check_probabilities(P, all_classes=True)

    return call


CLASSES: dict[str, Callable[..., None]] = {
    f"{method} of a classifier": _classify(method)
    for method in ("adapt", "update", "predict_proba", "predict_tasks", "score")
}


BASE: dict[str, Callable[..., None]] = {
    "predict_rows": _many("predict_rows"),
    "task_errors": _many("task_errors"),
}


def part_alone(rng: Rng, seen: dict[str, str]) -> None:
    """A task set, a feature map or one task's regressor."""
    drawn = draw(rng, calm=0.4)
    kind = str(rng.choice(["task set", "feature map", "task regressor"]))
    seen.update(drawn.classes, call=kind, learner="-")
    if kind == "task regressor":
        X, y, _ = _one_task(rng, drawn, seen)
        loss = str(rng.choice(["absolute", "squared", "huber"]))
        model = TaskRegressor(
            loss=loss,
            fit_intercept=bool(rng.random() < 0.5),
            inner=str(rng.choice(["exact", "online"])),
        )
        if attempt(lambda: model.fit(X, y), model) is not None:
            check_model(
                model,
                X
                if hasattr(X, "shape") and not sparse.issparse(X)
                else np.asarray(drawn.parts[0][0]),
            )
        return
    seen["form"] = str(rng.choice(FORMS))
    made = attempt(lambda: as_arguments(rng, drawn, seen["form"]))
    if made is None:
        return
    positional, named = made
    tasks = (
        positional[0]
        if isinstance(positional[0], TaskSet)
        else attempt(lambda: TaskSet(*positional, **named))
    )
    if tasks is None:
        return
    check_finite("X of the task set", tasks.X.data if tasks.is_sparse else tasks.X)
    check_finite("y of the task set", tasks.y)
    if kind == "feature map":
        name = str(rng.choice([*FEATURE_MAPS]))
        seen["learner"] = name
        feature_map = get_feature_map(name, has_side_info=tasks.side_info is not None)
        phi = attempt(lambda: feature_map.fit(tasks).transform(tasks))
        if phi is not None:
            check_finite("features", phi)
