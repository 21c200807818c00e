"""`evaluate` for classes and counts: scores by scikit-learn's metrics, baselines by closed
forms.
"""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss, mean_poisson_deviance

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored.evaluation import BASELINES, Evaluation, evaluate

matplotlib.use("Agg")
MEAN = {"mean": clone(BASELINES["numbers"]["pooled ridge"]).set_params(offset=False)}
CONSTANT = BASELINES["classes"]["constant"]
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
    methods = {"tailored": EmpiricalBayesClassifier(), "constant": CONSTANT}
    found = evaluate(tasks, methods, supports=[0, 3], n_folds=2)
    assert list(found.scores) == ["log loss", "Brier score", "accuracy", "covered", "width"]
    assert found.classes == tuple("abc"[:n_classes])
    frame = found.predictions
    names = [f"probability_{label}" for label in found.classes]
    np.testing.assert_allclose(frame[names].sum(axis=1), 1.0)
    labels = np.array(found.classes)[tasks.y.astype(int)]
    np.testing.assert_array_equal(frame["target"], labels[frame["row"]])
    some = frame[frame["support"] == 3]
    for t, label in enumerate(found.labels):
        rows = some[some["task"] == label]
        P = rows[names].to_numpy()
        observed = rows["target"].to_numpy()[:, None] == found.classes
        squares = np.mean(((P - observed) ** 2).sum(axis=1))
        expected = [
            log_loss(rows["target"], P, labels=found.classes),
            squares / 2 if n_classes == 2 else squares,
            accuracy_score(rows["target"], np.array(found.classes)[P.argmax(axis=1)]),
        ]
        scores = [values[0, 1, t] for values in list(found.scores.values())[:3]]
        np.testing.assert_allclose(scores, expected)
    table = found.to_frame()
    assert table["method"].tolist() == ["tailored", "tailored", "constant", "constant"]
    assert table["rows"].tolist() == [0, 3, 0, 3]
    np.testing.assert_allclose(table["error"], found.mean.ravel())
    np.testing.assert_allclose(table["brier_score"][1], found.scores["Brier score"][0, 1].mean())
    assert table["covered"].isna().all()


def test_with_few_tasks_each_task_is_a_fold():
    """The prediction without rows is the mean of the targets of the other tasks."""
    tasks = TaskSet(np.zeros((12, 1)), np.arange(12.0) ** 2, np.repeat([5, 3, 4], 4))
    found = evaluate(tasks, MEAN, supports=[0, 1])
    frame = found.predictions
    for label, errors in zip(found.labels, found.errors[0, 0], strict=True):
        (own,) = (task.y for task in tasks if task.label == label)
        chosen = (frame["task"] == label) & (frame["support"] == 0)
        mean = (tasks.y.sum() - own.sum()) / 8
        np.testing.assert_allclose(errors, np.mean((frame["target"][chosen] - mean) ** 2))
    for some, n, found in ((tasks[[0]], 0, "1 of 1"), (tasks, 9, "0 of 3")):
        message = f"{found} tasks have more than {n} rows, and at least two are needed"
        with pytest.raises(ValueError, match=message):
            evaluate(some, MEAN, supports=[n])
    with pytest.raises(TypeError, match="methods: expected a learner, or a dict of names and"):
        evaluate(tasks, {"mean": 3})
    for supports in ("some", ("first", "a"), [0.5]):
        with pytest.raises(TypeError, match="supports"):
            evaluate(tasks, MEAN, supports=supports)


def test_predictions_of_single_rows():
    """The rows of a frame are those of the tasks; the frame has the errors of the evaluation."""
    table = people(2).sample(frac=1.0, random_state=0)
    tasks = TaskSet.from_frame(table[["x", "visits", "person"]], task="person", target="visits")
    weighted = tasks.replace(frequency_weight=np.arange(len(tasks.y)) % 3 + 1.0)
    for each in (tasks, weighted):
        found = evaluate(each, MEAN, supports=[0, 2])
        frame = found.predictions
        assert list(frame) == ["task", "row", "target", "support", "prediction"]
        np.testing.assert_array_equal(each.y[frame["row"]], frame["target"])
        np.testing.assert_array_equal(each.labels[each.task_of_row[frame["row"]]], frame["task"])
        if each is tasks:
            squared = (frame["target"] - frame["prediction"]) ** 2
            by_task = squared.groupby([frame["support"], frame["task"]]).mean().unstack()
            np.testing.assert_allclose(by_task[found.labels], found.errors[0])


