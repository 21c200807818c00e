"""Support rows of new tasks: their number and order in episodes, selection, scores and
intervals.
"""

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet
from tailored.evaluation import task_scorer
from tailored.tasks.episodes import SupportSampling


def _numbered(*sizes):
    """Tasks whose targets number the rows of each task, and whose labels are 0, 1, .."""
    tasks = [(np.full((n, 1), float(t)), np.arange(float(n))) for t, n in enumerate(sizes)]
    return TaskSet.from_tasks(tasks)


def _first(support):
    """Return the argument for the first rows, so many of them."""
    return (
        "first"
        if support is None
        else ("first", *(support if isinstance(support, tuple | list) else [support]))
    )


@pytest.mark.parametrize(
    ("support", "expected", "typical"),
    [
        (None, None, 0.5),
        (3, (3, 3), 3),
        (0, (0, 0), 0),
        (np.int64(2), (2, 2), 2),
        (0.5, (0.5, 0.5), 0.5),
        ((2, 5), (2, 5), 3),
        ([0.2, 0.6], (0.2, 0.6), 0.4),
    ],
)
def test_numbers_of_support_rows(support, expected, typical):
    found = SupportSampling.of(support)
    assert (found.support, found.in_order) == (expected, False)
    assert found.typical == pytest.approx(typical)
    found = SupportSampling.of(_first(support))
    assert (found.support, found.in_order) == (expected, True)


@pytest.mark.parametrize(
    "support",
    [
        -1,
        1.5,
        0.0,
        (4, 1),
        (1, 0.9),
        (1, 2, 3),
        "half",
        [[1, 2]],
        True,
        (1, None),
        [],
        ("fist", 2),
        (2, "first"),
        ("first", 1.5),
    ],
)
def test_bad_numbers_of_support_rows(support):
    with pytest.raises(ValueError, match=r"n_support: expected a number of rows.*; got"):
        SupportSampling.of(support)


@pytest.mark.parametrize("support", [None, 3, 0, 0.4, (1, 4), (0.1, 0.9)])
def test_in_order_the_first_rows_are_support_and_all_later_ones_query(support):
    tasks = _numbered(9, 4, 2, 1)
    episodes = SupportSampling.of(_first(support)).episodes(tasks, [0])
    assert set(episodes.task) == {0, 1, 2, 3}
    for s, q, task in zip(*episodes, strict=True):
        np.testing.assert_array_equal(np.concatenate([s.y, q.y]), np.arange(tasks.sizes[task]))
    numbers = {
        len(s.y) for s, task in zip(episodes.support, episodes.task, strict=True) if task == 0
    }
    expected = {
        None: {2, 4, 5, 7},
        3: {3},
        0: {0},
        0.4: {4},
        (1, 4): {1, 2, 3, 4},
        (0.1, 0.9): {1, 3, 6, 8},
    }
    assert numbers == expected[support]


@pytest.mark.parametrize(
    ("support", "sizes"), [(3, {3}), (0.5, {6}), ((2, 8), {2, 4, 6, 8}), (50, {11})]
)
def test_in_random_order_every_row_may_be_a_support_row(support, sizes):
    tasks = _numbered(12, 12, 12)
    episodes = SupportSampling.of(support).episodes(tasks, [0], 5)
    assert {len(task.y) for task in episodes.support} == sizes
    firsts = np.concatenate([task.y for task in episodes.support])
    assert np.bincount(firsts.astype(int), minlength=12).min() > 0
    for one, other in zip(episodes.support, episodes.query, strict=True):
        assert not set(one.y) & set(other.y)


def _walks(n_tasks, seed, step=1.0, n_rows=12):
    """Draw random walks from a level of each task; no column has the time."""
    rng = np.random.default_rng(seed)
    tasks = []
    for _ in range(n_tasks):
        X = rng.normal(size=(n_rows, 1))
        tasks.append((X, rng.normal() + X[:, 0] + np.cumsum(step * rng.normal(size=n_rows))))
    return TaskSet.from_tasks(tasks)


