"""Quantities estimated from tasks: against the truth, and with their origin."""

import numpy as np
import pytest
from scipy import sparse

from studies.theory.bounds import unconditional_optimum
from studies.theory.environment import Environment
from tailored import TaskSet
from tailored.paper.theory import check_range, estimate_quantities, power


@pytest.fixture(scope="module")
def environment():
    return Environment.example(3, d=6, rank=2, norm=2.0, spread=0.5, random_state=0)


@pytest.fixture(scope="module")
def sample(environment):
    return environment.sample(3000, 20, 1)


def test_known_weights_and_contexts_give_the_true_moments(environment, sample):
    found = estimate_quantities(sample.tasks, weights=sample.weights, contexts=sample.clusters)
    np.testing.assert_allclose(found.W, environment.W, atol=0.1 * np.abs(environment.W).max())
    np.testing.assert_allclose(found.C, environment.C, atol=0.02)
    assert found.R <= environment.R * (1 + 1e-12)
    assert (found.n, found.T, found.L, found.K) == (20.0, 3000, 1.0, 1.0)


def test_distance_from_the_moments_by_hand(sample):
    """θ = √n / (2L) · C^-½ (C^½ W C^½)^½ C^-½ at ridge weights and the moments of the rows."""
    tasks = sample.tasks[:50]
    weights = []
    for task in tasks:
        gram = task.X.T @ task.X
        weights.append(
            np.linalg.solve(gram + 1e-3 * np.trace(gram) / 6 * np.eye(6), task.X.T @ task.y)
        )
    W, C = np.transpose(weights) @ weights / 50, tasks.X.T @ tasks.X / len(tasks.y)
    found = estimate_quantities(tasks)
    np.testing.assert_allclose(found.W[0], W, atol=1e-10)
    np.testing.assert_allclose(found.C[0], C, atol=1e-12)

    def root(A, power):
        values, vectors = np.linalg.eigh(A)
        return (vectors * values**power) @ vectors.T

    middle = root(root(C, 0.5) @ W @ root(C, 0.5), 0.5)
    theta = np.sqrt(found.n) / 2 * root(C, -0.5) @ middle @ root(C, -0.5)
    np.testing.assert_allclose(found.distance, np.linalg.norm(theta - np.eye(6)), rtol=1e-6)


def test_ragged_sparse_and_empty_tasks():
    rng = np.random.default_rng(0)
    parts = [(rng.standard_normal((n, 3)), rng.standard_normal(n)) for n in (1, 4, 0, 7)]
    dense = estimate_quantities(TaskSet.from_tasks(parts))
    thin = estimate_quantities(TaskSet.from_tasks([(sparse.csr_array(X), y) for X, y in parts]))
    assert (dense.n, dense.T) == (4.0, 3)
    np.testing.assert_allclose(dense.W, thin.W)
    np.testing.assert_allclose(dense.C, thin.C)
    # Eq. 14: each task counts once, whatever its number of rows, and contexts do not
    # change the mean.
    C = np.mean([X.T @ X / len(X) for X, _ in parts if len(X)], axis=0)
    np.testing.assert_allclose(dense.C[0], C)
    two = estimate_quantities(TaskSet.from_tasks(parts), contexts=[0, 1, 1, 1])
    np.testing.assert_allclose(two.mean(two.C), C)


def test_weights_outside_the_inputs_are_projected():
    X = np.array([[1.0, 0.0], [2.0, 0.0]])
    tasks = TaskSet.from_tasks([(X, np.ones(2))])
    found = estimate_quantities(tasks, weights=[[3.0, 7.0]])
    np.testing.assert_allclose(found.W, [np.diag([9.0, 0.0])])
    assert np.isfinite(unconditional_optimum(found).value)


def test_projected_weights_predict_the_same_and_lie_in_the_range_of_the_inputs():
    """Lemma 7: C†Cw predicts as w does.  Cor. 8: then Ran(W(s)) ⊆ Ran(C(s))."""
    rng = np.random.default_rng(1)
    moments, means = np.zeros((2, 5, 5)), np.zeros((2, 5, 5))
    for _ in range(3):  # inputs of three tasks span three of five directions, weights all of them
        X = rng.standard_normal((4, 1)) @ rng.standard_normal((1, 5))
        w, C = rng.standard_normal(5), X.T @ X / len(X)
        projected = power(C, 0.0) @ w
        np.testing.assert_allclose(X @ projected, X @ w, atol=1e-12)
        assert np.linalg.norm(projected - w) > 0.1
        moments += C / 3
        means += np.array([np.outer(projected, projected), np.outer(w, w)]) / 3
    check_range(means[0], moments[0], ("W", "C"), "Cor. 8")
    with pytest.raises(ValueError, match="Ran"):
        check_range(means[1], moments[1], ("W", "C"), "Cor. 8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weights": np.zeros((2, 6))}, "weights: expected an array of shape"),
        ({"weights": np.full((3000, 6), np.nan)}, "weights contains NaN"),
        ({"contexts": [1, 2]}, "contexts: expected an array of shape"),
    ],
)
def test_bad_input(arguments, words, sample):
    with pytest.raises(ValueError, match=words):
        estimate_quantities(sample.tasks, **arguments)


def test_tasks_without_rows_cannot_be_bounded():
    tasks = TaskSet.from_tasks([(np.empty((0, 2)), np.empty(0))])
    with pytest.raises(TypeError, match="tasks must be a TaskSet; got ndarray"):
        estimate_quantities(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="no task has rows"):
        estimate_quantities(tasks)
