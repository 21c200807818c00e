"""The paper's oracle and bounds as functions of an environment (Thms. 1 and 5), and the surrogate.

- Prop. 2, the oracle:  τ_ρ(s) = √n/(2L) C(s)^{†/2} (C(s)^½ W(s) C(s)^½)^½ C(s)^{†/2}
- Thm. 1, any τ:        E(τ) − E* ≤ E_s ½ Tr(τ(s)†W(s)) + 2L²/n E_s Tr(τ(s)C(s))
- Eq. 11, the oracle:   E(τ_ρ) − E* ≤ 2L/√n E_s ‖W(s)^½ C(s)^½‖_*
- Thm. 5, Algorithm 1:  the bound of Thm. 1 + (½ + 2/n)(1 + K²)(LR)² ‖(H − H₀, C − C₀)‖_F / √T

Every bound is a function of `Quantities` and returns a `Bound`.  `estimate_quantities` estimates
them from tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.algebra import ridge
from .._utils.validation import (
    check_finite,
    check_nonnegative,
    check_positive,
    check_psd,
    check_shape,
)
from ..losses import Loss, get_loss
from ..tasks.rows import Array, Rows, dense
from ..tasks.task_set import TaskSet
from .surrogate import Surrogate

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

#: Eigenvalues below this fraction of the largest one are rounding noise.  A square root would turn noise of
#: 1e-16 into 1e-8, so they are set to zero before any root is taken.
RANK_TOLERANCE = 1e-12
#: A matrix root lies in a range if the norm of its part outside the range, relative to its norm, is at most this.
RANGE_TOLERANCE = 1e-6
#: Ridge parameter of the estimated weights, relative to the mean eigenvalue of XᵀX.
RIDGE = 1e-3


def oracle_representation(W: ArrayLike, C: ArrayLike, n: float, L: float) -> Array:
    """Return ``√n/(2L) · C^{†/2} (C^½ W C^½)^½ C^{†/2}``, the best representation in hindsight.

    It is the minimiser over θ of ``½ Tr(θ†W) + 2L²/n Tr(θC)``, the bound of Thm. bound_fixed_feature
    (Prop. oracle_function).  With ``W(s)``, ``C(s)`` it is the conditional oracle τ_ρ(s); with the averages
    of both over the environment it is the unconditional θ_ρ of Eq. oracle_unconditional.

    The arguments are those of `Quantities`, with W and C of shape (d, d).  C may have any rank, with ``Ran(W) ⊆ Ran(C)``:
    a weight vector outside that range can be projected onto it without changing a prediction.
    """
    C = check_psd(C, "C")
    W = check_psd(W, "W", len(C))
    n, L = check_positive("n", n), check_positive("L", L)
    check_range(W, C, ("W", "C"), "Cor. conditional-covariance-ranges")
    return np.sqrt(n) / (2.0 * L) * weighted_root(W, C)


def weighted_root(A: Array, B: Array) -> Array:
    """Return ``B^{†/2} (B^½ A B^½)^½ B^{†/2}``."""
    # Compute (B^½ A B^½)^½ from the singular values of A^½ B^½: eigenvalues of the product would square the
    # condition number.  The thin root of A gives exactly rank(A) singular values, without rounding noise.
    values, vectors = spectrum(A)
    _, sizes, right = np.linalg.svd(
        (vectors * np.sqrt(values)).T @ power(B, 0.5), full_matrices=False
    )
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
    share = np.linalg.norm(root - basis @ (basis.T @ root)) / max(
        np.linalg.norm(root), np.finfo(float).tiny
    )
    if share > RANGE_TOLERANCE:
        a, b = names
        raise ValueError(
            f"Ran({a}) must be contained in Ran({b}) ({assumption}), but a share of {share:.2g} of "
            f"{a}^(1/2) lies outside it. Project {a} onto the range of {b}, or add a small multiple of the "
            f"identity to {b}."
        )


def check_stack(name: str, matrices: ArrayLike, d: int | None = None) -> Array:
    """Return a positive semidefinite matrix (d, d), or one per value of the side information, as a stack (m, d, d)."""
    array = np.asarray(matrices, dtype=np.float64)
    if array.ndim not in (2, 3):
        raise ValueError(
            f"{name} must be a (d, d) matrix or a stack (m, d, d); got shape {array.shape}."
        )
    if array.ndim == 2:
        array = array[None]
    return np.array([check_psd(matrix, name, d) for matrix in array])


def check_probabilities(probabilities: ArrayLike | None, m: int) -> Array:
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


@dataclass(frozen=True)
class Quantities:
    """Quantities of an environment that the bounds depend on.

    Where a bound depends on a conditioning function, the default is the oracle.  With m > 1 values of the side information,
    the features are indicators of the values, for which Asm. 2 holds with ``C_ρ = 0``.  ``H_ρ`` then has
    the m matrices ``τ_ρ(s)`` as its blocks, and ``K=1`` must be passed.  With m = 1 there is no H, and K is 0.

    Parameters
    ----------
    W, C : arrays (m, d, d) or (d, d)
        Second moments ``E w wᵀ`` of weight vectors and ``E x xᵀ`` of inputs, for each of m values of the side information.
        A single matrix is repeated.
    n : float
        Rows per task.
    L : float, default=1
        Lipschitz constant of the loss.
    probabilities : array (m,), optional
        Probabilities of the values of the side information, uniform by default.
    T : int, default=1
        Number of training tasks.
    R, K : float, default=1 and 0
        Bounds on the norms of inputs and of side-information features, ``‖x‖ <= R`` and ``‖Φ(s)‖ <= K``.
    initial : array (d, d), optional
        C₀, the initial value in Alg. meta_alg (with H₀ = 0); the identity by default.
    estimated : dict
        The quantities that were estimated from data, and how.  If there are any, the bounds are estimates, too.
    """

    W: Array
    C: Array
    n: float
    L: float = 1.0
    probabilities: Array | None = None
    T: int = 1
    R: float = 1.0
    K: float = 0.0
    initial: Array | None = None
    estimated: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("n", "L", "T", "R"):
            check_positive(name, getattr(self, name))
        check_nonnegative("K", self.K)
        W = check_stack("W", self.W)
        C = check_stack("C", self.C, W.shape[-1])
        m, d = max(len(W), len(C)), W.shape[-1]
        if {len(W), len(C)} - {1, m}:
            raise ValueError(
                f"W and C must be stacks of the same length, or one of them a single matrix; got {len(W)} and {len(C)} matrices."
            )
        checked = {
            "W": np.broadcast_to(W, (m, d, d)),
            "C": np.broadcast_to(C, (m, d, d)),
            "probabilities": check_probabilities(self.probabilities, m),
            "initial": np.eye(d) if self.initial is None else check_psd(self.initial, "initial", d),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def factor(self) -> float:
        """``2L/√n``."""
        return float(2.0 * self.L / np.sqrt(self.n))

    def mean(self, values: ArrayLike) -> Array:
        """Return the mean over the first axis, weighted by the probabilities of the values of the side information."""
        assert self.probabilities is not None
        return np.tensordot(self.probabilities, np.asarray(values), 1)

    @property
    def gradient_norm(self) -> float:
        """``(1 + K²)(LR)²(½ + 2/n)``, a bound on the gradients of the surrogate in (H, C) (Prop. 4)."""
        return (1.0 + self.K**2) * (self.L * self.R) ** 2 * (0.5 + 2.0 / self.n)

    @property
    def tau(self) -> Array:
        """The oracle of Prop. oracle_function at each value of the side information, (m, d, d)."""
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
        assert self.initial is not None
        if len(tau) == 1:
            return float(np.linalg.norm(tau[0] - self.initial))
        return float(np.hypot(np.linalg.norm(tau), np.linalg.norm(self.initial)))

    def unconditional(self) -> Quantities:
        """Return the same environment without side information."""
        estimated = {name: how for name, how in self.estimated.items() if name != "probabilities"}
        W, C = self.mean(self.W), self.mean(self.C)
        return replace(self, W=W, C=C, probabilities=None, K=0.0, estimated=estimated)


def estimate_quantities(
    tasks: TaskSet,
    *,
    weights: ArrayLike | None = None,
    contexts: ArrayLike | None = None,
    loss: str | Loss = "absolute",
) -> Quantities:
    """Estimate the quantities of the bounds from tasks.

    Parameters
    ----------
    tasks : TaskSet
        Tasks without rows are left out.
    weights : array (T, d), optional
        The true weight vectors of the tasks, for synthetic data.  By default they are estimated by least squares
        with a small ridge penalty; the noise of the estimates usually makes W, and the bounds that depend on it, too large.
    contexts : array (T,), optional
        The value of the side information of each task.  Moments are then estimated separately for each value.
    loss : str or Loss, default="absolute"
        The loss whose Lipschitz constant is L.  For a loss without a Lipschitz constant, L is the root mean square
        of the targets, as in `fit` of the paper's learners.
    """
    if not isinstance(tasks, TaskSet):
        raise TypeError(f"tasks: expected a TaskSet, got {type(tasks).__name__}")
    filled = np.flatnonzero(tasks.sizes)
    if len(filled) == 0:
        raise ValueError("tasks: no task has rows; pass at least one task with rows.")
    rows = [dense(tasks[int(t)].X) for t in filled]
    how = {
        "W": f"mean of w wᵀ over {len(filled)} {'ridge-estimated' if weights is None else 'known'} weights",
        "C": f"mean over {len(filled)} tasks of the mean of x xᵀ over their rows",
        "R": "largest ‖x‖ seen: at most the true bound",
    }
    used = _ridge_weights(tasks) if weights is None else np.asarray(weights, dtype=float)
    check_shape("weights", used, len(tasks), tasks.n_features)
    check_finite(used, "weights")
    contexts = np.zeros(len(tasks)) if contexts is None else np.asarray(contexts)
    check_shape("contexts", contexts, len(tasks))
    values, groups, counts = np.unique(contexts[filled], return_inverse=True, return_counts=True)
    moments = [_second_moments(rows, used[filled], groups == j) for j in range(len(values))]
    W, C = map(np.array, zip(*moments, strict=True))
    if len(values) > 1:
        how["probabilities"] = f"shares of the {len(values)} contexts"
    L = get_loss(loss).lipschitz
    if not np.isfinite(L):
        how["L"] = "root mean square of the targets: the loss is not Lipschitz"
        L = float(np.sqrt(np.mean(tasks.y**2)))
    return Quantities(
        W,
        C,
        probabilities=counts / len(filled),
        n=float(np.mean(tasks.sizes[filled])),
        T=len(filled),
        L=L,
        R=max(float(np.linalg.norm(X, axis=1).max()) for X in rows),
        K=1.0 if len(values) > 1 else 0.0,
        estimated=how,
    )


def _second_moments(
    rows: list[Array], weights: Array, among: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """Return the means over the tasks in the mask of w wᵀ, and of the mean of x xᵀ over the task's rows, (d, d)."""
    C = np.mean(
        [X.T @ X / len(X) for X, is_used in zip(rows, among, strict=True) if is_used], axis=0
    )
    # Lemma ortoghonal_w_task: components outside the range of the inputs do not change predictions.
    w = weights[among] @ power(C, 0.0)
    return w.T @ w / len(w), C


