"""Bounds of the paper that its theorems are compared with or proved by."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tailored._utils.validation import check_positive, check_psd
from tailored.paper.theory import (
    Array,
    Bound,
    Quantities,
    check_range,
    conditional_optimum,
    power,
    trace_norm,
    weighted_root,
)


def variational_trace_norm(A: ArrayLike, B: ArrayLike) -> tuple[Array, float]:
    """Solve ``min over θ ⪰ 0, Ran(A) ⊆ Ran(θ) of Tr(θ†A) + Tr(θB) = 2 ‖B^½ A^½‖_*``.

    The minimum is attained at ``θ = B^{†/2} (B^½ A B^½)^½ B^{†/2}`` (Prop. 10).

    A and B are positive semidefinite with ``Ran(A) ⊆ Ran(B)``; otherwise the infimum is not
    attained.  Return the only minimiser whose range lies in that of B, (d, d), and the minimum.
    """
    B = check_psd(B, "B")
    A = check_psd(A, "A", len(B))
    check_range(A, B, ("A", "B"), "Prop. 10")
    return weighted_root(A, B), 2.0 * trace_norm(A, B)


def previous_oracle(W: ArrayLike) -> Array:
    """Return ``W^½ / Tr(W^½)``, the minimiser of ``Tr(θ†W)`` over ``θ ⪰ 0, Ran(W) ⊆ Ran(θ), Tr(θ)
    <= 1``.

    It is the oracle of the earlier, trace-constrained methods (Eq. 15).
    It minimises only the first term of the bound, and its scale must be set by a regularisation
    parameter.
    """
    root = power(check_psd(W, "W"), 0.5)
    trace = float(np.trace(root))
    # If all weights are zero, every feasible θ is a minimiser; return zero.
    return root / trace if trace > 0 else root


def within_task_generalization(quantities: Quantities, theta: ArrayLike | None = None) -> Bound:
    """Return the bound ``E [R_μ(w) - R_Z(w)] <= 2L²/n · Tr(θC_ρ)`` for ``w = A(θ, Z)`` (Prop. 6).

    By default, θ is the unconditional oracle.
    """
    C = quantities.mean(quantities.C)
    theta = quantities.theta if theta is None else check_psd(theta, "theta", len(C))
    return Bound(0.5 * quantities.factor**2 * float(np.trace(theta @ C)))


def unconditional_optimum(quantities: Quantities) -> Bound:
    """Return ``2L/√n · ‖W_ρ^½ C_ρ^½‖_*``, the smallest bound for one θ (Eq. 12)."""
    return conditional_optimum(quantities.unconditional())


def independent_learning(quantities: Quantities) -> Bound:
    """Return ``2L/√n · ‖W_ρ^½‖_F ‖C_ρ^½‖_F``, the bound of the best multiple of the identity,
    without transfer.
    """
    W, C = quantities.mean(quantities.W), quantities.mean(quantities.C)
    return Bound(float(quantities.factor * np.sqrt(np.trace(W) * np.trace(C))))


def trace_constrained_oracle(quantities: Quantities) -> Bound:
    """Return ``2L/√n · ‖W_ρ^½‖_* ‖C_ρ^½‖_∞``, the bound of the oracle of earlier work with its best
    regularisation.
    """
    W, C = quantities.mean(quantities.W), quantities.mean(quantities.C)
    largest = max(float(np.linalg.eigvalsh(C)[-1]), 0.0)
    return Bound(float(quantities.factor * np.trace(power(W, 0.5)) * np.sqrt(largest)))


def previous_optimum(quantities: Quantities) -> Bound:
    """Return ``2L/√n · min{‖W_ρ^½‖_* ‖C_ρ^½‖_∞, ‖W_ρ^½‖_F ‖C_ρ^½‖_F}``, which is at least
    `unconditional_optimum`.

    It is the bound of the better of the previous oracle and independent learning (Sec. 3).  By
    Hölder's inequality for these norms, the bound of the best representation without a trace
    constraint is at most as large.
    """
    both = {
        bound.__name__: bound(quantities).value
        for bound in (trace_constrained_oracle, independent_learning)
    }
    return Bound(min(both.values()), both)


def convergence_rate(
    quantities: Quantities, *, distance: float | None = None, step: float | None = None
) -> Bound:
    """Return a bound on the excess surrogate risk of Alg. 1 over (H, C).

    It is ``γ/2 · G² + ‖(H - H₀, C - C₀)‖_F² / (2γT)`` (Prop. 12), where ``G`` is
    `Quantities.gradient_norm` (the λ in the paper's statement is 1).  The default ``distance`` is
    that of the oracle.  The default step minimises the sum, which is then ``G · distance / √T``.
    """
    distance = check_positive("distance", quantities.distance if distance is None else distance)
    G, T = quantities.gradient_norm, quantities.T
    step = distance / (G * np.sqrt(T)) if step is None else check_positive("step", step)
    terms = {"gradients": step / 2.0 * G**2, "start": distance**2 / (2.0 * step * T)}
    return Bound(sum(terms.values()), terms, step)
