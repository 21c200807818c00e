"""Effects of side information on the prior mean: their fit, their relevance, and the features of
mixing weights.
"""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from tailored import TaskSet
from tailored.datasets import make_circle
from tailored.gaussian import side as side_module
from tailored.gaussian.em import fit_mixed_model
from tailored.gaussian.moments import Moments
from tailored.gaussian.rows import TaskRows, statistics_of
from tailored.gaussian.side import (
    Effect,
    Group,
    SideStructure,
    fit_side,
    gate_penalties,
    select_side,
)
from tailored.gaussian.structures import Independent, MixedModel, StructureFitter
from tailored.priors.side_features import SideFeatures
from tailored.tasks.rows import Scaling

D, Q = 3, 2
#: Each feature is a group of its own.
GROUPS = [Group(j, False, np.array([j]), np.eye(1)) for j in range(Q)]


def effects(relevance=1.0, *, intercept_only=False, columns=range(Q)):
    return SideStructure(tuple(Effect(j, False, intercept_only, relevance) for j in columns))


def tiny(seed=0, T=25, n=4, level=0.0, intercept_only=False, layout=Moments):
    """Rows whose last column is constant, and features whose mean over the tasks is ``level``."""
    rng = np.random.default_rng(seed)
    Gamma = rng.normal(size=(D, Q))
    if intercept_only:
        Gamma[:-1] = 0.0
    L = np.array([[0.5, 0, 0], [0.2, 0.3, 0], [0.3, -0.1, 0.4]])
    v = rng.normal(size=(T, Q))
    v += level - v.mean(axis=0)
    rows = []
    for s in v:
        X = np.column_stack([rng.normal(size=(n, D - 1)), np.ones(n)])
        y = X @ (np.arange(D) + Gamma @ s + L @ rng.normal(size=D)) + 0.4 * rng.normal(size=n)
        rows.append((X, y, s))
    statistics = layout.of(TaskSet.from_tasks(rows), Scaling.raw(D), v)
    return statistics, rows, Gamma


def log_likelihood(rows, b, Gamma, W, noise):
    return sum(
        multivariate_normal.logpdf(y, X @ (b + Gamma @ s), X @ W @ X.T + noise * np.eye(len(y)))
        for X, y, s in rows
    )


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("level", [0.0, 0.7])
@pytest.mark.parametrize("intercept_only", [False, True])
def test_effects_are_generalised_least_squares_with_their_prior(intercept_only, level, layout):
    """Given W and σ², b and Γ maximise the likelihood times the prior of Γ; features need not be
    centred for it.
    """
    statistics, rows, _ = tiny(level=level, intercept_only=intercept_only, layout=layout)
    relevance = 0.02
    fit = fit_side(
        statistics, effects(relevance, intercept_only=intercept_only), GROUPS, max_iter=5
    )
    W, noise = fit.rest.covariances[0], fit.rest.noise
    plain = fit_mixed_model(statistics, max_iter=30, tol=1e-6).covariances[0]
    squares = np.mean(statistics.side**2, axis=0)
    inverses = [np.linalg.inv(X @ W @ X.T + noise * np.eye(len(y))) for X, y, _ in rows]

    def objective(flat):
        b, moved = flat[:D], np.zeros((D, Q))
        moved[-1 if intercept_only else slice(None)] = flat[D:].reshape(-1, Q)
        left = [y - X @ (b + moved @ s) for X, y, s in rows]
        value = sum(e @ P @ e for e, P in zip(left, inverses, strict=True))
        if intercept_only:
            return value + (moved[-1] ** 2 @ squares) / (relevance * plain[-1, -1])
        return value + np.trace((moved * squares).T @ np.linalg.solve(plain, moved)) / relevance

    start = np.zeros(D + (1 if intercept_only else D) * Q)
    found = minimize(objective, start, method="BFGS", options={"gtol": 1e-5}).x
    Gamma = fit.Gamma[-1:] if intercept_only else fit.Gamma
    np.testing.assert_allclose(found[D:].reshape(-1, Q), Gamma, atol=1e-4)
    np.testing.assert_allclose(found[:D], fit.rest.means[0], atol=1e-4)
    assert Gamma.any()
    if intercept_only:
        assert not fit.Gamma[:-1].any()


