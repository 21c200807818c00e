"""Tasks that were not learned from, adapted on few and on many of their rows: what intervals are counted on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import wide
from .adapting import AdaptTasks
from .intervals import Adapted, Asked, Calibration, calibrate, own_noise
from .prior import Prior
from .tasks import Rows, Scaling, TaskSet
from .tasks.episodes import LEAST_QUERY, Episodes, SupportSampling
from .tasks.rows import batches

Array = NDArray[np.float64]

#: Where tasks are few, each is drawn from several times, until there are so many in all.
MOST_REPEATS, ENOUGH_TASKS = 4, 400


def calibrate_on(
    held_out: Iterable[tuple[TaskSet, AdaptTasks | Prior]],
    units: Scaling,
    seed: list[int],
    arrival: SupportSampling,
) -> Calibration | None:
    """Calibrate on pairs of tasks and a way to adapt that has not seen them; None where no row can be asked.

    Each task gives some of its rows, once for each of a few numbers of rows, and is asked for others, as ``arrival``
    says.  All ways to adapt work in ``units``; a prior of many columns (`wide`) is one of them.  Where they are not the model in use but the same fitted to fewer
    tasks, theirs are the larger errors and intervals err on the wide side.
    """
    pairs = [(tasks, adapt) for tasks, adapt in held_out if len(tasks)]
    sizes = np.concatenate([tasks.sizes for tasks, _ in pairs])
    n_repeats = 1 if arrival.in_order else max(1, min(MOST_REPEATS, ENOUGH_TASKS // len(sizes)))
    levels: list[tuple[int, list[Asked]]] = []
    for n_support in numbers_of_rows(sizes, arrival):
        adapted: list[Asked] = []
        for i, (tasks, adapt) in enumerate(pairs):
            episodes = arrival.query_all(tasks, n_support, [*seed, i], n_repeats)
            adapted += (
                _adapted_wide(episodes, adapt)
                if isinstance(adapt, Prior)
                else _adapted(episodes, adapt, units)
            )
        levels.append((n_support, adapted))
    return calibrate(levels, n_repeats) if levels[-1][1] else None


def numbers_of_rows(sizes: NDArray[np.int64], arrival: SupportSampling) -> list[int]:
    """None, one, two, four, .. rows up to what a task of median size can spare, and the numbers that will be given."""
    low, high = arrival.rows(sizes)
    size = float(np.median(sizes))
    last = round(max(high, size - LEAST_QUERY))
    doubling = [2**i for i in range(max(last, 1).bit_length()) if 2**i <= last / np.sqrt(2.0)]
    # Nobody can give more than all but one.
    most = max(int(sizes.max()) - 1, 0)
    return sorted({min(number, most) for number in (0, *doubling, round(low), round(high), last)})


def _adapted(episodes: Episodes, adapt: AdaptTasks, units: Scaling) -> list[Asked]:
    """The tasks in groups that have as many rows to give, and as many to ask for."""
    out: list[Asked] = []
    start = 0
    for support in batches(episodes.support):
        query = episodes.query[start : start + len(support)]
        start += len(support)
        weights, theta = adapt(support)
        given, asked = (Rows(units.dense(s.X), units.targets(s.y), s.offsets) for s in (support, query))
        kinds, kind = np.unique(np.stack([given.sizes, asked.sizes]), axis=1, return_inverse=True)
        for i, (n, q) in enumerate(kinds.T):
            if q:
                some = np.flatnonzero(kind.ravel() == i)
                rows = [*_stacked(given, some, n), theta[some], weights[some], *_stacked(asked, some, q)]
                out.append(Adapted(*rows))
    return out


class _AskedWide(NamedTuple):
    """One task of a prior of many columns: errors (1, q), variances (1, q), and its own rows."""

    errors: Array
    variances: Array
    square: float
    n_rows: int

    def spreads(self, noise: float) -> Array:
        return np.asarray(np.sqrt(own_noise(self.square, self.n_rows, noise) * (1.0 + self.variances)))


def _adapted_wide(episodes: Episodes, prior: Prior) -> list[Asked]:
    support, query = episodes.support, episodes.query
    weights, spreads = wide.adapt(prior, support)
    task = np.repeat(np.arange(len(query)), query.sizes)
    errors = prior.units.targets(query.y) - wide.centres(prior, query.X, task, weights)
    variances = spreads.variances(prior, query.X, task)
    return [
        _AskedWide(errors[None, a:b], variances[None, a:b], float(square), int(n))
        for (a, b), square, n in zip(pairwise(query.offsets), spreads.squares, support.sizes, strict=True)
        if b > a
    ]


def _stacked(rows: Rows, some: NDArray[np.intp], n: int) -> tuple[Array, Array]:
    """Inputs (m, n, d) and targets (m, n) of tasks with n rows each."""
    taken = rows.take(some)
    return taken.X.reshape(len(some), n, taken.X.shape[1]), taken.y.reshape(len(some), n)
