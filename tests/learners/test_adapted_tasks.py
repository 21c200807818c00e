"""`adapt_many`: coefficients, predictions and models of many tasks."""

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet
from tailored.datasets import make_clusters
from tailored.losses import Pinball

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

TASKS = make_clusters(30, n_clusters=1, n_rows=10, n_features=3, rank=2, random_state=0)
SUPPORT, QUERY = TASKS[20:].support_query(6, random_state=0)


@pytest.fixture(scope="module", params=["absolute", "quantile"])
def learner(request):
    loss = Pinball(0.8) if request.param == "quantile" else "absolute"
    return EmpiricalBayesLearner(loss=loss).fit(TASKS[:20])


def test_many_tasks_are_each_task(learner):
    """Coefficients, predictions and intervals are those of `adapt`, whatever the order of the query's tasks."""
    adapted = learner.adapt_many(SUPPORT)
    assert len(adapted) == 10
    assert repr(adapted) == "AdaptedTasks(10 tasks)"
    np.testing.assert_array_equal(adapted.labels, SUPPORT.labels)
    np.testing.assert_array_equal(
        np.asarray(adapted), np.column_stack([adapted.coef_, adapted.intercept_])
    )
    turned = QUERY[[4, 1]]
    prediction, ends = adapted.predict(turned), adapted.predict_interval(turned, 0.8)
    start = 0
    for t in (4, 1):
        model, rows = (
            learner.adapt(SUPPORT[t].X, SUPPORT[t].y),
            slice(start, start + QUERY.sizes[t]),
        )
        start = rows.stop
        np.testing.assert_allclose(adapted.coef_[t], model.coef_, rtol=1e-9)
        assert adapted.intercept_[t] == pytest.approx(model.intercept_)
        np.testing.assert_allclose(prediction[rows], model.predict(QUERY[t].X), rtol=1e-8)
        np.testing.assert_allclose(ends[rows], model.predict_interval(QUERY[t].X, 0.8), rtol=1e-7)
        again = adapted.model(SUPPORT.labels[t])
        np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-12)
        assert np.isfinite(again.update(QUERY[t].X, QUERY[t].y).coef_).all()


def test_what_is_not_an_adapted_task_is_refused(learner):
    adapted = learner.adapt_many(SUPPORT)
    with pytest.raises(ValueError, match="query: task 3 is not one of the adapted tasks"):
        adapted.predict(TASKS[3:4])
    with pytest.raises(TypeError, match="query: expected a TaskSet, got ndarray"):
        adapted.predict(QUERY.X)
    with pytest.raises(ValueError, match="query: expected 3 columns, got 2"):
        adapted.predict(TaskSet(QUERY.X[:, :2], QUERY.y, np.repeat(QUERY.labels, QUERY.sizes)))
    with pytest.raises(ValueError, match="coverage"):
        adapted.predict_interval(QUERY, 90)
    alone = IndependentLearner(fit_intercept=False).fit(TASKS[:5]).adapt_many(SUPPORT)
    np.testing.assert_array_equal(alone.intercept_, 0.0)
    with pytest.raises(ValueError, match="predict_interval: the learner has no calibration"):
        alone.predict_interval(QUERY)
