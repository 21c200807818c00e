"""Environments: what they say about themselves against what they draw."""

import numpy as np
import pytest

from environments import random_environment
from studies.theory.environment import Environment
from studies.theory.risks import excess_risk, task_excess, task_risk


@pytest.mark.parametrize("seed", range(3))
def test_moments_are_those_of_the_sample(seed):
    environment = random_environment(seed)
    sample = environment.sample(20_000, 2, seed)
    for j in range(environment.m):
        members = np.flatnonzero(sample.clusters == j)
        w = sample.weights[members]
        X = sample.tasks[members].X
        for drawn, exact in ((w, environment.W[j]), (X, environment.C[j])):
            products = np.einsum("ni,nj->nij", drawn, drawn)
            error = products.std(axis=0) / np.sqrt(len(drawn))
            assert (np.abs(products.mean(axis=0) - exact) <= 6 * error + 1e-9).all()
    assert np.linalg.norm(sample.tasks.X, axis=1).max() <= environment.R * (1 + 1e-12)


def test_example_has_side_information_in_disjoint_balls():
    environment = Environment.example(4, d=8, random_state=2)
    sample = environment.sample(500, 2, 0)
    distance = np.abs(sample.tasks.side_info - environment.centers[sample.clusters])
    assert distance.max() <= 0.5
    assert (environment.cluster_of(sample.tasks.side_info) == sample.clusters).all()
    features = np.array([environment.indicator(s) for s in sample.tasks.side_info])
    np.testing.assert_array_equal(features, np.eye(4)[sample.clusters])


@pytest.mark.parametrize("loss", ["absolute", "huber", "pinball"])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_task_risk_is_the_mean_over_fresh_rows(loss, noise):
    from tailored.losses import get_loss

    environment = Environment.clusters(2, d=5, rank=2, noise=noise, random_state=3)
    sample = environment.sample(2, 100_000, 4)
    weights = np.random.default_rng(5).standard_normal((2, 6))  # with an intercept
    exact = task_risk(environment, sample, weights, loss)
    for t, task in enumerate(sample.tasks):
        losses = get_loss(loss).value(task.X @ weights[t, :5] + weights[t, 5], task.y)
        assert abs(losses.mean() - exact[t]) <= 5 * losses.std() / np.sqrt(len(losses)) + 1e-4


def test_true_weights_have_no_excess_and_others_some():
    environment = random_environment(6)
    sample = environment.sample(20, 2, 0)
    assert np.abs(task_excess(environment, sample, sample.weights)).max() < 1e-14
    assert (task_excess(environment, sample, sample.weights + 0.1) > 0).all()


def test_excess_risk_takes_learners_matrices_stacks_and_functions():
    from tailored import IndependentLearner

    environment = Environment.example(2, d=4, rank=1, norm=3.0)
    options = {"n": 10, "n_tasks": 40, "random_state": 0}
    train = environment.sample(3, 10, 1).tasks
    independent = excess_risk(
        environment, IndependentLearner(fit_intercept=False).fit(train), **options
    )
    identity = excess_risk(environment, np.eye(4), **options)
    np.testing.assert_allclose(independent.values, identity.values, atol=1e-6)
    oracle = excess_risk(environment, environment.oracle(10), **options)
    assert oracle.mean < identity.mean
    zero = excess_risk(environment, lambda tasks: np.zeros((len(tasks), 4)), **options)
    nothing = excess_risk(environment, np.zeros((4, 4)), **options)
    np.testing.assert_allclose(zero.values, nothing.values, atol=1e-12)
