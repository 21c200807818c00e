"""Feature maps against loops and dense formulas, and the properties that all of them share."""

import numpy as np
import pytest
import scipy.sparse as sp

from tailored import ConditionalLearner, TaskSet
from tailored.exceptions import UnknownCategoryWarning
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import (
    FEATURE_MAPS,
    AngleMap,
    CallableMap,
    MeanEmbedding,
    RidgeEstimate,
    SideVector,
    features_of,
    get_feature_map,
)

#: Maps of the rows of a task, by name, and maps with arguments.
MAPS = {name: name for name in FEATURE_MAPS if name != "vector"} | {"map": RidgeEstimate(0.3)}


def some_tasks(seed=0, sizes=(4, 1, 7, 0, 3, 7, 12, 2), side=False):
    rng = np.random.default_rng(seed)
    entries = []
    for n in sizes:
        X = rng.normal(size=(n, 3)) * (1.0, 3.0, 0.5)
        y = X @ (rng.normal(size=3) * (1.0, 1.0, 0.1)) + 1.0 + 0.2 * rng.normal(size=n)
        entries.append((X, y, rng.normal(loc=(5.0, 0.0), size=2)) if side else (X, y))
    return TaskSet.from_tasks(entries)


@pytest.fixture(scope="module")
def tasks():
    return some_tasks()


def fitted(spec, tasks):
    return get_feature_map(spec, has_side_info=tasks.side_info is not None).fit(tasks)


def algorithm_1(feature_map, **options):
    return ConditionalLearner(
        feature_map, solver=ProjectedSGD(0.1), **{"fit_intercept": False, **options}
    )


# ---------------------------------------------------------------- what all of them promise


@pytest.mark.parametrize("name", MAPS)
def test_order_of_rows(name, tasks):
    feature_map = fitted(MAPS[name], tasks)
    rng = np.random.default_rng(1)
    orders = [rng.permutation(len(task.y)) for task in tasks]
    mixed = TaskSet.from_tasks([(t.X[o], t.y[o]) for t, o in zip(tasks, orders, strict=True)])
    np.testing.assert_allclose(
        feature_map.transform(mixed), feature_map.transform(tasks), atol=1e-10
    )


@pytest.mark.parametrize("name", MAPS)
def test_other_tasks_do_not_change_a_bit(name, tasks):
    feature_map = fitted(MAPS[name], tasks)
    together = feature_map.transform(tasks)
    assert np.isfinite(together).all()  # one of them has no rows
    alone = np.concatenate([feature_map.transform(tasks[t : t + 1]) for t in range(len(tasks))])
    np.testing.assert_array_equal(alone, together)
    backwards = feature_map.transform(tasks[np.arange(len(tasks))[::-1]])
    np.testing.assert_array_equal(backwards[::-1], together)
    assert feature_map.transform(tasks[:0]).shape == (0, together.shape[1])


@pytest.mark.parametrize("name", MAPS)
def test_sparse_rows(name, tasks):
    sparse = TaskSet.from_tasks([(sp.csr_array(t.X), t.y) for t in tasks])
    dense_map, sparse_map = fitted(MAPS[name], tasks), fitted(MAPS[name], sparse)
    np.testing.assert_allclose(dense_map.transform(sparse), dense_map.transform(tasks), atol=1e-10)
    np.testing.assert_allclose(sparse_map.transform(sparse), dense_map.transform(tasks), atol=1e-6)


def test_a_map_given_by_the_user_is_not_fitted(tasks):
    mine = AngleMap()
    algorithm_1(mine).fit(tasks)
    assert mine.scale is None
    with pytest.raises(ValueError, match="not fitted"):
        mine.transform(tasks)


# ---------------------------------------------------------------- the paper's formulas


def test_mean_embedding(tasks):
    phi = MeanEmbedding().transform(tasks)
    for row, task in zip(phi, tasks, strict=True):
        n = len(task.y)
        expected = np.zeros(6)
        for x, y in zip(task.X, task.y, strict=True):
            expected += np.outer(x, (y, 1.0)).ravel(order="F") / n  # vec stacks the columns
        np.testing.assert_allclose(row, expected, atol=1e-14)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_ridge_estimate(tasks, alpha):
    phi = RidgeEstimate(alpha).transform(tasks)
    for row, task in zip(phi, tasks, strict=True):
        X = np.column_stack([task.X, np.ones(len(task.y))])
        np.testing.assert_allclose((X.T @ X + alpha * np.eye(4)) @ row, X.T @ task.y, atol=1e-12)


def test_angle_map():
    # two users, three items; ratings between m = 1 and M = 5
    X = np.eye(3)
    tasks = TaskSet.from_tasks([(X[[0, 2]], [5.0, 1.0]), (X[[1]], [3.0])])
    phi = AngleMap(low=1.0, high=5.0).transform(tasks)
    quarter = np.pi / 4
    np.testing.assert_allclose(
        phi[0], [1, 0, np.cos(quarter), 0, 0, np.sin(quarter), 1], atol=1e-15
    )  # best rating: angle 0; worst: π/4; unseen item: (0, 0)
    np.testing.assert_allclose(
        phi[1], [0, np.cos(quarter / 2), 0, 0, np.sin(quarter / 2), 0, 1], atol=1e-15
    )


