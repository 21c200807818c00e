"""EmpiricalBayesLearner: what must not change its numbers."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_samples import learned, same_numbers, skewed_tasks, weights_of
from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskRegressor, TaskSet
from tailored.empirical_bayes.data import Settings, TrainingData
from tailored.losses import Absolute
from tailored.priors.base import predict_blocks


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
    a = few_folds(n_folds=4).fit(tasks)
    b = few_folds(n_folds=4).fit(tasks.X * columns + levels, target * tasks.y + level, groups=groups)
    assert a.structure_ == b.structure_
    np.testing.assert_allclose(b.validation_error_, target**2 * a.validation_error_, rtol=1e-6)
    slopes = b.task_weights_[:, :-1] * columns / target
    np.testing.assert_allclose(slopes, a.task_weights_[:, :-1], atol=1e-5)
    intercepts = (b.task_weights_[:, -1] + b.task_weights_[:, :-1] @ levels - level) / target
    np.testing.assert_allclose(intercepts, a.task_weights_[:, -1], atol=1e-5)


def test_no_row_of_another_task_leaks(clusters, mixture):
    """Predictions for a query row depend on its task's support rows and on nothing else."""
    support, query = clusters.support_query(0.5, random_state=0)
    before = predict_blocks(mixture.prior_, support, query).prediction
    own = slice(query.offsets[7], query.offsets[8])
    y = query.y + 100.0
    y[own] = query.y[own]
    X = -3.0 * query.X
    X[own] = query.X[own]
    other = TaskSet.from_arrays(X, y, query.offsets, query.labels)
    np.testing.assert_array_equal(predict_blocks(mixture.prior_, support, other).prediction[own], before[own])
    alone = mixture.adapt(support[7].X, support[7].y).predict(query[7].X)
    np.testing.assert_allclose(alone, before[own], atol=1e-9)


def test_held_out_tasks_do_not_teach():
    """A fold's candidates see none of the tasks they are judged on."""
    for n_tasks, n_validation in ((11, 0), (600, 0), (30, 7)):
        tasks = skewed_tasks(0, n_tasks=n_tasks, n_rows=3)
        options = Settings(Absolute(), False, None, 0, None)
        folds = TrainingData(tasks, None, n_validation, options).folds
        assert len(folds) == (5 if n_tasks == 11 else 1)
        for fold in folds:
            assert not set(fold.train) & set(fold.held_out)
        if n_tasks == 11:
            assert sorted(np.concatenate([fold.held_out for fold in folds])) == list(range(11))
        if n_validation:
            np.testing.assert_array_equal(folds[0].held_out, np.arange(23, 30))


def test_stream_in_pieces_is_the_same_bits(few_steps, clusters):
    some = clusters[:44]  # enough for mixtures to be tried
    whole, pieces = (few_folds() for _ in range(2))
    whole.fit(some)
    for first, last in ((0, 1), (1, 20), (20, 44)):
        pieces.partial_fit(some[first:last])
    same_numbers(whole.prior_, pieces.prior_)
    np.testing.assert_array_equal(whole.adapt_many(clusters).weights_, pieces.adapt_many(clusters).weights_)
    assert whole.search_results_ == pieces.search_results_
    assert "mixed model" in {entry["kind"] for entry in whole.search_results_}
    assert pieces.n_tasks_seen_ == 44
    np.testing.assert_array_equal(pieces.task_labels_, clusters.labels[20:44])
    # and a call that starts over forgets all of it
    same_numbers(learned(whole), learned(pieces.fit(some)))


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
    before = learned(learner)
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
    same_numbers(before, learned(learner))
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
    np.testing.assert_array_equal(one.adapt_many(tasks).weights_, many.adapt_many(tasks).weights_)


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
    assert a.structure_ == b.structure_
    np.testing.assert_allclose(a.adapt_many(dense).weights_, b.adapt_many(sparse).weights_, atol=1e-7)
    np.testing.assert_allclose(a.adapt(*entries[0]).coef_, b.adapt(one.X, one.y).coef_, atol=1e-7)
    # With an intercept, sparse columns are centred as dense ones.
    a, b = EmpiricalBayesLearner().fit(dense), EmpiricalBayesLearner().fit(sparse)
    np.testing.assert_allclose(a.prior_.scaling.shift, b.prior_.scaling.shift, atol=1e-12)
    assert a.prior_.scaling.shift.any()
    for learner in (a, b):
        many = learner.adapt_many(dense).weights_
        np.testing.assert_allclose(learner.adapt_many(sparse).weights_, many, atol=1e-7)
        for X, y in (entries[0], (one.X, one.y)):
            np.testing.assert_allclose(weights_of(learner.adapt(X, y)), many[0], atol=1e-7)
    assert b.validation_error_ == pytest.approx(a.validation_error_, rel=1e-6)


def test_constant_column_is_the_intercept(few_steps):
    """A task is fitted as with a column of ones, and the level of the targets moves the intercepts alone."""
    tasks = skewed_tasks(7, n_tasks=12)
    groups = np.repeat(tasks.labels, tasks.sizes)
    shifted = TaskSet(tasks.X, tasks.y + 5.0, groups)
    a, b = EmpiricalBayesLearner().fit(shifted), EmpiricalBayesLearner().fit(tasks)
    tau = a.representation()
    np.testing.assert_allclose(b.representation(), tau, atol=1e-9 * np.abs(tau).max())
    np.testing.assert_allclose(
        a.adapt_many(shifted).weights_, b.adapt_many(tasks).weights_ + 5.0 * np.eye(5)[4], atol=1e-8
    )
    assert (a.n_features_in_, len(a.prior_.scaling.columns)) == (4, 5)
    X, y = shifted[0].X, shifted[0].y
    model = a.adapt(X, y)
    assert model.intercept_ == pytest.approx(5.0, abs=0.5)
    ones = np.hstack([X, np.ones((len(y), 1))])
    again = TaskRegressor(model.representation_, model.bias_, loss="squared", tol=1e-13).fit(ones, y)
    np.testing.assert_allclose(again.coef_, weights_of(model), atol=1e-6)
