"""Standard errors of classes and counts against the information of a quadrature likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from tailored import EmpiricalBayesClassifier

pytestmark = pytest.mark.usefixtures("no_curves")


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
