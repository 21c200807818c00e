"""Second moments of tasks, and the posterior of their coefficients from d x d systems.

With a full-rank W the systems are ``XᵀX + σ²W⁻¹``.  Where directions of W are absent they are ``LᵀXᵀXL + σ²I`` with
W = LLᵀ, p x p for L (d, p).  Both read ``A = G + P``: G are the second moments in the coordinates of a component, and P is
the contribution of its prior (`tailored.gaussian.mixture.Components`).

The compiled pass handles tasks in chunks whose factors stay in the cache: it computes the evidence under each component,
normalises, and returns to the factors for means, covariances and sums.  Its workspace (`tailored.gaussian.kernels`)
holds, for each *group* of eight tasks, the factors under each covariance, and under each component the solution
``z = F⁻¹ Lᵀ Xᵀ(y − Xb)`` and the quadratic form ``‖y − Xb‖² − ‖z‖²``.  The sums of each component follow, ``−Σ r E(uuᵀ)``
and ``Σ r E(u)``, and then scratch vectors.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compiling import njit
from .._utils.threads import in_threads
from ..tasks.rows import BATCH_FLOATS, Scaling, dense, frozen
from ..tasks.task_set import TaskSet
from . import kernels as vectors
from .kernels import ENTRY, LANES, PART, empty_workspace, keep_separate, second_moments
from .mixture import EVIDENCE, Components, Mixture, Want, lower_triangle

Array = NDArray[np.float64]
Index = NDArray[np.int64]
#: Positions of tasks (J, chunk), and the covariance, the first position and the number of tasks of a group.
Group = tuple[Index, int, int, int]

#: Responsibilities up to this are left out of sums.
NEGLIGIBLE = 1e-6
#: Largest number of floats in the second moments of all tasks (1 GB).
LARGEST_STATISTICS = 125_000_000
#: Floats of XᵀX of the tasks that one thread handles at a time.
BLOCK_FLOATS = 1 << 18
#: Largest number of columns for which a compiled loop over rows is faster than a matrix product per task.
COMPILED_COLUMNS = 64
#: Tasks per chunk of the compiled pass, enough to fill groups of eight where tasks skip components.
CHUNK = 128
_LOG_2_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Totals:
    """Sums over all rows that do not depend on a model: counts, yᵀy, Xᵀy (d,) and XᵀX (d, d)."""

    n_tasks: int
    n_rows: float
    square: float
    cross: Array
    gram: Array

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, factor: float) -> Totals:
        """Return the totals of ``factor`` times as many tasks like these."""
        scaled = (factor * value for value in (self.n_rows, self.square, self.cross, self.gram))
        return Totals(round(factor * self.n_tasks), *scaled)  # type: ignore[arg-type]

    def squared_residuals(self, b: Array) -> float:
        """Return ‖y − Xb‖² over all rows."""
        return max(self.square + float((self.gram @ b - 2.0 * self.cross) @ b), 0.0)


@dataclass(frozen=True)
class Sums:
    """Sums over tasks that a step of EM needs, under K components with means b_k.

    Second moments are about the means, because sums about zero would cancel.
    """

    log_evidence: float
    counts: Array  # (K,) sums of the responsibilities
    first: Array  # (K, d) Σ_t r_tk E(w − b_k)
    second: Array  # (K, d, d) Σ_t r_tk E(w − b_k)(w − b_k)ᵀ
    residual: float  # Σ_tk r_tk E‖y − Xw‖²

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, factor: float) -> Sums:
        """Return the sums of ``factor`` times as many tasks like these."""
        return Sums(*(factor * getattr(self, f.name) for f in fields(self)))


#: The value of sums that were not requested.
NO_SUMS = Sums(0.0, np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)), 0.0)


class Summed(NamedTuple):
    """Sums, and the responsibilities (T, K) behind them where the source keeps them.

    EM passes responsibilities back to the source, which then skips components that a task does not belong to.
    """

    sums: Sums
    shares: Any = None


class Expected(NamedTuple):
    """Posterior of T tasks under a mixture.  Parts that were not requested have length 0."""

    log_evidence: Array  # (T,) log p(y)
    shares: Array  # (T, K) responsibilities r_k
    means: Array  # (T, K, d) E(w | y, k), with the effect of side information
    covariances: Array  # (T, d, d) within components, Σ_k r_k Cov(w | y, k)
    sums: Sums
    between: Array | None = None  # (T, d, d) between the components; ``means`` are then (T, 1, d)

    @property
    def mean(self) -> Array:
        """The posterior mean of the mixture, (T, d)."""
        if self.means.shape[1] == 1:
            return self.means[:, 0]
        return np.asarray(np.matmul(self.shares[:, None, :], self.means)[:, 0])

    def mixture_covariance(self, scale: float = 1.0) -> Array:
        """Return ``scale`` times the covariance of the mixture, (T, d, d)."""
        between = 0.0 if self.between is None else self.between
        if self.means.shape[1] > 1:
            centred = self.means - self.mean[:, None]
            between = np.matmul((self.shares[:, :, None] * centred).transpose(0, 2, 1), centred)
        return np.asarray(scale * (self.covariances + between))


class TaskStatistics(ABC):
    """Statistics of T tasks in memory: `Moments`, or `TaskRows` for tasks with few rows and many columns."""

    sizes: Any

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def n_rows(self) -> float:
        """Rows of all tasks, at least 1 because callers divide by it."""
        return max(float(self.sizes.sum()), 1.0)

    @abstractmethod
    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        """Return the posterior of each task under a mixture.

        ``among`` (T, K) restricts tasks to some of the components; the evidence under the others counts as zero.
        """

    def sums(self, model: Mixture, shares: Array | None = None) -> Summed:
        """Return the sums of a step of EM; tasks skip components with negligible earlier ``shares``."""
        found = self.posterior(model, Want(sums=True), None if shares is None else shares > NEGLIGIBLE)
        return Summed(found.sums, found.shares)


@dataclass(frozen=True)
class Moments(TaskStatistics):
    """Sufficient statistics of T tasks under ``y = Xw + Gaussian noise``."""

    gram: Array  # (T, d, d) XᵀX
    cross: Array  # (T, d) Xᵀy
    square: Array  # (T,) yᵀy
    sizes: Array  # (T,) numbers of rows
    side: Array | None = None  # (T, q) features v(s) of the side information
    n_threads: int = 1  # of a pass over the tasks; results are bitwise the same for any number

    @property
    def n_features(self) -> int:
        return self.cross.shape[1]

    @classmethod
    def of(cls, tasks: TaskSet, units: Scaling, side: Array | None = None) -> Moments:
        """Return the second moments of the scaled rows; those of a task depend on its own rows alone."""
        T, d = len(tasks), len(units.columns)
        if T * d * d > LARGEST_STATISTICS:
            raise ValueError(
                f"X: the second moments of {T} tasks with {d} columns need {8e-9 * T * d * d:.1f} GB, and the limit is "
                f"{8e-9 * LARGEST_STATISTICS:.1f} GB. Pass fewer tasks or columns."
            )
        gram, cross, square = np.empty((T, d, d)), np.empty((T, d)), np.empty(T)
        start = 0
        while start < T:
            last, stop, some = tasks.offsets[start] + BATCH_FLOATS // d, T, tasks
            if start or tasks.offsets[-1] > last:
                stop = max(int(np.searchsorted(tasks.offsets, last, side="right")) - 1, start + 1)
                some = tasks[start:stop]
            part = slice(start, stop)
            if d <= COMPILED_COLUMNS:
                X, y, change = dense(some.X), some.y, units.change
                if some.row_weights is not None:
                    (X, y), change = units.weighted_rows(some), Scaling.raw(d).change
                rows = frozen(X), frozen(y), frozen(some.offsets, np.int64)
                second_moments(*rows, *change, gram[part], cross[part], square[part])
            else:
                X, y = units.weighted_rows(some)
                for t, (first, end) in enumerate(pairwise(some.offsets), start):
                    np.matmul(X[first:end].T, X[first:end], out=gram[t])
                    cross[t] = X[first:end].T @ y[first:end]
                    square[t] = y[first:end] @ y[first:end]
            start = stop
        return cls(gram, cross, square, tasks.n_observed, side)

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        if model.has_atoms and not want.sums:
            return self._posterior_of_atoms(model, want, among)
        T, (K, d) = len(self), model.means.shape
        effects = model.effects(self.side)
        rest = self if effects is None else self.shifted(effects)
        shares, log_evidence = log_priors(model, self.side, T, among), np.empty(T)
        means = np.empty((T if want.means else 0, K, d))
        covariances = np.zeros((T if want.covariances else 0, d, d))
        blocks = self.blocks()
        n_packed, summed = d * (d + 1) // 2, K if want.sums else 0
        first, second = np.empty((len(blocks), summed, d)), np.empty((len(blocks), summed, n_packed))
        quadratics = np.zeros((len(blocks), summed))
        given = [np.ascontiguousarray(array) for array in (rest.gram, rest.cross, rest.square, rest.sizes)]
        found = [shares, log_evidence, means, covariances]

        def run(i: int, part: slice) -> None:
            cut = given + found if len(blocks) == 1 else [array[part] for array in given + found]
            # Flat arguments: Numba takes several microseconds longer to dispatch on tuples.
            _pass(
                *(*cut[:4], model.means, *model.components, model.noise, *cut[4:]),
                *(first[i], second[i], quadratics[i]),
                *_workspace(model.components, min(T, CHUNK), K, d),
            )

        in_threads(run, list(enumerate(blocks)), self.n_threads)
        if effects is not None and want.means:
            means += effects[:, None]
        sums = NO_SUMS
        if want.sums:
            # In the order of the blocks, whichever thread finished first.
            parts = [a.sum(axis=0) if len(a) > 1 else a[0] for a in (first, second, quadratics)]
            sums = _sums(model.components, float(log_evidence.sum()), shares.sum(axis=0), *parts)
        return Expected(log_evidence, shares, means, covariances, sums)

    def _posterior_of_atoms(self, model: Mixture, want: Want, among: NDArray[np.bool_] | None) -> Expected:
        """Return the posterior under components with one covariance.

        The systems are those of one Gaussian.  The log evidence is quadratic in the prior mean, so those of all
        components are two matrix products; the posterior mean is linear in it.
        """
        single, deviations, squares = model.atoms
        d = self.n_features
        i, j, twice = lower_triangle(d)
        effects = model.effects(self.side)
        rest = self if effects is None else self.shifted(effects)
        found = rest.posterior(single, Want(means=True, covariances=True))
        R = influence(rest, single, found.covariances)
        scaled = R / model.noise
        systems = np.matmul(rest.gram, scaled)
        slopes = np.matmul(rest.cross[:, None, :], scaled)[:, 0] - systems @ single.means[0]
        curvatures = systems.reshape(-1, d * d).take(i * d + j, axis=1) * (-0.5 * twice)
        joint = log_priors(model, self.side, len(self), among)
        joint += slopes @ deviations.T
        joint += curvatures @ squares.T
        largest = joint.max(axis=1, keepdims=True)
        shares = np.exp(joint - largest)
        totals = shares.sum(axis=1, keepdims=True)
        shares /= totals
        log_evidence = found.log_evidence + (largest + np.log(totals))[:, 0]
        means, between = np.empty((0, 1, self.n_features)), np.empty((0, *R.shape[1:]))
        if want.means or want.covariances:
            shift = shares @ deviations
            means = found.means + np.matmul(R, shift[:, :, None])[:, None, :, 0]
            means = means if effects is None else means + effects[:, None]
        if want.covariances:
            between = np.empty(R.shape)
            between[:, i, j] = between[:, j, i] = shares @ squares - shift[:, i] * shift[:, j]
            between = np.matmul(np.matmul(R, between), R.transpose(0, 2, 1))
        return Expected(log_evidence, shares, means, found.covariances, NO_SUMS, between)

    def totals(self) -> Totals:
        n_rows, square = float(self.sizes.sum()), float(self.square.sum())
        return Totals(len(self), n_rows, square, self.cross.sum(axis=0), self.gram.sum(axis=0))

    def blocks(self) -> list[slice]:
        """Return the blocks of tasks that are summed together; they do not depend on the number of threads."""
        if len(self) <= CHUNK:
            return [slice(None)]
        size = max(1, BLOCK_FLOATS // max(self.n_features, 1) ** 2 // CHUNK) * CHUNK
        return [slice(start, start + size) for start in range(0, len(self), size)]

    def take(self, index: NDArray[np.intp] | slice) -> Moments:
        """Return the tasks at these positions."""
        side = None if self.side is None else self.side[index]
        gram, cross, square, sizes = (
            part[index] for part in (self.gram, self.cross, self.square, self.sizes)
        )
        return Moments(gram, cross, square, sizes, side, self.n_threads)

    def shifted(self, weights: Array) -> Moments:
        """Return the tasks with targets ``y − Xw``, for the weights (T, d) of each task."""
        fitted = np.matmul(self.gram, weights[:, :, None])[:, :, 0]
        square = np.maximum(self.square + np.einsum("td,td->t", fitted - 2.0 * self.cross, weights), 0.0)
        return replace(self, cross=self.cross - fitted, square=square)

    def squared_residuals(self, weights: Array) -> Array:
        """Return ‖y − Xw‖² of each task, (T,), for one w (d,) or one per task (T, d)."""
        if weights.ndim == 2:
            return self.shifted(weights).square
        fitted = (self.gram.reshape(-1, self.n_features) @ weights).reshape(self.cross.shape)
        return np.maximum(self.square + (fitted - 2.0 * self.cross) @ weights, 0.0)


def log_priors(model: Mixture, side: Array | None, n_tasks: int, among: NDArray[np.bool_] | None) -> Array:
    """Return log π (T, K), and −inf where a task skips a component."""
    joint = np.empty((n_tasks, model.n_components))
    joint[:] = model.log_proportions(side)
    if among is not None:
        joint[~among] = -np.inf
    return joint


def influence(tasks: Any, model: Mixture, covariances: Array) -> Array:
    """Return the effect of a shift of the prior mean on the posterior mean, ``Σ_k r_k (I + W_k G/σ²)⁻¹``, (T, d, d).

    ``covariances`` are C of `Expected`.  The general form I − C G/σ² cancels where rows determine the coefficients.  With
    one W it is only needed outside the range of W, and C W⁺ serves inside.
    """
    d = tasks.n_features
    if len(model.covariances) > 1:
        return np.asarray(np.eye(d) - np.matmul(covariances, tasks.gram) / model.noise)
    inverse, absent = model.inverse
    if model.components.ranks[0] < d:
        inverse = inverse - tasks.gram @ absent / model.noise
        return np.asarray(np.matmul(covariances, inverse) + absent)
    return np.asarray(covariances @ inverse)


def _sums(
    components: Components, log_evidence: float, counts: Array, first: Array, packed: Array, quadratics: Array
) -> Sums:
    """Convert sums in the coordinates of each component to those of the coefficients."""
    K, d = first.shape
    i, j, twice = lower_triangle(d)
    first, second = first.copy(), np.empty((K, d, d))
    second[:, i, j] = second[:, j, i] = packed
    for k, c in enumerate(components.of):
        if components.ranks[c] < d:
            root = components.roots[c]
            first[k] = first[k] @ root
            second[k] = root.T @ second[k] @ root
    # ‖y − Xw‖² is the quadratic form less uᵀPu.
    residual = float(quadratics.sum() - np.vdot(twice * components.precisions[components.of], packed))
    return Sums(log_evidence, counts, first, second, residual)


# --- the compiled pass ---------------------------------------------------------------------------------------


#: Workspaces up to this many vectors (4 MB) are kept by each thread, because allocation takes time.
_KEPT_VECTORS = 1 << 16
_kept = threading.local()


def _workspace(components: Components, n_tasks: int, K: int, d: int) -> tuple[Index, Index, Array]:
    """Return the positions of tasks (J, chunk), their numbers (J,), and the vectors of `_pass`."""
    J, n_groups = len(components.ranks), max(-(-n_tasks // LANES), 1)
    if getattr(_kept, "key", None) == (J, n_groups, K, d):
        kept: tuple[Index, Index, Array] = _kept.workspace
        return kept
    n_packed = d * (d + 1) // 2
    n_vectors = J * n_groups * n_packed + K * n_groups * (d + 1) + K * (n_packed + d)
    scratch = d + d * d + d + 2 + 3 * n_packed + d + 2 + 2 * d * d + 1
    tasks = np.empty((J, n_groups * LANES), np.int64)
    made = tasks, np.empty(J, np.int64), empty_workspace(n_vectors + scratch)
    if n_vectors + scratch <= _KEPT_VECTORS:
        _kept.key, _kept.workspace = (J, n_groups, K, d), made
    return made


@njit(**ENTRY)
def _pass(
    gram: Array,
    cross: Array,
    square: Array,
    sizes: Array,
    b: Array,
    roots: Array,
    ranks: Index,
    precisions: Array,
    floors: Array,
    log_determinants: Array,
    of: Index,
    noise: float,
    joint: Array,
    log_evidence: Array,
    means: Array,
    covariances: Array,
    first: Array,
    second: Array,
    quadratics: Array,
    tasks: Index,
    n_tasks: Index,
    work: Array,
) -> None:
    """Write the posterior of T tasks.

    Inputs are those of `Moments`, the means (K, d), `Components` and σ².  ``joint`` (T, K) has log π on entry and
    responsibilities on return; −inf skips a component.  ``means`` (T, K, d) and ``covariances`` (T, d, d), which must be
    zero on entry, are written where they have length T; ``first`` (K, d), packed ``second`` and ``quadratics`` (K,) where
    they have length K: Σ_t r E(u), Σ_t r E(uuᵀ) and Σ_t r (‖y − Xm‖² + uᵀPu at the mean + pσ²).
    """
    K, d = b.shape
    J, chunk = tasks.shape
    n_packed, n_groups = d * (d + 1) // 2, chunk // LANES
    solutions = J * n_groups * n_packed
    totals = solutions + K * n_groups * (d + 1)
    scratch = totals + K * (n_packed + d)
    L = scratch + d
    floor = L + d * d
    log_pivots = floor + d
    free = log_pivots + 2
    vectors.clear(work, totals, scratch - totals)
    for begin in range(0, len(cross), chunk):
        end = min(begin + chunk, len(cross))
        for c in range(J):
            n_tasks[c] = _select(joint, of, c, begin, end, tasks)
        for g in range(0, end - begin, LANES):
            loaded = False
            for c in range(J):
                if g >= n_tasks[c]:
                    continue
                p, A = ranks[c], (c * n_groups + g // LANES) * n_packed
                # Covariances that no task skips have the same groups.
                if not (loaded and n_tasks[c] == end - begin):
                    _load_gram(gram, tasks, c * chunk + g, d, work, free)
                loaded = n_tasks[c] == end - begin
                _load_component(roots, floors, c, p, work, L, floor)
                group = tasks, c, g, min(LANES, n_tasks[c] - g)
                _project(work, d, p, L, free, A, free + d * d + d)
                for o in range(p * (p + 1) // 2):
                    vectors.add(work, A + o, precisions[c, o])
                vectors.factorise(work, A, p, floor, log_pivots)
                for k in range(K):
                    if of[k] == c:
                        z = solutions + (k * n_groups + g // LANES) * (d + 1)
                        _solve(cross, square, group, b[k], p, work, scratch, A, z)
                        constant = (sizes, p, log_determinants[c], noise)
                        _weigh(constant, group, joint, k, work, z + d, log_pivots)
        _normalise(joint, log_evidence, begin, end)
        for c in range(J):
            p = ranks[c]
            if len(means) or len(covariances):
                _load_component(roots, floors, c, p, work, L, floor)
            for g in range(0, n_tasks[c], LANES):
                A = (c * n_groups + g // LANES) * n_packed
                group = tasks, c, g, min(LANES, n_tasks[c] - g)
                for k in range(K):
                    if of[k] == c:
                        z = solutions + (k * n_groups + g // LANES) * (d + 1)
                        if len(means):
                            _write_means(b, k, p, group, work, A, z, L, free, means)
                        if len(second) and _share(joint, noise, p, group, k, work, z + d, free, quadratics):
                            _add_moments(d, p, work, A, z, free, totals + k * (n_packed + d))
                if len(covariances):
                    _add_covariances(joint, of, noise, p, group, work, A, L, free, covariances)
    for k in range(len(second)):
        vectors.sum_over_lanes(work, totals + k * (n_packed + d), -1.0, k, second)
        vectors.sum_over_lanes(work, totals + k * (n_packed + d) + n_packed, 1.0, k, first)


@njit(**PART)
def _select(joint: Array, of: Index, c: int, begin: int, end: int, tasks: Index) -> int:
    """Write the tasks with a component of covariance c to ``tasks[c]``, padded with the last one, and count them."""
    keep_separate()
    n = 0
    for t in range(begin, end):
        for k in range(len(of)):
            if of[k] == c and joint[t, k] > -np.inf:
                tasks[c, n] = t
                n += 1
                break
    for i in range(n, (n + LANES - 1) // LANES * LANES):
        tasks[c, i] = tasks[c, n - 1]
    return n


@njit(**PART)
def _load_component(roots: Array, floors: Array, c: int, p: int, work: Array, L: int, floor: int) -> None:
    """Broadcast the root, where it is needed, and the floors of a covariance to all lanes."""
    keep_separate()
    d = roots.shape[1]
    for i in range(p):
        vectors.fill(work, floor + i, floors[c, i])
        if p < d:
            for j in range(d):
                vectors.fill(work, L + i * d + j, roots[c, i, j])


@njit(**PART)
def _load_gram(gram: Array, tasks: Index, first: int, d: int, work: Array, G: int) -> None:
    """Gather XᵀX (d, d) of eight tasks."""
    keep_separate()
    for i in range(d):
        for j in range(i + 1):
            vectors.gather(work, G + i * d + j, gram, d * d, i * d + j, tasks, first)
            vectors.copy(work, G + j * d + i, G + i * d + j)


@njit(**PART)
def _project(work: Array, d: int, p: int, L: int, G: int, A: int, scratch: int) -> None:
    """Write ``L G Lᵀ`` for L (p, d) and G (d, d), or G where p = d, packed to A."""
    keep_separate()
    if p < d:
        vectors.clear(work, scratch, p * d)
        vectors.clear(work, A, p * (p + 1) // 2)
    for i in range(p):
        if p < d:
            vectors.subtract_each(work, scratch + i * d, d, L + i * d, G, d)
            vectors.subtract_each(work, A, i + 1, L + i * d, scratch, d)
        else:
            for j in range(i + 1):
                vectors.copy(work, A + j, G + i * d + j)
        A += i + 1


@njit(**PART)
def _solve(
    cross: Array, square: Array, group: Group, b: Array, p: int, work: Array, mean: int, A: int, z: int
) -> None:
    """Write ``z = F⁻¹ Lᵀ Xᵀ(y − Xb)`` of eight tasks, and ``‖y − Xb‖² − ‖z‖²`` after it.

    ``mean`` has room for b; L, floors and log pivots follow it, and then G.
    """
    keep_separate()
    d, (tasks, c, first, _) = cross.shape[1], group
    first += c * tasks.shape[1]
    L, G, left = mean + d, mean + d + d * d + d + 2, z + d
    x = z if p == d else G + d * d
    for i in range(d):
        vectors.fill(work, mean + i, b[i])
        vectors.gather(work, x + i, cross, d, i, tasks, first)
    vectors.gather(work, left, square, 1, 0, tasks, first)
    vectors.subtract(work, left, mean, x, d)
    vectors.subtract_each(work, x, d, mean, G, d)
    vectors.subtract(work, left, mean, x, d)
    if p < d:
        vectors.clear(work, z, p)
        vectors.subtract_each(work, z, p, x, L, d)
        vectors.fill(work, x, -1.0)
        for i in range(p):
            vectors.multiply(work, z + i, x)
    vectors.substitute(work, A, p, p, z)
    vectors.subtract(work, left, z, z, p)


@njit(**PART)
def _weigh(
    constant: Any, group: Group, joint: Array, k: int, work: Array, left: int, log_pivots: int
) -> None:
    """Add the log evidence of the n tasks of a group to ``joint``, given (sizes, p, log |W|, σ²)."""
    keep_separate()
    (sizes, p, log_determinant, noise), (tasks, c, first, n) = constant, group
    log_noise = np.log(noise)
    for lane in range(n):
        t = tasks[c, first + lane]
        # NaN stays NaN: a model that overflows has no evidence.
        if work[left, lane] < 0.0:
            work[left, lane] = 0.0
        joint[t, k] -= 0.5 * (
            (sizes[t] - p) * log_noise
            + 2.0 * work[log_pivots, lane]
            + log_determinant
            + work[left, lane] / noise
            + sizes[t] * _LOG_2_PI
        )


@njit(**PART)
def _normalise(joint: Array, log_evidence: Array, begin: int, end: int) -> None:
    """Replace log p(y, k) by responsibilities, and write log p(y)."""
    keep_separate()
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
    b: Array, k: int, p: int, group: Group, work: Array, A: int, z: int, L: int, out: int, means: Array
) -> None:
    """Write ``b + L F⁻ᵀz`` of the n tasks of a group."""
    keep_separate()
    d, (tasks, c, first, n) = b.shape[1], group
    u = out + d
    for i in range(p):
        vectors.copy(work, u + i, z + i)
    vectors.solve_backwards(work, A, p, u)
    o, sign = u, 1.0
    if p < d:
        o, sign = out, -1.0
        vectors.clear(work, out, d)
        for i in range(p):
            vectors.subtract_multiple(work, out, u + i, L + i * d, d)
    for lane in range(n):
        t = tasks[c, first + lane]
        for j in range(d):
            means[t, k, j] = b[k, j] + sign * work[o + j, lane]


@njit(**PART)
def _share(
    joint: Array, noise: float, p: int, group: Group, k: int, work: Array, left: int, roots: int, sums: Array
) -> bool:
    """Write the roots of rσ² and of r, add quadratic forms to ``sums``, and return whether any r is worth adding."""
    keep_separate()
    tasks, c, first, n = group
    vectors.fill(work, roots, 0.0)
    vectors.fill(work, roots + 1, 0.0)
    any_weight = False
    for lane in range(n):
        r = joint[tasks[c, first + lane], k]
        if not r <= NEGLIGIBLE:
            work[roots, lane] = np.sqrt(r * noise)
            work[roots + 1, lane] = np.sqrt(r)
            sums[k] += r * (work[left, lane] + p * noise)
            any_weight = True
    return any_weight


@njit(**PART)
def _add_moments(d: int, p: int, work: Array, A: int, z: int, weights: int, total: int) -> None:
    """Add ``r E(uuᵀ) = r (σ²A⁻¹ + E(u)E(u)ᵀ)`` and ``r E(u)`` of a group to the totals, with the roots of `_share`."""
    keep_separate()
    n_packed, u = d * (d + 1) // 2, weights + 2
    inverse = column = u + d
    vectors.invert(work, A, p, inverse)
    vectors.clear(work, u, p)
    for i in range(p):
        vectors.subtract(work, u + i, z + i, column, p - i)
        vectors.multiply(work, u + i, weights + 1)
        vectors.subtract(work, total + n_packed + i, u + i, weights + 1, 1)
        column += p - i
    for o in range(inverse, column):
        vectors.multiply(work, o, weights)
    vectors.subtract_squares(work, inverse, u, p, total)


@njit(**PART)
def _add_covariances(
    joint: Array,
    of: Index,
    noise: float,
    p: int,
    group: Group,
    work: Array,
    A: int,
    L: int,
    free: int,
    out: Array,
) -> None:
    """Add ``r σ² L A⁻¹ Lᵀ`` of the n tasks of a group, r being the share of all components with covariance c."""
    keep_separate()
    d, weights, (tasks, c, first, n) = out.shape[1], free, group
    n_packed, zeros = d * (d + 1) // 2, weights + 1
    inverse = zeros + d
    packed, image = inverse + n_packed, inverse + 2 * n_packed
    vectors.fill(work, weights, 0.0)
    for lane in range(n):
        r = 0.0
        for k in range(len(of)):
            if of[k] == c:
                r += joint[tasks[c, first + lane], k]
        work[weights, lane] = np.sqrt(r * noise)
    vectors.invert(work, A, p, inverse)
    for o in range(inverse, inverse + p * (p + 1) // 2):
        vectors.multiply(work, o, weights)
    vectors.clear(work, packed, n_packed)
    if p == d:
        vectors.clear(work, zeros, d)
        vectors.subtract_squares(work, inverse, zeros, d, packed)
    else:
        _subtract_squared_images(work, inverse, p, L, d, image, packed)
    for lane in range(n):
        t = tasks[c, first + lane]
        o = packed
        for i in range(d):
            for j in range(i):
                out[t, i, j] -= work[o, lane]
                out[t, j, i] = out[t, i, j]
                o += 1
            out[t, i, i] -= work[o, lane]
            o += 1


@njit(**PART)
def _subtract_squared_images(work: Array, J: int, p: int, L: int, d: int, image: int, total: int) -> None:
    """Subtract the packed ``(JL)ᵀ(JL)`` from ``total``, for J from `invert` and L (p, d)."""
    keep_separate()
    vectors.clear(work, image, p * d)
    for j in range(p):
        for i in range(j, p):
            vectors.subtract_multiple(work, image + i * d, J, L + j * d, d)
            J += 1
    for _ in range(p):
        o = total
        for a in range(d):
            vectors.subtract_multiple(work, o, image + a, image, a + 1)
            o += a + 1
        image += d
