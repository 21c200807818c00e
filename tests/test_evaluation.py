"""`evaluate` for classes and counts: scores by scikit-learn's metrics, baselines by closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score, log_loss, mean_poisson_deviance

from tailored import EmpiricalBayesClassifier, TaskSet
from tailored.baselines import (
    RESPONSE_BASELINES,
    Constant,
    PooledRegression,
    RegressionPerTask,
    TaskMean,
)
from tailored.evaluation import Evaluation, evaluate, usual_methods

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def people(n_classes, n_tasks=24, n_rows=7, seed=0):
    """Return a table of people with a class, a count, its exposure and side information."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n_tasks), n_rows)
    x, taste, region = rng.normal(size=len(person)), rng.normal(size=n_tasks)[person], person % 3
    noise = rng.gumbel(size=(len(person), n_classes))
    chosen = (noise + np.outer(x + taste + region, np.arange(n_classes))).argmax(axis=1)
    hours = rng.uniform(1, 3, len(person))
    visits = rng.poisson(hours * np.exp(0.3 * x + 0.5 * taste))
    brand = np.array(list("abcd"))[chosen]
    return pd.DataFrame(
        {
            "x": x,
            "brand": brand,
            "person": person,
            "region": region,
            "hours": hours,
            "visits": visits,
        }
    )


def class_tasks(n_classes):
    table = people(n_classes)[["x", "brand", "person", "region"]]
    return TaskSet.from_frame(table, task="person", target="brand", side_columns=["region"])


