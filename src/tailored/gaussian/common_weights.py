"""Weights that all tasks have in common: W is zero there, and the mean is found by generalised least squares.

EM cannot find it.  A weight whose variance is zero has the mean for its posterior in every task, and each step leaves it
where it was.  Given W and σ², the means that are most likely are those of a linear regression with correlated errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .em import em
from .mixture import Mixture
from .moments import Want, influence
from .rows import Tasks

Array = NDArray[np.float64]

#: Turns of EM and least squares at most, and the largest change of a mean, in units of size one, that ends them.
TURNS, SETTLED = 12, 1e-6
#: Floats of d x d matrices that are formed at a time.
BATCH_FLOATS = 1 << 18


def most_likely_mean(statistics: Tasks, model: Mixture) -> Mixture:
    """The model of one component with the mean that is most likely given its W and σ².

    ``b = (Σ XᵀV⁻¹X)⁻¹ Σ XᵀV⁻¹y`` over tasks, V = σ²I + XWXᵀ; in terms of τ = W / σ² and G = XᵀX, σ²XᵀV⁻¹X = G (I + τG)⁻¹.
    """
    d = statistics.n_features
    left, right = np.zeros((d, d)), np.zeros(d)
    size = max(1, BATCH_FLOATS // d**2)
    for start in range(0, len(statistics), size):
        some = statistics.take(slice(start, start + size))
        R = influence(some, model, some.posterior(model, Want(covariances=True)).covariances)
        left += np.matmul(some.gram, R).sum(axis=0)
        right += np.einsum("tji,tj->i", R, some.cross)
    # Columns that say the same have no weights of their own: the least ones are taken.
    scale = float(np.trace(left)) / d or 1.0
    found = np.linalg.lstsq(left / scale, right / scale, rcond=1e-10)[0]
    return replace(model, means=np.asarray(found, dtype=np.float64)[None])


def settle(statistics: Tasks, model: Mixture, **options: Any) -> Mixture:
    """The mixed model whose mean is most likely given W and σ², and these by EM given the mean, in turns."""
    for _ in range(TURNS):
        moved = most_likely_mean(statistics, model)
        if np.abs(moved.means - model.means).max() < SETTLED:
            return moved
        model = em(statistics, moved, accelerate=True, **options).mixture
    return most_likely_mean(statistics, model)