@pytest.fixture(scope="module")
def forecasts():
    train, new = _walks(60, 0), _walks(300, 1)
    return EmpiricalBayesLearner(loss="absolute", n_support=("first", 4)).fit(train), train, new


def _coverage(learner, new, n_rows):
    support, query = new.support_query(n_rows, shuffle=False)
    table = learner.predict_tasks(query, support, coverage=0.8)
    return np.mean((table["lower"] <= query.y) & (query.y <= table["upper"]))


def test_forecasts_cover(forecasts):
    """Later rows of a walk are farther from the first ones than random rows are from random
    ones.
    """
    learner, train, new = forecasts
    assert 0.75 < _coverage(learner, new, 4) < 0.88
    assert _coverage(EmpiricalBayesLearner().fit(train), new, 4) < 0.7


def test_scores_use_the_support_of_the_learner(forecasts):
    learner, _, new = forecasts
    new = new[:40]
    support, query = new.support_query(4, shuffle=False)
    pairs = list(zip(support, query, strict=True))
    expected = np.array(
        [np.abs(learner.adapt(s.X, s.y).predict(q.X) - q.y).mean() for s, q in pairs]
    )
    np.testing.assert_allclose(learner.task_errors(new), expected)
    np.testing.assert_allclose(learner.task_errors(new, n_support=("first", 4)), expected)
    assert learner.task_errors(new, n_support=4).mean() < expected.mean()
    residual = learner.predict_tasks(query, support)["prediction"] - query.y
    r2 = 1.0 - np.sum(residual**2) / np.sum((query.y - query.y.mean()) ** 2)
    assert learner.score(new) == pytest.approx(r2)
    scorer = task_scorer("neg_mean_absolute_error", n_support=("first", 4))
    assert scorer(learner, new) == pytest.approx(-np.abs(residual).mean())
    with pytest.raises(ValueError, match="n_support: expected"):
        learner.score(new, n_support="time")
    with pytest.raises(ValueError, match="n_support: expected"):
        task_scorer(n_support="time")


def test_the_papers_learners_are_calibrated_in_order():
    """Counted on random rows the intervals of a walk's later rows are too narrow, counted in order
    they are not.
    """
    covered = {}
    for n_support in (3, ("first", 3)):
        found = []
        for seed in range(3):
            learner = IndependentLearner().fit(_walks(2, [seed, 0]))
            learner.calibrate_intervals(_walks(80, [seed, 1]), n_support=n_support)
            assert 3.0 in learner.calibration_.rows
            found.append(_coverage(learner, _walks(60, [seed, 2]), 3))
        covered[n_support] = np.mean(found)
    assert covered[3] < 0.72
    assert 0.76 < covered["first", 3] < 0.87


def _growing(n_tasks, seed, origin=0.0):
    """A level at the start and a growth that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    time = np.arange(8.0)
    tasks = []
    for _ in range(n_tasks):
        y = 10.0 + 3.0 * rng.normal() + time * (1.0 + rng.normal()) + 0.5 * rng.normal(size=8)
        tasks.append(((time + origin)[:, None], y))
    return TaskSet.from_tasks(tasks)


def test_levels_are_those_at_the_beginning_wherever_time_is_counted_from():
    """Slopes and levels are uncorrelated there, and only there; forecasts do not depend on the
    calendar.
    """
    learner = EmpiricalBayesLearner(n_support=("first", 2)).fit(_growing(20, 0))
    assert learner.structure_["structure"] == "diagonal"
    assert learner.prior_.scaling.shift[0] == 0.0
    later = EmpiricalBayesLearner(n_support=("first", 2)).fit(_growing(20, 0, origin=1990.0))
    new, moved = _growing(5, 1), _growing(5, 1, origin=1990.0)
    for task, same in zip(new, moved, strict=True):
        expected = learner.adapt(task.X[:2], task.y[:2]).predict(task.X)
        found = later.adapt(same.X[:2], same.y[:2]).predict(same.X)
        np.testing.assert_allclose(found, expected, atol=1e-5)