def _ridge_weights(tasks: TaskSet) -> Array:
    """Return least-squares weights of each task with a small ridge penalty, (T, d)."""
    rows = [(dense(task.X), task.y) for task in tasks]
    return np.array(
        [ridge(X, y, RIDGE * max(float((X * X).sum()) / X.shape[1], 1e-12)) for X, y in rows]
    )


@dataclass(frozen=True)
class Bound:
    """An upper bound and its terms."""

    value: float
    #: The summands of ``value``; if ``value`` is a minimum, the numbers of which it is the minimum.
    terms: dict[str, float] = field(default_factory=dict)
    #: The meta-step size for which the bound holds, if it depends on one.
    step: float | None = None


def fixed_function(quantities: Quantities, tau: ArrayLike | None = None) -> Bound:
    """Return a bound on the excess risk of a given τ (Thm. bound_fixed_feature).

    It is ``E_s ½ Tr(τ(s)†W(s)) + 2L²/n E_s Tr(τ(s)C(s))``.  ``tau`` has the values of the conditioning function, (d, d) or
    (m, d, d), with ``Ran(W(s)) ⊆ Ran(τ(s))``; by default it is the oracle.
    """
    W, C = quantities.W, quantities.C
    tau = quantities.tau if tau is None else check_stack("tau", tau, W.shape[-1])
    if len(tau) not in (1, len(W)):
        raise ValueError(
            f"tau has {len(tau)} values, W and C have {len(W)}: give one for each value of s."
        )
    tau = np.broadcast_to(tau, W.shape)
    for theta, one_W in zip(tau, W, strict=True):
        check_range(one_W, theta, ("W", "tau"), "Thm. bound_fixed_feature")
    inverses = np.array([power(theta, -1.0) for theta in tau])
    approximation, generalization = (
        float(quantities.mean(np.einsum("mij,mji->m", A, B))) for A, B in ((inverses, W), (tau, C))
    )
    terms = {
        "approximation": 0.5 * approximation,
        "generalization": 0.5 * quantities.factor**2 * generalization,
    }
    return Bound(sum(terms.values()), terms)


