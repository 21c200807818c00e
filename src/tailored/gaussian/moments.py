"""Second moments of tasks, and the posterior of their coefficients from d x d systems.

With a full-rank W the systems are ``XᵀX + σ²W⁻¹``.  If W is singular, they are ``LᵀXᵀXL + σ²I``
with W = LLᵀ, p x p for L (d, p).  Both have the form ``A = G + P``: G are the second moments in the
coordinates of a component, and P is the contribution of its prior
(`tailored.gaussian.mixture.Components`).

The compiled pass processes tasks in chunks whose Cholesky factors fit into the cache.  For each
chunk it computes the evidence under each component and the responsibilities, and then reuses the
factors for means, covariances and sums.  The parts of its workspace (`tailored.gaussian.kernels`)
are those of `Layout`; the means, the floors and the roots are `Components.constants`.  For each
*group* of eight tasks, it has the factor F and the solution ``z = F⁻¹ Lᵀ Xᵀ(y − Xb)`` under each
component.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._utils.compiling import njit
from .._utils.records import cached_property
from .._utils.threads import in_threads
from ..tasks.rows import BATCH_FLOATS, Rows, Scaling, dense, frozen
from ..tasks.task_set import TaskSet, rows_of_tasks
from . import kernels as vectors
from .kernels import ENTRY, LANES, PART, empty_workspace, keep_separate, second_moments
from .mixture import EVIDENCE, Components, Mixture, Want, lower_triangle, unpacked

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Responsibilities up to this value are treated as zero in sums.
NEGLIGIBLE = 1e-6
#: Maximum number of floats in the second moments of all tasks (1 GB).
LARGEST_STATISTICS = 125_000_000
#: Number of floats in the d x d matrices that one thread processes at a time.
BLOCK_FLOATS = 1 << 18
#: Up to this number of columns, second moments are always used.
COMPILED_COLUMNS = 64
#: Number of tasks per chunk of the compiled pass: enough to fill groups of eight even if tasks skip
#: components.
CHUNK = 128
_LOG_2_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class _Additive:
    """Base class of sums over tasks."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Totals(_Additive):
    """Statistics of all rows without a model: counts, yᵀy, Xᵀy (d,) and XᵀX (d, d)."""

    n_tasks: int
    n_rows: float
    square: float
    cross: Array
    gram: Array

    def squared_residuals(self, b: Array) -> float:
        """Return ‖y − Xb‖² over all rows."""
        return max(self.square + float((self.gram @ b - 2.0 * self.cross) @ b), 0.0)


def used_columns(gram: Array) -> NDArray[np.bool_]:
    """Return whether each column of X is nonzero, apart from rounding, given XᵀX; a centred
    constant column is zero.
    """
    squares = gram.diagonal()
    return np.asarray(squares > 1e-20 * squares.max(initial=0.0))


@dataclass(frozen=True)
class Sums(_Additive):
    """Expected sufficient statistics, summed over tasks, under K components with means b_k.

    Moments are taken about the means, because differences of moments about zero would lose
    precision.
    """

    log_evidence: float
    counts: Array  # (K,) sums of the responsibilities
    first: Array  # (K, d) Σ_t r_tk E(w − b_k)
    second: Array  # (K, d, d) Σ_t r_tk E(w − b_k)(w − b_k)ᵀ
    residual: float  # Σ_tk r_tk E‖y − Xw‖²


#: Placeholder for sums that were not requested.
NO_SUMS = Sums(0.0, np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0, 0)), 0.0)


class Summed(NamedTuple):
    """Expected sufficient statistics, and the responsibilities (T, K) if the source returns them.

    EM passes the responsibilities back to the source, which may then skip components with
    negligible responsibilities.
    """

    sums: Sums
    shares: Any = None


