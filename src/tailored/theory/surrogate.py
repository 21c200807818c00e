"""The convex surrogate of the paper at a given representation (Eq. surrogate_linear)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._utils.validation import check_positive, check_psd
from ..losses import get_loss
from ..solvers.surrogate import Surrogate
from ..tasks.rows import Array, Rows, dense


class SurrogateValue(NamedTuple):
    """The surrogate of one task: its value, and its gradient in θ, (d, d)."""

    value: float
    gradient: Array


def surrogate(
    theta: Any, X: Any, y: Any, *, loss: Any = "absolute", lipschitz: float | None = None
) -> SurrogateValue:
    """Return value and gradient in θ of the paper's convex surrogate for one task.

    ``min_w 1/n Σ ℓ(<x_i, w>, y_i) + ½ wᵀθ†w + 2L²/n² Tr(θ XᵀX)``, with the exact minimiser w.

    The gradient is the one in C.  With features φ of the task, the gradient in H is ``np.kron(gradient, np.outer(φ, φ))``,
    which is ``(I ⊗ φ) G (I ⊗ φᵀ)``.

    Parameters
    ----------
    theta : array (d, d)
        A positive semidefinite matrix.
    X, y : arrays (n, d) and (n,)
        The rows of the task.
    loss : str or Loss, default="absolute"
        ℓ.
    lipschitz : float, optional
        L; by default the Lipschitz constant of the loss.  It is required for the squared loss, which has none.
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
        raise ValueError(f"lipschitz: the {loss.name} loss has no Lipschitz constant; pass a number")
    found = Surrogate(loss, float(L), tol=1e-12)(Rows(X, y, np.array([0, len(y)])), theta[None])
    return SurrogateValue(float(found.value[0]), found.theta(0, X))
