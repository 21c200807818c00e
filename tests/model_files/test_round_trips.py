"""What a model may hold comes back from its file: any character, names, descriptions with gaps, learners inside of learners."""

import numpy as np
import pytest

from tailored import ConditionalLearner, EmpiricalBayesLearner, IndependentLearner, TaskSet, load
from tailored.solvers import ProjectedSGD


def rows(labels, d=2, seed=0):
    """Four rows for each label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(4 * len(labels), d))
    return X, X @ rng.normal(size=d) + 0.1 * rng.normal(size=len(X)), np.repeat(labels, 4)


def through_a_file(model, tmp_path):
    model.save(tmp_path / "model")
    return load(tmp_path / "model")


def test_labels_of_any_character(tmp_path):
    """The ends of Unicode and of what is left out in its middle."""
    labels = np.array(["\U0010ffff", "\ud7ff", "\ue000", "", "é\x00x"])
    learner = IndependentLearner().fit(*rows(labels)[:2], groups=rows(labels)[2])
    assert through_a_file(learner, tmp_path).task_labels_.tolist() == labels.tolist()


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_an_adapted_model_keeps_the_names_of_its_columns(fit_intercept, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, groups = rows(np.arange(6))
    frame = pd.DataFrame(X, columns=["one", "two"])
    learner = IndependentLearner(loss="squared", fit_intercept=fit_intercept).fit(frame, y, groups=groups)
    model = through_a_file(learner.adapt(frame[:3], y[:3]), tmp_path)
    assert model.feature_names_in_.tolist() == ["one", "two"]
    np.testing.assert_array_equal(model.predict(frame), learner.adapt(frame[:3], y[:3]).predict(frame))


def test_descriptions_with_gaps_are_filled_as_before(tmp_path, few_steps):
    X, y, groups = rows(np.arange(8))
    side = np.random.default_rng(1).normal(size=(8, 2))
    side[3, 0] = np.nan
    tasks = TaskSet(X, y, groups, dict(enumerate(side)))
    learner = EmpiricalBayesLearner("vector").fit(tasks)
    again = through_a_file(learner, tmp_path)
    np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    gap = np.array([np.nan, 0.3])
    np.testing.assert_array_equal(
        again.adapt(X[:1], y[:1], side_info=gap).coef_, learner.adapt(X[:1], y[:1], side_info=gap).coef_
    )


def test_a_learner_inside_of_a_learner_comes_back(tmp_path):
    X, y, groups = rows(np.arange(6))
    inside = IndependentLearner(loss="squared").fit(X, y, groups=groups)
    learner = ConditionalLearner(inside, solver=ProjectedSGD(0.1), rank=2).fit(X, y, groups=groups)
    again = through_a_file(learner, tmp_path)
    np.testing.assert_array_equal(again.adapt(X[:3], y[:3]).coef_, learner.adapt(X[:3], y[:3]).coef_)
