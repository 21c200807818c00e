"""Fits: every learner is fitted to odd tasks, at once or in parts, and used."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from inputs_checks import (
    check_learned,
    check_model,
    check_probabilities,
    check_summary,
    check_table,
)
from inputs_data import (
    FORMS,
    Drawn,
    as_arguments,
    as_response,
    draw,
    draw_row_values,
    draw_shape,
    scaled,
)
from inputs_learners import LEARNERS, NAMES, SHARES, Rng, response_of
from inputs_verdict import Failure, attempt, check_finite
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.learners.base import MetaLearner
from tailored.solvers import ProjectedSGD


def fit_one(rng: Rng, seen: dict[str, str]) -> None:
    """Fit one learner to odd tasks, and use what comes of it."""
    name = str(rng.choice(NAMES, p=SHARES))
    learner = LEARNERS[name][1](rng)
    bayes = name in ("empirical Bayes", "classifier", "poisson", "negative binomial")
    response = response_of(name)
    drawn = draw(rng, calm=0.5)
    if response is not None:
        drawn = as_response(rng, drawn, response)
    if bayes and rng.random() < 0.7:
        drawn.parts, drawn.labels = drawn.parts[:4], drawn.labels[:4]
    seen.update(drawn.classes, call="fit", learner=name)
    form = str(rng.choice(FORMS))
    seen["form"] = form
    arguments = attempt(lambda: as_arguments(rng, drawn, form))
    if arguments is None:
        return
    positional, named = arguments
    if bayes and rng.random() < 0.3:
        positional, named = _with_row_values(rng, positional, named, seen)
        if name == "classifier":
            named.pop("exposure", None)
    if (
        isinstance(learner, MetaLearner)
        and name != "independent"
        and rng.random() < (0.7 if bayes else 0.3)
    ):
        held_out = _held_out(rng, drawn, seen)
        if held_out is not None:
            named["validation"] = held_out
    fitted = attempt(lambda: learner.fit(*positional, **named), learner)
    if fitted is None:
        return
    check_learned(learner)
    if name == "classifier":
        use_classifier(rng, learner, positional, named)
        return
    tasks = positional[0] if isinstance(positional[0], TaskSet) else attempt(lambda: drawn.tasks())
    if tasks is not None:
        plain = drawn.classes["shape"] == "usual" and drawn.classes["values"] == "normal"
        use(
            rng,
            learner,
            tasks,
            # (the absolute loss has weights that are)
            never_zero=plain
            and name in NEVER_ZERO
            # (small targets are zero in these forms: float32 has no number below 1e-45)
            and form not in ("integers", "booleans", "float32")
            # (the squares of the ridge are zero; columns below 1e-70 are not scaled, so that without an intercept the
            # products with them are zero)
            and not (
                drawn.classes["scale"] in ("subnormal", "beyond 1e±150")
                and (
                    name == "ridge per task"
                    or (name == "empirical Bayes" and not learner.fit_intercept)
                )
            )
            # (squares of targets of 1e-200 are zero, in the units of the paper's learners)
            and not (
                name == "independent"
                and (learner.loss == "absolute" or drawn.classes["scale"] == "beyond 1e±150")
            ),
        )


#: With rows that are none of them zero their predictions are zero only for lack of range.
NEVER_ZERO = ("empirical Bayes", "independent", "mixed model", "ridge per task", "task mean")


def _with_row_values(
    rng: Rng, positional: Any, named: Any, seen: dict[str, str]
) -> tuple[Any, Any]:
    """The same arguments with weights or exposures: of a task set only valid ones, which nothing checks."""
    given = positional[0]
    if not isinstance(given, TaskSet):
        n = len(positional[1])
        return positional, {**named, **draw_row_values(rng, n, seen)}
    values = draw_row_values(rng, len(given.y), seen)
    (value,) = values.values()
    if len(value) == len(given.y) and np.isfinite(value).all() and (value > 0).all():
        return (given.replace(**values),), named
    return positional, named


def use_classifier(rng: Rng, classifier: Any, positional: Any, named: Any) -> None:
    """A fitted classifier on its own tasks: probabilities add up to one, and labels are known."""
    labels = named.get("groups")
    if isinstance(positional[0], TaskSet):
        tasks = positional[0]
        X, y, labels = tasks.X, tasks.y, np.repeat(tasks.labels, tasks.sizes)
        table = attempt(lambda: classifier.predict_tasks(tasks, tasks), classifier)
        if table is not None:
            check_probabilities(np.column_stack([table[name] for name in table.dtype.names[1:]]))
        attempt(lambda: check_finite("score", classifier.score(tasks)), classifier)
    else:
        X, y = positional
    P = attempt(lambda: classifier.predict_proba(X, groups=labels), classifier)
    if P is not None:
        check_probabilities(P, all_classes=True)
    n = int(rng.integers(1, 4))
    first = (X[:n], y[:n]) if rng.random() < 0.7 else (None, None)
    if not hasattr(X, "format"):  # rows of sparse formats cannot all be sliced
        side = getattr(positional[0], "side_info", None)
        side = (
            next(iter(named["side_info"].values()))
            if "side_info" in named
            else None
            if side is None
            else side[0]
        )
        model = attempt(lambda: classifier.adapt(*first, side_info=side), classifier)
        P = None if model is None else attempt(lambda: model.predict_proba(X), model)
        if P is not None:
            check_probabilities(P, all_classes=True)
            check_finite("coef_", model.coef_)
    if rng.random() < 0.3 and len(classifier.classes_) == 2:
        said = attempt(classifier.summary, classifier)
        if said is not None:
            attempt(lambda: str(said) + repr(said.frames))


def _held_out(rng: Rng, drawn: Drawn, seen: dict[str, str]) -> TaskSet | None:
    kind = str(rng.choice(["usual", "all empty", "some empty"]))
    seen["validation"] = kind
    parts = []
    for i, (X, y, s) in enumerate(drawn.parts[:3]):
        n = 0 if kind == "all empty" or (kind == "some empty" and i) else len(y)
        parts.append((X[:n], y[:n], s))
    held_out = Drawn(parts, drawn.n_features, [f"held out {i}" for i in range(len(parts))], {})
    return attempt(held_out.tasks)


def use(rng: Rng, learner: Any, tasks: TaskSet, *, never_zero: bool) -> None:
    """A fitted learner on the tasks that it was fitted to: all of it is finite."""
    meta = isinstance(learner, MetaLearner)
    first = tasks[int(rng.integers(len(tasks)))]
    X, y = first.X, first.y
    if meta:
        model = attempt(
            lambda: (
                learner.adapt(X, y, side_info=first.side_info)
                if len(y)
                else learner.adapt(side_info=first.side_info)
            ),
            learner,
        )
        if model is not None:
            check_model(model, X)
        theta = attempt(lambda: learner.representation(side_info=first.side_info), learner)
        if theta is not None:
            check_finite("representation", theta)
        labels = [first.label, "a task that nobody saw"]
        if len(y) > 1:
            groups = [labels[i % 2] for i in range(len(y))]
            found = attempt(lambda: learner.predict(X, groups=groups), learner)
            if found is not None:
                check_finite("predict", found)
        if learner.prior_.quantile is None:
            found = attempt(lambda: learner.adapt_many(tasks), learner)
            if found is not None:
                check_finite("adapt_many", found)
        table = attempt(lambda: learner.predict_tasks(tasks, tasks), learner)
        if table is not None:
            check_table(table, learner.calibration_ is not None)
            if never_zero and (np.asarray(table["prediction"]) == 0.0).any():
                raise Failure("a prediction is exactly zero")
        if rng.random() < 0.3:
            check_summary(learner, tasks)
        if rng.random() < 0.3:
            again = attempt(lambda: learner.score(tasks), learner)
            if again is not None:
                check_finite("score", again)
    else:
        found = attempt(lambda: learner.predict_rows(tasks, tasks), learner)
        if found is not None:
            check_finite("predict_rows", found)
            if never_zero and (found == 0.0).any():
                raise Failure("a prediction is exactly zero")
    errors = attempt(lambda: learner.task_errors(tasks, tasks), learner)
    if errors is not None:
        check_finite("task_errors", errors[tasks.sizes > 0])


def fit_two_units(rng: Rng, seen: dict[str, str]) -> None:
    """Columns, targets and descriptions in other units: the same results in those units."""
    exact = rng.random() < 0.7
    # Steps of EM end where they are small: results are those of the data only where rows leave little open.
    drawn = draw_shape(rng, "usual" if exact else "many rows", None, None)
    drawn.parts, drawn.labels = drawn.parts[:5], drawn.labels[:5]
    m = drawn.n_features + 1 + (len(drawn.parts[0][2]) if drawn.has_side else 0)
    # Curves need columns with a range between 1e-50 and 1e50.
    factors = 2.0 ** rng.integers(-150, 151, m) if exact else 10.0 ** rng.integers(-45, 46, m)
    seen.update(
        call="fit in two units",
        learner="empirical Bayes",
        scale="powers of two" if exact else "powers of ten",
    )
    plain, other = drawn.tasks(), scaled(drawn, factors).tasks()
    found = []
    for tasks in (plain, other):
        learner = EmpiricalBayesLearner()
        if (
            attempt(
                lambda learner=learner, tasks=tasks: learner.fit(tasks, validation=tasks[:2]),
                learner,
            )
            is None
        ):
            raise Failure("usual tasks were refused")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = learner.predict_tasks(tasks, tasks[1:])
        found.append(np.column_stack([table[c] for c in ("prediction", "lower", "upper", "std")]))
    size = float(np.std(plain.y))
    gap = float(np.abs(found[1] / factors[drawn.n_features] - found[0]).max() / size)
    if not gap <= (1e-9 if exact else 1e-6):
        raise Failure(f"predictions in other units differ by {gap:.1g} of the spread of y")


def stream_one(rng: Rng, seen: dict[str, str]) -> None:
    """`partial_fit` in two pieces of different kinds."""
    name = str(rng.choice(["conditional", "unconditional"]))
    learner = LEARNERS[name][1](rng).set_params(solver=ProjectedSGD(0.1))
    drawn = [draw(rng, n_features=2, side=0, calm=0.7) for _ in range(2)]
    seen.update(drawn[1].classes, call="partial_fit", learner=name)
    for part in drawn:
        part.parts, part.labels = part.parts[:3], part.labels[:3]
        tasks = attempt(part.tasks)
        if (
            tasks is not None
            and attempt(lambda tasks=tasks: learner.partial_fit(tasks), learner) is not None
        ):
            check_learned(learner)
