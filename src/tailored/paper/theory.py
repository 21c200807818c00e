"""The paper's oracle and bounds as functions of an environment (Sec. 3 and Thms. 1 and 5), and the
surrogate.

- Thm. 1, any τ:        E(τ) − E* ≤ E_s ½ Tr(τ(s)†W(s)) + 2L²/n E_s Tr(τ(s)C(s))
- Prop. 2, the oracle:  τ_ρ(s) = √n/(2L) C(s)^{†/2} (C(s)^½ W(s) C(s)^½)^½ C(s)^{†/2}
- Eq. 11, the oracle:   E(τ_ρ) − E* ≤ 2L/√n E_s ‖W(s)^½ C(s)^½‖_*
- Thm. 5, Algorithm 1:  the bound of Thm. 1 + (½ + 2/n)(1 + K²)(LR)² ‖(H − H₀, C − C₀)‖_F / √T

Every bound is a function of `Quantities` and returns a `Bound`.  `estimate_quantities` estimates
them from tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_X_y

from .._utils.validation import (
    check_finite,
    check_nonnegative,
    check_positive,
    check_psd,
    check_shape,
)
from ..losses import Loss, get_loss
from ..tasks.rows import Array, Rows, dense
from ..tasks.task_set import TaskSet, check_task_set
from .algorithm_1 import Surrogate
from .feature_maps import ridge
from .within_task import WithinTask

__all__ = [
    "Bound",
    "Quantities",
    "conditional_optimum",
    "estimate_quantities",
    "fixed_function",
    "learned_function",
    "oracle_representation",
    "surrogate",
]


@dataclass(frozen=True)
class Quantities:
    """Quantities of an environment that the bounds depend on.

    With m > 1 values of the side information, pass ``K=1``: the features are indicators of the
    values.

    Parameters
    ----------
    W, C : arrays (m, d, d) or (d, d)
        Second moments ``E w wᵀ`` of weight vectors and ``E x xᵀ`` of inputs, for each value of the
        side information.
    n : float
        Rows per task.
    L : float, default=1
        Lipschitz constant of the loss.
    probabilities : array (m,), optional
        Probabilities of the values of the side information, uniform by default.
    T : int, default=1
        Number of training tasks.
    R, K : float, default=1 and 0
        Bounds on the norms of inputs and of side-information features.
    initial : array (d, d), optional
        C₀; the identity by default.
    """

    W: Array
    C: Array
    n: float
    L: float = 1.0
    probabilities: Any = None
    T: int = 1
    R: float = 1.0
    K: float = 0.0
    initial: Any = None

    def __post_init__(self) -> None:
        for name in ("n", "L", "T", "R"):
            check_positive(name, getattr(self, name))
        check_nonnegative("K", self.K)
        W, C = check_stack("W", self.W), check_stack("C", self.C)
        m, d = max(len(W), len(C)), W.shape[-1]
        if C.shape[1:] != (d, d) or {len(W), len(C)} - {1, m}:
            shapes = f"got shapes {W.shape} and {C.shape}"
            raise ValueError(f"W and C must be matrices, or stacks of the same length; {shapes}.")
        initial = np.eye(d) if self.initial is None else check_psd(self.initial, "initial", d)
        probabilities = check_probabilities(self.probabilities, m)
        W, C = np.broadcast_to(W, (m, d, d)), np.broadcast_to(C, (m, d, d))
        vars(self).update(W=W, C=C, initial=initial, probabilities=probabilities)

    @property
    def factor(self) -> float:
        """``2L/√n``."""
        return float(2.0 * self.L / np.sqrt(self.n))

    def mean(self, values: ArrayLike) -> Array:
        """Return the mean over the first axis, weighted by the probabilities of the values of the
        side information.
        """
        return np.tensordot(self.probabilities, np.asarray(values), 1)

    @property
    def gradient_norm(self) -> float:
        """``(1 + K²)(LR)²(½ + 2/n)``, a bound on the gradients of the surrogate in (H, C) (Prop.
        4).
        """
        return (1.0 + self.K**2) * (self.L * self.R) ** 2 * (0.5 + 2.0 / self.n)

    @property
    def tau(self) -> Array:
        """The oracle of Prop. 2 at each value of the side information, (m, d, d)."""
        pairs = zip(self.W, self.C, strict=True)
        return np.array([oracle_representation(W, C, self.n, self.L) for W, C in pairs])

    @property
    def theta(self) -> Array:
        """The unconditional oracle, (d, d)."""
        return np.asarray(self.unconditional().tau[0])

    @property
    def distance(self) -> float:
        """``‖(H_ρ - H₀, C_ρ - C₀)‖_F`` from the initial value to the oracle."""
        tau = self.tau
        if len(tau) == 1:
            return float(np.linalg.norm(tau[0] - self.initial))
        return float(np.hypot(np.linalg.norm(tau), np.linalg.norm(self.initial)))

    def unconditional(self) -> Quantities:
        """Return the same environment without side information."""
        W, C = self.mean(self.W), self.mean(self.C)
        return replace(self, W=W, C=C, probabilities=None, K=0.0)


@dataclass(frozen=True)
class Bound:
    """An upper bound and its terms."""

    value: float
    #: The summands of ``value``; if ``value`` is a minimum, the numbers of which it is the minimum.
    terms: dict[str, float] = field(default_factory=dict)
    #: The meta-step size for which the bound holds, if it depends on one.
    step: float | None = None


def fixed_function(quantities: Quantities, tau: ArrayLike | None = None) -> Bound:
    """Return the bound of Thm. 1 on the excess risk of a given τ.

    It is ``E_s ½ Tr(τ(s)†W(s)) + 2L²/n E_s Tr(τ(s)C(s))``. ``tau`` has the values of the
    conditioning function, (d, d) or (m, d, d), with ``Ran(W(s)) ⊆ Ran(τ(s))``; by default it is the
    oracle.
    """
    W, C = quantities.W, quantities.C
    tau = quantities.tau if tau is None else check_stack("tau", tau, W.shape[-1])
    if len(tau) not in (1, len(W)):
        raise ValueError(
            f"tau has {len(tau)} values, W and C have {len(W)}: give one for each value of s."
        )
    tau, approximation = np.broadcast_to(tau, W.shape), []
    for theta, one_W in zip(tau, W, strict=True):
        check_range(one_W, theta, ("W", "tau"), "Thm. 1")
        approximation.append(0.5 * np.trace(power(theta, -1.0) @ one_W))
    generalization = 0.5 * quantities.factor**2 * np.trace(tau @ C, axis1=1, axis2=2)
    terms = {
        "approximation": float(quantities.mean(approximation)),
        "generalization": float(quantities.mean(generalization)),
    }
    return Bound(sum(terms.values()), terms)


def oracle_representation(W: ArrayLike, C: ArrayLike, n: float, L: float) -> Array:
    """Return ``√n/(2L) · C^{†/2} (C^½ W C^½)^½ C^{†/2}``, the best representation in hindsight
    (Prop. 2).

    The arguments are those of `Quantities`, with W and C of shape (d, d) and ``Ran(W) ⊆ Ran(C)``.
    With ``W(s)``, ``C(s)`` it is the conditional oracle τ_ρ(s), and with their averages over the
    environment the unconditional θ_ρ.
    """
    C = check_psd(C, "C")
    W = check_psd(W, "W", len(C))
    n, L = check_positive("n", n), check_positive("L", L)
    check_range(W, C, ("W", "C"), "Cor. 8")
    return np.sqrt(n) / (2.0 * L) * weighted_root(W, C)


def conditional_optimum(quantities: Quantities) -> Bound:
    """Return ``2L/√n · E_s ‖W(s)^½ C(s)^½‖_*``, the smallest `fixed_function` (Prop. 2)."""
    norms = []
    for W, C in zip(quantities.W, quantities.C, strict=True):
        check_range(W, C, ("W", "C"), "Cor. 8")
        norms.append(trace_norm(W, C))
    return Bound(float(quantities.factor * quantities.mean(norms)))


def learned_function(
    quantities: Quantities, tau: ArrayLike | None = None, *, distance: float | None = None
) -> Bound:
    """Return the bound of Thm. 5 on the excess risk of the output of Algorithm 1 after T tasks.

    It is ``E_s ½ Tr(τ†W) + 2L²/n E_s Tr(τC) + (½ + 2/n)(1 + K²)(LR)² ‖(H - H₀, C - C₀)‖_F / √T``,
    for the returned step size.  By default, τ is the oracle.  Another ``tau`` needs its
    ``distance`` ``‖(H - H₀, C - C₀)‖_F``.
    """
    if tau is not None and distance is None:
        raise ValueError(
            "distance: pass ‖(H - H₀, C - C₀)‖_F of tau; the default is that of the oracle"
        )
    distance = check_positive("distance", quantities.distance if distance is None else distance)
    fixed = fixed_function(quantities, tau)
    norm, root = quantities.gradient_norm, float(np.sqrt(quantities.T))
    terms = {**fixed.terms, "estimation": norm * distance / root}
    return Bound(sum(terms.values()), terms, distance / (norm * root))


def surrogate(
    theta: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    loss: str | Loss = "absolute",
    lipschitz: float | None = None,
) -> tuple[float, Array]:
    """Return the value of the paper's convex surrogate for one task, and its gradient in θ (d, d).

    The value is ``min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ wᵀθ†w + 2L²/n² Tr(θ XᵀX)``. The gradient in C is
    the same, and that in H is ``np.kron(gradient, np.outer(φ, φ))``.

    Parameters
    ----------
    theta : array (d, d)
        A positive semidefinite matrix.
    X, y : arrays (n, d) and (n,)
        The rows of the task.
    loss : str or Loss, default="absolute"
        The loss ℓ.
    lipschitz : float, optional
        L; required for a loss without a Lipschitz constant, such as the squared loss.
    """
    loss = get_loss(loss)
    L = check_positive("lipschitz", loss.lipschitz if lipschitz is None else lipschitz)
    rows, targets = check_X_y(X, y, dtype=np.float64, y_numeric=True)
    loss.check_targets(targets)
    theta = check_psd(theta, d=rows.shape[1])
    task = Rows(rows, np.asarray(targets, dtype=float), np.array([0, len(rows)]))
    return Surrogate(WithinTask(loss, tol=1e-12), L)(task, theta)


def estimate_quantities(
    tasks: TaskSet,
    *,
    weights: ArrayLike | None = None,
    contexts: ArrayLike | None = None,
    loss: str | Loss = "absolute",
) -> Quantities:
    """Estimate the quantities of the bounds from tasks; bounds of estimated quantities are
    estimates, too.

    Parameters
    ----------
    tasks : TaskSet
        Tasks without rows are left out.
    weights : array (T, d), optional
        The true weight vectors, if known; by default least-squares estimates, whose noise usually
        makes the bounds too large.
    contexts : array (T,), optional
        The value of the side information of each task.  Moments are then estimated for each value.
    loss : str or Loss, default="absolute"
        The loss whose Lipschitz constant is L; for a loss without one, the root mean square of the
        targets.
    """
    check_task_set(tasks)
    filled = np.flatnonzero(tasks.sizes)
    if len(filled) == 0:
        raise ValueError("tasks: no task has rows; pass at least one task with rows.")
    rows = [(dense(task.X), task.y) for task in tasks[filled]]
    if weights is None:
        # The penalty is small beside ‖X‖²/d, the mean eigenvalue of XᵀX.
        w = np.array([ridge(X, y, max(1e-3 * (X * X).mean() * len(X), 1e-15)) for X, y in rows])
    else:
        w = np.asarray(weights, dtype=float)
        check_shape("weights", w, len(tasks), tasks.n_features)
        check_finite(w, "weights")
        w = w[filled]
    values = np.zeros(len(tasks)) if contexts is None else np.asarray(contexts)
    check_shape("contexts", values, len(tasks))
    _, groups, counts = np.unique(values[filled], return_inverse=True, return_counts=True)
    grams, W, C = np.array([X.T @ X / len(X) for X, _ in rows]), [], []
    for j in range(len(counts)):
        C.append(grams[groups == j].mean(axis=0))
        # Lemma 7: components outside the range of the inputs do not change predictions.
        projected = w[groups == j] @ power(C[-1], 0.0)
        W.append(projected.T @ projected / counts[j])
    L = get_loss(loss).lipschitz
    return Quantities(
        np.array(W),
        np.array(C),
        probabilities=counts / len(filled),
        n=float(np.mean(tasks.sizes[filled])),
        T=len(filled),
        L=L if np.isfinite(L) else float(np.sqrt(np.mean(tasks.y**2))),
        R=max(float(np.linalg.norm(X, axis=1).max()) for X, _ in rows),
        K=1.0 if len(counts) > 1 else 0.0,
    )


def weighted_root(A: Array, B: Array) -> Array:
    """Return ``B^{†/2} (B^½ A B^½)^½ B^{†/2}``."""
    # Compute (B^½ A B^½)^½ from the singular values of A^½ B^½: eigenvalues of the product would
    # square the condition number.  The thin root of A gives exactly rank(A) singular values,
    # without rounding noise.
    _, sizes, right = np.linalg.svd(thin_root(A).T @ power(B, 0.5), full_matrices=False)
    half = power(B, -0.5) @ (right.T * np.sqrt(sizes))
    return half @ half.T


def spectrum(matrix: Array) -> tuple[Array, Array]:
    """Return the non-zero eigenvalues (r,) of a positive semidefinite matrix and their eigenvectors
    (d, r).
    """
    values, vectors = np.linalg.eigh(matrix)
    # Smaller eigenvalues are rounding noise.  A square root would turn noise of 1e-16 into 1e-8.
    keep = values > 1e-12 * max(float(values[-1]), 0.0)
    return values[keep], vectors[:, keep]


def power(matrix: Array, exponent: float) -> Array:
    """Return ``A^p`` on the range of A, zero elsewhere: ``A^½``, ``A†`` (-1), ``A^{†/2}`` (-½),
    projector (0).
    """
    values, vectors = spectrum(matrix)
    return (vectors * values**exponent) @ vectors.T


def thin_root(matrix: Array) -> Array:
    """Return R (d, r) of full rank with ``R Rᵀ = A``, without noise of zero eigenvalues."""
    values, vectors = spectrum(matrix)
    return vectors * np.sqrt(values)


def trace_norm(A: Array, B: Array) -> float:
    """Return ``‖A^½ B^½‖_*`` of two positive semidefinite matrices."""
    return float(np.linalg.svd(thin_root(A).T @ thin_root(B), compute_uv=False).sum())


def check_range(inner: Array, outer: Array, names: tuple[str, str], assumption: str) -> None:
    """Raise ValueError unless ``Ran(outer)`` contains ``Ran(inner)``."""
    root, basis = thin_root(inner), spectrum(outer)[1]
    share = np.linalg.norm(root - basis @ (basis.T @ root)) / max(
        np.linalg.norm(root), np.finfo(float).tiny
    )
    if share > 1e-6:
        a, b = names
        raise ValueError(
            f"Ran({a}) must be contained in Ran({b}) ({assumption}), but a share of {share:.2g} of "
            f"{a}^(1/2) lies outside it. Project {a} onto the range of {b}, or add a small "
            "multiple of the "
            f"identity to {b}."
        )


def check_stack(name: str, matrices: ArrayLike, d: int | None = None) -> Array:
    """Return a positive semidefinite matrix (d, d), or one per value of the side information, as a
    stack (m, d, d).
    """
    array = np.array(matrices, dtype=np.float64, ndmin=3)
    if array.ndim != 3:
        shape = np.shape(matrices)
        raise ValueError(f"{name} must be a (d, d) matrix or a stack (m, d, d); got shape {shape}.")
    return np.array([check_psd(matrix, name, d) for matrix in array])


def check_probabilities(probabilities: ArrayLike | None, m: int) -> Array:
    """Return the probabilities of m values of the side information, uniform by default."""
    p = np.full(m, 1.0 / m) if probabilities is None else np.asarray(probabilities, dtype=float)
    if p.shape != (m,) or not (p >= 0.0).all() or abs(p.sum() - 1.0) > 1e-8:
        raise ValueError(
            f"probabilities must be {m} non-negative numbers with sum 1, one per value of the side "
            f"information; got {probabilities!r}."
        )
    return p / p.sum()
