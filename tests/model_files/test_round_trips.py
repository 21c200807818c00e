"""A loaded model predicts as the saved one, to the last bit; `save` refuses what it cannot write,
and keeps the old file.
"""

import errno
import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
from copy import deepcopy
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import small_models
import tailored
from tailored import ConditionalLearner, EmpiricalBayesLearner, IndependentLearner, TaskSet, load
from tailored.files import _state
from tailored.paper import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_every_class_with_save_is_saved_here():
    public = {kind for name in tailored.__all__ if hasattr(kind := getattr(tailored, name), "save")}
    assert {type(small_models.model(name)) for name in small_models.NAMES} == public
    assert small_models.model("serial").prior_.response.correlation is not None
    assert small_models.model("mixture").structure_["n_components"] > 1


@pytest.mark.parametrize("name", small_models.NAMES)
def test_a_loaded_model_is_the_saved_one(name, saved, tmp_path):
    """Predictions, intervals, the summary, arguments and fitted attributes."""
    model, again = small_models.model(name), load(saved(name))
    assert type(again) is type(model)
    small_models.assert_equal(small_models.answers(model), small_models.answers(again))
    names = {name for name in vars(model) if name.endswith("_")}
    assert {name for name in vars(again) if name.endswith("_")} == names
    for attribute in names - {"learners_", "models_", "prior_"}:
        assert str(getattr(again, attribute)) == str(getattr(model, attribute))
    fresh = load(saved(name))
    fresh.save(tmp_path / "again")
    assert _state((tmp_path / "again").read_bytes()) == _state(saved(name).read_bytes())


def strange_rows(n_tasks=12, n_rows=6):
    """Targets that cannot arise from other numbers by chance; no task is held out as a whole."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(n_tasks * n_rows, 3)), rng.normal(size=n_tasks * n_rows)
    return TaskSet(X, y, np.repeat(np.arange(n_tasks), n_rows))


def rows_in(path, tasks):
    """How many of the numbers in rows and targets are in a file."""
    content = repr(_state(path.read_bytes())).encode()
    numbers = np.concatenate([np.asarray(tasks.X).ravel(), tasks.y])
    return sum(
        repr(number.tobytes())[2:-1].encode() in content or repr(float(number)).encode() in content
        for number in numbers
    )


LEARNERS = {
    "empirical Bayes": EmpiricalBayesLearner(),
    "independent": IndependentLearner(),
    "conditional": ConditionalLearner("mean", solver=ProjectedSGD(), rank=2),
    "unconditional": tailored.UnconditionalLearner(solver=ProjectedSGD()),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_files_of_learners_contain_no_training_rows(name, tmp_path):
    tasks = strange_rows()
    learner = deepcopy(LEARNERS[name]).fit(tasks)
    learner.save(tmp_path / "a")
    assert rows_in(tmp_path / "a", tasks) == 0
    # In memory and in pickles nothing changes.
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(
        again.adapt_many(tasks).weights_, learner.adapt_many(tasks).weights_
    )
    if name in ("conditional", "unconditional"):
        for fitted in (learner, load(tmp_path / "a")):
            with pytest.raises(ValueError, match="continues earlier calls of partial_fit only"):
                fitted.partial_fit(tasks)


def test_the_stream_of_partial_fit_is_in_pickles_only(tmp_path):
    tasks = strange_rows()
    learner = ConditionalLearner(solver=ProjectedSGD(step="search")).partial_fit(tasks[:6])
    learner.save(tmp_path / "a")
    assert rows_in(tmp_path / "a", tasks) == 0
    again = pickle.loads(pickle.dumps(learner)).partial_fit(tasks[6:])
    expected = learner.partial_fit(tasks[6:]).adapt_many(tasks).weights_
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, expected)


def test_an_adapted_model_contains_the_rows_of_its_own_task(tmp_path):
    tasks = strange_rows()
    X, y = tasks.X[:5] + 0.1, tasks.y[:5] + 0.1
    model = EmpiricalBayesLearner().fit(tasks).adapt(X, y)
    model.save(tmp_path / "a")
    assert rows_in(tmp_path / "a", tasks) == 0
    assert rows_in(tmp_path / "a", TaskSet(X, y)) == 20
    again = load(tmp_path / "a")
    assert not again._support.X.flags.writeable
    np.testing.assert_array_equal(
        again.update(X[:2], y[:2]).coef_, model.update(X[:2], y[:2]).coef_
    )


def labelled(names):
    X, y = np.random.default_rng(0).normal(size=(12, 2)), np.random.default_rng(1).normal(size=12)
    groups = [names[i % len(names)] for i in range(12)]
    return IndependentLearner().fit(X, y, groups=groups), X, groups


LABELS = {
    "integers": [3, 1, 2],
    "floats": [0.5, -1.5, 2.0],
    "letters": ["a", "ä", "🙂", "", "é\x00x", "\ud7ff", "\U0010ffff"],
    "tuples": [("a", 1), ("a", (2, None)), 7],
    "mixed": [True, "x", 2.5],
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(case, tmp_path):
    learner, X, groups = labelled(LABELS[case])
    learner.save(tmp_path / "a")
    again = load(tmp_path / "a")
    assert again.task_labels_.tolist() == learner.task_labels_.tolist()
    assert again.task_labels_.dtype == learner.task_labels_.dtype
    np.testing.assert_array_equal(
        again.predict(X, groups=groups), learner.predict(X, groups=groups)
    )


REFUSED_LABELS = {
    "dates": [date(2020, 1, i) for i in (1, 2, 3)],
    "days": list(np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")),
    "time stamps": [pd.Timestamp("2020-01-01 10:00"), pd.Timestamp("2020-01-02")],
    "bytes": [b"a", b"b"],
    "sets": [frozenset({1}), frozenset({2})],
}


@pytest.mark.parametrize("case", REFUSED_LABELS)
def test_other_labels_are_refused(case, tmp_path):
    learner, *_ = labelled(REFUSED_LABELS[case])
    message = r"^task_labels_.* cannot be saved .*numbers, strings or tuples"
    with pytest.raises(TypeError, match=message):
        learner.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


class Derived(IndependentLearner):
    """A class of the user."""


REFUSED = {
    "a lambda": ({"feature_map": lambda task: task.y[:1]}, r"^feature_map: .*<lambda> cannot .*'vector' can be saved"),
    "a function": ({"feature_map": np.linalg.norm}, r"^feature_map: .*norm cannot be saved without pickle"),
    "a generator": ({"random_state": np.random.RandomState(0)}, r"^random_state: .*RandomState .*use an integer"),
    "a date inside": ({"columns_in_": {"task": [date(2020, 1, 1)]}}, r"^columns_in_\.task\.0: datetime.date cannot"),
    "a key": ({"columns_in_": {1: "a"}}, r"^columns_in_.*builtins.int cannot be saved"),
    "a lock": ({"more_": threading.Lock()}, r"cannot be saved without pickle.*pickle the learner"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_save_names_what_it_cannot_write_and_keeps_the_old_file(case, saved, tmp_path):
    attributes, message = REFUSED[case]
    learner = load(saved("independent"))
    learner.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    vars(learner).update(attributes)
    with pytest.raises(TypeError, match=message):
        learner.save(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == before


def test_what_cannot_be_read_back_is_not_written(saved, tmp_path):
    tasks = small_models.clusters()
    with pytest.raises(TypeError, match=r"Derived cannot be saved without pickle"):
        Derived().fit(tasks).save(tmp_path / "a")
    learner = load(saved("independent"))
    learner.more_ = np.empty((2, 2), dtype=object)
    learner.more_[...] = [[("a",), ("b",)], [("c",), ("d",)]]  # would come back with a third axis
    with pytest.raises(ValueError, match=r"cannot be saved: it differs after reading"):
        learner.save(tmp_path / "a")
    with pytest.raises(NotFittedError):
        ConditionalLearner().save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


# --- the file is replaced atomically


@pytest.fixture(scope="module")
def models(saved):
    return [load(saved(name)) for name in ("independent", "conditional", "angle")]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(models, tmp_path, monkeypatch):
    models[0].save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, full)
            for target in "ab":
                with pytest.raises(OSError, match="No space left"):
                    models[1].save(tmp_path / target)
        assert os.listdir(tmp_path) == ["a"]
        assert (tmp_path / "a").read_bytes() == before


KILLED = """
import os, signal, sys
from tailored._utils.files import write_atomically
def killed(file):
    os.kill(os.getpid(), signal.SIGKILL)
