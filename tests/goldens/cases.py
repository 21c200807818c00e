"""The table of cases for the golden values: all that depends on the names of the library's API.

When the API changes, change the factories and the names of attributes here; names of cases and of quantities
stay as they are, because the stored values are found by them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import PolynomialFeatures

from folds import few_folds
from studies.earlier_methods import EARLIER_METHODS
from studies.rivals import SIMPLE
from tailored import (
    ConditionalLearner,
    IndependentLearner,
    TaskRegressor,
    UnconditionalLearner,
)
from tailored.losses import EpsilonInsensitive, Huber, Pinball
from tailored.paper import ProjectedSGD

# ---------------------------------------------------------------- the API

#: Numbers stored of a fitted learner: neutral name -> attribute; those that a learner lacks are left out.
NUMBERS = {
    "validation error": "validation_error_",
}
#: Choices stored of a fitted learner, as JSON.
CHOICES = {
    "form": "structure_",
    "components": "n_components_",
    "scale": "scale_",
    "side penalty": "side_structure_",
    "steps": "step_size_",
    "best parameters": "best_params_",
    "tasks seen": "n_tasks_seen_",
    "penalty": "alpha_",
    "centred": "centred_",
    "shrinkage": "shrinkage_",
    "user shrinkage": "user_shrinkage_",
    "item shrinkage": "item_shrinkage_",
}
#: Where the errors of all candidates are, and their key.
SEARCH = "search_results_", "error"


def empirical_bayes(**options):
    """The recommended learner with the absolute loss; two folds instead of five, to be quick."""
    return few_folds(**{"loss": "absolute", **options})


def projected(feature_map="auto", *, step="search", steps=(0.1, 1.0), **options):
    """Algorithm 1: projected SGD; `partial_fit` needs a Lipschitz constant for the squared loss."""
    solver = ProjectedSGD(step, step_sizes=steps, step_ratios=(0.0, 1.0))
    if options.get("loss") == "squared":
        options["lipschitz"] = 1.0
    return ConditionalLearner(
        feature_map, solver=solver, **{"fit_intercept": False, "rank": 4, **options}
    )


def projected_default_grid():
    return ConditionalLearner(fit_intercept=False)


def unconditional(*, step="search", **options):
    return UnconditionalLearner(
        solver=ProjectedSGD(step, step_sizes=(0.1, 1.0)), **{"fit_intercept": False, **options}
    )


def independent(**options):
    return IndependentLearner(**{"fit_intercept": False, **options})


def paper(*, steps=None, **options):
    if steps is not None:
        options["solver"] = ProjectedSGD(step_sizes=steps, step_ratios=(1.0,))
    return ConditionalLearner.paper(**options)


def rival(name, **options):
    return EARLIER_METHODS[name](**{"fit_intercept": False, **options})


def baseline(name, **options):
    if name == "mixed model":
        options = {"fit_intercept": False, **options}
    return SIMPLE[name](**options)


def task_alone(d, **options):
    """One task's model under a given representation and prior mean (none for d = 0)."""
    if d == 0:
        return TaskRegressor(**options)
    factor = np.random.default_rng(d).normal(size=(d, d - 1))
    return TaskRegressor(factor @ factor.T, np.linspace(-0.5, 0.5, d), **options)


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Case:
    """How a learner is made, what it learns from, and how.

    ``pieces`` None is `fit`, 1 and 2 are `partial_fit` of a fresh learner in so many pieces.  ``validation``
    passes the environment's held-out tasks, ``intervals`` calibrates intervals on them after the fit.
    ``n_train`` keeps the first so many tasks.
    ``alone`` fits the first new task's rows and nothing else.
    """

    make: Callable[[], Any]
    environment: str = "clusters"
    pieces: int | None = None
    validation: bool = False
    intervals: bool = False
    n_train: int | None = None
    alone: bool = False


#: Neutral names of losses of numbers, and of signs.
LOSSES = {
    "absolute": "absolute",
    "squared": "squared",
    "huber": Huber(0.5),
    "pinball 0.9": Pinball(0.9),
    "epsilon-insensitive": EpsilonInsensitive(0.2),
}
SIGN_LOSSES = {"logistic": "logistic", "hinge": "hinge"}
#: Every loss, and the environment that it is tried in.
EVERY_LOSS = [(name, loss, "clusters") for name, loss in LOSSES.items()] + [
    (name, loss, "signs") for name, loss in SIGN_LOSSES.items()
]


def mean_target(task):
    return np.array([1.0, task.y.mean() if len(task.y) else 0.0])


# Settings avoid ties between candidates, which rounding would decide: with the absolute loss every large
# multiple of a representation that interpolates the rows does equally well, hence the squared loss here and
# there.
CASES: dict[str, Case] = {}

