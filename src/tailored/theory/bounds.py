"""The paper's bounds as functions of named quantities.

Arguments that several bounds share:

W, C : arrays (d, d) or (m, d, d)
    Second moments ``E w wᵀ`` of weight vectors and ``E x xᵀ`` of inputs: one matrix, or one for each of m values
    of the side information s, which have the given ``probabilities`` (uniform by default).
n, T : float
    Rows per task, and number of training tasks.
L : float
    Lipschitz constant of the loss.
R, K : float
    Bounds on the norms of inputs and of side-information features, ``‖x‖ <= R`` and ``‖Φ(s)‖ <= K``; ``K = 0`` is
    the unconditional case.
distance : float
    ``‖(H - H₀, C - C₀)‖_F`` from the initial value to the conditioning function of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._utils.validation import check_nonnegative, check_positive
from .oracles import Array, check_probabilities, check_range, check_stack, power, trace_norm


@dataclass(frozen=True)
class Bound:
    """An upper bound and its terms."""

    value: float
    #: The summands of ``value``; if ``value`` is a minimum, the numbers it is the minimum of.
    terms: dict[str, float] = field(default_factory=dict)
    #: The meta-step size for which the bound holds, if it depends on one.
    step: float | None = None
    #: Arguments that were estimated from data, and how.  If there are any, ``value`` is an estimate too.
    estimated: dict[str, str] = field(default_factory=dict)


def within_task_generalization(*, theta: Any, C: Any, n: float, L: float) -> Bound:
    """``E [R_μ(w) - R_Z(w)] <= 2L²/n · Tr(θC)`` for ``w = A(θ, Z)`` (Prop. generalization_error_RERM)."""
    n, L = check_positive("n", n), check_positive("L", L)
    C = check_stack("C", C)
    theta = check_stack("theta", theta, C.shape[-1])
    return Bound(2.0 * L**2 / n * _mean_trace(theta, C, np.ones(1)))


def fixed_function(*, tau: Any, W: Any, C: Any, n: float, L: float, probabilities: Any = None) -> Bound:
    """``E_s ½ Tr(τ(s)†W(s)) + 2L²/n E_s Tr(τ(s)C(s))``: excess risk of a given τ (Thm. bound_fixed_feature).

    ``tau`` has the values of the conditioning function, (d, d) or (m, d, d), with ``Ran(W(s)) ⊆ Ran(τ(s))``.
    """
    W, C, p, factor = _moments(W, C, probabilities, n, L)
    tau = check_stack("tau", tau, W.shape[-1])
    if len(tau) not in (1, len(p)):
        raise ValueError(f"tau has {len(tau)} values, W and C have {len(p)}: give one for each value of s.")
    tau = np.broadcast_to(tau, W.shape)
    for theta, one_W in zip(tau, W, strict=True):
        check_range(one_W, theta, ("W", "tau"), "Thm. bound_fixed_feature")
    inverses = np.array([power(theta, -1.0) for theta in tau])
    terms = {
        "approximation": 0.5 * _mean_trace(inverses, W, p),
        "generalization": 0.5 * factor**2 * _mean_trace(tau, C, p),
    }
    return Bound(sum(terms.values()), terms)


def conditional_optimum(*, W: Any, C: Any, n: float, L: float, probabilities: Any = None) -> Bound:
    """``2L/√n · E_s ‖W(s)^½ C(s)^½‖_*``: excess risk of the best τ in hindsight (Prop. oracle_function)."""
    W, C, p, factor = _moments(W, C, probabilities, n, L)
    for one_W, one_C in zip(W, C, strict=True):
        check_range(one_W, one_C, ("W", "C"), "Cor. conditional-covariance-ranges")
    mean = sum(q * trace_norm(a, b) for q, a, b in zip(p, W, C, strict=True))
    return Bound(float(factor * mean))


def unconditional_optimum(*, W: Any, C: Any, n: float, L: float, probabilities: Any = None) -> Bound:
    """``2L/√n · ‖W_ρ^½ C_ρ^½‖_*``: excess risk of the best single θ (Eq. optimal_unconditional_bound)."""
    W, C, p, _ = _moments(W, C, probabilities, n, L)
    return conditional_optimum(W=np.tensordot(p, W, 1), C=np.tensordot(p, C, 1), n=n, L=L)


def independent_learning(*, W: Any, C: Any, n: float, L: float, probabilities: Any = None) -> Bound:
    """``2L/√n · ‖W_ρ^½‖_F ‖C_ρ^½‖_F``: the best multiple of the identity, without transfer between tasks."""
    W, C, p, factor = _moments(W, C, probabilities, n, L)
    W, C = np.tensordot(p, W, 1), np.tensordot(p, C, 1)
    return Bound(float(factor * np.sqrt(np.trace(W) * np.trace(C))))


def trace_constrained_oracle(*, W: Any, C: Any, n: float, L: float, probabilities: Any = None) -> Bound:
    """``2L/√n · ‖W_ρ^½‖_* ‖C_ρ^½‖_∞``: the oracle of earlier work with its best regularisation."""
    W, C, p, factor = _moments(W, C, probabilities, n, L)
    W, C = np.tensordot(p, W, 1), np.tensordot(p, C, 1)
    largest = max(float(np.linalg.eigvalsh(C)[-1]), 0.0)
    return Bound(float(factor * np.trace(power(W, 0.5)) * np.sqrt(largest)))


def previous_optimum(*, W: Any, C: Any, n: float, L: float, probabilities: Any = None) -> Bound:
    """``2L/√n · min{‖W_ρ^½‖_* ‖C_ρ^½‖_∞, ‖W_ρ^½‖_F ‖C_ρ^½‖_F}``, never below `unconditional_optimum`.

    The better of the previous oracle and independent learning (Sec. 3, by the duality of trace and operator
    norm): one representation without a trace constraint is at least as good as either.
    """
    both = {
        bound.__name__: bound(W=W, C=C, n=n, L=L, probabilities=probabilities).value
        for bound in (trace_constrained_oracle, independent_learning)
    }
    return Bound(min(both.values()), both)


def gradient_norm(*, R: float, L: float, n: float, K: float = 0.0) -> Bound:
    """``‖∇L(H, C)‖_F <= (1 + K²)(LR)²(½ + 2/n)`` for the surrogate of one task (Prop. properties_surrogate)."""
    R, L, n = (check_positive(*pair) for pair in (("R", R), ("L", L), ("n", n)))
    K = check_nonnegative("K", K)
    return Bound((1.0 + K**2) * (L * R) ** 2 * (0.5 + 2.0 / n))


def convergence_rate(
    *, distance: float, R: float, L: float, n: float, T: int, K: float = 0.0, step: float | None = None
) -> Bound:
    """``γ/2 · G² + ‖(H - H₀, C - C₀)‖_F² / (2γT)``: excess surrogate risk of Alg. meta_alg over (H, C).

    Prop. convergence_surrogate with ``G`` the value of `gradient_norm` (the λ in the paper's statement is 1).
    The default step minimises the sum, which is then ``G · distance / √T``.
    """
    distance = check_positive("distance", distance)
    T = int(check_positive("T", T))
    G = gradient_norm(R=R, L=L, n=n, K=K).value
    if step is None:
        step = theory_step(distance=distance, K=K, L=L, R=R, n=n, T=T)
    step = check_positive("step", step)
    terms = {"gradients": step / 2.0 * G**2, "start": distance**2 / (2.0 * step * T)}
    return Bound(sum(terms.values()), terms, step)


def theory_step(*, distance: float, K: float, L: float, R: float, n: float, T: int) -> float:
    """Return the meta-step size of Thm. bound_estimated_feature.

    ``γ = ‖(H − H₀, C − C₀)‖_F / ((1 + K²)(LR)²) · (½ + 2/n)⁻¹ / √T``
    """
    return distance / ((1.0 + K**2) * (L * R) ** 2 * (0.5 + 2.0 / n) * np.sqrt(T))


def learned_function(
    *,
    tau: Any,
    W: Any,
    C: Any,
    n: float,
    L: float,
    R: float,
    T: int,
    distance: float,
    K: float = 0.0,
    probabilities: Any = None,
) -> Bound:
    """Excess risk of the output of Alg. meta_alg after T tasks (Thm. bound_estimated_feature).

    ``E_s ½ Tr(τ†W) + 2L²/n E_s Tr(τC) + (½ + 2/n)(1 + K²)(LR)² ‖(H - H₀, C - C₀)‖_F / √T``, in expectation
    over the training tasks, for the returned step size.  It holds for every function ``τ = τ_{H,C}``; the
    oracle gives the paper's rates.
    """
    fixed = fixed_function(tau=tau, W=W, C=C, n=n, L=L, probabilities=probabilities)
    rate = convergence_rate(distance=distance, R=R, L=L, n=n, T=T, K=K)
    return Bound(fixed.value + rate.value, {**fixed.terms, "estimation": rate.value}, rate.step)


#: All bounds, by function name.
BOUNDS: dict[str, Callable[..., Bound]] = {
    bound.__name__: bound
    for bound in (
        within_task_generalization,
        fixed_function,
        conditional_optimum,
        unconditional_optimum,
        independent_learning,
        trace_constrained_oracle,
        previous_optimum,
        gradient_norm,
        convergence_rate,
        learned_function,
    )
}


def _moments(W: Any, C: Any, probabilities: Any, n: float, L: float) -> tuple[Array, Array, Array, float]:
    """Return W and C as stacks of the same length (a single matrix is repeated), the probabilities, and 2L/√n."""
    factor = 2.0 * check_positive("L", L) / np.sqrt(check_positive("n", n))
    W = check_stack("W", W)
    C = check_stack("C", C, W.shape[-1])
    m = max(len(W), len(C))
    if {len(W), len(C)} - {1, m}:
        raise ValueError(f"W and C must be stacks of the same length; got {len(W)} and {len(C)} matrices.")
    shape = (m, *W.shape[1:])
    return np.broadcast_to(W, shape), np.broadcast_to(C, shape), check_probabilities(probabilities, m), factor


def _mean_trace(A: Array, B: Array, p: Array) -> float:
    return float(p @ np.einsum("mij,mji->m", A, B))
