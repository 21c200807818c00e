"""Steps of every form against those of the paper, and the projection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref
from representations import (
    all_kinds,
    close,
    exact_from_tensor,
    random_gradient,
    random_pair,
    random_psd,
    shapes,
    step_size,
)
from tailored.representation.conditioning import Constant, Dense, Factored, project_psd
from tailored.representation.exact import Exact


def reference_step(H, C, gradient, phi, step_C, step_H):
    I_phi = ref.lift(len(C), phi)
    return ref.project_psd(H - step_H * I_phi @ gradient @ I_phi.T), ref.project_psd(C - step_C * gradient)


# --- steps --------------------------------------------------------------------------------------------------


def scenario(rng, d, k, n_steps, phis):
    """Feature vectors for a run: fresh ones, one repeated for ever, few distinct ones, zeros in between."""
    if phis == "fresh":
        return rng.normal(size=(n_steps, k))
    if phis == "repeated":
        return np.tile(rng.normal(size=k), (n_steps, 1))
    if phis == "nearly repeated":
        return rng.normal(size=k) + 1e-7 * rng.normal(size=(n_steps, k))
    if phis == "nearly repeated, then fresh":
        # directions that are hardly outside the range must not spoil those that come after them
        spread = np.where(np.arange(n_steps) < 2 * n_steps // 3, 1e-6, 1.0)
        return rng.normal(size=k) + spread[:, None] * rng.normal(size=(n_steps, k))
    few = np.vstack([rng.normal(size=(2, k)), np.zeros((1, k))])
    return few[rng.integers(0, 3, size=n_steps)]


SCENARIOS = ["fresh", "repeated", "nearly repeated", "few", "nearly repeated, then fresh"]


@shapes
@pytest.mark.parametrize("phis", SCENARIOS)
@pytest.mark.parametrize(("step_C", "step_H"), [(0.05, 0.2), (1.0, 0.0), (0.0, 3.0)])
def test_steps_are_those_of_the_paper(d, k, phis, step_C, step_H):
    """60 steps: more than dk for every shape, so that the factored and the exact form fill up on the way."""
    rng = np.random.default_rng([d, k, SCENARIOS.index(phis)])
    C0 = random_psd(rng, d)
    H, C = np.zeros((d * k, d * k)), C0
    dense, factored, exact = Dense(H, C0), Factored.zero(C0, k), Exact(C0, k)
    constant = Constant(C0, k)
    for phi in scenario(rng, d, k, 60, phis):
        gradient = random_gradient(rng, d, n=3, lipschitz=0.3)
        H, C = reference_step(H, C, gradient, phi, step_C, step_H)
        for conditioning in (dense, factored, exact, constant):
            conditioning.step(gradient, phi, step_C, step_H)
            close(conditioning.C, C)
        scale = step_size(gradient, phi, step_H)
        close(dense.H, H, scale=scale)
        for conditioning in (factored, exact):
            close(conditioning.dense_H(), H, scale=scale)
            close(conditioning(phi), ref.tau(H, C, phi))
    Q = factored.basis
    assert Q.shape[1] <= d * k
    close(Q.T @ Q, np.eye(Q.shape[1]), 1e-9)
    assert (factored.eigenvalues > 0).all()
    E = exact.basis
    assert E.shape[1] == len(exact.P) <= d * k
    close(E.T @ E, np.eye(E.shape[1]), 1e-9)
    if step_H == 0:
        assert not H.any()
    else:
        assert H.any()


@shapes
@pytest.mark.parametrize("repeats", [1, 3])
def test_steps_from_a_given_tensor(d, k, repeats):
    """Also when M has duplicated slices, so that H has a smaller rank than M has slices."""
    rng = np.random.default_rng([d, k, repeats])
    M, C0 = random_pair(rng, d, k, 2)
    M = np.concatenate([M] * repeats)
    H, C = ref.H_from_tensor(M), C0
    kinds = [Dense(H, C0), Factored.from_tensor(M, C0), exact_from_tensor(M, C0)]
    for phi in rng.normal(size=(15, k)):
        gradient = random_gradient(rng, d, lipschitz=0.3)
        H, C = reference_step(H, C, gradient, phi, 0.1, 0.4)
        for conditioning in kinds:
            conditioning.step(gradient, phi, 0.1, 0.4)
            close(conditioning.dense_H(), H)


def test_steps_from_a_tensor_whose_H_has_eigenvalues_of_every_size():
    """From 1 down to 1e-14: the eigenbasis has to be orthonormal for the small ones too."""
    rng = np.random.default_rng(0)
    d, k = 3, 12
    M = np.linalg.qr(rng.normal(size=(10, d * k)).T)[0].T * np.logspace(0, -7, 10)[:, None]
    M = (np.linalg.qr(rng.normal(size=(10, 10)))[0] @ M).reshape(10, d, k)
    H, C = ref.H_from_tensor(M), np.eye(d)
    factored = Factored.from_tensor(M, C)
    close(factored.basis.T @ factored.basis, np.eye(factored.basis.shape[1]), 1e-9)
    for phi in rng.normal(size=(15, k)):
        gradient = random_gradient(rng, d, lipschitz=0.3)
        H, C = reference_step(H, C, gradient, phi, 0.1, 0.4)
        factored.step(gradient, phi, 0.1, 0.4)
        close(factored.dense_H(), H)


def test_each_step_of_the_surrogate_adds_at_most_one_direction():
    """G has one negative eigenvalue at most; the exact rank does reach T."""
    rng = np.random.default_rng(0)
    d, k = 4, 30
    factored = Factored.zero(np.eye(d), k)
    for t, phi in enumerate(rng.normal(size=(20, k))):
        factored.step(random_gradient(rng, d, lipschitz=0.05), phi, 0.1, 1.0)
        assert factored.basis.shape[1] <= t + 1
    assert factored.basis.shape[1] == 20


@shapes
def test_a_step_that_only_shrinks_leaves_no_direction_behind(d, k):
    """What remains of a direction that was projected away is rounding noise, not a direction."""
    rng = np.random.default_rng([d, k])
    factored = Factored.zero(np.eye(d), k)
    for phi in rng.normal(size=(5, k)):
        factored.step(random_psd(rng, d), phi, 0.1, 1.0)
        assert factored.basis.shape == (d * k, 0)
    phi, u = rng.normal(size=k), rng.normal(size=d)
    factored.step(-np.outer(u, u), phi, 0.1, 1.0)
    assert factored.basis.shape == (d * k, 1)
    factored.step(3 * np.outer(u, u) + np.eye(d), phi, 0.1, 1.0)
    assert factored.basis.shape == (d * k, 0)


def test_a_step_of_general_sign_is_projected_too():
    """Query gradients are rank two and may have any signs."""
    rng = np.random.default_rng(1)
    d, k = 4, 6
    H, C = np.zeros((d * k, d * k)), np.eye(d)
    kinds = [Dense(H, C), Factored.zero(C, k), Exact(C, k)]
    for phi in rng.normal(size=(30, k)):
        left, right = rng.normal(size=(2, d))
        gradient = 0.5 * (np.outer(left, right) + np.outer(right, left))
        H, C = reference_step(H, C, gradient, phi, 0.3, 0.3)
        for conditioning in kinds:
            conditioning.step(gradient, phi, 0.3, 0.3)
            close(conditioning.dense_H(), H)
            close(conditioning.C, C)


@shapes
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_limited_rank_is_the_best_truncation_of_the_same_step(d, k, rank):
    rng = np.random.default_rng([d, k, rank])
    C = np.eye(d)
    factored = Factored.zero(C, k, rank=rank)
    for phi in rng.normal(size=(40, k)):
        gradient = random_gradient(rng, d, lipschitz=0.2)
        full, C = reference_step(factored.dense_H(), C, gradient, phi, 0.05, 0.7)
        factored.step(gradient, phi, 0.05, 0.7)
        assert factored.basis.shape[1] == len(factored.eigenvalues) <= rank
        close(factored.dense_H(), ref.best_rank(full, rank), scale=step_size(gradient, phi, 0.7))
        close(factored.C, C)


@shapes
@pytest.mark.parametrize("rank", [None, 3])
def test_a_step_on_columns_is_the_full_step_with_a_zero_padded_gradient(d, k, rank):
    rng = np.random.default_rng([d, k])
    C0 = random_psd(rng, d)
    H, C = np.zeros((d * k, d * k)), C0
    kinds = [Dense(H, C0), Factored.zero(C0, k, rank), Exact(C0, k), Constant(C0, k)]
    twins = [conditioning.copy() for conditioning in kinds]
    scale = 0.0
    for phi in rng.normal(size=(25, k)):
        columns = rng.permutation(d)[: rng.integers(0, d + 1)]
        gradient = random_gradient(rng, len(columns), lipschitz=0.2)
        padded = np.zeros((d, d))
        padded[np.ix_(columns, columns)] = gradient
        H, C = reference_step(H, C, padded, phi, 0.1, 0.5)
        scale = max(scale, step_size(gradient, phi, 0.5))
        for conditioning, twin in zip(kinds, twins, strict=True):
            conditioning.step(gradient, phi, 0.1, 0.5, columns)
            twin.step(padded, phi, 0.1, 0.5)
            close(conditioning.dense_H(), twin.dense_H(), scale=scale)
            close(conditioning.C, C)
        for conditioning in kinds[0:3:2] if rank is not None else kinds[:3]:
            close(conditioning.dense_H(), H, scale=scale)


def test_a_zero_step_or_a_zero_phi_leaves_H_and_does_not_stop_C():
    rng = np.random.default_rng(2)
    d, k = 3, 4
    M, C = random_pair(rng, d, k, 2)
    H = ref.H_from_tensor(M)
    gradient = random_gradient(rng, d)
    for conditioning in all_kinds(M, C):
        conditioning.step(gradient, rng.normal(size=k), 0.0, 0.0)
        close(conditioning.C, C, 0.0)
        conditioning.step(gradient, np.zeros(k), 0.3, 5.0)
        close(conditioning.dense_H(), H, 1e-13)
        close(conditioning.C, ref.project_psd(C - 0.3 * gradient), 1e-13)


# --- projection ---------------------------------------------------------------------------------------------


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
