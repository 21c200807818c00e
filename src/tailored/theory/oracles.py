"""Oracles in closed form, and the operations on positive semidefinite matrices that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.validation import check_positive, check_psd
from ..tasks.rows import Array

#: Eigenvalues below this fraction of the largest one are rounding noise.  A square root would turn noise of
#: 1e-16 into 1e-8, so they are set to zero before any root is taken.
RANK_TOLERANCE = 1e-12

#: A matrix root is in a range if the norm of the part outside it, relative to its own norm, is at most this.
RANGE_TOLERANCE = 1e-6


def variational_trace_norm(A: Any, B: Any) -> tuple[Array, float]:
    """``min over θ ⪰ 0, Ran(A) ⊆ Ran(θ) of Tr(θ†A) + Tr(θB) = 2 ‖B^½ A^½‖_*``.

    The minimum is attained at ``θ = B^{†/2} (B^½ A B^½)^½ B^{†/2}`` (Prop. generalization-variational-trace-norm).

    A and B are positive semidefinite with ``Ran(A) ⊆ Ran(B)``; otherwise the infimum is not attained.  Return the only
    minimiser whose range lies in that of B, (d, d), and the minimum.
    """
    B = check_psd(B, "B")
    A = check_psd(A, "A", len(B))
    check_range(A, B, ("A", "B"), "Prop. generalization-variational-trace-norm")
    return _weighted_root(A, B), 2.0 * trace_norm(A, B)


def oracle_representation(W: Any, C: Any, n: float, L: float) -> Array:
    """``√n/(2L) · C^{†/2} (C^½ W C^½)^½ C^{†/2}``: the best representation in hindsight.

    The minimiser over θ of ``½ Tr(θ†W) + 2L²/n Tr(θC)``, the bound of Thm. bound_fixed_feature
    (Prop. oracle_function).  With ``W(s)``, ``C(s)`` it is the conditional oracle τ_ρ(s); with the averages
    of both over the environment it is the unconditional θ_ρ of Eq. oracle_unconditional.

    The arguments are those of `bounds`, with W and C of shape (d, d).  C may have any rank, with ``Ran(W) ⊆ Ran(C)``:
    a weight vector outside that range can be projected on it without changing a prediction.
    """
    C = check_psd(C, "C")
    W = check_psd(W, "W", len(C))
    n, L = check_positive("n", n), check_positive("L", L)
    check_range(W, C, ("W", "C"), "Cor. conditional-covariance-ranges")
    return np.sqrt(n) / (2.0 * L) * _weighted_root(W, C)


def previous_oracle(W: Any) -> Array:
    """``W^½ / Tr(W^½)``: the minimiser of ``Tr(θ†W)`` over ``θ ⪰ 0, Ran(W) ⊆ Ran(θ), Tr(θ) <= 1``.

    The oracle of the earlier, trace-constrained methods (Eq. previous_unconditional_oracle).  It minimises
    only the first half of the bound, and its scale depends on a regularisation parameter.
    """
    root = power(check_psd(W, "W"), 0.5)
    trace = float(np.trace(root))
    # If all weights are zero, every feasible θ is a minimiser; return zero.
    return root / trace if trace > 0 else root


def _weighted_root(A: Array, B: Array) -> Array:
    """``B^{†/2} (B^½ A B^½)^½ B^{†/2}``."""
    # (B^½ A B^½)^½ through the singular values of A^½ B^½: eigenvalues of the product would square the
    # condition number.  The thin root of A gives exactly rank(A) singular values, without rounding noise.
    values, vectors = spectrum(A)
    _, sizes, right = np.linalg.svd((vectors * np.sqrt(values)).T @ power(B, 0.5), full_matrices=False)
    half = power(B, -0.5) @ (right.T * np.sqrt(sizes))
    return half @ half.T


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
