"""One compiled pass over tasks: their evidence under every component, responsibilities, and the sums of a step of EM.

With full-rank W the systems are ``XᵀX + σ²W⁻¹``: nothing is multiplied.  Where W has directions that are absent,
``LᵀXᵀXL + σ²I`` with W = LLᵀ, p × p for L (d, p).  Both read ``A = G + P`` here, G the second moments in a component's own
coordinates and P what its prior adds.  Tasks go through in chunks whose factors stay in the cache: `_load`, `_solve` and
`_weigh` them under each component, `_normalise`, and go back to the factors for means and moments.

The room of a pass (`tailored.gaussian.lanes`) has, for each component, `_GROUPS` times the rows of a *group* of eight
tasks: its factors, its solution ``z = F⁻¹ LᵀXᵀ(y − Xb)`` and what z leaves of ``‖y − Xb‖²``.  Then come the sums of each
component, ``−Σ r E(vvᵀ)`` and then ``Σ r E(v)``, and what is left is free for every stage.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .lanes import (
    ENTRY,
    LANES,
    PART,
    across,
    add,
    apart,
    clear,
    copy,
    empty_room,
    factorise,
    fill,
    gather,
    invert,
    multiply,
    solve_backwards,
    substitute,
    subtract,
    subtract_each,
    subtract_multiple,
    subtract_squares,
)

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Tasks of a chunk: enough that groups of eight fill up with those that are asked about a component.
CHUNK = 128
_GROUPS = CHUNK // LANES
_LOG_CIRCLE = float(np.log(2.0 * np.pi))


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
    K, d = b.shape
    n_packed = d * (d + 1) // 2
    # Most of it for `_load`: b, L, logarithms of pivots, and what `_project` reads and writes.
    free = (d + d * d) + 2 + (n_packed + d) + (2 * d * d + 1)
    room = empty_room(K * _GROUPS * (n_packed + d + 1) + K * (n_packed + d) + free)
    asked, n_asked = np.empty((K, CHUNK), np.int64), np.empty(K, np.int64)
    quadratics[:] = 0.0
    _pass(
        *(np.ascontiguousarray(array) for array in (gram, cross, square)),  # gathered by places
        *(sizes, b, L, ranks, precisions, constants, noise, negligible),
        *(joint, log_evidence, means, first, second, quadratics, asked, n_asked, room),
    )


@njit(**ENTRY)
def _pass(
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
    asked: Index,
    n_asked: Index,
    room: Array,
) -> None:
    """`expect` in a room; ``asked`` (K, CHUNK) and ``n_asked`` (K,) are for the tasks that a component is asked about."""
    K, d = b.shape
    n_packed = d * (d + 1) // 2
    groups = _GROUPS * (n_packed + d + 1)
    totals = K * groups
    free = totals + K * (n_packed + d)
    clear(room, totals, free - totals)
    for begin in range(0, len(cross), CHUNK):
        end = min(begin + CHUNK, len(cross))
        for k in range(K):
            p = ranks[k]
            n_asked[k] = _ask(joint, k, begin, end, asked)
            _spread(b, L, k, p, room, free)
            for g in range(0, n_asked[k], LANES):
                group = k * groups + g // LANES * (n_packed + d + 1)
                _load(gram, cross, square, asked, k * CHUNK + g, p, room, free, group)
                _solve(precisions, k, p, d, room, free, group)
                n, left, log_pivots = min(LANES, n_asked[k] - g), group + n_packed + d, free + d + d * d
                _weigh(sizes, p, constants[k], noise, asked, k, g, n, joint, room, left, log_pivots)
        _normalise(joint, log_evidence, begin, end)
        for k in range(K):
            p = ranks[k]
            for g in range(0, n_asked[k], LANES):
                group = k * groups + g // LANES * (n_packed + d + 1)
                n = min(LANES, n_asked[k] - g)
                if len(means):
                    _write_means(b, L, k, p, asked, g, n, room, group, free, means)
                if len(second) and _share(
                    joint, negligible, noise, p, asked, k, g, n, room, group + n_packed + d, free, quadratics
                ):
                    _add_moments(d, p, room, group, free, totals + k * (n_packed + d))
    for k in range(len(second)):
        across(room, totals + k * (n_packed + d), -1.0, k, second)
        across(room, totals + k * (n_packed + d) + n_packed, 1.0, k, first)


@njit(**PART)
def _ask(joint: Array, k: int, begin: int, end: int, asked: Index) -> int:
    """The number of tasks that component k is asked about; ``asked[k]`` names them, the last one until a group is full."""
    apart()
    n = 0
    for t in range(begin, end):
        if joint[t, k] > -np.inf:
            asked[k, n] = t
            n += 1
    for i in range(n, (n + LANES - 1) // LANES * LANES):
        asked[k, i] = asked[k, n - 1]
    return n


@njit(**PART)
def _spread(b: Array, L: Array, k: int, p: int, room: Array, free: int) -> None:
    """b and, where it is read, L of a component for all lanes."""
    apart()
    d = b.shape[1]
    for i in range(d):
        fill(room, free + i, b[k, i])
        if i < p < d:
            for j in range(d):
                fill(room, free + d + i * d + j, L[k, i, j])


@njit(**PART)
def _load(
    gram: Array,
    cross: Array,
    square: Array,
    asked: Index,
    first: int,
    p: int,
    room: Array,
    free: int,
    group: int,
) -> None:
    """G, ``LᵀXᵀ(y − Xb)`` and ``‖y − Xb‖²`` of eight tasks, where A, z and what is left will stand."""
    apart()
    d = cross.shape[1]
    b, A, left = free, group, group + d * (d + 1) // 2 + d
    if p < d:
        A = free + d + d * d + 2
    z = A + d * (d + 1) // 2
    row = A
    for i in range(d):
        gather(room, z + i, cross, d, i, asked, first)
        for j in range(i + 1):
            gather(room, row + j, gram, d * d, i * d + j, asked, first)
        row += i + 1
    gather(room, left, square, 1, 0, asked, first)
    subtract(room, left, b, z, d)
    row = A
    for i in range(d):
        subtract(room, z + i, b, row, i + 1)
        subtract_multiple(room, z, b + i, row, i)
        row += i + 1
    subtract(room, left, b, z, d)
    if p < d:
        _project(room, d, p, free + d, A, group)


@njit(**PART)
def _project(room: Array, d: int, p: int, L: int, G: int, A: int) -> None:
    """``A = LᵀGL`` and ``z = Lᵀx``; G is packed and x follows it, as z follows the room for A.  What follows x is free."""
    apart()
    n_packed = d * (d + 1) // 2
    x, z = G + n_packed, A + n_packed
    whole, minus_half = x + d, x + d + d * d
    minus = minus_half + p * d
    for i in range(d):
        for j in range(i + 1):
            copy(room, whole + i * d + j, G)
            copy(room, whole + j * d + i, G)
            G += 1
    clear(room, minus_half, p * d)
    clear(room, A, n_packed + d)
    for c in range(p):
        subtract_each(room, minus_half + c * d, d, L + c * d, whole, d)
        subtract_each(room, A, c + 1, L + c * d, minus_half, d)
        A += c + 1
    subtract_each(room, z, p, x, L, d)
    fill(room, minus, -1.0)
    for c in range(p):
        multiply(room, z + c, minus)


@njit(**PART)
def _solve(precisions: Array, k: int, p: int, d: int, room: Array, free: int, group: int) -> None:
    """Factors of G + P in place of G, z, what it leaves; logarithms of pivots behind b and L."""
    apart()
    z = group + d * (d + 1) // 2
    for o in range(p * (p + 1) // 2):
        add(room, group + o, precisions[k, o])
    factorise(room, group, p, free + d + d * d)
    substitute(room, group, p, p, z)
    subtract(room, z + d, z, z, p)


@njit(**PART)
def _weigh(
    sizes: Array,
    p: int,
    constant: float,
    noise: float,
    asked: Index,
    k: int,
    first: int,
    n: int,
    joint: Array,
    room: Array,
    left: int,
    log_pivots: int,
) -> None:
    """Log evidence of the n tasks of a group from what z leaves of their squares."""
    apart()
    log_noise = np.log(noise)
    for lane in range(n):
        t = asked[k, first + lane]
        # NaN stays NaN: a model that overflows has no evidence.
        if room[left, lane] < 0.0:
            room[left, lane] = 0.0
        joint[t, k] -= 0.5 * (
            (sizes[t] - p) * log_noise
            + 2.0 * room[log_pivots, lane]
            + constant
            + room[left, lane] / noise
            + sizes[t] * _LOG_CIRCLE
        )


@njit(**PART)
def _normalise(joint: Array, log_evidence: Array, begin: int, end: int) -> None:
    """Responsibilities in place of log p(y, k), and log p(y), for tasks in rows."""
    apart()
    K = joint.shape[1]
    for t in range(begin, end):
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


@njit(**PART)
def _write_means(
    b: Array,
    L: Array,
    k: int,
    p: int,
    asked: Index,
    first: int,
    n: int,
    room: Array,
    group: int,
    move: int,
    means: Array,
) -> None:
    """``b + L F⁻ᵀz`` of the n tasks of a group."""
    apart()
    d = b.shape[1]
    for i in range(p):
        copy(room, move + i, group + d * (d + 1) // 2 + i)
    solve_backwards(room, group, p, move)
    for lane in range(n):
        t = asked[k, first + lane]
        for j in range(d):
            value = b[k, j]
            if p == d:
                value += room[move + j, lane]
            else:
                for i in range(p):
                    value += room[move + i, lane] * L[k, i, j]
            means[t, k, j] = value


@njit(**PART)
def _share(
    joint: Array,
    negligible: float,
    noise: float,
    p: int,
    asked: Index,
    k: int,
    first: int,
    n: int,
    room: Array,
    left: int,
    weights: int,
    quadratics: Array,
) -> bool:
    """Roots of rσ² and of r, in two rows, and the sum of quadratics; whether any r is worth a sum."""
    apart()
    fill(room, weights, 0.0)
    fill(room, weights + 1, 0.0)
    any_weight = False
    for lane in range(n):
        r = joint[asked[k, first + lane], k]
        if not r <= negligible:
            room[weights, lane] = np.sqrt(r * noise)
            room[weights + 1, lane] = np.sqrt(r)
            quadratics[k] += r * (room[left, lane] + p * noise)
            any_weight = True
    return any_weight


@njit(**PART)
def _add_moments(d: int, p: int, room: Array, group: int, weights: int, total: int) -> None:
    """Bring a group's ``r E(vvᵀ) = r (σ²A⁻¹ + vvᵀ)`` and ``r E(v)`` to the totals, with the roots of `_share`."""
    apart()
    n_packed = d * (d + 1) // 2
    z, move = group + n_packed, weights + 2
    inverse = column = move + d
    invert(room, group, p, inverse)
    clear(room, move, p)
    for i in range(p):
        subtract(room, move + i, z + i, column, p - i)
        multiply(room, move + i, weights + 1)
        subtract(room, total + n_packed + i, move + i, weights + 1, 1)
        column += p - i
    for o in range(inverse, column):
        multiply(room, o, weights)
    subtract_squares(room, inverse, move, p, total)
