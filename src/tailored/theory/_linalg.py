"""Square roots, ranges and checks of positive semidefinite matrices, for the closed forms of the theory."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.validation import check_psd
from ..tasks.rows import Array

#: Eigenvalues below this fraction of the largest one are rounding noise.  A square root would turn noise of
#: 1e-16 into 1e-8, so they are set to zero before any root is taken.
RANK_TOLERANCE = 1e-12

#: A matrix root is in a range if the norm of the part outside it, relative to its own norm, is at most this.
RANGE_TOLERANCE = 1e-6


def spectrum(matrix: Array) -> tuple[Array, Array]:
    """Return the non-zero eigenvalues (r,) of a positive semidefinite matrix and their eigenvectors (d, r)."""
    values, vectors = np.linalg.eigh(matrix)
    keep = values > RANK_TOLERANCE * max(float(values[-1]), 0.0)
    return values[keep], vectors[:, keep]


def power(matrix: Array, exponent: float) -> Array:
    """Return ``A^p`` on the range of A, zero elsewhere: ``A^½``, ``A†`` (-1), ``A^{†/2}`` (-½), projector (0)."""
    values, vectors = spectrum(matrix)
    return (vectors * values**exponent) @ vectors.T


def trace_norm(A: Array, B: Array) -> float:
    """Return ``‖A^½ B^½‖_*`` of two positive semidefinite matrices."""
    # Thin roots: a rank-one A costs a 1 x d product, and zero eigenvalues do not reappear as rounding noise.
    roots = [vectors * np.sqrt(values) for values, vectors in (spectrum(A), spectrum(B))]
    return float(np.linalg.svd(roots[0].T @ roots[1], compute_uv=False).sum())


def check_range(inner: Array, outer: Array, names: tuple[str, str], assumption: str) -> None:
    """Raise ValueError unless ``Ran(outer)`` contains ``Ran(inner)``."""
    values, vectors = spectrum(inner)
    root, basis = vectors * np.sqrt(values), spectrum(outer)[1]
    share = np.linalg.norm(root - basis @ (basis.T @ root)) / max(np.linalg.norm(root), np.finfo(float).tiny)
    if share > RANGE_TOLERANCE:
        a, b = names
        raise ValueError(
            f"Ran({a}) must be contained in Ran({b}) ({assumption}), but a share of {share:.2g} of "
            f"{a}^(1/2) lies outside it. Project {a} on the range of {b}, or add a small multiple of the "
            f"identity to {b}."
        )


def check_stack(name: str, matrices: Any, d: int | None = None) -> Array:
    """Return one covariance (d, d), or one per value of the side information (m, d, d), as a stack."""
    array = np.asarray(matrices, dtype=np.float64)
    if array.ndim not in (2, 3):
        raise ValueError(f"{name} must be a (d, d) matrix or a stack (m, d, d); got shape {array.shape}.")
    if array.ndim == 2:
        array = array[None]
    return np.array([check_psd(matrix, name, d) for matrix in array])


def check_probabilities(probabilities: Any, m: int) -> Array:
    """Return the probabilities of m values of the side information, uniform by default."""
    if probabilities is None:
        return np.full(m, 1.0 / m)
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != (m,) or not np.isfinite(p).all() or (p < 0).any() or abs(p.sum() - 1.0) > 1e-8:
        raise ValueError(
            f"probabilities must be {m} non-negative numbers with sum 1, one per value of the side "
            f"information; got {probabilities!r}."
        )
    return p / p.sum()
