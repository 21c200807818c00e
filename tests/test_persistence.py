"""Saving without pickle: the same answers after loading, old files whole when a save dies."""

import json
import zipfile

import numpy as np
import pytest

import tailored
from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters
from tailored.feature_maps import RidgeEstimate


@pytest.fixture(scope="module")
def tasks():
    return make_clusters(15, n_clusters=2, n_rows=10, n_features=5, rank=2, random_state=0)


@pytest.mark.parametrize(
    "learner",
    [
        IndependentLearner(initial_representation=2.0),
        UnconditionalLearner(step_size=0.1, bias="shared", fit_intercept=True),
        ConditionalLearner(step_size=0.1, rank=4, bias="conditional"),
        ConditionalLearner("fourier", step_size=(0.1, 0.3), rank=None, loss=("pinball", {"quantile": 0.3})),
        ConditionalLearner(RidgeEstimate(0.5), step_size="search", step_sizes=(0.1, 1.0), loss="squared"),
        ConditionalLearner("angle", step_size=0.1, inner="online"),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_round_trip(learner, tasks, tmp_path):
    learner.fit(tasks)
    learner.save(tmp_path / "learner.tailored")
    again = tailored.load(tmp_path / "learner.tailored")
    assert type(again) is type(learner)
    np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    task = tasks[1]
    np.testing.assert_array_equal(again.adapt(task.X, task.y).coef_, learner.adapt(task.X, task.y).coef_)
    assert again.score(tasks) == learner.score(tasks)


def test_categories_are_kept(tmp_path):
    side = {t: {"age": 20.0 + t, "job": "cook" if t % 2 else "smith"} for t in range(10)}
    rng = np.random.default_rng(0)
    tasks = TaskSet(rng.normal(size=(40, 3)), rng.normal(size=40), np.repeat(np.arange(10), 4), side)
    learner = ConditionalLearner(step_size=0.1).fit(tasks)
    learner.save(tmp_path / "a")
    np.testing.assert_array_equal(tailored.load(tmp_path / "a").adapt_many(tasks), learner.adapt_many(tasks))


def test_the_file_holds_no_rows_and_no_pickle(tasks, tmp_path):
    ConditionalLearner(step_size=0.1).fit(tasks).save(tmp_path / "a")
    with zipfile.ZipFile(tmp_path / "a") as archive:
        content = json.loads(archive.read("learner.json"))
        assert set(archive.namelist()) == {"learner.json", "arrays.npz"}
    assert content["format"] == 1
    with np.load((zipfile.ZipFile(tmp_path / "a")).open("arrays.npz"), allow_pickle=False) as arrays:
        assert not any(len(tasks.y) in array.shape for array in arrays.values())


def test_loaded_learner_cannot_go_on(tasks, tmp_path):
    ConditionalLearner(step_size=0.1).fit(tasks).save(tmp_path / "a")
    with pytest.raises(ValueError, match=r"partial_fit"):
        tailored.load(tmp_path / "a").partial_fit(tasks)


def test_code_is_refused(tasks, tmp_path):
    learner = ConditionalLearner(lambda task: task.y[:1], step_size=0.1).fit(tasks)
    with pytest.raises(TypeError, match=r"feature_map.*pickle"):
        learner.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_other_files_are_refused(tasks, tmp_path):
    (tmp_path / "a").write_text("hello")
    with pytest.raises(ValueError, match=r"not a file written by tailored"):
        tailored.load(tmp_path / "a")
    ConditionalLearner(step_size=0.1).fit(tasks).save(tmp_path / "b")
    with zipfile.ZipFile(tmp_path / "b") as archive:
        content, arrays = json.loads(archive.read("learner.json")), archive.read("arrays.npz")
    content["format"] = 99
    with zipfile.ZipFile(tmp_path / "b", "w") as archive:
        archive.writestr("learner.json", json.dumps(content))
        archive.writestr("arrays.npz", arrays)
    with pytest.raises(ValueError, match=r"format 99"):
        tailored.load(tmp_path / "b")
