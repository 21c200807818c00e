"""Solve linear systems whose matrix may be numerically singular."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def solve(matrix: Array, right: Array) -> Array:
    """Solve one linear system or a stack of them.

    Return minimum-norm solutions if a matrix is singular.

    In this package, matrices are ``λI + K``, and K has no negative eigenvalues.  They are singular
    only if λ is lost to rounding.
    """
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(matrix) @ right)


def ridge(X: Array, y: Array, alpha: float) -> Array:
    """Return the minimiser of ``‖Xw − y‖² + alpha ‖w‖²``.

    Solve the smaller of the primal and dual systems.
    """
    n, d = X.shape
    if n < d:
        return X.T @ solve(X @ X.T + alpha * np.eye(n), y)
    return solve(X.T @ X + alpha * np.eye(d), X.T @ y)
