"""Conditioning functions against the Kronecker products of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference as ref
from tailored.representation import Constant, Dense, Exact, Factored, project_psd
from tailored.representation.exact import eigenpairs_below

#: (d, k): never square, k = 1 and d = 1 included.
SHAPES = [(3, 5), (5, 3), (4, 1), (1, 4), (2, 7), (7, 2)]
shapes = pytest.mark.parametrize(("d", "k"), SHAPES)


def random_psd(rng, size, rank=None):
    root = rng.normal(size=(size, size if rank is None else rank))
    return root @ root.T


def random_gradient(rng, d, n=6, lipschitz=1.0):
    """A gradient of the surrogate: one negative direction, a Gram matrix on top."""
    X, alpha = rng.normal(size=(n, d)), rng.uniform(-1, 1, size=n)
    return ref.surrogate_gradient(X, alpha, lipschitz)


def reference_step(H, C, gradient, phi, step_C, step_H):
    I_phi = ref.lift(len(C), phi)
    return ref.project_psd(H - step_H * I_phi @ gradient @ I_phi.T), ref.project_psd(C - step_C * gradient)


def step_size(gradient, phi, step):
    """The largest entry of a step of H: what is left of H after it is known to rounding of this size."""
    return step * np.abs(gradient).max(initial=0.0) * np.abs(phi).max() ** 2


def close(actual, expected, tol=1e-9, scale=0.0):
    """Relative to the largest entry (and to ``scale``): rounding next to a large entry does not count."""
    scale = max(np.abs(expected).max(initial=0.0), scale, 1e-300)
    assert np.shape(actual) == np.shape(expected)
    assert np.abs(actual - expected).max(initial=0.0) <= tol * scale


def random_pair(rng, d, k, p):
    M, C = rng.normal(size=(p, d, k)), random_psd(rng, d, rank=max(1, d - 1))
    return M, C


def all_kinds(M, C):
    return [
        Dense(ref.H_from_tensor(M), C),
        Dense.from_tensor(M, C),
        Factored.from_tensor(M, C),
        exact_from_tensor(M, C),
    ]


def exact_from_tensor(M, C):
    """H = E P Eᵀ with a P that is not diagonal."""
    factored = Factored.from_tensor(M, C)
    turn = np.linalg.qr(np.random.default_rng(len(M)).normal(size=(len(factored.eigenvalues),) * 2))[0]
    P = turn.T @ np.diag(factored.eigenvalues) @ turn
    return Exact(C, factored.n_side, factored.basis @ turn, P)


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
        assert conditioning.tensor().shape == (0, d, k)
        assert (conditioning.spectrum() == 0).all()


def test_constant_without_side_information_has_an_empty_H():
    C = random_psd(np.random.default_rng(0), 3)
    conditioning = Constant(C)
    np.testing.assert_array_equal(conditioning.evaluate(np.zeros((2, 0))), np.array([C, C]))
    assert conditioning.tensor().shape == (0, 3, 0)
    assert conditioning.dense_H().shape == (0, 0)
    assert conditioning.spectrum().shape == (0,)


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
        if not isinstance(conditioning, Exact):
            conditioning.accumulate(conditioning.scale(3.0), 0.5)
        for original, copy in zip((M, C, H, gradient, phi), copies, strict=True):
            np.testing.assert_array_equal(original, copy)
        np.testing.assert_array_equal(other.dense_H(), before[0])
        np.testing.assert_array_equal(other.C, before[1])


# --- the tensor M and the matrix H --------------------------------------------------------------------------


@shapes
@pytest.mark.parametrize("p", [1, 2, 40])
def test_tensor_and_matrix_are_the_same_function_both_ways(d, k, p):
    rng = np.random.default_rng([d, k, p])
    M, C = random_pair(rng, d, k, p)
    H = ref.H_from_tensor(M)
    phi = rng.normal(size=k)
    for conditioning in all_kinds(M, C):
        close(conditioning.dense_H(), H, 1e-12)
        back = conditioning.tensor()
        assert back.shape[1:] == (d, k)
        assert back.shape[0] <= min(p, d * k)
        close(ref.H_from_tensor(back), H, 1e-12)
        close(ref.tau_from_tensor(back, C, phi), ref.tau(H, C, phi), 1e-12)
        close(Dense.from_tensor(back, C).H, H, 1e-12)
        close(Factored.from_tensor(back, C).dense_H(), H, 1e-12)


@shapes
def test_spectrum_holds_the_eigenvalues_of_H_in_decreasing_order(d, k):
    rng = np.random.default_rng([d, k])
    M, C = random_pair(rng, d, k, 3)
    expected = np.linalg.eigvalsh(ref.H_from_tensor(M))[::-1][: min(3, d * k)]
    for conditioning in all_kinds(M, C):
        spectrum = conditioning.spectrum()
        assert (np.diff(spectrum) <= 0).all()
        close(spectrum[: len(expected)], expected, 1e-10)
        close(
            spectrum[len(expected) :] + expected[0],
            np.full(len(spectrum) - len(expected), expected[0]),
            1e-13,
        )


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
    kinds = [Dense.from_tensor(M, C0), Factored.from_tensor(M, C0), exact_from_tensor(M, C0)]
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
    """G has one negative eigenvalue at most (design.md, section 1); the exact rank does reach T."""
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


# --- averages -----------------------------------------------------------------------------------------------


@shapes
def test_the_running_average_is_the_mean_of_the_iterates(d, k):
    rng = np.random.default_rng([d, k])
    C0 = random_psd(rng, d)
    zero = np.zeros((d * k, d * k))
    iterate = Factored.zero(C0, k)
    averages = [Dense(zero, np.zeros((d, d))), Factored.zero(np.zeros((d, d)), k)]
    dense_fed_dense, dense_iterate = Dense(zero, np.zeros((d, d))), Dense(zero, C0)
    Hs, Cs, scale = [], [], 0.0
    for t, phi in enumerate(rng.normal(size=(30, k))):
        Hs.append(iterate.dense_H())
        Cs.append(iterate.C.copy())
        for average in averages:
            average.accumulate(iterate, 1 / (t + 1))
            close(average.C, np.mean(Cs, axis=0), 1e-12)
            close(average.dense_H(), np.mean(Hs, axis=0), 1e-11)
        dense_fed_dense.accumulate(dense_iterate, 1 / (t + 1))
        close(dense_fed_dense.H, np.mean(Hs, axis=0), 1e-9, scale)
        gradient = random_gradient(rng, d, lipschitz=0.2)
        scale = max(scale, step_size(gradient, phi, 0.5))
        iterate.step(gradient, phi, 0.1, 0.5)
        dense_iterate.step(gradient, phi, 0.1, 0.5)


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


# --- the iterate with every direction -----------------------------------------------------------------------


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


@pytest.mark.parametrize(("d", "k"), [*SHAPES, (3, 9), (2, 60)])
@pytest.mark.parametrize("n_steps", [22, 80])
def test_exact_steps_are_dense_steps_and_their_change_is_the_difference(d, k, n_steps):
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
@pytest.mark.parametrize(("d", "k"), [(2, 20), (4, 30)])
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
