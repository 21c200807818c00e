"""Compiled loops of the within-task algorithms (Eqs. 2 to 4); `within_task` calls them.

The exact kernel solves, for one task after another,

    min over w in R^r of  1/n sum_i l_i(o_i + <z_i, w>) + 1/2 |w|^2         (Z = X R', theta = R'R,
    R (r, d))

which is Eq. 2 after the change of variables ``v = R'w``: ``v' theta^+ v = |w|^2`` and
``X theta X' = Z Z'``, so that no pseudo-inverse is formed. For every dual point ``a``, and ``p_i =
o_i + <z_i, w>``,

    primal(w) - dual(a) = 1/n sum_i [l_i(p_i) + l*_i(a_i) - a_i p_i] + 1/2 |w + Z'a/n|^2

is a sum of non-negative terms. Gaps are computed in this form, because the difference of two nearly
equal values would lose the digits that a certificate needs. Only products of matrices use BLAS,
because one call costs as much as a small task. All kernels are in one file, because Numba's cache
only detects changes in the file of the cached function.
"""

from math import exp, isfinite, log, log1p, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compiling import njit
from ..losses import DualBox

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Outcome = tuple[float, float, int, bool]  # value, gap, iterations, converged

# Reassociation puts dot products into vector registers. The flags nnan and ninf are not set, to
# keep NaN and infinity.
_ENTRY: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
# Only entry points are called from Python and cached; wrappers for the rest would take half of the
# compile time.
_INNER: dict[str, Any] = _ENTRY | {
    "cache": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
# Functions that allocate nothing need no reference counting, which would take a fifth of their
# compile time.
_LEAF: dict[str, Any] = _INNER | {"_nrt": False}

_EPS = float(np.finfo(np.float64).eps)
# Stop after this many iterations without a smaller gap: only rounding errors are left.
_PATIENCE = 30
# Proximal term of a free variable whose row of Z depends linearly on the others, relative to its
# diagonal entry.
_RIDGE = 1e-10


class WithinSolution(NamedTuple):
    """Solutions of T tasks with N rows in total."""

    coef: Floats  # v, (T, d)
    alpha: Floats  # a, (N,)
    value: Floats  # P(v), (T,)
    gap: Floats  # the duality gap P(v) - D(a) >= 0, (T,)
    n_iter: Integers  # (T,)
    converged: NDArray[np.bool_]  # (T,)


class Task(NamedTuple):
    """One task in the coordinates w of the exact kernel."""

    loss: DualBox
    offset: Floats  # (n,)
    Z: Floats  # (n, r)
    norms: Floats  # the diagonal of ZZ'/n, (n,)


class Free(NamedTuple):
    """Workspace of the active-set method, for up to c free dual variables."""

    L: Floats  # (c, c) Cholesky factor of Z_F Z_F'/n
    step: Floats  # (c,) their residuals, and then their Newton steps
    rows: Integers  # (c,) their positions


@njit(**_LEAF)
def _box_terms(box: DualBox, i: int, z: float, a: float) -> tuple[float, float, float, float]:
    """Return l_i'(z), l_i(z), l_i(z) + l*_i(a) - a z and l_i''(z) of a loss with a dual box.

    At a kink the derivative is the admissible value nearest to 0. The third value is at least 0,
    and 0 if and only if a is a subgradient at z. Where the curvature jumps, one of its limits is
    returned; it is 0 for piecewise-linear losses.
    """
    t = z - box.linear[i]
    slope = curvature = 0.0
    if box.quadratic > 0.0:
        slope = min(max(t / box.quadratic, box.lower[i]), box.upper[i])
        if box.lower[i] < slope < box.upper[i]:
            curvature = 1.0 / box.quadratic
    elif t != 0.0:
        slope = box.upper[i] if t > 0.0 else box.lower[i]
    value = slope * (t - 0.5 * box.quadratic * slope)
    young = (slope - a) * (t - 0.5 * box.quadratic * (a + slope))
    return slope, value, max(young, 0.0), curvature


@njit(**_LEAF)
def _terms(loss: DualBox, i: int, z: float, a: float) -> tuple[float, float, float, float]:
    """Return the same as `_box_terms`, for any loss.  Piecewise-linear losses take 20 % longer with
    this function.
    """
    if not loss.logistic:
        terms: tuple[float, float, float, float] = _box_terms(loss, i, z, a)
        return terms
    m = loss.linear[i] * z
    e = exp(-abs(m))
    value = max(-m, 0.0) + log1p(e)
    young = value - a * z
    b = -loss.linear[i] * a
    if 0.0 < b < 1.0:
        young += b * log(b) + (1.0 - b) * log1p(-b)
    slope = -loss.linear[i] * (e if m > 0.0 else 1.0) / (1.0 + e)
    return slope, value, max(young, 0.0), e / ((1.0 + e) * (1.0 + e))


@njit(**_INNER)
def _product(A: Floats, B: Floats) -> Floats:
    """Return AB, by BLAS."""
    return A @ B


@njit(**_LEAF)
def _dot(A: Floats, i: int, x: Floats) -> float:
    """Return <A_i, x>; x is at least as long as a row of A."""
    s = 0.0
    for k in range(A.shape[1]):
        s += A[i, k] * x[k]
    return s


@njit(**_LEAF)
def _add_row(A: Floats, i: int, c: float, x: Floats) -> None:
    """Add c A_i to x."""
    for k in range(A.shape[1]):
        x[k] += c * A[i, k]


@njit(**_LEAF)
def _eliminate(L: Floats, m: int, pivot: float) -> float:
    """Replace row m of a matrix by row m of its Cholesky factor, given the earlier rows; return the
    squared pivot.
    """
    for j in range(m):
        s = L[m, j]
        for k in range(j):
            s -= L[j, k] * L[m, k]
        s = s / L[j, j] if L[j, j] > 0.0 else 0.0
        L[m, j] = s
        pivot -= s * s
    return pivot


@njit(**_LEAF)
def _cholesky_solve(L: Floats, m: int, x: Floats) -> None:
    """Replace x by (LL')^-1 x with the leading m rows and columns of L."""
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
def _solve_weighted(Z: Floats, weights: Floats, x: Floats) -> bool:
    """Replace x by (I + Z' diag(weights) Z)^-1 x; return False if the matrix is not finite.

    If eigenvalues exceed 1e16, the identity is lost to rounding. Pivots that are not positive are
    then replaced by the size of rounding errors.
    """
    n, r = Z.shape
    columns = np.zeros((r, n))
    for i in range(n):
        for k in range(r):
            columns[k, i] = weights[i] * Z[i, k]
    H = _product(columns, Z)
    for k in range(r):
        H[k, k] += 1.0
        pivot = _eliminate(H, k, H[k, k])
        pivot = pivot if pivot > 0.0 else r * _EPS * H[k, k]
        if not 0.0 < pivot < np.inf:
            return False
        H[k, k] = sqrt(pivot)
    _cholesky_solve(H, r, x)
    return True


@njit(**_LEAF)
def _semidefinite_root(S: Floats) -> None:
    """Replace S, positive semidefinite, by its lower triangular root L, ``S = LL'``, with zero
    columns if S is singular.

    Each pivot is compared with its own diagonal entry, so that the rank does not depend on the
    units of the features.
    """
    for m in range(len(S)):
        pivot = _eliminate(S, m, S[m, m])
        S[m, m] = sqrt(pivot) if pivot > len(S) * _EPS * S[m, m] else 0.0
        for j in range(m + 1, len(S)):
            S[m, j] = 0.0


@njit(**_LEAF)
def _solve_transposed(L: Floats, x: Floats) -> None:
    """Replace x by b with L'b = x for a root of `_semidefinite_root`; b is 0 at zero columns."""
    for j in range(len(x) - 1, -1, -1):
        for k in range(j + 1, len(x)):
            x[j] -= L[k, j] * x[k]
        x[j] = x[j] / L[j, j] if L[j, j] > 0.0 else 0.0


@njit(**_LEAF)
def _mismatch(task: Task, w: Floats, a: Floats, x: Floats) -> tuple[float, float]:
    """Set x = w + Z'a/n; return half the squared norms of w and x."""
    square = distance = 0.0
    for k in range(len(w)):
        square += 0.5 * w[k] * w[k]
        x[k] = w[k]
    for i in range(len(a)):
        _add_row(task.Z, i, a[i] / len(a), x)
    for k in range(len(w)):
        distance += 0.5 * x[k] * x[k]
    return square, distance


@njit(**_INNER)
def _newton(task: Task, tol: float, max_iter: int, w: Floats, a: Floats) -> Outcome:
    """Solve a task with a smooth loss, from w = 0, by damped Newton steps on the primal.

    With a = l'(z), the sum over the rows in the gap is zero, and the gap is half the squared norm
    of the gradient.
    """
    loss, Z, offset = task.loss, task.Z, task.offset
    n, r = Z.shape
    z, dz, weights, gradient = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(r)
    target = best = np.inf
    stalled = extra = n_iter = 0
    while True:
        value = 0.0
        for i in range(n):
            z[i] = offset[i] + _dot(Z, i, w)
            a[i], risk, _, curvature = _terms(loss, i, z[i], 0.0)
            weights[i] = curvature / n
            value += risk / n
        square, gap = _mismatch(task, w, a, gradient)
        value += square
        target = tol * value if n_iter == 0 else target
        stalled = 0 if gap < best else stalled + 1
        best = min(best, gap)
        # |w - w*| is of the order of the square root of the gap; one or two more steps make w as
        # accurate as the value
        extra += gap <= target
        done = not gap > 1e-6 * target or extra == 3
        if done or n_iter >= max_iter or stalled >= _PATIENCE:
            return value, gap, n_iter, gap <= target
        n_iter += 1
        direction = -gradient
        if not _solve_weighted(Z, weights, direction):
            return value, gap, n_iter, False
        descent = 0.0
        for k in range(r):
            descent += direction[k] * gradient[k]
        for i in range(n):
            dz[i] = _dot(Z, i, direction)
        length = 1.0
        while length > 1e-20:
            trial = 0.0
            for i in range(n):
                trial += _terms(loss, i, z[i] + length * dz[i], 0.0)[1] / n
            for k in range(r):
                trial += 0.5 * (w[k] + length * direction[k]) ** 2
            if trial <= value * (1.0 + 16.0 * _EPS) + 1e-4 * length * descent:
                break
            length *= 0.5
        for k in range(r):
            w[k] += length * direction[k]


# Piecewise-linear losses: a dual variable is free if it is strictly inside its box.


@njit(**_LEAF)
def _mark(task: Task, a: Floats, is_free: Flags) -> int:
    """Mark the free dual variables, and return their number."""
    box = task.loss
    n_free = 0
    for i in range(len(a)):
        is_free[i] = box.lower[i] < a[i] < box.upper[i] and task.norms[i] > 0.0
        n_free += is_free[i]
    return n_free


@njit(**_LEAF)
def _sweep(task: Task, w: Floats, a: Floats) -> None:
    """Make up to five passes of coordinate descent on the negative dual, keeping w = -Z'a/n."""
    box, Z, norms = task.loss, task.Z, task.norms
    n = len(a)
    for _ in range(5):
        moved = False
        for i in range(n):
            if norms[i] == 0.0:
                continue
            t = norms[i] * a[i] + (task.offset[i] + _dot(Z, i, w) - box.linear[i])
            t = min(max(t / norms[i], box.lower[i]), box.upper[i])
            if t != a[i]:
                moved = True
                _add_row(Z, i, (a[i] - t) / n, w)
                a[i] = t
        if not moved:
            break


@njit(**_INNER)
def _regression_start(task: Task, w: Floats, a: Floats) -> None:
    """Set a by reweighted least squares, with at most rank(Z) free variables unless residuals are
    tied; set w = -Z'a/n.
    """
    box, Z, offset = task.loss, task.Z, task.offset
    n, r = Z.shape
    weights, z, sizes = np.zeros(n), offset.copy(), np.zeros(n)
    for iteration in range(2):
        w[:] = 0.0
        for i in range(n):
            weights[i] = 1.0 if iteration == 0 else 1.0 / sizes[i]
            _add_row(Z, i, weights[i] * (box.linear[i] - offset[i]), w)
        if not _solve_weighted(Z, weights, w):
            break
        for i in range(n):
            z[i] = offset[i] + _dot(Z, i, w)
            sizes[i] = abs(z[i] - box.linear[i])
    width = 0.0  # the (r + 1)-th smallest positive size; np.sort would take two seconds to compile
    for _ in range(r + 1):
        above = np.inf
        for i in range(n):
            if width < sizes[i] < above:
                above = sizes[i]
        width = above
    w[:] = 0.0
    for i in range(n):
        a[i] = _box_terms(box, i, z[i], 0.0)[0]
        if 0.0 < sizes[i] < width:
            a[i] *= sizes[i] / width
        _add_row(Z, i, -a[i] / n, w)


@njit(**_LEAF)
def _append(task: Task, i: int, free: Free, m: int) -> bool:
    """Add variable i to the m free ones; return whether its row of Z is independent of theirs.

    If not, the proximal term makes the step along the direction that changes no prediction long
    enough to reach a bound.
    """
    for j in range(m):
        free.L[m, j] = _dot(task.Z, free.rows[j], task.Z[i]) / len(task.norms)
    pivot = _eliminate(free.L, m, task.norms[i])
    free.rows[m] = i
    independent: bool = pivot > 0.1 * _RIDGE * task.norms[i]
    free.L[m, m] = sqrt(pivot if independent else _RIDGE * task.norms[i])
    return independent


@njit(**_LEAF)
def _price(task: Task, w: Floats, a: Floats, is_free: Flags) -> tuple[int, float, float]:
    """Return the fixed variable whose move inwards gains most (or -1), and the sums of losses and
    gaps.
    """
    box, norms = task.loss, task.norms
    entering = -1
    best = value = gap = 0.0
    for i in range(len(a)):
        z = task.offset[i] + _dot(task.Z, i, w)
        _, loss, young, _ = _box_terms(box, i, z, a[i])
        value += loss
        gap += young
        t = z - box.linear[i]
        inwards = a[i] < box.upper[i] if t > 0.0 else a[i] > box.lower[i]
        if inwards and not is_free[i] and norms[i] > 0.0 and t * t > best * norms[i]:
            best, entering = t * t / norms[i], i
    return entering, value, gap


@njit(**_LEAF)
def _longest(task: Task, a: Floats, free: Free, m: int) -> tuple[float, int, float]:
    """Return the length of the step up to the first bound, at most 1, its position or -1, and the
    bound.
    """
    length, hit, bound = 1.0, -1, 0.0
    for j in range(m):
        i, step = free.rows[j], free.step[j]
        edge = task.loss.lower[i] if step < 0.0 else task.loss.upper[i]
        if step != 0.0 and length * abs(step) >= abs(edge - a[i]):
            length, hit, bound = (edge - a[i]) / step, j, edge
    return length, hit, bound


@njit(**_LEAF)
def _descend(
    task: Task, enough: float, w: Floats, a: Floats, is_free: Flags, free: Free
) -> tuple[float, float]:
    """Take active-set steps from the given free variables; return the sums of losses and gaps over
    the rows.

    Newton steps lead to the minimum over the free variables, and a variable that reaches a bound
    becomes fixed. Then the fixed variable whose move inwards gains most becomes free, and so on. w
    is updated with the unrounded steps: if theta is large, w has digits that a, and hence -Z'a/n,
    loses by rounding.
    """
    box, Z, n = task.loss, task.Z, len(a)
    m = np.int64(0)  # with a literal, every callee would be compiled twice
    for i in range(n):
        if is_free[i]:
            if m < len(free.rows) and _append(task, i, free, m):
                m += 1
            else:  # a linearly dependent variable stays fixed until it is selected
                is_free[i] = False
    entered, previous = 0, np.inf  # infinite: the free variables are new, so that a step is due
    while True:
        residual = 0.0
        for j in range(m):
            i = free.rows[j]
            free.step[j] = task.offset[i] + _dot(Z, i, w) - box.linear[i]
            residual += abs(free.step[j])
        # Steps are repeated while they halve the residuals, which removes rounding errors.
        if previous < np.inf and not (0.1 * enough < residual < 0.5 * previous):
            entering, value, gap = _price(task, w, a, is_free)
            # more entering variables than that are cycles caused by rounding
            if gap <= enough or entering < 0 or m == len(free.rows) or entered > 2 * n + 50:
                return value, gap
            _append(task, entering, free, m)
            is_free[entering] = True
            m, entered, previous = m + 1, entered + 1, np.inf
            continue
        previous = residual
        _cholesky_solve(free.L, m, free.step)
        length, hit, bound = _longest(task, a, free, m)
        for j in range(m):
            i, move = free.rows[j], length * free.step[j]
            if j == hit:
                move, is_free[i], previous = bound - a[i], False, np.inf
            a[i] = bound if j == hit else min(max(a[i] + move, box.lower[i]), box.upper[i])
            _add_row(Z, i, -move / n, w)
        if hit >= 0:
            m -= 1
            for j in range(hit, m):
                _append(task, free.rows[j + 1], free, np.int64(j))


@njit(**_INNER)
def _active_set(task: Task, tol: float, max_iter: int, w: Floats, a: Floats) -> Outcome:
    """Solve a task with a piecewise-linear loss, from w = 0, by sweeps and active-set steps on the
    dual.

    A few sweeps find most of the active bounds if theta is small; active-set steps find the others.
    One round of both is usually enough. Another round, with a new Cholesky factor, removes rounding
    errors.
    """
    n, r = task.Z.shape
    is_free, mismatch = np.zeros(n, np.bool_), np.zeros(r)
    free = Free(np.zeros((r + 8, r + 8)), np.zeros(r + 8), np.zeros(r + 8, np.int64))
    value = 0.0
    for i in range(n):
        slope, loss, _, _ = _box_terms(task.loss, i, task.offset[i], 0.0)
        # The prediction of a row of zeros is constant.
        a[i] = 0.0 if task.norms[i] > 0.0 else slope
        value += loss / n
    target = tol * value
    gap = best = value  # at most, because the dual value of a = 0 is 0
    stalled = n_iter = 0
    while gap > target and n_iter < max_iter and stalled < _PATIENCE:
        _sweep(task, w, a)
        # If theta is large, nearly all variables are free after the sweeps, but at most rank(Z) at
        # the solution.
        if _mark(task, a, is_free) > r and n_iter == 0:
            _regression_start(task, w, a)
            _mark(task, a, is_free)
        value, gap = _descend(task, 0.9 * n * target, w, a, is_free, free)
        square, distance = _mismatch(task, w, a, mismatch)
        value, gap, n_iter = value / n + square, gap / n + distance, n_iter + 1
        stalled = 0 if gap < best else stalled + 1
        best = min(best, gap)
    return value, gap, n_iter, gap <= target


@njit(**_INNER)
def _loss_of(loss: DualBox, first: int, stop: int) -> DualBox:
    """Return the losses of the rows first:stop."""
    linear, lower, upper = loss.linear, loss.lower, loss.upper
    return DualBox(
        linear[first:stop],
        lower[first:stop],
        upper[first:stop],
        loss.quadratic,
        loss.logistic,
    )


# Entry points: task t has the rows X[starts[t]:starts[t+1]] with their offsets and losses, and
# thetas[t], or thetas[0] if this is for all tasks. The arrays of ``out`` are initialised with the
# solution of a task without rows: zeros, and converged.


@njit(**_ENTRY)
def exact(
    X: Floats,
    starts: Integers,
    thetas: Floats,
    offset: Floats,
    losses: DualBox,
    tol: float,
    max_iter: int,
    out: WithinSolution,
) -> None:
    """Solve tasks, until the gap is at most ``tol`` times the value at w = 0.

    Theta has the root R, or X theta X' the root Z, if this is the smaller matrix.
    """
    d = X.shape[1]
    root = np.zeros((0, d))
    for t in range(len(out.coef)):
        first, stop = starts[t], starts[t + 1]
        n = stop - first
        if n == 0:
            continue
        # Copies have the same Numba type as all other matrices, so that each function is compiled
        # once.
        rows = X[first:stop].copy()
        theta = thetas[t if len(thetas) > 1 else 0].copy()
        # The choice depends only on the shape of the task, so that its result does not depend on
        # the other tasks.
        by_gram = 2 * n < d
        if by_gram:  # factor X theta X' = ZZ', because factoring theta would cost more
            images = _product(rows, theta)
            Z = _product(images, rows.T.copy())
            _semidefinite_root(Z)
        else:
            if len(root) == 0 or len(thetas) > 1:
                root = theta
                _semidefinite_root(root)
            Z = _product(rows, root)
        r = Z.shape[1]
        w, norms = np.zeros(r), np.zeros(n)
        for i in range(n):
            norms[i] = _dot(Z, i, Z[i]) / n
        task = Task(_loss_of(losses, first, stop), offset[first:stop], Z, norms)
        if losses.quadratic > 0.0:  # smooth
            outcome = _newton(task, tol, max_iter, w, out.alpha[first:stop])
        else:
            outcome = _active_set(task, tol, max_iter, w, out.alpha[first:stop])
        out.value[t], out.gap[t], out.n_iter[t], out.converged[t] = outcome
        if by_gram:  # coef = theta X'b with Z'b = w; b overwrites w
            _solve_transposed(Z, w)
            for j in range(n - 1, -1, -1):
                _add_row(images, j, w[j], out.coef[t])
        else:
            for i in range(d):
                out.coef[t, i] = _dot(root, i, w)


@njit(**_ENTRY)
def online(
    X: Floats,
    starts: Integers,
    thetas: Floats,
    offset: Floats,
    losses: DualBox,
    out: WithinSolution,
) -> None:
    """Make one pass over the rows of each task.

    Set v to the mean of w_2 .. w_{n+1}, where w_{i+1} = -theta X_{1:i}' s_{1:i} / i, and set a = s.
    v = -theta X'b/n with b_j = s_j (1/j + .. + 1/n). So v' theta^+ v = -<X'b/n, v>. The distance of
    v to w_{n+1} = -theta X's/n, the primal point of the dual point s, is computed in the same way.
    """
    for t in range(len(out.coef)):
        first, stop = starts[t], starts[t + 1]
        n = stop - first
        if n == 0:
            continue
        rows, shift, loss = X[first:stop], offset[first:stop], _loss_of(losses, first, stop)
        v, a = out.coef[t], out.alpha[first:stop]
        images = rows @ thetas[t if len(thetas) > 1 else 0]
        total = np.zeros(X.shape[1])  # i w_{i+1}
        for i in range(n):
            z = shift[i] + _dot(rows, i, total) / max(i, 1)
            a[i] = _terms(loss, i, z, 0.0)[0]
            _add_row(images, i, -a[i], total)
        b, harmonic = np.zeros(n), 0.0
        for i in range(n - 1, -1, -1):
            harmonic += 1.0 / (i + 1)
            b[i] = harmonic * a[i]
            _add_row(images, i, -b[i] / n, v)
        difference = v - total / n
        value = gap = square = distance = 0.0
        for i in range(n):
            z = _dot(rows, i, v)
            square -= b[i] * z
            distance -= (b[i] - a[i]) * _dot(rows, i, difference)
            _, risk, young, _ = _terms(loss, i, shift[i] + z, a[i])
            value += risk
            gap += young
        out.value[t] = (value + 0.5 * max(square, 0.0)) / n
        out.gap[t] = (gap + 0.5 * max(distance, 0.0)) / n
        out.n_iter[t], out.converged[t] = 1, isfinite(out.value[t])
