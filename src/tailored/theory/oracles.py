"""Closed forms: the representation that minimises the bound of Thm. bound_fixed_feature, and other oracles."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.validation import check_positive, check_psd
from ._linalg import Array, check_range, power, spectrum, trace_norm


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
