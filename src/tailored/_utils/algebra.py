"""Solve linear systems whose matrix may be numerically singular."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def solve(matrix: Array, right: Any) -> Array:
    """Return ``matrix⁻¹ right`` of one or many systems, or the least-norm solution if a matrix is singular.

    The matrices ``λI + K`` with K ⪰ 0 of this package are only singular if λ is lost to rounding.
    """
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(matrix) @ right)


def ridge(X: Array, y: Array, alpha: float) -> Array:
    """Return the minimiser of ``‖Xw − y‖² + λ‖w‖²``, from the smaller of the two systems."""
    n, d = X.shape
    if n < d:
        return X.T @ solve(X @ X.T + alpha * np.eye(n), y)
    return solve(X.T @ X + alpha * np.eye(d), X.T @ y)
