"""τ(s) against the Kronecker product of the paper, and the projection onto the cone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref
from representations import (
    MANY,
    close,
    dense_H,
    from_tensor,
    learned,
    random_pair,
    random_psd,
    shapes,
)
from tailored.paper.algorithm_1 import StepSizes, Trajectory
from tailored.paper.projection import project_psd
from tailored.paper.representation import Conditioning

# --- values --------------------------------------------------------------------------------------


@shapes
@pytest.mark.parametrize("p", [1, 3, 40])
def test_evaluation_is_the_kronecker_product_of_the_paper(d, k, p):
    rng = np.random.default_rng([d, k, p])
    M, C = random_pair(rng, d, k, p)
    H = ref.H_from_tensor(M)
    phis = np.vstack([rng.normal(size=(4, k)), np.zeros((1, k))])
    conditioning = learned(M, C)
    assert conditioning.n_side == k
    expected = np.array([ref.tau(H, C, phi) for phi in phis])
    close(conditioning.evaluate(phis), expected, 1e-12)
    close(conditioning.evaluate(np.tile(phis, (20, 1))), np.tile(expected, (20, 1, 1)), 1e-12)
    assert conditioning.evaluate(phis[:0]).shape == (0, d, d)
    close(conditioning.mean(phis.T @ phis / 5), expected.mean(axis=0), 1e-12)
    for phi, tau in zip(phis, expected, strict=True):
        close(ref.tau_from_tensor(M, C, phi), tau, 1e-12)
        for iterate in (from_tensor(M, C), from_tensor(M, C, MANY)):
            close(iterate.theta(phi), tau, 1e-12)


@shapes
def test_constant_is_C_whatever_the_side_information(d, k):
    rng = np.random.default_rng([d, k])
    C, phis = random_psd(rng, d), rng.normal(size=(3, k))
    conditioning = Conditioning.constant(C, k)
    assert not conditioning.depends_on_task
    np.testing.assert_array_equal(conditioning.evaluate(phis), np.array([C] * 3))
    assert conditioning.evaluate(phis[:0]).shape == (0, d, d)
    np.testing.assert_array_equal(conditioning.H, np.zeros((d * k, d * k)))
    for phi in phis:
        for rank in (None, 2):
            iterate = Trajectory(StepSizes(1.0, 1.0), C, k, rank)
            np.testing.assert_array_equal(iterate.theta(phi), C)


@shapes
@pytest.mark.parametrize("p", [1, 2, 40])
def test_matrix_of_a_tensor(d, k, p):
    """Eqs. 84 to 87: H = AᵀA with A(:, (i−1)k + h) = M(:, i, h)."""
    M, C = random_pair(np.random.default_rng([d, k, p]), d, k, p)
    A = np.column_stack([M[:, i, h] for i in range(d) for h in range(k)])
    close(learned(M, C).H, A.T @ A, 1e-12)
    assert learned(M, C).depends_on_task
    for iterate in (from_tensor(M, C), from_tensor(M, C, MANY)):
        close(dense_H(iterate), A.T @ A, 1e-12)


@shapes
def test_trace_of_tau_is_at_most_that_of_H_times_the_squared_norm_of_phi(d, k):
    """Eq. 88, with C added on the left: an equality if every direction of H is one of φ."""
    rng = np.random.default_rng([d, k, 6])
    M, C = random_pair(rng, d, k, 4)
    phi = rng.normal(size=k)
    aligned = np.einsum("qi,h->qih", rng.normal(size=(4, d)), phi)
    for tensor, sharp in ((M, False), (aligned, True)):
        conditioning = learned(tensor, C)
        value = np.trace(conditioning.evaluate(phi[None])[0]) - np.trace(C)
        bound = np.trace(conditioning.H) * (phi @ phi)
        assert value <= bound * (1 + 1e-12)
        assert (value > bound * (1 - 1e-12)) == (sharp or k == 1)


@shapes
def test_directions_of_phi_are_orthogonal_and_of_equal_length(d, k):
    """Prop. 11: Σ v_i v_iᵀ, a step of H along −I, has the norm ‖φ‖², for v_i = vec(φ e_iᵀ) = (I ⊗
    φ) e_i.
    """
    phi = np.random.default_rng([d, k, 7]).normal(size=k)
    V = np.column_stack([np.outer(phi, e).flatten(order="F") for e in np.eye(d)])
    close(V, ref.lift(d, phi), 1e-15)
    close(V.T @ V, phi @ phi * np.eye(d), 1e-12)
    iterate = Trajectory(StepSizes(0.0, 1.0), np.eye(d), k)
    iterate.step(-np.eye(d), phi)
    close(dense_H(iterate), V @ V.T, 1e-12)
    assert np.linalg.norm(dense_H(iterate), 2) == pytest.approx(phi @ phi, rel=1e-12)


# --- the cone
# -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    shift=st.floats(-3, 3),
    scale=st.floats(-12, 12),
)
def test_projection_is_the_nearest_positive_semidefinite_matrix(size, seed, shift, scale):
    matrix = np.random.default_rng(seed).normal(size=(size, size)) + shift * np.eye(size)
    matrix *= 10.0**scale
    expected = ref.project_psd(matrix)
    projected = project_psd(matrix)
    assert np.abs(projected - expected).max() <= 1e-12 * np.abs(matrix).max()
    np.testing.assert_array_equal(projected, projected.T)