# The recommended learner.
for name, loss in LOSSES.items():
    for known, environment in (("", "clusters"), (", numbers", "numbers"), (", words", "words")):
        CASES[f"empirical bayes, {name}{known}"] = Case(
            lambda loss=loss: empirical_bayes(loss=loss), environment
        )
CASES |= {
    "empirical bayes, all defaults": Case(lambda: empirical_bayes(n_folds=5)),
    "empirical bayes, sparse": Case(lambda: empirical_bayes(), "ratings"),
    "empirical bayes, sparse, intercept": Case(
        lambda: empirical_bayes(fit_intercept=True), "ratings"
    ),
    "empirical bayes, ragged": Case(lambda: empirical_bayes(), "ragged"),
    "empirical bayes, ragged, intercept": Case(
        lambda: empirical_bayes(fit_intercept=True), "ragged"
    ),
    "empirical bayes, ragged, huber": Case(lambda: empirical_bayes(loss="huber"), "ragged"),
    "empirical bayes, intercept": Case(lambda: empirical_bayes(fit_intercept=True)),
    "empirical bayes, numbers, intercept": Case(
        lambda: empirical_bayes(fit_intercept=True), "numbers"
    ),
    "empirical bayes, validation": Case(lambda: empirical_bayes(), validation=True),
    "empirical bayes, validation, numbers": Case(
        lambda: empirical_bayes(), "numbers", validation=True
    ),
    "empirical bayes, intervals again": Case(lambda: empirical_bayes(), "numbers", intervals=True),
    "empirical bayes, one task": Case(lambda: empirical_bayes(), n_train=1),
    "empirical bayes, another seed": Case(lambda: empirical_bayes(random_state=7)),
}

# Algorithm 1; each of these is a case by `fit`, by `partial_fit`, and in two pieces.
ALGORITHM_1: dict[str, Case] = {}
for name, loss, environment in EVERY_LOSS:
    for inner in ("exact", "online"):
        # One pass over the rows with the squared loss overflows where θ is large.
        steps = (1e-4, 1e-3) if (name, inner) == ("squared", "online") else (0.1, 1.0)
        ALGORITHM_1[f"projected, {name}, {inner}"] = Case(
            lambda loss=loss, inner=inner, steps=steps: projected(
                loss=loss, inner=inner, steps=steps
            ),
            environment,
        )
for name in ("mean", "ridge", "angle"):
    ALGORITHM_1[f"projected, {name} features"] = Case(lambda name=name: projected(name, step=0.3))
ALGORITHM_1 |= {
    "projected, vector features": Case(lambda: projected("vector"), "numbers"),
    "projected, words": Case(lambda: projected(), "words"),
    "projected, features of a function": Case(lambda: projected(mean_target, step=0.3)),
    "projected, features of a transformer": Case(
        lambda: projected(PolynomialFeatures(2), step=0.3), "numbers"
    ),
    "projected, rank 32": Case(lambda: projected(rank=32)),
    "projected, full rank": Case(lambda: projected(rank=None)),
    "projected, full rank, online": Case(lambda: projected(rank=None, inner="online")),
    "projected, raw features": Case(lambda: projected(scale_features=False)),
    "projected, intercept": Case(lambda: projected(fit_intercept=True)),
    "projected, sparse": Case(lambda: projected(), "ratings"),
    "projected, sparse, mean features, online": Case(
        lambda: projected("mean", inner="online", step=0.3), "ratings"
    ),
    "projected, sparse, angle features": Case(lambda: projected("angle"), "ratings"),
    "projected, sparse, full rank": Case(lambda: projected(rank=None), "ratings"),
    "projected, ragged": Case(lambda: projected(), "ragged"),
    "projected, ragged, mean features, online": Case(
        lambda: projected("mean", inner="online"), "ragged"
    ),
    "projected, validation": Case(lambda: projected(), validation=True),
    "projected, fixed step": Case(lambda: projected(step=0.3), intervals=True),
    "projected, pair of steps": Case(lambda: projected(step=(0.2, 0.7)), "numbers"),
    "projected, not calibrated": Case(lambda: projected(tune_scale=False)),
    "projected, start given": Case(lambda: projected(initial_representation=0.2)),
    "projected, start given as a matrix, Lipschitz constant given": Case(
        lambda: projected(initial_representation=np.diag([2.0, 1.0, 0.5, 0.0]), lipschitz=0.5)
    ),
    "projected, intervals": Case(lambda: projected(), "numbers", intervals=True),
    "projected, other fractions and seed": Case(
        lambda: projected(validation_fraction=0.3, support=0.3, random_state=5)
    ),
}
MODES = {"": None, ", one piece": 1, ", two pieces": 2}
for name, case in ALGORITHM_1.items():
    for mode, pieces in MODES.items():
        CASES[name + mode] = Case(
            case.make,
            case.environment,
            pieces=pieces,
            validation=case.validation,
            intervals=case.intervals,
        )
