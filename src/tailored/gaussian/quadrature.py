"""Compiled posteriors of tasks with non-Gaussian targets, by Gauss-Hermite quadrature.

The coefficients of a task are w = b + Lu with standard normal u, so the linear predictor of a row
is ``f + <row, u>``.  Each task is processed alone:

1. `_place` finds the Gaussian N(m, CCᵀ) with the smallest Kullback-Leibler divergence from the
   posterior of u (Opper and Archambeau, 2009).
2. `_evaluate` computes the exact likelihood and prior at the nodes ``u = m + Cz`` (Naylor and
   Smith, 1982).
3. `write_posteriors` and `write_scores` sum over the nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compiling import njit
from ..tasks.rows import Array

Index = NDArray[np.int64]

#: Reassociation lets loops be vectorised; NaN and infinity are still supported.
_PART: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_rewrites": True,
    "no_cfunc_wrapper": True,
}
_ENTRY: dict[str, Any] = {**_PART, "cache": True}
#: Linear predictors of counts are clipped to this value, so that the square of the mean is finite.
LARGEST = 150.0
#: Placing stops when a step would move the mean by less than this many standard deviations, or
#: after the maximum number of steps.
TOLERANCE, MOST_STEPS = 0.1, 30
#: With larger precisions, the prior of u would be lost in rounding errors.
LARGEST_PRECISION = 1e12


class Targets(NamedTuple):
    """The targets of rows, whose log likelihood is ``y f − h(f)`` up to a constant.

    ``h`` is ``size log(1 + exp(f + shift))``, or exp(f) if it is not logistic.
    """

    y: Array  # (N,)
    weights: Array  # (N,) powers of the likelihood
    sizes: Array  # (N,)
    shift: float
    is_logistic: bool
    starts: Index  # (T + 1,) first row of each task, and N


class Nodes(NamedTuple):
    """Nodes for u, with log weights for integrands that are not multiplied by the normal density,
    and nodes for the linear predictor of a single row, with weights of the normal density.
    """

    z: Array  # (J, p)
    log_weights: Array  # (J,)
    line: Array  # (m,)
    line_weights: Array  # (m,)


class Predictors(NamedTuple):
    """Linear predictors ``f + <row, u>`` in coordinates along the principal axes of LLᵀ, and sites
    with which placing starts.
    """

    f: Array  # (N,)
    rows: Array  # (N, p)
    turn: Array  # (p, p): ``u @ turn`` are the coordinates of the columns of L
    precisions: Array  # (N,)
    shifts: Array  # (N,) precisions times targets of the sites


class Posteriors(NamedTuple):
    """Posteriors of u under one component, and means over them for each row."""

    log_evidence: Array  # (T,)
    means: Array  # (T, p)
    covariances: Array  # (T, p, p)
    predictors: Array  # (N,) E f
    values: Array  # (N,) E(y f − h(f))
    slopes: Array  # (N,) E(y − h′(f))
    curvatures: Array  # (N,) E h″(f)


class Parameters(NamedTuple):
    """Parameters of a model: b, entries (i, j) of D in ``f = … + <loadings, D u>``, and the
    logarithm of the dispersion unless ``of_dispersion`` is empty.
    """

    X: Array  # (N, d)
    loadings: Array  # (N, v)
    i: Index  # (m,)
    j: Index  # (m,)
    #: (N, 2) c = ψ(y + r) − ψ(r) and c + r (ψ′(y + r) − ψ′(r)), where r is 1 / dispersion
    of_dispersion: Array


@njit(**_PART)
def _derivatives(targets: Targets, i: int, f: float) -> tuple[float, float, float]:
    """Return y f − h(f), y − h′(f) and h″(f)."""
    y, size = targets.y[i], targets.sizes[i]
    if not targets.is_logistic:
        mean = np.exp(min(f, LARGEST))
        return y * f - mean, y - mean, mean
    x = f + targets.shift
    small = np.exp(-abs(x))
    inverse = 1.0 / (1.0 + small)
    value = max(x, 0.0) + np.log(1.0 + small)
    p = (1.0 if x > 0.0 else small) * inverse
    return y * f - size * value, y - size * p, size * small * inverse * inverse


@njit(**_PART)
def _inverse_root(A: Array, root: Array) -> float:
    """Write the upper triangular C with ``CCᵀ = A⁻¹`` to ``root``, and return log|C|; A is
    overwritten.
    """
    p, log_determinant = len(A), 0.0
    for i in range(p):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            A[i, j] = np.sqrt(total) if i == j else total / A[j, j]
        log_determinant -= np.log(A[i, i])
    # C is the transposed inverse of the Cholesky factor, which is in A now.
    for i in range(p):
        root[i, i] = 1.0 / A[i, i]
        for j in range(i):
            root[i, j] = total = 0.0
            for k in range(j, i):
                total += A[i, k] * root[j, k]
            root[j, i] = -total / A[i, i]
    return log_determinant


@njit(**_PART)
def _gaussian(
    t: int, targets: Targets, predictors: Predictors, sites: Array, mean: Array, root: Array
) -> float:
    """Write the mean m and the root C of the Gaussian with precision I + Σ τ aaᵀ; return log|C|.

    The ``sites`` (2, n) are the precisions τ of the rows a, and τ times the targets.
    """
    first, stop, p, rows = targets.starts[t], targets.starts[t + 1], len(mean), predictors.rows
    A, right = np.zeros((p, p)), np.zeros(p)
    for a in range(p):
        A[a, a] = 1.0
    for i in range(first, stop):
        square = 1.0
        for a in range(p):
            square += rows[i, a] ** 2
        weight = targets.weights[i]
        tau = weight * min(sites[0, i - first], LARGEST_PRECISION / square)
        for a in range(p):
            right[a] += weight * sites[1, i - first] * rows[i, a]
            for c in range(a + 1):
                A[a, c] += tau * rows[i, a] * rows[i, c]
    log_determinant = _inverse_root(A, root)
    for c in range(p):
        mean[c], along = 0.0, 0.0
        for a in range(c + 1):
            along += root[a, c] * right[a]
        for a in range(c + 1):
            mean[a] += root[a, c] * along
    return log_determinant


@njit(**_PART)
def _step(
    t: int,
    targets: Targets,
    predictors: Predictors,
    nodes: Nodes,
    mean: Array,
    root: Array,
    sites: Array,
) -> tuple[float, float]:
    """Write the sites of the next Newton step from N(m, CCᵀ); return the bound of the log evidence
    without log|C|, and the squared length of the step.
    """
    first, p = targets.starts[t], len(mean)
    bound, gradient = 0.0, np.empty(p)
    for a in range(p):
        gradient[a] = -mean[a]
        bound -= 0.5 * mean[a] ** 2
        for c in range(a, p):
            bound -= 0.5 * root[a, c] ** 2
    for i in range(first, targets.starts[t + 1]):
        shift, variance = 0.0, 0.0
        for c in range(p):
            shift += predictors.rows[i, c] * mean[c]
            along = 0.0
            for a in range(c + 1):
                along += predictors.rows[i, a] * root[a, c]
            variance += along * along
        value, slope, curvature = 0.0, 0.0, 0.0
        for k in range(len(nodes.line)):
            f = predictors.f[i] + shift + np.sqrt(variance) * nodes.line[k]
            parts, weight = _derivatives(targets, i, f), nodes.line_weights[k]
            value += weight * parts[0]
            slope += weight * parts[1]
            curvature += weight * parts[2]
        bound += targets.weights[i] * value
        for a in range(p):
            gradient[a] += targets.weights[i] * slope * predictors.rows[i, a]
        sites[0, i - first] = curvature
        sites[1, i - first] = slope + curvature * shift
    decrement = 0.0
    for c in range(p):
        along = 0.0
        for a in range(c + 1):
            along += root[a, c] * gradient[a]
        decrement += along * along
    return bound, decrement


@njit(**_PART)
def _place(
    t: int, targets: Targets, predictors: Predictors, nodes: Nodes, mean: Array, root: Array
) -> float:
    """Write the mean m and the root C of the Gaussian that is closest to the posterior of u; return
    log|C|.

    Newton steps are halved if they lower the bound of the log evidence.
    """
    first, stop = targets.starts[t], targets.starts[t + 1]
    n = stop - first
    kept, new, step = np.empty((2, n)), np.empty((2, n)), np.empty((2, n))
    for i in range(n):
        new[0, i], new[1, i] = predictors.precisions[first + i], predictors.shifts[first + i]
    best, log_determinant = -np.inf, 0.0
    for _ in range(MOST_STEPS):
        log_determinant = _gaussian(t, targets, predictors, new, mean, root)
        bound, decrement = _step(t, targets, predictors, nodes, mean, root, step)
        bound += log_determinant
        is_better = bound >= best - TOLERANCE**2
        if is_better and decrement <= TOLERANCE**2:
            break
        if is_better:
            best = bound
            kept, new, step = new, step, kept
        else:
            for i in range(n):
                new[0, i] = 0.5 * (kept[0, i] + new[0, i])
                new[1, i] = 0.5 * (kept[1, i] + new[1, i])
    return log_determinant


@njit(**_PART)
def _evaluate(
    t: int, targets: Targets, predictors: Predictors, nodes: Nodes, at_nodes: Array
) -> tuple[float, Array, Array]:
    """Place nodes, and write f, y f − h(f), y − h′(f) and h″(f) at each node to ``at_nodes`` (4, n,
    J); return the log evidence, the nodes u (J, p), and their posterior weights (J,).
    """
    first, (J, p) = targets.starts[t], nodes.z.shape
    mean, root, u, joint = np.empty(p), np.empty((p, p)), np.zeros((J, p)), np.empty(J)
    log_determinant = _place(t, targets, predictors, nodes, mean, root)
    for j in range(J):
        joint[j] = nodes.log_weights[j]
        for a in range(p):
            place = mean[a]
            for c in range(a, p):
                place += root[a, c] * nodes.z[j, c]
            joint[j] -= 0.5 * place * place
            for c in range(p):
                u[j, c] += place * predictors.turn[a, c]
    along = np.empty(p)
    for i in range(first, targets.starts[t + 1]):
        centre = predictors.f[i]
        for c in range(p):
            centre += predictors.rows[i, c] * mean[c]
            along[c] = 0.0
            for a in range(c + 1):
                along[c] += predictors.rows[i, a] * root[a, c]
        for j in range(J):
            f = centre
            for c in range(p):
                f += along[c] * nodes.z[j, c]
            value, slope, curvature = _derivatives(targets, i, f)
            joint[j] += targets.weights[i] * value
            at_nodes[0, i - first, j], at_nodes[1, i - first, j] = f, value
            at_nodes[2, i - first, j], at_nodes[3, i - first, j] = slope, curvature
    largest, total = -np.inf, 0.0
    for j in range(J):
        largest = max(largest, joint[j])
    for j in range(J):
        joint[j] = np.exp(joint[j] - largest)
        total += joint[j]
    for j in range(J):
        joint[j] /= total
    return largest + np.log(total) + log_determinant, u, joint


@njit(**_PART)
def _scratch(targets: Targets, tasks: Index, nodes: Nodes) -> Array:
    """Return the array ``at_nodes`` of `_evaluate`, for the largest of the tasks."""
    largest = 0
    for t in tasks:
        largest = max(largest, targets.starts[t + 1] - targets.starts[t])
    return np.empty((4, largest, len(nodes.z)))


@njit(**_ENTRY)
def write_posteriors(
    tasks: Index,
    targets: Targets,
    predictors: Predictors,
    nodes: Nodes,
    of_rows: bool,
    out: Posteriors,
) -> None:
    """Write the posteriors of ``tasks``; the fields of rows are only written with ``of_rows``."""
    at_nodes, p = _scratch(targets, tasks, nodes), nodes.z.shape[1]
    for t in tasks:
        out.log_evidence[t], u, weights = _evaluate(t, targets, predictors, nodes, at_nodes)
        for j in range(len(weights)):
            for a in range(p):
                out.means[t, a] += weights[j] * u[j, a]
        for j in range(len(weights)):
            for a in range(p):
                for c in range(p):
                    product = (u[j, a] - out.means[t, a]) * (u[j, c] - out.means[t, c])
                    out.covariances[t, a, c] += weights[j] * product
        if of_rows:
            first = targets.starts[t]
            for i in range(first, targets.starts[t + 1]):
                for j in range(len(weights)):
                    out.predictors[i] += weights[j] * at_nodes[0, i - first, j]
                    out.values[i] += weights[j] * at_nodes[1, i - first, j]
                    out.slopes[i] += weights[j] * at_nodes[2, i - first, j]
                    out.curvatures[i] += weights[j] * at_nodes[3, i - first, j]


@njit(**_ENTRY)
def write_scores(
    tasks: Index,
    targets: Targets,
    predictors: Predictors,
    nodes: Nodes,
    parameters: Parameters,
    log_evidence: Array,
    scores: Array,
    information: Array,
) -> None:
    """Write the log evidence (T,), and its first and minus its second derivatives, (T, q) and (T,
    q, q), by Louis' identity.
    """
    at_nodes, q = _scratch(targets, tasks, nodes), scores.shape[1]
    for t in tasks:
        log_evidence[t], u, weights = _evaluate(t, targets, predictors, nodes, at_nodes)
        given_u = np.zeros((len(weights), q))
        first = targets.starts[t]
        for i in range(first, targets.starts[t + 1]):
            row = at_nodes[:, i - first]
            _add_row(i, row, targets, parameters, u, weights, given_u, information[t])
        for j in range(len(weights)):
            for a in range(q):
                scores[t, a] += weights[j] * given_u[j, a]
        for j in range(len(weights)):
            for a in range(q):
                deviation = weights[j] * (given_u[j, a] - scores[t, a])
                for c in range(q):
                    information[t, a, c] -= deviation * (given_u[j, c] - scores[t, c])


@njit(**_PART)
def _add_row(
    i: int,
    row: Array,
    targets: Targets,
    parameters: Parameters,
    u: Array,
    weights: Array,
    given_u: Array,
    information: Array,
) -> None:
    """Add the scores of a row given u, (J, q), and the mean of minus their derivatives, (q, q)."""
    (J, p), d, m = u.shape, parameters.X.shape[1], len(parameters.i)
    y, size, power = targets.y[i], targets.sizes[i], targets.weights[i]
    r, has_dispersion = size - y, len(parameters.of_dispersion) > 0
    # ∂f/∂θ is an entry of ``columns`` times one of (1, u).
    columns, index = np.empty(d + m), np.zeros(d + m, np.intp)
    for k in range(d):
        columns[k] = parameters.X[i, k]
    for k in range(m):
        columns[d + k] = parameters.loadings[i, parameters.i[k]]
        index[d + k] = 1 + parameters.j[k]
    moments, mixed, second = np.zeros((1 + p, 1 + p)), np.zeros(1 + p), 0.0
    powers = np.ones(1 + p)
    for j in range(J):
        f, value, slope, curvature = row[0, j], row[1, j], row[2, j], row[3, j]
        for a in range(p):
            powers[1 + a] = u[j, a]
        for a in range(d + m):
            given_u[j, a] += power * slope * columns[a] * powers[index[a]]
        weight = power * weights[j]
        for a in range(1 + p):
            for c in range(1 + p):
                moments[a, c] += weight * curvature * powers[a] * powers[c]
        if has_dispersion:
            h, mean = (y * f - value) / size, (y - slope) / size
            given_u[j, d + m] += power * (r * (h - parameters.of_dispersion[i, 0]) + slope)
            across = curvature - r * mean
            second += weight * (r * (h - mean - parameters.of_dispersion[i, 1]) + across)
            for a in range(1 + p):
                mixed[a] += weight * across * powers[a]
    for a in range(d + m):
        for c in range(d + m):
            information[a, c] += columns[a] * columns[c] * moments[index[a], index[c]]
        if has_dispersion:
            information[a, d + m] += columns[a] * mixed[index[a]]
            information[d + m, a] += columns[a] * mixed[index[a]]
    if has_dispersion:
        information[d + m, d + m] += second
