"""The learners: errors name the argument, the task, the fix."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
    scan,
)
from tailored.datasets import make_clusters
from tailored.evaluation import evaluate
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import MeanEmbedding

#: Those of `EmpiricalBayesLearner`, which takes no logistic or hinge loss.
LOSS_NAMES = "^loss must be one of 'absolute', 'pinball', 'huber', 'squared', "
LOSS_NAMES += "'poisson', 'negative_binomial'; got "

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"feature_map": "meen"}, "feature_map.*'mean'"),
        ({"loss": "abs"}, "loss.*absolute"),
        ({"inner": "exakt"}, "inner.*exact"),
        ({"solver": ProjectedSGD(-1.0)}, "^step must be"),
        ({"solver": ProjectedSGD("best")}, "^step must be one of 'search', or a number or a pair"),
        ({"solver": ProjectedSGD(step_sizes=0.1)}, "^step_sizes: expected a list"),
        ({"fit_intercept": "no"}, "^fit_intercept must be True or False; got 'no'"),
        ({"scale_features": "no"}, "^scale_features must be True or False; got 'no'"),
        ({"tune_scale": None}, "^tune_scale must be True or False; got None"),
        ({"rank": 0}, "rank"),
        ({"feature_map": "vector"}, "side_info"),
        ({"loss": "logistic"}, "task 0"),
        ({"initial_representation": -np.eye(6)}, "semidefinite"),
        ({"initial_representation": np.triu(np.ones((6, 6)))}, "symmetric"),
    ],
)
def test_errors_name_the_setting(settings, message, clusters):
    with pytest.raises((TypeError, ValueError), match=message):
        ConditionalLearner(**{"fit_intercept": False, **settings}).fit(clusters)


@pytest.mark.parametrize(
    "learner",
    [
        ConditionalLearner(solver=ProjectedSGD(0.1), fit_intercept=False),
        UnconditionalLearner(solver=ProjectedSGD(0.1), fit_intercept=True),
        IndependentLearner(fit_intercept=False),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_a_task_that_was_not_seen_is_predicted_by_the_prior(learner, clusters):
    learner.fit(clusters)
    rows, known = clusters.X[:4], clusters.labels[1]
    found = learner.predict(rows, groups=[-1, known, -2, -1])
    expected = learner.adapt().predict(rows)
    expected[1] = learner.predict(rows[1:2], groups=[known])[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_overflow_names_the_step(clusters):
    clusters = TaskSet(1e3 * clusters.X, clusters.y, np.repeat(clusters.labels, clusters.sizes))
    with pytest.raises(ValueError, match=r"^step:.*1e\+308"):
        UnconditionalLearner(solver=ProjectedSGD(1e308), fit_intercept=False).fit(clusters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Whether the duality gap of one task is just above the tolerance depends on the linear
        # algebra library.
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner = UnconditionalLearner(
            solver=ProjectedSGD(step_sizes=(0.1, 1e308)), fit_intercept=False
        ).fit(clusters)
    assert learner.step_size_.C == 0.1
    assert all(np.isinf(r["error"]) for r in learner.search_results_ if r["step_C"] > 1)


def test_a_map_that_learns_does_not_see_the_held_out_tasks():
    class Spy(MeanEmbedding):
        seen = 0

        def fit(self, tasks):
            type(self).seen = len(tasks)
            return super().fit(tasks)

    tasks = make_clusters(40, n_clusters=2, n_features=6, rank=2, n_rows=12, random_state=0)
    ConditionalLearner(
        Spy(), solver=ProjectedSGD(step_sizes=(0.1,)), validation_fraction=0.25, fit_intercept=False
    ).fit(tasks)
    assert Spy.seen == 30
    ConditionalLearner(Spy(), solver=ProjectedSGD(0.1), fit_intercept=False).fit(tasks)
    assert Spy.seen == 40


def test_losses_of_margins_need_signs():
    X, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    message = r"hinge loss needs targets -1 and \+1, but y contains 0.*np\.where"
    with pytest.raises(ValueError, match=message):
        IndependentLearner(loss="hinge").fit(X, y, groups=[0, 0, 1, 1])
    frame = pd.DataFrame({"a": X[:, 0], "g": y, "y": ["no", "yes"] * 2})
    with pytest.raises(ValueError, match="y: 'y' has classes, not numbers"):
        IndependentLearner(loss="hinge").fit(frame, task="g", target="y")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y, g: IndependentLearner().fit(X, y[1:], groups=g), r"samples: X has 40 rows, y has 39"),
        (lambda X, y, g: IndependentLearner().fit([[1, 2], [3]], [1, 2], groups=[0, 1]), "^X: .*inhomogeneous"),
        (lambda X, y, g: TaskSet([[1, 2], [3]], [1, 2], [0, 1]), "^X: .*inhomogeneous"),
        (lambda X, y, g: TaskSet(X, [[1], [2, 3]], g), "^y: .*inhomogeneous"),
        (lambda X, y, g: TaskSet(X[None], y, g), "^X: Found array with dim 3"),
        (lambda X, y, g: IndependentLearner().fit(X, y, groups=g).adapt([[1, 2], [3]], [1, 2]), "X.*inhomogeneous"),
        (lambda X, y, g: EmpiricalBayesLearner(random_state="a").fit(X, y, groups=g), "^random_state: 'a'"),
        (lambda X, y, g: TaskSet(X, y, g).support_query(2, random_state=-1), "^random_state: Seed must be"),
        (lambda X, y, g: IndependentLearner().fit(X, y, groups=g).effects(TaskSet(X, y, g), coverage=1 - 1e-16), "^coverage"),
        (lambda X, y, g: evaluate(X), "^tasks must be a TaskSet"),
        (lambda X, y, g: evaluate(TaskSet(X, y, g), random_state="a"), "^random_state must be an integer"),
        (lambda X, y, g: EmpiricalBayesLearner(n_jobs="a").fit(X, y, groups=g), "^n_jobs: expected None, .* got 'a'"),
        (lambda X, y, g: IndependentLearner(n_jobs=0).fit(X, y, groups=g), "^n_jobs: expected None, .* got 0"),
        (lambda X, y, g: IndependentLearner().fit(X, y, groups=g).predict(X, g > 1), "^labels: they are booleans, such as False, and"),
        (lambda X, y, g: IndependentLearner().fit(X, y, groups=list("abcd") * 10).predict(X, g), "^labels: they are numbers, such as 0, and"),
        (lambda X, y, g: TaskSet(X, y, g, sample_weight=1e16 + y), r"^sample_weight: row 0 has 1e\+16; all must be positive .*Drop rows with other values"),
        (lambda X, y, g: EmpiricalBayesLearner(loss="mse").fit(X, y, groups=g), LOSS_NAMES + "'mse'"),
        (lambda X, y, g: EmpiricalBayesLearner(loss=None).fit(X, y, groups=g), LOSS_NAMES + "None"),
        (lambda X, y, g: EmpiricalBayesLearner(loss="binomial").fit(X, y, groups=g), "^loss: 'binomial' .* EmpiricalBayesClassifier; for counts"),
        (lambda X, y, g: TaskSet.from_tasks(5), "^tasks: expected a list"),
        (lambda X, y, g: IndependentLearner().fit(X, y, groups=g).save(None), "^path: None cannot be written"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(call, message):
    rng = np.random.default_rng(0)
    with pytest.raises((ValueError, TypeError), match=message):
        call(rng.normal(size=(40, 2)), rng.normal(size=40), np.repeat(np.arange(4), 10))


@pytest.mark.parametrize(
    ("n_tasks", "columns", "message"),
    [
        (1, {}, "fit: differences between tasks cannot be estimated from one task"),
        (
            8,
            {"one": 3.0},
            "fit: constant in all rows, so without effect if there is an intercept: one",
        ),
        (
            8,
            {"size": lambda f: f["g"] * 2.0},
            r"fit: constant within every task: size. To make .*, use side_columns=\['size'\]",
        ),
        (
            8,
            {"one\x1b\n": 3.0},
            "fit: constant in all rows, so without effect if there is an intercept: one��",
        ),
    ],
)
def test_data_that_do_not_identify_effects_are_reported(n_tasks, columns, message):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": np.repeat(np.arange(n_tasks), 6), "x": rng.normal(size=6 * n_tasks)})
    frame = frame.assign(y=rng.normal(size=len(frame))).assign(**columns)
    with pytest.warns(UserWarning, match=message):
        learner = EmpiricalBayesLearner().fit(TaskSet.from_frame(frame, task="g", target="y"))
    tables = learner.summary().tables
    known = ~np.isnan(tables["effects"].columns["random-effect std"])
    assert known.all() == (n_tasks > 1) == known.any()
    assert n_tasks > 1 or "correlations" not in tables


def test_columns_of_tasks_become_side_information_as_the_warning_says(tmp_path):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(12), 6), rng.normal(size=72)
    kind = np.where(groups % 2 == 0, "state", "church")
    frame = pd.DataFrame(
        {"g": groups, "x": x, "size": groups * 2.0, "kind": kind, "y": x + rng.normal(size=72)}
    )
    X, learner = frame[["x", "size"]], EmpiricalBayesLearner()
    frame[["g", "x", "size", "y"]].to_parquet(tmp_path / "a.parquet")
    roles = {"task": "g", "target": "y"}
    for call, code in (
        (
            lambda: learner.fit(X.to_numpy(), frame["y"], groups=groups),
            "constant within every task: 1. To make them side information, pass them as side_info",
        ),
        (
            lambda: learner.fit(X, frame["y"], groups=groups),
            "constant within every task: size. To make them side information, pass them as side_info",
        ),
        (
            lambda: learner.fit(TaskSet.from_frame(frame, features=["x", "size", "kind"], **roles)),
            "use side_columns=['size', 'kind']",
        ),
        (lambda: learner.fit(scan(tmp_path / "a.parquet", **roles)), "use side_columns=['size']"),
    ):
        with pytest.warns(UserWarning, match=re.escape(code)):
            call()
    expected = learner.fit(
        TaskSet.from_frame(frame[["g", "x", "size", "y"]], side_columns=["size"], **roles)
    )
    expected = expected.predict(X[["x"]], groups)
    for inputs, side in (
        (X[["x"]], X[["size"]].to_numpy()),
        (X.to_numpy()[:, [0]], X.to_numpy()[:, [1]]),
    ):
        again = EmpiricalBayesLearner().fit(inputs, frame["y"], groups=groups, side_info=side)
        np.testing.assert_allclose(again.predict(inputs, groups), expected, rtol=1e-9)
