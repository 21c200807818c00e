"""The quantities that the bounds depend on, known or estimated from tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import numpy as np

from .._utils.algebra import ridge
from .._utils.validation import check_choice, check_finite, check_shape
from ..losses import get_loss
from ..tasks.rows import dense
from ..tasks.task_set import TaskSet
from .bounds import BOUNDS, Bound
from .oracles import Array, oracle_representation, power

#: Ridge parameter of the estimated weights, relative to the mean eigenvalue of XᵀX.
RIDGE = 1e-3


@dataclass(frozen=True)
class Quantities:
    """Quantities of an environment that the bounds depend on; one-letter names are defined in `bounds`.

    The conditioning function of the comparison is the oracle.  With m > 1 values of the side information, the
    features are indicators of the values, for which Asm. 2 holds: ``K = 1``, ``C_ρ = 0``, and ``H_ρ`` has the
    m matrices ``τ_ρ(s)`` as its blocks.  With m = 1 there is no H and ``K = 0``.
    """

    W: Array  # (m, d, d) for m values of the side information
    C: Array  # (m, d, d)
    probabilities: Array  # (m,)
    n: float
    T: int
    L: float
    R: float
    K: float
    initial: Array  # (d, d) C₀, the initial value in Alg. meta_alg (with H₀ = 0)
    #: The quantities that were estimated, and how; empty if all are known.
    estimated: dict[str, str] = field(default_factory=dict)

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
        if len(tau) == 1:
            return float(np.linalg.norm(tau[0] - self.initial))
        return float(np.hypot(np.linalg.norm(tau), np.linalg.norm(self.initial)))

    def unconditional(self) -> Quantities:
        """Return the same environment without side information."""
        W, C = (np.tensordot(self.probabilities, stack, 1)[None] for stack in (self.W, self.C))
        estimated = {name: how for name, how in self.estimated.items() if name not in ("K", "probabilities")}
        return replace(self, W=W, C=C, probabilities=np.ones(1), K=0.0, estimated=estimated)


def estimate_quantities(
    tasks: TaskSet, *, weights: Any = None, contexts: Any = None, loss: Any = "absolute"
) -> Quantities:
    """Estimate the quantities of the bounds from tasks.

    Parameters
    ----------
    tasks : TaskSet
        Tasks without rows are left out.
    weights : array (T, d), optional
        The true weight vectors of the tasks, for synthetic data.  By default they are estimated by least squares
        with a small ridge penalty; the noise of the estimates makes W, and thus every bound, too large.
    contexts : array (T,), optional
        The value of the side information of each task.  Moments are then estimated separately for each value.
    loss : str or Loss, default="absolute"
        The loss whose Lipschitz constant is L.  For a loss without a Lipschitz constant, L is the root mean square
        of the targets, as in the learners.
    """
    filled = np.flatnonzero(tasks.sizes)
    if len(filled) == 0:
        raise ValueError("tasks: no task has rows; n must be at least 1 for every bound.")
    rows = [dense(tasks[int(t)].X) for t in filled]
    if weights is None:
        sizes = [max(float((X * X).sum()) / X.shape[1], 1e-12) for X in rows]
        parts = zip(rows, filled.tolist(), sizes, strict=True)
        used = np.array([ridge(X, tasks[t].y, RIDGE * size) for X, t, size in parts])
    else:
        weights = np.asarray(weights, dtype=float)
        check_shape("weights", weights, len(tasks), tasks.n_features)
        check_finite(weights, "weights")
        used = weights[filled]
    contexts = np.zeros(len(tasks)) if contexts is None else np.asarray(contexts)
    check_shape("contexts", contexts, len(tasks))
    groups = contexts[filled]
    how = {
        "W": f"mean of w wᵀ over {len(filled)} {'ridge-estimated' if weights is None else 'known'} weights",
        "C": f"mean of x xᵀ over {sum(map(len, rows))} rows",
    }
    values = np.unique(groups)
    W, C = np.empty((2, len(values), tasks.n_features, tasks.n_features))
    for j, value in enumerate(values):
        members = np.flatnonzero(groups == value)
        X = np.concatenate([rows[t] for t in members])
        C[j] = X.T @ X / len(X)
        # Lemma ortoghonal_w_task: components outside of the range of the inputs do not change predictions.
        w = used[members] @ power(C[j], 0.0)
        W[j] = w.T @ w / len(members)
    if len(values) > 1:
        how["probabilities"] = f"shares of the {len(values)} contexts"
    how["R"] = "largest ‖x‖ seen: at most the true bound"
    L = get_loss(loss).lipschitz
    if not np.isfinite(L):
        how["L"] = "root mean square of the targets: the loss is not Lipschitz"
        L = float(np.sqrt(np.mean(tasks.y**2)))
    return Quantities(
        W,
        C,
        probabilities=np.array([np.mean(groups == value) for value in values]),
        n=float(np.mean(tasks.sizes[filled])),
        T=len(filled),
        L=L,
        R=max(float(np.linalg.norm(X, axis=1).max()) for X in rows),
        K=1.0 if len(values) > 1 else 0.0,
        initial=np.eye(tasks.n_features),
        estimated=how,
    )


def bound_from_tasks(
    bound: str,
    tasks: TaskSet,
    *,
    weights: Any = None,
    contexts: Any = None,
    loss: Any = "absolute",
    **stated: Any,
) -> Bound:
    """Evaluate a bound; quantities that are not given as arguments are estimated from tasks.

    Parameters
    ----------
    bound : str
        A key of `BOUNDS`.
    tasks, weights, contexts, loss
        As for `estimate_quantities`.
    **stated
        Known arguments of the bound; they replace the estimates.

    Returns
    -------
    Bound
        ``estimated`` names the arguments that came from the data.
    """
    quantities = estimate_quantities(tasks, weights=weights, contexts=contexts, loss=loss)
    known = {name: stated[name] for name in ("L", "R", "K", "n") if stated.get(name) is not None}
    estimated = {name: how for name, how in quantities.estimated.items() if name not in known}
    return bound_from_quantities(bound, replace(quantities, **known, estimated=estimated), **stated)


def bound_from_quantities(bound: str, quantities: Quantities, **stated: Any) -> Bound:
    """Evaluate a bound at the given quantities; arguments in ``stated`` take precedence."""
    function = BOUNDS[check_choice("bound", bound, BOUNDS)]
    if bound == "within_task_generalization":
        quantities = quantities.unconditional()
    given = {name: value for name, value in stated.items() if value is not None}
    # The argument `step` is not one of the quantities.
    missing = {n for n in signature(function).parameters if n not in given and hasattr(quantities, n)}
    given |= {name: getattr(quantities, name) for name in missing}
    estimated = {name: how for name, how in sorted(quantities.estimated.items()) if name in missing}
    roots = [name for name in ("W", "C", "n", "L") if name in quantities.estimated]
    for name in ("tau", "theta", "distance"):
        if name in missing and roots:
            estimated[name] = f"oracle at the estimates of {', '.join(roots)}"
    return replace(function(**given), estimated=estimated)
