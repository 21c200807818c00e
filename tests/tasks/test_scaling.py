"""Scaling: what is learned does not depend on the units of the data, and is returned in them."""

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.tasks.rows import Scaling

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


#: Of the spread of y: what rounding may change.
CLOSE = 1e-6


def some_units(seed, d=3, fit_intercept=True, shifts=True):
    rng = np.random.default_rng(seed)
    columns, shift = 10.0 ** rng.uniform(-2, 2, size=d), rng.normal(size=d) * 3.0 * shifts
    if fit_intercept:
        columns, shift = np.append(columns, 1.0), np.append(shift, 0.0)
    return Scaling(columns, 7.0, shift, -2.5 if fit_intercept else 0.0, fit_intercept)


def draw(seed=0, T=24, n=8, d=3):
    """Rows of tasks that share a mean, differ by an intercept and by slopes, and have some
    noise.
    """
    rng = np.random.default_rng(seed)
    weights = (
        np.array([1.0, 0.0, -1.0])[:d] + rng.normal(size=(T, d)) * np.array([1.0, 0.5, 0.2])[:d]
    )
    groups = np.repeat(np.arange(T), n)
    X = rng.normal(size=(T * n, d))
    y = np.einsum("ij,ij->i", X, weights[groups]) + rng.normal(size=T)[groups]
    return X, y + 0.3 * rng.normal(size=T * n), groups


X, Y, GROUPS = draw()
FEW_X, FEW_Y, _ = draw(seed=1, T=1, n=5)
NEW_X = draw(seed=2, T=1, n=6)[0]
SPREAD = float(Y.std())


def two_parts():
    """Two parts of the tasks take turns in being held out, not five: it is quicker, and nothing to
    do with units.
    """
    return few_folds()


def outputs(learner, x, groups, few_x, few_y, new_x):
    """Predictions of seen tasks, of a new one with few rows and with none, and intervals of
    both.
    """
    few, none = learner.adapt(few_x, few_y), learner.adapt()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = [model.predict_interval(new_x, coverage=0.8) for model in (few, none)]
    points = [learner.predict(x, groups=groups), few.predict(new_x), none.predict(new_x)]
    return points, ends, [model.predict_std(new_x) for model in (few, none)]


@cache
def plain():
    learner = two_parts().fit(X, Y, groups=GROUPS)
    return learner, outputs(learner, X, GROUPS, FEW_X, FEW_Y, NEW_X)


# ---------------------------------------------------------------------------------------- the
# algebra


@pytest.mark.parametrize("rank", [1, 4])
def test_a_representation_is_that_of_the_raw_weights(rank):
    """w = t A v + c: a deviation of v costs vᵀθ†v, that of w costs as much of (A θ Aᵀ)† times
    t².
    """
    units, rng = some_units(5), np.random.default_rng(0)
    L = rng.normal(size=(4, rank))
    theta = L @ L.T
    zero, unit = np.zeros(4), np.eye(4)
    A = (
        np.stack([units.raw_weights(e) - units.raw_weights(zero) for e in unit], axis=1)
        / units.target
    )
    raw = units.raw_representation(theta)
    np.testing.assert_allclose(raw, A @ theta @ A.T, rtol=1e-12, atol=1e-12 * np.abs(raw).max())
    np.testing.assert_allclose(
        units.raw_representation(np.stack([theta, 2.0 * theta])),
        np.stack([raw, 2.0 * raw]),
        rtol=1e-12,
    )
    # as a covariance: that of t A v where v has covariance θ
    draws = (L @ rng.normal(size=(rank, 5))).T
    moved = units.raw_weights(draws) - units.raw_weights(zero)
    np.testing.assert_allclose(
        moved.T @ moved / units.target**2,
        units.raw_representation(draws.T @ draws),
        rtol=1e-9,
        atol=1e-9,
    )


# ------------------------------------------------------------------------------------- the learner


def test_side_information_in_other_units():
    x, y, groups = draw(T=14, n=5)
    s = np.round(np.random.default_rng(0).normal(size=(14, 1)), 3)
    y = y + 2.0 * s[groups, 0]
    plainly = EmpiricalBayesLearner().fit(x, y, groups=groups, side_info=dict(enumerate(s)))
    moved = (s + 1e4) * 1e-5
    other = EmpiricalBayesLearner().fit(x, y, groups=groups, side_info=dict(enumerate(moved)))
    assert plainly.side_structure_ == other.side_structure_ is not None
    a, b = plainly.adapt(side_info=s[0]), other.adapt(side_info=moved[0])
    np.testing.assert_allclose(a.predict(NEW_X), b.predict(NEW_X), rtol=0, atol=CLOSE * SPREAD)