def test_where_em_ends_the_variances_are_most_likely():
    """W and σ² maximise the likelihood given Γ; they do not depend on the prior of Γ."""
    statistics, rows, _ = tiny(T=40)
    fit = fit_side(statistics, effects(0.1), GROUPS, max_iter=5000, tol=1e-9)
    b, W, noise = fit.rest.means[0], fit.rest.covariances[0], fit.rest.noise
    best = log_likelihood(rows, b, fit.Gamma, W, noise)
    rng = np.random.default_rng(0)
    for _ in range(6):
        E = rng.normal(size=(D, D))
        E = 1e-3 * (E + E.T) * np.trace(W) / D
        up, down = (log_likelihood(rows, b, fit.Gamma, W + sign * E, noise) for sign in (1, -1))
        assert abs(up - down) / 2 < 2e-3
        assert max(up, down) < best + 2e-3
    assert log_likelihood(rows, b, fit.Gamma, W, 1.02 * noise) < best
    assert log_likelihood(rows, b, fit.Gamma, W, 0.98 * noise) < best


def test_relevance_decides_how_much_is_shrunk():
    statistics, _, Gamma = tiny(T=60, n=8)
    fits = [
        fit_side(statistics, effects(g), GROUPS, max_iter=200).Gamma
        for g in (1e-8, 1e-3, 0.1, 100.0)
    ]
    sizes = [np.linalg.norm(fit) for fit in fits]
    assert (np.diff(sizes) > 0).all()
    assert sizes[0] < 1e-3
    np.testing.assert_allclose(fits[-1], Gamma, atol=0.5)
    assert not fit_side(statistics, effects(columns=[1]), GROUPS).Gamma[:, 0].any()


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("intercept_only", [False, True])
def test_the_gain_of_a_group_is_that_of_the_evidence(monkeypatch, intercept_only, layout):
    """The evidence of all rows at once, dense: b has a wide prior, and effects add to the
    covariance of y.
    """
    monkeypatch.setattr(side_module, "FLAT", 1e-3)
    statistics, rows, _ = tiny(T=8, layout=layout)
    both = Group(0, True, np.arange(2), np.array([[1.0, 0.3], [0.0, 0.5]]))
    groups = [*GROUPS, both]
    model = fit_mixed_model(statistics, max_iter=3)
    structure = [Effect(1, False, False, 0.3), Effect(0, True, intercept_only)]
    kept, candidate = side_module._terms(statistics, groups, structure, model.covariances[0])
    [(gain, found)] = side_module._gains(statistics, model, [kept], [candidate])

    X = block_diag(*(X for X, _, _ in rows))
    y, T = np.concatenate([y for _, y, _ in rows]), len(rows)
    W, noise = model.covariances[0], model.noise
    V = X @ np.kron(np.eye(T), W) @ X.T + noise * np.eye(len(y))
    ones = np.kron(np.ones((T, 1)), np.eye(D))
    information = ones.T @ X.T @ np.linalg.solve(V, X @ ones)
    V = V + X @ ones @ ones.T @ X.T * D / (1e-3 * np.trace(information))

    def covariance(term, relevance):
        u = statistics.side[:, term.features] @ term.R
        return relevance * X @ np.kron(u @ u.T, term.L @ term.L.T) @ X.T

    u = statistics.side @ both.root
    assert np.mean((u**2).sum(axis=1)) * np.sum(candidate.R**2) == pytest.approx(
        np.sum(both.root**2)
    )
    expected = W if not intercept_only else np.diag([0.0, 0.0, W[-1, -1]])
    np.testing.assert_allclose(candidate.L @ candidate.L.T, expected, atol=1e-8)
    V = V + covariance(kept, 0.3)
    zero = np.zeros(len(y))
    without = multivariate_normal.logpdf(y, zero, V)
    gains = [
        multivariate_normal.logpdf(y, zero, V + covariance(candidate, g)) - without
        for g in side_module.RELEVANCES
    ]
    assert gain == pytest.approx(max(gains), abs=1e-6)
    assert found.effect.relevance == side_module.RELEVANCES[np.argmax(gains)]
    evidence = side_module.evidence_of_columns(statistics, model, [kept, found])
    assert evidence[0] == pytest.approx(max(gains), abs=1e-6)
    of_mean = V - covariance(kept, 0.3)
    both = max(gains) + without - multivariate_normal.logpdf(y, zero, of_mean)
    assert evidence[-1] == pytest.approx(both, abs=1e-6)
    # MacKay's update of each relevance: the squared effects, relative to their expectation.
    P = np.linalg.inv(V + covariance(candidate, found.effect.relevance))
    fit = side_module._fit(statistics, model, [kept, found], max_iter=1, learn=True)
    for before, after in zip([kept, found], fit.terms, strict=True):
        PC = P @ covariance(before, before.effect.relevance)
        factor = (y @ PC @ P @ y) / np.trace(PC)
        assert after.effect.relevance == pytest.approx(factor * before.effect.relevance, rel=1e-6)


