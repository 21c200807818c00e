"""The learners: adaptation, prediction, score."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
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


TASKS = make_clusters(30, n_clusters=1, n_rows=10, n_features=3, rank=2, random_state=0)
SUPPORT = TASKS[20:]


def test_coefficients_of_many_tasks_are_those_of_each():
    learner = EmpiricalBayesLearner().fit(TASKS[:20])
    adapted = learner.adapt_many(SUPPORT)
    np.testing.assert_array_equal(adapted.labels, SUPPORT.labels)
    joined = np.column_stack([adapted.coef_, adapted.intercept_])
    np.testing.assert_array_equal(np.asarray(adapted), joined)
    for t, task in enumerate(SUPPORT):
        model = learner.adapt(task.X, task.y)
        np.testing.assert_allclose(adapted.coef_[t], model.coef_, rtol=1e-9)
        assert adapted.intercept_[t] == pytest.approx(model.intercept_)
    alone = IndependentLearner(fit_intercept=False).fit(TASKS[:5]).adapt_many(SUPPORT)
    np.testing.assert_array_equal(alone.coef_, alone.weights_)
    np.testing.assert_array_equal(alone.intercept_, 0.0)
