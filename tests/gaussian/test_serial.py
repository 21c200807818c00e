"""Noise that is correlated in time, against dense Gaussian vectors."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.serial import SerialNoise
from tailored.tasks.rows import Scaling

pytestmark = pytest.mark.usefixtures("no_curves_in_module")


def panel(seed, n_tasks=60, n_rows=9, serial=1.0):
    """Return rows in random order at irregular times; the noise has a white part and one with
    correlation exp(−|Δt| / 2).
    """
    rng = np.random.default_rng(seed)
    parts = []
    for g in range(n_tasks):
        t = np.cumsum(rng.choice([0.0, 0.5, 1.0, 2.0], size=n_rows))
        K = np.exp(-np.abs(t[:, None] - t) / 2.0)
        noise = serial * rng.multivariate_normal(np.zeros(n_rows), K) + 0.5 * rng.normal(
            size=n_rows
        )
        x = rng.normal(size=n_rows)
        y = 3.0 + rng.normal() + x * (1.0 + 0.5 * rng.normal()) + noise
        parts.append(pd.DataFrame({"g": 1000 * seed + g, "t": t, "x": x, "y": y}))
    return pd.concat(parts).sample(frac=1.0, random_state=seed).reset_index(drop=True)


def fit(frame, **options):
    return few_folds(**options).fit(TaskSet.from_frame(frame, task="g", target="y", time="t"))


def covariance(times, noise, weights=1.0):
    correlation = np.exp(-np.abs(times[:, None] - times) / noise.length)
    return np.eye(len(times)) / weights + noise.share * correlation


@pytest.mark.parametrize("weight", [None, "w"])
def test_evidence_of_whitened_rows_is_that_of_the_targets(weight):
    frame = panel(0, n_tasks=7)
    frame["w"] = np.random.default_rng(1).uniform(0.2, 3.0, len(frame))
    features = {"features": ["t", "x"], "sample_weight": weight}
    tasks = TaskSet.from_frame(frame, task="g", target="y", **features)
    response, scaling = SerialNoise(0, 1.7, 0.8), Scaling.of(tasks, True, centre=True)
    model = Mixture(np.ones(1), np.array([[0.1, 0.5, -0.2]]), np.diag([0.1, 0.3, 0.7])[None], 0.4)
    found = response.statistics(tasks, scaling).posterior(model).log_evidence
    X, y = scaling.dense(tasks.X), scaling.targets(tasks.y)
    weights = np.ones(len(y)) if weight is None else tasks.sample_weight
    for t in range(len(tasks)):
        at = slice(tasks.offsets[t], tasks.offsets[t + 1])
        R = covariance(tasks.X[at, 0], response, weights[at])
        V = X[at] @ model.covariances[0] @ X[at].T + 0.4 * R
        density = multivariate_normal(X[at] @ model.means[0], V).logpdf(y[at])
        # As without times, a weighted density omits the powers of the weights.
        assert found[t] == pytest.approx(density - 0.5 * np.log(weights[at]).sum(), rel=1e-10)


@pytest.fixture(scope="module")
def fitted():
    return fit(panel(1))


def test_correlated_noise_is_found_and_improves_forecasts(fitted):
    response = fitted.prior_.response.correlation
    assert 1.0 < response.length < 4.0
    new = panel(2, n_tasks=300)
    last = new.sort_values("t", kind="stable").groupby("g").tail(1).index
    support, query = new.drop(last), new.loc[last]
    errors = [
        np.mean((learner.predict_tasks(query, support=support)["prediction"] - query["y"]) ** 2)
        for learner in (
            fitted,
            EmpiricalBayesLearner().fit(TaskSet.from_frame(panel(1), task="g", target="y")),
        )
    ]
    assert errors[0] < 0.97 * errors[1]


@pytest.mark.parametrize("n_support", [0, 5])
def test_draws_and_totals_are_those_of_a_dense_gaussian(fitted, n_support):
    fitted = copy.deepcopy(fitted)
    fitted.prior_ = replace(fitted.prior_, without_rows=None, calibration=None)
    # The errors of the fixed effects are tested in tests/priors/test_draws.py.
    fitted.training_summary_ = replace(fitted.training_summary_, mean=None)
    prior, model, task = fitted.prior_, fitted.prior_.model, panel(3, n_tasks=1)
    X = prior.scaling.dense(task[["t", "x"]].to_numpy())
    R = covariance(task["t"].to_numpy(), prior.response.correlation)
    V = prior.scaling.target**2 * (X @ model.covariances[0] @ X.T + model.noise * R)
    known, new = slice(n_support), slice(n_support, None)
    expected = V[new, new] - V[new, known] @ np.linalg.solve(V[known, known], V[known, new])
    query, support = task.iloc[new], task.iloc[known] if n_support else None
    total = fitted.predict_totals(query, support)
    assert total["std"][0] == pytest.approx(np.sqrt(expected.sum()), rel=1e-8)
    draws = fitted.sample(query, support, n_draws=20_000, random_state=0)
    errors = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()) * 2.0 / 20_000)
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - expected), 5.0 * errors)
    prediction = fitted.predict_tasks(query, support, coverage=None)["prediction"]
    deviation = np.sqrt(expected.diagonal().max() / 20_000)
    np.testing.assert_allclose(draws.mean(axis=0), prediction, atol=5.0 * deviation)


def restricted_log_likelihood(tasks, W, noise, response):
    """Return the restricted log likelihood of all rows, with dense covariances; (W, noise) in the
    units of the rows.
    """
    X = np.column_stack([tasks.X, np.ones(len(tasks.y))])
    value, information, right = 0.0, np.zeros((3, 3)), np.zeros(3)
    for t in range(len(tasks)):
        at = slice(tasks.offsets[t], tasks.offsets[t + 1])
        V = X[at] @ W @ X[at].T + noise * covariance(tasks.X[at, 0], response)
        inverse = np.linalg.inv(V)
        information += X[at].T @ inverse @ X[at]
        right += X[at].T @ inverse @ tasks.y[at]
        value += np.linalg.slogdet(V)[1] + tasks.y[at] @ inverse @ tasks.y[at]
    value += np.linalg.slogdet(information)[1] - right @ np.linalg.solve(information, right)
    return -0.5 * (value + (len(tasks.y) - 3) * np.log(2 * np.pi))


def test_correlations_of_noise_and_of_random_effects_are_estimated_jointly():
    frame = panel(5, n_tasks=25)
    # Random slopes in time, strongly correlated with the intercepts: they resemble noise with a
    # long range.
    frame["y"] += frame.groupby("g")["x"].transform("first") * (1.0 + 0.4 * frame["t"])
    tasks = TaskSet.from_formula("y ~ t + x + (t | g)", frame, time="t")
    learner = few_folds().fit(tasks)

    def negative(p):
        root = np.array([[p[0], 0.0], [0.0, 0.0], [p[1], p[2]]])
        response = SerialNoise(0, *np.exp(p[3:5]))
        return -restricted_log_likelihood(tasks, root @ root.T, np.exp(p[5]), response)

    start = np.array([0.4, 1.0, 0.5, np.log(4.0), np.log(2.0), np.log(0.25)])
    best = minimize(negative, start, options={"gtol": 1e-2})
    assert learner.training_summary_.log_likelihood == pytest.approx(-best.fun, abs=0.05)
    assert learner.prior_.response.correlation.length == pytest.approx(np.exp(best.x[4]), rel=0.1)


def test_independent_noise_stays_independent():
    fitted = [fit(panel(seed, n_tasks=30, serial=0.0)) for seed in range(4)]
    accepted = [learner.prior_.response.correlation is not None for learner in fitted]
    assert sum(accepted) <= 1
    # A time that changes nothing is mentioned.
    said = [
        "It was not accepted on held-out tasks." in " ".join(learner.summary().text)
        for learner in fitted
    ]
    assert said == [not each for each in accepted]


def test_times_need_numbers_in_memory():
    frame = panel(0, n_tasks=8)
    with pytest.raises(ValueError, match="time: 'g' is not one of the features"):
        TaskSet.from_frame(frame, task="g", target="y", time="g")
    many = np.repeat(np.arange(5001), 2)
    rows = pd.DataFrame({"g": many, "t": np.tile([0.0, 1.0], 5001), "y": many % 7.0})
    with pytest.raises(ValueError, match="time: needs at most 5,000 tasks"):
        fit(rows)
    roles = {"task": "g", "target": "y", "time": "t", "frequency_weight": "w"}
    with pytest.raises(ValueError, match="time: needs rows without frequencies"):
        EmpiricalBayesLearner().fit(TaskSet.from_frame(frame.assign(w=1), **roles))
