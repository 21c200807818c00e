"""EmpiricalBayesLearner: its form, its promises, its limits, and what each estimator refuses."""

import warnings
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import tailored
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
    adapting,
    within,
)
from tailored.baselines import MixedModel, RidgePerTask
from tailored.datasets import make_clusters
from tailored.empirical_bayes import Settings, TrainingData
from tailored.empirical_bayes.query_risk import PENALTIES
from tailored.exceptions import UnhelpfulWarning
from tailored.feature_maps import Level, MeanEmbedding, PosteriorMap
from tailored.feature_maps.summaries import hats
from tailored.losses import Absolute, Squared
from tailored.mixed_models import TaskStatistics, adapt
from tailored.representation import Bias, BlockDiagonal, Constant
from tailored.solvers import LBFGS, PAPER_STEP_SIZES, Adam, ProjectedSGD
from tailored.tasks import Units


def skewed_tasks(seed, n_tasks=60, d=4, n_rows=12, side=False):
    """Weights around a mean, and noise whose median is not its mean: a conditional bias pays."""
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        X = rng.normal(size=(n_rows, d))
        s = rng.normal(size=2)
        w = np.ones(d) + rng.normal(size=d) * np.linspace(1.0, 0.1, d)
        if side:
            w[:2] += 3.0 * s
        y = X @ w + 0.5 * (rng.exponential(size=n_rows) - 1.0)
        entries.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(entries)


def weights_of(model):
    """As `adapt_many` has them: the intercept, where there is one, comes last."""
    return np.append(model.coef_, model.intercept_) if model.fit_intercept else model.coef_


