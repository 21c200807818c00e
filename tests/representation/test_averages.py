"""Averages of iterates, positive semidefiniteness, overflow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref
from representations import SHAPES, close, random_gradient, random_pair, random_psd, shapes, step_size
from tailored.representation.conditioning import Constant, Dense, Factored
from tailored.representation.exact import Exact

# --- averages -----------------------------------------------------------------------------------------------


@shapes
def test_the_running_average_is_the_mean_of_the_iterates(d, k):
    rng = np.random.default_rng([d, k])
    C0 = random_psd(rng, d)
    iterate = Factored.zero(C0, k)
    average = Factored.zero(np.zeros((d, d)), k)
    Hs, Cs = [], []
    for t, phi in enumerate(rng.normal(size=(30, k))):
        Hs.append(iterate.dense_H())
        Cs.append(iterate.C.copy())
        average.accumulate(iterate, 1 / (t + 1))
        close(average.C, np.mean(Cs, axis=0), 1e-12)
        close(average.dense_H(), np.mean(Hs, axis=0), 1e-11)
        iterate.step(random_gradient(rng, d, lipschitz=0.2), phi, 0.1, 0.5)


def test_the_running_average_of_constants():
    rng = np.random.default_rng(5)
    iterates = [random_psd(rng, 3) for _ in range(7)]
    average = Constant(np.full((3, 3), np.pi), 2)
    for t, C in enumerate(iterates):
        average.accumulate(Constant(C, 2), 1 / (t + 1))
    close(average.C, np.mean(iterates, axis=0), 1e-14)


@shapes
def test_an_average_of_limited_rank_is_truncated_after_every_term(d, k):
    rng = np.random.default_rng([d, k])
    rank = 2
    average = Factored.zero(np.eye(d), k, rank=rank)
    H = np.zeros((d * k, d * k))
    for t in range(15):
        M, C = random_pair(rng, d, k, 3)
        average.accumulate(Factored.from_tensor(M, C, rank=rank), 1 / (t + 1))
        iterate = ref.best_rank(ref.H_from_tensor(M), rank)
        H = ref.best_rank(t / (t + 1) * H + iterate / (t + 1), rank)
        assert average.basis.shape[1] <= rank
        close(average.dense_H(), H)


def test_a_factored_average_refuses_a_dense_iterate():
    with pytest.raises(TypeError, match="factored"):
        Factored.zero(np.eye(2), 3).accumulate(Dense(np.eye(6), np.eye(2)), 0.5)


# --- properties ---------------------------------------------------------------------------------------------


def assert_psd(matrix, noise):
    """To 1e-10 relative; a matrix that is nothing but the ``noise`` of larger ones is zero."""
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-13 * max(np.abs(matrix).max(), noise))
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= -1e-10 * max(np.abs(values).max(), noise)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 2**32 - 1),
    steps=st.tuples(st.floats(-4, 4), st.floats(-4, 4)),
    phi_scale=st.floats(-3, 3),
    rank=st.sampled_from([None, 1, 4]),
)
def test_every_iterate_and_every_average_is_positive_semidefinite(shape, seed, steps, phi_scale, rank):
    d, k = shape
    rng = np.random.default_rng(seed)
    C0 = random_psd(rng, d, rank=rng.integers(0, d + 1))
    step_C, step_H = 10.0 ** steps[0], 10.0 ** steps[1]
    dense, exact = Dense(np.zeros((d * k, d * k)), C0), Exact(C0, k)
    factored, average = Factored.zero(C0, k, rank), Factored.zero(C0, k, rank)
    pool = 10.0**phi_scale * rng.normal(size=(8, k))
    moved_C, moved_H = np.abs(C0).max(), 0.0
    for t in range(12):
        phi = pool[rng.integers(0, 8)]
        gradient = random_gradient(rng, d, n=int(rng.integers(1, 8)), lipschitz=rng.choice([0.05, 1.0]))
        average.accumulate(factored, 1 / (t + 1))
        for conditioning in (dense, exact, factored):
            conditioning.step(gradient, phi, step_C, step_H)
        moved_C = max(moved_C, step_size(gradient, np.ones(1), step_C))
        moved_H = max(moved_H, step_size(gradient, phi, step_H))
        noise_C, noise_H = 1e-4 * moved_C, 1e-4 * moved_H
        close(exact.dense_H(), dense.H, 1e-8, scale=noise_H)
        if rank is None:
            close(factored.dense_H(), dense.H, 1e-8, scale=noise_H)
        for conditioning in (dense, exact, factored, average):
            assert_psd(conditioning.C, noise_C)
            assert_psd(conditioning.dense_H(), noise_H)
            assert_psd(conditioning(phi), noise_C + noise_H * phi @ phi)


# --- overflow -----------------------------------------------------------------------------------------------


def test_overflow_is_an_error_that_names_the_iterate():
    C = np.eye(2)
    gradient = -np.full((2, 2), 1e300)
    for conditioning in (Dense(np.eye(6), C), Factored.zero(C, 3), Exact(C, 3), Constant(C, 3)):
        with np.errstate(over="ignore", invalid="ignore"), pytest.raises(OverflowError, match="C"):
            conditioning.step(gradient, np.ones(3), 1e300, 0.0)
    for conditioning in (Dense(np.eye(6), C), Factored.zero(C, 3), Exact(C, 3)):
        with np.errstate(over="ignore", invalid="ignore"), pytest.raises(OverflowError, match="H"):
            conditioning.step(gradient, np.ones(3), 0.0, 1e300)


@pytest.mark.parametrize(
    "kind", ["dense", "factored", "factored and full", "limited", "constant", "exact", "exact and full"]
)
def test_a_diverging_run_ends_in_an_overflow_error_and_never_in_nan(kind):
    """Steps that grow a thousandfold: each one is finite and right, or an OverflowError."""
    rng = np.random.default_rng(0)
    d, k = 3, 2 if kind.endswith("full") else 9
    C = np.eye(d)
    conditioning = {
        "dense": Dense(np.zeros((d * k, d * k)), C),
        "factored": Factored.zero(C, k),
        "factored and full": Factored.from_tensor(np.eye(d * k).reshape(d * k, d, k), C),
        "limited": Factored.zero(C, k, rank=2),
        "constant": Constant(C, k),
        "exact": Exact(C, k),
        "exact and full": Exact(C, k, np.eye(d * k), np.eye(d * k)),
    }[kind]
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(300):
            gradient = random_gradient(rng, d, lipschitz=0.05)
            try:
                conditioning.step(
                    gradient, rng.normal(size=k), 10.0 ** min(3 * t, 308), 10.0 ** min(3 * t, 308)
                )
            except OverflowError:
                break
            assert np.isfinite(conditioning.dense_H()).all()
            assert np.isfinite(conditioning.C).all()
        else:
            pytest.fail("steps up to 1e308 for ever never overflowed")
