"""The surrogate: values against the paper's formulas, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from streams import CASES
from tailored.paper.algorithm_1 import Surrogate
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

every_loss = pytest.mark.parametrize("name", CASES)
#: A gap of g leaves an error of √g in smooth solutions; Newton's method of the logistic loss goes
#: further.
TOL = dict.fromkeys(CASES, 1e-13) | {"logistic": 1e-15}


def random_rows(rng, sizes, d, name, noise=0.3):
    """Ragged tasks: linear targets with noise, or labels ±1."""
    X, y = [], []
    for n in sizes:
        rows = rng.normal(size=(n, d))
        target = rows @ rng.normal(size=d) + noise * rng.normal(size=n)
        X.append(rows)
        y.append(np.where(target > 0, 1.0, -1.0) if name in ("logistic", "hinge") else target)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Rows(np.concatenate(X).reshape(-1, d), np.concatenate(y), offsets)


def random_thetas(rng, T, d, rank=None):
    roots = rng.normal(size=(T, d, d if rank is None else rank)) / np.sqrt(d)
    return np.matmul(roots, roots.transpose(0, 2, 1)) + (0.1 * np.eye(d) if rank is None else 0.0)


def symmetric_direction(rng, d):
    direction = rng.normal(size=(d, d))
    return (direction + direction.T) / 2


def central(function, step):
    """Two central differences and Richardson's extrapolation: an error of order step⁴."""
    wide = (function(step) - function(-step)) / (2 * step)
    narrow = (function(step / 2) - function(-step / 2)) / step
    return (4 * narrow - wide) / 3


def one_sided(function, step):
    """A forward difference of third order, for points on the border of the cone."""
    f = [function(i * step) for i in range(4)]
    return (-11 * f[0] + 18 * f[1] - 9 * f[2] + 2 * f[3]) / (6 * step)


SIZES = [6, 1, 0, 13, 3]


@every_loss
@pytest.mark.parametrize("rank", [None, 2])
def test_surrogate_value_and_gradients_are_those_of_the_paper(name, rank):
    loss, reference, L = CASES[name]
    rng = np.random.default_rng(7)
    d, T = 4, len(SIZES)
    rows, thetas = random_rows(rng, SIZES, d, name), random_thetas(rng, T, d, rank)
    objective = Surrogate(WithinTask(loss, tol=TOL[name]), L)
    for t in range(T):
        one = rows.tasks(t, t + 1)
        value, gradient = objective(one, thetas[t])
        expected = ref.surrogate(thetas[t], one.X, one.y, reference, L)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)
        alpha = ref.exact(one.X, one.y, thetas[t], reference).alpha
        expected = ref.surrogate_gradient(one.X, alpha, L)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-8)
        if not len(one.y):
            assert value == 0
            assert not gradient.any()


@every_loss
def test_surrogate_with_the_online_algorithm_uses_its_subgradients(name):
    loss, reference, L = CASES[name]
    rng = np.random.default_rng(8)
    d, T = 4, len(SIZES)
    rows, thetas = random_rows(rng, SIZES, d, name), random_thetas(rng, T, d)
    objective = Surrogate(WithinTask(loss, inner="online"), L)
    for t in range(T):
        one = rows.tasks(t, t + 1)
        value, gradient = objective(one, thetas[t])
        s = ref.online(one.X, one.y, thetas[t], reference.subgradient).alpha
        expected = ref.surrogate_gradient(one.X, s, L)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-10)
        assert np.isfinite(value)


@every_loss
def test_surrogate_gradients_are_finite_differences(name):
    loss, _, L = CASES[name]
    rng = np.random.default_rng(9)
    d, sizes = 3, [7, 1, 12]
    rows, thetas = random_rows(rng, sizes, d, name), random_thetas(rng, len(sizes), d)
    objective = Surrogate(WithinTask(loss, tol=TOL[name]), L)
    E = symmetric_direction(rng, d)
    for t, theta in enumerate(thetas):
        one = rows.tasks(t, t + 1)
        G = objective(one, theta)[1]
        np.testing.assert_array_equal(G, G.T)
        slope = central(lambda h, one=one, theta=theta: objective(one, theta + h * E)[0], 1e-3)
        assert slope == pytest.approx(np.sum(G * E), rel=2e-7, abs=2e-7)


@every_loss
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_surrogate_gradient_is_one_sided_on_the_border_of_the_cone(name, rank):
    """θ of rank 0, 1, 2 < d: differences into the cone, also out of Ran(θ)."""
    loss, _, L = CASES[name]
    rng = np.random.default_rng(10 + rank)
    d = 4
    rows, theta = random_rows(rng, [9], d, name), random_thetas(rng, 1, d, rank)[0]
    objective = Surrogate(WithinTask(loss, tol=TOL[name]), L)
    gradient = objective(rows, theta)[1]
    for _ in range(3):
        z = rng.normal(size=d)
        E = np.outer(z, z)
        slope = one_sided(lambda h, E=E: objective(rows, theta + h * E)[0], 1e-4)
        assert slope == pytest.approx(np.sum(gradient * E), rel=1e-6, abs=1e-6)


@every_loss
def test_the_form_through_the_pseudo_inverse_only_sees_the_range(name):
    """The two forms agree inside Ran(θ); at θ = 0 the printed one never points away from 0."""
    loss, reference, L = CASES[name]
    rng = np.random.default_rng(11)
    d = 3
    rows = random_rows(rng, [30], d, name, noise=0.0)
    L = 0.1 * L  # strong signal, so that leaving 0 lowers the objective
    full = random_thetas(rng, 1, d)
    X, y = rows.X, rows.y
    objective = Surrogate(WithinTask(loss, tol=TOL[name]), L)
    dual = objective(rows, full[0])[1]
    w = ref.exact(X, y, full[0], reference).w
    np.testing.assert_allclose(
        ref.surrogate_gradient_primal(X, w, full[0], L), dual, rtol=0, atol=1e-7
    )

    zero = np.zeros((d, d))
    dual = objective(rows, zero)[1]
    assert np.linalg.eigvalsh(dual)[0] < -1e-3
    assert np.abs(ref.project_psd(-dual)).max() > 1e-3
    w = ref.exact(X, y, zero, reference).w
    printed = ref.surrogate_gradient_primal(X, w, zero, L)
    assert np.abs(ref.project_psd(-printed)).max() < 1e-15
