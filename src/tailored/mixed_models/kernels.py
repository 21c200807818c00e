"""Compiled loops over rows, and over what a single task is adapted by.

A call of LAPACK costs more than a small system does.  Factors are stored with the reciprocals of their pivots on
the diagonal, so that every later use multiplies where it would divide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Reassociation lets dot products use vector registers; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}


@njit(**_OPTIONS)
def second_moments(
    X: Array, y: Array, offsets: NDArray[np.int64], gram: Array, cross: Array, square: Array
) -> None:
    """XᵀX, Xᵀy and yᵀy of every task, written into ``gram`` (T, d, d), ``cross`` (T, d) and ``square`` (T,)."""
    T, d, _ = gram.shape
    for t in range(T):
        products, sums, total = gram[t], cross[t], 0.0
        products[:] = 0.0
        sums[:] = 0.0
        for i in range(offsets[t], offsets[t + 1]):
            x, target = X[i], y[i]
            total += target * target
            for a in range(d):
                value, row = x[a], products[a]
                sums[a] += value * target
                for c in range(a + 1):
                    row[c] += value * x[c]
        square[t] = total
        for a in range(d):
            for c in range(a):
                products[c, a] = products[a, c]


@njit(**_OPTIONS)
def component_posteriors(
    images: Array,
    points: Array,
    starts: NDArray[np.int64],
    cross: Array,
    square: float,
    n: int,
    noise: float,
) -> tuple[Array, Array]:
    """``log N(y; X b_k, X L_k L_kᵀ Xᵀ + σ²I)`` (K,) and the posterior mean of w (K, d), of one task under K components.

    Parameters
    ----------
    images : array (P + K + .., d)
        ``points @ XᵀX``.
    points : array (P + K + .., d)
        The columns of L_1, .., L_K, P in all, as rows; then b_1, .., b_K; what follows is not read.
    starts : array (K + 1,)
        The rows of L_k are ``starts[k]:starts[k + 1]``.
    cross, square, n
        Xᵀy, yᵀy and the number of rows.
    noise : float
        σ².
    """
    K, d = len(starts) - 1, points.shape[1]
    out = np.empty(K)
    means = np.empty((K, d))
    widest = 0
    for k in range(K):
        widest = max(widest, starts[k + 1] - starts[k])
    factor = np.empty((widest, widest))
    solution = np.empty(widest)
    for k in range(K):
        first = starts[k]
        p = starts[k + 1] - first
        mean, fitted = points[starts[K] + k], images[starts[K] + k]
        left = square
        for j in range(d):
            left += (fitted[j] - 2.0 * cross[j]) * mean[j]
        left = max(left, 0.0)
        half = 0.0
        # Row i of the Cholesky factor of LᵀXᵀXL + σ²I, and with it the forward substitution, whose norm is all
        # that the evidence needs.
        for i in range(p):
            image, row = images[first + i], factor[i]
            value = 0.0
            for j in range(d):
                value += points[first + i, j] * (cross[j] - fitted[j])
            right = value
            for c in range(i + 1):
                point, above = points[first + c], factor[c]
                value = 0.0
                for j in range(d):
                    value += image[j] * point[j]
                for j in range(c):
                    value -= row[j] * above[j]
                if c < i:
                    row[c] = value * above[c]
                else:
                    pivot = np.sqrt(value + noise)
                    half += np.log(pivot)
                    row[i] = 1.0 / pivot
            for j in range(i):
                right -= row[j] * solution[j]
            solution[i] = right * row[i]
            left -= solution[i] * solution[i]
        out[k] = -0.5 * (
            (n - p) * np.log(noise) + 2.0 * half + max(left, 0.0) / noise + n * np.log(2.0 * np.pi)
        )
        for j in range(d):
            means[k, j] = mean[j]
        for i in range(p - 1, -1, -1):
            row = factor[i]
            solution[i] *= row[i]
            value = solution[i]
            for c in range(i):
                solution[c] -= row[c] * value
            for j in range(d):
                means[k, j] += value * points[first + i, j]
    return out, means


@njit(**_OPTIONS)
def first_pass(tau: Array, b: Array, gram: Array, cross: Array) -> Array:
    """Posterior mean ``(I + τXᵀX)⁻¹ (b + τXᵀy)`` of one task, (d,), by elimination with partial pivoting."""
    d = len(cross)
    system = np.zeros((d, d + 1))
    for i in range(d):
        row = system[i]
        row[i] = 1.0
        row[d] = b[i]
        for k in range(d):
            value, other = tau[i, k], gram[k]
            row[d] += value * cross[k]
            for j in range(d):
                row[j] += value * other[j]
    for i in range(d):
        largest = i
        for k in range(i + 1, d):
            if abs(system[k, i]) > abs(system[largest, i]):
                largest = k
        if largest != i:
            for j in range(i, d + 1):
                system[i, j], system[largest, j] = system[largest, j], system[i, j]
        pivot = system[i]
        inverse = 1.0 / pivot[i]
        for k in range(i + 1, d):
            row = system[k]
            factor = row[i] * inverse
            for j in range(i + 1, d + 1):
                row[j] -= factor * pivot[j]
    weights = np.empty(d)
    for i in range(d - 1, -1, -1):
        value = system[i, d]
        for j in range(i + 1, d):
            value -= system[i, j] * weights[j]
        weights[i] = value / system[i, i]
    return weights


@njit(**_OPTIONS)
def summarise(
    weights: Array,
    gram: Array,
    cross: Array,
    square: float,
    n: int,
    side: Array,
    images: Array,
    centres: Array,
    noises: Array,
    noise_rows: float,
    matrix: Array,
    constant: Array,
) -> Array:
    """``matrix @ [w, log noise levels, v] + constant`` of one task with first-pass weights w.

    Parameters
    ----------
    weights, gram, cross, square, n, side
        w (d,), XᵀX, Xᵀy, yᵀy, the number of rows, and v (q,).
    images, centres : arrays (L, d)
        Points c_l and ``c_l XᵀX``.
    noises : array (2L,)
        Added to ‖y − Xw‖² (the first half) and to the ‖y − Xc_l‖² before they are divided by
        ``n + noise_rows``.
    matrix, constant : arrays (m, d + 2L + q), (m,)
    """
    L, d = centres.shape
    known = np.empty(matrix.shape[1])
    own = square
    for i in range(d):
        known[i] = weights[i]
        value = -2.0 * cross[i]
        for j in range(d):
            value += gram[i, j] * weights[j]
        own += value * weights[i]
    own = max(own, 0.0)
    for level in range(L):
        common = square
        for i in range(d):
            common += (images[level, i] - 2.0 * cross[i]) * centres[level, i]
        common = max(common, 0.0)
        known[d + level] = np.log((own + noises[level]) / (n + noise_rows))
        known[d + L + level] = np.log((common + noises[L + level]) / (n + noise_rows))
    for i in range(len(side)):
        known[d + 2 * L + i] = side[i]
    out = constant.copy()
    for i in range(len(out)):
        row = matrix[i]
        value = 0.0
        for j in range(len(known)):
            value += row[j] * known[j]
        out[i] += value
    return out