CASES |= {
    "projected, default grid": Case(projected_default_grid),
    "projected, one task": Case(lambda: projected(), n_train=1),
    "paper": Case(lambda: paper()),
    "paper, two pieces": Case(lambda: paper(), pieces=2),
    "paper, sparse, angle features": Case(
        lambda: paper(feature_map="angle", steps=(0.1, 1.0)), "ratings"
    ),
}

# One representation for all tasks.
CASES |= {
    "unconditional, intercept": Case(lambda: unconditional(fit_intercept=True)),
    "unconditional, online": Case(lambda: unconditional(inner="online")),
    "unconditional, sparse": Case(lambda: unconditional(), "ratings"),
    "unconditional, hinge": Case(lambda: unconditional(loss="hinge"), "signs"),
    "unconditional, fixed step, intervals": Case(lambda: unconditional(step=0.3), intervals=True),
    "unconditional, validation": Case(lambda: unconditional(), validation=True),
    "unconditional, side information ignored": Case(lambda: unconditional(), "words"),
}
for mode, pieces in MODES.items():
    CASES[f"unconditional, projected{mode}"] = Case(lambda: unconditional(), pieces=pieces)

# Every task alone.
for name, loss, environment in EVERY_LOSS:
    for inner in ("exact", "online"):
        CASES[f"independent, {name}, {inner}"] = Case(
            lambda loss=loss, inner=inner: independent(loss=loss, inner=inner), environment
        )
        CASES[f"one task's model, {name}, {inner}"] = Case(
            lambda loss=loss, inner=inner, d=4 if environment == "clusters" else 3: task_alone(
                d, loss=loss, inner=inner
            ),
            environment,
            alone=True,
        )
CASES |= {
    "independent, representation given": Case(
        lambda: independent(tau=np.diag([2.0, 1.0, 0.5, 0.0]))
    ),
    "independent, ragged, intercept": Case(
        lambda: independent(tau=3.0, fit_intercept=True), "ragged"
    ),
    "independent, sparse": Case(lambda: independent(), "ratings"),
    "independent, intervals": Case(lambda: independent(), intervals=True),
    "one task's model, plain": Case(lambda: task_alone(0), alone=True),
    "one task's model, intercept": Case(lambda: task_alone(5, fit_intercept=True), alone=True),
    "one task's model, sparse": Case(lambda: task_alone(0, loss="squared"), "ratings", alone=True),
}

# Methods to compare with.
CASES |= {
    f"rival, {name}": Case(lambda name=name, options=options: rival(name, **options))
    for name, options in {
        "trace-constrained": {},
        "unconditional bias": {},
        "conditional bias": {},
        "multi-task feature learning": {},
    }.items()
}
CASES |= {
    "rival, trace-constrained, given": Case(
        lambda: rival("trace-constrained", step_size=0.1, regularization=[0.1, 1.0]),
        validation=True,
    ),
    "rival, trace-constrained, online, intercept": Case(
        lambda: rival(
            "trace-constrained",
            inner="online",
            fit_intercept=True,
            step_size=0.1,
            regularization=0.1,
        ),
        "ragged",
    ),
    "rival, unconditional bias, ragged, squared": Case(
        lambda: rival(
            "unconditional bias", loss="squared", step_size=[0.01, 0.1], regularization=0.1
        ),
        "ragged",
    ),
    "rival, conditional bias, words": Case(lambda: rival("conditional bias"), "words"),
    "rival, conditional bias, numbers, validation": Case(
        lambda: rival("conditional bias"), "numbers", validation=True
    ),
    "rival, multi-task feature learning, intercept, huber": Case(
        lambda: rival("multi-task feature learning", fit_intercept=True, loss="huber", n_rounds=10)
    ),
}
for name in (
    "global median",
    "task mean",
    "task median",
    "ridge per task",
    "pooled ridge + task offset",
    "mixed model",
):
    CASES[f"baseline, {name}"] = Case(lambda name=name: baseline(name))
    CASES[f"baseline, {name}, ragged"] = Case(lambda name=name: baseline(name), "ragged")
    # With an item in one row only, all penalties of a ridge per task predict the other rows equally well.
    if name != "ridge per task":
        CASES[f"baseline, {name}, sparse"] = Case(lambda name=name: baseline(name), "ratings")
CASES |= {
    "baseline, item and user bias": Case(lambda: baseline("item and user bias"), "ratings"),
    "baseline, mixed model, intercept": Case(
        lambda: baseline("mixed model", fit_intercept=True), "ragged"
    ),
}
