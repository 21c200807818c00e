"""Compiled loops of the within-task algorithms.

The exact kernels solve, for one task after another,

    min over w in R^r of  1/n sum_i l_i(o_i + <z_i, w>) + 1/2 |w|^2         (Z = X R', theta = R'R, R (r, d))

which is the within-task problem after the change of variables ``v = R'w``: ``v' theta^+ v = |w|^2`` and
``X theta X' = Z Z'``, so that no pseudo-inverse is formed. For every dual point ``a``

    primal(w) - dual(a) = 1/n sum_i [l_i(z_i) + l*_i(a_i) - a_i z_i] + 1/2 |w + Z'a/n|^2

is a sum of non-negative terms. Gaps are computed in this form, because the difference of two nearly equal
values would lose the digits that a certificate needs.

BLAS is avoided: its results may change with the number of threads, and one call costs as much as a small task.
Everything is in one file, because Numba's cache notices changes only in the file of the function that it stores.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compiling import njit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Outcome = tuple[float, float, int, bool]  # value, gap, iterations, converged

# Reassociation puts dot products into vector registers. NaN and infinity stay themselves: no nnan, no ninf.
_ENTRY: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
# Only the entries are called from Python and cached; wrappers for the rest would be half of the compile time.
_INNER: Any = {**_ENTRY, "cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_EPS = float(np.finfo(np.float64).eps)
_PATIENCE = 30  # iterations without a smaller gap, after which only rounding errors are left
_RIDGE = 1e-10  # proximal term of a free variable that depends on the others, relative to its diagonal


class Losses(NamedTuple):
    """The losses l_i of some rows: the logistic loss, or a loss with a dual box.

    l_i(p) = max over lower_i <= a <= upper_i of a (p - linear_i) - quadratic/2 a^2 - kink |a| has a dual box. It is
    piecewise linear if quadratic = 0, and smooth otherwise. The logistic loss is log(1 + exp(-linear_i p)).
    """

    logistic: bool
    linear: Floats
    lower: Floats
    upper: Floats
    quadratic: float
    kink: float


# --- losses ------------------------------------------------------------------------------------------------


@njit(**_INNER)
def _slope(loss: Losses, i: int, z: float) -> float:
    """Return the derivative of l_i at z; at a kink the admissible value nearest to 0."""
    if loss.logistic:
        m = loss.linear[i] * z
        e = np.exp(-abs(m))
        return -loss.linear[i] * (e if m > 0.0 else 1.0) / (1.0 + e)
    t = z - loss.linear[i]
    if t > loss.kink:
        t -= loss.kink
    elif t < -loss.kink:
        t += loss.kink
    else:
        return 0.0
    if loss.quadratic > 0.0:
        return min(max(t / loss.quadratic, loss.lower[i]), loss.upper[i])
    return loss.upper[i] if t > 0.0 else loss.lower[i]


@njit(**_INNER)
def _value(loss: Losses, i: int, z: float) -> float:
    """Return l_i(z)."""
    if loss.logistic:
        m = loss.linear[i] * z
        return max(-m, 0.0) + np.log1p(np.exp(-abs(m)))
    a = _slope(loss, i, z)
    return a * (z - loss.linear[i] - 0.5 * loss.quadratic * a) - loss.kink * abs(a)


@njit(**_INNER)
def _curvature(loss: Losses, i: int, z: float) -> float:
    """Return the second derivative of l_i at z, or one of its limits where it jumps; not for piecewise-linear losses."""
    if loss.logistic:
        e = np.exp(-abs(z))
        return e / ((1.0 + e) * (1.0 + e))
    a = _slope(loss, i, z)
    inside = a > loss.lower[i] and a < loss.upper[i] and abs(z - loss.linear[i]) >= loss.kink
    return 1.0 / loss.quadratic if inside else 0.0


@njit(**_INNER)
def _young(loss: Losses, i: int, z: float, a: float) -> float:
    """Return l_i(z) + l*_i(a) - a z, which is at least 0, and 0 if and only if a is a subgradient at z."""
    if loss.logistic:
        b = -loss.linear[i] * a
        entropy = 0.0
        if b > 0.0 and b < 1.0:
            entropy = b * np.log(b) + (1.0 - b) * np.log1p(-b)
        return max(_value(loss, i, z) + entropy - a * z, 0.0)
    b = _slope(loss, i, z)
    tilt = z - loss.linear[i] - 0.5 * loss.quadratic * (a + b)
    return max((b - a) * tilt - loss.kink * (abs(b) - abs(a)), 0.0)


# --- small dense linear algebra ----------------------------------------------------------------------------


@njit(**_INNER)
def _product(A: Floats, B: Floats, lower: bool) -> Floats:
    """Return A B', or its lower triangle. Tiles of two by two rows halve the loads, which limit short products.

    Callers pass ``lower`` as np.bool_, because each literal would be compiled by itself.
    """
    n, d = A.shape
    m = B.shape[0]
    C = np.empty((n, m))
    for i in range(0, n, 2):
        k = min(i + 1, n - 1)  # an odd last row is computed twice rather than coded twice
        for j in range(0, i + 1 if lower else m, 2):
            l = min(j + 1, m - 1)
            s = t = u = v = 0.0
            for h in range(d):
                s += A[i, h] * B[j, h]
                t += A[i, h] * B[l, h]
                u += A[k, h] * B[j, h]
                v += A[k, h] * B[l, h]
            C[i, j] = s
            C[i, l] = t
            C[k, j] = u
            C[k, l] = v
    return C


@njit(**_INNER)
def _dot(A: Floats, i: int, x: Floats) -> float:
    """Return <A_i, x>; x is at least as long as a row of A."""
    s = 0.0
    for k in range(A.shape[1]):
        s += A[i, k] * x[k]
    return s


@njit(**_INNER)
def _add_row(A: Floats, i: int, c: float, x: Floats) -> None:
    """Add c A_i to x."""
    for k in range(A.shape[1]):
        x[k] += c * A[i, k]


@njit(**_INNER)
def _cholesky(C: Floats) -> bool:
    """Factor C = LL' in place (lower triangle); return False if C is not finite.

    Next to eigenvalues of 1e16 the penalty's 1 is lost. Pivots that are not positive then become as large as rounding.
    """
    for i in range(C.shape[0]):
        rounding = C.shape[0] * _EPS * C[i, i]
        for j in range(i):
            s = C[i, j]
            for k in range(j):
                s -= C[i, k] * C[j, k]
            C[i, j] = s / C[j, j]
        s = C[i, i]
        for k in range(i):
            s -= C[i, k] * C[i, k]
        s = s if s > 0.0 else rounding
        if not 0.0 < s < np.inf:
            return False
        C[i, i] = np.sqrt(s)
    return True


@njit(**_INNER)
def _cholesky_solve(L: Floats, m: int, x: Floats) -> None:
    """Replace x by (LL')^-1 x with the leading m rows of L."""
    for i in range(m):
        s = x[i]
        for k in range(i):
            s -= L[i, k] * x[k]
        x[i] = s / L[i, i]
    for i in range(m - 1, -1, -1):
        s = x[i] / L[i, i]
        x[i] = s
        for k in range(i):
            x[k] -= L[i, k] * s


@njit(**_INNER)
def _cholesky_delete(L: Floats, m: int, j: int) -> None:
    """Remove row and column j of LL', given the leading m rows of L, by Givens rotations."""
    for i in range(j, m - 1):
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for k in range(j, m - 1):
        x = L[k, k]
        y = L[k, k + 1]
        h = np.sqrt(x * x + y * y)
        x /= h
        y /= h
        L[k, k] = h
        for i in range(k + 1, m - 1):
            s = L[i, k]
            t = L[i, k + 1]
            L[i, k] = x * s + y * t
            L[i, k + 1] = x * t - y * s


@njit(**_INNER)
def _semidefinite_root(S: Floats) -> tuple[Floats, Integers]:
    """Factor S = R'R, positive semidefinite (d, d), by Cholesky with diagonal pivoting; return R (r, d) and the pivots.

    R[k, order[j]] = 0 for j < k < r. A pivot is compared with its own diagonal entry, so that the rank r does not
    depend on the units of the features.
    """
    d = S.shape[0]
    R = np.empty((d, d))
    rest = np.empty(d)
    order = np.empty(d, np.int64)
    for i in range(d):
        rest[i] = S[i, i]
        order[i] = i
    for k in range(d):
        largest = d * _EPS
        at = -1
        for j in range(k, d):
            i = order[j]
            if rest[i] > largest * S[i, i]:
                largest = rest[i] / S[i, i]
                at = j
        if at < 0:
            return R[:k], order
        p = order[at]
        order[at] = order[k]
        order[k] = p
        pivot = np.sqrt(rest[p])
        for i in range(d):
            R[k, i] = S[p, i]
        for h in range(k):
            _add_row(R, h, -R[h, p], R[k])
        for i in range(d):
            R[k, i] /= pivot
            rest[i] -= R[k, i] * R[k, i]
        for j in range(k):
            R[k, order[j]] = 0.0
        R[k, p] = pivot
    return R, order


# --- exact, smooth losses ----------------------------------------------------------------------------------


@njit(**_INNER)
def _weighted_gram(Z: Floats, weights: Floats) -> Floats:
    """Return the lower triangle of I + Z' diag(weights) Z."""
    n, r = Z.shape
    columns = np.empty((r, n))
    for i in range(n):
        root = np.sqrt(weights[i])
        for k in range(r):
            columns[k, i] = root * Z[i, k]
    H = _product(columns, columns, np.bool_(True))
    for k in range(r):
        H[k, k] += 1.0
    return H


@njit(**_INNER)
def _newton(
    loss: Losses, Z: Floats, offset: Floats, tol: float, max_iter: int, w: Floats, a: Floats
) -> Outcome:
    """Solve a task with a smooth loss, from w = 0, by damped Newton steps on the primal.

    With a = l'(z) the sum over the rows in the gap is zero, and the gap is half the squared gradient.
    """
    n, r = Z.shape
    z, dz, weights, gradient, direction = np.empty(n), np.empty(n), np.empty(n), np.empty(r), np.empty(r)
    target = np.inf
    best = np.inf
    stalled = 0
    extra = 0
    n_iter = 0
    while True:
        value = 0.0
        for k in range(r):
            gradient[k] = w[k]
            value += 0.5 * w[k] * w[k]
        risk = 0.0
        for i in range(n):
            z[i] = offset[i] + _dot(Z, i, w)
            a[i] = _slope(loss, i, z[i])
            risk += _value(loss, i, z[i])
            _add_row(Z, i, a[i] / n, gradient)
        value += risk / n
        if n_iter == 0:
            target = tol * value
        gap = 0.0
        for k in range(r):
            gap += 0.5 * gradient[k] * gradient[k]
        stalled = 0 if gap < best else stalled + 1
        best = min(best, gap)
        # |w - w*| is of the order of the root of the gap: one or two more steps make w as accurate as the value
        extra += gap <= target
        done = not gap > 1e-6 * target or extra == 3
        if done or n_iter >= max_iter or stalled >= _PATIENCE:
            return value, gap, n_iter, gap <= target
        n_iter += 1

        for i in range(n):
            weights[i] = _curvature(loss, i, z[i]) / n
        H = _weighted_gram(Z, weights)
        if not _cholesky(H):
            return value, gap, n_iter, False
        for k in range(r):
            direction[k] = -gradient[k]
        _cholesky_solve(H, r, direction)
        descent = 0.0
        for k in range(r):
            descent += direction[k] * gradient[k]
        for i in range(n):
            dz[i] = _dot(Z, i, direction)
        length = 1.0
        while length > 1e-20:
            risk = 0.0
            for i in range(n):
                risk += _value(loss, i, z[i] + length * dz[i])
            trial = risk / n
            for k in range(r):
                trial += 0.5 * (w[k] + length * direction[k]) ** 2
            if trial <= value * (1.0 + 16.0 * _EPS) + 1e-4 * length * descent:
                break
            length *= 0.5
        for k in range(r):
            w[k] += length * direction[k]


# --- exact, piecewise-linear losses ------------------------------------------------------------------------


@njit(**_INNER)
def _certify(loss: Losses, Z: Floats, offset: Floats, w: Floats, a: Floats) -> tuple[float, float]:
    """Return the value at w, and the gap between w and a."""
    n, r = Z.shape
    value = gap = 0.0
    mismatch = w.copy()
    for i in range(n):
        z = offset[i] + _dot(Z, i, w)
        value += _value(loss, i, z)
        gap += _young(loss, i, z, a[i])
        _add_row(Z, i, a[i] / n, mismatch)
    value /= n
    gap /= n
    for k in range(r):
        value += 0.5 * w[k] * w[k]
        gap += 0.5 * mismatch[k] * mismatch[k]
    return value, gap


@njit(**_INNER)
def _sweep(box: Losses, Z: Floats, offset: Floats, norms: Floats, w: Floats, a: Floats) -> None:
    """Minimise the dual exactly in one coordinate after another, keeping w = -Z'a/n."""
    n = Z.shape[0]
    for i in range(n):
        z = offset[i] + _dot(Z, i, w)
        h = norms[i]
        if h > 0.0:
            t = h * a[i] + (z - box.linear[i])
            if t > box.kink:
                t = (t - box.kink) / h
            elif t < -box.kink:
                t = (t + box.kink) / h
            else:
                t = 0.0
            t = min(max(t, box.lower[i]), box.upper[i])
        else:  # the prediction of this row is constant
            t = _slope(box, i, z)
        c = (a[i] - t) / n
        if c != 0.0:
            a[i] = t
            _add_row(Z, i, c, w)


@njit(**_INNER)
def _regression_start(box: Losses, Z: Floats, offset: Floats, w: Floats, a: Floats) -> None:
    """Set a to the slopes of a smooth loss at reweighted least squares, with at most rank(Z) inside, and w = -Z'a/n.

    If theta is large, the sweeps leave nearly all variables inside their bounds, but only rank(Z) end there.
    """
    n, r = Z.shape
    weights, z, sizes = np.ones(n), offset.copy(), np.zeros(n)
    for _ in range(2):
        for k in range(r):
            w[k] = 0.0
        for i in range(n):
            _add_row(Z, i, weights[i] * (box.linear[i] - offset[i]), w)
        H = _weighted_gram(Z, weights)
        if not _cholesky(H):
            break
        _cholesky_solve(H, r, w)
        for i in range(n):
            z[i] = offset[i] + _dot(Z, i, w)
            sizes[i] = abs(z[i] - box.linear[i]) - box.kink
            weights[i] = 1.0 / (sizes[i] + box.kink)
    width = np.inf  # the smallest size that more than r do not exceed
    for i in range(n):
        m = 0
        for j in range(n):
            m += sizes[j] > 0.0 and sizes[j] <= sizes[i]
        if m > r:
            width = min(width, sizes[i])
    for k in range(r):
        w[k] = 0.0
    for i in range(n):
        slope = _slope(box, i, z[i])
        a[i] = slope * sizes[i] / width if 0.0 < sizes[i] < width else slope
        _add_row(Z, i, -a[i] / n, w)


@njit(**_INNER)
def _count_inside(box: Losses, a: Floats, norms: Floats, is_inside: NDArray[np.bool_]) -> int:
    """Find the variables strictly inside a smooth piece of their conjugate; return their number."""
    m = 0
    for i in range(a.shape[0]):
        inside = a[i] > box.lower[i] and a[i] < box.upper[i] and (box.kink == 0.0 or a[i] != 0.0)
        is_inside[i] = inside and norms[i] > 0.0
        m += is_inside[i]
    return m


@njit(**_INNER)
def _append(Z: Floats, i: int, norms: Floats, free: Integers, m: int, L: Floats) -> bool:
    """Add variable i to the free ones, as row m of the Cholesky factor L of Z_F Z_F'/n; return whether it is independent."""
    n = Z.shape[0]
    pivot = norms[i]
    for j in range(m):
        s = _dot(Z, free[j], Z[i]) / n
        for k in range(j):
            s -= L[j, k] * L[m, k]
        s /= L[j, j]
        L[m, j] = s
        pivot -= s * s
    free[m] = i
    independent = pivot > 0.1 * _RIDGE * norms[i]
    L[m, m] = np.sqrt(pivot if independent else _RIDGE * norms[i])
    return independent


@njit(**_INNER)
def _free_residual(
    box: Losses, Z: Floats, offset: Floats, w: Floats, free: Integers, m: int, side: Floats, out: Floats
) -> float:
    """Compute minus the dual gradient in the free variables, 0 at the minimum of their face; return its 1-norm."""
    norm = 0.0
    for j in range(m):
        i = free[j]
        out[j] = offset[i] + _dot(Z, i, w) - box.linear[i] - box.kink * side[i]
        norm += abs(out[j])
    return norm


@njit(**_INNER)
def _price(
    box: Losses, Z: Floats, offset: Floats, norms: Floats, is_free: NDArray[np.bool_], w: Floats, a: Floats
) -> tuple[int, float, float]:
    """Return the fixed variable with the largest inward slope (-1: none), this slope, and n times the gap."""
    entering = -1
    slope = best = gap = 0.0
    for i in range(Z.shape[0]):
        z = offset[i] + _dot(Z, i, w)
        gap += _young(box, i, z, a[i])
        if not is_free[i] and norms[i] > 0.0:
            t = z - box.linear[i]
            up = t - box.kink if a[i] >= 0.0 else t + box.kink
            down = t + box.kink if a[i] <= 0.0 else t - box.kink
            t = 0.0
            if a[i] < box.upper[i] and up > 0.0:
                t = up
            elif a[i] > box.lower[i] and down < 0.0:
                t = down
            if t * t > best * norms[i]:
                best = t * t / norms[i]
                entering = i
                slope = t
    return entering, slope, gap


@njit(**_INNER)
def _descend(
    box: Losses,
    Z: Floats,
    offset: Floats,
    norms: Floats,
    is_free: NDArray[np.bool_],
    enough: float,
    w: Floats,
    a: Floats,
) -> None:
    """Take active-set steps from the given free variables until n times the gap is at most enough.

    Newton steps lead to the minimum of the face of the free variables, and every bound that is reached fixes a
    variable. Then the variable with the largest inward slope becomes free, and so on. w is updated with the
    unrounded steps and not recomputed from a: if theta is large, it has digits that a loses by rounding, and the
    gap reaches targets that -Z'a/n would not.
    """
    n, r = Z.shape
    capacity = r + 8
    L = np.empty((capacity, capacity))
    free = np.empty(capacity, np.int64)
    residual, step, total, proximal = (
        np.empty(capacity),
        np.empty(capacity),
        np.zeros(capacity),
        np.zeros(capacity),
    )
    side = np.empty(n)
    m = np.int64(0)  # a literal would compile every callee twice
    for i in range(n):
        side[i] = 1.0 if a[i] > 0.0 else -1.0
        if is_free[i]:  # a dependent variable stays fixed until it is selected
            is_free[i] = m < capacity and _append(Z, i, norms, free, m, L)
            m += is_free[i]
    before = _free_residual(box, Z, offset, w, free, m, side, residual)
    refinements = 0
    entered = 0
    while True:
        for j in range(m):
            step[j] = residual[j]
        _cholesky_solve(L, m, step)
        length = 1.0
        hit = np.int64(-1)
        bound = 0.0
        for j in range(m):
            i = free[j]
            edge = box.lower[i] if step[j] < 0.0 else box.upper[i]
            if box.kink > 0.0 and (side[i] > 0.0) != (step[j] > 0.0):
                edge = 0.0
            if step[j] != 0.0 and length * abs(step[j]) >= abs(edge - a[i]):
                length = (edge - a[i]) / step[j]
                hit = np.int64(j)
                bound = edge
        for j in range(m):
            i = free[j]
            total[j] += length * step[j]
            a[i] = min(max(a[i] + length * step[j], box.lower[i]), box.upper[i])
            # L factors the block plus the proximal term, so the remaining gradient is known
            residual[j] += length * (proximal[j] * step[j] - residual[j])
        if hit >= 0:
            i = free[hit]
            _add_row(Z, i, -(total[hit] + (bound - a[i])) / n, w)
            a[i] = bound
            is_free[i] = False
            _cholesky_delete(L, m, hit)
            m -= 1
            for j in range(hit, m):
                free[j] = free[j + 1]
                residual[j] = residual[j + 1]
                total[j] = total[j + 1]
                proximal[j] = proximal[j + 1]
            continue
        for j in range(m):
            _add_row(Z, free[j], -total[j] / n, w)
            total[j] = 0.0
        left = _free_residual(box, Z, offset, w, free, m, side, residual)
        if left > 0.1 * enough and left < 0.5 * before and refinements < 5:
            before = left
            refinements += 1
            continue
        entering, slope, gap = _price(box, Z, offset, norms, is_free, w, a)
        if gap <= enough or entering < 0 or m == capacity or entered > 2 * n + 50:
            return  # more entries than that are cycles caused by rounding
        # this proximal term turns the slope along a direction that changes no prediction into a step to a bound
        proximal[m] = 0.0 if _append(Z, entering, norms, free, m, L) else _RIDGE * norms[entering]
        total[m] = 0.0
        is_free[entering] = True
        side[entering] = 1.0 if a[entering] > 0.0 or (a[entering] == 0.0 and slope > 0.0) else -1.0
        residual[m] = slope
        m += 1
        entered += 1
        refinements = 0
        before = np.inf


@njit(**_INNER)
def _active_set(
    loss: Losses, Z: Floats, offset: Floats, tol: float, max_iter: int, w: Floats, a: Floats
) -> Outcome:
    """Solve a task with a piecewise-linear loss, from w = 0, by sweeps and active-set steps on the dual.

    A few sweeps find most of the active bounds if theta is small; active-set steps find the others and the exact
    solution. One round of both is usually enough. Another one, with a new factor, removes rounding errors.
    """
    n, r = Z.shape
    norms, is_free = np.empty(n), np.empty(n, np.bool_)
    value = 0.0
    for i in range(n):
        a[i] = 0.0
        value += _value(loss, i, offset[i])
        norms[i] = _dot(Z, i, Z[i]) / n
    value /= n
    target = tol * value
    gap = value  # the dual value of a = 0 is 0
    best = gap
    stalled = 0
    n_iter = 0
    while gap > target and n_iter < max_iter and stalled < _PATIENCE:
        for _ in range(5):
            _sweep(loss, Z, offset, norms, w, a)
        if _count_inside(loss, a, norms, is_free) > r and n_iter == 0:
            _regression_start(loss, Z, offset, w, a)
            _count_inside(loss, a, norms, is_free)
        _descend(loss, Z, offset, norms, is_free, 0.9 * n * target, w, a)
        n_iter += 1
        value, gap = _certify(loss, Z, offset, w, a)
        stalled = 0 if gap < best else stalled + 1
        best = min(best, gap)
    return value, gap, n_iter, gap <= target


# --- online ------------------------------------------------------------------------------------------------


@njit(**_INNER)
def _one_pass(
    loss: Losses, X: Floats, images: Floats, offset: Floats, v: Floats, a: Floats, certify: bool
) -> Outcome:
    """Add the mean of w_2 .. w_{n+1} with w_{i+1} = -theta X_{1:i}' s_{1:i} / i to v = 0, and set a = s; images = X theta.

    v = -theta X'b/n with b_j = s_j (1/j + .. + 1/n). So v' theta^+ v = -<X'b/n, v>, and likewise for the
    distance of v to -theta X's/n, the point that belongs to the dual point s.
    """
    n, d = X.shape
    running = np.zeros(d)  # i times the iterate
    for i in range(n):
        z = offset[i]
        if i > 0:
            z += _dot(X, i, running) / i
        a[i] = _slope(loss, i, z)
        _add_row(images, i, -a[i], running)
    harmonic = 0.0
    for i in range(n - 1, -1, -1):
        harmonic += 1.0 / (i + 1)
        _add_row(images, i, -harmonic * a[i] / n, v)
    finite = 0.0
    for k in range(d):
        running[k] = v[k] - running[k] / n
        finite += v[k]
    if not certify:
        return 0.0, 0.0 * finite, 1, np.isfinite(finite)
    value = gap = square = distance = harmonic = 0.0
    for i in range(n - 1, -1, -1):
        harmonic += 1.0 / (i + 1)
        z = _dot(X, i, v)
        square -= harmonic * a[i] * z
        distance -= (harmonic - 1.0) * a[i] * _dot(X, i, running)
        value += _value(loss, i, offset[i] + z)
        gap += _young(loss, i, offset[i] + z, a[i])
    value = (value + 0.5 * max(square, 0.0)) / n
    gap = (gap + 0.5 * max(distance, 0.0)) / n
    return value, gap, 1, np.isfinite(value)


# --- tasks -------------------------------------------------------------------------------------------------


@njit(**_INNER)
def _part(loss: Losses, start: int, stop: int) -> Losses:
    """Return the losses of the rows start:stop."""
    linear, lower, upper = loss.linear[start:stop], loss.lower[start:stop], loss.upper[start:stop]
    return Losses(loss.logistic, linear, lower, upper, loss.quadratic, loss.kink)


# Rows starts[t]:starts[t+1] are task t; offset is (N,), or (0,) for zeros; thetas are (T, d, d) or (1, d, d).
# The output is coef (T, d), alpha (N,) and one number per task of the others. It starts as the solution of tasks
# without rows: zeros, and converged.


@njit(inline="always", **_INNER)
def _exact_tasks(solve: Any, parameters: Any, tol: float, max_iter: int, problem: Any, out: Any) -> None:
    loss = Losses(*parameters)
    X, offset, starts, thetas = problem
    coef, alpha, value, gap, n_iter, converged = out
    n_tasks, d = coef.shape
    shared = np.empty((0, d))
    for t in range(n_tasks):
        first, stop = starts[t], starts[t + 1]
        n = stop - first
        if n == 0:
            continue
        # Copies have the type of all other matrices, so that each function is compiled once.
        rows = X[first:stop].copy()
        # Depends only on the shape of the task, so that its result does not depend on the other tasks.
        by_gram = 2 * n < d
        if by_gram:  # ZZ' = X theta X' = R'R (n, n): factoring theta would cost more
            images = _product(rows, thetas[t if thetas.shape[0] > 1 else 0].copy(), np.bool_(False))
            R, order = _semidefinite_root(_product(images, rows, np.bool_(False)))
            Z = np.empty((n, R.shape[0]))
            for i in range(n):
                for k in range(R.shape[0]):
                    Z[i, k] = R[k, i]
        else:
            if shared.shape[0] == 0 or thetas.shape[0] > 1:
                shared, order = _semidefinite_root(thetas[t if thetas.shape[0] > 1 else 0].copy())
            R = shared
            Z = _product(rows, R, np.bool_(False))
        r = R.shape[0]
        w = np.zeros(r)
        value[t], gap[t], n_iter[t], converged[t] = solve(
            _part(loss, first, stop),
            Z,
            offset[first:stop].copy() if offset.shape[0] else np.zeros(n),
            tol,
            max_iter,
            w,
            alpha[first:stop],
        )
        if by_gram:
            # coef = theta X'b, where Z'b = w, b is 0 off the pivots and Z' is triangular on them; w becomes b
            for j in range(r - 1, -1, -1):
                for k in range(j + 1, r):
                    w[j] -= R[j, order[k]] * w[k]
                w[j] /= R[j, order[j]]
                _add_row(images, order[j], w[j], coef[t])
        else:
            for j in range(r):
                _add_row(R, j, w[j], coef[t])


@njit(**_ENTRY)
def exact_piecewise(parameters: Any, tol: float, max_iter: int, problem: Any, out: Any) -> None:
    """Solve tasks with a piecewise-linear loss exactly; parameters are the fields of `Losses`."""
    _exact_tasks(_active_set, parameters, tol, max_iter, problem, out)


@njit(**_ENTRY)
def exact_smooth(parameters: Any, tol: float, max_iter: int, problem: Any, out: Any) -> None:
    """Solve tasks with a smooth loss exactly; parameters are the fields of `Losses`."""
    _exact_tasks(_newton, parameters, tol, max_iter, problem, out)


@njit(**_ENTRY)
def online(parameters: Any, certify: bool, problem: Any, out: Any) -> None:
    """Make one pass over each task; value and gap are 0 unless certify is True."""
    loss = Losses(*parameters)
    X, offset, starts, thetas = problem
    coef, alpha, value, gap, n_iter, converged = out
    n_tasks, d = coef.shape
    for t in range(n_tasks):
        first, stop = starts[t], starts[t + 1]
        n = stop - first
        if n == 0:
            continue
        rows = X[first:stop]
        images = np.empty((n, d))
        # The only BLAS call: a loop would double the time of a pass. It is too small for a second thread.
        np.dot(rows, thetas[t if thetas.shape[0] > 1 else 0], images)
        value[t], gap[t], n_iter[t], converged[t] = _one_pass(
            _part(loss, first, stop),
            rows,
            images,
            offset[first:stop].copy() if offset.shape[0] else np.zeros(n),
            coef[t],
            alpha[first:stop],
            certify,
        )