def test_angle_map_takes_the_scale_from_the_training_targets():
    X = np.eye(3)
    tasks = TaskSet.from_tasks([(X[[0, 2]], [5.0, 1.0]), (X[[1]], [3.0])])
    given = AngleMap(low=1.0, high=5.0).transform(tasks)
    learned = AngleMap().fit(tasks)
    assert learned.scale == (1.0, 5.0)
    np.testing.assert_array_equal(learned.transform(tasks), given)
    # what is given stays, what is not is learned
    assert AngleMap(low=0.0).fit(tasks).scale == (0.0, 5.0)
    assert AngleMap(high=9.0).fit(tasks).scale == (1.0, 9.0)
    assert AngleMap(low=0.0, high=9.0).fit(tasks).scale == (0.0, 9.0)
    with pytest.raises(ValueError, match="not fitted"):
        AngleMap(low=0.0).transform(tasks)
    with pytest.raises(ValueError, match=r"low must be at most high; got 5.0 and 1.0"):
        AngleMap(low=5.0, high=1.0).fit(tasks)


def test_side_vector_encodes_categories():
    rows = {
        "a": {"age": 20.0, "sex": "F"},
        "b": {"age": 40.0, "sex": "M"},
        "c": {"age": 30.0, "sex": "F"},
    }
    tasks = TaskSet(np.ones((3, 1)), np.zeros(3), ["a", "b", "c"], rows)
    side = SideVector().fit(tasks)
    deviation = np.sqrt(200 / 3)
    expected = [[-10 / deviation, 1, 0], [10 / deviation, 0, 1], [0, 1, 0]]
    np.testing.assert_allclose(side.transform(tasks), expected)
    unseen = TaskSet(np.ones((1, 1)), np.zeros(1), ["d"], {"d": {"age": 30.0, "sex": "X"}})
    message = "'X' did not appear in training.* their indicators are zero"
    with pytest.warns(UnknownCategoryWarning, match=message):
        np.testing.assert_allclose(side.transform(unseen), [[0, 0, 0]])
    missing = TaskSet(np.ones((1, 1)), np.zeros(1), ["d"], {"d": {"age": 30.0, "sex": None}})
    np.testing.assert_allclose(side.transform(missing), [[0, 0, 0]])
    # A missing value is a category of its own if values were missing in training.
    side = SideVector().fit(
        TaskSet(
            np.ones((3, 1)), np.zeros(3), ["a", "b", "d"], rows | {"d": {"age": 30.0, "sex": None}}
        )
    )
    with pytest.warns(UnknownCategoryWarning, match=message):
        np.testing.assert_allclose(side.transform(unseen), [[0, 0, 0, 0]])
    np.testing.assert_allclose(side.transform(missing), [[0, 0, 0, 1]])


def test_side_vector_takes_numbers_as_they_are():
    tasks = TaskSet(np.ones((2, 1)), np.zeros(2), [7, 8], {8: [3.0, 4.0], 7: [1.0, 2.0]})
    np.testing.assert_array_equal(SideVector().fit(tasks).transform(tasks), [[1, 2], [3, 4]])


def test_callable():
    tasks = TaskSet(np.ones((2, 1)), np.array([5.0, 6.0]), [7, 8], {7: [2.0], 8: [3.0]})
    function = get_feature_map(lambda s: [1.0, s[0]], has_side_info=True).fit(tasks)
    assert isinstance(function, CallableMap)
    np.testing.assert_allclose(function.transform(tasks), [[1, 2], [1, 3]])
    bare = TaskSet(tasks.X, tasks.y, [7, 8])
    with pytest.raises(ValueError, match="side_info: this feature map needs side information"):
        function.transform(bare)
    # the rows are the side information of tasks without any
    rows = CallableMap(lambda task: [task.y.sum(), task.label]).fit(bare)
    np.testing.assert_allclose(rows.transform(bare), [[5, 7], [6, 8]])


def test_messages(tasks):
    with pytest.raises(ValueError, match=r"feature_map.*'mean'.*callable"):
        get_feature_map("maen", has_side_info=False)
    with pytest.raises(TypeError, match=r"feature_map"):
        get_feature_map(3, has_side_info=False)
    with pytest.raises(ValueError, match=r"side_info"):
        SideVector().fit(tasks)
    with pytest.raises(ValueError, match=r"task 1"):
        features_of(CallableMap(lambda task: [1.0] if task.label == 0 else [np.nan]), tasks)
    with pytest.raises(ValueError, match=r"must return vectors of one length; got \[1, 2, 3"):
        CallableMap(lambda task: [1.0] * (1 + task.label)).transform(tasks)
    with pytest.raises(ValueError, match="a vector of numbers; for task 0 it returned 'a'"):
        CallableMap(lambda task: "a").transform(tasks)
    assert set(FEATURE_MAPS) == {"mean", "ridge", "angle", "vector"}
