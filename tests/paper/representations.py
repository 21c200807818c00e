"""Random representations, gradients and steps."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from tailored.paper.algorithm_1 import StepSizes, Trajectory
from tailored.paper.projection import FactoredH
from tailored.paper.representation import Conditioning

#: (d, k): never square, k = 1 and d = 1 included.
SHAPES = [(3, 5), (5, 3), (4, 1), (1, 4), (2, 7), (7, 2)]
shapes = pytest.mark.parametrize(("d", "k"), SHAPES)
#: A limit on the rank that no H reaches here.
MANY = 1000


def random_psd(rng, size, rank=None):
    root = rng.normal(size=(size, size if rank is None else rank))
    return root @ root.T


def random_gradient(rng, d, n=6, lipschitz=1.0):
    """A gradient of the surrogate: one negative direction, and a Gram matrix."""
    X, alpha = rng.normal(size=(n, d)), rng.uniform(-1, 1, size=n)
    return ref.surrogate_gradient(X, alpha, lipschitz)


def step_size(gradient, phi, step):
    """The largest entry of a step of H: rounding errors of H after the step are relative to it."""
    return step * np.abs(gradient).max(initial=0.0) * np.abs(phi).max() ** 2


def close(actual, expected, tol=1e-9, scale=0.0):
    """Compare relative to the largest entry and to ``scale``."""
    scale = max(np.abs(expected).max(initial=0.0), scale, 1e-300)
    assert np.shape(actual) == np.shape(expected)
    assert np.abs(actual - expected).max(initial=0.0) <= tol * scale


def random_pair(rng, d, k, p):
    M, C = rng.normal(size=(p, d, k)), random_psd(rng, d, rank=max(1, d - 1))
    return M, C


def dense_H(run):
    """H of the iterate of a run, (dk, dk)."""
    return run.steps.H * run.H.dense()


def learned(M, C):
    """The function with H = AᵀA, where the rows of A are the unfolded slices of M."""
    return Conditioning(C, M.reshape(len(M), -1).T)


def from_tensor(M, C, rank=None):
    """H = E P Eᵀ; P is diagonal if there is a rank, and is not otherwise."""
    p, d, k = M.shape
    vectors, singular, _ = np.linalg.svd(M.reshape(p, d * k).T, full_matrices=False)
    keep = singular > 1e-13 * singular[0]
    basis, P = vectors[:, keep][:, :rank], np.diag(singular[keep][:rank] ** 2)
    if rank is None:
        turn = np.linalg.qr(np.random.default_rng(p).normal(size=P.shape))[0]
        basis, P = basis @ turn, turn.T @ P @ turn
    iterate = Trajectory(StepSizes(1.0, 1.0), C, k, rank)
    iterate.H = FactoredH(np.asfortranarray(basis), np.asfortranarray(P))
    return iterate


def reference_step(H, C, gradient, phi, step_C, step_H):
    """One step of Algorithm 1, as the paper prints it."""
    I_phi = ref.lift(len(C), phi)
    return ref.project_psd(H - step_H * I_phi @ gradient @ I_phi.T), ref.project_psd(
        C - step_C * gradient
    )