def count_tasks():
    table = people(2)[["x", "visits", "person", "region", "hours"]]
    return TaskSet.from_frame(
        table, task="person", target="visits", side_columns=["region"], exposure="hours"
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_of_classes_are_those_of_scikit_learn(n_classes):
    tasks = class_tasks(n_classes)
    methods = {"tailored": EmpiricalBayesClassifier(), "constant": Constant()}
    found = evaluate(tasks, methods, supports=[0, 3], n_folds=2)
    assert list(found.by_name) == ["log loss", "Brier score", "accuracy"]
    assert found.predictions.shape == (2, found.n_query, n_classes)
    assert found.classes == tuple("abc"[:n_classes])
    np.testing.assert_allclose(found.predictions.sum(axis=2), 1.0)
    for t, label in enumerate(found.labels):
        rows = found.groups == t
        y, P = found.targets[rows].astype(int), found.predictions[1][rows]
        assert set(y) <= set(tasks.y[tasks.offsets[label] : tasks.offsets[label + 1]])
        observed = np.eye(n_classes)[y]
        expected = [
            log_loss(y, P, labels=range(n_classes)),
            np.mean((P[:, 1] - y) ** 2)
            if n_classes == 2
            else np.mean(((P - observed) ** 2).sum(axis=1)),
            accuracy_score(y, P.argmax(axis=1)),
        ]
        np.testing.assert_allclose([values[0, 1, t] for values in found.by_name.values()], expected)
    record = found.records()[1]
    assert record["loss"] == "log loss"
    np.testing.assert_allclose(record["brier_score"], found.scores["Brier score"][0, 1].mean())
    assert record["covered"] is None


def test_with_few_tasks_each_task_is_a_fold():
    """The prediction without rows is the mean of the targets of the other tasks."""
    tasks = TaskSet(np.zeros((12, 1)), np.arange(12.0) ** 2, np.repeat([5, 3, 4], 4))
    found = evaluate(tasks, {"mean": TaskMean()}, supports=[0, 1])
    for label, errors in zip(found.labels, found.errors[0, 0], strict=True):
        (own,) = (task.y for task in tasks if task.label == label)
        query = found.targets[found.labels[found.groups] == label]
        mean = (tasks.y.sum() - own.sum()) / 8
        np.testing.assert_allclose(errors, np.mean((query - mean) ** 2))
    with pytest.raises(
        ValueError,
        match=r"at least two tasks .* are needed, found 1 of 1. Use more tasks.$",
    ):
        evaluate(tasks[[0]], {"mean": TaskMean()}, supports=[0])
    with pytest.raises(
        ValueError, match=r"found 0 of 3. Use more tasks, or smaller numbers in `supports`."
    ):
        evaluate(tasks, {"mean": TaskMean()}, supports=[9])
    for methods in (TaskMean(), {"mean": 3}):
        with pytest.raises(TypeError, match="methods: expected a dict of names and learners"):
            evaluate(tasks, methods)


def test_predictions_of_single_rows():
    """The rows of a frame are those of the tasks; the frame has the errors of the evaluation."""
    table = people(2).sample(frac=1.0, random_state=0)
    tasks = TaskSet.from_frame(table[["x", "visits", "person"]], task="person", target="visits")
    weighted = tasks.replace(frequency_weight=np.arange(len(tasks.y)) % 3 + 1.0)
    for each in (tasks, weighted):
        found = evaluate(each, {"mean": TaskMean()}, supports=[0, 2])
        frame = found.to_frame()
        assert list(frame) == ["task", "row", "target", "support", "prediction"]
        assert len(frame) == 2 * found.n_query
        np.testing.assert_array_equal(each.y[frame["row"]], frame["target"])
        np.testing.assert_array_equal(
            np.repeat(each.labels, each.sizes)[frame["row"]], frame["task"]
        )
        if each is tasks:
            squared = (frame["target"] - frame["prediction"]) ** 2
            errors = (
                squared.groupby([frame["support"], frame["task"]]).mean().unstack()[found.labels]
            )
            np.testing.assert_allclose(errors, found.errors[0])


def test_probabilities_of_single_rows():
    tasks = class_tasks(3)
    found = evaluate(tasks, {"constant": Constant()}, supports=[0, 2])
    frame = found.to_frame()
    probabilities = frame[["probability_a", "probability_b", "probability_c"]].to_numpy()
    np.testing.assert_array_equal(probabilities, found.predictions.reshape(-1, 3))
    np.testing.assert_array_equal(
        frame["target"], np.array(list("abc"))[tasks.y.astype(int)[frame["row"]]]
    )


def test_classes_may_be_numbers():
    """Two classes in the other order have the same scores."""
    tasks = class_tasks(2).replace(side_info=None, side_names=None)
    numbered = TaskSet(tasks.X, 5.0 - 3.0 * tasks.y, np.repeat(tasks.labels, tasks.sizes))
    methods = {"tailored": EmpiricalBayesClassifier()}
    found, expected = (
        evaluate(each, methods, supports=[2], n_folds=2) for each in (numbered, tasks)
    )
    assert found.classes == (2.0, 5.0)
    np.testing.assert_allclose(found.predictions[..., ::-1], expected.predictions, rtol=1e-6)
    np.testing.assert_allclose(found.errors, expected.errors, rtol=1e-6)


def test_scores_of_counts():
    tasks = count_tasks().replace(exposure=None)
    methods = usual_methods("poisson")
    # The loss of the evaluation is that of the learner.
    found = evaluate(tasks, methods, supports=[0, 3], n_folds=2)
    assert found.methods == ("tailored", *RESPONSE_BASELINES)
    assert list(found.by_name) == ["half Poisson deviance", "absolute error"]
    rows = found.groups == 4
    half = 0.5 * mean_poisson_deviance(found.targets[rows], found.predictions[1][rows])
    np.testing.assert_allclose(found.errors[0, 1, 4], half)
    assert (found.mean[0] < found.mean[1]).all()
    assert np.isfinite(found.covered[0]).all()


def test_constants_are_smoothed_frequencies_and_rates():
    tasks = class_tasks(3)
    (P,) = np.unique(Constant().fit(tasks).predict_rows(tasks, tasks), axis=0)
    np.testing.assert_allclose(P, (np.bincount(tasks.y.astype(int)) + 0.5) / (len(tasks.y) + 1.5))
    tasks = count_tasks()
    found = Constant("poisson").fit(tasks).predict_rows(tasks, tasks)
    np.testing.assert_allclose(found, tasks.exposure * (tasks.y.sum() + 0.5) / tasks.exposure.sum())


def penalised(X, y, P, n_classes):
    """Return the penalised log likelihood of probabilities P at rows X, maximised without scikit-learn."""
    K, d = n_classes, X.shape[1]

    def objective(w):
        w = w.reshape(K, d + 1)
        logs = log_softmax(X @ w[:, :d].T + w[:, d], axis=1)
        pseudo = log_softmax(w[:, d][None], axis=1)[0]
        return -logs[np.arange(len(y)), y].sum() - P @ pseudo + 0.5 * (w[:, :d] ** 2).sum()

    w = minimize(objective, np.zeros(K * (d + 1)), options={"gtol": 1e-8}).x.reshape(K, d + 1)
    return lambda X: np.exp(log_softmax(X @ w[:, :d].T + w[:, d], axis=1))


def test_pooled_regression_has_features_and_side_information():
    tasks = class_tasks(3)
    rows = np.column_stack([tasks.X, np.repeat(tasks.side_info.astype(float), tasks.sizes, axis=0)])
    X, y = (rows - rows.mean(axis=0)) / rows.std(axis=0), tasks.y.astype(int)
    constant = Constant().fit(tasks).mean_
    expected = penalised(X, y, constant, 3)(X)
    np.testing.assert_allclose(
        PooledRegression().fit(tasks).predict_rows(tasks, tasks), expected, atol=2e-3
    )


def test_regression_per_task_shrinks_a_task_of_one_class():
    tasks = class_tasks(2)
    support = tasks.replace(y=np.ones(len(tasks.y)))
    P = RegressionPerTask().fit(tasks).predict_rows(support, tasks)[:, 1]
    assert (np.bincount(tasks.y.astype(int))[1] / len(tasks.y) < P).all()
    assert (P < 0.99).all()
    empty = tasks.support_query(0, random_state=0)[0]
    found = RegressionPerTask().fit(tasks).predict_rows(empty, tasks)
    np.testing.assert_array_equal(found, Constant().fit(tasks).predict_rows(empty, tasks))


def test_a_rate_without_slopes_is_a_closed_form():
    """Support rows at the mean of the features have the likelihood of one rate, and a pseudo-row of exposure one."""
    tasks = count_tasks()
    mean = tasks.X.mean(axis=0)
    support = tasks.replace(
        X=np.tile(mean, (len(tasks.y), 1)),
        side_info=np.full((len(tasks), 1), tasks.side_info.mean()),
    )
    baseline = RegressionPerTask("poisson").fit(tasks)
    prior = (tasks.y.sum() + 0.5) / tasks.exposure.sum()
    y, hours = (np.add.reduceat(values, tasks.offsets[:-1]) for values in (tasks.y, tasks.exposure))
    expected = np.repeat((y + prior) / (hours + 1.0), tasks.sizes) * tasks.exposure
    np.testing.assert_allclose(baseline.predict_rows(support, support), expected, rtol=1e-5)


@pytest.mark.parametrize("constant", [0.1, 1e60])
def test_pooled_regression_is_the_same_with_a_constant_column(constant):
    tasks = count_tasks()
    side = np.column_stack([tasks.side_info, np.full(len(tasks), constant)])
    expected, found = (
        PooledRegression("poisson").fit(t).predict_rows(t, t)
        for t in (tasks, tasks.replace(side_info=side))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_counts_must_be_counts():
    with pytest.raises(ValueError, match="poisson loss needs counts"):
        PooledRegression("poisson").fit(class_tasks(2).replace(y=np.full(24 * 7, -1.0)))


@pytest.mark.parametrize("covered", [0.875, np.nan])
def test_an_evaluation_prints_its_tables_and_definitions(covered):
    errors = np.array([[[1.0, 3.0], [0.5, 1.5]]] * 2)  # mean 2 and standard error 1; 1 and 0.5
    inside = np.full((2, 2), covered)
    scores = {"accuracy": errors}
    found = Evaluation(
        ("method", "task mean"),
        (0, 5),
        errors,
        inside,
        inside,
        np.arange(2),
        6,
        "squared",
        0.9,
        scores,
    )
    assert repr(found) == str(found)
    lines = [" ".join(line.split()) for line in str(found).splitlines() if line]
    assert lines[0] == "Mean squared error on 2 new tasks, by number of support rows"
    assert lines[1:4] == ["method 0 5", "method 2 ± 1 1 ± 0.5", "task mean 2 ± 1 1 ± 0.5"]
    assert ("inside 90 % intervals 87.5 % 87.5 %" in lines) == np.isfinite(covered)
    assert lines.index(
        "Mean accuracy on 2 new tasks, by number of support rows"
    ) == 4 + np.isfinite(covered)
    assert lines[-2].startswith("task mean: Predict")
