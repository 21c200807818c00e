"""Conformity with scikit-learn: its own checks, cloning, model selection, dataframes, pickling."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tailored import ConditionalLearner, IndependentLearner, TaskRegressor, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters

FAST = {"step_size": "search", "step_sizes": (1e-2, 1.0)}
ESTIMATORS = [
    TaskRegressor(),
    TaskRegressor(loss="squared", fit_intercept=True),
    IndependentLearner(),
    UnconditionalLearner(**FAST),
    ConditionalLearner(),
    ConditionalLearner(fit_intercept=True, clip="train"),
    ConditionalLearner(**FAST),
    ConditionalLearner("ridge", step_size=0.1, fit_intercept=True, bias="conditional"),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tasks():
    return make_clusters(24, n_clusters=2, n_rows=12, n_features=6, rank=2, random_state=0)


def long_form(tasks):
    return tasks.X, tasks.y, np.repeat(tasks.labels, tasks.sizes)


@pytest.mark.parametrize("learner", ESTIMATORS[2:], ids=lambda e: type(e).__name__)
def test_arrays_and_task_set_are_the_same_input(learner, tasks):
    X, y, groups = long_form(tasks)
    a = clone(learner).fit(tasks)
    b = clone(learner).fit(X, y, groups=groups)
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.predict(X, groups=groups), b.predict(X, groups=groups))


def test_grid_search_over_whole_tasks(tasks):
    """GroupKFold keeps tasks whole; metadata routing hands their labels to fit and score."""
    X, y, groups = long_form(tasks)
    with sklearn.config_context(enable_metadata_routing=True):
        learner = (
            UnconditionalLearner(loss="squared").set_fit_request(groups=True).set_score_request(groups=True)
        )
        search = GridSearchCV(learner, {"step_size": [1e-9, 1.0]}, cv=GroupKFold(3), n_jobs=1)
        search.fit(X, y, groups=groups)
        assert set(search.cv_results_["param_step_size"]) == {1e-9, 1.0}
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        # the two candidates are really different learners, scored on tasks that fit did not see
        assert np.ptp(search.cv_results_["mean_test_score"]) > 0
        assert search.best_estimator_.n_tasks_seen_ == len(tasks)
        held_out = make_clusters(5, n_clusters=2, n_rows=12, n_features=6, rank=2, random_state=1)
        assert np.isfinite(search.best_estimator_.score(held_out))


def test_feature_names_follow_a_dataframe(tasks):
    X, y, groups = long_form(tasks)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    learner = ConditionalLearner(step_size=0.1).fit(frame, y, groups=groups)
    assert list(learner.feature_names_in_) == list(frame.columns)
    assert learner.n_features_in_ == 6
    with pytest.raises(ValueError, match="feature names"):
        learner.predict(frame[frame.columns[::-1]], groups=groups)
    model = learner.adapt(frame.iloc[:5], y[:5])
    assert list(model.feature_names_in_) == list(frame.columns)
    np.testing.assert_allclose(model.predict(frame.iloc[:3]), X[:3] @ model.coef_)


def test_adapted_model_is_an_ordinary_regressor(tasks):
    learner = ConditionalLearner(step_size=0.1).fit(tasks)
    task = tasks[3]
    model = learner.adapt(task.X, task.y)
    assert model.get_params()["loss"] == "absolute"
    again = clone(model).fit(task.X, task.y)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-12)
    np.testing.assert_allclose(again.representation_, model.representation_)
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(task.X), model.predict(task.X))
    assert model.score(task.X, task.y) <= 1.0
    pipeline = make_pipeline(StandardScaler(), clone(model)).fit(task.X, task.y)
    assert pipeline.predict(task.X).shape == (12,)


def test_pickled_learner_goes_on(tasks):
    learner = ConditionalLearner(**FAST).partial_fit(tasks[:10])
    copy = pickle.loads(pickle.dumps(learner))
    learner.partial_fit(tasks[10:])
    copy.partial_fit(tasks[10:])
    np.testing.assert_array_equal(learner.conditioning_.C, copy.conditioning_.C)
    np.testing.assert_array_equal(
        learner.representation(tasks[0].X, tasks[0].y), copy.representation(tasks[0].X, tasks[0].y)
    )


def test_clone_keeps_parameters_and_forgets_the_fit(tasks):
    learner = ConditionalLearner("ridge", rank=3, step_size=(0.1, 0.2)).fit(tasks)
    fresh = clone(learner)
    assert fresh.get_params() == learner.get_params()
    assert not hasattr(fresh, "conditioning_")


def test_fit_does_not_change_parameters(tasks):
    learner = ConditionalLearner(**FAST)
    before = dict(learner.get_params())
    learner.fit(tasks)
    assert learner.get_params() == before


def test_constant_column_is_the_intercept(tasks):
    """fit_intercept is nothing but a column of ones appended to X."""
    ones = TaskSet(
        np.hstack([tasks.X, np.ones((len(tasks.y), 1))]), tasks.y, np.repeat(tasks.labels, tasks.sizes)
    )
    a = UnconditionalLearner(step_size=0.5, fit_intercept=True).fit(tasks)
    b = UnconditionalLearner(step_size=0.5).fit(ones)
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    model = a.adapt(tasks[0].X, tasks[0].y)
    expected = b.adapt(ones[0].X, ones[0].y).coef_
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, atol=1e-12)
