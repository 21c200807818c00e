"""Projected steps of H = E P Eᵀ against those of the paper: with every direction, with a limited
rank, and their averages.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref
from representations import (
    MANY,
    SHAPES,
    close,
    dense_H,
    random_gradient,
    random_psd,
    reference_step,
    shapes,
    step_size,
)
from tailored.paper.algorithm_1 import RunningMean, StepSizes, Trajectory


def orthonormal(factored, tol=1e-12):
    E = factored.H.E
    np.testing.assert_allclose(E.T @ E, np.eye(E.shape[1]), atol=tol)


# --- steps ---------------------------------------------------------------------------------------


def scenario(rng, k, n_steps, phis):
    """Feature vectors for a run: new ones, nearly the same ones, or few distinct ones with zeros in
    between.
    """
    if phis == "new":
        return rng.normal(size=(n_steps, k))
    if phis == "nearly repeated, then new":
        # directions that are hardly outside the range must not spoil those that come after them
        spread = np.where(np.arange(n_steps) < 2 * n_steps // 3, 1e-6, 1.0)
        return rng.normal(size=k) + spread[:, None] * rng.normal(size=(n_steps, k))
    few = np.vstack([rng.normal(size=(2, k)), np.zeros((1, k))])
    return few[rng.integers(0, 3, size=n_steps)]


SCENARIOS = ["new", "few", "nearly repeated, then new"]


@shapes
@pytest.mark.parametrize("phis", SCENARIOS)
@pytest.mark.parametrize(("step_C", "step_H"), [(0.05, 0.2), (1.0, 0.0), (0.0, 3.0)])
def test_steps_are_those_of_the_paper(d, k, phis, step_C, step_H):
    """60 steps: more than dk for every shape, so that the range becomes the whole space."""
    rng = np.random.default_rng([d, k, SCENARIOS.index(phis)])
    C0 = random_psd(rng, d)
    H, C = np.zeros((d * k, d * k)), C0
    exact, limited = (Trajectory(StepSizes(step_C, step_H), C0, k, rank) for rank in (None, MANY))
    scale = 0.0
    for phi in scenario(rng, k, 60, phis):
        gradient = random_gradient(rng, d, n=3, lipschitz=0.3)
        H, C = reference_step(H, C, gradient, phi, step_C, step_H)
        for conditioning in (exact, limited):
            conditioning.step(gradient, phi)
            close(conditioning.C, C)
        scale = max(scale, step_size(gradient, phi, step_H))
        for conditioning in (exact, limited):
            close(dense_H(conditioning), H, scale=scale)
            close(conditioning.theta(phi), ref.tau(H, C, phi))
            orthonormal(conditioning, 1e-9)


@pytest.mark.parametrize("rank", [None, MANY])
@pytest.mark.parametrize("spread", [1e-5, 1e-6, 1e-7])
@pytest.mark.parametrize(("d", "k"), [(2, 20), pytest.param(4, 30, marks=pytest.mark.slow)])
def test_the_basis_stays_orthonormal_if_features_are_nearly_the_same(d, k, spread, rank):
    """The part of a direction outside the range may be far smaller than the direction; then new
    ones follow.
    """
    for seed in range(3):
        rng = np.random.default_rng([d, k, seed])
        factored = Trajectory(StepSizes(0.05, 0.5), np.eye(d), k, rank)
        H, C = np.zeros((d * k, d * k)), np.eye(d)
        centre = rng.normal(size=k)
        for t in range(80):
            phi = centre + spread * rng.normal(size=k) if t < 60 else rng.normal(size=k)
            gradient = random_gradient(rng, d, n=3, lipschitz=0.3)
            H, C = reference_step(H, C, gradient, phi, 0.05, 0.5)
            factored.step(gradient, phi)
            orthonormal(factored, 1e-11)
            close(dense_H(factored), H, 1e-11, step_size(gradient, phi, 0.5))


@shapes
@pytest.mark.parametrize("rank", [None, MANY])
@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_a_direction_that_is_projected_away_leaves_nothing_behind(d, k, rank, size):
    """Rounding noise beside the largest direction is not a direction, in any units."""
    rng = np.random.default_rng([d, k])
    factored = Trajectory(StepSizes(0.1, size), np.eye(d), k, rank)
    for phi in rng.normal(size=(5, k)):
        factored.step(random_psd(rng, d), phi)
        assert factored.H.E.shape == (d * k, 0)
    phi, u = rng.normal(size=k), rng.normal(size=d)
    for _ in range(2):
        factored.step(-np.outer(u, u), phi)
        assert factored.H.E.shape == (d * k, 1)
        vector = np.kron(u, phi)
        close(dense_H(factored), size * np.outer(vector, vector), 1e-12)
        factored.step(3 * np.outer(u, u) + np.eye(d), phi)
        assert factored.H.E.shape == (d * k, 0)


@shapes
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_limited_rank_is_the_best_truncation_of_the_same_step(d, k, rank):
    rng = np.random.default_rng([d, k, rank])
    C = np.eye(d)
    factored = Trajectory(StepSizes(0.05, 0.7), C, k, rank)
    for phi in rng.normal(size=(40, k)):
        gradient = random_gradient(rng, d, lipschitz=0.2)
        full, C = reference_step(dense_H(factored), C, gradient, phi, 0.05, 0.7)
        factored.step(gradient, phi)
        P = factored.H.P
        assert factored.H.E.shape[1] == len(P) <= rank
        np.testing.assert_array_equal(P, np.diag(P.diagonal()))
        close(dense_H(factored), ref.best_rank(full, rank), scale=step_size(gradient, phi, 0.7))
        close(factored.C, C)


# --- averages
# -----------------------------------------------------------------------------------------------


@shapes
@pytest.mark.parametrize("rank", [2, MANY])
def test_the_running_average_is_truncated_after_every_term(d, k, rank):
    """With a rank that is not reached, it is the mean of the iterates."""
    rng = np.random.default_rng([d, k])
    iterate = Trajectory(StepSizes(0.1, 0.5), random_psd(rng, d), k, rank)
    mean = RunningMean(d, k, rank)
    mean_H, mean_C = np.zeros((d * k, d * k)), np.zeros((d, d))
    for t, phi in enumerate(rng.normal(size=(30, k))):
        mean.add(iterate)
        mean_H = ref.best_rank((t * mean_H + dense_H(iterate)) / (t + 1), rank)
        mean_C = (t * mean_C + iterate.C) / (t + 1)
        average = mean.average(iterate)
        assert average.root.shape[1] <= rank
        close(average.H, mean_H, 1e-10)
        close(average.C, mean_C, 1e-12)
        iterate.step(random_gradient(rng, d, lipschitz=0.2), phi)


def assert_psd(matrix, noise):
    """To 1e-10 relative to the largest entry and to ``noise``, the size of the rounding errors."""
    np.testing.assert_allclose(
        matrix, matrix.T, rtol=0, atol=1e-13 * max(np.abs(matrix).max(), noise)
    )
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= -1e-10 * max(np.abs(values).max(), noise)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 2**32 - 1),
    steps=st.tuples(st.floats(-4, 4), st.floats(-4, 4)),
    phi_scale=st.floats(-3, 3),
    rank=st.sampled_from([1, 4, MANY]),
)
def test_every_iterate_and_every_average_is_positive_semidefinite(
    shape, seed, steps, phi_scale, rank
):
    d, k = shape
    rng = np.random.default_rng(seed)
    C0 = random_psd(rng, d, rank=rng.integers(0, d + 1))
    step_C, step_H = 10.0 ** steps[0], 10.0 ** steps[1]
    exact, limited = (Trajectory(StepSizes(step_C, step_H), C0, k, limit) for limit in (None, rank))
    mean = RunningMean(d, k, rank)
    H, C = np.zeros((d * k, d * k)), C0
    pool = 10.0**phi_scale * rng.normal(size=(8, k))
    moved_C, moved_H = np.abs(C0).max(), 0.0
    for _ in range(12):
        phi = pool[rng.integers(0, 8)]
        gradient = random_gradient(
            rng, d, n=int(rng.integers(1, 8)), lipschitz=rng.choice([0.05, 1.0])
        )
        mean.add(limited)
        H, C = reference_step(H, C, gradient, phi, step_C, step_H)
        for conditioning in (exact, limited):
            conditioning.step(gradient, phi)
        moved_C = max(moved_C, step_size(gradient, np.ones(1), step_C))
        moved_H = max(moved_H, step_size(gradient, phi, step_H))
        noise_C, noise_H = 1e-4 * moved_C, 1e-4 * moved_H
        close(dense_H(exact), H, 1e-8, scale=noise_H)
        if rank == MANY:
            close(dense_H(limited), H, 1e-8, scale=noise_H)
        average = mean.average(limited)
        for found, H_found, tau in (
            (exact, dense_H(exact), exact.theta(phi)),
            (limited, dense_H(limited), limited.theta(phi)),
            (average, average.H, average.evaluate(phi[None])[0]),
        ):
            assert_psd(found.C, noise_C)
            assert_psd(H_found, noise_H)
            assert_psd(tau, noise_C + noise_H * phi @ phi)