def test_sparse_columns_scale():
    rng, (x, y, groups) = np.random.default_rng(3), draw(T=10, n=6)
    x = sp.csr_array(x * (rng.random(x.shape) < 0.5))
    few = sp.csr_array(FEW_X * (rng.random(FEW_X.shape) < 0.5))
    units = sp.diags_array([1e-6, 3.0, 1e6])
    first = two_parts().fit(x, y, groups=groups)
    second = two_parts().fit((x @ units).tocsr(), y + 1e5, groups=groups)
    scaled = (few @ units).tocsr()
    for a, b in (
        (first.predict(x, groups=groups), second.predict((x @ units).tocsr(), groups=groups)),
        (first.adapt(few, FEW_Y).predict(few), second.adapt(scaled, FEW_Y + 1e5).predict(scaled)),
        (first.adapt().predict(few), second.adapt().predict(scaled)),
    ):
        np.testing.assert_allclose(b - 1e5, a, rtol=0, atol=CLOSE * SPREAD)
    # the same rows, dense: the learner does not mind which it gets after fit
    np.testing.assert_allclose(
        first.adapt(few.toarray(), FEW_Y).predict(few.toarray()),
        first.adapt(few, FEW_Y).predict(few),
        rtol=0,
        atol=1e-7 * SPREAD,
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3e7])
def test_a_constant_column_says_nothing(value):
    units = Scaling.of(
        TaskSet(np.column_stack([X, np.full(len(X), value)]), Y, GROUPS), True, centre=True
    )
    # which is all there is to measure it by
    np.testing.assert_allclose(units.columns[3], abs(value) or 1.0, rtol=1e-13)
    np.testing.assert_allclose(units.shift[3], value, rtol=1e-13)
    if value != 0.1:
        return
    learner = two_parts().fit(np.column_stack([X, np.full(len(X), value)]), Y, groups=GROUPS)
    model = learner.adapt(np.column_stack([FEW_X, np.full(5, value)]), FEW_Y)
    new = np.column_stack([NEW_X, np.full(6, value)])
    assert np.isfinite(
        learner.predict(np.column_stack([X, np.full(len(X), value)]), groups=GROUPS)
    ).all()
    # an uninformative column may change the choice of a form, but hardly the predictions
    assert (
        np.abs(model.predict(new) - plain()[0].adapt(FEW_X, FEW_Y).predict(NEW_X)).max()
        < 0.2 * SPREAD
    )
    assert np.isfinite(model.representation_).all()


@pytest.mark.parametrize("value", [0.0, -1e8])
def test_a_constant_target_is_predicted(value):
    x, _, groups = draw(T=5, n=4)
    learner = two_parts().fit(x, np.full(len(x), value), groups=groups)
    size = max(abs(value), 1.0)
    for prediction in (
        learner.predict(x, groups=groups),
        learner.adapt().predict(NEW_X),
        learner.adapt(FEW_X, np.full(5, value)).predict(NEW_X),
    ):
        np.testing.assert_allclose(prediction, value, rtol=0, atol=1e-7 * size)


# ------------------------------------------------------------------------- what adapt returns, raw


@cache
def measured():
    """A learner of rows in moderate units, and the units' effect on new rows."""
    units, shift = np.array([0.05, 1.0, 40.0]), np.array([3.0, -2.0, 0.5])
    learner = two_parts().fit((X + shift) * units, 30.0 * Y + 400.0, groups=GROUPS)
    return learner, (FEW_X + shift) * units, 30.0 * FEW_Y + 400.0


@pytest.mark.parametrize("n", [1, 2, 5])
def test_adapted_weights_minimise_the_raw_objective(n):
    learner, x, y = measured()
    x, y = x[:n], y[:n]
    model = learner.adapt(x, y)
    theta, b = model.representation_, model.bias_
    np.testing.assert_allclose(theta, learner.representation(x, y), rtol=1e-12)
    Z, w = np.hstack([x, np.ones((n, 1))]), np.append(model.coef_, model.intercept_)
    best = b + theta @ Z.T @ np.linalg.solve(Z @ theta @ Z.T + n * np.eye(n), y - Z @ b)
    np.testing.assert_allclose(Z @ w, Z @ best, rtol=0, atol=1e-6 * 30 * SPREAD)
    np.testing.assert_allclose(w, best, rtol=1e-5, atol=1e-6 * np.abs(best).max())

    values, vectors = np.linalg.eigh(theta)
    keep = values > 1e-13 * values[-1]
    assert np.abs(vectors[:, ~keep].T @ (w - b)).max(initial=0.0) < 1e-6 * np.abs(w - b).max()

    def objective(v):
        moved = vectors[:, keep].T @ (v - b)
        return 0.5 * np.mean((Z @ v - y) ** 2) + 0.5 * np.sum(moved**2 / values[keep])

    excess = objective(w) - objective(best)
    assert excess >= -1e-9 * objective(b)
    assert model.dual_gap_ >= excess - 1e-9 * objective(b)
    assert model.dual_gap_ <= 1e-8 * objective(b) * (1 + 1e-6) + 1e-12


def test_limits_of_large_scales_are_infinite():
    """A crafted model file can have any scale of a column."""
    scaling = Scaling(np.array([1e200]), 1.0, np.zeros(1))
    assert scaling.holds(np.ones((1, 1)))
