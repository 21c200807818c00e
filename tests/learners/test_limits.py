"""The learners: limits that must hold exactly, and symmetries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner_samples import random_tasks
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.paper import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

# ---------------------------------------------------------------- limits


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), step=st.floats(1e-3, 10.0))
def test_conditional_with_constant_features_and_frozen_C_is_unconditional(seed, step):
    """φ ≡ 1 turns H into C: with C frozen at 0 and H starting where C would, both run the same
    algorithm.
    """
    tasks = random_tasks(seed)
    conditional = ConditionalLearner(
        lambda task: np.ones(1),
        solver=ProjectedSGD((0.0, step)),
        initial_representation=0.0,
        rank=None,
        fit_intercept=False,
    ).fit(tasks)
    unconditional = UnconditionalLearner(
        solver=ProjectedSGD(step), initial_representation=0.0, fit_intercept=False
    ).fit(tasks)
    for task in tasks:
        np.testing.assert_allclose(
            conditional.representation(task.X, task.y),
            unconditional.representation(task.X, task.y),
            atol=1e-7 * max(1.0, step),  # large steps amplify rounding errors
        )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_nothing_moves_is_independent(seed):
    tasks = random_tasks(seed)
    still = ConditionalLearner(solver=ProjectedSGD(0.0), fit_intercept=False).fit(tasks)
    independent = IndependentLearner(fit_intercept=False).fit(tasks)
    np.testing.assert_allclose(
        still.adapt_many(tasks).weights_, independent.adapt_many(tasks).weights_, atol=1e-10
    )


def test_factored_at_full_rank_is_exact(clusters):
    exact = ConditionalLearner(rank=None, solver=ProjectedSGD(0.3), fit_intercept=False).fit(
        clusters
    )
    factored = ConditionalLearner(rank=6 * 7, solver=ProjectedSGD(0.3), fit_intercept=False).fit(
        clusters
    )
    for task in list(clusters)[:5]:
        np.testing.assert_allclose(
            exact.representation(task.X, task.y), factored.representation(task.X, task.y), atol=1e-9
        )


# ---------------------------------------------------------------- symmetries


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_permuting_features_permutes_the_representation(seed):
    tasks = random_tasks(seed)
    order = np.random.default_rng(seed).permutation(tasks.n_features)
    moved = TaskSet(tasks.X[:, order], tasks.y, np.repeat(tasks.labels, tasks.sizes))
    a = ConditionalLearner(solver=ProjectedSGD(0.5), rank=None, fit_intercept=False).fit(tasks)
    b = ConditionalLearner(solver=ProjectedSGD(0.5), rank=None, fit_intercept=False).fit(moved)
    task = tasks[0]
    expected = a.representation(task.X, task.y)[np.ix_(order, order)]
    np.testing.assert_allclose(b.representation(task.X[:, order], task.y), expected, atol=1e-8)


def test_relabelling_tasks_changes_nothing(clusters):
    groups = np.repeat(clusters.labels, clusters.sizes)
    a = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False).fit(
        clusters.X, clusters.y, groups=groups
    )
    b = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False).fit(
        clusters.X, clusters.y, groups=[f"task {97 - g}" for g in groups]
    )
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.H_, b.H_)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), c=st.floats(0.1, 10.0))
def test_rescaling_y(seed, c):
    """|·| is homogeneous: y → c y with C₀ → c C₀ and step → c step gives τ → c τ and w → c w."""
    tasks = random_tasks(seed)
    groups = np.repeat(tasks.labels, tasks.sizes)
    a = UnconditionalLearner(solver=ProjectedSGD(0.5), fit_intercept=False).fit(tasks)
    b = UnconditionalLearner(
        solver=ProjectedSGD(0.5 * c), initial_representation=c, fit_intercept=False
    ).fit(tasks.X, c * tasks.y, groups=groups)
    np.testing.assert_allclose(b.conditioning_.C, c * a.conditioning_.C, rtol=1e-7, atol=1e-9 * c)
    scaled = TaskSet(tasks.X, c * tasks.y, groups)
    np.testing.assert_allclose(
        b.adapt_many(scaled).weights_, c * a.adapt_many(tasks).weights_, rtol=1e-6, atol=1e-7 * c
    )


def test_targets_whose_squares_underflow_are_predicted_as_almost_zero():
    rng = np.random.default_rng(0)
    usual, tiny, subnormal = (
        TaskSet.from_tasks([(np.zeros((4, 1)), size * rng.normal(size=4)) for _ in range(6)])
        for size in (1.0, 1e-155, 1e-320)
    )
    bayes = EmpiricalBayesLearner().fit(tiny, validation=tiny)
    paper = UnconditionalLearner(solver=ProjectedSGD(0.1)).fit(usual)
    for learner, tasks in ((bayes, tiny), (paper, subnormal)):
        assert np.abs(learner.adapt_many(tasks).weights_).max() < 1e-100
