"""REML against the restricted likelihood of all rows, written with dense matrices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.reml import Criterion, maximise_restricted
from tailored.gaussian.rows import statistics_of
from tailored.gaussian.side import Effect, Term
from tailored.tasks.rows import Scaling


def panel(seed: int, n_tasks: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X (n, 2), y and labels of unbalanced tasks with a random intercept and a random slope
    of the first column.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 8, size=n_tasks)
    groups = np.repeat(np.arange(n_tasks), sizes)
    X = rng.normal(size=(len(groups), 2)) * [1.0, 5.0] + [3.0, -20.0]
    effects = rng.normal(size=(n_tasks, 2)) @ np.array([[0.8, 0.3], [0.0, 1.5]])
    noise = rng.normal(size=len(groups))
    return (
        X,
        10.0 + X @ [2.0, 0.1] + effects[groups, 0] * X[:, 0] + effects[groups, 1] + 0.7 * noise,
        groups,
    )


def dense_log_likelihood(X, y, groups, slopes, W, noise, restricted=True):
    """Return the log likelihood of y ~ N(Xβ, ZWZᵀ + σ²I) at the best β; restricted: with β
    integrated out, as in lme4.
    """
    design = np.column_stack([X, np.ones(len(y))])
    Z = np.column_stack([X[:, slopes], np.ones(len(y))])
    V = (Z @ W @ Z.T) * (groups[:, None] == groups) + noise * np.eye(len(y))
    inverse = np.linalg.inv(V)
    information = design.T @ inverse @ design
    beta = np.linalg.solve(information, design.T @ inverse @ y)
    r, p = y - design @ beta, design.shape[1] if restricted else 0
    value = np.linalg.slogdet(V)[1] + r @ inverse @ r + (len(y) - p) * np.log(2 * np.pi)
    return (
        -0.5 * (value + (np.linalg.slogdet(information)[1] if restricted else 0.0)),
        beta,
        information,
    )


@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize(
    ("slopes", "covariance", "n_tasks", "nearly_collinear"),
    [
        ([], "full", 12, False),
        ([0], "full", 12, False),
        ([0], "diagonal", 12, False),
        ([], "full", 3, False),
        ([], "full", 12, True),
    ],
)
def test_fit_has_the_largest_restricted_likelihood(
    slopes, covariance, n_tasks, nearly_collinear, reml
):
    X, y, groups = panel(4, n_tasks)
    if nearly_collinear:
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    q = len(slopes) + 1
    at = np.diag_indices(q) if covariance == "diagonal" else np.tril_indices(q)

    def objective(parameters):
        root = np.zeros((q, q))
        root[at] = parameters[:-1]
        return -dense_log_likelihood(
            X, y, groups, slopes, root @ root.T, np.exp(parameters[-1]), reml
        )[0]

    start = np.append(np.eye(q)[at], 0.0)
    expected = minimize(objective, start, method="BFGS", options={"gtol": 1e-6})
    learner = EmpiricalBayesLearner(varying=slopes, covariance=covariance, reml=reml)
    learner.fit(X, y, groups=groups)
    found = learner.training_summary_.log_likelihood
    assert found == pytest.approx(-expected.fun, abs=1e-5)
    frame = learner.summary().to_frame("effects").set_index("column")
    root = np.zeros((q, q))
    root[at] = expected.x[:-1]
    _, beta, information = dense_log_likelihood(
        X, y, groups, slopes, root @ root.T, np.exp(expected.x[-1]), reml
    )
    deviations = np.sqrt(np.diag(root @ root.T))
    np.testing.assert_allclose(frame["fixed effect"], beta, rtol=1e-4)
    np.testing.assert_allclose(
        frame["std. error"], np.sqrt(np.diag(np.linalg.inv(information))), rtol=1e-3
    )
    np.testing.assert_allclose(frame["random-effect std"].iloc[-1], deviations[-1], rtol=2e-3)


def test_collinear_columns_have_no_restricted_likelihood():
    X, y, groups = panel(4)
    learner = EmpiricalBayesLearner(varying=[], covariance="full")
    learner.fit(np.column_stack([X, X.sum(axis=1)]), y, groups=groups)
    assert learner.training_summary_.log_likelihood is None
    assert (
        learner.set_params(reml=False).fit(X, y, groups=groups).training_summary_.log_likelihood
        is not None
    )


@pytest.mark.parametrize("with_side", [False, True])
@pytest.mark.parametrize("restricted", [False, True])
def test_gradient_is_the_derivative_of_the_criterion(with_side, restricted):
    X, y, groups = panel(seed=5)
    side = np.random.default_rng(0).normal(size=(12, 2))
    tasks = TaskSet(X, y, groups)
    statistics = statistics_of(tasks, Scaling.of(tasks, fit_intercept=True, centre=True), side)
    terms = [Term(Effect(0), np.eye(3)[:, :2], np.eye(2))] if with_side else []
    criterion = Criterion(statistics, np.eye(3)[:, [0, 2]], terms, restricted)
    W, direction, h = np.array([[0.4, 0.1], [0.1, 0.8]]), np.array([[1.0, 0.3], [0.3, -0.5]]), 1e-6
    gradient, along_noise = criterion(W, 0.6)[1:3]
    along = (criterion(W + h * direction, 0.6)[0] - criterion(W - h * direction, 0.6)[0]) / (2 * h)
    assert np.sum(gradient * direction) == pytest.approx(along, rel=1e-5)
    along = (criterion(W, 0.6 * np.exp(h))[0] - criterion(W, 0.6 * np.exp(-h))[0]) / (2 * h)
    assert along_noise == pytest.approx(along, rel=1e-5)


def test_a_search_that_ends_at_its_limit_warns(monkeypatch):
    X, y, groups = panel(0)
    monkeypatch.setattr("tailored.gaussian.reml.NEWTON_STEPS", 0)
    monkeypatch.setattr("tailored.gaussian.reml.MOST_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 steps"):
        EmpiricalBayesLearner(varying=[0], covariance="full").fit(X, y, groups=groups)


def test_effects_of_side_information_are_integrated_out():
    """The criterion of tasks with an effect of side information is that of a model with an
    additional random effect.
    """
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(8), 3)
    side, y = rng.normal(size=(8, 1)), rng.normal(size=24)
    y += 2.0 * side[groups, 0]
    tasks = TaskSet(np.empty((24, 0)), y, groups)
    statistics = statistics_of(tasks, Scaling.raw(0, True), side)
    term = Term(Effect(0, relevance=0.7), np.ones((1, 1)), np.ones((1, 1)))
    value = Criterion(statistics, np.ones((1, 1)), [term])(np.array([[0.5]]), 0.9)[0]
    same, v = groups[:, None] == groups, side[groups, 0]
    V = 0.5 * same + 0.9 * np.eye(24) + 0.7 * np.outer(v, v)
    inverse = np.linalg.inv(V)
    r = y - inverse.sum(axis=0) @ y / inverse.sum()
    # The column of ones is divided by its norm.
    expected = np.linalg.slogdet(V)[1] + r @ inverse @ r + np.log(inverse.sum() / 24.0)
    assert value == pytest.approx(expected, rel=1e-7)
    # At the maximum, the log likelihood is that of all rows without their mean.
    start = Mixture(np.ones(1), np.zeros((1, 1)), np.full((1, 1, 1), 0.5), 0.9)
    model, found = maximise_restricted(statistics, start, np.ones((1, 1), bool), [term])
    V = model.covariances[0, 0, 0] * same + model.noise * np.eye(24) + 0.7 * np.outer(v, v)
    contrasts = np.linalg.svd(np.ones((1, 24)))[2][1:]
    density = multivariate_normal(np.zeros(23), contrasts @ V @ contrasts.T).logpdf(contrasts @ y)
    # Contrasts have unit length, and the criterion of lme4 does not: it has the factor |1ᵀ1|.
    assert found == pytest.approx(density - 0.5 * np.log(24.0), rel=1e-7)


def test_a_collinear_column_does_not_count_as_a_fixed_effect():
    X, y, groups = panel(4)
    fits = [
        EmpiricalBayesLearner(varying=[], covariance="full").fit(columns, y, groups=groups)
        for columns in (X, np.column_stack([X, X.sum(axis=1)]))
    ]
    variances = [
        fit.prior_.scaling.target**2
        * np.append(fit.prior_.model.covariances[0].diagonal().max(), fit.prior_.model.noise)
        for fit in fits
    ]
    np.testing.assert_allclose(variances[1], variances[0], rtol=1e-4)


def highest_log_likelihood(x, y, groups, is_diagonal, reml):
    """Return the log likelihood of ``y ~ x + (x | g)`` or ``(x || g)`` maximised by a general
    optimiser from five starts.
    """
    q, far = 2, np.hypot(x.mean(), x.std())
    at = np.diag_indices(q) if is_diagonal else np.tril_indices(q)
    same, centred = groups[:, None] == groups, np.column_stack([x - x.mean(), np.ones(len(x))])
    # Random effects of (x | g) can be measured at the mean of x: their covariance is unrestricted.
    Z = np.column_stack([x / far, np.ones(len(x))]) if is_diagonal else centred / [x.std(), 1.0]

    def objective(parameters):
        root = np.zeros((q, q))
        root[at] = parameters[:-1]
        V = (Z @ root @ root.T @ Z.T) * same + np.exp(parameters[-1]) * np.eye(len(y))
        if np.linalg.eigvalsh(V)[0] <= 1e-14 * np.trace(V):
            return 1e10  # a step far away
        whitened = np.linalg.solve(np.linalg.cholesky(V), np.column_stack([centred, y]))
        columns, target = whitened[:, :2], whitened[:, 2]
        r = target - columns @ np.linalg.lstsq(columns, target, rcond=None)[0]
        value = np.linalg.slogdet(V)[1] + r @ r + (len(y) - 2 * reml) * np.log(2 * np.pi)
        return 0.5 * (value + reml * np.linalg.slogdet(columns.T @ columns)[1])

    own = np.array([np.linalg.lstsq(Z[groups == g], y[groups == g])[0] for g in np.unique(groups)])
    sizes = [own.std(axis=0), [1.0, 1e-3], [1e-3, 1.0], [1.0, 1.0], [0.1, 0.1]]
    found = [
        minimize(objective, np.append((np.eye(2) * size * scale)[at], np.log(0.1)), method="BFGS")
        for size, scale in zip(sizes, [1.0, *[y.std()] * 4], strict=True)
    ]
    return -min(each.fun for each in found)


@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize("bar", ["|", "||"])
def test_no_fit_is_below_the_optimum_however_far_x_is_from_zero(bar, mean):
    for seed, at_zero, reml in ((0, False, True), (1, False, False), (2, True, True)):
        rng = np.random.default_rng([seed, int(mean)])
        groups = np.repeat(np.arange(8), rng.integers(3, 8, 8))
        x = mean + rng.normal(size=len(groups))
        slopes, levels = rng.normal(size=(2, 8))
        y = 2.0 * levels[groups] + (1.0 + slopes[groups]) * (x - (0.0 if at_zero else mean))
        y += 10.0 + 0.3 * rng.normal(size=len(x))
        table = pd.DataFrame({"g": groups, "x": x, "y": y})
        tasks = TaskSet.from_formula(f"y ~ x + (x {bar} g)", table)
        found = EmpiricalBayesLearner(reml=reml).fit(tasks).training_summary_.log_likelihood
        assert found > highest_log_likelihood(x, y, groups, bar == "||", reml) - 1e-3


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_slopes_that_are_small_next_to_the_intercept_are_used(covariance):
    """The slopes vary by 1/2000 of the intercepts, and by fifty times the noise."""
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(40), 10), rng.normal(size=400)
    y = (1000.0 * rng.normal(size=40))[groups] + (2.0 + 0.5 * rng.normal(size=40))[groups] * x
    y += 0.01 * rng.normal(size=400)
    learner = EmpiricalBayesLearner(covariance=covariance).fit(x[:, None], y, groups=groups)
    effects = learner.effects(x[:, None], y, groups=groups)
    own = [np.polyfit(x[groups == t], y[groups == t], 1)[0] for t in range(40)]
    np.testing.assert_allclose(effects[effects.column == "x0"].effect, own, atol=1e-3)
    residuals = y - learner.predict(x[:, None], groups=groups)
    assert np.sqrt(np.mean(residuals**2)) < 0.0105


def test_tables_that_can_be_interpolated_have_a_fit():
    """Binary columns and few rows: five random coefficients of each task, and two distinct rows."""
    for seed in (27, 32, 33):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(8), 2)
        values = rng.random(16) < 0.4, rng.integers(0, 3, 16), *(rng.random((2, 16)) < 0.3)
        X = np.column_stack(values).astype(float)
        y = X @ [1.0, -1.0, 0.0, 2.0] + rng.normal(size=8)[groups] + 0.3 * rng.normal(size=16)
        copies = np.repeat(np.arange(16), rng.integers(1, 4, 16))
        rows = X[copies], y[copies]
        learner = EmpiricalBayesLearner(covariance="full").fit(*rows, groups=groups[copies])
        assert np.abs(learner.predict(X, groups=groups) - y).max() < 1e-3


def test_a_constant_column_is_left_out_with_every_covariance():
    rng = np.random.default_rng(3)
    groups, x = np.repeat(np.arange(15), 6), rng.normal(size=90)
    y = 10.0 + rng.normal(size=15)[groups] + x + rng.normal(size=90)
    X = np.column_stack([x, np.full(90, 2.5)])
    for covariance in ("full", "diagonal"):
        fits = [
            EmpiricalBayesLearner(covariance=covariance).fit(columns, y, groups=groups)
            for columns in (X, X[:, :1])
        ]
        with_constant, without = (fit.summary().to_frame("effects") for fit in fits)
        assert list(with_constant.column) == ["x0", "(intercept)"]
        for name in ("fixed effect", "std. error", "random-effect std"):
            np.testing.assert_allclose(with_constant[name], without[name], rtol=1e-6)
        one, other = (fit.training_summary_.log_likelihood for fit in fits)
        assert one == pytest.approx(other, abs=1e-7)


@pytest.mark.parametrize("bar", ["|", "||"])
def test_a_variance_of_zero_is_a_singular_fit(bar):
    rng = np.random.default_rng(0)
    groups, x = np.repeat(np.arange(20), 6), np.tile(np.arange(6.0), 20)
    noise = rng.normal(size=(20, 6))
    noise -= noise.mean(axis=1, keepdims=True)  # the means of the tasks vary less than by chance
    effects = rng.normal(size=(2, 20))
    varied = noise.ravel() + effects[0, groups] + effects[1, groups] * x
    for y, is_singular in ((noise.ravel(), True), (varied, False)):
        table = pd.DataFrame({"g": groups, "x": x, "y": y})
        tasks = TaskSet.from_formula(f"y ~ x + (x {bar} g)", table)
        summary = EmpiricalBayesLearner().fit(tasks).training_summary_
        assert summary.is_singular == is_singular
