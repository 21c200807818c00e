"""Adapting to one task takes a path of its own; it has to give what the batched path gives."""

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

import tailored
from tailored import ConditionalLearner, TaskSet
from tailored.datasets import make_clusters
from tailored.feature_maps import MeanEmbedding, SideVector
from tailored.feature_maps.posterior import Level, PosteriorMap, SideFeatures, TaskSummary
from tailored.mixed_models import TaskStatistics
from tailored.mixed_models.kernels import log_evidences
from tailored.representation import blocks as _blocks
from tailored.representation.bias import Bias
from tailored.representation.conditioning import Factored

D, Q = 6, 2


def some_tasks(seed, sizes, side=True):
    rng = np.random.default_rng(seed)
    entries = []
    for n in sizes:
        s = rng.normal(size=Q)
        w = rng.choice([-1.0, 1.0]) * np.linspace(1.0, 0.2, D) + 0.3 * rng.normal(size=D)
        X = 2.0 * rng.normal(size=(n, D)) + 0.5
        y = X @ (w + np.append(s, np.zeros(D - Q))) + 0.4 * rng.normal(size=n)
        entries.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(entries)


@cache
def plain_map(n_components, fit_intercept):
    return PosteriorMap(n_components, fit_intercept).fit(some_tasks(0, [12] * 40))


