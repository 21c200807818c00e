"""Saving without pickle: the same answers after loading (what is in the files: tests/model_files)."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tailored
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored._utils.records import STORED
from tailored.datasets import make_clusters
from tailored.exceptions import UnknownCategoryWarning
from tailored.feature_maps import AdaptedWeights, PosteriorMean, RidgeEstimate
from tailored.learners import MetaLearner
from tailored.losses import Pinball
from tailored.solvers import LBFGS, ProjectedSGD


@pytest.fixture(scope="module")
def tasks():
    return make_clusters(15, n_clusters=2, n_rows=10, n_features=5, rank=2, random_state=0)


LEARNERS = [
    IndependentLearner(initial_representation=2.0, fit_intercept=False),
    IndependentLearner(
        initial_representation=np.diag([1.0, 2.0, 0.0, 1.0, 3.0]), clip="train", fit_intercept=False
    ),
    UnconditionalLearner(solver=ProjectedSGD(0.1), bias="shared", fit_intercept=True),
    UnconditionalLearner(solver=LBFGS(max_passes=2), clip=(-1, 1.5), fit_intercept=False),
    ConditionalLearner(solver=ProjectedSGD(0.1), rank=4, bias="conditional", fit_intercept=False),
    ConditionalLearner(
        "fourier",
        solver=ProjectedSGD((0.1, 0.3)),
        rank=None,
        loss=("pinball", {"quantile": 0.3}),
        fit_intercept=False,
    ),
    ConditionalLearner(
        RidgeEstimate(0.5), solver=ProjectedSGD(step_sizes=(0.1, 1.0)), loss="squared", fit_intercept=False
    ),
    ConditionalLearner("angle", solver=ProjectedSGD(0.1), inner="online", fit_intercept=False),
    ConditionalLearner(
        ["mean", "ridge"],
        solver=LBFGS(max_passes=2),
        loss=Pinball(0.3),
        objective="query",
        fit_intercept=False,
    ),
    ConditionalLearner(
        IndependentLearner(fit_intercept=False), solver=ProjectedSGD(0.1), fit_intercept=False
    ),
    ConditionalLearner(
        AdaptedWeights(IndependentLearner(fit_intercept=False), unit_norm=True),
        solver=ProjectedSGD(0.1),
        fit_intercept=False,
    ),
    ConditionalLearner(
        PosteriorMean(), solver=ProjectedSGD("theory", theory_constants={"R": 2.0}), fit_intercept=False
    ),
    ConditionalLearner.paper(solver=ProjectedSGD(step_sizes=[0.1, 1e300], step_ratios=[1])),
    EmpiricalBayesLearner(),
    EmpiricalBayesLearner("mean", fit_intercept=True, clip="train", random_state=3),
]


def fitted_names(learner):
    return {name for name in vars(learner) if name.endswith("_") and not name.startswith("_")}


def test_every_learner_is_saved_somewhere_here():
    kinds = {type(learner) for learner in LEARNERS}
    # Bases of learners are registered, too.
    public = {kind for kind in STORED.values() if kind.__name__ in tailored.__all__}
    assert kinds == {kind for kind in public if issubclass(kind, MetaLearner)}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_round_trip(learner, few_steps, tasks, tmp_path):
    """Adapting, predicting, scoring, intervals, arguments and all that was learned, to the last bit."""
    learner = clone(learner).fit(tasks)
    learner.save(tmp_path / "learner.tailored")
    again = tailored.load(tmp_path / "learner.tailored")
    assert type(again) is type(learner)
    assert repr(again) == repr(learner)
    assert fitted_names(again) == fitted_names(learner)
    assert "prior_" in fitted_names(again)
    np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    np.testing.assert_array_equal(again.representations(tasks), learner.representations(tasks))
    task = tasks[1]
    one, other = again.adapt(task.X, task.y), learner.adapt(task.X, task.y)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert (one.intercept_, one.clip_) == (other.intercept_, other.clip_)
    if learner.calibration_ is not None:
        np.testing.assert_array_equal(one.predict_interval(task.X, 0.5), other.predict_interval(task.X, 0.5))
    assert (again.calibration_ is None) == (learner.calibration_ is None)
    groups = np.repeat(tasks.labels, tasks.sizes)
    np.testing.assert_array_equal(
        again.predict(tasks.X, groups=groups), learner.predict(tasks.X, groups=groups)
    )
    assert again.score(tasks) == learner.score(tasks)
    np.testing.assert_array_equal(again.task_errors(tasks), learner.task_errors(tasks))
    for name in ("search_results_", "validation_error_", "scale_", "step_size_", "best_params_", "form_"):
        assert str(getattr(again, name, None)) == str(getattr(learner, name, None))
    # what was read can be written, and is the same again
    again.save(tmp_path / "again")
    np.testing.assert_array_equal(
        tailored.load(tmp_path / "again").adapt_many(tasks), learner.adapt_many(tasks)
    )


def test_labels_and_feature_names_are_kept(tasks, tmp_path):
    frame = pd.DataFrame(tasks.X, columns=list("abcde"))
    groups = np.array([f"task {t}" for t in np.repeat(tasks.labels, tasks.sizes)])
    learner = UnconditionalLearner(solver=ProjectedSGD(0.1), fit_intercept=False).fit(
        frame, tasks.y, groups=groups
    )
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    assert list(again.feature_names_in_) == list("abcde")
    assert again.n_features_in_ == 5
    np.testing.assert_array_equal(again.predict(frame, groups=groups), learner.predict(frame, groups=groups))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("edcba")], groups=groups)
    # a task that was not seen is predicted by the prior, here and there
    rows = frame[:2]
    expected = learner.adapt().predict(rows)
    np.testing.assert_allclose(again.predict(rows, groups=["new", "newer"]), expected)


def test_calibration_is_kept(tasks, tmp_path):
    learner = IndependentLearner(fit_intercept=False).fit(tasks).calibrate_intervals(tasks)
    learner.save(tmp_path / "a")
    task = tasks[0]
    intervals = [
        each.adapt(task.X, task.y).predict_interval(task.X, 0.6)
        for each in (learner, tailored.load(tmp_path / "a"))
    ]
    np.testing.assert_array_equal(*intervals)
    assert np.isfinite(intervals[0]).all()


def test_categories_are_kept(tmp_path):
    side = {t: {"age": 20.0 + t, "job": "cook" if t % 2 else "smith"} for t in range(10)}
    rng = np.random.default_rng(0)
    tasks = TaskSet(rng.normal(size=(40, 3)), rng.normal(size=40), np.repeat(np.arange(10), 4), side)
    learner = ConditionalLearner(solver=ProjectedSGD(0.1), fit_intercept=False).fit(tasks)
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    unknown = {"age": 31.0, "job": "pilot"}
    with pytest.warns(UnknownCategoryWarning, match="'pilot' did not appear in training"):
        found = again.representation(side_info=unknown)
    with pytest.warns(UnknownCategoryWarning):
        np.testing.assert_array_equal(found, learner.representation(side_info=unknown))


def test_loaded_learner_cannot_go_on(few_steps, tasks, tmp_path):
    for learner in (
        ConditionalLearner(solver=ProjectedSGD(0.1), fit_intercept=False),
        EmpiricalBayesLearner(),
    ):
        learner.fit(tasks).save(tmp_path / "a")
        again = tailored.load(tmp_path / "a")
        with pytest.raises(ValueError, match="partial_fit: a loaded learner cannot continue a stream"):
            again.partial_fit(tasks)
        # and is as good as before, and may be fitted anew
        np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
        np.testing.assert_array_equal(again.fit(tasks).adapt_many(tasks), learner.adapt_many(tasks))


def test_code_is_refused(tasks, tmp_path):
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
