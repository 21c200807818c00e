"""The methods the paper argues against or builds on: each does what its equation says."""

import numpy as np
import pytest
from sklearn.base import clone

from studies.earlier_methods import (
    EARLIER_METHODS,
    ConditionalBiasLearner,
    MultiTaskFeatureLearner,
    TraceConstrainedLearner,
    UnconditionalBiasLearner,
)
from studies.earlier_methods.trace_constrained import project_trace_ball
from studies.theory.environment import Environment
from tailored import TaskSet
from tailored.losses import get_loss
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

QUICK = {
    TraceConstrainedLearner: {"step_size": [0.01, 1.0], "regularization": [0.01, 0.1]},
    UnconditionalBiasLearner: {"step_size": [0.1, 1.0], "regularization": [0.01, 0.1]},
    ConditionalBiasLearner: {"step_size": [0.1, 1.0], "regularization": [0.01, 0.1]},
    MultiTaskFeatureLearner: {"regularization": [0.01, 0.1], "n_rounds": 5},
}


@pytest.fixture(scope="module")
def environment():
    return Environment.clusters(2, d=5, rank=1, norm=3.0, side_info="center", random_state=0)


@pytest.fixture(scope="module")
def tasks(environment):
    return environment.sample(40, 10, 1).tasks


def around_a_mean(n_tasks, seed, spread=0.1):
    """Tasks whose weights are close to one of two vectors; the side information says which, as
    ±1.
    """
    rng = np.random.default_rng(seed)
    means = 2 * np.random.default_rng(0).standard_normal((2, 4))
    parts = []
    for _ in range(n_tasks):
        which = rng.integers(2)
        X = rng.standard_normal((6, 4)) / 2
        w = means[which] + spread * rng.standard_normal(4)
        parts.append((X, X @ w + 0.05 * rng.standard_normal(6), [2.0 * which - 1.0]))
    return TaskSet.from_tasks(parts), means


# --- what all of them share


@pytest.mark.parametrize("method", EARLIER_METHODS.values(), ids=EARLIER_METHODS)
def test_earlier_methods_fit_choose_and_adapt(method, environment, tasks):
    learner = method(**QUICK[method]).fit(tasks)
    errors = [result["error"] for result in learner.search_results_]
    assert len(errors) == np.prod([len(v) for v in QUICK[method].values() if isinstance(v, list)])
    assert learner.best_params_.items() <= learner.search_results_[int(np.argmin(errors))].items()
    task = environment.sample(1, 10, 2).tasks[0]
    model = learner.adapt(task.X, task.y, side_info=task.side_info)
    assert model.coef_.shape == (5,)
    assert model.dual_gap_ <= 1e-6
    theta = learner.representation(task.X, task.y, side_info=task.side_info)
    assert np.linalg.eigvalsh(theta)[0] >= -1e-9
    assert learner.predict(tasks.X[:3], groups=np.full(3, tasks.labels[0])).shape == (3,)
    again = clone(learner).fit(tasks)
    np.testing.assert_array_equal(again.task_weights_, learner.task_weights_)


# --- trace-constrained


@pytest.mark.parametrize("radius", [0.1, 1.0, 100.0])
def test_projection_on_the_trace_ball_is_the_nearest_point(radius):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((4, 4))
    matrix = F + F.T
    point = project_trace_ball(matrix, radius)
    assert np.trace(point) <= radius * (1 + 1e-12)
    assert np.linalg.eigvalsh(point)[0] >= -1e-12
    # <matrix - point, other - point> <= 0 for every other point characterises the projection
    for _ in range(300):
        G = rng.standard_normal((4, rng.integers(1, 5)))
        other = radius * rng.random() * G @ G.T / np.trace(G @ G.T)
        assert np.sum((matrix - point) * (other - point)) <= 1e-10


def test_trace_constrained_follows_its_equations(tasks):
    """The algorithm as the earlier papers write it, with θ, λ and a pseudo-inverse.

    A small step: the pseudo-inverse only sees the range of θ, and agrees while θ keeps its rank.
    """
    step, lam, d = 0.03, 0.05, 5
    theta, total = np.eye(d) / d, np.zeros((d, d))
    few = tasks[:8]
    # In the order in which a learner visits them, whichever is given.
    for task in few.in_label_order():
        total += theta / len(few)
        rows = Rows(task.X, task.y, np.array([0, len(task.y)]))
        w = WithinTask(get_loss("absolute"), tol=1e-12).solve(rows, theta[None] / lam).coef[0]
        inverse = np.linalg.pinv(theta, rcond=1e-12, hermitian=True)
        gradient = -lam / 2 * np.outer(inverse @ w, inverse @ w)
        theta = project_trace_ball(theta - step * gradient, 1.0)
    learner = TraceConstrainedLearner(
        step_size=step, regularization=lam, tol=1e-12, fit_intercept=False
    ).fit(few)
    np.testing.assert_allclose(lam * learner.conditioning_.C, total, atol=1e-5)
    assert np.linalg.norm(total - np.eye(d) / d) > 0.05
    assert lam * np.trace(learner.conditioning_.C) <= 1 + 1e-9


# --- biased regularisation


def test_unconditional_bias_finds_a_shared_mean():
    tasks, means = around_a_mean(150, seed=1)
    first = tasks[np.flatnonzero(tasks.side_info[:, 0] < 0)]
    learner = UnconditionalBiasLearner(step_size=1.0, regularization=0.3, fit_intercept=False).fit(
        first
    )
    np.testing.assert_allclose(learner.conditioning_.C, np.eye(4) / 0.3)
    assert np.linalg.norm(learner.prior_.constant - means[0]) < 0.35 * np.linalg.norm(means[0])


def test_conditional_bias_beats_the_unconditional_one_on_two_means():
    train, _ = around_a_mean(150, seed=2)
    test, _ = around_a_mean(60, seed=3)
    options = {"step_size": 1.0, "regularization": 0.3}
    both = [
        ConditionalBiasLearner("vector", **{"fit_intercept": False, **options}),
        UnconditionalBiasLearner(**{"fit_intercept": False, **options}),
    ]
    errors = [learner.fit(train).task_errors(test, n_support=2).mean() for learner in both]
    assert errors[0] < 0.6 * errors[1]


# --- multi-task feature learning


def test_multi_task_minimum_is_trace_norm_regularisation(tasks):
    """At the optimum over θ, 1/T Σ wᵀθ†w = ‖W‖²_* / T."""
    lam = 0.05
    learner = MultiTaskFeatureLearner(
        regularization=lam, perturbation=1e-8, n_rounds=200, tol=1e-10, fit_intercept=False
    ).fit(tasks)
    W = learner.task_weights_
    residuals = [np.abs(task.X @ w - task.y).mean() for task, w in zip(tasks, W, strict=True)]
    trace_norm = np.linalg.svd(W, compute_uv=False).sum()
    value = np.mean(residuals) + lam / 2 * trace_norm**2 / len(tasks)
    assert learner.objective_[-1] == pytest.approx(value, rel=1e-3)
