"""The same bits whatever order tasks come in, whatever form the rows have, whoever computes."""

import copy
import functools
import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tailored
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet
from tailored.evaluation import BASELINES, evaluate
from tailored.scale.base import Reservoir
from tailored.tasks.reading import label_keys

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

T, N, D = 24, 8, 2


def made(seed=0, n_tasks=T, *, described=False):
    """Tasks of two kinds under labels that are words, and perhaps a number that describes them."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n_tasks)
    w = np.where(kind[:, None] == 0, [2.0, 0.0], [-1.0, 1.0]) + 0.3 * rng.normal(size=(n_tasks, D))
    X = rng.normal(size=(n_tasks, N, D))
    y = np.einsum("tnd,td->tn", X, w) + 0.2 * rng.normal(size=(n_tasks, N))
    labels = [f"task {t}" for t in range(n_tasks)]
    side = (
        dict(zip(labels, kind + 0.3 * rng.normal(size=n_tasks), strict=True)) if described else None
    )
    return TaskSet(X.reshape(-1, D), y.ravel(), np.repeat(labels, N), side)


def shuffled(tasks, seed=3):
    return tasks[np.random.default_rng(seed).permutation(len(tasks))]


def answers(learner, described=False):
    """Weights of new tasks, and those of the tasks learned from, by label."""
    new = made(1, 5, described=described)
    if not hasattr(learner, "adapt_many"):
        return learner.predict_rows(*new.support_query(4, shuffle=False)), np.zeros(0)
    known = getattr(learner, "task_labels_", np.zeros(0))
    return np.asarray(learner.adapt_many(new)), getattr(learner, "task_weights_", known)[
        np.argsort(known)
    ]


def same(one, other, described=False):
    found = zip(answers(one, described), answers(other, described), strict=True)
    assert all(np.array_equal(mine, theirs) for mine, theirs in found)
    assert getattr(one, "search_results_", None) == getattr(other, "search_results_", None)


LEARNERS = {"empirical Bayes": EmpiricalBayesLearner, "independent": IndependentLearner}
#: Those that are given the number that describes the tasks.
DESCRIBED = ("empirical Bayes",)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_order_of_tasks_does_not_matter(name):
    described = name in DESCRIBED
    tasks = made(described=described)
    same(LEARNERS[name]().fit(tasks), LEARNERS[name]().fit(shuffled(tasks)), described)


def test_the_order_of_tasks_to_choose_on_does_not_matter():
    tasks, other = made(), made(5, 12)
    one = EmpiricalBayesLearner().fit(tasks, validation=other)
    same(one, EmpiricalBayesLearner().fit(shuffled(tasks), validation=shuffled(other)))


def test_tasks_without_statistics_of_all_are_summed_in_the_order_of_their_labels(monkeypatch):
    """More tasks than a sample holds, and statistics that are too large to be kept."""
    monkeypatch.setattr("tailored.learners.empirical_bayes.LARGEST_STATISTICS", 10)
    monkeypatch.setattr("tailored.scale.base.BLOCK_FLOATS", 90)
    small = functools.partial(Reservoir, 16)
    monkeypatch.setattr("tailored.scale.base.Reservoir", small)
    tasks = made()
    one, other = (EmpiricalBayesLearner().fit(each) for each in (tasks, shuffled(tasks)))
    assert one.training_summary_.n_tasks == T
    assert not hasattr(one, "task_labels_")
    same(one, other)


def test_the_order_of_calibration_tasks_does_not_matter():
    tasks, task = made(), made(1, 1)[0]
    ends = [
        IndependentLearner(loss="squared")
        .fit(tasks)
        .calibrate_intervals(each)
        .adapt(task.X, task.y)
        .predict_interval(task.X, coverage=0.8)
        for each in (tasks, shuffled(tasks))
    ]
    assert np.array_equal(*ends)


def test_folds_are_drawn_by_labels():
    tasks = made()
    one, other = (
        evaluate(each, {"ridge": BASELINES["numbers"]["pooled ridge"]}, n_folds=3, supports=[2])
        for each in (tasks, shuffled(tasks))
    )
    assert one.labels.tolist() == tasks.labels.tolist() != other.labels.tolist()
    assert np.array_equal(
        one.errors[..., np.argsort(one.labels)], other.errors[..., np.argsort(other.labels)]
    )


def test_the_order_of_labels_is_random_and_the_same_everywhere():
    tasks = made()
    ordered = tasks.in_label_order(7).labels.tolist()
    assert ordered == shuffled(tasks).in_label_order(7).labels.tolist() != tasks.labels.tolist()
    assert ordered != tasks.in_label_order(8).labels.tolist()
    # An outer draw and one within it are by different seeds: where a task stands in the one says
    # nothing of the other.
    labels = np.arange(4000)
    one, other = (np.argsort(np.argsort(label_keys(labels, seed))) for seed in (0, 1))
    assert max(abs(np.corrcoef(one, each)[0, 1]) for each in (other, labels)) < 0.08
    mixed = np.array(["word", 7.5, 7.0, 2**70, float("inf")], dtype=object)
    assert label_keys(mixed)[1] == label_keys(np.array([7.5]))[0]
    assert label_keys(mixed)[2] == label_keys(np.array([7]))[0]
    numbers = TaskSet.from_tasks([(np.ones((1, 1)), np.ones(1))] * 50)
    as_floats = TaskSet(numbers.X, numbers.y, numbers.labels.astype(float))
    assert numbers.in_label_order().labels.tolist() == as_floats.in_label_order().labels.tolist()
    # Half of either half: neither end of the numbers is drawn first.
    assert 5 < np.isin(numbers.in_label_order().labels[:25], np.arange(25)).sum() < 20


# ------------------------------------------------------------------------------------------ forms
# of input


@pytest.fixture(scope="module")
def fitted():
    return EmpiricalBayesLearner().fit(made())


def _frame(tasks):
    X = {f"x{j}": tasks.X[:, j] for j in range(D)}
    return pd.DataFrame({"who": np.repeat(tasks.labels, tasks.sizes), **X, "y": tasks.y})


def _interleaved(frame):
    """Rows of all tasks among each other; each task's own stay in their order."""
    turn = frame.groupby("who").cumcount()
    return frame.iloc[np.lexsort((np.random.default_rng(0).random(len(frame)), turn))]


