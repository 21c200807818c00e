"""Fits: every learner and baseline is fitted to odd tasks, at once or in parts, and used."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from inputs_checks import check_learned, check_model, check_summary, check_table
from inputs_data import FORMS, Drawn, as_arguments, draw, draw_shape, scaled
from inputs_learners import LEARNERS, NAMES, SHARES, Rng
from inputs_verdict import Failure, attempt, check_finite
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.learners.base import MetaLearner
from tailored.solvers import ProjectedSGD


def fit_one(rng: Rng, seen: dict[str, str]) -> None:
    """Fit one learner to odd tasks, and use what comes of it."""
    name = str(rng.choice(NAMES, p=SHARES))
    learner = LEARNERS[name][1](rng)
    bayes = name == "empirical Bayes"
    drawn = draw(rng, calm=0.5)
    if bayes and rng.random() < 0.7:
        drawn.parts, drawn.labels = drawn.parts[:4], drawn.labels[:4]
    seen.update(drawn.classes, call="fit", learner=name)
    is_learner = isinstance(learner, MetaLearner)
    form = (
        str(rng.choice(FORMS)) if is_learner else str(rng.choice(["task set", "sparse task set", "pandas"]))
    )
    seen["form"] = form
    arguments = attempt(lambda: as_arguments(rng, drawn, form))
    if arguments is None:
        return
    positional, named = arguments
    if is_learner and name != "independent" and rng.random() < (0.7 if bayes else 0.3):
        held_out = _held_out(rng, drawn, seen)
        if held_out is not None:
            named["validation"] = held_out
    fitted = attempt(lambda: learner.fit(*positional, **named), learner)
    if fitted is None:
        return
    check_learned(learner)
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
            and form not in ("integers", "booleans")
            and not (name == "independent" and learner.loss == "absolute"),
        )


#: With rows that are none of them zero their predictions are zero only for lack of range.
NEVER_ZERO = ("empirical Bayes", "independent", "mixed model", "ridge per task", "task mean")


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
    factors = 2.0 ** rng.integers(-200, 201, m) if exact else 10.0 ** rng.integers(-60, 61, m)
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
            attempt(lambda learner=learner, tasks=tasks: learner.fit(tasks, validation=tasks[:2]), learner)
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
    name = str(rng.choice(["conditional", "unconditional", "empirical Bayes"], p=[0.45, 0.45, 0.1]))
    learner = EmpiricalBayesLearner() if name == "empirical Bayes" else LEARNERS[name][1](rng)
    if name != "empirical Bayes":
        learner.set_params(solver=ProjectedSGD(0.1))
    drawn = [draw(rng, n_features=2, side=0, calm=0.7) for _ in range(2)]
    seen.update(drawn[1].classes, call="partial_fit", learner=name)
    for part in drawn:
        part.parts, part.labels = part.parts[:3], part.labels[:3]
        tasks = attempt(part.tasks)
        if tasks is not None and attempt(lambda tasks=tasks: learner.partial_fit(tasks), learner) is not None:
            check_learned(learner)
