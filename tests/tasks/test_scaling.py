"""Scaling: what is learned does not depend on the units of the data, and is returned in them."""

from functools import cache

import numpy as np
import pytest

from folds import few_folds
from tailored import EmpiricalBayesLearner
from tailored.tasks.rows import Scaling

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

#: Of the spread of y: what rounding may change.
CLOSE = 1e-6


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


def test_standard_deviations_beside_a_column_without_information():
    """A constant column has no variance; it leaves those of the other columns as they are, but for
    the intercept.
    """
    covariance = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.0]])
    plain = Scaling(np.array([2.0, 4.0, 1.0]), 3.0, np.array([5.0, 0.0, 0.0]), 1.0, True)
    expected = 3.0 * np.sqrt(
        [2.0 / 4, 3.0 / 16, np.array([-2.5, 0.0, 1.0]) @ covariance @ [-2.5, 0.0, 1.0]]
    )
    np.testing.assert_allclose(plain.raw_deviations(covariance), expected)
    more = np.full((4, 4), np.nan)
    more[np.ix_([0, 2, 3], [0, 2, 3])] = covariance
    for shift, intercept in ((7.0, np.nan), (0.0, expected[2])):
        scaling = Scaling(
            np.array([2.0, 7.0, 4.0, 1.0]), 3.0, np.array([5.0, shift, 0.0, 0.0]), 1.0, True
        )
        found = scaling.raw_deviations(more)
        np.testing.assert_allclose(found, [expected[0], np.nan, expected[1], intercept])