os.fsync = killed
write_atomically(sys.argv[1], b"new")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_writer_leaves_the_old_file(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    found = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "a")], check=False)
    assert found.returncode == -signal.SIGKILL
    assert (tmp_path / "a").read_bytes() == b"old"


def test_the_file_and_then_the_folder_are_flushed(models, tmp_path, monkeypatch):
    seen, fsync, replace = [], os.fsync, os.replace

    def watched(descriptor):
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def moved(source, target):
        seen.append("move")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(os, "replace", moved)
    models[0].save(tmp_path / "a")
    assert seen == ["file", "move", "folder"]


def test_several_writers_leave_the_file_of_one_of_them(models, tmp_path):
    path, failures = tmp_path / "a", []

    def write(model):
        try:
            for _ in range(5):
                model.save(path)
                load(path)
        except Exception as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(model,)) for model in models]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert failures == []
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_is_followed(models, tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "model", tmp_path / "link"
    for _ in range(2):  # a link to nothing yet, and to a file
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        models[0].save(link)
        assert link.is_symlink()
        np.testing.assert_array_equal(load(link).task_weights_, models[0].task_weights_)
        assert os.listdir(tmp_path / "there") == ["model"]
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises((ValueError, OSError), match="round"):
        models[0].save(tmp_path / "round")


def test_a_target_that_is_not_a_file(models, tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; give the name of a file"):
        models[0].save(tmp_path)
    message = r"the folder .*nowhere does not exist; create it first"
    with pytest.raises(FileNotFoundError, match=message):
        models[0].save(tmp_path / "nowhere" / "a")
    if Path("/dev/null").exists():
        with pytest.raises(ValueError, match="not a regular file"):
            models[0].save("/dev/null")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_permissions_are_the_users(models, tmp_path):
    before = os.umask(0o027)
    try:
        models[0].save(tmp_path / "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    (tmp_path / "a").chmod(0o600)
    models[1].save(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
