"""A loaded model predicts as the saved one, to the last bit."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import small_models
import tailored
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    load,
)
from tailored._utils.records import STORED
from tailored.exceptions import UnknownCategoryWarning
from tailored.solvers import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def fitted_names(learner):
    return {name for name in vars(learner) if name.endswith("_") and not name.startswith("_")}


def test_every_learner_is_saved_somewhere_here():
    public = {kind for kind in STORED.values() if kind.__name__ in tailored.__all__}
    kinds = {type(small_models.model(name)) for name in small_models.NAMES}
    # `tests/learners/test_classifier.py` saves the classifiers.
    assert kinds == public - {TaskSet, tailored.EmpiricalBayesClassifier, tailored.TaskClassifier}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", small_models.LEARNERS)
def test_learners(name, saved, tmp_path):
    """Adapting, predicting, scoring, intervals, arguments and all that was learned, to the last bit."""
    learner, again, tasks = small_models.model(name), load(saved(name)), small_models.LEARNERS[name][1]()
    assert type(again) is type(learner)
    assert repr(again) == repr(learner)
    assert fitted_names(again) == fitted_names(learner)
    assert "prior_" in fitted_names(again)
    if learner.prior_.quantile is None:
        np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    task = tasks[[1]]
    one, other = again.adapt(task), learner.adapt(task)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert one.intercept_ == other.intercept_
    np.testing.assert_array_equal(
        again.representation(task, columns=[0, 2]), learner.representation(task, columns=[0, 2])
    )
    if learner.calibration_ is not None:
        np.testing.assert_array_equal(one.predict_interval(task.X, 0.5), other.predict_interval(task.X, 0.5))
    assert (again.calibration_ is None) == (learner.calibration_ is None)
    groups = [label for label, n in zip(tasks.labels, tasks.sizes, strict=True) for _ in range(n)]
    np.testing.assert_array_equal(
        again.predict(tasks.X, groups=groups), learner.predict(tasks.X, groups=groups)
    )
    assert again.score(tasks) == learner.score(tasks)
    for attribute in fitted_names(learner) - {"prior_"}:
        assert str(getattr(again, attribute)) == str(getattr(learner, attribute))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved(name).read_bytes()


@pytest.mark.parametrize("name", [*small_models.ADAPTED, "task-fitted"])
def test_models_of_one_task(name, saved, tmp_path):
    model, again, X = small_models.model(name), load(saved(name)), small_models.query(3, 4)
    assert isinstance(again, TaskRegressor)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.representation_, model.representation_)
    assert (again.dual_gap_, again.n_iter_) == (model.dual_gap_, model.n_iter_)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved(name).read_bytes()


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


def test_an_adapted_model_keeps_the_names_of_its_columns(tmp_path):
    X, y, groups = rows(np.arange(6))
    frame = pd.DataFrame(X, columns=["one", "two"])
    learner = IndependentLearner(loss="squared").fit(frame, y, groups=groups)
    model = through_a_file(learner.adapt(frame[:3], y[:3]), tmp_path)
    assert model.feature_names_in_.tolist() == ["one", "two"]
    np.testing.assert_array_equal(model.predict(frame), learner.adapt(frame[:3], y[:3]).predict(frame))


def test_descriptions_with_gaps_are_filled_as_before(tmp_path):
    X, y, groups = rows(np.arange(8))
    side = np.random.default_rng(1).normal(size=(8, 2))
    side[3, 0] = np.nan
    tasks = TaskSet(X, y, groups, dict(enumerate(side)))
    learner = EmpiricalBayesLearner().fit(tasks)
    again = through_a_file(learner, tmp_path)
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, learner.adapt_many(tasks).weights_)
    gap = np.array([np.nan, 0.3])
    np.testing.assert_array_equal(
        again.adapt(X[:1], y[:1], side_info=gap).coef_, learner.adapt(X[:1], y[:1], side_info=gap).coef_
    )


def test_categories_are_kept(tmp_path):
    side = {t: {"age": 20.0 + t, "job": "cook" if t % 2 else "smith"} for t in range(10)}
    rng = np.random.default_rng(0)
    tasks = TaskSet(rng.normal(size=(40, 3)), rng.normal(size=40), np.repeat(np.arange(10), 4), side)
    learner = ConditionalLearner(solver=ProjectedSGD(0.1), fit_intercept=False).fit(tasks)
    learner.save(tmp_path / "a")
    again = load(tmp_path / "a")
    np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    unknown = {"age": 31.0, "job": "pilot"}
    with pytest.warns(UnknownCategoryWarning, match="'pilot' did not appear in training"):
        found = again.representation(side_info=unknown)
    with pytest.warns(UnknownCategoryWarning):
        np.testing.assert_array_equal(found, learner.representation(side_info=unknown))


def test_a_loaded_learner_cannot_continue_a_stream(saved):
    again, tasks = load(saved("conditional")), small_models.clusters()
    with pytest.raises(ValueError, match="a loaded learner continues a stream only if it was pickled after"):
        again.partial_fit(tasks)
    # It is unchanged, and can be fitted again.
    np.testing.assert_array_equal(
        again.adapt_many(tasks), small_models.model("conditional").adapt_many(tasks)
    )
    again.fit(tasks)


def test_code_is_refused(tmp_path):
    tasks = small_models.clusters()
    learner = ConditionalLearner(lambda task: task.y[:1], solver=ProjectedSGD(0.1), fit_intercept=False).fit(
        tasks
    )
    with pytest.raises(TypeError, match=r"feature_map.*pickle"):
        learner.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_only_what_was_learned_can_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        ConditionalLearner(fit_intercept=False).save(tmp_path / "a")
    assert not list(tmp_path.iterdir())
