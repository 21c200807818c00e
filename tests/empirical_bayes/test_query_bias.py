"""The shift of the prior mean that is fitted to query rows: its minimum, its derivatives, and when it pays."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from tailored.empirical_bayes.query_bias import PENALTIES, SMOOTHING, QueryBias, smoothed

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.baselines import MixedModel
from tailored.losses import Absolute, EpsilonInsensitive, Pinball, Squared


def query_bias(loss, seed=0, N=80):
    rng = np.random.default_rng(seed)
    directions, psi = rng.normal(size=(N, 3)), rng.normal(size=(N, 2))
    features = np.column_stack([np.ones(N), psi])
    target = rng.exponential(size=N) + directions[:, 0] * psi[:, 1]
    return QueryBias(directions, features, np.zeros(N), target, np.full(N, 1.0 / N), loss)


LOSSES = (Absolute(), Squared(), Pinball(0.9), EpsilonInsensitive(0.3))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_second_derivatives_are_those_of_the_gradient(loss):
    problem = query_bias(loss)
    rng = np.random.default_rng(1)
    expected, step = np.zeros((9, 9)), 1e-6
    B = 0.1 * rng.normal(size=(3, 3))
    # nothing changes its branch within the step
    slopes = [
        smoothed(problem._box, problem.predict(B + s), SMOOTHING * problem.residual)[1] for s in (0, 1e-4)
    ]
    assert np.abs(slopes[0] - slopes[1]).max() < 0.1
    found = problem.second_derivatives(B, 0.3)
    for j in range(9):
        moved = np.zeros(9)
        moved[j] = step
        ends = [problem.value_and_gradient(B.ravel() + sign * moved, 0.3)[1] for sign in (1, -1)]
        expected[:, j] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("penalty", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_last_solve_is_the_minimum(loss, penalty):
    problem = query_bias(loss)
    B = problem.fit(penalty)
    value, gradient = problem.value_and_gradient(B.ravel(), penalty)
    assert np.abs(gradient).max() < 1e-9
    options = {"maxiter": 20000, "maxfun": 100000, "ftol": 1e-16, "gtol": 1e-11}
    patient = minimize(
        problem.value_and_gradient, np.zeros(9), args=(penalty,), jac=True, method="L-BFGS-B", options=options
    )
    assert value <= patient.fun + 1e-13
    # from elsewhere, and in other units, it is the same
    np.testing.assert_allclose(problem.fit(penalty, np.ones((3, 3))), B, atol=1e-8)


def test_where_it_ends_does_not_depend_on_the_units():
    problem, penalty = query_bias(Absolute(), N=150), 1e-5
    unit = 1e4
    other = replace(
        problem,
        directions=unit * problem.directions,
        prediction=unit * problem.prediction,
        target=unit * problem.target,
        unit=unit,
    )
    found = [p.fit(penalty) for p in (problem, other)]
    np.testing.assert_allclose(found[1], found[0], atol=1e-8)


def test_a_large_problem_is_left_to_lbfgs(monkeypatch):
    problem = query_bias(Absolute())
    expected = problem.fit(0.1)
    monkeypatch.setattr("tailored.empirical_bayes.query_bias.FEW_ENTRIES", 8)
    np.testing.assert_array_equal(problem.fit(0.1, exact=True), expected)
    monkeypatch.setattr("tailored.empirical_bayes.query_bias.LARGEST_NEWTON", 8)
    for exact in (False, True):
        found = problem.fit(0.1, exact=exact)
        assert (found != expected).any()
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_skewed_noise_asks_for_the_median():
    """The conditional bias: the absolute loss wants the median where the Gaussian model gives the mean."""
    rng = np.random.default_rng(9)
    entries = []
    for _ in range(300):
        y = rng.normal() + rng.exponential(size=8) ** 2
        entries.append((np.ones((8, 1)), y))
    tasks = TaskSet.from_tasks(entries)
    support, query = tasks.support_query(4, random_state=0)
    learner = EmpiricalBayesLearner(loss="absolute").fit(tasks[:200])
    assert learner.bias_penalty_ in PENALTIES
    error = learner.task_errors(support[200:], query[200:]).mean()
    assert (
        error
        < 0.95
        * MixedModel(fit_intercept=False).fit(tasks[:200]).task_errors(support[200:], query[200:]).mean()
    )
    prior = learner.adapt().predict(np.ones((1, 1)))[0]
    assert prior < 1.4  # the mean of the targets is 2, their median about 1


@pytest.mark.parametrize(
    ("loss", "covariance", "is_tried"),
    [("squared", None, True), ("squared", "full", False), ("absolute", "full", True)],
)
def test_means_of_a_given_model_are_not_shifted(loss, covariance, is_tried, no_curves):
    """A formula, or its covariance, is a model: its predictions are those of lme4."""
    x = np.tile(np.arange(10.0), 20)
    y = 0.1 * (x - 4.0) ** 2 + np.random.default_rng(2).normal(size=200)
    options = {"loss": loss, "covariance": covariance, "varying": [0]}
    learner = EmpiricalBayesLearner(**options).fit(TaskSet(x[:, None], y, np.repeat(np.arange(20), 10)))
    kinds = {result["kind"] for result in learner.search_results_}
    assert ("conditional bias" in kinds) == is_tried
