"""One compiled pass over tasks: their evidence under every component, responsibilities, and the sums of a step of EM.

With full-rank W the systems are ``XᵀX + σ²W⁻¹``: nothing is multiplied.  Where W has directions that are absent,
``LᵀXᵀXL + σ²I`` with W = LLᵀ, p × p for L (d, p).  Both read ``A = G + P`` here, G the second moments in a component's own
coordinates and P what its prior adds.  Tasks go through in chunks whose factors stay in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .lanes import (
    LANES,
    PART,
    apart,
    factorise,
    invert,
    multiply,
    solve_backwards,
    solve_forwards,
    subtract,
    subtract_four,
    subtract_squares,
)

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Tasks of a chunk: enough that groups of eight fill up with those that are asked about a component.
CHUNK = 128
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(**PART)
def _clear(rows: Array, n: int) -> None:
    apart()
    for i in range(n):
        for lane in range(LANES):
            rows[i, lane] = 0.0


@njit(**PART)
def _load(
    gram: Array, cross: Array, square: Array, tasks: Index, b: Array, A: Array, z: Array, left: Array
) -> None:
    """Packed XᵀX, ``Xᵀ(y − Xb)`` and ``‖y − Xb‖²`` of eight tasks; b is a row of lanes for each number."""
    apart()
    d = cross.shape[1]
    o = 0
    for i in range(d):
        for lane in range(LANES):
            z[i, lane] = cross[tasks[lane], i]
        for j in range(i + 1):
            for lane in range(LANES):
                A[o, lane] = gram[tasks[lane], i, j]
            o += 1
    for lane in range(LANES):
        left[0, lane] = square[tasks[lane]]
    for i in range(d):
        subtract(left, 0, b, i, z, i, 1)
    row = 0
    for i in range(d):
        subtract(z, i, b, 0, A, row, i + 1)
        j = 0
        while j + 4 <= i:
            subtract_four(z, j, b, i, A, row + j, row + j + 1, row + j + 2, row + j + 3, 1)
            j += 4
        while j < i:
            subtract(z, j, b, i, A, row + j, 1)
            j += 1
        row += i + 1
    for i in range(d):
        subtract(left, 0, b, i, z, i, 1)


@njit(**PART)
def _load_projected(
    gram: Array,
    cross: Array,
    square: Array,
    tasks: Index,
    b: Array,
    L: Array,
    p: int,
    square_gram: Array,
    half: Array,
    rest: Array,
    A: Array,
    z: Array,
    left: Array,
) -> None:
    """The same in the coordinates of L, whose p columns of d rows of lanes follow each other."""
    apart()
    d = cross.shape[1]
    for i in range(d):
        for lane in range(LANES):
            rest[i, lane] = cross[tasks[lane], i]
        for j in range(d):
            for lane in range(LANES):
                square_gram[i * d + j, lane] = gram[tasks[lane], i, j]
    for lane in range(LANES):
        left[0, lane] = square[tasks[lane]]
    for i in range(d):
        subtract(left, 0, b, i, rest, i, 1)
    for i in range(d):
        subtract(rest, i, b, 0, square_gram, i * d, d)
    for i in range(d):
        subtract(left, 0, b, i, rest, i, 1)
    for i in range(d):
        for lane in range(LANES):
            rest[i, lane] = -rest[i, lane]
    _clear(half, p * d)
    _clear(z, p)
    _clear(A, p * (p + 1) // 2)
    for c in range(p):
        i = 0
        while i + 4 <= d:
            v = i * d
            subtract_four(half, c * d + i, L, c * d, square_gram, v, v + d, v + 2 * d, v + 3 * d, d)
            i += 4
        while i < d:
            subtract(half, c * d + i, L, c * d, square_gram, i * d, d)
            i += 1
        subtract(z, c, L, c * d, rest, 0, d)
    o = 0
    for a in range(p):
        for c in range(a + 1):
            subtract(A, o, L, a * d, half, c * d, d)
            o += 1


@njit(**PART)
def _across(rows: Array, i: int) -> float:
    apart()
    total = 0.0
    for lane in range(LANES):
        total += rows[i, lane]
    return total


@njit(**PART)
def _normalise(joint: Array, log_evidence: Array) -> None:
    """Responsibilities in place of log p(y, k), and log p(y), for tasks in rows."""
    apart()
    T, K = joint.shape
    for t in range(T):
        largest = joint[t, 0]
        if K == 1:
            log_evidence[t] = largest
            joint[t, 0] = 1.0
            continue
        for k in range(1, K):
            if not joint[t, k] <= largest:
                largest = joint[t, k]
        total = 0.0
        for k in range(K):
            total += np.exp(joint[t, k] - largest)
        log_evidence[t] = largest + np.log(total)
        for k in range(K):
            joint[t, k] = np.exp(joint[t, k] - log_evidence[t])


@njit(**_OPTIONS)
def expect(
    gram: Array,
    cross: Array,
    square: Array,
    sizes: Array,
    b: Array,
    L: Array,
    ranks: Index,
    precisions: Array,
    constants: Array,
    noise: float,
    negligible: float,
    joint: Array,
    log_evidence: Array,
    means: Array,
    first: Array,
    second: Array,
    quadratics: Array,
) -> None:
    """Evidence and responsibilities of T tasks; posterior means and sums over tasks where there is room for them.

    Parameters
    ----------
    gram, cross, square, sizes
        XᵀX (T, d, d), Xᵀy (T, d), yᵀy (T,) and n (T,).
    b : array (K, d)
    L : array (K, d, d)
        The first ``ranks[k]`` rows of L[k] are the columns of a root of W_k; not read where that is all of them.
    precisions : array (K, d (d + 1) / 2)
        P of every component, packed.
    constants : array (K,)
        log |W_k| where L is not read.
    noise, negligible : float
        σ²; responsibilities up to ``negligible`` are left out of sums.
    joint : array (T, K)
        log π; −inf where a task is not asked about a component.  Responsibilities on return.
    log_evidence : array (T,), written
    means : array (T, K, d) or (0, K, d), written
        Posterior means, of components that a task is asked about.
    first, second : arrays (K, d), (K, d (d + 1) / 2) or (0, ..), written
        Σ_t r E(v) and Σ_t r E(vvᵀ), v being w − b in the component's own coordinates.
    quadratics : array (K,) or (0,), written
        Σ_t r (‖y − Xm‖² + (m − b)ᵀP(m − b) + pσ²), p the rank.
    """
    T, d = cross.shape
    K, n_packed = len(ranks), d * (d + 1) // 2
    n_groups = CHUNK // LANES
    factors = np.empty((K, n_groups, n_packed, LANES))
    solved = np.empty((K, n_groups, d, LANES))
    quadratic = np.empty((K, n_groups, LANES))
    asked = np.empty((K, CHUNK), np.int64)
    n_asked = np.zeros(K, np.int64)
    inverse, total = np.empty((n_packed, LANES)), np.zeros((len(second), n_packed, LANES))
    sums = np.zeros((len(first), d, LANES))
    lanes_b, lanes_L, half = np.empty((d, LANES)), np.empty((d * d, LANES)), np.empty((d * d, LANES))
    square_gram, rest, move = np.empty((d * d, LANES)), np.empty((d, LANES)), np.empty((d, LANES))
    left, weights, log_pivots = np.empty((1, LANES)), np.empty((2, LANES)), np.empty(LANES)
    tasks = np.empty(LANES, np.int64)
    log_noise, log_circle = np.log(noise), np.log(2.0 * np.pi)
    for k in range(len(quadratics)):
        quadratics[k] = 0.0
    for begin in range(0, T, CHUNK):
        end = min(begin + CHUNK, T)
        for k in range(K):
            p = ranks[k]
            n_asked[k] = 0
            for t in range(begin, end):
                if joint[t, k] > -np.inf:
                    asked[k, n_asked[k]] = t
                    n_asked[k] += 1
            for i in range(d):
                for lane in range(LANES):
                    lanes_b[i, lane] = b[k, i]
                    if i < p < d:
                        for j in range(d):
                            lanes_L[i * d + j, lane] = L[k, i, j]
            for g in range((n_asked[k] + LANES - 1) // LANES):
                A, z = factors[k, g], solved[k, g]
                for lane in range(LANES):
                    tasks[lane] = asked[k, min(g * LANES + lane, n_asked[k] - 1)]
                if p == d:
                    _load(gram, cross, square, tasks, lanes_b, A, z, left)
                else:
                    _load_projected(
                        gram,
                        cross,
                        square,
                        tasks,
                        lanes_b,
                        lanes_L,
                        p,
                        square_gram,
                        half,
                        rest,
                        A,
                        z,
                        left,
                    )
                for o in range(p * (p + 1) // 2):
                    value = precisions[k, o]
                    for lane in range(LANES):
                        A[o, lane] += value
                factorise(A, p, log_pivots)
                solve_forwards(A, p, z)
                subtract(left, 0, z, 0, z, 0, p)
                for lane in range(min(LANES, n_asked[k] - g * LANES)):
                    t = tasks[lane]
                    # NaN stays NaN: a model that overflows has no evidence.
                    value = 0.0 if left[0, lane] < 0.0 else left[0, lane]
                    quadratic[k, g, lane] = value
                    joint[t, k] -= 0.5 * (
                        (sizes[t] - p) * log_noise
                        + 2.0 * log_pivots[lane]
                        + constants[k]
                        + value / noise
                        + sizes[t] * log_circle
                    )
        _normalise(joint[begin:end], log_evidence[begin:end])
        if len(means) == 0 and len(second) == 0:
            continue
        for k in range(K):
            p = ranks[k]
            for g in range((n_asked[k] + LANES - 1) // LANES):
                A, z = factors[k, g], solved[k, g]
                n_lanes = min(LANES, n_asked[k] - g * LANES)
                largest = 0.0
                _clear(weights, 2)
                for lane in range(n_lanes):
                    r = joint[asked[k, g * LANES + lane], k]
                    if not r <= negligible:
                        weights[1, lane] = np.sqrt(r)
                        weights[0, lane] = np.sqrt(r * noise)
                        largest = 1.0
                        if len(quadratics):
                            quadratics[k] += r * (quadratic[k, g, lane] + p * noise)
                if len(means):
                    for i in range(p):
                        for lane in range(LANES):
                            move[i, lane] = z[i, lane]
                    solve_backwards(A, p, move)
                    for lane in range(n_lanes):
                        mean = means[asked[k, g * LANES + lane], k]
                        for j in range(d):
                            mean[j] = b[k, j]
                        for i in range(p):
                            if p == d:
                                mean[i] += move[i, lane]
                            else:
                                for j in range(d):
                                    mean[j] += move[i, lane] * L[k, i, j]
                if len(second) and largest:
                    invert(A, p, inverse)
                    _clear(move, p)
                    column = 0
                    for i in range(p):
                        subtract(move, i, z, i, inverse, column, p - i)
                        multiply(move, i, weights, 1)
                        subtract(sums[k], i, move, i, weights, 1, 1)
                        column += p - i
                    for o in range(column):
                        multiply(inverse, o, weights, 0)
                    subtract_squares(inverse, move, p, total[k])
    for k in range(len(second)):
        for i in range(d):
            first[k, i] = _across(sums[k], i)
        for o in range(n_packed):
            second[k, o] = -_across(total[k], o)


@njit(**_OPTIONS)
def invert_all(systems: Array, inverses: Array, log_determinants: Array) -> None:
    """Inverses of positive definite systems (T, n, n), written into an array of the same shape, and their log |·| (T,)."""
    T, n, _ = systems.shape
    A, J = np.empty((n * (n + 1) // 2, LANES)), np.empty((n * (n + 1) // 2, LANES))
    nothing, log_pivots = np.zeros((n, LANES)), np.empty(LANES)
    for start in range(0, T, LANES):
        o = 0
        for i in range(n):
            for j in range(i + 1):
                for lane in range(LANES):
                    A[o, lane] = systems[min(start + lane, T - 1), i, j]
                o += 1
        factorise(A, n, log_pivots)
        invert(A, n, J)
        _clear(A, o)
        subtract_squares(J, nothing, n, A)
        for lane in range(min(LANES, T - start)):
            log_determinants[start + lane] = 2.0 * log_pivots[lane]
            o = 0
            for i in range(n):
                for j in range(i + 1):
                    inverses[start + lane, i, j] = inverses[start + lane, j, i] = -A[o, lane]
                    o += 1
