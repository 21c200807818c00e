"""Means of the iterates."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from representations import dense_H
from streams import close
from tailored import ConditionalLearner, TaskSet, load
from tailored.paper import ProjectedSGD
from tailored.paper.algorithm_1 import BLOCK, ExactMean, StepSizes, Trajectory


def surrogate_steps(rng, d, k, n_steps, phis="fresh"):
    """Gradients of the paper's sign structure and features: few distinct ones, or a new one for
    every task.
    """
    few = rng.normal(size=(3, k))
    for t in range(n_steps):
        X, alpha = rng.normal(size=(5, d)), rng.uniform(-1, 1, size=5)
        if t % 4 == 1:
            X[:, 0] = 0.0
        phi = rng.normal(size=k) if phis == "fresh" else few[rng.integers(3)]
        yield ref.surrogate_gradient(X, alpha, 0.2), (np.zeros(k) if t == 6 else phi)


@pytest.mark.parametrize(("d", "k"), [(3, 14), (4, 2), (3, 1), (1, 5)])
@pytest.mark.parametrize("phis", ["fresh", "few"])
def test_exact_mean_is_the_mean_of_the_iterates(d, k, phis):
    """For every number of steps, around the size of a block and beyond it; computing it changes
    nothing.
    """
    rng = np.random.default_rng([d, k, len(phis)])
    C0 = np.diag(np.arange(1.0, d + 1))
    exact = Trajectory(StepSizes(0.1, 0.4), C0, k)
    mean, seldom = ExactMean(d, k), ExactMean(d, k)
    Hs, Cs = [], []
    for gradient, phi in surrogate_steps(rng, d, k, 2 * BLOCK + 5, phis):
        Hs.append(dense_H(exact))
        Cs.append(exact.C.copy())
        for one in (mean, seldom):
            one.add(exact)
        exact.step(gradient, phi)
        found = mean.average(exact)
        close(found.H, np.mean(Hs, axis=0), 1e-10)
        close(found.C, np.mean(Cs, axis=0), 1e-10)
    np.testing.assert_array_equal(seldom.average(exact).H, mean.average(exact).H)
    assert np.abs(Hs[-1]).max() > 1e-2


def test_the_mean_of_iterates_in_large_units_can_be_saved(tmp_path):
    """It is positive semidefinite, even if the steps are much larger than their sum."""
    rng = np.random.default_rng(1)
    tasks = []
    for _ in range(6):
        X = rng.normal(size=(4, 1)) * 1e3
        tasks.append((X, 5.0 + X[:, 0] * rng.normal() + rng.normal(size=4)))
    learner = ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=None).fit(
        TaskSet.from_tasks(tasks)
    )
    H = learner.H_
    assert np.linalg.eigvalsh(H)[0] >= -1e-7 * np.abs(H).max()
    learner.save(tmp_path / "model")
    X, y = tasks[0]
    np.testing.assert_array_equal(
        load(tmp_path / "model").adapt(X, y).coef_, learner.adapt(X, y).coef_
    )
