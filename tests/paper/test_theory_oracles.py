"""The closed forms against random perturbations, a generic solver and each other."""

import numpy as np
import pytest
from scipy.optimize import minimize

from studies.theory.bounds import previous_oracle, unconditional_optimum, variational_trace_norm
from tailored.paper.theory import Quantities, oracle_representation, power

# (d, rank of A, rank of B)
SHAPES = [(1, 1, 1), (4, 4, 4), (5, 2, 5), (6, 2, 4), (5, 0, 3)]


def random_pair(d, rank_A, rank_B, seed):
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((d, rank_B))
    B = F @ F.T
    G = F @ rng.standard_normal((rank_B, rank_A))
    return G @ G.T, B


def objective(theta, A, B):
    """Tr(θ†A) + Tr(θB), infinite where Ran(A) is not within Ran(θ)."""
    inverse = np.linalg.pinv(theta, rcond=1e-11, hermitian=True)
    if np.linalg.norm(theta @ inverse @ A - A) > 1e-6 * max(np.linalg.norm(A), 1e-300):
        return np.inf
    return np.trace(inverse @ A) + np.trace(theta @ B)


def minimise_over_factor(A, B, seed, within=None):
    """min over θ = FFᵀ by L-BFGS; F is square in the range of B (or of ``within``)."""
    values, vectors = np.linalg.eigh(B if within is None else within)
    basis = vectors[:, values > 1e-10 * values[-1]]
    a, b = basis.T @ A @ basis, basis.T @ B @ basis
    r = len(a)

    def value_and_gradient(flat):
        F = flat.reshape(r, r)
        inverse = np.linalg.inv(F @ F.T)
        gradient = 2.0 * (b - inverse @ a @ inverse) @ F
        return np.sum(inverse * a) + np.sum(F @ F.T * b), gradient.ravel()

    start = np.eye(r) + 0.1 * np.random.default_rng(seed).standard_normal((r, r))
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-10}
    result = minimize(
        value_and_gradient, start.ravel(), jac=True, method="L-BFGS-B", options=options
    )
    F = basis @ result.x.reshape(r, r)
    return result.fun, F @ F.T


@pytest.mark.parametrize("shape", SHAPES)
def test_variational_minimum_is_attained_by_its_minimiser(shape):
    A, B = random_pair(*shape, seed=0)
    minimiser, minimum = variational_trace_norm(A, B)
    assert objective(minimiser, A, B) == pytest.approx(minimum, rel=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_variational_minimiser_beats_random_feasible_perturbations(shape):
    A, B = random_pair(*shape, seed=1)
    minimiser, minimum = variational_trace_norm(A, B)
    rng = np.random.default_rng(2)
    values, vectors = np.linalg.eigh(minimiser)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    size = np.linalg.norm(root) or 1.0
    feasible = 0
    for i in range(1000):
        noise = 10.0 ** -(1 + i % 4) * size * rng.standard_normal(root.shape)
        value = objective((root + noise) @ (root + noise).T, A, B)
        feasible += np.isfinite(value)
        assert value >= minimum * (1 - 1e-9)
    assert feasible > 900


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 4, 4), (6, 4, 4)])
def test_variational_minimum_agrees_with_a_generic_solver(shape):
    A, B = random_pair(*shape, seed=3)
    minimiser, minimum = variational_trace_norm(A, B)
    value, theta = minimise_over_factor(A, B, seed=4)
    assert value == pytest.approx(minimum, rel=1e-6)
    np.testing.assert_allclose(theta, minimiser, atol=1e-6 * np.linalg.norm(minimiser))


def test_variational_minimum_of_a_singular_A_agrees_with_a_generic_solver():
    # Here the minimiser is singular, and a square factor creeps towards it for ever: the solver
    # searches the range of A, where the problem is smooth; the perturbations above have shown that
    # nothing else is better.
    A, B = random_pair(5, 2, 5, seed=5)
    minimiser, minimum = variational_trace_norm(A, B)
    value, theta = minimise_over_factor(A, B, seed=6, within=A)
    assert value == pytest.approx(minimum, rel=1e-6)
    np.testing.assert_allclose(theta, minimiser, atol=1e-6 * np.linalg.norm(minimiser))


@pytest.mark.parametrize(("d", "rank"), [(2, 1), (5, 2), (6, 5)])
def test_inverse_between_projectors_is_at_least_the_inverse_of_the_projection(d, rank):
    """Lemma 9, Pθ⁻¹P ⪰ (PθP)†, and the factors of its proof (Eqs. 55, 56 and 61)."""
    rng = np.random.default_rng(d)
    F, G = rng.standard_normal((d, rank)), rng.standard_normal((d, d))
    P, theta, identity = power(F @ F.T, 0.0), G @ G.T + 0.1 * np.eye(d), np.eye(d)
    inverse, Q = power(theta, -1.0), identity - P
    A, B, C = P @ theta @ P, P @ theta @ Q, Q @ theta @ Q
    step = B @ power(C, -1.0)
    middle = A - step @ B.T
    np.testing.assert_allclose(
        (identity + step) @ (middle + C) @ (identity + step.T), theta, atol=1e-10
    )
    expected = (identity - step.T) @ power(middle + C, -1.0) @ (identity - step)
    np.testing.assert_allclose(inverse, expected, atol=1e-8)
    np.testing.assert_allclose(P @ inverse @ P, power(middle, -1.0), atol=1e-8)
    difference = np.linalg.eigvalsh(P @ inverse @ P - power(A, -1.0))
    assert difference[0] >= -1e-9
    assert difference[-1] > 1e-3  # not an equality: θ does not commute with P


