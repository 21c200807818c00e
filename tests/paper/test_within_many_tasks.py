"""Many tasks at once are a loop over them; warnings, errors and what is compiled."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from tailored.losses import get_loss
from tailored.paper import kernels
from within_samples import (
    CASES,
    inners,
    losses,
    random_task,
    random_theta,
    solve,
    solve_many,
    zero_value,
)

KERNELS = (kernels.exact, kernels.online)

# --- many tasks
# --------------------------------------------------------------------------------------------


def ragged_tasks(rng, loss, d, sizes=(7, 0, 1, 3, 30, 5, 0, 12, 2)):
    tasks = [random_task(rng, n, d, loss) for n in sizes]
    X, y = (np.concatenate(parts) for parts in zip(*tasks, strict=True))
    return X, y, np.concatenate([[0], np.cumsum(sizes)])


def assert_same(one, other):
    for left, right in zip(one, other, strict=True):
        assert_array_equal(left, right)


@losses
@inners
@pytest.mark.parametrize("d", [1, 6])
def test_ragged_tasks_equal_a_loop(loss, inner, d):
    rng = np.random.default_rng(16)
    X, y, offsets = ragged_tasks(rng, loss, d)
    n_tasks = len(offsets) - 1
    thetas = np.stack([random_theta(rng, d, 1 + t % d) / d for t in range(n_tasks)])
    offset = rng.normal(size=len(y))
    for shared in (False, True):
        many = solve_many(
            X,
            y,
            offsets,
            thetas[0] if shared else thetas,
            loss,
            inner=inner,
            offset=offset,
            tol=1e-10,
        )
        for t in range(n_tasks):
            rows = slice(offsets[t], offsets[t + 1])
            theta = thetas[0] if shared else thetas[t]
            one = solve(X[rows], y[rows], theta, loss, inner=inner, offset=offset[rows], tol=1e-10)
            assert_array_equal(one.coef, many.coef[t])
            assert_array_equal(one.alpha, many.alpha[rows])
            assert (one.value, one.gap) == (many.value[t], many.gap[t])
            assert (one.n_iter, one.converged) == (many.n_iter[t], many.converged[t])


@inners
def test_tasks_without_rows(inner):
    loss, nothing = CASES["absolute"], (np.empty((0, 3)), np.empty(0))
    coef, alpha, *numbers = solve(*nothing, np.eye(3), loss, inner=inner)
    assert_array_equal(coef, np.zeros(3))
    assert alpha.shape == (0,)
    assert numbers == [0.0, 0.0, 0, True]
    none = solve_many(*nothing, np.array([0]), np.empty((0, 3, 3)), loss, inner=inner)
    assert none.coef.shape == (0, 3)


@losses
@inners
def test_memory_layout_does_not_matter(loss, inner):
    rng = np.random.default_rng(18)
    X, y, offsets = ragged_tasks(rng, loss, 5)
    theta = random_theta(rng, 5)
    expected = solve_many(X, y, offsets, theta, loss, inner=inner)
    signatures = {kernel: len(kernel.signatures) for kernel in KERNELS}

    frozen = [np.array(array) for array in (X, y, offsets, theta)]
    for array in frozen:
        array.flags.writeable = False
    assert_same(expected, solve_many(*frozen, loss, inner=inner))
    assert_same(expected, solve_many(np.asfortranarray(X), y, offsets, theta.T, loss, inner=inner))
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    broadcast = np.broadcast_to(theta, (len(offsets) - 1, 5, 5))
    assert_same(
        expected, solve_many(wide, y, offsets.astype(np.int32), broadcast, loss, inner=inner)
    )
    # one compiled version serves them all
    assert signatures == {kernel: len(kernel.signatures) for kernel in KERNELS}
    assert max(signatures.values()) == 1


# --- status --------------------------------------------------------------------------------------


def test_not_reaching_the_tolerance_warns_and_names_the_tasks():
    rng = np.random.default_rng(20)
    loss = CASES["logistic"]
    X, y, offsets = ragged_tasks(rng, loss, 4)
    theta = 100 * random_theta(rng, 4)
    message = r"exact within-task algorithm.*duality gap above tol"
    with pytest.warns(ConvergenceWarning, match=message):
        one = solve(X[:7], y[:7], theta, loss, max_iter=1)
    assert not one.converged
    assert one.gap > 1e-8 * zero_value(y[:7], loss, 0.0)
    labels = [f"user {t}" for t in range(9)]
    message = r"7 of 9 tasks \('user 0', 'user 2', .* and 2 more\)"
    with pytest.warns(ConvergenceWarning, match=message):
        many = solve_many(X, y, offsets, theta, loss, max_iter=1, labels=labels)
    assert_array_equal(many.converged, np.diff(offsets) == 0)
    with pytest.warns(ConvergenceWarning, match=r"tasks \(0, 2, "):
        solve_many(X, y, offsets, theta, loss, max_iter=1)


def test_overflow_names_the_task():
    rng, loss = np.random.default_rng(15), CASES["squared"]
    X, y, offsets = ragged_tasks(rng, loss, 2, sizes=(0, 2, 40))
    thetas = np.eye(2) * np.array([1.0, 1.0, 1e30])[:, None, None]
    message = "Task 'c': the online within-task algorithm overflowed: X has"
    with pytest.raises(ValueError, match=message):
        solve_many(X, y, offsets, thetas, loss, inner="online", labels=["a", "b", "c"])
    # Inverse residuals, the weights of the first rounds, are infinite for subnormal numbers.
    X, offset = (
        1e-21 * np.array([[-6.6], [3.2], [-21.0], [-2.8]]),
        1e-311 * np.array([7.5, -4.8, 1.9, 8.3]),
    )
    message = "Task 0: the exact within-task algorithm overflowed: X has values up to"
    with pytest.raises(ValueError, match=message):
        solve(X, np.zeros(4), np.full((1, 1), 2.5e-101), CASES["absolute"], offset=offset)


def test_an_unreachable_tolerance_gives_up_soon():
    rng = np.random.default_rng(21)
    for loss in CASES.values():
        X, y = random_task(rng, 20, 7, loss)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve(X, y, 50 * random_theta(rng, 7), loss, tol=1e-300, max_iter=10**9)
        assert solution.n_iter < 200
        assert solution.gap < 1e-12 * zero_value(y, loss, 0.0)


def test_shapes_that_do_not_match():
    X, y, starts, loss = np.ones((6, 2)), np.ones(6), np.array([0, 2, 6]), CASES["absolute"]
    thetas = np.ones((2, 2, 2))
    solve_many(X, y, starts, thetas, loss)
    for wrong in [
        {"y": y[:5]},
        {"starts": np.array([0, 2, 7])},
        {"thetas": np.ones((3, 2, 2))},
        {"thetas": np.ones((3, 3))},
        {"offset": np.ones(5)},
    ]:
        arguments = {"X": X, "y": y, "starts": starts, "thetas": thetas, "loss": loss} | wrong
        with pytest.raises(ValueError, match="shapes of 2 tasks do not match"):
            solve_many(**arguments)


@pytest.mark.parametrize("tol", [1e-8, 1e-14])
def test_a_prior_mean_that_predicts_perfectly_is_no_reason_to_warn(tol):
    """P(0) is then the square of rounding errors, and no gap can be small beside it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 4))
    y = X @ rng.normal(size=4)
    offset = y * (1.0 + 4e-16 * rng.integers(-3, 4, size=12))
    theta, starts, loss = 1e6 * np.eye(4), np.array([0, 5, 12]), get_loss("squared")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = solve_many(X, y, starts, theta, loss, offset=offset, tol=tol)
    assert found.converged.all()
