"""One task, solved exactly and in one pass: certificates first, coefficients second, then what must
not change the result.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import reference
from tailored.losses import LOSSES, Huber
from within_samples import (
    CASES,
    SHAPES,
    inners,
    losses,
    random_task,
    random_theta,
    solve,
    zero_value,
)

smooth = pytest.mark.parametrize(
    "loss",
    [case for case in CASES.values() if case.dual_box(0.0).quadratic],
    ids=lambda loss: loss.name,
)


def check_certificate(solution, X, y, theta, loss, offset, tol):
    """Value and gap as reported are those of coef and alpha, and prove optimality."""
    scale = zero_value(y, loss, offset)
    value = reference.regularised_risk(solution.coef, X, y, theta, reference.like(loss), offset)
    bound = reference.dual_value(solution.alpha, X, y, theta, reference.like(loss), offset)
    assert 0.0 <= solution.gap <= tol * scale
    assert_allclose(value, solution.value, rtol=1e-7, atol=1e-9 * scale)
    assert value - bound <= tol * scale + 1e-8 * scale
    assert value - bound >= -1e-8 * scale


def check_optimality(solution, X, y, loss, offset, slack=1e-5):
    """Every alpha_i lies between the one-sided difference quotients of its loss, and v = -theta
    X'alpha/n.
    """
    z = offset + X @ solution.coef
    step = 1e-4
    left = (loss.value(z, y) - loss.value(z - step, y)) / step
    right = (loss.value(z + step, y) - loss.value(z, y)) / step
    curvature = step if loss.dual_box(y).quadratic else 0.0
    assert (solution.alpha >= left - slack - curvature).all()
    assert (solution.alpha <= right + slack + curvature).all()


def test_every_loss_is_a_case():
    assert set(CASES) == set(LOSSES)


# --- exact ---------------------------------------------------------------------------------------


@losses
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("with_offset", [False, True])
def test_exact_against_a_general_optimiser(loss, n, d, with_offset):
    rng = np.random.default_rng(100 * n + d)
    X, y = random_task(rng, n, d, loss)
    theta = random_theta(rng, d)
    shift = rng.normal(size=n) if with_offset else None
    offset = np.zeros(n) if shift is None else shift
    solution = solve(X, y, theta, loss, offset=shift, tol=1e-12)
    assert solution.converged
    check_certificate(solution, X, y, theta, loss, offset, 1e-12)
    check_optimality(solution, X, y, loss, offset)
    assert_allclose(solution.coef, -theta @ X.T @ solution.alpha / n, rtol=1e-6, atol=1e-6)
    expected = reference.exact(X, y, theta, reference.like(loss), offset).w
    value = reference.regularised_risk(expected, X, y, theta, reference.like(loss), offset)
    assert_allclose(solution.value, value, rtol=1e-9, atol=1e-10)
    assert_allclose(solution.coef, expected, atol=1e-4, rtol=1e-4)


@losses
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_rank_deficient_theta(loss, rank):
    rng = np.random.default_rng(rank)
    n, d = 14, 6
    X, y = random_task(rng, n, d, loss)
    theta = random_theta(rng, d, rank)
    offset = rng.normal(size=n)
    solution = solve(X, y, theta, loss, offset=offset, tol=1e-11)
    check_certificate(solution, X, y, theta, loss, offset, 1e-11)
    check_optimality(solution, X, y, loss, offset)
    literal = reference.like(loss)
    expected = reference.exact(X, y, theta, literal, offset).w
    assert_allclose(
        solution.value,
        reference.regularised_risk(expected, X, y, theta, literal, offset),
        rtol=1e-8,
    )


@losses
@inners
def test_zero_theta_leaves_the_prior(loss, inner):
    rng = np.random.default_rng(5)
    for n, d in [(8, 3), (2, 9)]:
        X, y = random_task(rng, n, d, loss)
        offset = rng.normal(size=n)
        solution = solve(X, y, np.zeros((d, d)), loss, inner=inner, offset=offset)
        assert_array_equal(solution.coef, np.zeros(d))
        assert_allclose(solution.alpha, loss.subgradient(offset, y), rtol=1e-14)
        assert_allclose(solution.value, zero_value(y, loss, offset), rtol=1e-14)
        assert solution.gap <= 1e-15
        assert solution.converged


@settings(max_examples=150, deadline=None)
@given(
    loss=st.sampled_from(list(CASES.values())),
    n=st.integers(1, 30),
    d=st.integers(1, 12),
    rank=st.integers(0, 12),
    scale=st.floats(-6, 6),
    ridge=st.floats(-8, 0),
    kind=st.sampled_from(["normal", "one-hot", "integers", "duplicates"]),
    with_offset=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_certificate_holds(loss, n, d, rank, scale, ridge, kind, with_offset, seed):
    rng = np.random.default_rng(seed)
    X, y = random_task(rng, n, d, loss)
    if kind == "one-hot":
        X = np.eye(d)[rng.integers(0, d, n)]
    elif kind == "integers":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "duplicates":
        X = X[rng.integers(0, n // 2 + 1, n)]
    theta = random_theta(rng, d, min(rank, d)) + (10.0**ridge * np.eye(d) if rank % 2 else 0.0)
    theta *= 10.0**scale
    offset = rng.normal(size=n) if with_offset else np.zeros(n)
    tol = 1e-8
    solution = solve(X, y, theta, loss, offset=offset, tol=tol)  # warnings are errors
    assert solution.converged
    assert 0.0 <= solution.gap <= tol * zero_value(y, loss, offset)
    literal = reference.like(loss)
    low, high = np.transpose([literal.domain(target) for target in y])
    assert ((low <= solution.alpha) & (solution.alpha <= high)).all()
    # independently of the solver's own account, as far as rounding lets a primal value be computed
    # from v
    value = loss.value(offset + X @ solution.coef, y).mean()
    noise = np.finfo(float).eps * n * d * np.abs(X).max() ** 2 * np.abs(theta).max()
    bound = reference.dual_value(solution.alpha, X, y, theta, literal, offset)
    u = X.T @ solution.alpha / n
    slack = 1e-6 * zero_value(y, loss, offset) + 10 * noise
    assert value + 0.5 * u @ theta @ u - bound <= slack


@losses
def test_gaps_reach_rounding(loss):
    rng = np.random.default_rng(9)
    for n, d in [(40, 20), (10, 25)]:
        X, y = random_task(rng, n, d, loss)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        low_rank = random_theta(rng, d, 2)
        for theta in (4 * np.eye(d), 100 * low_rank + 0.1 * np.eye(d)):
            solution = solve(X, y, theta, loss, tol=1e-14)
            assert solution.converged


@smooth
def test_a_theta_beyond_rounding_leaves_no_penalty(loss):
    """Columns that depend on each other lose the identity in I + Z'Z; the loss alone has its
    minimum where X'alpha = 0.
    """
    for seed in range(4):
        X, y = random_task(np.random.default_rng(seed), 12, 4, loss)
        X[:, 1], X[:, 3] = X[:, 0], X[:, 2] + X[:, 0]
        solution = solve(X, y, 1e20 * np.eye(4), loss)
        assert solution.converged
        assert_allclose(X.T @ solution.alpha, 0.0, atol=1e-8)


def test_a_huber_loss_at_its_corner():
    """One row, one column: P(v) = huber(xv - y) + v²/2; with x = 2, y = 3 and delta = 1 the
    residual ends at the corner.
    """
    loss = Huber(1.0)
    # x v - y = -1 at v = 1, and -x·(-1) = 2 v there if theta is 1/2: v = theta · x · 1
    found = solve(np.array([[2.0]]), np.array([3.0]), np.array([[0.5]]), loss)
    assert found.coef[0] == pytest.approx(1.0, abs=1e-8)
    assert found.alpha[0] == pytest.approx(-1.0, abs=1e-8)
    assert found.value == pytest.approx(0.5 + 1.0, abs=1e-8)  # huber(-1) = 1/2, and v'theta⁺v/2 = 1


# --- online --------------------------------------------------------------------------------------


@losses
@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("with_offset", [False, True])
def test_online_against_the_literal_loop(loss, n, d, with_offset):
    rng = np.random.default_rng(1000 * n + d)
    X, y = random_task(rng, n, d, loss)
    theta = 0.2 * random_theta(rng, d, min(d, 4)) / d
    shift = rng.normal(size=n) if with_offset else None
    offset = np.zeros(n) if shift is None else shift
    solution = solve(X, y, theta, loss, inner="online", offset=shift)
    literal = reference.like(loss)
    coef, alpha = reference.online(X, y, theta, literal.subgradient, offset)
    assert_allclose(solution.coef, coef, rtol=1e-12, atol=1e-12)
    assert_allclose(solution.alpha, alpha, rtol=1e-12, atol=1e-12)
    value = reference.regularised_risk(coef, X, y, theta, literal, offset)
    gap = value - reference.dual_value(alpha, X, y, theta, literal, offset)
    assert_allclose(solution.value, value, rtol=1e-9)
    assert_allclose(solution.gap, gap, rtol=1e-8, atol=1e-12)
    assert solution.gap >= 0.0
    best = solve(X, y, theta, loss, offset=shift, tol=1e-12)
    assert best.value <= solution.value * (1 + 1e-12)
    assert solution.value - best.value <= solution.gap + 1e-10
    assert solution.converged
    assert solution.n_iter == 1


def test_online_takes_the_subgradient_nearest_zero_at_ties():
    # the second row is predicted exactly: 1 = <e_1, w_2>
    X, y = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0, 0.0])
    solution = solve(X, y, np.eye(2), CASES["absolute"], inner="online")
    assert_array_equal(solution.alpha, [-1.0, 0.0, 0.0])
    assert_allclose(solution.coef, [(1 + 1 / 2 + 1 / 3) / 3, 0.0])
