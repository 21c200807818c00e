"""`adapt_many`: coefficients of many tasks."""

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, IndependentLearner
from tailored.datasets import make_clusters

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

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
