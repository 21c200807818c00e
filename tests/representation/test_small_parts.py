"""What mutants showed that the other tests do not see: running means of b, H of any size, and a step to nothing."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from representations import close, exact_from_tensor
from tailored.representation.bias import Bias
from tailored.representation.conditioning import Dense, Factored


@pytest.mark.parametrize("kind", ["shared", "conditional"])
def test_a_running_mean_of_b_is_the_mean(kind):
    rng = np.random.default_rng(1)
    k = 2 if kind == "conditional" else 0
    given = [Bias(kind, rng.normal(size=3), rng.normal(size=(3, k))) for _ in range(4)]
    mean = given[0].copy()
    for n, other in enumerate(given[1:], start=2):
        mean.accumulate(other, 1.0 / n)
    close(mean.constant, np.mean([b.constant for b in given], axis=0), 1e-14)
    if k:
        close(mean.linear, np.mean([b.linear for b in given], axis=0), 1e-14)


@pytest.mark.parametrize("steps", [(1e200, 0.0), (1.0, 1e200)])
def test_a_step_of_b_that_no_number_holds(steps):
    """One of b₀ and B is enough."""
    bias = Bias.zero("conditional", 2, 1)
    with np.errstate(over="ignore"), pytest.raises(OverflowError, match="b is no longer finite"):
        bias.step(np.full(2, 1e200), np.ones(1), *steps)


@pytest.mark.parametrize("size", [1e-25, 1.0, 1e25])
def test_directions_count_beside_the_widest_and_not_beside_one(size):
    """H of a rank, in any units, from more directions than it has."""
    rng = np.random.default_rng(2)
    d, k, rank = 3, 2, 2
    M = np.sqrt(size) * rng.normal(size=(rank, d, k))
    factored = Factored.from_tensor(np.concatenate([M, M]), np.zeros((d, d)))
    assert len(factored.eigenvalues) == rank
    close(factored.dense_H(), 2.0 * ref.H_from_tensor(M), 1e-12)


def test_a_step_that_takes_everything_away_and_one_after_it():
    phi, other, C = np.array([1.0, 2.0, 0.5]), np.array([0.5, -1.0, 1.0]), np.eye(1)
    M = phi[None, None, :]
    exact, dense = exact_from_tensor(M, C), Dense(ref.H_from_tensor(M), C.copy())
    for conditioning in (exact, dense):
        conditioning.step(np.array([[50.0]]), phi, 0.0, 1.0)
    close(exact.dense_H(), np.zeros((3, 3)), 0.0, 1.0)
    for conditioning in (exact, dense):
        conditioning.step(np.array([[-2.0]]), other, 0.0, 0.5)
    close(exact.dense_H(), np.outer(other, other), 1e-12)
    close(dense.dense_H(), np.outer(other, other), 1e-12)
