"""The iterate with every direction."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from representations import SHAPES, close, random_gradient, step_size
from tailored.representation.conditioning import Dense
from tailored.representation.exact import Exact, eigenpairs_below


def some_steps(rng, d, k, n_steps):
    """Gradients as the surrogate gives them, of tasks with all inputs, with some (one-hot), and with none."""
    for t in range(n_steps):
        u, X = rng.normal(size=d), rng.normal(size=(4, d))
        if t % 4 == 1 and d > 1:
            u[0], X[:, 0] = 0.0, 0.0
        gradient = -0.5 * np.outer(u, u) + 0.1 * X.T @ X
        phi = np.zeros(k) if t == 5 else rng.normal(size=k)
        yield (np.zeros((d, d)) if t == 9 else gradient), phi


def change_of(exact, d, k):
    """The last step's change of H, as a matrix, from its parts."""
    if exact.change is None:
        return np.zeros((d * k, d * k))
    phi, used, moved, removed, values = exact.change
    G = np.zeros((d, d))
    G[np.ix_(used, used)] = moved
    return ref.lift(d, phi) @ G @ ref.lift(d, phi).T - (removed * values) @ removed.T


@pytest.mark.parametrize(
    ("n_steps", "d", "k"),
    [
        *((n, d, k) for d, k in (*SHAPES, (3, 9)) for n in (22, 80)),
        (22, 2, 60),
        pytest.param(80, 2, 60, marks=pytest.mark.slow),
    ],
)
def test_exact_steps_are_dense_steps_and_their_change_is_the_difference(n_steps, d, k):
    """80 steps fill the space of all shapes but the last; there the basis grows past its first room."""
    rng = np.random.default_rng([d, k, n_steps])
    exact, dense = Exact(np.eye(d), k), Dense(np.zeros((d * k, d * k)), np.eye(d))
    for gradient, phi in some_steps(rng, d, k, n_steps):
        before, scale = dense.H.copy(), max(np.abs(dense.H).max(), step_size(gradient, phi, 0.3))
        exact.step(gradient, phi, 0.3, 0.3)
        dense.step(gradient, phi, 0.3, 0.3)
        close(exact.dense_H(), dense.H, 1e-11, scale)
        close(exact.C, dense.C, 1e-11)
        close(exact(phi), dense(phi), 1e-10, scale * max(phi @ phi, 1.0))
        close(before + change_of(exact, d, k), dense.H, 1e-11, scale)
        np.testing.assert_allclose(exact.basis.T @ exact.basis, np.eye(len(exact.P)), atol=1e-12)
        np.testing.assert_array_equal(exact.P, exact.P.T)
        if exact.change is not None:
            np.testing.assert_allclose(exact.basis.T @ exact.change.removed, 0.0, atol=1e-12)
            assert (exact.change.values <= 1e-12 * scale * max(phi @ phi, 1.0)).all()
    assert len(exact.P) == np.linalg.matrix_rank(dense.H, tol=1e-10 * np.abs(dense.H).max())


@pytest.mark.parametrize("used", [1, 3])
def test_exact_steps_beyond_full_rank(used):
    """r + m > dk: the basis becomes the whole space, whether the step uses one input or all of them."""
    rng = np.random.default_rng(used)
    d, k = 3, 2
    exact, dense = Exact(np.eye(d), k), Dense(np.zeros((d * k, d * k)), np.eye(d))
    full = []
    for t in range(40):
        columns = np.sort(rng.permutation(d)[: used if t > 15 else d])
        u, phi = rng.normal(size=len(columns)), rng.normal(size=k)
        # hardly anything that shrinks: H fills up
        gradient = -np.outer(u, u) + 1e-3 * np.eye(len(columns))
        full.append(len(exact.P) + len(columns) > d * k)
        for conditioning in (exact, dense):
            conditioning.step(gradient, phi, 0.1, 0.2, columns)
        close(exact.dense_H(), dense.H, 1e-11)
    assert full.count(True) > 10
    assert not full[0]
    assert len(exact.P) == d * k
    np.testing.assert_allclose(exact.basis.T @ exact.basis, np.eye(d * k), atol=1e-12)


@pytest.mark.parametrize("spread", [1e-5, 1e-6, 1e-7])
@pytest.mark.parametrize(("d", "k"), [(2, 20), pytest.param(4, 30, marks=pytest.mark.slow)])
def test_exact_keeps_its_basis_orthonormal_among_features_that_are_nearly_the_same(d, k, spread):
    """What is left of a direction outside the range may be far smaller than the direction; then fresh ones come."""
    for seed in range(3):
        rng = np.random.default_rng([d, k, seed])
        exact, dense = Exact(np.eye(d), k), Dense(np.zeros((d * k, d * k)), np.eye(d))
        centre = rng.normal(size=k)
        for t in range(80):
            phi = centre + spread * rng.normal(size=k) if t < 60 else rng.normal(size=k)
            gradient = random_gradient(rng, d, n=3, lipschitz=0.3)
            for conditioning in (exact, dense):
                conditioning.step(gradient, phi, 0.05, 0.5)
            np.testing.assert_allclose(exact.basis.T @ exact.basis, np.eye(len(exact.P)), atol=1e-11)
            close(exact.dense_H(), dense.H, 1e-11, step_size(gradient, phi, 0.5))