class Expected(NamedTuple):
    """Posterior of T tasks under a mixture.  Arrays that were not requested have length 0."""

    log_evidence: Array  # (T,) log p(y)
    shares: Array  # (T, K) responsibilities r_k
    means: Array  # (T, K, d) E(w | y, k), with the effect of side information
    covariances: Array  # (T, d, d) mean covariance within components, Σ_k r_k Cov(w | y, k)
    sums: Sums

    @property
    def mean(self) -> Array:
        """The posterior mean of the mixture, (T, d)."""
        if self.means.shape[1] == 1:
            return self.means[:, 0]
        return np.asarray(np.matmul(self.shares[:, None, :], self.means)[:, 0])

    def mixture_covariance(self, scale: float = 1.0) -> Array:
        """Return ``scale`` times the covariance of the mixture, (T, d, d)."""
        if self.means.shape[1] == 1:
            return scale * self.covariances
        centred = self.means - self.mean[:, None]
        between = np.matmul((self.shares[:, :, None] * centred).transpose(0, 2, 1), centred)
        return np.asarray(scale * (self.covariances + between))


class TaskStatistics(ABC):
    """Statistics of T tasks in memory: `Moments`, `TaskRows` (few rows, many columns),
    `ResponseRows` (classes, counts).
    """

    is_gaussian: ClassVar[bool] = True
    sizes: Any
    side: Array | None
    log_determinants: Any = (
        0.0  # log determinants of the noise covariances / σ², if rows were whitened
    )

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def n_rows(self) -> float:
        """Total number of rows, at least 1 because callers divide by it."""
        return max(float(self.sizes.sum()), 1.0)

    @property
    def row_moment(self) -> Array:
        """The mean of xxᵀ over all rows, (d, d)."""
        return self.totals().gram / self.n_rows

    def skewness(self, model: Mixture) -> float:
        """Return h‴ / h″ of the log-likelihood y f − h(f), averaged over the rows with weights h″;
        0 for Gaussian targets.
        """
        return 0.0

    def roughly(self) -> Self:
        """Return the tasks for fits that are only compared with each other, which may be less
        precise.
        """
        return self

    @abstractmethod
    def totals(self) -> Totals:
        """Return the statistics of all rows that do not depend on a model."""

    def gaussian(self, model: Mixture) -> tuple[Any, Mixture]:
        """Return tasks with Gaussian rows, and the model for them; other responses are replaced by
        Gaussian *sites*.
        """
        return self, model

    @abstractmethod
    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        """Return the posterior of each task under a mixture.

        ``among`` (T, K) marks the components that each task may belong to; the responsibilities of
        the others are zero.
        """

    def sums(self, model: Mixture, shares: Array | None = None) -> Summed:
        """Return the expected sufficient statistics; tasks skip components with negligible earlier
        ``shares``.
        """
        found = self.posterior(
            model, Want(sums=True), None if shares is None else shares > NEGLIGIBLE
        )
        return Summed(found.sums, found.shares)


@dataclass(frozen=True)
class RowStatistics(TaskStatistics):
    """Rows of T tasks."""

    per_row: ClassVar[tuple[str, ...]] = ("X", "y")  # fields with an entry for each row

    X: Array  # (N, d)
    y: Array  # (N,)
    starts: NDArray[np.int64]  # (T + 1,) first row of each task, and N
    side: Array | None = field(
        default=None, kw_only=True
    )  # (T, q) features v(s) of the side information
    n_threads: int = field(default=1, kw_only=True)

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def rows(self) -> Rows:
        return Rows(self.X, self.y, self.starts)

    @cached_property
    def sizes(self) -> Array:
        """Numbers of rows, (T,)."""
        return np.diff(self.starts).astype(float)

    def take(self, index: NDArray[np.intp] | slice) -> Self:
        """Return the tasks at these positions."""
        at, starts = rows_of_tasks(self.starts, np.arange(len(self))[index])
        parts: dict[str, Any] = {name: getattr(self, name)[at] for name in self.per_row}
        return replace(
            self, starts=starts, side=None if self.side is None else self.side[index], **parts
        )


