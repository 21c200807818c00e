"""The learners: adaptation, prediction, score."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from learner_samples import random_tasks
from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters
from tailored.paper import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


@pytest.mark.parametrize("inner", ["exact", "online"])
def test_adapt_many_is_adapt_for_each(clusters, inner):
    learner = ConditionalLearner(
        "ridge", solver=ProjectedSGD(0.3), inner=inner, fit_intercept=False
    ).fit(clusters)
    many = learner.adapt_many(clusters).weights_
    for row, task in zip(many, clusters, strict=True):
        model = learner.adapt(task.X, task.y)
        np.testing.assert_allclose(model.coef_, row, atol=1e-9)
        assert model.dual_gap_ >= 0
    if inner == "exact":
        objective_at_zero = np.abs(task.y).mean()
        assert model.dual_gap_ <= max(1e-8 * objective_at_zero, 1e-12)


@pytest.mark.parametrize("inner", ["exact", "online"])
def test_sparse_is_dense(inner):
    rng = np.random.default_rng(5)
    entries = []
    for _ in range(12):
        items = rng.choice(9, size=5, replace=False)
        X = np.zeros((5, 9))
        X[np.arange(5), items] = 1.0
        entries.append((X, rng.normal(size=5)))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    assert sparse.is_sparse
    settings_ = {
        "solver": ProjectedSGD(0.5),
        "inner": inner,
        "fit_intercept": True,
        "rank": 6,
    }
    a, b = (
        ConditionalLearner(**{"fit_intercept": False, **settings_}).fit(dense),
        ConditionalLearner(**{"fit_intercept": False, **settings_}).fit(sparse),
    )
    np.testing.assert_allclose(
        a.adapt_many(dense).weights_, b.adapt_many(sparse).weights_, atol=1e-9
    )
    np.testing.assert_allclose(a.conditioning_.C, b.conditioning_.C, atol=1e-9)
    one = sparse[0]
    np.testing.assert_allclose(a.adapt(*entries[0]).coef_, b.adapt(one.X, one.y).coef_, atol=1e-9)


def test_adapt_from_side_information_alone():
    tasks = random_tasks(0, side=3)
    learner = ConditionalLearner(solver=ProjectedSGD(0.3), fit_intercept=False).fit(tasks)
    s = tasks[2].side_info
    model = learner.adapt(side_info=s)
    np.testing.assert_array_equal(model.coef_, 0.0)
    np.testing.assert_allclose(learner.representation(side_info=s), learner.conditioning_(s))
    np.testing.assert_array_equal(model.predict(tasks.X), 0.0)


def test_prior_of_a_data_set_map_without_rows(clusters):
    learner = UnconditionalLearner(solver=ProjectedSGD(0.3), fit_intercept=False).fit(clusters)
    np.testing.assert_array_equal(learner.adapt().coef_, 0.0)


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_and_odd_tasks(n):
    rng = np.random.default_rng(n)
    X = np.vstack([rng.normal(size=(n, 30)), np.ones((2, 30))])  # d ≫ n, duplicated rows
    X[:, 3] = 2.0  # constant column
    y = rng.normal(size=len(X))
    tasks = TaskSet.from_tasks([(X[:1], y[:1])] * 3 + [(X, y)] * 3)
    learner = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.1,)), fit_intercept=False).fit(
        tasks
    )
    assert np.isfinite(learner.adapt_many(tasks).weights_).all()


@pytest.fixture(scope="module")
def hard():
    """Tasks of labels under a loose prior, which one sweep does not solve."""
    rng = np.random.default_rng(7)
    entries = []
    for _ in range(3):
        X = rng.normal(size=(12, 4))
        entries.append((X, np.where(X @ rng.normal(size=4) + rng.normal(size=12) > 0, 1.0, -1.0)))
    return TaskSet.from_tasks(entries, labels=["spoon", "fork", "knife"])


HARD = {"loss": "logistic", "initial_representation": 1e4}
ALONE = {"loss": "logistic", "tau": 1e4, "fit_intercept": False}


def test_convergence_warnings_name_tasks_by_their_labels(hard):
    """Through adapt_many, and through fit, which adapts the tasks that it was given."""
    hasty = IndependentLearner(max_iter=1, **ALONE)
    with pytest.warns(ConvergenceWarning, match=r"3 of 3 tasks \('spoon', 'fork', 'knife'\)"):
        hasty.fit(hard)
    with pytest.warns(ConvergenceWarning, match=r"2 of 2 tasks \('fork', 'knife'\)"):
        hasty.adapt_many(hard[1:])
    strict = IndependentLearner(tol=1e-300, max_iter=3, **ALONE)
    with pytest.warns(ConvergenceWarning, match=r"tasks \('spoon', 'fork', 'knife'\)"):
        strict.fit(hard)
    IndependentLearner(**ALONE).fit(hard).adapt_many(
        hard
    )  # no warning, which would be an error here


@pytest.mark.parametrize("kind", [UnconditionalLearner, ConditionalLearner])
def test_convergence_warnings_of_a_fit_name_the_tasks_it_adapts(hard, kind):
    learner = kind(solver=ProjectedSGD(0.0), max_iter=1, **HARD)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(hard)
    messages = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert any("('spoon', 'fork', 'knife')" in message for message in messages)


def test_predict_serves_the_tasks_of_fit(clusters):
    learner = ConditionalLearner(solver=ProjectedSGD(0.3), fit_intercept=False).fit(clusters)
    groups = np.repeat(clusters.labels, clusters.sizes)
    weights = learner.adapt_many(clusters).weights_
    expected = np.einsum("ij,ij->i", clusters.X, np.repeat(weights, clusters.sizes, axis=0))
    np.testing.assert_allclose(learner.predict(clusters.X, groups=groups), expected)


def test_score_is_r2_on_rows_not_adapted_on(clusters):
    learner = ConditionalLearner(solver=ProjectedSGD(0.3), fit_intercept=False).fit(clusters)
    support, query = clusters.support_query(0.5, random_state=0)
    weights = learner.adapt_many(support).weights_
    prediction = np.einsum("ij,ij->i", query.X, np.repeat(weights, query.sizes, axis=0))
    residual = ((query.y - prediction) ** 2).sum()
    expected = 1 - residual / ((query.y - query.y.mean()) ** 2).sum()
    assert learner.score(clusters) == pytest.approx(expected)
    errors = learner.task_errors(support, query)
    assert errors.shape == (40,)
    assert np.average(errors) == pytest.approx(np.abs(query.y - prediction).mean())


def test_conditioning_helps_where_it_should():
    """On clusters with orthogonal supports: conditional, then unconditional, then θ = I, on new
    tasks.
    """
    tasks = make_clusters(260, n_clusters=4, n_rows=80, random_state=0)
    train, test = tasks[:200], tasks[200:]
    options = {"solver": ProjectedSGD(step_sizes=(10.0, 100.0))}
    errors = {
        kind.__name__: kind(**kw).fit(train).task_errors(test).mean()
        for kind, kw in [
            (IndependentLearner, {}),
            (UnconditionalLearner, options),
            (ConditionalLearner, options),
        ]
    }
    assert (
        errors["ConditionalLearner"] < errors["UnconditionalLearner"] < errors["IndependentLearner"]
    )