def made_map(n_components, levels, side, fit_intercept):
    """A map with everything that training may put into one, on random numbers."""
    rng = np.random.default_rng(7)
    tasks = some_tasks(0, [12] * 40)
    plain = plain_map(n_components, fit_intercept)
    mixture, d = plain.mixture, D + fit_intercept
    features = None
    if side == "description":
        features = SideFeatures.fit(SideVector(), tasks)
        mixture = replace(mixture, side=0.3 * rng.normal(size=(d, Q)))
    elif side == "rows":
        features = SideFeatures.fit(MeanEmbedding(), tasks)
    summaries = []
    for _ in range(levels):
        scales = rng.uniform(0.5, 2.0, size=5)
        extra = len(features.mean) if side == "rows" else 0
        summaries.append(
            TaskSummary(
                rng.normal(size=d),
                rng.normal(size=(d, d)),
                *scales[:2],
                rng.normal(size=2),
                scales[2:4],
                side == "rows",
                rng.normal(size=d + 2 + extra),
                scales[4],
            )
        )
    # the level in the middle has nothing to say, as where a conditional bias does not pay
    listed = [Level(0.0, None), Level(3.0, None), Level(15.0, None)] if levels else []
    for at, summary in zip((0, 2), summaries, strict=False):
        listed[at] = Level(listed[at].rows, summary)
    return PosteriorMap.of_model(
        plain.units, mixture, 1.7, fit_intercept=fit_intercept, levels=listed, side=features
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("side", [None, "description", "rows"])
@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize("n_components", [1, 3])
def test_features_are_those_of_the_batch(n_components, levels, side, fit_intercept):
    feature_map = made_map(n_components, levels, side, fit_intercept)
    for n in (0, 1, 3, 9, 40):
        task = some_tasks(n, [n])
        many, one = feature_map.transform(task), feature_map.transform_one(task)
        assert one.shape == many.shape
        np.testing.assert_allclose(one, many, rtol=1e-10, atol=1e-12)


def test_a_single_level_speaks_at_all_sizes():
    feature_map = made_map(3, 1, None, False)
    feature_map.levels = [Level(5.0, feature_map.levels[0].summary)]
    for n in (0, 5, 9):
        task = some_tasks(n, [n])
        np.testing.assert_allclose(
            feature_map.transform_one(task), feature_map.transform(task), rtol=1e-10, atol=1e-12
        )


def test_sparse_rows_take_the_batched_path():
    feature_map = made_map(3, 2, None, False)
    task = some_tasks(1, [9], side=False)
    sparse = TaskSet.from_tasks([(sp.csr_array(task.X), task.y)])
    np.testing.assert_array_equal(feature_map.transform_one(sparse), feature_map.transform(sparse))


def test_log_evidences():
    """Against the density of y itself."""
    rng = np.random.default_rng(0)
    X, y, noise = rng.normal(size=(7, 4)), rng.normal(size=7), 0.3
    roots = [rng.normal(size=(4, p)) for p in (1, 4, 2)]
    means = rng.normal(size=(3, 4))
    points = np.vstack([*(L.T for L in roots), means])
    found = log_evidences(points @ (X.T @ X), points, np.array([0, 1, 5, 7]), X.T @ y, y @ y, 7, noise)
    for value, L, b in zip(found, roots, means, strict=True):
        covariance = X @ L @ L.T @ X.T + noise * np.eye(7)
        residual = y - X @ b
        quadratic = residual @ np.linalg.solve(covariance, residual)
        expected = -0.5 * (quadratic + np.linalg.slogdet(2.0 * np.pi * covariance)[1])
        assert value == pytest.approx(expected, rel=1e-12)


@pytest.fixture(scope="module")
def learners():
    """Learners of the practical algorithm: a mixture, and a single component with side information."""
    clusters = make_clusters(60, n_clusters=2, n_rows=20, n_features=5, rank=2, random_state=1)
    return {
        "mixture": (ConditionalLearner().fit(clusters), clusters),
        "side": (
            ConditionalLearner(fit_intercept=True).fit(some_tasks(0, [12] * 30)),
            some_tasks(1, [40] * 3),
        ),
    }


@pytest.mark.parametrize("name", ["mixture", "side"])
def test_adapt_is_adapt_many(name, learners):
    learner, tasks = learners[name]
    for n in (0, 1, 3, 15):
        few = tasks[:1].support_query(n, random_state=0)[0] if n else None
        X, y = (few.X, few.y) if n else (np.empty((0, tasks.n_features)), np.empty(0))
        s = None if tasks.side_info is None else tasks.side_info[0]
        task = TaskSet.from_tasks([(X, y) if s is None else (X, y, s)])
        model = learner.adapt(X, y, side_info=s) if n else learner.adapt(side_info=s)
        weights = np.append(model.coef_, model.intercept_) if learner.fit_intercept else model.coef_
        np.testing.assert_allclose(weights, learner.adapt_many(task)[0], rtol=1e-9, atol=1e-10)
        theta = learner.conditioning_.evaluate(learner.feature_map_.transform(task))[0]
        np.testing.assert_allclose(model.representation_, max(n, 1) * theta, rtol=1e-10, atol=1e-12)


def test_nothing_of_it_is_kept(learners, tmp_path):
    """The layout is neither pickled nor saved, and comes back by itself."""
    learner, tasks = learners["mixture"]
    X, y = tasks[0].X, tasks[0].y
    expected = learner.adapt(X, y).coef_
    assert "_one_task" in vars(learner.feature_map_)
    again = pickle.loads(pickle.dumps(learner))
    assert "_one_task" not in vars(again.feature_map_)
    np.testing.assert_array_equal(again.adapt(X, y).coef_, expected)
    learner.save(tmp_path / "a")
    loaded = tailored.load(tmp_path / "a")
    assert "_one_task" not in vars(loaded.feature_map_)
    np.testing.assert_array_equal(loaded.adapt(X, y).coef_, expected)


def test_a_new_model_is_laid_out_anew():
    tasks = some_tasks(0, [12] * 40, side=False)
    feature_map = PosteriorMap(2).fit(tasks[:20])
    feature_map.transform_one(tasks[30:31])
    feature_map.fit(tasks)
    np.testing.assert_allclose(
        feature_map.transform_one(tasks[30:31]), feature_map.transform(tasks[30:31]), rtol=1e-10, atol=1e-12
    )
    feature_map.scale = 3.0
    np.testing.assert_allclose(
        feature_map.transform_one(tasks[30:31]), feature_map.transform(tasks[30:31]), rtol=1e-10, atol=1e-12
    )


def test_blocks_of_H():
    rng = np.random.default_rng(0)
    M = np.zeros((5, 4, 3))
    M[:2, :, 0], M[2:, :, 2] = rng.normal(size=(2, 4)), rng.normal(size=(3, 4))
    basis, eigenvalues = [], []
    for h in (0, 2):
        values, vectors = np.linalg.eigh(M[:, :, h].T @ M[:, :, h])
        for value, vector in zip(values[values > 1e-12], vectors.T[values > 1e-12], strict=True):
            basis.append(np.kron(vector, np.eye(3)[h]))
            eigenvalues.append(value)
    C = np.diag(rng.uniform(size=4))
    conditioning = Factored(np.array(basis).T, np.array(eigenvalues), C, 3)
    for _ in range(2):  # the second time from memory
        phi = rng.normal(size=3)
        np.testing.assert_allclose(_blocks.representation(conditioning, phi), conditioning(phi), atol=1e-13)
    assert _blocks._KNOWN[conditioning].features.tolist() == [0, 2]
    # a step mixes the features
    conditioning.step(-np.outer(C[0], C[0]), phi, 0.1, 0.1)
    np.testing.assert_array_equal(_blocks.representation(conditioning, phi), conditioning(phi))
    assert _blocks._KNOWN[conditioning].features is None


def test_conditional_bias_of_a_mixture(learners):
    """The blocks of φ reach B in the order it was learned for."""
    learner, _ = learners["mixture"]
    feature_map = made_map(3, 2, None, False)
    other = pickle.loads(pickle.dumps(learner))
    rng = np.random.default_rng(0)
    fresh = some_tasks(2, [11], side=False)
    k = feature_map.transform(fresh).shape[1]
    other.feature_map_, other.n_side_, other.n_features_in_ = feature_map, k, D
    taus = np.einsum("kip,kjp->kij", *2 * [rng.normal(size=(3, D, D))])
    M = np.zeros((3 * D, D, k))
    for h, tau in enumerate(taus):
        M[h * D : (h + 1) * D, :, h] = np.linalg.cholesky(tau).T
    other.conditioning_ = Factored.from_tensor(M, np.zeros((D, D)))
    other.bias_ = Bias("conditional", D, k)
    other.bias_.linear[:] = rng.normal(size=(D, k))
    model = other.adapt(np.array(fresh.X), np.array(fresh.y))
    np.testing.assert_allclose(model.coef_, other.adapt_many(fresh)[0], rtol=1e-8, atol=1e-9)
    r = feature_map.mixture.expect(TaskStatistics.of(fresh, False, feature_map.units)).responsibilities[0]
    np.testing.assert_allclose(model.representation_, 11 * np.tensordot(r, taus, 1), rtol=1e-9, atol=1e-9)