def test_the_first_rows_are_observed():
    """Query rows are those after the largest number of support rows."""
    tasks = count_tasks()
    found = evaluate(tasks, MEAN, supports=("first", 0, 5), n_folds=2)
    assert found.supports == (0, 5)
    positions = (
        found.predictions["row"] - tasks.offsets[tasks.task_of_row[found.predictions["row"]]]
    )
    assert set(positions) == {5, 6}
    assert evaluate(tasks, MEAN, supports="first", n_folds=2).supports == (0, 1, 2, 5)


def test_scores_of_counts():
    tasks = count_tasks().replace(exposure=None)
    # The loss of the evaluation is that of the learner.
    found = evaluate(tasks, loss="poisson", supports=[0, 3], n_folds=2)
    assert found.methods == ("tailored", *BASELINES["counts"])
    assert list(found.scores)[:2] == ["half Poisson deviance", "absolute error"]
    frame = found.predictions
    rows = frame[(frame["task"] == found.labels[4]) & (frame["support"] == 3)]
    half = 0.5 * mean_poisson_deviance(rows["target"], rows["prediction"])
    np.testing.assert_allclose(found.errors[0, 1, 4], half)
    assert (found.mean[0] < found.mean[1]).all()
    assert np.isfinite(found.covered[0]).all()


@pytest.mark.filterwarnings("ignore:X. held-out errors")
def test_a_learner_is_compared_with_baselines():
    """A formula without intercept determines that of the mixed model."""
    table = people(2)[["x", "visits", "person"]]
    tasks = TaskSet.from_formula("visits ~ 0 + x + (0 + x | person)", table)
    learner = EmpiricalBayesLearner(fit_intercept=False)
    found = evaluate(tasks, learner, supports=[2], n_folds=2)
    assert found.methods == ("tailored", *BASELINES["numbers"])
    assert np.isfinite(found.mean).all()


@pytest.mark.parametrize(
    ("scale", "text"),
    [
        (1172.0, "1172 ± 590"),
        (0.0015, "0.0015 ± 0.00075"),
        (3e-4, "0.0003 ± 0.00015"),
        (2e7, "2e+07 ± 1.0e+07"),
    ],
)
def test_an_error_and_its_standard_error_have_the_same_notation(scale, text):
    assert text in " ".join(str(evaluation_of([[scale, scale]], np.nan)).split())


def evaluation_of(errors, covered, **more):
    """Return an evaluation with these errors of methods and supports, equal in two tasks but for ±
    half of it.
    """
    errors = np.asarray(errors)[..., None] * [0.5, 1.5]
    inside = np.full(errors.shape, covered)
    scores = {"squared error": errors, **more, "covered": inside, "width": inside}
    methods = ("method", "task mean", "ridge per task")[: len(errors)]
    return Evaluation(methods, (0, 5), np.arange(2), scores, None, 0.9)


@pytest.mark.parametrize("covered", [0.875, np.nan])
def test_an_evaluation_prints_its_tables_and_definitions(covered):
    found = evaluation_of([[2.0, 1.0]] * 2, covered, accuracy=np.ones((2, 2, 2)))
    assert repr(found) == str(found)
    lines = [" ".join(line.split()) for line in str(found).splitlines() if line]
    assert lines[0] == "Mean squared error on 2 new tasks, by number of support rows"
    assert lines[1:4] == ["method 0 5", "method 2 ± 1 1 ± 0.5", "task mean 2 ± 1 1 ± 0.5"]
    assert ("inside 90 % intervals 87.5 % 87.5 %" in lines) == np.isfinite(covered)
    second = "Mean accuracy on 2 new tasks, by number of support rows"
    assert lines.index(second) == 4 + np.isfinite(covered)
    text = " ".join(lines)
    assert text.count("± is the standard error over tasks") == 1
    assert "task mean: mean of the support rows and of one row" in text


def test_an_evaluation_draws_its_errors():
    """A baseline far above the others does not set the axis."""
    found = evaluation_of([[1.0, 1.0], [1.2, 1.2], [50.0, 2.0]], 1.0)
    ax = found.plot()
    (ridge,) = (line for line in ax.lines if line.get_label() == "ridge per task")
    np.testing.assert_array_equal(ridge.get_ydata(), [50.0, 2.0])
    assert ax.get_ylim()[1] < 5.0
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "5"]
    (band,) = ax.collections
    low, high = np.ptp(band.get_paths()[0].vertices[:, 1]) * np.array([-0.5, 0.5]) + 1.0
    np.testing.assert_allclose([low, high], [0.5, 1.5])  # the standard error of 0.5 and 1.5
    assert found.plot(ax) is ax
