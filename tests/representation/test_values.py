"""τ(s) of every form against the Kronecker product of the paper."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from representations import (
    all_kinds,
    close,
    exact_from_tensor,
    random_gradient,
    random_pair,
    random_psd,
    shapes,
)
from tailored.representation.conditioning import Constant, Dense, Factored
from tailored.representation.exact import Exact

# --- evaluation ---------------------------------------------------------------------------------------------


@shapes
@pytest.mark.parametrize("p", [1, 3, 40])
def test_evaluation_is_the_kronecker_product_of_the_paper(d, k, p):
    rng = np.random.default_rng([d, k, p])
    M, C = random_pair(rng, d, k, p)
    H = ref.H_from_tensor(M)
    phis = np.vstack([rng.normal(size=(4, k)), np.zeros((1, k))])
    columns = rng.permutation(d)[: max(1, d - 2)]
    vector = rng.normal(size=len(columns))
    for conditioning in all_kinds(M, C):
        assert (conditioning.n_features, conditioning.n_side) == (d, k)
        close(conditioning.evaluate(phis), np.array([ref.tau(H, C, phi) for phi in phis]), 1e-12)
        for phi in phis:
            expected = ref.tau(H, C, phi)
            close(ref.tau_from_tensor(M, C, phi), expected, 1e-12)
            close(conditioning(phi), expected, 1e-12)
            close(conditioning(phi, columns), expected[np.ix_(columns, columns)], 1e-12)
            close(conditioning.multiply(phi, columns, vector), expected[:, columns] @ vector, 1e-12)


def test_no_side_informations_evaluate_to_an_empty_array():
    rng = np.random.default_rng(0)
    M, C = random_pair(rng, 3, 2, 4)
    for conditioning in [*all_kinds(M, C), Constant(C, 2), Factored.zero(C, 2), Exact(C, 2)]:
        assert conditioning.evaluate(np.zeros((0, 2))).shape == (0, 3, 3)


@shapes
def test_constant_is_C_whatever_the_side_information(d, k):
    rng = np.random.default_rng([d, k])
    C = random_psd(rng, d)
    phis = rng.normal(size=(3, k))
    columns = rng.permutation(d)[: max(1, d - 1)]
    vector = rng.normal(size=len(columns))
    for conditioning in (
        Constant(C, k),
        Factored.zero(C, k),
        Exact(C, k),
        Dense(np.zeros((d * k, d * k)), C),
    ):
        np.testing.assert_array_equal(conditioning.evaluate(phis), np.array([C] * 3))
        for phi in phis:
            np.testing.assert_array_equal(conditioning(phi), C)
            np.testing.assert_array_equal(conditioning(phi, columns), C[np.ix_(columns, columns)])
            close(conditioning.multiply(phi, columns, vector), C[:, columns] @ vector, 1e-13)
        np.testing.assert_array_equal(conditioning.dense_H(), np.zeros((d * k, d * k)))


def test_constant_without_side_information_has_an_empty_H():
    C = random_psd(np.random.default_rng(0), 3)
    conditioning = Constant(C)
    np.testing.assert_array_equal(conditioning.evaluate(np.zeros((2, 0))), np.array([C, C]))
    assert conditioning.dense_H().shape == (0, 0)


def test_arguments_are_not_written_to():
    rng = np.random.default_rng(3)
    d, k = 3, 4
    M, C = random_pair(rng, d, k, 5)
    H, gradient, phi = ref.H_from_tensor(M), random_gradient(rng, d), rng.normal(size=k)
    copies = [a.copy() for a in (M, C, H, gradient, phi)]
    for conditioning in (Dense(H, C), Factored.from_tensor(M, C), Constant(C, k), exact_from_tensor(M, C)):
        other = conditioning.scale(2.0)
        before = other.dense_H().copy(), other.C.copy()
        conditioning.step(gradient, phi, 0.5, 0.5)
        if isinstance(conditioning, Constant | Factored):
            conditioning.accumulate(conditioning.scale(3.0), 0.5)
        for original, copy in zip((M, C, H, gradient, phi), copies, strict=True):
            np.testing.assert_array_equal(original, copy)
        np.testing.assert_array_equal(other.dense_H(), before[0])
        np.testing.assert_array_equal(other.C, before[1])


# --- the tensor M and the matrix H --------------------------------------------------------------------------


@shapes
@pytest.mark.parametrize("p", [1, 2, 40])
def test_matrix_of_a_tensor(d, k, p):
    rng = np.random.default_rng([d, k, p])
    M, C = random_pair(rng, d, k, p)
    for conditioning in all_kinds(M, C):
        close(conditioning.dense_H(), ref.H_from_tensor(M), 1e-12)
    assert len(Factored.from_tensor(M, C).eigenvalues) == min(p, d * k)


@shapes
def test_H_is_the_gram_matrix_of_the_unfolded_tensor(d, k):
    """Eqs. 84 to 87: H = AᵀA with A(:, (i−1)k + h) = M(:, i, h)."""
    M, C = random_pair(np.random.default_rng([d, k, 5]), d, k, 3)
    A = np.column_stack([M[:, i, h] for i in range(d) for h in range(k)])
    for conditioning in all_kinds(M, C):
        close(conditioning.dense_H(), A.T @ A, 1e-12)


@shapes
def test_trace_of_tau_is_at_most_that_of_H_times_the_squared_norm_of_phi(d, k):
    """Eq. 88, with C added on the left: equality where H sees no direction but that of φ."""
    rng = np.random.default_rng([d, k, 6])
    M, C = random_pair(rng, d, k, 4)
    phi = rng.normal(size=k)
    aligned = np.einsum("qi,h->qih", rng.normal(size=(4, d)), phi)
    for tensor, sharp in ((M, False), (aligned, True)):
        for conditioning in all_kinds(tensor, C):
            value = np.trace(conditioning(phi)) - np.trace(C)
            bound = np.trace(conditioning.dense_H()) * (phi @ phi)
            assert value <= bound * (1 + 1e-12)
            assert (value > bound * (1 - 1e-12)) == (sharp or k == 1)


@shapes
def test_directions_of_phi_are_orthogonal_and_of_equal_length(d, k):
    """Prop. 11: Σ v_i v_iᵀ, a step of H along −I, has the norm ‖φ‖², for v_i = vec(φ e_iᵀ) = (I ⊗ φ) e_i."""
    phi = np.random.default_rng([d, k, 7]).normal(size=k)
    V = np.column_stack([np.outer(phi, e).flatten(order="F") for e in np.eye(d)])
    close(V, ref.lift(d, phi), 1e-15)
    close(V.T @ V, phi @ phi * np.eye(d), 1e-12)
    conditioning = Dense(np.zeros((d * k, d * k)), np.eye(d))
    conditioning.step(-np.eye(d), phi, 0.0, 1.0)
    close(conditioning.dense_H(), V @ V.T, 1e-12)
    assert np.linalg.norm(conditioning.dense_H(), 2) == pytest.approx(phi @ phi, rel=1e-12)


@shapes
def test_from_tensor_of_limited_rank_is_the_best_approximation(d, k):
    rng = np.random.default_rng([d, k])
    M, C = random_pair(rng, d, k, 6)
    for rank in (1, 2, 100):
        conditioning = Factored.from_tensor(M, C, rank=rank)
        assert conditioning.basis.shape[1] <= rank
        close(conditioning.dense_H(), ref.best_rank(ref.H_from_tensor(M), rank), 1e-10)


@shapes
def test_scale_multiplies_the_function(d, k):
    rng = np.random.default_rng([d, k])
    M, C = random_pair(rng, d, k, 3)
    phi = rng.normal(size=k)
    for conditioning in [*all_kinds(M, C), Constant(C, k), Factored.from_tensor(M, C, rank=2)]:
        for factor in (0.0, 0.3, 16.0):
            scaled = conditioning.scale(factor)
            assert type(scaled) is type(conditioning)
            assert getattr(scaled, "rank", None) == getattr(conditioning, "rank", None)
            close(scaled(phi), factor * conditioning(phi), 1e-13)
            close(scaled.dense_H(), factor * conditioning.dense_H(), 1e-13)


def test_state_rebuilds_the_function():
    rng = np.random.default_rng(0)
    d, k = 3, 4
    M, C = random_pair(rng, d, k, 5)
    phi = rng.normal(size=k)
    for conditioning in [*all_kinds(M, C), Factored.from_tensor(M, C, rank=2), Constant(C, k)]:
        again = type(conditioning)(**conditioning.state())
        np.testing.assert_array_equal(again(phi), conditioning(phi))
        assert again.state().keys() == conditioning.state().keys()
        assert getattr(again, "rank", None) == getattr(conditioning, "rank", None)


def test_a_copy_is_independent():
    rng = np.random.default_rng(1)
    d, k = 3, 4
    M, C = random_pair(rng, d, k, 5)
    gradients, phis = [random_gradient(rng, d, lipschitz=0.1) for _ in range(6)], rng.normal(size=(6, k))
    for original in [*all_kinds(M, C), Factored.from_tensor(M, C, rank=2), Constant(C, k), Exact(C, k)]:
        # both ways round: neither the copy nor the original may follow the other
        for moved, still in ((original.copy(), original), (original, original.copy())):
            before = still.dense_H().copy(), still.C.copy()
            for gradient, phi in zip(gradients, phis, strict=True):
                moved.step(gradient, phi, 0.2, 0.5)
            np.testing.assert_array_equal(still.dense_H(), before[0])
            np.testing.assert_array_equal(still.C, before[1])
            assert np.abs(moved.C - before[1]).max() > 1e-3
