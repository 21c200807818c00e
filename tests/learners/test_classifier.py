"""`EmpiricalBayesClassifier`: labels, probabilities, tables, files, and scikit-learn's checks."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.special
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskClassifier, TaskSet, load
from tailored.gaussian.responses import Bernoulli

pytestmark = [
    pytest.mark.filterwarnings("ignore::tailored.exceptions.SingleTaskWarning"),
    pytest.mark.usefixtures("short_fits_in_module"),
]


def draw(T, n, n_classes=2, seed=0):
    """Return rows of groups with random intercepts and slopes of every class but the first."""
    rng = np.random.default_rng(seed)
    groups, x = np.repeat(np.arange(T), n), rng.normal(size=T * n)
    w = rng.normal([0.5, 0.0], [0.4, 1.2], size=(n_classes - 1, T, 2))
    f = np.vstack([np.zeros(T * n), w[:, groups, 0] * x + w[:, groups, 1]])
    P = scipy.special.softmax(f, axis=0)
    return x[:, None], (rng.random(T * n) > P.cumsum(axis=0)).sum(axis=0), groups


@pytest.fixture(scope="module")
def table():
    X, y, groups = draw(60, 10)
    return pd.DataFrame({"x": X[:, 0], "bought": np.array(["no", "yes"])[y], "person": groups})


@pytest.fixture(scope="module")
def fitted(table, short_fits_in_module):
    return EmpiricalBayesClassifier().fit(TaskSet.from_frame(table, task="person", target="bought"))


def test_probabilities_are_those_of_the_binary_learner(fitted, table):
    assert fitted.classes_.tolist() == ["no", "yes"]
    X, y = table[["x"]].to_numpy(), (table["bought"] == "yes").to_numpy(float)
    learner = EmpiricalBayesLearner(loss=Bernoulli()).fit(X, y, groups=table["person"])
    P = fitted.predict_proba(table[["x"]], groups=table["person"])
    np.testing.assert_allclose(P[:, 1], learner.predict(X, groups=table["person"]), rtol=1e-9)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    logits = fitted.decision_function(table[["x"]], groups=table["person"])
    np.testing.assert_allclose(scipy.special.expit(logits), P[:, 1], rtol=1e-9)
    assert log_loss(y, P[:, 1]) < 0.9 * log_loss(y, np.full(len(y), y.mean()))


def test_a_class_of_the_table_that_no_training_task_has():
    """Parts of a table, such as folds, have the same columns of probabilities."""
    X, y, groups = draw(20, 8, 3)
    frame = pd.DataFrame({"x": X[:, 0], "y": np.array(["a", "b", "c"])[y], "g": groups})
    frame.loc[(groups < 16) & (frame["y"] == "b"), "y"] = "a"
    tasks = TaskSet.from_frame(frame, task="g", target="y")
    classifier = EmpiricalBayesClassifier().fit(tasks[:16])
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    P = classifier.predict_proba(tasks[16:])
    assert P.shape == (32, 3)
    assert P[:, 1].max() < 0.1


def test_a_new_task_from_labelled_rows(fitted, tmp_path):
    X, y, _ = draw(1, 20, seed=5)
    labels = np.array(["no", "yes"])[y]
    model = fitted.adapt(X[:12], labels[:12])
    assert isinstance(model, TaskClassifier)
    assert set(model.predict(X)) <= {"no", "yes"}
    np.testing.assert_array_equal(model.predict(X) == "yes", model.predict_proba(X)[:, 1] > 0.5)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == "yes")
    updated = fitted.adapt(X[:7], labels[:7]).update(X[7:12], labels[7:12])
    np.testing.assert_allclose(updated.predict_proba(X), model.predict_proba(X), rtol=1e-6)
    for each in (model, fitted):
        each.save(tmp_path / "model.tailored")
        assert load(tmp_path / "model.tailored").classes_.tolist() == ["no", "yes"]
    again = load(tmp_path / "model.tailored").adapt(X[:12], labels[:12])
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match=r"y: fit had the classes .*, but not 'perhaps'"):
        fitted.adapt(X[:1], ["perhaps"])


def test_tables_in_and_out(fitted, table):
    new = table.head(40).assign(person=table["person"].head(40) + 1000)
    found = fitted.predict_tasks(new, support=new.iloc[::2])
    assert list(found.columns) == ["person", "probability"]
    rows = new[new["person"] == 1000]
    model = fitted.adapt(rows[["x"]].iloc[::2].to_numpy(), rows["bought"].iloc[::2])
    expected = model.predict_proba(rows[["x"]].to_numpy())[:, 1]
    np.testing.assert_allclose(found.loc[rows.index, "probability"], expected, rtol=1e-6)
    message = "side_info: this learner was fitted without side information"
    with pytest.raises(ValueError, match=message):
        fitted.predict_tasks(new, side_info={label: [1.0] for label in new["person"]})
    message = r"column 'bought': fit had the classes .*, but not 'maybe'"
    with pytest.raises(ValueError, match=message):
        fitted.predict_tasks(new, support=new.assign(bought="maybe"))
    message = r"column 'bought': fit had the classes 'no', 'yes', but not 1, 2"
    with pytest.raises(ValueError, match=message):
        fitted.predict_tasks(new, support=new.assign(bought=(new["bought"] == "yes") + 1))
    with pytest.raises(ValueError, match="has classes, not numbers; use EmpiricalBayesClassifier"):
        EmpiricalBayesLearner().fit(TaskSet.from_frame(table, task="person", target="bought"))


def test_support_rows_with_some_of_the_classes(table):
    """A table that lacks classes has other positions."""
    names = {"no": "b", "yes": "c"}
    three = table.assign(bought=table["bought"].map(names))
    three.loc[::7, "bought"] = "a"
    learner = EmpiricalBayesClassifier().fit(
        TaskSet.from_frame(three, task="person", target="bought")
    )
    new = table.head(12).assign(person=1000)
    support = new.assign(bought=new["bought"].map(names))
    expected = learner.adapt(new[["x"]].to_numpy(), support["bought"]).predict_proba(
        new[["x"]].to_numpy()
    )
    for rows in (support, TaskSet.from_frame(support, task="person", target="bought")):
        found = learner.predict_tasks(new, support=rows)
        np.testing.assert_allclose(found[[f"probability_{k}" for k in "abc"]], expected, rtol=1e-6)


def test_more_classes_against_the_rest():
    X, y, groups = draw(50, 12, n_classes=3, seed=1)
    learner = EmpiricalBayesClassifier().fit(X, y * 10, groups=groups)
    P = learner.predict_proba(X, groups=groups)
    assert learner.classes_.tolist() == [0, 10, 20]
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    assert log_loss(y, P) < 0.9 * log_loss(y, np.tile(np.bincount(y) / len(y), (len(y), 1)))
    table = learner.predict_tasks(TaskSet(X[:5], y[:5] * 10.0, groups[:5] + 100))
    assert table.dtype.names == ("task", "probability_0", "probability_10", "probability_20")
    assert learner.score(X, y * 10, groups=groups) > np.bincount(y).max() / len(y)
    printed = str(learner.summary())
    for label, summary in learner.summaries().items():
        assert f"Predictions are probabilities of {label}." in str(summary)
        assert str(summary) in printed
    message = "effects: there are more than two classes; fit a target with two"
    with pytest.raises(ValueError, match=message):
        learner.effects(TaskSet(X, y * 10, groups))


def test_one_class_is_an_error():
    with pytest.raises(ValueError, match="y: 12 of its 12 classes have a single row"):
        EmpiricalBayesClassifier().fit(
            np.ones((12, 1)), [f"c{i}" for i in range(12)], groups=np.arange(12) % 3
        )
    with pytest.raises(ValueError, match="y: there is only one class, 'a'"):
        EmpiricalBayesClassifier().fit(np.zeros((4, 1)), ["a"] * 4, groups=[0, 0, 1, 1])


@parametrize_with_checks(
    [EmpiricalBayesClassifier()],
    expected_failed_checks=lambda _: {
        "check_estimators_empty_data_messages": "rows without features are allowed",
        "check_classifiers_one_label_sample_weights": "zero weights are an error",
        "check_sample_weight_equivalence_on_dense_data": "zero weights are an error",
        "check_sample_weight_equivalence_on_sparse_data": "zero weights are an error",
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_large_numbers_are_refused_without_a_warning_of_numpy():
    tasks = TaskSet.from_tasks([(np.ones((2, 1)), np.array([1.5e60, 2e60]))] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="Unknown label type"):
            EmpiricalBayesClassifier().fit(tasks)
