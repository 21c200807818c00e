"""The mean of exact iterates is positive semidefinite, however much larger the steps were than what is left of them."""

import numpy as np

from tailored import ConditionalLearner, TaskSet, load
from tailored.representation.conditioning import in_cone
from tailored.solvers import ProjectedSGD


def test_the_mean_of_iterates_in_large_units_can_be_saved(tmp_path):
    rng = np.random.default_rng(1)
    tasks = []
    for _ in range(6):
        X = rng.normal(size=(4, 1)) * 1e3
        tasks.append((X, 5.0 + X[:, 0] * rng.normal() + rng.normal(size=4)))
    learner = ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=None).fit(TaskSet.from_tasks(tasks))
    H = learner.conditioning_.dense_H()
    assert np.linalg.eigvalsh(H)[0] >= -1e-7 * np.abs(H).max()
    learner.save(tmp_path / "model")
    X, y = tasks[0]
    np.testing.assert_array_equal(load(tmp_path / "model").adapt(X, y).coef_, learner.adapt(X, y).coef_)


def test_a_matrix_in_the_cone_stays_itself_and_others_are_projected():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 3))
    inside = A @ A.T
    assert in_cone(inside) is inside
    outside = inside - np.diag([0.0, 1e-3, 0.0, 0.0, 0.0])
    projected = in_cone(outside)
    values, vectors = np.linalg.eigh(outside)
    np.testing.assert_allclose(projected, (vectors * np.maximum(values, 0.0)) @ vectors.T, atol=1e-12)
    assert not in_cone(np.zeros((2, 2))).any()
    assert in_cone(np.zeros((0, 0))).shape == (0, 0)
