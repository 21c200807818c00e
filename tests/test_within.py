"""Within-task solvers against the literal reference: certificates first, coefficients second."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import reference
from tailored.losses import LOSSES, get_loss
from tailored.within import WITHIN, solve, solve_many

PAIRS = {
    "absolute": (get_loss("absolute"), reference.absolute()),
    "pinball": (get_loss(("pinball", {"quantile": 0.3})), reference.pinball(0.3)),
    "epsilon_insensitive": (
        get_loss(("epsilon_insensitive", {"epsilon": 0.2})),
        reference.epsilon_insensitive(0.2),
    ),
    "huber": (get_loss(("huber", {"delta": 0.5})), reference.huber(0.5)),
    "squared": (get_loss("squared"), reference.squared()),
    "logistic": (get_loss("logistic"), reference.logistic()),
    "hinge": (get_loss("hinge"), reference.hinge()),
}
every_loss = pytest.mark.parametrize("name", list(LOSSES))


def task(name, n, d, seed, rank=None, scale=1.0):
    rng = np.random.default_rng([seed, n, d])
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) / np.sqrt(d) + 0.2 * rng.normal(size=n)
    if name in ("logistic", "hinge"):
        y = np.where(y > 0, 1.0, -1.0)
    root = rng.normal(size=(d, d if rank is None else rank))
    return X, y, scale * root @ root.T


def objective(w, X, y, theta, loss, offset=0.0):
    """P(w) through the pseudo-inverse."""
    return loss.value(offset + X @ w, y).mean() + 0.5 * w @ np.linalg.pinv(theta, rcond=1e-10) @ w


@every_loss
@pytest.mark.parametrize(
    ("n", "d", "rank"), [(7, 3, None), (3, 7, None), (1, 4, None), (12, 5, 2), (4, 9, 3)]
)
def test_exact_against_the_reference(name, n, d, rank):
    loss, literal = PAIRS[name]
    X, y, theta = task(name, n, d, 0, rank)
    offset = np.random.default_rng(n).normal(size=n)
    for o in (None, offset):
        solution = solve(X, y, theta, loss, offset=o, tol=1e-12)
        expected = reference.exact(X, y, theta, literal, offset=o)
        assert solution.converged
        assert 0.0 <= solution.gap <= 1e-12 * loss.value(np.zeros(n) if o is None else o, y).mean() + 1e-15
        np.testing.assert_allclose(solution.coef, expected.w, atol=2e-6)
        np.testing.assert_allclose(
            solution.value, objective(solution.coef, X, y, theta, loss, 0.0 if o is None else o), rtol=1e-8
        )
        # both solve the problem, so they agree to the square root of the gap
        np.testing.assert_allclose(solution.coef, -theta @ X.T @ solution.alpha / n, atol=2e-6)


@every_loss
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 15),
    d=st.integers(1, 8),
    exponent=st.integers(-6, 6),
    rank=st.integers(0, 8),
)
def test_certificate_and_optimality(name, seed, n, d, exponent, rank):
    """0 ≤ gap ≤ tol · P(0) for representations of any scale and rank, checked by a second computation."""
    loss, _ = PAIRS[name]
    X, y, theta = task(name, n, d, seed, min(rank, d), 10.0**exponent)
    solution = solve(X, y, theta, loss, tol=1e-8)
    start = loss.value(np.zeros(n), y).mean()
    assert solution.converged
    assert 0.0 <= solution.gap <= 1e-8 * start + 1e-300
    # an independent certificate: dual value from the conjugates, primal value from the predictions
    K = X @ theta @ X.T
    quadratic = solution.alpha @ K @ solution.alpha / n**2
    dual = -loss.conjugate(solution.alpha, y).mean() - 0.5 * quadratic
    primal = objective(solution.coef, X, y, theta, loss)
    assert np.isfinite(dual)
    assert primal - dual <= 1e-6 * start + 1e-9 * (quadratic + abs(dual))


@every_loss
def test_zero_representation(name):
    loss, _ = PAIRS[name]
    X, y, _ = task(name, 6, 3, 1)
    solution = solve(X, y, np.zeros((3, 3)), loss)
    np.testing.assert_array_equal(solution.coef, 0.0)
    np.testing.assert_allclose(solution.alpha, loss.subgradient(np.zeros(6), y))
    assert solution.gap <= 1e-12


@every_loss
def test_odd_rows(name):
    """Duplicated rows, zero rows, a constant column."""
    loss, literal = PAIRS[name]
    X, y, theta = task(name, 5, 3, 2)
    X[:, 1] = 1.0
    X = np.vstack([X, X, np.zeros((2, 3))])
    y = np.concatenate([y, y, y[:2]])
    solution = solve(X, y, theta, loss, tol=1e-12)
    assert solution.converged
    np.testing.assert_allclose(solution.coef, reference.exact(X, y, theta, literal).w, atol=2e-6)


@every_loss
@pytest.mark.parametrize(("n", "d", "rank"), [(7, 3, None), (4, 6, 2), (1, 2, None)])
def test_online_is_the_literal_loop(name, n, d, rank):
    loss, literal = PAIRS[name]
    X, y, theta = task(name, n, d, 3, rank)
    solution = solve(X, y, theta, loss, inner="online")
    expected = reference.online(X, y, theta, literal.subgradient)
    np.testing.assert_allclose(solution.coef, expected.w, atol=1e-9)
    np.testing.assert_allclose(solution.alpha, expected.alpha, atol=1e-9)
    np.testing.assert_allclose(solution.value, objective(solution.coef, X, y, theta, loss), rtol=1e-7)
    assert solution.gap >= solution.value - solve(X, y, theta, loss, tol=1e-12).value - 1e-10


@every_loss
@pytest.mark.parametrize("inner", list(WITHIN))
def test_many_ragged_tasks_are_the_same_bits_as_one_by_one(name, inner):
    loss, _ = PAIRS[name]
    sizes = [3, 0, 1, 12, 5, 2]
    parts = [task(name, n, 4, seed) for seed, n in enumerate(sizes)]
    X, y = np.vstack([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    offset = np.random.default_rng(0).normal(size=len(y))
    thetas, offsets = np.array([p[2] for p in parts]), np.concatenate([[0], np.cumsum(sizes)])
    many = solve_many(X, y, offsets, thetas, loss, inner=inner, offset=offset)
    for n_jobs in (2, 3):
        other = solve_many(X, y, offsets, thetas, loss, inner=inner, offset=offset, n_jobs=n_jobs)
        for a, b in zip(many, other, strict=True):
            np.testing.assert_array_equal(a, b)
    for t, n in enumerate(sizes):
        rows = slice(offsets[t], offsets[t + 1])
        one = solve(X[rows], y[rows], thetas[t], loss, inner=inner, offset=offset[rows])
        np.testing.assert_array_equal(one.coef, many.coef[t])
        np.testing.assert_array_equal(one.alpha, many.alpha[rows])
        assert (one.value, one.gap) == (many.value[t], many.gap[t])
        if n == 0:
            assert one.gap == one.value == 0.0
    shared = solve_many(X, y, offsets, thetas[0], loss, inner=inner)
    repeated = solve_many(X, y, offsets, np.repeat(thetas[:1], 6, axis=0), loss, inner=inner)
    np.testing.assert_array_equal(shared.coef, repeated.coef)


def test_homogeneity():
    """Absolute loss: y → c y and θ → c θ give w → c w."""
    loss, _ = PAIRS["absolute"]
    X, y, theta = task("absolute", 9, 4, 5)
    a, b = solve(X, y, theta, loss, tol=1e-13), solve(X, 7.0 * y, 7.0 * theta, loss, tol=1e-13)
    np.testing.assert_allclose(b.coef, 7.0 * a.coef, atol=1e-8)


def test_larger_shapes_converge():
    for n, d in ((400, 30), (30, 300)):
        X, y, theta = task("absolute", n, d, 6)
        assert solve(X, y, 10.0 * theta / d, PAIRS["absolute"][0]).converged


def test_not_reaching_the_tolerance_warns():
    X, y, theta = task("logistic", 60, 20, 7)
    with pytest.warns(ConvergenceWarning, match="gap"):
        solution = solve(X, y, 1e3 * theta, PAIRS["logistic"][0], tol=1e-14, max_iter=1)
    assert not solution.converged


def test_read_only_and_foreign_layouts():
    loss, _ = PAIRS["absolute"]
    X, y, theta = task("absolute", 6, 4, 8)
    expected = solve(X, y, theta, loss).coef
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(solve(frozen, y, theta, loss).coef, expected)
    np.testing.assert_array_equal(solve(np.asfortranarray(X), y, theta, loss).coef, expected)
