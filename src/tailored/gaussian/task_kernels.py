"""Compiled loops of adapting to many tasks under a Gaussian mixture, task by task.

The systems of a task are as small as the ranks of the components, and a batch that goes through LAPACK one by one spends its
time in calls.  Nothing depends on the other tasks of a call, so that neither their order nor the number of threads changes
a bit.  Factors are stored with the reciprocals of their pivots on the diagonal.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .row_kernels import OPTIONS, PART

Array = NDArray[np.float64]

#: Components with less of a task than this are none of its own: their part is below rounding.
_FLOOR = 1e-20
#: Directions of τ below this fraction of its largest entry are rounding.
_RANK = 1e-15
#: Logarithms of pivots are taken of products up to this.
_LARGE = 1e100


@njit(**OPTIONS)
def component_posteriors(
    images: Array,
    points: Array,
    starts: NDArray[np.int64],
    leading: NDArray[np.int64],
    cross: Array,
    square: Array,
    noise: float,
    joint: Array,
    coefficients: Array,
) -> None:
    """Log evidence of T tasks under each of K components ``w ~ N(b_k, σ² R_kᵀR_k)``, and the posterior means of w.

    Parameters
    ----------
    images : array (T, P + K, d)
        ``points @ XᵀX``.
    points : array (P + K, d)
        R_1, .., R_K, P rows in all, and then b_1, .., b_K.
    starts, leading : arrays (K + 1,), (K,)
        The rows of R_k are ``starts[k]:starts[k + 1]``, of which the ``leading[k]`` first are seen here.
    cross, square : arrays (T, d), (T,)
        Xᵀy and yᵀy.
    noise : float
        σ².
    joint : array (T, K)
        For the evidence, less what is the same for all components.
    coefficients : array (T, P + K)
        For c_k with posterior mean ``b_k + c_k R_k``; entries that belong to no leading row are left as they are.
    """
    T, d = cross.shape
    K = len(leading)
    widest = 0
    for k in range(K):
        widest = max(widest, leading[k])
    factor = np.empty((widest, widest))
    rest = np.empty(d)
    for t in range(T):
        solution = coefficients[t]
        for k in range(K):
            first = starts[k]
            mean, fitted = points[starts[K] + k], images[t, starts[K] + k]
            left = square[t]
            for j in range(d):
                rest[j] = cross[t, j] - fitted[j]
                left -= (cross[t, j] + rest[j]) * mean[j]
            left = max(left, 0.0)
            half, product = 0.0, 1.0
            # Row i of the Cholesky factor of I + R XᵀX Rᵀ, and with it the forward substitution, whose norm is all
            # that the evidence needs.
            for i in range(leading[k]):
                image, row, point = images[t, first + i], factor[i], points[first + i]
                right = 0.0
                for j in range(d):
                    right += point[j] * rest[j]
                for c in range(i + 1):
                    other, above = points[first + c], factor[c]
                    value = 0.0
                    for j in range(d):
                        value += image[j] * other[j]
                    for j in range(c):
                        value -= row[j] * above[j]
                    row[c] = value * above[c] if c < i else value
                for j in range(i):
                    right -= row[j] * solution[first + j]
                # of I plus a positive matrix no pivot is below one; rounding beside large rows may be
                pivot = np.sqrt(1.0 + max(row[i], 0.0))
                row[i] = 1.0 / pivot
                solution[first + i] = right * row[i]
                left -= solution[first + i] * solution[first + i]
                product *= pivot
                if product > _LARGE:
                    half += np.log(product)
                    product = 1.0
            joint[t, k] = -half - np.log(product) - 0.5 * max(left, 0.0) / noise
            for i in range(leading[k] - 1, -1, -1):
                row = factor[i]
                value = solution[first + i] * row[i]
                solution[first + i] = value
                for c in range(i):
                    solution[first + c] -= row[c] * value


@njit(**OPTIONS)
def posterior_roots(
    images: Array,
    points: Array,
    starts: NDArray[np.int64],
    taus: Array,
    shares: Array,
    gram: Array,
    roots: Array,
    ranks: NDArray[np.int64],
) -> None:
    """J (p, d) with ``JᵀJ = (I + τXᵀX)⁻¹ τ``, τ = Σ_k r_k τ_k, of every task.

    With S the scaled roots of the components that matter, one below the other, ``τ = SᵀS`` and J is the inverse of the
    Cholesky factor of I + S XᵀX Sᵀ times S.  Where these are more than d rows, S is a root of τ itself.

    Parameters
    ----------
    images, points, starts
        As in `component_posteriors`.
    taus, shares : arrays (K, d, d), (T, K)
        The τ_k and r.
    gram : array (T, d, d)
        XᵀX.
    roots, ranks : arrays (T, d, d), (T,)
        For J, in the first rows, and p.
    """
    T, d, _ = gram.shape
    root_images = np.empty((d, d))
    factor = np.empty(d)
    tau = np.empty((d, d))
    for t in range(T):
        root = roots[t]
        p = _stack(shares[t], points, images[t], starts, root, root_images)
        if p > d:
            p = _root(shares[t], taus, tau, root)
            for i in range(p):
                for j in range(d):
                    value = 0.0
                    for c in range(d):
                        value += root[i, c] * gram[t, j, c]
                    root_images[i, j] = value
        ranks[t] = p
        # Row i of the factor, from the rows of J above it: f_ic = S_i XᵀX J_cᵀ, and J_i = (S_i − Σ_c f_ic J_c) / f_ii.
        for i in range(p):
            row, image = root[i], root_images[i]
            for c in range(i):
                value = 0.0
                for j in range(d):
                    value += image[j] * root[c, j]
                factor[c] = value
            value = 1.0
            for j in range(d):
                value += image[j] * row[j]
            for c in range(i):
                value -= factor[c] * factor[c]
                for j in range(d):
                    row[j] -= factor[c] * root[c, j]
            value = 1.0 / np.sqrt(max(value, 1.0))
            for j in range(d):
                row[j] *= value


@njit(**PART)
def _stack(
    r: Array, points: Array, images: Array, starts: NDArray[np.int64], root: Array, root_images: Array
) -> int:
    """The rows of S and of S XᵀX, and their number, where they are no more than d; else d + 1."""
    d, p = root.shape[1], 0
    for k in range(len(r)):
        if r[k] > _FLOOR:
            scale = np.sqrt(r[k])
            for i in range(starts[k], starts[k + 1]):
                if p == d:
                    return d + 1
                for j in range(d):
                    root[p, j] = scale * points[i, j]
                    root_images[p, j] = scale * images[i, j]
                p += 1
    return p


@njit(**PART)
def _root(r: Array, taus: Array, tau: Array, root: Array) -> int:
    """S (p, d) with ``SᵀS = Σ_k r_k τ_k`` by a Cholesky factorisation with pivots, which stops at the rank p."""
    d = len(tau)
    largest = 0.0
    for i in range(d):
        for j in range(d):
            value = 0.0
            for k in range(len(r)):
                value += r[k] * taus[k, i, j]
            tau[i, j] = value
        largest = max(largest, tau[i, i])
    for p in range(d):
        at = 0
        for i in range(1, d):
            if tau[i, i] > tau[at, at]:
                at = i
        if tau[at, at] <= _RANK * largest:
            return p
        scale, row = 1.0 / np.sqrt(tau[at, at]), root[p]
        for j in range(d):
            row[j] = tau[at, j] * scale
        for i in range(d):
            for j in range(d):
                tau[i, j] -= row[i] * row[j]
        # what is left of the pivot is rounding, and must not be chosen again
        for j in range(d):
            tau[at, j] = 0.0
            tau[j, at] = 0.0
    return d