def conditional_optimum(quantities: Quantities) -> Bound:
    """Return ``2L/√n · E_s ‖W(s)^½ C(s)^½‖_*``, the smallest bound of `fixed_function` (Prop. oracle_function)."""
    pairs = list(zip(quantities.W, quantities.C, strict=True))
    for W, C in pairs:
        check_range(W, C, ("W", "C"), "Cor. conditional-covariance-ranges")
    return Bound(float(quantities.factor * quantities.mean([trace_norm(W, C) for W, C in pairs])))


def learned_function(
    quantities: Quantities, tau: ArrayLike | None = None, *, distance: float | None = None
) -> Bound:
    """Return a bound on the excess risk of the output of Alg. meta_alg after T tasks (Thm. bound_estimated_feature).

    ``E_s ½ Tr(τ†W) + 2L²/n E_s Tr(τC) + (½ + 2/n)(1 + K²)(LR)² ‖(H - H₀, C - C₀)‖_F / √T``, in expectation
    over the training tasks, for the returned step size.  It holds for every function ``τ = τ_{H,C}``.  By default, τ is
    the oracle, which gives the paper's rates.  Another ``tau`` needs its ``distance`` ``‖(H - H₀, C - C₀)‖_F``.
    """
    if tau is not None and distance is None:
        raise ValueError(
            "distance: pass ‖(H - H₀, C - C₀)‖_F of tau; the default is that of the oracle"
        )
    distance = check_positive("distance", quantities.distance if distance is None else distance)
    fixed, root_T = fixed_function(quantities, tau), np.sqrt(quantities.T)
    rate = float(quantities.gradient_norm * distance / root_T)
    step = float(distance / (quantities.gradient_norm * root_T))
    return Bound(fixed.value + rate, {**fixed.terms, "estimation": rate}, step)


