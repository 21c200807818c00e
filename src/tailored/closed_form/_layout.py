"""A learned prior of the squared loss as a few flat arrays, as the compiled loops read it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..feature_maps import PosteriorModel
from ..representation import Bias, BlockDiagonal, Conditioning, Constant
from ..tasks.rows import frozen

Array = NDArray[np.float64]

#: Directions of W below this fraction of its largest eigenvalue are rounding.
ROUNDING = 1e-15


class Layout(NamedTuple):
    """The arrays of a mixture with K components.

    ``points`` stacks the roots R_k of the τ_k = W_k / σ² as rows (those of component k are ``starts[k]:starts[k + 1]``,
    the ``leading[k]`` first of which the evidence sees), and then the K means.
    """

    points: Array
    starts: NDArray[np.int64]
    leading: NDArray[np.int64]
    taus: Array

    @classmethod
    def of(cls, model: PosteriorModel) -> Layout:
        mixture = model.mixture
        taus = mixture.covariances / mixture.noise
        roots = [_root(tau) for tau in taus]
        return cls(
            frozen(np.vstack([*roots, mixture.means])),
            frozen(np.cumsum([0, *(len(root) for root in roots)]), np.int64),
            frozen(mixture.components.ranks, np.int64),
            frozen(taus),
        )


def _root(tau: Array) -> Array:
    """R (p, d) with ``RᵀR = τ`` up to rounding, its largest directions first."""
    values, vectors = np.linalg.eigh(tau)
    keep = values > ROUNDING * max(values[-1], np.finfo(float).tiny)
    return np.ascontiguousarray((vectors[:, keep] * np.sqrt(values[keep])).T[::-1])


def parts_of_levels(
    model: PosteriorModel, conditioning: Conditioning, bias: Bias
) -> list[Array | None] | None:
    """The B of each level, if the rest of the prior is what the model itself implies; else None."""
    mixture = model.mixture
    K, d = mixture.means.shape
    taus = mixture.covariances / mixture.noise
    if isinstance(conditioning, BlockDiagonal):
        same = np.array_equal(conditioning.features, np.arange(K)) and not conditioning.C.any()
        same = same and np.array_equal(conditioning.blocks, taus)
    else:
        same = isinstance(conditioning, Constant) and K == 1 and np.array_equal(conditioning.C, taus[0])
    if not same:
        return None
    parts = [np.zeros((d, K)), mixture.means.T]
    if model.side is not None and (mixture.side is not None or mixture.gates is not None):
        parts.append(np.zeros((d, len(model.side.mean))) if mixture.side is None else mixture.side)
    if mixture.averaged and K > 1:
        parts.append(np.eye(d))
    implied = np.hstack(parts)
    speaks = [level.summary is not None for level in model.levels]
    if not bias.conditional:
        # one mean for all tasks is a constant, and a mean of zero is left out
        shared = bias.moves and implied.shape[1] == 2 and np.array_equal(bias.constant, implied[:, 1])
        same = shared or not (bias.moves or implied.any())
        return [None] * len(speaks) if same and not any(speaks) else None
    k = implied.shape[1]
    if bias.constant.any() or not np.array_equal(bias.linear[:, :k], implied):
        return None
    found: list[Array | None] = []
    for level in model.levels:
        width = 0 if level.summary is None else 1 + len(level.summary.mean)
        found.append(bias.linear[:, k : k + width] if width else None)
        k += width
    return found if k == bias.linear.shape[1] else None
