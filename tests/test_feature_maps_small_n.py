"""Feature maps for tasks with few rows, against loops and dense formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import tailored
from tailored import ConditionalLearner, EmpiricalBayesLearner, TaskSet
from tailored.feature_maps import (
    JoinedMaps,
    PosteriorMean,
    RidgeEstimate,
    SideFeatures,
    get_feature_map,
)
from tailored.feature_maps.rows import leave_one_out
from tailored.solvers import ProjectedSGD

MAPS = {
    "tuned ridge": "tuned ridge",
    "posterior mean": "posterior mean",
    "joined": ["mean", RidgeEstimate(0.3), "posterior mean"],
}


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
    return ConditionalLearner(feature_map, solver=ProjectedSGD(0.1), **{"fit_intercept": False, **options})


def weights_of(model):
    """As `adapt_many` has them: the intercept, where there is one, comes last."""
    return np.append(model.coef_, model.intercept_) if model.fit_intercept else model.coef_


# ---------------------------------------------------------------- what all of them promise


@pytest.mark.parametrize("name", MAPS)
def test_order_of_rows(name, tasks):
    feature_map = fitted(MAPS[name], tasks)
    rng = np.random.default_rng(1)
    orders = [rng.permutation(len(task.y)) for task in tasks]
    mixed = TaskSet.from_tasks([(t.X[o], t.y[o]) for t, o in zip(tasks, orders, strict=True)])
    np.testing.assert_allclose(feature_map.transform(mixed), feature_map.transform(tasks), atol=1e-10)


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
def test_one_task(name, tasks):
    feature_map = fitted(MAPS[name], tasks)
    for t in range(len(tasks)):
        one = tasks[t : t + 1]
        np.testing.assert_allclose(
            feature_map.transform_one(one), feature_map.transform(one), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("name", MAPS)
def test_sparse_rows(name, tasks):
    sparse = TaskSet.from_tasks([(sp.csr_array(t.X), t.y) for t in tasks])
    dense_map, sparse_map = fitted(MAPS[name], tasks), fitted(MAPS[name], sparse)
    np.testing.assert_allclose(dense_map.transform(sparse), dense_map.transform(tasks), atol=1e-10)
    np.testing.assert_allclose(sparse_map.transform(sparse), dense_map.transform(tasks), atol=1e-6)


@pytest.mark.parametrize("make", [algorithm_1, EmpiricalBayesLearner], ids=["Algorithm 1", "empirical Bayes"])
@pytest.mark.parametrize("name", MAPS)
def test_learning_and_saving(name, make, few_steps, tasks, tmp_path):
    learner = make(MAPS[name]).fit(tasks)
    weights = learner.adapt_many(tasks)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights_of(learner.adapt(tasks[0].X, tasks[0].y)), weights[0], atol=1e-7)
    assert np.isfinite(learner.adapt().coef_).all()
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(again.adapt_many(tasks), weights)
    np.testing.assert_array_equal(again.representation(), learner.representation())
    np.testing.assert_array_equal(again.feature_map_.transform(tasks), learner.feature_map_.transform(tasks))
    groups = np.repeat(tasks.labels, tasks.sizes)
    np.testing.assert_array_equal(again.predict(tasks.X, groups), learner.predict(tasks.X, groups))
    assert again.score(tasks) == learner.score(tasks)
    assert again.search_results_ == learner.search_results_
    if isinstance(MAPS[name], str):  # a map of the user's own is shown by its address
        assert repr(again) == repr(learner)


def test_a_map_given_by_the_user_is_not_fitted(few_steps, tasks):
    mine = [PosteriorMean(), RidgeEstimate("auto"), JoinedMaps(["mean"])]
    algorithm_1(mine).fit(tasks)
    algorithm_1(JoinedMaps(mine)).fit(tasks)
    EmpiricalBayesLearner(mine).fit(tasks)
    assert mine[0].mixture is None
    assert mine[1].penalty is None
    assert mine[2].parts == []
    for feature_map in mine:
        with pytest.raises(ValueError, match="not fitted"):
            feature_map.transform(tasks)


# ---------------------------------------------------------------- tuned ridge


def left_out(task, penalty):
    """Squared errors of every row, predicted by a ridge estimate from the others."""
    X = np.column_stack([task.X, np.ones(len(task.y))])
    total = 0.0
    for i in range(len(task.y)):
        keep = np.arange(len(task.y)) != i
        gram = X[keep].T @ X[keep] + penalty * np.eye(X.shape[1])
        w = np.linalg.solve(gram, X[keep].T @ task.y[keep])
        total += (task.y[i] - X[i] @ w) ** 2
    return total


def test_leave_one_out_errors(tasks):
    penalties = np.array([1e-3, 0.2, 4.0, 1e3])
    expected = [sum(left_out(task, penalty) for task in tasks) for penalty in penalties]
    np.testing.assert_allclose(leave_one_out(tasks, penalties), expected, rtol=1e-9)


def test_tuned_ridge_is_the_best_ridge(tasks):
    rng = np.random.default_rng(3)
    tasks = TaskSet.from_tasks([(t.X, t.y + rng.normal(size=len(t.y))) for t in tasks])
    tuned = RidgeEstimate("auto").fit(tasks)
    np.testing.assert_array_equal(tuned.transform(tasks), RidgeEstimate(tuned.penalty).transform(tasks))
    best = sum(left_out(task, tuned.penalty) for task in tasks)
    for factor in (0.01, 0.1, 10.0, 100.0):
        assert best <= sum(left_out(task, factor * tuned.penalty) for task in tasks)
    scaled = TaskSet.from_tasks([(t.X, 1e3 * t.y) for t in tasks])
    assert RidgeEstimate("auto").fit(scaled).penalty == pytest.approx(tuned.penalty)


def test_penalties_are_checked(tasks):
    assert get_feature_map("ridge", has_side_info=False).fit(tasks).penalty == 1.0
    for alpha in ("best", -1.0, 0.0):
        with pytest.raises(ValueError, match="alpha"):
            RidgeEstimate(alpha).fit(tasks)
    silent = TaskSet.from_tasks([(np.empty((0, 3)), np.empty(0))])
    np.testing.assert_array_equal(RidgeEstimate("auto").fit(silent).transform(silent), np.zeros((1, 4)))


# ---------------------------------------------------------------- posterior mean


def test_posterior_mean(tasks):
    """The conditional mean of w given y, from the joint covariance of both."""
    feature_map = PosteriorMean().fit(tasks)
    phi = feature_map.transform(tasks)
    model, units = feature_map.mixture, feature_map.units
    b, W = model.means[0], model.covariances[0]
    expected = []
    for task in tasks:
        X = np.column_stack([task.X, np.ones(len(task.y))]) / units.columns
        covariance = X @ W @ X.T + model.noise * np.eye(len(task.y))
        y = task.y / units.target
        expected.append(b + W @ X.T @ np.linalg.solve(covariance, y - X @ b))
    expected = np.array(expected)
    np.testing.assert_allclose(phi[:, :-1] * feature_map.norm, expected, atol=1e-9)
    np.testing.assert_array_equal(phi[:, -1], 1.0)
    assert np.mean(np.sum(phi[:, :-1] ** 2, axis=1)) == pytest.approx(1.0)
    np.testing.assert_allclose(phi[3, :-1] * feature_map.norm, b)  # no rows: the prior mean
    assert PosteriorMean(fit_intercept=False).fit(tasks).transform(tasks).shape == (8, 4)


# ---------------------------------------------------------------- joined maps


def test_joined_maps():
    tasks = some_tasks(side=True)
    joined = fitted(["vector", "ridge"], tasks)
    vector, ridge = fitted("vector", tasks).transform(tasks), fitted("ridge", tasks).transform(tasks)
    expected = np.hstack([block / np.sqrt(np.mean(np.sum(block**2, axis=1))) for block in (vector, ridge)])
    np.testing.assert_allclose(joined.transform(tasks), expected, rtol=1e-12)
    assert joined.needs_rows
    assert joined.needs_side_info
    with pytest.raises(ValueError, match="at least one map"):
        JoinedMaps().fit(tasks)


@pytest.mark.parametrize(
    "learner",
    [algorithm_1(["vector", "ridge"], bias="conditional"), EmpiricalBayesLearner(["vector", "ridge"])],
    ids=["Algorithm 1", "empirical Bayes"],
)
def test_description_joined_with_the_data_set(few_steps, learner):
    tasks = some_tasks(side=True)
    learner = clone(learner).fit(tasks)
    task = tasks[0]
    model = learner.adapt(task.X, task.y, side_info=task.side_info)
    np.testing.assert_allclose(weights_of(model), learner.adapt_many(tasks)[0], atol=1e-7)
    # without rows the description alone speaks
    assert np.isfinite(learner.adapt(side_info=task.side_info).coef_).all()
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(task.X, task.y)


def test_joined_features_are_no_description():
    """A prior mean that is linear in features of the rows would learn the rows' own noise."""
    tasks = some_tasks(side=True)
    both, alone = (
        SideFeatures.fit(get_feature_map(spec, has_side_info=True), tasks)
        for spec in (["vector", "ridge"], ["vector"])
    )
    assert not both.from_description
    assert alone.from_description


def test_parts_of_a_list_are_checked(tasks):
    with pytest.raises(ValueError, match=r"feature_map.*'ridge'"):
        algorithm_1(["rigde"]).fit(tasks)
    with pytest.raises(TypeError, match="feature_map"):
        algorithm_1([3.0]).fit(tasks)


def test_code_inside_a_list_is_not_saved(tasks, tmp_path):
    learner = algorithm_1(["mean", lambda task: task.y[:1].sum()]).fit(tasks)
    with pytest.raises(TypeError, match=r"feature_map.*pickle"):
        learner.save(tmp_path / "a")
