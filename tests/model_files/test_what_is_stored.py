"""What a file holds: labels that can be read again, and no rows but those that are needed."""

import math
import pickle
from copy import deepcopy
from datetime import date

import numpy as np
import pytest

import tailored
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskRegressor, TaskSet, load
from tailored.solvers import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_labels_that_are_numbers_words_or_tuples_of_these(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    for names in (
        [3, 1, 2],
        [0.5, -1.5, 2.0],
        ["a", "ä", "🙂"],
        [("a", 1), ("a", (2, None)), 7],
        [True, "x", 2.5],
    ):
        groups = [names[i % 3] for i in range(12)]
        learner = IndependentLearner().fit(X, y, groups=groups)
        learner.save(tmp_path / "a")
        again = load(tmp_path / "a")
        assert again.task_labels_.tolist() == learner.task_labels_.tolist()
        assert again.task_labels_.dtype == learner.task_labels_.dtype
        np.testing.assert_array_equal(again.predict(X, groups=groups), learner.predict(X, groups=groups))


def test_other_labels_are_refused_before_anything_is_written(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    dates = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")
    for names in (
        [date(2020, 1, i) for i in (1, 2, 3)],
        [b"a", b"b", b"c"],
        [frozenset({i}) for i in range(3)],
        list(dates),
    ):
        groups = [names[i % 3] for i in range(12)]
        learner = IndependentLearner().fit(X, y, groups=groups)
        with pytest.raises(TypeError, match=r"task_labels_.*numbers, strings or tuples"):
            learner.save(tmp_path / "a")
        assert not list(tmp_path.iterdir())


def test_what_could_not_be_read_is_not_written(saved, tmp_path):
    learner = load(saved("independent"))
    learner.task_weights_[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"task_posterior_.weights: cannot be saved: it contains NaN"):
        learner.save(tmp_path / "a")
    learner = load(saved("independent")).set_params(fit_intercept=True)
    with pytest.raises(ValueError, match=r"cannot be saved: .*fit_intercept: .*fit again"):
        learner.save(tmp_path / "a")
    learner = load(saved("independent"))
    learner.more_ = 1
    with pytest.raises(ValueError, match=r"more_: cannot be saved: it is not an annotated field"):
        learner.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def rows_in(content, tasks):
    """How many of the numbers in rows and targets stand in these bytes."""
    numbers = np.concatenate([np.asarray(tasks.X).ravel(), tasks.y])
    return sum(
        number.tobytes() in content or repr(float(number)).encode() in content
        for number in numbers[: 200 * tasks.n_features]
    )


def strange_rows(n_tasks=12, n_rows=6):
    """Numbers that nobody computes from others by chance; no task is held out whole."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=n_tasks * n_rows)
    return TaskSet(rng.normal(size=(n_tasks * n_rows, 3)), y, np.repeat(np.arange(n_tasks), n_rows))


@pytest.mark.parametrize(
    "learner",
    [
        EmpiricalBayesLearner(),
        IndependentLearner(),
        tailored.ConditionalLearner("mean", solver=ProjectedSGD(), rank=2),
        tailored.UnconditionalLearner(solver=ProjectedSGD()),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_files_and_pickles_of_learners_hold_no_training_rows(learner, tmp_path):
    tasks = strange_rows()
    learner = deepcopy(learner).fit(tasks)
    learner.save(tmp_path / "a")
    for content in ((tmp_path / "a").read_bytes(), pickle.dumps(learner)):
        assert rows_in(content, tasks) == 0
    # a pickled learner answers as before, and cannot go on with a stream whose rows it does not have
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, learner.adapt_many(tasks).weights_)
    if isinstance(learner, tailored.ConditionalLearner | tailored.UnconditionalLearner):
        with pytest.raises(ValueError, match="partial_fit"):
            again.partial_fit(tasks)
        # in memory nothing is left out
        others = TaskSet(tasks.X, tasks.y, 100 + np.repeat(np.arange(12), 6))
        deepcopy(learner).partial_fit(others)


def test_a_pickle_keeps_the_rows_of_a_stream(tmp_path):
    tasks = strange_rows()
    learner = tailored.ConditionalLearner(solver=ProjectedSGD(step="search")).partial_fit(tasks[:6])
    learner.save(tmp_path / "a")
    assert rows_in((tmp_path / "a").read_bytes(), tasks[:6]) == 0
    pickled = pickle.dumps(learner)
    assert rows_in(pickled, tasks[:6]) > 0
    learner.partial_fit(tasks[6:])
    again = pickle.loads(pickled).partial_fit(tasks[6:])
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, learner.adapt_many(tasks).weights_)


def test_an_adapted_model_holds_its_own_rows_alone(tmp_path):
    tasks = strange_rows()
    learner = EmpiricalBayesLearner().fit(tasks)
    others = strange_rows(1)
    X, y = others.X + 0.1, others.y + 0.1
    model = learner.adapt(X, y)
    model.save(tmp_path / "a")
    assert rows_in((tmp_path / "a").read_bytes(), tasks) == 0
    again = load(tmp_path / "a")
    assert isinstance(again, TaskRegressor)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.predict_interval(X, 0.5), model.predict_interval(X, 0.5))
    assert again.score(X, y) == model.score(X, y)
    np.testing.assert_array_equal(again.update(X[:2], y[:2]).coef_, model.update(X[:2], y[:2]).coef_)
    fitted = TaskRegressor(loss="squared").fit(X, y)
    fitted.save(tmp_path / "fitted")
    assert rows_in((tmp_path / "fitted").read_bytes(), TaskSet(X, y)) == 0
    np.testing.assert_array_equal(load(tmp_path / "fitted").predict(X), fitted.predict(X))