@pytest.mark.parametrize("form", ["arrays", "pandas", "polars", "arrow", "scan"])
def test_forms_of_input_give_the_same_bits(form, fitted, tmp_path):
    frame = _interleaved(_frame(made()))
    if form == "scan":
        frame.to_parquet(tmp_path / "rows.parquet", index=False)
        given = tailored.scan(tmp_path / "rows.parquet", task="who", target="y")
        same(fitted, EmpiricalBayesLearner().fit(given))
        return
    if form == "arrays":
        tasks = TaskSet(
            frame[[f"x{j}" for j in range(D)]].to_numpy(), frame["y"].to_numpy(), list(frame["who"])
        )
    else:
        made_of = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.Table.from_pandas}
        given = made_of[form](frame.reset_index(drop=True))
        tasks = TaskSet.from_frame(given, task="who", target="y")
    # What is learned from is the same, bit for bit.
    seen, expected = (each.in_label_order() for each in (tasks, made()))
    assert seen.labels.tolist() == expected.labels.tolist()
    assert seen.X.tobytes() == expected.X.tobytes()
    assert seen.y.tobytes() == expected.y.tobytes()


def test_jobs_give_the_same_bits(fitted):
    same(fitted, EmpiricalBayesLearner(n_jobs=2).fit(shuffled(made())))


def test_the_order_of_a_new_tasks_rows_is_rounding(fitted):
    task, order = made(1, 1)[0], np.random.default_rng(0).permutation(N)
    one, other = (
        fitted.adapt(task.X[rows], task.y[rows], side_info=task.side_info)
        for rows in (np.arange(N), order)
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------------
# threads, processes


def everything(learner, seed):
    """All that a learner answers about some new tasks, as bytes."""
    new = made(seed, 4)
    given, asked = new.support_query(5, shuffle=False)
    found = [np.asarray(learner.adapt_many(given))]
    for task, rows in zip(given, asked, strict=True):
        model = learner.adapt(task.X, task.y, side_info=task.side_info)
        found += [model.coef_, model.predict(rows.X), *model.predict_interval(rows.X, coverage=0.8)]
        model.update(rows.X[:1], rows.y[:1])
        found.append(model.coef_)
    table = learner.predict_tasks(asked, given)
    found += [np.asarray(table[name], dtype=float) for name in ("prediction", "lower", "upper")]
    found.append(learner.task_errors(given, asked))
    return b"".join(np.ascontiguousarray(each, dtype=float).tobytes() for each in found)


@pytest.mark.parametrize("jobs", [None, 2])
def test_many_threads_get_the_answers_of_one(fitted, jobs):
    """A learner that nobody has asked yet: whatever it keeps for later is made by all threads at
    once.
    """
    expected = [everything(copy.deepcopy(fitted), seed) for seed in range(2)]
    for _ in range(2):
        fresh = pickle.loads(pickle.dumps(fitted)).set_params(n_jobs=jobs)
        together = threading.Barrier(8)

        def ask(number, learner=fresh, together=together):
            together.wait(60)
            return everything(learner, number % 2)

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(ask, range(8)))
        assert found == expected * 4


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_give_the_same_answers(fitted, method):
    """After fits with threads; a new process while one goes on.

    A fork then may stand still on a lock of any library that a thread was in: nobody is left in the
    child to let it go.
    """
    expected = everything(fitted, 0)
    busy = threading.Thread(target=lambda: EmpiricalBayesLearner(n_jobs=2).fit(made(8)))
    busy.start()
    if method == "fork":
        busy.join(120)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        assert pool.submit(everything, fitted, 0).result(timeout=120) == expected
        if method == "fork":  # a new process would not know of the short fits
            same(fitted, pool.submit(_fit).result(timeout=240))
    busy.join(120)


def _fit():
    return EmpiricalBayesLearner().fit(shuffled(made()))
