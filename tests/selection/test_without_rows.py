"""The prior mean of tasks without rows, and the offset of losses that are not squared."""

from dataclasses import replace

import numpy as np
import pytest

import tailored
from bayes_samples import selected
from folds import few_folds
from tailored import TaskSet
from tailored.losses import Squared
from tailored.selection.data import Settings, TrainingData
from tailored.selection.steps.covariance import select_covariance
from tailored.selection.steps.without_rows import accept_mean_without_rows
from tailored.selection.structures import difference

SIZES = (2, 3, 6, 11)


def panel(seed, between=2.0, n_tasks=90, counts=False):
    """Between groups the slope is ``between``, and within groups it is 0.2; groups have different
    numbers of rows.
    """
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_tasks), np.resize(SIZES, n_tasks))
    level, within = rng.normal(0.0, 2.0, n_tasks)[groups], rng.normal(0.0, 0.7, len(groups))
    f = 1.0 + between * level + 0.2 * within + 0.3 * rng.normal(size=n_tasks)[groups]
    y = rng.poisson(np.exp(0.3 * f)) if counts else f + 0.5 * rng.normal(size=len(f))
    return TaskSet((level + within)[:, None], y.astype(float), groups)


@pytest.fixture(scope="module")
def fitted():
    return few_folds(5).fit(panel(0))


def test_delta_is_least_squares_with_the_same_weight_for_each_task(fitted):
    tasks, prior = panel(0), fitted.prior_
    assert prior.model.n_components == 1
    X, y = prior.scaling.dense(tasks.X), prior.scaling.targets(tasks.y)
    root = 1.0 / np.sqrt(np.repeat(tasks.sizes, tasks.sizes))
    right = root * (y - X @ prior.model.means[0])
    ratio = prior.without_rows / np.linalg.lstsq(root[:, None] * X, right)[0]
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-6)
    # The held-out tasks want nearly all of it.
    assert 0.5 < ratio[0] < 1.0


def test_the_fraction_of_delta_is_its_best_after_shrinkage():
    """Differences between tasks that are partly those of the training tasks: checked on one given
    validation set.
    """
    tasks = panel(0)
    data = TrainingData(tasks, None, 30, Settings(Squared(), True, 0, None))
    state = selected(data, [select_covariance, accept_mean_without_rows])
    (fit,), (prior,) = state.best.models, state.best.priors
    delta = difference(data, tasks[:60], fit)
    b, a = [], []
    for task in tasks[60:]:
        X, y = data.scaling.dense(task.X), data.scaling.targets(task.y)
        b.append(np.mean((y - X @ fit.means[0]) * (X @ delta)))
        a.append(np.mean((X @ delta) ** 2))
    error = np.std(b, ddof=1) / np.sqrt(30)
    expected = (1.0 - (error / np.mean(b)) ** 2) * np.mean(b) / np.mean(a)
    assert 0.2 < expected < 1.0
    assert state.without_rows == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(prior.without_rows, expected * delta, rtol=1e-8)


def test_a_difference_that_held_out_tasks_do_not_have_is_zero():
    first, second = panel(0)[:60], panel(1, between=-2.0)[60:]
    tasks = TaskSet(
        np.vstack([first.X, second.X]),
        np.append(first.y, second.y),
        np.repeat(np.arange(90), np.append(first.sizes, second.sizes)),
    )
    data = TrainingData(tasks, None, 30, Settings(Squared(), True, 0, None))
    state = selected(data, [select_covariance, accept_mean_without_rows])
    assert state.without_rows == 0.0
    assert all(prior.without_rows is None for prior in state.best.priors)


def test_delta_improves_predictions_without_rows_and_no_others(fitted, tmp_path):
    new, plain = panel(1), few_folds()
    new = TaskSet(new.X, new.y, 1000 + np.repeat(new.labels, new.sizes))
    vars(plain).update(vars(fitted))
    plain.prior_ = replace(fitted.prior_, without_rows=None)
    errors = [
        np.mean((each.predict_tasks(new)["prediction"] - new.y) ** 2) for each in (fitted, plain)
    ]
    assert errors[0] < 0.3 * errors[1]
    for n in (1, 2):
        support, query = new.support_query(n, random_state=0)
        one, other = (each.predict_tasks(query, support, coverage=0.9) for each in (fitted, plain))
        for name in ("prediction", "lower", "upper"):
            np.testing.assert_array_equal(one[name], other[name])
    X, y = new[0].X, new[0].y
    grown = fitted.adapt()
    np.testing.assert_allclose(
        grown.predict(X), fitted.predict_tasks(new)["prediction"][: len(y)], rtol=1e-12
    )
    grown.update(X[:1], y[:1])
    np.testing.assert_allclose(grown.predict(X), plain.adapt(X[:1], y[:1]).predict(X), rtol=1e-12)
    fitted.save(tmp_path / "model")
    again = tailored.load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict_tasks(new)["prediction"], fitted.predict_tasks(new)["prediction"]
    )


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"covariance": "full"}, {}),
        ({"loss": "poisson"}, {"counts": True}),
        ({}, {"between": 0.2}),  # one slope
    ],
)
def test_no_other_mean_of_a_given_model_of_counts_or_of_one_slope(options, data):
    assert few_folds(**options).fit(panel(0, **data)).prior_.without_rows is None


def skewed(seed, n_tasks=60, n_rows=12, symmetric=False):
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(n_tasks * n_rows, 1)), np.repeat(np.arange(n_tasks), n_rows)
    noise = rng.laplace(size=len(X)) if symmetric else 2.0 * rng.exponential(size=len(X))
    return TaskSet(X, X[:, 0] + rng.normal(size=n_tasks)[groups] + noise, groups)


def test_the_offset_turns_means_into_medians():
    learner = few_folds(loss="absolute").fit(skewed(0))
    prior = learner.prior_
    assert prior.offset == pytest.approx(
        2.0 * (np.log(2.0) - 1.0), abs=0.2
    )  # median minus mean of the noise
    new = skewed(1, n_tasks=300)
    new = TaskSet(new.X, new.y, 1000 + np.repeat(new.labels, new.sizes))
    support, query = new.support_query(8, random_state=0)
    found = learner.predict_tasks(query, support, coverage=0.8)
    learner.prior_ = replace(prior, offset=0.0)
    plain = learner.predict_tasks(query, support, coverage=0.8)
    errors = [np.abs(each["prediction"] - query.y).mean() for each in (found, plain)]
    assert errors[0] < 0.98 * errors[1]
    for name in ("lower", "upper", "std"):
        np.testing.assert_array_equal(found[name], plain[name])


def test_means_and_symmetric_noise_have_no_offset():
    assert few_folds().fit(skewed(0)).prior_.offset == 0.0
    assert few_folds(loss="absolute").fit(skewed(0, symmetric=True)).prior_.offset == 0.0