def surrogate(
    theta: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    loss: str | Loss = "absolute",
    lipschitz: float | None = None,
) -> tuple[float, Array]:
    """Return the value and the gradient in θ (d, d) of the paper's convex surrogate for one task.

    ``min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ wᵀθ†w + 2L²/n² Tr(θ XᵀX)``, with the exact minimiser w.

    The gradient G in θ is also that in C.  With features φ of the task, the gradient in H is ``(I ⊗ φ) G (I ⊗ φᵀ)``, which is
    ``np.kron(gradient, np.outer(φ, φ))``.

    Parameters
    ----------
    theta : array (d, d)
        A positive semidefinite matrix.
    X, y : arrays (n, d) and (n,)
        The rows of the task.
    loss : str or Loss, default="absolute"
        The loss ℓ.
    lipschitz : float, optional
        L; by default the Lipschitz constant of the loss.  It is required for a loss without one, such as
        the squared loss.
    """
    X, y, loss = dense(X), np.array(y, dtype=float), get_loss(loss)
    if X.ndim != 2 or y.shape != X.shape[:1] or not len(y):
        shapes = f"got shapes {X.shape} and {y.shape}"
        raise ValueError(f"X, y: expected arrays (n, d) and (n,) with n >= 1, {shapes}")
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("X, y: contain NaN or infinity; drop these rows")
    loss.check_targets(y)
    theta = check_psd(theta, d=X.shape[1])
    L = loss.lipschitz if lipschitz is None else check_positive("lipschitz", lipschitz)
    if not np.isfinite(L):
        raise ValueError(
            f"lipschitz: the {loss.name} loss has no Lipschitz constant; pass a number"
        )
    found = Surrogate(loss, float(L), tol=1e-12)(Rows(X, y, np.array([0, len(y)])), theta[None])
    return float(found.value[0]), found.theta(0, X)