def test_minimisers_agree_in_the_range_of_B():
    """Prop. 10: projecting θ on Ran(B) never raises the value, and only one minimiser has its range
    there.
    """
    A, B = random_pair(6, 2, 4, seed=13)
    minimiser, minimum = variational_trace_norm(A, B)
    P, rng = power(B, 0.0), np.random.default_rng(14)
    np.testing.assert_allclose(P @ minimiser @ P, minimiser, atol=1e-10)
    outside = (np.eye(6) - P) @ rng.standard_normal((6, 2))
    other = minimiser + outside @ outside.T
    assert objective(other, A, B) == pytest.approx(minimum, rel=1e-9)
    np.testing.assert_allclose(P @ other @ P, minimiser, atol=1e-9)
    for _ in range(100):
        F = rng.standard_normal((6, 6))
        value, projected = (objective(theta, A, B) for theta in (F @ F.T, P @ F @ F.T @ P))
        assert minimum < projected <= value * (1 + 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("n", "L"), [(1, 1.0), (40, 0.3)])
def test_oracle_minimises_the_bound_of_a_fixed_function(shape, n, L):
    W, C = random_pair(*shape, seed=7)
    theta = oracle_representation(W, C, n, L)
    at_oracle = objective(theta, W / 2, 2 * L**2 / n * C)
    assert at_oracle == pytest.approx(
        unconditional_optimum(Quantities(W, C, n, L)).value, rel=1e-10
    )
    rng = np.random.default_rng(8)
    for i in range(1000):
        E = 10.0 ** -(1 + i % 3) * np.linalg.norm(theta) * rng.standard_normal((len(C), 2))
        assert objective(theta + E @ E.T, W / 2, 2 * L**2 / n * C) >= at_oracle * (1 - 1e-9)


def test_oracle_agrees_with_a_generic_solver():
    W, C = random_pair(4, 4, 4, seed=9)
    _, theta = minimise_over_factor(W / 2, 2 * 0.7**2 / 30 * C, seed=10)
    expected = oracle_representation(W, C, 30, 0.7)
    np.testing.assert_allclose(theta, expected, atol=1e-6 * np.linalg.norm(expected))


def test_oracle_of_commuting_matrices_is_elementwise():
    W, C = np.diag([4.0, 0.0, 1.0]), np.diag([1.0, 0.0, 9.0])
    np.testing.assert_allclose(
        oracle_representation(W, C, 16, 2.0), np.diag([2.0, 0.0, 1.0 / 3.0]), atol=1e-14
    )


def test_previous_oracle_minimises_over_the_trace_ball():
    W, _ = random_pair(5, 3, 5, seed=11)
    theta = previous_oracle(W)
    assert np.trace(theta) == pytest.approx(1.0)
    best = objective(theta, W, np.zeros((5, 5)))
    assert best == pytest.approx(
        np.trace(theta @ np.linalg.pinv(theta) @ W @ np.linalg.pinv(theta)), rel=1e-8
    )
    values, vectors = np.linalg.eigh(theta)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rng = np.random.default_rng(12)
    for i in range(1000):
        F = root + 10.0 ** -(1 + i % 4) * rng.standard_normal((5, 5))
        assert objective(F @ F.T / np.trace(F @ F.T), W, np.zeros((5, 5))) >= best * (1 - 1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"W": [[1.0, 1.0], [0.0, 1.0]]}, "W must be symmetric"),
        ({"W": np.diag([1.0, -1.0])}, "W must be positive semidefinite"),
        ({"C": np.diag([1.0, -1.0])}, "C must be positive semidefinite"),
        ({"C": np.diag([1.0, 0.0])}, r"Ran\(W\) must be contained in Ran\(C\)"),
        ({"C": np.eye(3)}, "W must be a"),
        ({"W": [[np.nan, 0.0], [0.0, 1.0]]}, "W contains NaN"),
        ({"n": 0}, "n must be a finite number > 0"),
        ({"L": 0.0}, "L must be a finite number > 0"),
        ({"L": np.inf}, "L must be a finite number > 0"),
    ],
)
def test_oracle_names_what_is_wrong(arguments, words):
    good = {"W": np.eye(2), "C": np.eye(2), "n": 10, "L": 1.0}
    with pytest.raises(ValueError, match=f"(?s){words}"):
        oracle_representation(**{**good, **arguments})