@pytest.fixture(scope="module")
def clusters():
    return make_clusters(80, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


@pytest.fixture(scope="module")
def mixture(clusters):
    """A learner that found the clusters."""
    learner = EmpiricalBayesLearner().fit(clusters)
    assert learner.n_components_ == 3
    return learner


@pytest.fixture(scope="module")
def skewed():
    """A learner of one component whose prior mean was moved on query rows."""
    tasks = skewed_tasks(2, n_tasks=65)
    learner = EmpiricalBayesLearner().fit(tasks)
    assert learner.n_components_ == 1
    assert learner.bias_penalty_ is not None
    return tasks, learner


@pytest.fixture(scope="module")
def with_side():
    tasks = skewed_tasks(0, n_tasks=70, d=3, side=True)
    return tasks, EmpiricalBayesLearner(validation_fraction=0.25).fit(tasks)


# ---------------------------------------------------------------- the paper's form


def test_representation_is_the_mixtures_second_moment(clusters, mixture):
    """τ(s) = (I ⊗ φᵀ) H (I ⊗ φ), with an explicit Kronecker product, is Σ r_k W_k / σ²."""
    feature_map, conditioning = mixture.feature_map_, mixture.conditioning_
    assert isinstance(conditioning, BlockDiagonal)
    model, units = feature_map.model.mixture, feature_map.model.units
    H = conditioning.dense_H()
    for t in range(3):
        task = clusters[t]
        one = TaskSet.from_tasks([(task.X, task.y)])
        phi = feature_map.transform(one)[0]
        r = model.expect(TaskStatistics.of(one, units)).responsibilities[0]
        np.testing.assert_allclose(phi[:3] ** 2, r, atol=1e-12)
        np.testing.assert_allclose(phi[3:6], r, atol=1e-12)
        expected = np.tensordot(r, model.covariances / model.noise, 1)
        kronecker = np.kron(np.eye(7), phi[None]) @ H @ np.kron(np.eye(7), phi[:, None])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(kronecker, expected, atol=1e-10 * scale)
        np.testing.assert_allclose(conditioning(phi), expected, atol=1e-10 * scale)
        # what the user sees is in the user's units
        expected = 20 * units.raw_representation(expected)
        found = mixture.representation(task.X, task.y)
        np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


def test_adapted_weights_are_posterior_means(clusters, mixture):
    """Of the Gaussian with the task's own τ(s) and b(s), and so of the mixture itself."""
    phis, units = mixture.feature_map_.transform(clusters), mixture.prior_.units
    statistics = TaskStatistics.of(clusters, units)
    expected = adapt(mixture.conditioning_.evaluate(phis), mixture.bias_.evaluate(phis), statistics)
    found = mixture.adapt_many(clusters)
    np.testing.assert_allclose(found, units.raw_weights(expected), atol=1e-7)
    assert mixture.bias_penalty_ is None  # nothing is added to the model's own mean
    _, r, parts = mixture.feature_map_.model.mixture.expect(statistics)
    means = np.einsum("tk,ktd->td", r, np.stack([part.mean for part in parts]))
    np.testing.assert_allclose(found, units.raw_weights(means), atol=1e-7)


@pytest.mark.parametrize("which", ["clusters", "skewed"])
def test_adapt_many_is_adapt_for_each(which, clusters, mixture, skewed):
    tasks, learner = (clusters, mixture) if which == "clusters" else skewed
    many = learner.adapt_many(tasks)
    for row, task in zip(many, tasks, strict=True):
        model = learner.adapt(task.X, task.y)
        np.testing.assert_allclose(weights_of(model), row, atol=1e-8)
        assert model.loss == Squared()
        X = np.hstack([task.X, np.ones((len(task.y), 1))])
        assert 0 <= model.dual_gap_ <= 1e-8 * 0.5 * np.mean((task.y - X @ model.bias) ** 2) + 1e-15
        # the same problem in the user's units, the intercept a constant column
        solution = within.solve(
            X, task.y, model.representation_, learner.prior_.loss, offset=X @ model.bias, tol=1e-13
        )
        np.testing.assert_allclose(solution.coef + model.bias, row, atol=1e-6)


def test_one_component_is_a_constant():
    tasks = make_clusters(65, n_clusters=1, n_rows=12, n_features=4, rank=2, random_state=0)
    learner = EmpiricalBayesLearner().fit(tasks)
    assert learner.n_components_ == 1
    assert isinstance(learner.conditioning_, Constant)


# ---------------------------------------------------------------- sizes


def test_sizes_rule(skewed):
    """θ = n τ(s) for empirical Bayes, θ = τ(s) for the paper's learners."""
    tasks, bayes = skewed
    assert bayes.prior_.size_exponent == 1
    assert bayes.n_components_ == 1  # so that τ does not depend on the rows
    paper = UnconditionalLearner(solver=ProjectedSGD(0.5)).fit(tasks)
    assert paper.prior_.size_exponent == 0
    X, y = tasks[0].X, tasks[0].y
    C = bayes.prior_.units.raw_representation(bayes.conditioning_.C)
    for n in (1, 2, 12):
        np.testing.assert_allclose(bayes.representation(X[:n], y[:n]), n * C)
        np.testing.assert_allclose(paper.representation(X[:n], y[:n]), paper.conditioning_.C)
        one = TaskSet.from_tasks([(X[:n], y[:n])])
        np.testing.assert_allclose(bayes.adapt_many(one)[0], weights_of(bayes.adapt(X[:n], y[:n])), atol=1e-9)
    np.testing.assert_allclose(bayes.representation(), C)


def test_without_rows_the_prior_mean_predicts(skewed):
    _, learner = skewed
    empty = TaskSet.from_tasks([(np.empty((0, 4)), np.empty(0))])
    expected = learner.prior_.units.raw_weights(learner.bias_(learner.feature_map_.transform(empty)[0]))
    np.testing.assert_allclose(weights_of(learner.adapt()), expected)
    np.testing.assert_allclose(learner.adapt_many(empty)[0], expected)
    np.testing.assert_allclose(learner.adapt().coef_, np.ones(4), atol=0.6)
    assert learner.adapt().intercept_ == pytest.approx(0.0, abs=0.3)


def test_levels_hand_over():
    levels = [Level(0.0, None), Level(3.0, None), Level(15.0, None)]
    found = hats(levels, np.array([0, 3, 15, 400, 1, 7]))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_allclose(found[:, :4].T, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(found[:, 4], [0.5, 0.5, 0.0])  # log 2 is half of log 4
    np.testing.assert_allclose(found[:, 5], [0.0, 0.5, 0.5])  # log 8 is between log 4 and log 16


# ---------------------------------------------------------------- invariances


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_order_of_rows_does_not_matter(seed, mixture, clusters):
    order = np.random.default_rng(seed).permutation(20)
    task = clusters[seed % 80]
    np.testing.assert_allclose(
        mixture.adapt(task.X[order], task.y[order]).coef_, mixture.adapt(task.X, task.y).coef_, atol=1e-8
    )


def test_units_do_not_matter():
    """Neither the units nor the zeros of columns and targets."""
    tasks = skewed_tasks(4, n_tasks=70, d=2, n_rows=8)
    columns, target = np.array([1e-3, 50.0]), 1e3
    levels, level = np.array([3.0, -2e4]), 7e4
    groups = np.repeat(tasks.labels, tasks.sizes)
    a = EmpiricalBayesLearner(validation_fraction=0.25).fit(tasks)
    b = EmpiricalBayesLearner(validation_fraction=0.25).fit(
        tasks.X * columns + levels, target * tasks.y + level, groups=groups
    )
    assert a.form_ == b.form_
    np.testing.assert_allclose(b.validation_error_, target * a.validation_error_, rtol=1e-6)
    slopes = b.task_weights_[:, :-1] * columns / target
    np.testing.assert_allclose(slopes, a.task_weights_[:, :-1], atol=1e-5)
    intercepts = (b.task_weights_[:, -1] + b.task_weights_[:, :-1] @ levels - level) / target
    np.testing.assert_allclose(intercepts, a.task_weights_[:, -1], atol=1e-5)


def test_no_row_of_another_task_leaks(clusters, mixture):
    """Predictions for a query row depend on its task's support rows and on nothing else."""
    support, query = clusters.support_query(0.5, random_state=0)
    before = adapting.predict(mixture.prior_, support, query)
    own = slice(query.offsets[7], query.offsets[8])
    y = query.y + 100.0
    y[own] = query.y[own]
    X = -3.0 * query.X
    X[own] = query.X[own]
    other = TaskSet.from_arrays(X, y, query.offsets, query.labels)
    np.testing.assert_array_equal(adapting.predict(mixture.prior_, support, other)[own], before[own])
    alone = mixture.adapt(support[7].X, support[7].y).predict(query[7].X)
    np.testing.assert_allclose(alone, before[own], atol=1e-9)


def test_held_out_tasks_do_not_teach():
    """A fold's candidates see none of the tasks they are judged on."""
    for n_tasks, n_validation in ((11, 0), (600, 0), (30, 7)):
        tasks = skewed_tasks(0, n_tasks=n_tasks, n_rows=3)
        options = Settings(Absolute(), False, True, None, 0.2, 0, None)
        folds = TrainingData(tasks, None, n_validation, options).folds
        assert len(folds) == (5 if n_tasks == 11 else 1)
        for fold in folds:
            assert not set(fold.train) & set(fold.held_out)
        if n_tasks == 11:
            assert sorted(np.concatenate([fold.held_out for fold in folds])) == list(range(11))
        if n_validation:
            np.testing.assert_array_equal(folds[0].held_out, np.arange(23, 30))


def same_numbers(one, other, skip=()):
    """Compare two objects to the bit: their arrays, and all that they hold."""
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(other, one)
    elif isinstance(one, dict):
        assert set(one) - set(skip) == set(other) - set(skip)
        for key in set(one) - set(skip):
            same_numbers(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            same_numbers(mine, its)
    elif hasattr(one, "state"):
        assert type(one) is type(other)
        same_numbers(one.state(), other.state())
    elif is_dataclass(one):
        assert type(one) is type(other)
        for part in fields(one):
            if part.init:
                same_numbers(getattr(one, part.name), getattr(other, part.name))
    else:
        assert one == other


def test_stream_in_pieces_is_the_same_bits(few_steps, clusters):
    some = clusters[:44]  # enough for mixtures to be tried
    whole, pieces = (EmpiricalBayesLearner(validation_fraction=0.5) for _ in range(2))
    whole.fit(some)
    for first, last in ((0, 1), (1, 20), (20, 44)):
        pieces.partial_fit(some[first:last])
    same_numbers(whole.prior_, pieces.prior_)
    np.testing.assert_array_equal(whole.adapt_many(clusters), pieces.adapt_many(clusters))
    assert whole.search_results_ == pieces.search_results_
    assert {entry["kind"] for entry in whole.search_results_} >= {"independent", "mixed model"}
    assert pieces.n_tasks_seen_ == 44
    np.testing.assert_array_equal(pieces.task_labels_, clusters.labels[20:44])
    # and a call that starts over forgets all of it
    same_numbers(whole.state()["fitted"], pieces.fit(some).state()["fitted"])


def test_pieces_bring_side_information_and_validation_tasks(few_steps, with_side):
    tasks, _ = with_side
    options = {"clip": "train", "random_state": 3}
    whole = EmpiricalBayesLearner(**options).fit(tasks[:25], validation=tasks[25:35])
    pieces = EmpiricalBayesLearner(**options)
    pieces.partial_fit(tasks[:10], validation=tasks[25:28]).partial_fit(tasks[10:25], validation=tasks[28:35])
    same_numbers(whole.prior_, pieces.prior_)
    assert whole.search_results_ == pieces.search_results_
    assert whole.n_tasks_seen_ == pieces.n_tasks_seen_ == 35


def test_a_piece_that_fails_changes_nothing(few_steps, clusters):
    learner = EmpiricalBayesLearner().partial_fit(clusters[:8])
    before = learner.state()["fitted"]
    bad = TaskSet.from_tasks([(np.ones((3, 4)), np.arange(3.0))])
    with pytest.raises(ValueError, match="features"):
        learner.partial_fit(bad)
    with pytest.raises(ValueError, match="features"):
        learner.partial_fit(clusters[8:16], validation=bad)
    learner.set_params(loss="hinge")
    with pytest.raises(ValueError, match="loss"):
        learner.partial_fit(clusters[8:16])
    with pytest.raises(ValueError, match="loss"):
        learner.fit(clusters)
    same_numbers(before, learner.state()["fitted"])
    learner.set_params(loss="absolute").partial_fit(clusters[8:16])
    same_numbers(EmpiricalBayesLearner().fit(clusters[:16]).prior_, learner.prior_)


@pytest.fixture(scope="module")
def one_job():
    tasks = skewed_tasks(5, n_tasks=10, d=2, n_rows=6)
    return tasks, EmpiricalBayesLearner().fit(tasks[:7], validation=tasks[7:])


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_jobs_do_not_change_a_bit(backend, one_job):
    import joblib

    tasks, one = one_job
    with joblib.parallel_config(backend=backend, n_jobs=2):
        many = EmpiricalBayesLearner(n_jobs=2).fit(tasks[:7], validation=tasks[7:])
    assert one.search_results_ == many.search_results_
    np.testing.assert_array_equal(one.adapt_many(tasks), many.adapt_many(tasks))


def test_sparse_is_dense(few_steps):
    rng = np.random.default_rng(6)
    entries = []
    for _ in range(30):
        items = rng.choice(8, size=6, replace=False)
        entries.append((np.eye(8)[items], rng.normal(size=6) + np.arange(8)[items]))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    one = sparse[0]
    a, b = (EmpiricalBayesLearner(fit_intercept=False).fit(tasks) for tasks in (dense, sparse))
    assert a.form_ == b.form_
    np.testing.assert_allclose(a.adapt_many(dense), b.adapt_many(sparse), atol=1e-7)
    np.testing.assert_allclose(a.adapt(*entries[0]).coef_, b.adapt(one.X, one.y).coef_, atol=1e-7)
    # With an intercept, sparse columns are not centred and another model is learned; each serves both kinds.
    a, b = EmpiricalBayesLearner().fit(dense), EmpiricalBayesLearner().fit(sparse)
    assert a.prior_.units.shift.any()
    assert not b.prior_.units.shift.any()
    assert a.prior_.units.target_shift == pytest.approx(b.prior_.units.target_shift)
    for learner in (a, b):
        many = learner.adapt_many(dense)
        np.testing.assert_allclose(learner.adapt_many(sparse), many, atol=1e-7)
        for X, y in (entries[0], (one.X, one.y)):
            np.testing.assert_allclose(weights_of(learner.adapt(X, y)), many[0], atol=1e-7)
    assert b.validation_error_ == pytest.approx(a.validation_error_, rel=0.1)


def test_constant_column_is_the_intercept(few_steps):
    """A task is fitted as with a column of ones, and the level of the targets moves the intercepts alone."""
    tasks = skewed_tasks(7, n_tasks=12)
    groups = np.repeat(tasks.labels, tasks.sizes)
    shifted = TaskSet(tasks.X, tasks.y + 5.0, groups)
    a, b = EmpiricalBayesLearner().fit(shifted), EmpiricalBayesLearner().fit(tasks)
    np.testing.assert_allclose(
        a.conditioning_.C, b.conditioning_.C, atol=1e-9 * np.abs(a.conditioning_.C).max()
    )
    np.testing.assert_allclose(a.adapt_many(shifted), b.adapt_many(tasks) + 5.0 * np.eye(5)[4], atol=1e-8)
    assert (a.n_features_in_, len(a.prior_.units.columns)) == (4, 5)
    X, y = shifted[0].X, shifted[0].y
    model = a.adapt(X, y)
    assert model.intercept_ == pytest.approx(5.0, abs=0.5)
    ones = np.hstack([X, np.ones((len(y), 1))])
    again = TaskRegressor(model.representation_, model.bias, loss="squared", tol=1e-13).fit(ones, y)
    np.testing.assert_allclose(again.coef_, weights_of(model), atol=1e-6)


# ---------------------------------------------------------------- choosing


def test_conditioning_helps_where_it_should():
    tasks = make_clusters(140, n_clusters=2, n_rows=40, n_features=6, random_state=0)
    support, query = tasks.support_query(15, random_state=0)
    train, new, asked = support[:80], support[80:], query[80:]
    learner = EmpiricalBayesLearner(validation_fraction=0.25).fit(train)
    error = learner.task_errors(new, asked).mean()
    assert learner.n_components_ == 2
    assert error < 0.98 * MixedModel().fit(train).task_errors(new, asked).mean()
    assert error < 0.9 * RidgePerTask().fit(train).task_errors(new, asked).mean()


def test_it_degrades_to_its_simpler_forms():
    one = make_clusters(150, n_clusters=1, n_rows=40, n_features=6, rank=2, random_state=3)
    support, query = one.support_query(20, random_state=0)
    learner = EmpiricalBayesLearner(validation_fraction=0.25).fit(support[:80])
    error = learner.task_errors(support[80:], query[80:]).mean()
    assert error < 1.01 * MixedModel().fit(support[:80]).task_errors(support[80:], query[80:]).mean()
    # nothing in common: isotropic weights, so that every task alone is the best one can do
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(150):
        X = rng.normal(size=(40, 4))
        entries.append((X, X @ rng.normal(size=4) + 0.3 * rng.normal(size=40)))
    support, query = TaskSet.from_tasks(entries).support_query(15, random_state=0)
    alone = RidgePerTask().fit(support[:30]).task_errors(support[30:], query[30:]).mean()
    for fit_intercept, most in (
        (False, 1.01),
        (True, 1.04),
    ):  # an intercept that nobody needs is learned, too
        learner = EmpiricalBayesLearner(fit_intercept=fit_intercept, validation_fraction=0.5).fit(
            support[:30]
        )
        assert learner.task_errors(support[30:], query[30:]).mean() < most * alone


def test_search_results_hold_the_choice(mixture):
    """The highest evidence of held-out tasks, or the lowest error where that is no chance."""
    measured = ("scale", "error", "evidence")
    tried = [entry for entry in mixture.search_results_ if entry["kind"] != "conditional bias"]
    assert {entry["kind"] for entry in tried} == {"independent", "mixed model", "mixture"}
    (chosen,) = [
        entry
        for entry in tried
        if {k: v for k, v in entry.items() if k not in measured} == mixture.form_
        and entry["scale"] == mixture.scale_
    ]
    evident = max((e for e in tried if e["scale"] == 1.0), key=lambda entry: entry["evidence"])
    accurate = min(tried, key=lambda entry: entry["error"])
    assert chosen is evident or chosen is accurate
    biases = [entry for entry in mixture.search_results_ if entry["kind"] == "conditional bias"]
    rows = sorted({entry["rows"] for entry in biases})
    assert rows == [0, 4, 11]  # 15 rows to adapt on in a rotation: none, a quarter, three quarters
    last = {entry["penalty"]: entry["error"] for entry in biases if entry["rows"] == 11}
    assert mixture.validation_error_ == last[mixture.bias_penalty_] <= last[None]
    assert last[None] == pytest.approx(chosen["error"], rel=1e-9)


def test_calibration_can_be_turned_off(few_steps, mixture, clusters):
    """Multiples of τ are tried for the forms that may win; none without calibration, or where tasks are few."""
    tried = {entry["scale"] for entry in mixture.search_results_ if "scale" in entry}
    assert tried == {0.5, 0.7, 1.0, 1.4, 2.0}
    plain = EmpiricalBayesLearner(calibrate=False).fit(clusters[:35], validation=clusters[35:45])
    few = EmpiricalBayesLearner().fit(clusters[:8])
    for learner in (plain, few):
        assert {entry["scale"] for entry in learner.search_results_ if "scale" in entry} == {1.0}
        assert learner.scale_ == 1.0


def test_validation_tasks_can_be_given(clusters):
    """They choose, and then they teach as all others do."""
    learner = EmpiricalBayesLearner().fit(clusters[:60], validation=clusters[60:])
    assert learner.n_tasks_seen_ == 80
    assert len(learner.task_labels_) == 60


def test_quantiles():
    tasks = skewed_tasks(8, n_tasks=120, d=2, n_rows=20)
    support, query = tasks.support_query(10, random_state=0)
    for quantile in (0.1, 0.9):
        learner = EmpiricalBayesLearner(loss=("pinball", {"quantile": quantile}), validation_fraction=0.25)
        learner.fit(tasks[:80])
        below = query.y[query.offsets[80] :] <= adapting.predict(learner.prior_, support[80:], query[80:])
        assert below.mean() == pytest.approx(quantile, abs=0.1)


def test_skewed_noise_asks_for_the_median():
    """The conditional bias: the absolute loss wants the median where the Gaussian model gives the mean."""
    rng = np.random.default_rng(9)
    entries = []
    for _ in range(300):
        y = rng.normal() + rng.exponential(size=8) ** 2
        entries.append((np.ones((8, 1)), y))
    tasks = TaskSet.from_tasks(entries)
    support, query = tasks.support_query(4, random_state=0)
    learner = EmpiricalBayesLearner().fit(tasks[:200])
    assert learner.bias_penalty_ in PENALTIES
    error = learner.task_errors(support[200:], query[200:]).mean()
    assert error < 0.95 * MixedModel().fit(tasks[:200]).task_errors(support[200:], query[200:]).mean()
    prior = learner.adapt().predict(np.ones((1, 1)))[0]
    assert prior < 1.4  # the mean of the targets is 2, their median about 1


# ---------------------------------------------------------------- side information


def test_side_information_serves_the_cold_start(with_side):
    tasks, learner = with_side
    fresh = skewed_tasks(1, d=3, side=True)
    assert learner.side_form_["effect on"] == "all weights"
    blind = EmpiricalBayesLearner("posterior", validation_fraction=0.25).fit(tasks)
    assert blind.side_form_ is None
    informed, uninformed = [], []
    for task in fresh:
        informed.append(np.abs(learner.adapt(side_info=task.side_info).predict(task.X) - task.y).mean())
        uninformed.append(np.abs(blind.adapt().predict(task.X) - task.y).mean())
    assert np.mean(informed) < 0.6 * np.mean(uninformed)
    support, query = fresh.support_query(2, random_state=0)
    assert learner.task_errors(support, query).mean() < 0.85 * blind.task_errors(support, query).mean()


def test_side_information_is_asked_for(with_side, skewed):
    tasks, learner = with_side
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(tasks[0].X, tasks[0].y)
    with pytest.raises(ValueError, match="side_info: this learner was fitted without"):
        skewed[1].adapt(side_info=[1.0, 2.0])


def test_other_features_join(few_steps):
    tasks = skewed_tasks(3, n_tasks=60, d=2, n_rows=8)
    for spec, some, expected in (
        (
            lambda task: [task.y.sum(), 1.0],
            tasks[:12],
            np.array([[task.y.sum(), 1.0] for task in tasks[:12]]),
        ),
        ("mean", tasks, MeanEmbedding().transform(tasks)),
    ):
        learner = EmpiricalBayesLearner(spec, validation_fraction=0.5).fit(some)
        assert np.isfinite(learner.adapt_many(tasks)).all()
        side = learner.feature_map_.model.side
        assert not side.from_description
        spread = np.where(expected.std(axis=0) > 0, expected.std(axis=0), 1.0)
        standardised = (expected - expected.mean(axis=0)) / spread / np.sqrt(expected.shape[1])
        np.testing.assert_allclose(side(some), standardised, atol=1e-12)
        # they are part of ψ of every level that has something to say: d directions, two noise levels, these
        for level in learner.feature_map_.model.levels:
            if level.summary is not None:
                assert len(level.summary.mean) == 3 + 2 + expected.shape[1]
    assert learner.bias_penalty_ is not None  # so that there was such a level


def test_a_callable_may_read_the_description(few_steps, with_side):
    tasks, _ = with_side
    some = tasks[:12]
    learner = EmpiricalBayesLearner(lambda task: task.side_info).fit(some)
    assert np.isfinite(learner.adapt(side_info=tasks[0].side_info).coef_).all()
    table = some.side_info
    standardised = (table - table.mean(axis=0)) / table.std(axis=0) / np.sqrt(2.0)
    np.testing.assert_allclose(learner.feature_map_.model.side(some), standardised, atol=1e-12)


def test_posterior_map_serves_algorithm_1(clusters):
    learner = ConditionalLearner("posterior", solver=ProjectedSGD(0.3)).fit(clusters)
    assert learner.conditioning_.n_side == 2 + 1 + 6 + 2
    with pytest.raises(ValueError, match="not fitted"):
        PosteriorMap().transform(clusters)
    phi = PosteriorMap(n_components=3).fit(clusters).transform(clusters)
    np.testing.assert_allclose(phi[:, 3:6].sum(axis=1), 1.0)


# ---------------------------------------------------------------- saving and clipping


def test_round_trip(with_side, mixture, clusters, tmp_path):
    tasks, learner = with_side
    for learner_, tasks_ in ((learner, tasks), (mixture, clusters)):
        learner_.save(tmp_path / "a")
        again = tailored.load(tmp_path / "a")
        np.testing.assert_array_equal(again.adapt_many(tasks_), learner_.adapt_many(tasks_))
        assert again.score(tasks_) == learner_.score(tasks_)
        same_numbers(learner_.state()["fitted"], again.state()["fitted"])
        assert repr(again) == repr(learner_)
        assert again.get_params() == learner_.get_params()
        groups = np.repeat(tasks_.labels, tasks_.sizes)
        np.testing.assert_array_equal(again.predict(tasks_.X, groups), learner_.predict(tasks_.X, groups))
        np.testing.assert_array_equal(again.representations(tasks_), learner_.representations(tasks_))
        one = tasks_[1]
        np.testing.assert_array_equal(
            again.adapt(one.X, one.y, side_info=one.side_info).coef_,
            learner_.adapt(one.X, one.y, side_info=one.side_info).coef_,
        )
        with pytest.raises(ValueError, match="partial_fit"):
            again.partial_fit(tasks_)


def test_a_new_fit_of_a_loaded_learner_is_no_continuation(few_steps, mixture, clusters, tmp_path):
    mixture.save(tmp_path / "a")
    again, fresh = tailored.load(tmp_path / "a").fit(clusters[:8]), clone(mixture).fit(clusters[:8])
    same_numbers(fresh.state()["fitted"], again.state()["fitted"])


def test_round_trip_of_names_labels_and_arguments(few_steps, tmp_path):
    """What frames bring, and arguments that are not the default ones."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["price", "speed", "weight"])
    y = frame.to_numpy() @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=60) + 2.0
    groups = np.repeat([f"user {t}" for t in range(10)], 6)
    learner = EmpiricalBayesLearner(
        loss=("pinball", {"quantile": 0.7}), fit_intercept=True, clip=(-1.0, 4.0), calibrate=False
    )
    learner.fit(frame, y, groups=groups)
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    assert repr(again) == repr(learner)
    assert again.loss_ == learner.loss_
    same_numbers(learner.state()["fitted"], again.state()["fitted"])
    assert list(again.feature_names_in_) == ["price", "speed", "weight"]
    np.testing.assert_array_equal(again.predict(frame, groups), learner.predict(frame, groups))
    assert again.score(frame, y, groups=groups) == learner.score(frame, y, groups=groups)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"price": "cost"}), groups)
    # a task that was not seen is predicted by the prior
    rows = frame[:3]
    prior = again.adapt().predict(rows)
    np.testing.assert_allclose(again.predict(rows, ["user 11", "user 12", "user 11"]), prior)
    mixed = again.predict(rows, ["user 11", "user 0", "user 11"])
    np.testing.assert_allclose(mixed[[0, 2]], prior[[0, 2]])
    assert mixed[1] == learner.predict(frame[:2], groups[:2])[1]


def test_what_was_learned_is_one_record(few_steps, mixture):
    """The views cannot be set, the record cannot be changed, and another one is made by `replace`."""
    prior = mixture.prior_
    assert mixture.conditioning_ is prior.conditioning
    assert mixture.bias_ is prior.bias
    assert mixture.feature_map_ is prior.feature_map
    assert mixture.calibration_ is prior.calibration
    for name in ("conditioning_", "bias_", "feature_map_", "clip_", "calibration_"):
        with pytest.raises(AttributeError):
            setattr(mixture, name, None)
    with pytest.raises(FrozenInstanceError):
        prior.clip = (0.0, 1.0)
    for array in (prior.conditioning.blocks, prior.conditioning.C, prior.bias.linear, prior.bias.constant):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    assert (prior.loss, prior.inner, prior.tol, prior.max_iter) == (Squared(), "exact", 1e-8, 1000)
    assert mixture.loss_ == Absolute()
    assert EmpiricalBayesLearner(tol=1e-5, max_iter=7).fit(skewed_tasks(0, n_tasks=6)).prior_.max_iter == 7


def test_another_prior_predicts_otherwise(few_steps, mixture, clusters):
    """All that adapting needs is in the record."""
    other = EmpiricalBayesLearner().fit(clusters[:4])
    d, k = 6, mixture.conditioning_.n_side
    mean = np.arange(6.0)
    other.prior_ = replace(
        mixture.prior_,
        conditioning=Constant(np.zeros((d, d)), k),
        bias=Bias("shared", mean, np.zeros((d, 0))),
        units=Units.raw(6),
        clip=(-1.0, 1.0),
    )
    np.testing.assert_array_equal(other.adapt_many(clusters), np.tile(mean, (80, 1)))
    model = other.adapt(clusters[0].X, clusters[0].y)
    np.testing.assert_array_equal(model.coef_, mean)
    np.testing.assert_array_equal(model.predict(clusters[1].X), np.clip(clusters[1].X @ mean, -1.0, 1.0))


@pytest.mark.parametrize(
    "learner",
    [
        EmpiricalBayesLearner(clip=(-0.5, 0.25)),
        ConditionalLearner(clip=(-0.5, 0.25), solver=ProjectedSGD(0.3)),
        UnconditionalLearner(clip=(-0.5, 0.25), solver=ProjectedSGD(step_sizes=(0.1, 1.0))),
        IndependentLearner(clip=(-0.5, 0.25)),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_clip(learner, few_steps, clusters, tmp_path):
    clusters = clusters[:20]
    learner.fit(clusters)
    groups = np.repeat(clusters.labels, clusters.sizes)
    X = 10.0 * clusters.X
    prediction = learner.predict(X, groups=groups)
    assert prediction.min() == -0.5
    assert prediction.max() == 0.25
    model = learner.adapt(clusters[0].X, clusters[0].y)
    assert set(model.predict(100.0 * clusters.X)) >= {-0.5, 0.25}
    far = TaskSet(clusters.X, np.full(len(groups), 9.0), groups)
    np.testing.assert_allclose(learner.task_errors(clusters, far, loss="absolute").min(), 8.75, atol=0.3)
    assert (learner.task_errors(clusters, far, loss="absolute") >= 8.75).all()
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    assert again.clip_ == (-0.5, 0.25)
    np.testing.assert_array_equal(again.predict(X, groups=groups), prediction)


def test_clip_to_the_training_targets(few_steps, clusters):
    clusters = clusters[:12]
    learner = EmpiricalBayesLearner(clip="train").partial_fit(clusters[:6])
    assert learner.clip_ == (clusters[:6].y.min(), clusters[:6].y.max())
    learner.partial_fit(clusters[6:])
    assert learner.clip_ == (clusters.y.min(), clusters.y.max())
    for clip in ("test", (1.0, 0.0), (0.0,), 3.0, (0.0, np.nan)):
        with pytest.raises((ValueError, TypeError), match="clip"):
            EmpiricalBayesLearner(clip=clip).fit(clusters)


# ---------------------------------------------------------------- arguments


def test_the_paper_is_one_call_away(clusters):
    solver = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(1.0,))
    learner = ConditionalLearner.paper(solver=solver).fit(clusters)
    assert learner.prior_.size_exponent == 0
    assert learner.prior_.loss == learner.loss_
    tried = {(entry["step_C"], entry["step_H"], entry["scale"]) for entry in learner.search_results_}
    assert tried == {(0.1, 0.1, 1.0), (1.0, 1.0, 1.0)}
    params = ConditionalLearner.paper().get_params()
    assert params["solver__step_sizes"] == PAPER_STEP_SIZES
    assert params["solver__step_ratios"] == (1.0,)
    assert (params["feature_map"], params["inner"], params["solver__step"]) == ("mean", "online", "search")
    assert (params["rank"], params["calibrate"]) == (None, False)
    assert ConditionalLearner.paper(inner="exact").inner == "exact"


OBJECTIVE_ARGUMENTS = {
    "inner": "online",
    "objective": "query",
    "rank": None,
    "bias": "shared",
    "solver": LBFGS(max_passes=3),
    "initial_representation": 2.0,
    "lipschitz": 0.5,
    "scale_features": False,
    "support": 0.3,
}
SOLVER_ARGUMENTS = {
    "step": (ProjectedSGD, 0.3),
    "step_sizes": (ProjectedSGD, (1.0,)),
    "step_ratios": (ProjectedSGD, (1.0,)),
    "theory_constants": (ProjectedSGD, {"L": 2.0}),
    "batch_size": (Adam, 8),
    "max_passes": (Adam, 3),
}


@pytest.mark.parametrize("name", [*OBJECTIVE_ARGUMENTS, *SOLVER_ARGUMENTS, "step_size"])
def test_arguments_of_other_algorithms_are_refused(name):
    """Nothing is ignored, and no argument changes the algorithm."""
    with pytest.raises(TypeError, match=name):
        EmpiricalBayesLearner(**{name: 1.0})
    with pytest.raises(ValueError, match=name):
        EmpiricalBayesLearner().set_params(**{name: 1.0})


@pytest.mark.parametrize("name", [*SOLVER_ARGUMENTS, "step_size"])
@pytest.mark.parametrize("kind", [ConditionalLearner, UnconditionalLearner, IndependentLearner])
def test_arguments_of_solvers_are_the_solvers_own(kind, name):
    with pytest.raises(TypeError, match=name):
        kind(**{name: 1.0})


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (UnconditionalLearner, ("feature_map", "rank", "scale_features")),
        (IndependentLearner, ("feature_map", "rank", "bias", "solver", "calibrate", "objective")),
        (ProjectedSGD, ("batch_size", "max_passes")),
        (Adam, ("step", "step_sizes", "step_ratios", "theory_constants")),
        (LBFGS, ("step", "step_sizes", "batch_size")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_estimator_refuses_what_it_cannot_honour(kind, names):
    for name in names:
        with pytest.raises(TypeError, match=name):
            kind(**{name: 1.0})


@pytest.mark.parametrize("name", OBJECTIVE_ARGUMENTS)
def test_arguments_of_the_objective_are_honoured(name, clusters):
    """Each of them reaches what is learned, and the algorithm stays the paper's."""
    clusters = clusters[:30]
    options = {"feature_map": "mean", "solver": ProjectedSGD(step_sizes=(0.3, 3.0)), "bias": "conditional"}
    if name == "rank":
        options["rank"] = 1
    plain = ConditionalLearner(**options).fit(clusters)
    given = ConditionalLearner(**{**options, name: OBJECTIVE_ARGUMENTS[name]}).fit(clusters)
    assert plain.prior_.size_exponent == given.prior_.size_exponent == 0
    assert plain.prior_.loss == given.prior_.loss == Absolute()
    for learner in (plain, given):
        assert not hasattr(learner, "form_")
    if name == "support":  # only what is judged on held-out tasks depends on it
        assert plain.search_results_ != given.search_results_
    else:
        assert not np.allclose(plain.adapt_many(clusters), given.adapt_many(clusters), atol=1e-6)


@pytest.mark.parametrize("name", SOLVER_ARGUMENTS)
def test_arguments_of_solvers_are_honoured(name, clusters):
    clusters = clusters[:30]
    kind, value = SOLVER_ARGUMENTS[name]
    options = {"step": "theory"} if name == "theory_constants" else {}
    plain = ConditionalLearner("mean", solver=kind(**options)).fit(clusters)
    given = ConditionalLearner("mean", solver=kind(**options, **{name: value})).fit(clusters)
    if name.startswith("step_"):
        assert len(given.search_results_) < len(plain.search_results_)
    elif kind is Adam:  # the start may be the best iterate of both, but the path is another one
        assert given.search_results_ != plain.search_results_
    else:
        assert not np.allclose(plain.adapt_many(clusters), given.adapt_many(clusters), atol=1e-6)
    again = (
        ConditionalLearner("mean", solver=kind(**options))
        .set_params(**{f"solver__{name}": value})
        .fit(clusters)
    )
    np.testing.assert_array_equal(again.adapt_many(clusters), given.adapt_many(clusters))


@pytest.mark.parametrize("rank", [1, 32, None])
def test_rank_does_not_change_the_algorithm(rank, clusters):
    """A rank is a rank: at its default, above it, and with every direction kept."""
    solver = ProjectedSGD(step_sizes=(0.3,))
    default = ConditionalLearner("mean", solver=solver).fit(clusters)
    learner = ConditionalLearner("mean", solver=solver, rank=rank).fit(clusters)
    assert learner.prior_.size_exponent == 0
    assert learner.prior_.loss == Absolute()
    fields_of = [{key for key in entry if key != "error"} for entry in learner.search_results_]
    assert fields_of == [{key for key in entry if key != "error"} for entry in default.search_results_]
    found = len(learner.conditioning_.spectrum())
    if rank == 32:
        np.testing.assert_array_equal(learner.adapt_many(clusters), default.adapt_many(clusters))
    elif rank is None:
        assert found >= len(default.conditioning_.spectrum())
    else:
        assert found <= rank


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_losses_that_empirical_bayes_cannot_honour(loss, clusters):
    signs = TaskSet(clusters.X, np.sign(clusters.y), np.repeat(clusters.labels, clusters.sizes))
    with pytest.raises(ValueError, match=rf"loss: .*{loss}.*ConditionalLearner\(loss='{loss}'\)"):
        EmpiricalBayesLearner(loss=loss).fit(signs)
    learner = ConditionalLearner(loss=loss, solver=ProjectedSGD(step_sizes=(1.0,))).fit(signs)
    assert learner.prior_.loss == learner.loss_
    assert learner.loss_.name == loss
    agreement = np.sign(learner.predict(signs.X, np.repeat(signs.labels, signs.sizes))) == signs.y
    assert agreement.mean() > 0.8


@pytest.mark.parametrize("loss", ["squared", "huber", "epsilon_insensitive"])
def test_other_losses(loss, few_steps, clusters):
    learner = EmpiricalBayesLearner(loss=loss).fit(clusters[:20])
    assert learner.score(clusters) > 0.5


def test_solvers_do_not_mix(clusters):
    """A stream goes on with the solver that it began with; `fit` begins anew."""
    learner = ConditionalLearner("mean", solver=ProjectedSGD(0.3)).partial_fit(clusters[:20])
    before = learner.state()["fitted"]
    learner.set_params(solver=Adam(max_passes=2))
    with pytest.raises(ValueError, match=r"solver.*ProjectedSGD to Adam"):
        learner.partial_fit(clusters[20:])
    same_numbers(before, learner.state()["fitted"])
    learner.fit(clusters)
    assert not hasattr(learner, "step_size_")
    fresh = ConditionalLearner("mean", solver=Adam(max_passes=2)).fit(clusters)
    same_numbers(fresh.state()["fitted"], learner.state()["fitted"])


def test_wide_rows_are_refused():
    rng = np.random.default_rng(0)
    X = sp.random_array((60, 3000), density=0.001, rng=rng, format="csr")
    with pytest.raises(ValueError, match=r"20 tasks and 3000 columns.*ConditionalLearner.*rank"):
        EmpiricalBayesLearner().fit(X, rng.normal(size=60), groups=np.repeat(np.arange(20), 3))


# ---------------------------------------------------------------- tiny and odd data


def odd_tasks():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 5)), rng.normal(size=6)
    constant = X.copy()
    constant[:, 2] = 3.0
    constant[:, 4] = 0.0
    return {
        "one row": [(X[:1], y[:1])],
        "one task": [(X, y)],
        "one row in each task": [(X[i : i + 1], y[i : i + 1]) for i in range(6)],
        "two tasks": [(X[:3], y[:3]), (X[3:], y[3:])],
        "more columns than rows": [(rng.normal(size=(2, 30)), rng.normal(size=2)) for _ in range(4)],
        "constant columns": [(constant, y), (constant[:4], y[:4]), (constant[2:], y[2:])],
        "duplicated rows": [(np.repeat(X[:1], 5, axis=0), np.repeat(y[:1], 5))] * 3,
        "duplicated tasks": [(X, y)] * 12,
        "targets all zero": [(X, np.zeros(6))] * 4,
        "targets all equal": [(X, np.full(6, 7.0))] * 4,
        "rows all zero": [(np.zeros((4, 5)), y[:4])] * 3,
        "a task without rows": [(X, y), (X[:0], y[:0]), (X[:2], y[:2])],
        "huge": [(1e8 * X, 1e10 * y)] * 4,
        "tiny": [(1e-8 * X, 1e-10 * y)] * 4,
        "no noise": [(rng.normal(size=(8, 5)), np.zeros(8)) for _ in range(10)],
    }


#: Where EM's last steps are the dangerous ones.
TO_THE_END = ("more columns than rows", "duplicated rows", "no noise")


@pytest.mark.parametrize("name", odd_tasks())
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_tiny_and_odd_data(name, fit_intercept, request):
    if not (fit_intercept and name in TO_THE_END):
        request.getfixturevalue("few_steps")
    tasks = TaskSet.from_tasks(odd_tasks()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # that a task's own mean does better may be said; nothing else
        warnings.simplefilter("ignore", UnhelpfulWarning)
        learner = EmpiricalBayesLearner(fit_intercept=fit_intercept, validation_fraction=0.5).fit(tasks)
        assert np.isfinite(learner.adapt_many(tasks)).all()
        assert np.isfinite(learner.validation_error_)
        model = learner.adapt(tasks[0].X, tasks[0].y)
        assert np.isfinite(model.predict(tasks.X)).all()
        assert np.isfinite(learner.adapt().coef_).all()
