"""Pinball losses of `EmpiricalBayesLearner`: predictions are calibrated quantiles."""

import numpy as np
import pytest

import tailored
from folds import few_folds
from tailored import ConditionalLearner, EmpiricalBayesLearner, TaskSet
from tailored.datasets import make_clusters
from tailored.losses import Pinball
from tailored.priors.intervals import Calibration

pytestmark = pytest.mark.usefixtures("no_curves_in_module")


def _tasks(n_tasks, seed, scale=1.0, shift=0.0):
    """Skewed noise whose level differs from task to task, tasks of different sizes."""
    rng = np.random.default_rng(seed)
    tasks = []
    for _ in range(n_tasks):
        n = int(rng.integers(10, 18))
        X = rng.normal(size=(n, 2))
        noise = np.exp(0.4 * rng.normal()) * rng.exponential(size=n)
        tasks.append(
            (X, shift + scale * (2.0 + X @ (1.0 + 0.5 * rng.normal(size=2)) + rng.normal() + noise))
        )
    return TaskSet.from_tasks(tasks)


def _quantiles(learner, query, support):
    return learner.predict_tasks(query, support, coverage=None)["prediction"]


TRAIN, NEW = _tasks(60, 0), _tasks(400, 1)


def fit_quantile(q, tasks=TRAIN, **options):
    return few_folds(loss=Pinball(q), **options).fit(tasks)


@pytest.fixture(scope="module")
def learned():
    return {q: fit_quantile(q) for q in (0.1, 0.9)}


@pytest.fixture(scope="module")
def plain():
    return few_folds(loss="absolute").fit(TRAIN)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_counted_quantiles_are_those_of_the_scores(q):
    rng = np.random.default_rng(0)
    scores, weights = np.sort(rng.normal(size=400)), np.full(400, 1.0 / 401)
    found = Calibration(np.array([2.0]), [scores], [weights], 1.0).quantile(7, q)
    assert found == pytest.approx(np.quantile(scores, q, method="hazen"))
    # the other direction: the quantile of what is turned around
    turned = Calibration(np.array([2.0]), [-scores[::-1]], [weights], 1.0).quantile(7, 1.0 - q)
    assert turned == pytest.approx(-found)


@pytest.mark.parametrize("n_rows", [0, 3, 8])
@pytest.mark.parametrize("q", [0.1, 0.9])
def test_that_share_of_the_targets_lies_below(learned, plain, q, n_rows):
    support, query = NEW.support_query(n_rows, random_state=0)
    predicted = _quantiles(learned[q], query, support)
    below = np.mean([np.mean(part) for part in np.split(query.y <= predicted, query.offsets[1:-1])])
    assert abs(below - q) < 0.035
    # no worse than the end of the 80 % interval, and much better than the model for the absolute
    # loss
    table = plain.predict_tasks(query, support, coverage=0.8)
    ways = (predicted, table["upper" if q > 0.5 else "lower"], table["prediction"])
    quantile, end, centre = (Pinball(q).value(way, query.y).mean() for way in ways)
    assert quantile < 1.005 * end
    assert quantile < 0.85 * centre


def test_quantiles_follow_the_units_of_the_targets(learned):
    moved = fit_quantile(0.9, _tasks(60, 0, 250.0, -1e5))
    task = NEW[1]
    expected = learned[0.9].adapt(task.X[:5], task.y[:5]).predict(task.X)
    found = moved.adapt(task.X[:5], -1e5 + 250.0 * task.y[:5]).predict(task.X)
    np.testing.assert_allclose((found + 1e5) / 250.0, expected, atol=1e-6)


def test_calibrating_anew_moves_the_quantiles(learned):
    """Tasks with three times the noise: more is added, and for seen tasks as much as if they came
    again.
    """
    learner = fit_quantile(0.9)
    noisy = TaskSet.from_tasks(
        [(t.X, 3.0 * (t.y - t.X @ [1.0, 1.0] - 3.0) + t.X @ [1.0, 1.0] + 3.0) for t in NEW[:80]]
    )
    learner.calibrate_intervals(noisy)
    X, seen = NEW[0].X, TRAIN[3]
    assert np.mean(learner.adapt().predict(X) - learned[0.9].adapt().predict(X)) > 2.0
    again = learner.adapt(seen.X, seen.y).predict(X)
    np.testing.assert_allclose(learner.predict(X, groups=[3] * len(X)), again)


def test_a_single_task_has_no_quantiles():
    alone = EmpiricalBayesLearner(loss=Pinball(0.9))
    with pytest.raises(ValueError, match=r"loss: quantiles are calibrated .* at least two tasks"):
        alone.fit(TRAIN[:1])
    assert not hasattr(alone, "prior_")


def test_other_learners_fit_the_pinball_loss_inside_the_task():
    """No calibration there: an unpenalised fit has that share of its own rows below."""
    rng = np.random.default_rng(0)
    X = np.ones((200, 1))
    y = rng.normal(size=200)
    model = tailored.TaskRegressor(1e4 * np.eye(1), loss=Pinball(0.9)).fit(X, y)
    assert np.mean(y <= model.predict(X) + 1e-6) == pytest.approx(0.9, abs=0.011)
    assert ConditionalLearner(loss=Pinball(0.9)).fit(TRAIN[:5]).prior_.quantile is None


def test_too_few_tasks_for_a_quantile_are_said(few_steps):
    tasks = make_clusters(6, n_clusters=1, n_rows=8, n_features=2, rank=1, random_state=0)
    with pytest.warns(UserWarning, match=r"loss: 6 tasks are too few to calibrate 99 % quantiles"):
        EmpiricalBayesLearner(loss=Pinball(0.99)).fit(tasks)
