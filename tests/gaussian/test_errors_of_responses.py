"""Standard errors of classes and counts against the information of a quadrature likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, gammaln

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner

pytestmark = pytest.mark.usefixtures("no_curves")

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def log_likelihood(parameters, X, y, starts, is_count):
    """Return the log likelihood of a random-intercept model with (slope, intercept, log standard
    deviation).
    """
    f = (X[:, 0] * parameters[0] + parameters[1])[:, None] + np.exp(parameters[2]) * NODES
    each = (
        y[:, None] * f - np.exp(f) - gammaln(y[:, None] + 1)
        if is_count
        else np.log(expit((2 * y[:, None] - 1) * f))
    )
    return np.log(np.exp(np.add.reduceat(each, starts)) @ (WEIGHTS / WEIGHTS.sum())).sum()


@pytest.mark.parametrize("is_count", [False, True])
def test_standard_errors_are_those_of_all_parameters(is_count):
    rng = np.random.default_rng(3)
    groups = np.repeat(np.arange(60), 3)
    X = rng.normal(size=(180, 1))
    f = 0.6 * X[:, 0] + 0.3 + (1.5 if not is_count else 0.6) * rng.normal(size=60)[groups]
    y = rng.poisson(np.exp(f)) if is_count else (rng.random(180) < expit(f)).astype(int)

    def value(parameters):
        return -log_likelihood(parameters, X, y, np.arange(0, 180, 3), is_count)

    best = minimize(value, [0.5, 0.0, 0.0], options={"gtol": 1e-6}).x
    h, steps = 1e-3, 1e-3 * np.eye(3)
    pairs = [
        [
            value(best + i + j) - value(best + i - j) - value(best - i + j) + value(best - i - j)
            for j in steps
        ]
        for i in steps
    ]
    expected = np.sqrt(np.diag(np.linalg.inv(np.array(pairs) / (4 * h * h))))[:2]
    options = {"varying": []}
    learner = (
        EmpiricalBayesLearner(loss="poisson", **options)
        if is_count
        else EmpiricalBayesClassifier(**options)
    )
    frame = learner.fit(X, y, groups=groups).summary().to_frame("effects")
    np.testing.assert_allclose(frame["std. error"], expected, rtol=0.02)


def test_standard_errors_of_separable_classes_are_those_of_the_information():
    """Scores are nearly zero there, and must not make the steps of the differences large."""
    rng = np.random.default_rng(8)
    x, groups = rng.normal(size=(200, 1)), np.repeat(np.arange(25), 8)
    learner = EmpiricalBayesClassifier(varying=[]).fit(x, (x[:, 0] > 0).astype(int), groups=groups)
    frame = learner.summary().to_frame("effects")
    X = np.hstack([x, np.ones((200, 1))])
    p = expit(X @ frame["fixed effect"].to_numpy())
    expected = np.sqrt(np.diag(np.linalg.inv((X * (p * (1 - p))[:, None]).T @ X)))
    np.testing.assert_allclose(frame["std. error"], expected, rtol=0.05)
