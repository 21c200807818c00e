"""Tasks under priors of the squared loss are solved in one pass; it has to give what features, τ(s) and b(s) give."""

import pickle
from dataclasses import FrozenInstanceError, replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

import tailored
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.closed_form import _solving
from tailored.closed_form._layout import Layout
from tailored.datasets import make_clusters
from tailored.empirical_bayes.prior_mean import LevelBias
from tailored.empirical_bayes.training import assemble
from tailored.feature_maps import (
    Level,
    MeanEmbedding,
    PosteriorMap,
    PosteriorModel,
    SideFeatures,
    SideVector,
    TaskSummary,
)
from tailored.gaussian import Moments
from tailored.gaussian import adapt as posterior_means
from tailored.gaussian.task_kernels import component_posteriors
from tailored.losses import Absolute
from tailored.one_task import one_task
from tailored.representation import Bias, BlockDiagonal
from tailored.tasks import Scaling
from tailored.tasks.rows import frozen

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


def made_map(n_components, levels, side, fit_intercept, averaged=False):
    """A map with everything that training may put into one, on random numbers."""
    rng = np.random.default_rng(7)
    tasks = some_tasks(0, [12] * 40)
    plain = plain_map(n_components, fit_intercept).model
    mixture, d = replace(plain.mixture, averaged=averaged), D + fit_intercept
    features = None
    if side in ("description", "gates", "both"):
        features = SideFeatures.fit(SideVector(), tasks)
        q = len(features.mean)
        assert q > features.n_linear == Q  # curves beside the numbers themselves
        if side != "gates":
            mixture = replace(mixture, side=0.3 * rng.normal(size=(d, q)))
        if side != "description":
            mixture = replace(mixture, gates=rng.normal(size=(n_components, 1 + q)))
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
    model = PosteriorModel(plain.units, mixture, tuple(listed), features)
    return PosteriorMap.of_model(model)


def made_prior(feature_map):
    """The prior that training would make of a map, with random numbers for what is learned on query rows."""
    model = feature_map.model
    levels = [
        LevelBias(level.rows, None, None, None, np.zeros(0))
        if level.summary is None
        else LevelBias(level.rows, made_bias(level.summary), level.summary, 1.0, np.zeros(0))
        for level in model.levels
    ]
    return assemble(model.units, model.side, model.mixture, levels)


def made_bias(summary):
    return 0.2 * np.random.default_rng(3).normal(size=(len(summary.centre), 1 + len(summary.mean)))