@pytest.mark.parametrize("kind", ["zero phi", "zero step", "zero gradient", "no columns"])
def test_exact_H_stands_still_where_nothing_moves_it(kind):
    rng = np.random.default_rng(6)
    d, k = 3, 4
    exact = Exact(np.eye(d), k)
    for gradient, phi in some_steps(rng, d, k, 5):
        exact.step(gradient, phi, 0.1, 0.5)
    before, C = exact.dense_H().copy(), exact.C.copy()
    assert exact.change is not None
    gradient, phi, columns = random_gradient(rng, d), rng.normal(size=k), None
    phi = np.zeros(k) if kind == "zero phi" else phi
    gradient = np.zeros((d, d)) if kind == "zero gradient" else gradient
    if kind == "no columns":
        gradient, columns = np.zeros((0, 0)), np.zeros(0, dtype=np.intp)
    exact.step(gradient, phi, 0.3, 0.0 if kind == "zero step" else 5.0, columns)
    np.testing.assert_array_equal(exact.dense_H(), before)
    assert exact.change is None
    padded = np.zeros((d, d)) if kind == "no columns" else gradient
    close(exact.C, ref.project_psd(C - 0.3 * padded), 1e-13)


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e308])
def test_exact_refuses_what_is_not_finite(value):
    exact = Exact(np.eye(2), 5)
    with pytest.raises(OverflowError), np.errstate(all="ignore"):
        exact.step(np.full((2, 2), value), np.ones(5), 10.0, 10.0)
    with pytest.raises(OverflowError, match="H"), np.errstate(all="ignore"):
        exact.step(np.full((2, 2), value), np.ones(5), 0.0, 10.0)


@pytest.mark.parametrize("n", [30, 150])
def test_eigenpairs_below(n):
    """Random, and with an eigenvalue of multiplicity n / 2 below the bound."""
    rng = np.random.default_rng(n)
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    for values in (np.linspace(-1, 5, n), np.repeat([-1.0, 2.0], n // 2)):
        M = (Q * values) @ Q.T
        M = (M + M.T) / 2
        found, vectors = eigenpairs_below(M, 0.0)
        np.testing.assert_allclose(found, values[values < 0], atol=1e-12)
        np.testing.assert_allclose(M @ vectors, vectors * found, atol=1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(found)), atol=1e-11)
    assert eigenpairs_below(np.eye(n), 0.0)[1].shape == (n, 0)
    split = np.diag(np.where(np.arange(n) % 3 == 0, -1.0, 1.0))
    vectors = eigenpairs_below(split, 0.0)[1]
    np.testing.assert_allclose(split @ vectors, -vectors, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e120])
@pytest.mark.parametrize("kind", ["clustered", "rank-deficient", "near zero", "zero"])
def test_eigenpairs_below_of_degenerate_matrices(kind, scale):
    """The same eigenvalues and the same invariant subspace as eigh, above `SMALL`."""
    n, m = 160, 19
    rng = np.random.default_rng(m)
    values = np.append(-np.geomspace(1e-3, 0.1, m), np.geomspace(1e-3, 1.0, n - m))
    if kind == "clustered":
        values[:m] = -0.1 * (1.0 + 1e-13 * rng.normal(size=m))
    elif kind == "rank-deficient":
        values[m : n // 2] = 0.0
    elif kind == "near zero":
        values[m : n // 2] = np.geomspace(1e-13, 1e-9, n // 2 - m)
    elif kind == "zero":
        values[:] = 0.0
    Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    M = scale * ((Q * values) @ Q.T)
    M = (M + M.T) / 2
    bound = -1e-4 * scale  # no eigenvalue is near the bound, so that the number of pairs is well defined
    found, vectors = eigenpairs_below(M, bound)
    expected, frame = np.linalg.eigh(M)
    below = expected <= bound
    assert len(found) == below.sum() == (0 if kind == "zero" else m)
    np.testing.assert_allclose(found, expected[below], rtol=0.0, atol=1e-14 * scale)
    np.testing.assert_allclose(M @ vectors, vectors * found, rtol=0.0, atol=1e-13 * scale)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(found)), atol=1e-12)
    np.testing.assert_allclose(vectors @ vectors.T, frame[:, below] @ frame[:, below].T, atol=1e-10)


def test_exact_keeps_its_basis_orthonormal_if_directions_are_mostly_inside():
    """With directions of norm 0.1 to 0.5 outside the range, the errors of one pass would multiply from step to step."""
    rng = np.random.default_rng(3)
    d, k = 4, 30
    exact, outside = Exact(np.eye(d), k), []
    for _ in range(100):
        phi = rng.normal(size=k) * np.geomspace(1.0, 0.005, k)
        inside = exact.basis.T.reshape(-1, d, k) @ phi / np.linalg.norm(phi)
        outside.append(np.sqrt(max(0.0, 1.0 - np.linalg.norm(inside, axis=0).max() ** 2)))
        exact.step(random_gradient(rng, d, n=3, lipschitz=0.3), phi, 0.05, 0.5)
        assert np.abs(exact.basis.T @ exact.basis - np.eye(len(exact.P))).max() < 1e-13
    assert sum(0.1 < norm < 0.5 for norm in outside) > 50
