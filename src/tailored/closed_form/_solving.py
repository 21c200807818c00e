"""Blocks of tasks through the compiled loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray
from scipy import sparse

from .._utils.records import Record, cached_property
from ..feature_maps import FeatureMap, PosteriorMap, PosteriorModel, check_features
from ..feature_maps.summaries import hats
from ..gaussian import Moments
from ..gaussian.kernels import second_moments
from ..gaussian.row_kernels import spreads
from ..gaussian.task_kernels import component_posteriors, posterior_roots
from ..representation import Bias, Conditioning
from ..tasks import Scaling, TaskSet
from ..tasks.rows import dense, frozen
from ._layout import Layout, parts_of_levels

Array = NDArray[np.float64]

#: Columns up to which compiled loops over one task after the other are faster than batched matrix products.
MOST_COLUMNS = 64
#: Floats of XᵀX of the tasks that go through together: they stay in the second cache.
BLOCK_FLOATS = 1 << 17
#: Blocks that a thread takes at a time.
BLOCKS_AT_ONCE = 2


class Solved(NamedTuple):
    """Tasks in the units of the prior: w (T, d), r (T, K) and b(s) (T, d); and J where it was wanted.

    The first ``ranks[t]`` rows of ``roots[t]`` are J, the others zero.
    """

    weights: Array
    shares: Array
    means: Array
    roots: Array
    ranks: NDArray[np.int64]


class Spreads(NamedTuple):
    """Weights (T, d) and ‖y − Xw‖² (T,) of tasks, and ``<x, w>`` and its variance at each asked row.

    In the units of the prior; variances are in units of the noise.
    """

    weights: Array
    squares: Array
    centre: Array
    variance: Array


class _Part(NamedTuple):
    """Rows of some tasks as compiled loops read them."""

    X: Any
    y: Array
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, tasks: TaskSet) -> _Part:
        X = tasks.X if tasks.is_sparse else frozen(tasks.X)
        return cls(X, frozen(tasks.y), frozen(tasks.offsets, np.int64))

    def tasks(self, start: int, stop: int) -> _Part:
        """Tasks start .. stop - 1; sparse rows are filled up."""
        offsets = self.offsets[start : stop + 1]
        rows = slice(offsets[0], offsets[-1])
        X = self.X[rows]
        if sparse.issparse(X):
            X = frozen(dense(X))
        return _Part(X, self.y[rows], frozen(offsets - offsets[0], np.int64))


@dataclass(frozen=True)
class ClosedForm(Record):
    """A prior of the squared loss whose tasks are solved in one pass.

    Attributes
    ----------
    units : Scaling
    model : PosteriorModel
        The mixture, the summaries of the levels, and what reads descriptions.
    levels : list of arrays (d, 1 + m), or None
        The B of each level.
    """

    units: Scaling
    model: PosteriorModel
    levels: list[Array | None]

    @classmethod
    def of(
        cls, units: Scaling, feature_map: FeatureMap | None, conditioning: Conditioning, bias: Bias
    ) -> ClosedForm | None:
        """None where the prior is not one of empirical Bayes, or has too many columns for it to pay."""
        if type(feature_map) is not PosteriorMap or len(units.columns) > MOST_COLUMNS:
            return None
        model = feature_map.model
        if model is None or not _same(units, model.units):
            return None
        levels = parts_of_levels(model, conditioning, bias)
        return None if levels is None else cls(units, model, levels)

    @property
    def needs_rows(self) -> bool:
        """Whether features of the rows themselves are read, beside their second moments."""
        return self.model.side is not None and self.model.side.encoder.needs_rows

    def side(self, tasks: TaskSet) -> Array | None:
        """v(s) of every task, (T, q)."""
        # Read even where nothing uses it, so that what has to be passed does not depend on what was learned.
        return None if self.model.side is None else check_features(self.model.side(tasks), tasks)

    def taus(self, shares: Array) -> Array:
        """τ(s) of tasks with these responsibilities, (T, d, d)."""
        K, d, _ = self._layout.taus.shape
        return np.asarray((shares @ self._layout.taus.reshape(K, d * d)).reshape(len(shares), d, d))

    def weights(self, tasks: TaskSet, n_jobs: int | None = None) -> Array:
        """Weights (T, d) of tasks; the digits of a task depend neither on the others nor on ``n_jobs``."""
        out = np.empty((len(tasks), len(self.units.columns)))
        side, rows = self.side(tasks), _Part.of(tasks)

        def work(start: int, stop: int) -> None:
            statistics = self._statistics(rows.tasks(start, stop), side, start, stop)
            out[start:stop] = self.solve(statistics).weights

        self._each_block(work, len(tasks), n_jobs)
        return out

    def spreads(self, support: TaskSet, query: TaskSet, n_jobs: int | None = None) -> Spreads:
        """What intervals of the query rows need after adapting to the support rows of the same tasks."""
        T, d = len(support), len(self.units.columns)
        out = Spreads(np.empty((T, d)), np.empty(T), np.empty(len(query.y)), np.empty(len(query.y)))
        side, rows, wanted = self.side(support), _Part.of(support), _Part.of(query)

        def work(start: int, stop: int) -> None:
            part, (asked, _, offsets) = slice(start, stop), wanted.tasks(start, stop)
            given = rows.tasks(start, stop)
            found = self.solve(self._statistics(given, side, start, stop), roots=True)
            out.weights[part] = found.weights
            ends = slice(query.offsets[start], query.offsets[stop])
            spreads(
                *given, asked, offsets, *self.units.change, *found[:1], *found[3:], out.squares[part],
                out.centre[ends], out.variance[ends],
            )  # fmt: skip

        self._each_block(work, T, n_jobs)
        return out

    def solve(self, statistics: Moments, *, means: bool = False, roots: bool = False) -> Solved:
        """Tasks from their second moments in the units of the prior; b(s) and J where they are wanted."""
        mixture, (points, starts, leading, taus) = self.model.mixture, self._layout
        K, (T, d) = len(leading), statistics.cross.shape
        moved = mixture.effects(statistics.side)
        rest = statistics if moved is None else statistics.shifted(moved)
        images = np.matmul(points, statistics.gram)
        joint, coefficients = np.empty((T, K)), np.zeros((T, len(points)))
        component_posteriors(
            images, points, starts, leading, rest.cross, rest.square, mixture.noise, joint, coefficients
        )
        r = np.ones((T, 1)) if K == 1 else _normalised(joint + mixture.log_proportions(statistics.side))
        whole = mixture.averaged or K == 1
        J, ranks = np.zeros((0, d, d)), np.zeros(0, dtype=np.int64)
        if roots or not whole or self._speaks:
            J, ranks = np.zeros((T, d, d)), np.empty(T, dtype=np.int64)
            posterior_roots(images, points, starts, taus, r, statistics.gram, J, ranks)
        b = r @ mixture.means
        if whole:
            coefficients[:, : starts[-1]] *= np.repeat(r, np.diff(starts), axis=1)
            w = coefficients[:, : starts[-1]] @ points[: starts[-1]] + b
        else:
            left = rest.cross - np.einsum("tk,tkd->td", r, images[:, starts[-1] :])
            w = b + _covered(J, left)
        if moved is not None:
            w, b = w + moved, b + moved
        if means and K > 1 and whole:
            # the prior mean under which the posterior mean of the mixture is the solution
            fitted = _times(statistics.gram, w) - statistics.cross
            b = w + _times(self.taus(r), fitted)
        shift = self._level_shift(statistics, w)
        if shift is not None:
            w, b = w + shift - _covered(J, _times(statistics.gram, shift)), b + shift
        return Solved(w, r, b, J, ranks)

    def _level_shift(self, statistics: Moments, weights: Array) -> Array | None:
        """What the levels add to b(s), ``Σ_i h_i(n) B_i (1, ψ_i)``, given the weights of the first pass."""
        out = None
        if not self._speaks:
            return out
        heights = hats(self.model.levels, statistics.sizes)
        for level, B, hat in zip(self.model.levels, self.levels, heights, strict=True):
            if B is None or level.summary is None or not hat.any():
                continue
            psi = level.summary(statistics, weights)
            added = hat[:, None] * (B[:, 0] + psi @ B[:, 1:].T)
            out = added if out is None else out + added
        return out

    @cached_property
    def _speaks(self) -> bool:
        """Whether any level does."""
        return any(B is not None for B in self.levels)

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self.model)

    def _statistics(self, rows: _Part, side: Array | None, start: int, stop: int) -> Moments:
        T, d = stop - start, len(self.units.columns)
        gram, cross, square = np.empty((T, d, d)), np.empty((T, d)), np.empty(T)
        second_moments(*rows, *self.units.change, gram, cross, square)
        sizes = np.diff(rows.offsets).astype(float)
        return Moments(gram, cross, square, sizes, None if side is None else side[start:stop])

    def _each_block(self, work: Callable[[int, int], None], n_tasks: int, n_jobs: int | None) -> None:
        """``work(start, stop)`` on blocks of tasks, whose edges do not depend on the number of threads."""
        size = max(1, BLOCK_FLOATS // len(self.units.columns) ** 2)
        edges = [*range(0, n_tasks, size), n_tasks]

        def work_on(first: int) -> None:
            for start, stop in pairwise(edges[first : first + BLOCKS_AT_ONCE + 1]):
                work(start, stop)

        pieces = range(0, len(edges) - 1, BLOCKS_AT_ONCE)
        n_threads = min(effective_n_jobs(n_jobs), len(pieces))
        if n_threads > 1:
            Parallel(n_jobs=n_threads, require="sharedmem")(delayed(work_on)(first) for first in pieces)
        else:
            for first in pieces:
                work_on(first)


def _normalised(joint: Array) -> Array:
    """Probabilities from their logarithms."""
    r = np.exp(joint - joint.max(axis=1, keepdims=True))
    return np.asarray(r / r.sum(axis=1, keepdims=True))


def _times(matrices: Array, vectors: Array) -> Array:
    """The product of each matrix (T, d, d) and its vector (T, d)."""
    return np.asarray(np.matmul(matrices, vectors[:, :, None])[:, :, 0])


def _covered(roots: Array, vectors: Array) -> Array:
    """``JᵀJ u`` of each task."""
    return _times(roots.transpose(0, 2, 1), _times(roots, vectors))


def _same(one: Scaling, other: Scaling) -> bool:
    return one is other or all(
        np.array_equal(getattr(one, part.name), getattr(other, part.name)) for part in fields(one)
    )