def step_by_step(prior, tasks):
    """w, τ and b the long way: φ, the paper's form, and one linear system for each task."""
    phis = prior.feature_map.transform(tasks)
    tau, b = prior.conditioning.evaluate(phis), prior.bias.evaluate(phis)
    statistics = Moments.of(tasks, prior.units)
    return (
        posterior_means(tau, b, statistics),
        tau,
        b,
        np.linalg.solve(np.eye(tau.shape[1]) + tau @ statistics.gram, tau),
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("side", [None, "description", "gates", "both", "rows"])
@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize(("n_components", "averaged"), [(1, False), (3, False), (3, True)])
def test_the_pass_is_the_long_way(n_components, averaged, levels, side, fit_intercept):
    prior = made_prior(made_map(n_components, levels, side, fit_intercept, averaged))
    closed = prior.closed_form
    assert closed is not None
    tasks = some_tasks(2, [0, 1, 3, 9, 40, 5, 130])
    w, tau, b, covariance = step_by_step(prior, tasks)
    np.testing.assert_allclose(closed.weights(tasks), w, rtol=1e-10, atol=1e-10 * np.abs(w).max())
    statistics = Moments.of(tasks, prior.units, closed.side(tasks))
    solved = closed.solve(statistics, means=True, roots=True)
    np.testing.assert_allclose(closed.taus(solved.shares), tau, rtol=1e-10, atol=1e-10 * np.abs(tau).max())
    # where w is the mixture's own, b is what is left of numbers a thousand times as large
    np.testing.assert_allclose(solved.means, b, rtol=1e-9, atol=1e-9 * np.abs(tau).max())
    for t, p in enumerate(solved.ranks):
        J = solved.roots[t, :p]
        assert not solved.roots[t, p:].any()
        np.testing.assert_allclose(J.T @ J, covariance[t], rtol=1e-9, atol=1e-10 * np.abs(covariance).max())
    for t in range(len(tasks)):
        one = one_task(prior, tasks[t : t + 1])
        np.testing.assert_allclose(one.weights, w[t], rtol=1e-10, atol=1e-10 * np.abs(w).max())
        theta = max(one.n_rows, 1) * tau[t]
        np.testing.assert_allclose(one.theta, theta, rtol=1e-10, atol=1e-10 * np.abs(theta).max())


@pytest.mark.parametrize("n_components", [1, 3])
def test_what_intervals_need(n_components):
    prior = made_prior(made_map(n_components, 2, None, True, n_components > 1))
    support, query = some_tasks(4, [9, 0, 4, 30], side=False), some_tasks(5, [2, 3, 0, 7], side=False)
    found = prior.closed_form.spreads(support, query)
    w, _, _, covariance = step_by_step(prior, support)
    np.testing.assert_allclose(found.weights, w, rtol=1e-10, atol=1e-12)
    for t in range(4):
        X, y = prior.units.dense(support[t].X), prior.units.targets(support[t].y)
        assert found.squares[t] == pytest.approx(np.sum((y - X @ w[t]) ** 2), rel=1e-9)
        rows, x = slice(query.offsets[t], query.offsets[t + 1]), prior.units.dense(query[t].X)
        np.testing.assert_allclose(found.centre[rows], x @ w[t], rtol=1e-9)
        np.testing.assert_allclose(found.variance[rows], np.sum(x @ covariance[t] * x, axis=1), rtol=1e-9)


def test_components_that_fill_more_than_the_space():
    """Three full covariances are more directions than columns: their sum gets a root of its own."""
    prior = made_prior(made_map(3, 0, None, False, True))
    starts = np.diff(Layout.of(prior.feature_map.model).starts)
    assert starts.sum() > D
    tasks = some_tasks(8, [0, 1], side=False)
    statistics = Moments.of(tasks, prior.units)
    solved = prior.closed_form.solve(statistics, roots=True)
    covariance = step_by_step(prior, tasks)[3]
    found = solved.roots.transpose(0, 2, 1) @ solved.roots
    np.testing.assert_allclose(found, covariance, rtol=1e-9, atol=1e-12)


def test_evidence_and_posterior_means():
    """Against the density of y itself, and Bayes' rule by gains."""
    rng = np.random.default_rng(0)
    X, y, noise = rng.normal(size=(7, 4)), rng.normal(size=7), 0.3
    roots = [rng.normal(size=(p, 4)) for p in (1, 4, 2)]
    b = rng.normal(size=(3, 4))
    points = frozen(np.vstack([*roots, b]))
    starts, leading = frozen([0, 1, 5, 7], np.int64), frozen([1, 4, 2], np.int64)
    images, evidence, coefficients = (points @ (X.T @ X))[None], np.empty((1, 3)), np.zeros((1, 10))
    component_posteriors(
        images, points, starts, leading, (y @ X)[None], np.array([y @ y]), noise, evidence, coefficients
    )
    expected = []
    for k, R in enumerate(roots):
        covariance = noise * (X @ R.T @ R @ X.T + np.eye(7))
        residual = y - X @ b[k]
        solved = np.linalg.solve(covariance, residual)
        expected.append(-0.5 * (residual @ solved + np.linalg.slogdet(covariance)[1]))
        mean = b[k] + coefficients[0, starts[k] : starts[k + 1]] @ R
        np.testing.assert_allclose(mean, b[k] + noise * R.T @ R @ X.T @ solved, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(evidence[0] - evidence[0, 0], np.array(expected) - expected[0], rtol=1e-10)


def test_sparse_rows_and_threads_and_other_tasks_change_nothing(monkeypatch):
    prior = made_prior(made_map(3, 2, None, True, True))
    tasks = some_tasks(1, [9, 0, 4, 30, 7] * 12, side=False)
    found = prior.closed_form.weights(tasks)
    sparse = TaskSet.from_tasks([(sp.csr_array(task.X), task.y) for task in tasks])
    np.testing.assert_array_equal(prior.closed_form.weights(sparse), found)
    monkeypatch.setattr(_solving, "BLOCK_FLOATS", 4 * (D + 1) ** 2)
    again = prior.closed_form.weights(tasks)
    np.testing.assert_allclose(again, found, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(prior.closed_form.weights(tasks, n_jobs=2), again)
    np.testing.assert_array_equal(prior.closed_form.weights(tasks, n_jobs=3), again)


def test_priors_of_another_form_have_no_pass():
    feature_map = made_map(3, 2, None, False, True)
    prior = made_prior(feature_map)
    assert prior.closed_form is not None
    moved = prior.bias.linear.copy()
    moved[0, 0] = 1.0
    others = [
        replace(prior, loss=Absolute()),
        replace(prior, size_exponent=0),
        replace(prior, inner="online"),
        replace(prior, bias=Bias("conditional", np.zeros(D), moved)),
        replace(prior, conditioning=prior.conditioning.scale(2.0)),
        replace(prior, units=Scaling.raw(D)),
        replace(prior, feature_map=MeanEmbedding()),
    ]
    assert [other.closed_form for other in others] == [None] * len(others)


@pytest.fixture(scope="module")
def learners():
    """A mixture, and a model with side information."""
    clusters = make_clusters(60, n_clusters=2, n_rows=20, n_features=5, rank=2, random_state=1)
    return {
        "mixture": (EmpiricalBayesLearner().fit(clusters), clusters),
        "side": (
            EmpiricalBayesLearner().fit(some_tasks(0, [12] * 30)),
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
        theta = learner.prior_.units.raw_representation(max(n, 1) * theta)
        np.testing.assert_allclose(model.representation_, theta, rtol=1e-9, atol=1e-10 * np.abs(theta).max())


def test_the_pass_comes_back_from_the_model(learners, tmp_path):
    """It is a function of the model, made again where the model is: by pickle, and without it."""
    learner, tasks = learners["mixture"]
    X, y = tasks[0].X, tasks[0].y
    expected = learner.adapt(X, y).coef_
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.adapt(X, y).coef_, expected)
    learner.save(tmp_path / "a")
    loaded = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(loaded.adapt(X, y).coef_, expected)
    # compiled loops see arrays of one kind, wherever the learner comes from
    for other in (again, loaded):
        for array in Layout.of(other.feature_map_.model):
            assert not array.flags.writeable


def test_a_model_cannot_be_changed():
    """There is one set of numbers, and the pass cannot fall behind it."""
    model = plain_map(3, False).model
    with pytest.raises(FrozenInstanceError):
        model.mixture = None
    with pytest.raises(FrozenInstanceError):
        model.mixture.noise = 3.0


def test_a_mixture_gives_blocks(learners):
    """W_k / σ² of component k at the feature √r_k, in the units that were learned in; C = 0."""
    learner, tasks = learners["mixture"]
    conditioning, model = learner.conditioning_, learner.feature_map_.model
    assert isinstance(conditioning, BlockDiagonal)
    assert learner.n_components_ > 1
    np.testing.assert_array_equal(conditioning.features, np.arange(learner.n_components_))
    phis = learner.feature_map_.transform(tasks)
    assert conditioning.n_side == phis.shape[1]
    np.testing.assert_array_equal(conditioning.C, 0.0)
    np.testing.assert_array_equal(conditioning.blocks, model.mixture.covariances / model.mixture.noise)
    # and in the user's: x ↦ ((x − shift) / columns, 1) is linear in (x, 1)
    assert learner.prior_.units is model.units
    columns, shift = model.units.columns[:-1], model.units.shift[:-1]
    change = np.diag(np.append(1.0 / columns, 1.0))
    change[-1, :-1] = -shift / columns
    r = phis[0, : learner.n_components_] ** 2
    expected = 20 * change @ np.tensordot(r, conditioning.blocks, 1) @ change.T
    found = learner.representation(tasks[0].X, tasks[0].y)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_conditional_bias_of_a_mixture(learners):
    """The blocks of φ reach B in the order it was learned for."""
    learner, _ = learners["mixture"]
    feature_map = made_map(3, 2, None, False)
    rng = np.random.default_rng(0)
    fresh = some_tasks(2, [11], side=False)
    k = feature_map.transform(fresh).shape[1]
    taus = np.einsum("kip,kjp->kij", *2 * [rng.normal(size=(3, D, D))])
    other = pickle.loads(pickle.dumps(learner))
    other.n_features_in_ = D
    other.prior_ = replace(
        learner.prior_,
        units=Scaling.raw(D),
        feature_map=feature_map,
        conditioning=BlockDiagonal(taus, np.arange(3), np.zeros((D, D)), k),
        bias=Bias("conditional", np.zeros(D), rng.normal(size=(D, k))),
    )
    model = other.adapt(np.array(fresh.X), np.array(fresh.y))
    np.testing.assert_allclose(model.coef_, other.adapt_many(fresh)[0], rtol=1e-8, atol=1e-9)
    statistics = Moments.of(fresh, feature_map.model.units)
    r = statistics.posterior(feature_map.model.mixture).shares[0]
    np.testing.assert_allclose(model.representation_, 11 * np.tensordot(r, taus, 1), rtol=1e-9, atol=1e-9)
    phi = feature_map.transform(fresh)[0]
    np.testing.assert_allclose(model.bias, other.bias_.linear @ phi, rtol=1e-9, atol=1e-9)
