"""Random representations, gradients and steps."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from tailored.representation.conditioning import Dense, Factored
from tailored.representation.exact import Exact

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
        Factored.from_tensor(M, C),
        exact_from_tensor(M, C),
    ]


def exact_from_tensor(M, C):
    """H = E P Eᵀ with a P that is not diagonal."""
    factored = Factored.from_tensor(M, C)
    turn = np.linalg.qr(np.random.default_rng(len(M)).normal(size=(len(factored.eigenvalues),) * 2))[0]
    P = turn.T @ np.diag(factored.eigenvalues) @ turn
    return Exact(C, factored.n_side, factored.basis @ turn, P)
