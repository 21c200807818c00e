"""The calls: every learner and baseline is fitted to odd tasks, and fitted ones are asked odd questions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from inputs_data import FORMS, Drawn, as_arguments, draw, draw_shape, in_form, scaled
from inputs_verdict import Failure, attempt, check_ends, check_finite
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
from tailored.baselines import BASELINES, EARLIER_METHODS, PooledBoosting
from tailored.feature_maps import FEATURE_MAPS, get_feature_map
from tailored.learners import MetaLearner
from tailored.losses import Pinball
from tailored.solvers import LBFGS, Adam, ProjectedSGD

Rng = np.random.Generator

#: One or two steps are enough to see what numbers do.
SEARCH = {
    "trace-constrained": {"step_size": [0.01, 10.0], "regularization": [0.1]},
    "unconditional bias": {"step_size": [0.01, 10.0], "regularization": [0.1]},
    "conditional bias": {"step_size": [0.01, 10.0], "regularization": [0.1]},
    "Frank-Wolfe": {"radius": [0.1, 10.0], "n_iterations": 5},
    "multi-task feature learning": {"regularization": [0.01, 1.0], "n_rounds": 5},
}


def _steps(rng: Rng) -> Any:
    solvers: list[Any] = [
        ProjectedSGD(step_sizes=[1e-3, 1.0]),
        ProjectedSGD(0.1),
        Adam(max_passes=3),
        LBFGS(max_passes=3),
    ]
    return solvers[rng.integers(len(solvers))]


def _paper(rng: Rng, kind: Callable[..., Any], **options: Any) -> Any:
    return kind(
        solver=_steps(rng),
        objective=str(rng.choice(["surrogate", "query"])),
        loss=str(rng.choice(["absolute", "squared", "huber"])),
        bias=str(rng.choice(["none", "shared"])),
        fit_intercept=bool(rng.random() < 0.7),
        **options,
    )


def _bayes(rng: Rng) -> Any:
    loss: Any = rng.choice(np.array(["absolute", "squared", Pinball(0.8)], dtype=object), p=[0.7, 0.2, 0.1])
    support = [None, None, 1, 0.5][rng.integers(4)]
    return EmpiricalBayesLearner(loss=loss, fit_intercept=bool(rng.random() < 0.8), support=support)


def _conditional(rng: Rng) -> Any:
    maps = ["auto", "auto", *(name for name in FEATURE_MAPS if name not in ("posterior", "vector"))]
    return _paper(rng, ConditionalLearner, feature_map=str(rng.choice(maps)))


#: How often each is fitted, and how it is made; a fit of empirical Bayes takes as long as ten others.
LEARNERS: dict[str, tuple[float, Callable[[Rng], Any]]] = {
    "empirical Bayes": (1.0, _bayes),
    "conditional": (2.0, _conditional),
    "unconditional": (2.0, lambda rng: _paper(rng, UnconditionalLearner)),
    "independent": (2.0, lambda rng: IndependentLearner(loss=str(rng.choice(["absolute", "squared"])))),
    **{name: (1.0, lambda rng, kind=kind: kind()) for name, kind in BASELINES.items()},
    **{
        name: (1.0, lambda rng, kind=kind, name=name: kind(**SEARCH[name]))
        for name, kind in EARLIER_METHODS.items()
    },
    "boosting": (0.5, lambda rng: PooledBoosting(max_iter=3, n_draws=1)),
}
NAMES = list(LEARNERS)
SHARES = np.array([share for share, _ in LEARNERS.values()]) / sum(share for share, _ in LEARNERS.values())


# --- fitting


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
NEVER_ZERO = ("empirical Bayes", "independent", "mixed model", "ridge per task", "task mean", "task median")


def _held_out(rng: Rng, drawn: Drawn, seen: dict[str, str]) -> TaskSet | None:
    kind = str(rng.choice(["usual", "all empty", "some empty"]))
    seen["validation"] = kind
    parts = []
    for i, (X, y, s) in enumerate(drawn.parts[:3]):
        n = 0 if kind == "all empty" or (kind == "some empty" and i) else len(y)
        parts.append((X[:n], y[:n], s))
    held_out = Drawn(parts, drawn.n_features, [f"held out {i}" for i in range(len(parts))], {})
    return attempt(held_out.tasks)


def check_learned(learner: Any) -> None:
    for name in (
        "validation_error_",
        "scale_",
        "task_weights_",
        "mean_",
        "median_",
        "coef_",
        "covariance_",
        "noise_",
    ):
        value = vars(learner).get(name)
        if value is not None:
            check_finite(name, value)
    prior = vars(learner).get("prior_")
    if prior is not None and prior.calibration is not None:
        check_finite("noise of the calibration", prior.calibration.noise)


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
    elif not isinstance(learner, PooledBoosting):
        found = attempt(lambda: learner.adapt_many(tasks), learner)
        if found is not None:
            check_finite("adapt_many", found)
        model = attempt(lambda: learner.adapt(X, y), learner)
        if model is not None and len(y):
            found = model.predict(X)
            check_finite("predict", found)
            if never_zero and (found == 0.0).any():
                raise Failure("a prediction is exactly zero")
    errors = attempt(lambda: learner.task_errors(tasks, tasks), learner)
    if errors is not None:
        check_finite("task_errors", errors[tasks.sizes > 0])


def check_model(model: Any, X: Any) -> None:
    check_finite("coef_", model.coef_)
    check_finite("intercept_", model.intercept_)
    check_finite("dual_gap_", model.dual_gap_)
    if model.representation_ is not None:
        check_finite("representation_", model.representation_)
    if not len(X) if isinstance(X, list) else not X.shape[0]:
        return
    found = attempt(lambda: model.predict(X), model)
    if found is not None:
        check_finite("predict", found)
    if model._one is None or model._one.prior.calibration is None:
        return
    ends = attempt(lambda: model.predict_interval(X), model)
    if ends is not None:
        check_ends(ends)
    deviation = attempt(lambda: model.predict_std(X), model)
    if deviation is not None:
        check_finite("predict_std", deviation)
        if (deviation < 0).any():
            raise Failure("predict_std is negative")


def check_summary(learner: Any, tasks: TaskSet) -> None:
    """What is said of the learner; NaN is what it does not know."""
    said = attempt(learner.summary, learner)
    if said is not None:
        attempt(lambda: str(said) + repr(said.to_dict()))
        for name, table in said.tables.items():
            for column, values in table.columns.items():
                if any(isinstance(value, float) and np.isinf(value) for value in values):
                    raise Failure(f"summary: {column!r} of {name!r} has an infinity")
    effects = attempt(lambda: learner.effects(tasks), learner)
    if effects is not None:
        check_finite("effects", effects["effect"])


def check_table(table: Any, calibrated: bool) -> None:
    check_finite("predict_tasks", np.asarray(table["prediction"]))
    if calibrated:
        check_ends(np.column_stack([np.asarray(table["lower"]), np.asarray(table["upper"])]))
        check_finite("std of predict_tasks", np.asarray(table["std"]))


# --- equivariance of empirical Bayes


def fit_two_units(rng: Rng, seen: dict[str, str]) -> None:
    """Columns, targets and descriptions in other units: the same results in those units."""
    exact = rng.random() < 0.7
    # Steps of EM end where they are small: results are those of the data only where rows leave little open.
    drawn = draw_shape(rng, "usual" if exact else "many rows", None, None)
    drawn.parts, drawn.labels = drawn.parts[:5], drawn.labels[:5]
    m = drawn.n_features + 1 + (len(drawn.parts[0][2]) if drawn.has_side else 0)
    factors = 2.0 ** rng.integers(-425, 426, m) if exact else 10.0 ** rng.integers(-128, 129, m)
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


# --- questions to fitted learners


@cache
def fitted(name: str) -> tuple[Any, TaskSet, np.ndarray]:
    """A learner that odd questions are put to, its tasks, and the units of their columns and targets."""
    rng = np.random.default_rng([7, *name.encode()])
    described = "described" in name
    drawn = draw_shape(rng, "usual", 3, 2 if described else 0)
    m = 6 if described else 4
    factors = np.ones(m)
    if "mixed units" in name:
        factors = 10.0 ** np.array([120.0, -130.0, 3.0, 90.0, -100.0, 80.0])[:m]
    drawn = scaled(drawn, factors)
    tasks = drawn.tasks()
    maker: Any = EmpiricalBayesLearner()
    if "paper" in name:
        maker = ConditionalLearner(solver=ProjectedSGD(0.1))
    elif "independent" in name:
        maker = IndependentLearner(loss="squared")
    elif "quantile" in name:
        maker = EmpiricalBayesLearner(loss=Pinball(0.7))
    elif name in BASELINES:
        maker = BASELINES[name]()
        if name == "item and user bias":
            tasks = TaskSet.from_arrays(
                np.eye(3)[np.arange(len(tasks.y)) % 3], tasks.y, tasks.offsets, tasks.labels
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = maker.fit(tasks)
        if "paper" in name or "independent" in name:
            learner.calibrate_intervals(tasks)
    return learner, tasks, factors


FITTED = (
    "empirical Bayes", "empirical Bayes, described", "empirical Bayes, mixed units", "empirical Bayes, mixed units, described",
    "empirical Bayes, quantile", "the paper's", "the paper's, described", "independent", *BASELINES,
)  # fmt: skip


def ask_one(rng: Rng, seen: dict[str, str]) -> None:
    """Put an odd question to a learner that was fitted before."""
    name = str(rng.choice(FITTED))
    learner, known, factors = fitted(name)
    side = known.side_info.shape[1] if known.side_info is not None else 0
    drawn = draw(
        rng, n_features=3 if rng.random() < 0.9 else None, side=side if rng.random() < 0.9 else None, calm=0.4
    )
    if rng.random() < 0.7 and drawn.n_features == 3 and "mixed units" in name:
        wide = np.ones(
            4 + (len(drawn.parts[0][2]) if drawn.has_side and drawn.parts[0][2].dtype != object else 0)
        )
        n = min(len(wide), len(factors))
        wide[:n] = factors[:n]
        if drawn.classes["shape"] in ("usual", "some empty tasks", "one row each") and drawn.has_side == bool(
            side
        ):
            drawn = scaled(drawn, wide)
    calls = META if isinstance(learner, MetaLearner) else BASE
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


def _predict_model(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
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
        elif method == "predict_tasks":
            support = None if rng.random() < 0.2 else tasks
            found = attempt(lambda: learner.predict_tasks(query, support), learner)
            # A learner that was calibrated after fit has no intervals for its tasks, and warns of it.
            kept = hasattr(learner, "task_spreads_") or not np.isin(query.labels, learner.task_labels_).any()
            if found is not None:
                check_table(found, learner.calibration_ is not None and kept)
        else:
            found = attempt(lambda: getattr(learner, method)(tasks), learner)
            if found is not None:
                check_finite(method, found)

    return call


def _representation(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
    X, y, s = _one_task(rng, drawn, seen)
    if rng.random() < 0.3:
        X = y = None
    found = attempt(lambda: learner.representation(X, y, side_info=s), learner)
    if found is not None:
        check_finite("representation", found)


def _adapt_base(rng: Rng, learner: Any, known: TaskSet, drawn: Drawn, seen: dict[str, str]) -> None:
    X, y, _ = _one_task(rng, drawn, seen)
    model = attempt(lambda: learner.adapt(X, y), learner)
    if model is not None:
        found = attempt(lambda: model.predict(X), model)
        if found is not None:
            check_finite("predict", found)


META: dict[str, Callable[..., None]] = {
    "adapt": _adapt,
    "update": _update,
    "predict of a model": _predict_model,
    "predict": _predict,
    "adapt_many": _many("adapt_many"),
    "predict_tasks": _many("predict_tasks"),
    "task_errors": _many("task_errors"),
    "score": _many("score"),
    "representations": _many("representations"),
    "representation": _representation,
}
BASE: dict[str, Callable[..., None]] = {
    "adapt": _adapt_base,
    "adapt_many": _many("adapt_many"),
    "task_errors": _many("task_errors"),
}


# --- parts on their own


def part_alone(rng: Rng, seen: dict[str, str]) -> None:
    """A task set, a feature map or one task's regressor."""
    drawn = draw(rng, calm=0.4)
    kind = str(rng.choice(["task set", "feature map", "task regressor"]))
    seen.update(drawn.classes, call=kind, learner="-")
    if kind == "task regressor":
        X, y, _ = _one_task(rng, drawn, seen)
        loss = str(rng.choice(["absolute", "squared", "huber"]))
        model = TaskRegressor(
            loss=loss, fit_intercept=bool(rng.random() < 0.5), inner=str(rng.choice(["exact", "online"]))
        )
        if attempt(lambda: model.fit(X, y), model) is not None:
            check_model(
                model, X if hasattr(X, "shape") and not sparse.issparse(X) else np.asarray(drawn.parts[0][0])
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
        name = str(rng.choice([n for n in FEATURE_MAPS if n != "posterior"]))
        seen["learner"] = name
        feature_map = get_feature_map(name, has_side_info=tasks.side_info is not None)
        phi = attempt(lambda: feature_map.fit(tasks).transform(tasks))
        if phi is not None:
            check_finite("features", phi)


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
