"""Linear systems whose matrix rounding may have made singular."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def solve(matrix: Array, right: Any) -> Array:
    """``matrix⁻¹ right`` of one or many systems; the least solution of those that have no other.

    The matrices of this package are ``λI + K`` with K ⪰ 0 and never singular, but beside a K of 1e20 nothing is left
    of λ.
    """
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(matrix) @ right)
