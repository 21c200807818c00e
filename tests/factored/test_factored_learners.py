"""Learners that are trained on factors: what they find, and what must not matter to it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import tailored
from tailored import ConditionalLearner, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters
from tailored.solvers import LBFGS, SOLVERS, ProjectedSGD
from tailored.solvers import factored as factored_module


def same(a, b):
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.conditioning_.dense_H(), b.conditioning_.dense_H())
    np.testing.assert_array_equal(a.bias_.constant, b.bias_.constant)
    np.testing.assert_array_equal(a.bias_.linear, b.bias_.linear)
    assert a.search_results_ == b.search_results_


@pytest.fixture(scope="module")
def clusters():
    return make_clusters(60, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


@pytest.mark.parametrize("objective", ["surrogate", "query"])
def test_conditioning_is_found(objective):
    """Tasks of four orthogonal planes, and side information that says which: new tasks are easier with it."""
    rng = np.random.default_rng(0)
    n_tasks = 100
    entries = []
    for t in range(n_tasks + 50):
        w, s = np.zeros(8), np.eye(4)[t % 4]
        w[2 * (t % 4) : 2 * (t % 4) + 2] = rng.normal(size=2)
        X = rng.normal(size=(12, 8))
        entries.append((X, X @ w + 0.3 * rng.normal(size=12), s))
    tasks = TaskSet.from_tasks(entries)
    options = {"loss": "squared", "objective": objective, "solver": LBFGS(12)}
    unconditional = UnconditionalLearner(**{"fit_intercept": False, **options}).fit(tasks[:n_tasks])
    conditional = ConditionalLearner(rank=8, **{"fit_intercept": False, **options}).fit(tasks[:n_tasks])
    assert conditional.validation_error_ < 0.8 * conditional.search_results_[0]["error"]
    errors = [meta.task_errors(tasks[n_tasks:]).mean() for meta in (conditional, unconditional)]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize("objective", ["surrogate", "query"])
def test_where_there_is_nothing_to_condition_on_it_keeps_to_its_start(objective):
    tasks = make_clusters(40, n_clusters=1, n_rows=10, n_features=6, rank=6, random_state=2)
    learner = ConditionalLearner("ridge", solver=LBFGS(8), objective=objective, fit_intercept=False).fit(
        tasks
    )
    errors = [step["error"] for step in learner.search_results_]
    assert learner.validation_error_ == min(errors) <= errors[0]
    # and that is the error of what was returned, not of something that was met on the way
    support, query = learner._stream.pool.tasks()
    assert learner.task_errors(support, query).mean() == pytest.approx(learner.validation_error_, rel=1e-9)


def test_results_follow_from_random_state_alone(clusters, monkeypatch):
    options = {"solver": LBFGS(2), "objective": "query", "bias": "conditional", "rank": 4}
    tasks = clusters[:30]
    monkeypatch.setattr(factored_module, "BLOCK_TASKS", 16)
    one = ConditionalLearner("ridge", **{"fit_intercept": False, **options}).fit(tasks)
    same(one, ConditionalLearner("ridge", n_jobs=1, **{"fit_intercept": False, **options}).fit(tasks))
    same(one, ConditionalLearner("ridge", n_jobs=2, **{"fit_intercept": False, **options}).fit(tasks))
    other = ConditionalLearner("ridge", random_state=1, **{"fit_intercept": False, **options}).fit(tasks)
    assert not np.array_equal(one.conditioning_.C, other.conditioning_.C)


def test_units_of_the_data_do_not_matter():
    """Squared loss: other units of the columns and of the target give the same predictions in them."""
    rng = np.random.default_rng(11)
    entries = []
    for _ in range(40):
        X, s = rng.normal(size=(4, 5)), rng.normal(size=2)
        entries.append((X, X[:, :2] @ s + 0.3 * rng.normal(size=4), s))
    units = np.array([100.0, 0.01, 1.0, 10.0, 2.0])
    moved = TaskSet.from_tasks([(X * units, 50.0 * y, s) for X, y, s in entries])
    tasks = TaskSet.from_tasks(entries)
    options = {"loss": "squared", "objective": "query", "bias": "conditional"}
    a = ConditionalLearner(solver=LBFGS(4), **{"fit_intercept": False, **options}).fit(tasks)
    b = ConditionalLearner(solver=LBFGS(4), **{"fit_intercept": False, **options}).fit(moved)
    assert a.validation_error_ < a.search_results_[0]["error"]
    np.testing.assert_allclose(
        b.adapt_many(moved).weights_ * units, 50.0 * a.adapt_many(tasks).weights_, rtol=2e-4, atol=1e-3
    )


@pytest.mark.parametrize("bias", ["none", "conditional"])
def test_sparse_rows_give_a_model_as_well(bias):
    """Ratings of items: query rows are of items that the support rows do not touch."""
    rng = np.random.default_rng(5)
    entries = []
    for _ in range(20):
        items = rng.choice(9, size=6, replace=False)
        X = np.zeros((6, 9))
        X[np.arange(6), items] = 1.0
        entries.append((X, rng.normal() + 0.1 * rng.normal(size=6)))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    options = {"solver": LBFGS(3), "objective": "query", "bias": bias, "rank": 3}
    # One draw in five ends in a covariance that is nearly singular, and rounding then parts the two by up to 1e-2.
    options["random_state"] = 5
    meta = ConditionalLearner("ridge", loss="squared", **{"fit_intercept": False, **options}).fit(sparse)
    np.testing.assert_allclose(meta.adapt_many(sparse).weights_, meta.adapt_many(dense).weights_, atol=1e-9)
    # a rank-one covariance is the truth; an item is predicted from the others
    assert meta.task_errors(sparse).mean() < 0.5 * np.mean(dense.y**2) / 2


def test_query_steps_on_sparse_rows_are_those_on_dense_rows():
    """Algorithm 1 too: the columns of a task are those of its support and its query rows."""
    rng = np.random.default_rng(6)
    entries = []
    for _ in range(10):
        X = np.zeros((6, 9))
        X[np.arange(6), rng.choice(9, size=6, replace=False)] = 1.0
        entries.append((X, rng.normal() + 0.1 * rng.normal(size=6)))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    options = {"solver": ProjectedSGD(0.5), "objective": "query", "rank": 6, "bias": "shared"}
    a, b = (
        ConditionalLearner("ridge", **{"fit_intercept": False, **options}).fit(dense),
        ConditionalLearner("ridge", **{"fit_intercept": False, **options}).fit(sparse),
    )
    assert np.abs(a.conditioning_.C - np.eye(9)).max() > 1e-3
    np.testing.assert_allclose(a.conditioning_.C, b.conditioning_.C, atol=1e-9)
    np.testing.assert_allclose(a.bias_.constant, b.bias_.constant, atol=1e-9)


@pytest.mark.parametrize("loss", ["huber", "pinball", "epsilon_insensitive", "logistic", "hinge"])
def test_every_loss_has_a_start(loss, clusters):
    tasks = clusters
    if loss in ("logistic", "hinge"):
        groups = np.repeat(clusters.labels, clusters.sizes)
        tasks = TaskSet(clusters.X, np.where(clusters.y > 0, 1.0, -1.0), groups)
    learner = ConditionalLearner("ridge", loss=loss, solver=LBFGS(2), rank=3, fit_intercept=False)
    learner.fit(tasks)
    zero = learner.loss_.value(np.zeros(len(tasks.y)), tasks.y).mean()
    assert learner.validation_error_ < 0.9 * zero


def held_out_targets(learner):
    return learner._stream.pool.tasks()[1].y


def test_initial_representation_is_the_start(clusters):
    """Taken as it is, whatever its rank; C = 0 is moved off the saddle."""
    options = {"solver": LBFGS(max_passes=30), "objective": "query", "rank": 3, "tune_scale": False}
    far = ConditionalLearner("ridge", initial_representation=1e-6, **{"fit_intercept": False, **options}).fit(
        clusters
    )
    near = ConditionalLearner("ridge", initial_representation=5.0, **{"fit_intercept": False, **options}).fit(
        clusters
    )
    assert near.search_results_[0]["error"] < 0.7 * far.search_results_[0]["error"]
    zero = ConditionalLearner("ridge", initial_representation=0.0, **{"fit_intercept": False, **options}).fit(
        clusters
    )
    # where it starts is small, and it gets away from there
    np.testing.assert_allclose(
        zero.search_results_[0]["error"], np.abs(held_out_targets(zero)).mean(), rtol=0.1
    )
    assert zero.validation_error_ < 0.999 * zero.search_results_[0]["error"]


def test_persistence_clone_and_parameters(clusters, tmp_path):
    for learner in (
        ConditionalLearner("ridge", solver=LBFGS(max_passes=2), bias="conditional", fit_intercept=False),
        UnconditionalLearner(solver=LBFGS(max_passes=3), bias="shared", fit_intercept=False),
    ):
        copy = clone(learner)
        assert copy.solver is not learner.solver
        assert copy.solver.get_params() == learner.solver.get_params()
        learner.fit(clusters).save(tmp_path / "learner")
        again = tailored.load(tmp_path / "learner")
        np.testing.assert_array_equal(
            again.adapt_many(clusters).weights_, learner.adapt_many(clusters).weights_
        )
        assert type(again.solver) is type(learner.solver)
        assert again.solver.get_params() == learner.solver.get_params()
        same(copy.fit(clusters), learner)


def test_errors_name_the_argument_and_the_fix(clusters):
    cases = [
        ({"solver": "lbgfs"}, ValueError, "solver.*'lbfgs'"),
        ({"solver": LBFGS(max_passes=2.5)}, TypeError, "max_passes"),
        ({"solver": "lbfgs", "rank": None}, ValueError, "rank.*rank=32"),
        ({"solver": "lbfgs", "inner": "online"}, ValueError, "inner.*'exact'"),
        ({"solver": LBFGS}, TypeError, "solver.*'lbfgs'.*tailored.solvers"),
        ({"solver": 0.1}, TypeError, "solver.*'lbfgs'.*float"),
    ]
    for options, kind, pattern in cases:
        with pytest.raises(kind, match=pattern):
            ConditionalLearner(**{"fit_intercept": False, **options}).fit(clusters)
    with pytest.raises(ValueError, match=r"partial_fit: LBFGS needs all tasks at once; .*solver='projected'"):
        UnconditionalLearner(solver="lbfgs", fit_intercept=False).partial_fit(clusters)
    assert [name for name, kind in SOLVERS.items() if not kind.streams] == ["lbfgs"]


def test_solvers_leave_no_attribute_of_each_other(clusters):
    learner = UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1,)), fit_intercept=False).fit(clusters)
    assert learner.step_size_.C == 0.1
    learner.set_params(solver=LBFGS(max_passes=2)).fit(clusters)
    assert not hasattr(learner, "step_size_")