def circle_with_noise(n_noise=4, units=1.0, permuted=False):
    """Return statistics and groups of tasks on a circle whose side information has columns of noise
    first.
    """
    tasks = make_circle(120, n_features=3, n_rows=8, random_state=0)
    rng = np.random.default_rng(0)
    place = tasks.side_info.astype(float)
    if permuted:
        place = place[rng.permutation(len(place))]
    side = np.hstack([rng.normal(size=(120, n_noise)), place])
    side = side * units ** np.arange(1 + n_noise) + units
    tasks = TaskSet.from_arrays(tasks.X * units, tasks.y, tasks.offsets, tasks.labels, side)
    features = SideFeatures.fit(tasks)
    v = features(tasks)
    return statistics_of(tasks, Scaling.of(tasks, True, centre=True), v), features.groups(v)


def test_noise_is_dropped_and_the_place_on_the_circle_kept():
    found = select_side(*circle_with_noise(), has_intercept=True)
    assert found.describe() == {"columns": [4], "curved": [4], "effect on": "all weights"}
    assert select_side(*circle_with_noise(permuted=True), has_intercept=True) is None


def test_relevance_does_not_depend_on_units():
    statistics, groups = circle_with_noise()
    others = circle_with_noise(units=37.0)
    found, other = (
        select_side(s, g, has_intercept=True) for s, g in ((statistics, groups), others)
    )
    assert found == other
    for one, two in zip(found.effects, other.effects, strict=True):
        assert one.relevance == pytest.approx(two.relevance, rel=1e-5)
    effect, same = (
        fit.side @ fit_side(fit, found, g).Gamma.T for fit, g in ((statistics, groups), others)
    )
    np.testing.assert_allclose(same, effect, atol=1e-5 * np.abs(effect).max())


def test_only_coefficients_that_vary_have_effects():
    statistics, _, _ = tiny(T=60, n=8)
    found = select_side(statistics, GROUPS, has_intercept=True, varying=(1, 2))
    assert found is not None
    Gamma = fit_side(statistics, found, GROUPS).Gamma
    assert Gamma[1].any()
    assert not Gamma[0].any()
    only = select_side(statistics, GROUPS, has_intercept=True, varying=(2,))
    assert only.describe()["effect on"] == "intercept"
    assert all(
        not e.intercept_only for e in select_side(statistics, GROUPS, has_intercept=False).effects
    )


def test_relevant_features_of_mixing_weights():
    rng = np.random.default_rng(0)
    component = rng.integers(3, size=90)
    hint = np.where(rng.random(90) < 0.7, component, rng.integers(3, size=90))
    side = np.hstack([rng.normal(size=(90, 5)), np.eye(3)[hint]])
    groups = [Group(j, False, np.array([j]), np.eye(1)) for j in range(5)]
    groups.append(Group(5, False, np.arange(5, 8), np.eye(3)))
    shares = 0.1 / 3 + 0.9 * np.eye(3)[component]
    penalties = gate_penalties(side, groups, shares)
    # as if the three relevant features were all
    np.testing.assert_allclose(penalties, [np.inf] * 5 + [3 / 8] * 3)
    assert np.isinf(gate_penalties(side, groups, shares[rng.permutation(90)])).all()


def test_a_fitter_subtracts_the_effects_first():
    statistics, rows, _ = tiny(T=40)
    fitter = StructureFitter.of(statistics, [0], effects(), GROUPS)
    model = fitter.fit(MixedModel())
    np.testing.assert_array_equal(model.side, fit_side(statistics, effects(), GROUPS).Gamma)
    expected = log_likelihood(rows, model.means[0], model.side, model.covariances[0], model.noise)
    assert statistics.posterior(model).log_evidence.sum() == pytest.approx(expected, rel=1e-8)
    # Independent tasks share no effects.
    assert fitter.fit(Independent(1.0)).side is None