@dataclass(frozen=True)
class Moments(TaskStatistics):
    """Sufficient statistics of T tasks under ``y = Xw + Gaussian noise``."""

    gram: Array  # (T, d, d) XᵀX
    cross: Array  # (T, d) Xᵀy
    square: Array  # (T,) yᵀy
    sizes: Array  # (T,) numbers of rows
    side: Array | None = None  # (T, q) features v(s) of the side information
    n_threads: int = (
        1  # threads for a pass over the tasks; results are bitwise the same for any number
    )

    @property
    def n_features(self) -> int:
        return self.cross.shape[1]

    @classmethod
    def of(cls, tasks: TaskSet, units: Scaling, side: Array | None = None) -> Moments:
        """Return the second moments of the scaled rows; the result for a task depends only on its
        own rows.
        """
        T, d = len(tasks), len(units.columns)
        if T * d * d > LARGEST_STATISTICS:
            size = f"{8e-9 * T * d * d:.1f} GB, and the limit is 1 GB. Pass fewer tasks or columns."
            raise ValueError(f"X: the second moments of {T} tasks with {d} columns need {size}")
        gram, cross, square = np.empty((T, d, d)), np.empty((T, d)), np.empty(T)
        cuts, n_rows = [0, T], max(BATCH_FLOATS // d, 1)
        if tasks.offsets[-1] > n_rows:
            batch_of_task = tasks.offsets[:-1] // n_rows
            cuts = [*np.unique(batch_of_task, return_index=True)[1].tolist(), T]
        for start, stop in pairwise(cuts):
            part, some = slice(start, stop), tasks if stop - start == T else tasks[start:stop]
            X, y, change = dense(some.X), some.y, units.change
            if some.row_weights is not None:
                (X, y), change = units.weighted_rows(some), Scaling.raw(d).change
            rows = frozen(X), frozen(y), frozen(some.offsets, np.int64)
            second_moments(rows, change, (gram[part], cross[part], square[part]))
        return cls(gram, cross, square, tasks.n_observed, side)

    def posterior(
        self, model: Mixture, want: Want = EVIDENCE, among: NDArray[np.bool_] | None = None
    ) -> Expected:
        T, (K, d) = len(self), model.means.shape
        effects = model.effects(self.side)
        rest = self if effects is None else self.shifted(effects)
        shares, log_evidence = log_priors(model, self.side, T, among), np.empty(T)
        means = np.empty((T if want.means else 0, K, d))
        n_totals, components, blocks = K * d * (d + 3) // 2, model.components, self.blocks()
        n_outputs = 1 if components.all_full else K
        covariances = np.zeros((T if want.covariances else 0, n_outputs, d, d))
        totals = np.empty((len(blocks), n_totals))
        quadratics = np.zeros((len(blocks), K if want.sums else 0))
        given = [
            np.ascontiguousarray(array)
            for array in (rest.gram, rest.cross, rest.square, rest.sizes)
        ]
        found = [shares, log_evidence, means, covariances]
        prior = *components[1:4], model.noise

        def run(i: int, part: slice) -> None:
            cut = given + found if len(blocks) == 1 else [array[part] for array in given + found]
            scratch = _workspace(components, min(T, CHUNK), K, d)
            if want.sums:
                summed = scratch[2][:n_totals]
                summed.fill(0.0)
            # Numba takes longer to dispatch named tuples.
            _pass(tuple(cut[:4]), prior, (*cut[4:], quadratics[i]), scratch)
            if want.sums:
                # Add the lanes in sequence: np.sum uses another order and rounds differently.
                totals[i] = -np.cumsum(summed, axis=1)[:, -1]

        in_threads(run, list(enumerate(blocks)), self.n_threads)
        if effects is not None and want.means:
            means += effects[:, None]
        sums = NO_SUMS
        if want.sums:
            # Add in the order of the blocks, not in the order in which threads finish.
            parts = [a.sum(axis=0) if len(a) > 1 else a[0] for a in (totals, quadratics)]
            sums = _sums(components, float(log_evidence.sum()), shares.sum(axis=0), *parts)
        needs_map = want.covariances and not components.all_full
        within = _within(components, covariances) if needs_map else covariances[:, 0]
        return Expected(log_evidence, shares, means, within, sums)

    def totals(self) -> Totals:
        n_rows, square = float(self.sizes.sum()), float(self.square.sum())
        return Totals(len(self), n_rows, square, self.cross.sum(axis=0), self.gram.sum(axis=0))

    def blocks(self) -> list[slice]:
        """Return blocks of tasks that are summed separately; they do not depend on the number of
        threads.
        """
        if len(self) <= CHUNK:
            return [slice(None)]
        size = max(1, BLOCK_FLOATS // max(self.n_features, 1) ** 2 // CHUNK) * CHUNK
        return [slice(start, start + size) for start in range(0, len(self), size)]

    def take(self, index: NDArray[np.intp] | slice) -> Self:
        """Return the tasks at these positions."""
        side = None if self.side is None else self.side[index]
        gram, cross, square, sizes = (
            p[index] for p in (self.gram, self.cross, self.square, self.sizes)
        )
        return replace(self, gram=gram, cross=cross, square=square, sizes=sizes, side=side)

    def shifted(self, weights: Array) -> Self:
        """Return the tasks with targets ``y − Xw``, for the weights (T, d) of each task."""
        fitted = np.matmul(self.gram, weights[:, :, None])[:, :, 0]
        square = np.maximum(
            self.square + np.einsum("td,td->t", fitted - 2.0 * self.cross, weights), 0.0
        )
        return replace(self, cross=self.cross - fitted, square=square)

    def squared_residuals(self, weights: Array) -> Array:
        """Return ‖y − Xw‖² of each task, (T,), for one w (d,) or one per task (T, d)."""
        return self.shifted(np.broadcast_to(weights, self.cross.shape)).square


def times(matrices: Array, vectors: Array) -> Array:
    """Return the product of each matrix (T, d, d) and its vector (T, d)."""
    return np.asarray(np.matmul(matrices, vectors[:, :, None])[:, :, 0])


def log_priors(
    model: Mixture, side: Array | None, n_tasks: int, among: NDArray[np.bool_] | None
) -> Array:
    """Return log π (T, K), with −inf for the components that a task skips."""
    joint = np.empty((n_tasks, model.n_components))
    joint[:] = model.log_proportions(side)
    if among is not None:
        joint[~among] = -np.inf
    return joint


def normalise(joint: Array) -> Array:
    """Replace log p(y, k) (T, K) by responsibilities, in place; return log p(y), (T,)."""
    largest = joint.max(axis=1, keepdims=True)
    joint -= largest
    np.exp(joint, out=joint)
    totals = joint.sum(axis=1, keepdims=True)
    joint /= totals
    return np.asarray((largest + np.log(totals))[:, 0])


def influence(tasks: Any, model: Mixture, covariances: Array) -> Array:
    """Return the derivative of the posterior mean with respect to the prior mean, (T, d, d), at
    fixed responsibilities r.

    It is ``Σ_k r_k (I + W_k G/σ²)⁻¹`` with G = XᵀX.

    ``covariances`` are those of `Expected`, C.  The general formula I − C G/σ² loses precision by
    cancellation if the rows determine the coefficients; with one component, see `projected`.
    """
    if model.n_components > 1:
        d = tasks.n_features
        return np.asarray(np.eye(d) - np.matmul(covariances, tasks.gram) / model.noise)
    (L, pseudo_inverse, N), (GL, inverse) = model.bases, projected(tasks.gram, model)
    outside = N - L @ inverse @ (GL.transpose(0, 2, 1) @ N)
    return np.asarray(L @ (model.noise * inverse) @ pseudo_inverse + outside @ N.T)


def projected(gram: Array, model: Mixture) -> tuple[Array, Array]:
    """Return G L (T, d, p) and (σ²I + LᵀGL)⁻¹ (T, p, p) for one component W = LLᵀ.

    In the range of W, posteriors and information follow from these without a difference of large
    numbers, however small σ² is.  Below the rounding errors of LᵀGL, σ² makes no difference.
    """
    L = model.bases[0]
    GL = gram @ L
    inside = L.T @ GL
    rounding = 4.0 * np.finfo(float).eps * np.trace(inside, axis1=-2, axis2=-1)
    noise = np.maximum(model.noise, rounding)[..., None, None]
    return GL, np.asarray(np.linalg.inv(noise * np.eye(L.shape[1]) + inside))


def _sums(
    components: Components, log_evidence: float, counts: Array, totals: Array, quadratics: Array
) -> Sums:
    """Convert the negated totals of `_pass` from the coordinates of each component to those of the
    coefficients.
    """
    K, d = len(counts), components.roots.shape[1]
    i, _, twice = lower_triangle(d)
    totals = totals.reshape(K, -1)
    first, packed = -totals[:, len(i) :], totals[:, : len(i)]
    second = packed.take(unpacked(d), axis=1)
    for k, root in enumerate(components.roots):
        if components.ranks[k] < d:
            first[k] = first[k] @ root
            second[k] = root.T @ second[k] @ root
    # E‖y − Xw‖² is ``quadratics`` minus E(uᵀPu), summed over tasks.
    residual = float(quadratics.sum() - np.vdot(twice * components.precisions, packed))
    return Sums(log_evidence, counts, first, second, residual)


def _within(components: Components, covariances: Array) -> Array:
    """Convert covariances (T, K, d, d) from the coordinates of each component to those of the
    coefficients; add over K.
    """
    total = np.zeros_like(covariances[:, 0])
    for k, (L, p) in enumerate(zip(components.roots, components.ranks, strict=True)):
        C = covariances[:, k]
        total += C if p == len(L) else L[:p].T @ (C[:, :p, :p] @ L[:p])
    return total


class Layout(NamedTuple):
    """Where the parts of the workspace of `_pass` start; all are stored by component."""

    sums: int  # −Σ r E(uuᵀ), packed, and Σ r E(u)
    means: int  # b
    floors: int  # squared pivots of the Cholesky factors of P
    roots: int  # −L, by columns; empty if all components have full rank
    solutions: int  # z and ‖y − Xb‖² − ‖z‖², by group
    factors: int  # F, packed, by group
    log_pivots: int
    free: int  # scratch space
    n_rows: int

    @classmethod
    def of(cls, K: int, d: int, n_groups: int) -> Self:
        n_packed = d * (d + 1) // 2
        sizes = [n_packed + d, d, d, d * d, n_groups * (d + 1), n_groups * n_packed]
        starts: list[int] = [0, *np.cumsum([K * size for size in sizes]).tolist()]
        free = starts[-1] + 2
        return cls._make([*starts, free, free + 2 + 2 * d + 2 * d * (d + 1)])


#: Each thread keeps a workspace of up to 4 MB for reuse, because allocation takes time.
_kept = threading.local()


def _workspace(components: Components, n_tasks: int, K: int, d: int) -> tuple[Any, ...]:
    """Return ``tasks`` (K chunk,), ``n_tasks`` (K,), ``work`` with the constants, and the layout,
    for `_pass`.
    """
    shape, constants, kept = (K, d, max(-(-n_tasks // LANES), 1)), None, _kept.__dict__.get("made")
    if kept is not None and kept[0] == shape:
        _, constants, made = kept
    else:
        layout = Layout.of(*shape)
        positions = np.empty(K * shape[2] * LANES, np.int64), np.empty(K, np.int64)
        made = *positions, empty_workspace(layout.n_rows), tuple(layout)
    if constants is not components.constants:
        *_, work, layout = made
        first = Layout(*layout).means
        work[first : first + len(components.constants)] = components.constants
        if work.nbytes <= 1 << 22:
            _kept.made = shape, components.constants, made
    return made


@njit(**ENTRY)
def _pass(given: Any, prior: Any, out: Any, scratch: Any) -> None:
    """Write the posterior of T tasks.

    ``given`` are the arrays of `Moments`, ``prior`` fields of `Components` and σ², and ``scratch``
    the result of `_workspace`.  In ``out``, ``joint`` (T, K) has log π on entry and
    responsibilities on return; −inf skips a component.  ``means`` (T, K, d) and ``covariances`` are
    written if they have length T.  ``covariances`` are those of u, (T, K, d, d), or (T, 1, d, d)
    for their sum over components, and must be zero on entry.  If ``quadratics`` has length K, Σ_t r
    (‖y − Xm‖² + uᵀPu at the mean + pσ²) is added to it, and the sums of each component are added to
    the workspace.
    """
    keep_separate()
    joint, log_evidence, _, _, _ = out
    T, K = joint.shape
    tasks, n_tasks, _, _ = scratch
    chunk = len(tasks) // K
    for begin in range(0, T, chunk):
        end = begin + chunk
        if end > T:
            end = T
        for k in range(K):
            n_tasks[k] = _select(joint, k, begin, end, tasks, k * chunk)
        _add_evidence(given, prior, joint, scratch, end - begin)
        _normalise(joint, log_evidence, begin, end)
        _add_posteriors(prior, out, scratch)


@njit(**PART)
def _group(ranks: Index, scratch: Any, d: int, k: int, g: int) -> tuple[int, ...]:
    """Return the position of the first task of a group, the rank of component k, and the positions
    of b, L, F and z in the workspace.
    """
    keep_separate()
    tasks, n_tasks, _, layout = scratch
    _, means, _, roots, solutions, factors, _, _, _ = layout
    first = k * (len(tasks) // len(n_tasks)) + g
    A = factors + first // LANES * (d * (d + 1) // 2)
    z = solutions + first // LANES * (d + 1)
    return first, ranks[k], means + k * d, roots + k * d * d, A, z


@njit(**PART)
def _add_evidence(given: Any, prior: Any, joint: Array, scratch: Any, n: int) -> None:
    """Solve the systems of a chunk of n tasks, and add log p(y | k) to ``joint``."""
    keep_separate()
    gram, cross, _, sizes = given
    ranks, precisions, log_determinants, noise = prior
    tasks, n_tasks, work, layout = scratch
    _, _, floors, _, _, _, log_pivots, free, _ = layout
    (_, K), (_, d), log_noise = joint.shape, cross.shape, np.log(noise)
    for g in range(0, n, LANES):
        loaded = False
        for k in range(K):
            if g >= n_tasks[k]:
                continue
            group = _group(ranks, scratch, d, k, g)
            first, p, _, L, A, z = group
            # Components that no task skips have the same groups of tasks, so XᵀX is loaded once.
            no_skips = n_tasks[k] == n
            if not (loaded and no_skips):
                _load_gram(gram, tasks, first, d, work, free)
            loaded = no_skips
            if p < d:
                _project(work, p, d, L, free, A, free + d * d + d)
            _add_precision(work, p, d, free, A, precisions, k)
            vectors.factorise(work, A, p, floors + k * d, log_pivots)
            _solve(given, tasks, work, group, free)
            for o in range(first, first - g + n_tasks[k]):
                if o == first + LANES:
                    break
                t, form = tasks[o], work[z + d, o - first]
                # NaN is kept, so that a model that overflows has the evidence NaN.
                if form < 0.0:
                    form = 0.0
                    work[z + d, o - first] = form
                value = (sizes[t] - p) * log_noise + 2.0 * work[log_pivots, o - first]
                value = value + log_determinants[k] + form / noise + sizes[t] * _LOG_2_PI
                joint[t, k] -= 0.5 * value


@njit(**PART)
def _add_posteriors(prior: Any, out: Any, scratch: Any) -> None:
    """Write the means, sums and covariances of a chunk of tasks, given the responsibilities."""
    keep_separate()
    joint, _, means, covariances, quadratics = out
    ranks, precisions, _, noise = prior
    tasks, n_tasks, work, layout = scratch
    free, d = layout[7], means.shape[2]
    for k in range(len(n_tasks)):
        for g in range(0, n_tasks[k], LANES):
            group, n = _group(ranks, scratch, d, k, g), n_tasks[k] - g
            first, p, _, _, A, z = group
            if len(means):
                _write_means(tasks, work, group, free, means, k)
            if len(quadratics):
                any_weight = False
                for lane in range(LANES):
                    r = joint[tasks[first + lane], k] if lane < n else 0.0
                    if r <= NEGLIGIBLE:
                        r = 0.0
                    else:
                        quadratics[k] += r * (work[z + d, lane] + p * noise)
                        any_weight = True
                    work[free, lane] = np.sqrt(r * noise)
                    work[free + 1, lane] = np.sqrt(r)
                if any_weight:
                    _add_moments(d, p, work, A, z, free, k * (precisions.shape[1] + d))
            if len(covariances):
                for lane in range(LANES):
                    work[free, lane] = np.sqrt(joint[tasks[first + lane], k] * noise)
                _add_covariances(tasks, work, group, n, free, covariances, k)


@njit(**PART)
def _select(joint: Array, k: int, begin: int, end: int, tasks: Index, first: int) -> int:
    """Write the tasks that do not skip component k to ``tasks[first:]``, padded with the last;
    return their number.
    """
    keep_separate()
    o = first
    for t in range(begin, end):
        if joint[t, k] > -np.inf:
            tasks[o] = t
            o += 1
    n = o - first
    while o % LANES:
        tasks[o] = tasks[o - 1]
        o += 1
    return n


@njit(**PART)
def _load_gram(gram: Array, tasks: Index, first: int, d: int, work: Array, G: int) -> None:
    """Gather XᵀX (d, d) of eight tasks."""
    keep_separate()
    for i in range(d):
        for j in range(i + 1):
            vectors.gather(work, G + i * d + j, gram, d * d, i * d + j, tasks, first)
            vectors.copy(work, G + j * d + i, G + i * d + j)


@njit(**PART)
def _project(work: Array, m: int, n: int, L: int, G: int, A: int, scratch: int) -> None:
    """Write the packed ``L G Lᵀ`` to A, for L (m, n) and a symmetric G (n, n)."""
    keep_separate()
    vectors.clear(work, scratch, m * n)
    vectors.clear(work, A, m * (m + 1) // 2)
    for i in range(m):
        vectors.subtract_each(work, scratch + i * n, n, L + i * n, G, n)
        vectors.subtract_each(work, A, i + 1, L + i * n, scratch, n)
        A += i + 1


@njit(**PART)
def _add_precision(work: Array, p: int, d: int, G: int, A: int, precisions: Array, c: int) -> None:
    """Add P to A; if p = d, first set A to G."""
    keep_separate()
    o = 0
    for i in range(p):
        for j in range(i + 1):
            if p == d:
                vectors.copy(work, A + o, G + i * d + j)
            vectors.add(work, A + o, precisions[c, o])
            o += 1


@njit(**PART)
def _solve(given: Any, tasks: Index, work: Array, group: tuple[int, ...], G: int) -> None:
    """Write ``z = F⁻¹ Lᵀ Xᵀ(y − Xb)`` and ``‖y − Xb‖² − ‖z‖²`` for the eight tasks of a group."""
    keep_separate()
    _, cross, square, _ = given
    first, p, b, L, A, z = group
    _, d = cross.shape
    left = z + d
    x = z if p == d else G + d * d
    for i in range(d):
        vectors.gather(work, x + i, cross, d, i, tasks, first)
    vectors.gather(work, left, square, 1, 0, tasks, first)
    vectors.subtract(work, left, b, x, d)
    vectors.subtract_each(work, x, d, b, G, d)
    vectors.subtract(work, left, b, x, d)
    if p < d:
        vectors.clear(work, z, p)
        vectors.subtract_each(work, z, p, x, L, d)
    vectors.substitute(work, A, p, p, z)
    vectors.subtract(work, left, z, z, p)


@njit(**PART)
def _normalise(joint: Array, log_evidence: Array, begin: int, end: int) -> None:
    """Replace log p(y, k) by responsibilities, and write log p(y)."""
    keep_separate()
    _, K = joint.shape
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
            joint[t, k] = np.exp(joint[t, k] - largest)
            total += joint[t, k]
        log_evidence[t] = largest + np.log(total)
        for k in range(K):
            joint[t, k] /= total


@njit(**PART)
def _write_means(
    tasks: Index, work: Array, group: tuple[int, ...], out: int, means: Array, k: int
) -> None:
    """Write the posterior means ``b + L F⁻ᵀz`` of the eight tasks of a group."""
    keep_separate()
    first, p, b, L, A, z = group
    _, _, d = means.shape
    u = out + d
    for i in range(p):
        vectors.copy(work, u + i, z + i)
    vectors.solve_backwards(work, A, p, u)
    if p < d:
        vectors.clear(work, out, d)
        for i in range(p):
            vectors.subtract_multiple(work, out, u + i, L + i * d, d)
        u = out
    for lane in range(LANES):
        for j in range(d):
            means[tasks[first + lane], k, j] = work[b + j, lane] + work[u + j, lane]


@njit(**PART)
def _add_moments(d: int, p: int, work: Array, A: int, z: int, weights: int, total: int) -> None:
    """Add ``−r E(uuᵀ) = −r (σ²A⁻¹ + E(u)E(u)ᵀ)`` and ``r E(u)`` of a group to the totals;
    ``weights`` has √(rσ²) and √r.
    """
    keep_separate()
    u = weights + 2
    first, inverse = total + d * (d + 1) // 2, u + d
    vectors.invert(work, A, p, inverse)
    vectors.clear(work, u, p)
    column = inverse
    for i in range(p):
        vectors.subtract(work, u + i, z + i, column, p - i)
        vectors.multiply(work, u + i, weights + 1)
        vectors.subtract(work, first + i, u + i, weights + 1, 1)
        column += p - i
    for o in range(inverse, column):
        vectors.multiply(work, o, weights)
    vectors.subtract_squares(work, inverse, u, p, total)


@njit(**PART)
def _add_covariances(
    tasks: Index, work: Array, group: tuple[int, ...], n: int, weights: int, out: Array, k: int
) -> None:
    """Add ``r σ² A⁻¹`` of up to n tasks of a group to ``out``; ``weights`` has √(rσ²)."""
    keep_separate()
    first, p, _, _, A, z = group
    _, n_outputs, d, _ = out.shape
    n_packed, place = d * (d + 1) // 2, k % n_outputs
    packed = weights + 2 + d + n_packed
    # The entry for √r is set to zero, that for √(rσ²) is not: `_add_moments` adds −rσ²A⁻¹, without
    # the part of the means.
    vectors.clear(work, weights + 1, 1)
    vectors.clear(work, packed, n_packed + d)
    _add_moments(d, p, work, A, z, weights, packed)
    for lane in range(LANES):
        if lane == n:
            break
        t, at = tasks[first + lane], packed
        for i in range(p):
            for j in range(i + 1):
                value = out[t, place, i, j] - work[at, lane]
                out[t, place, i, j] = value
                out[t, place, j, i] = value
                at += 1
