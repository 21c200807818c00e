"""Tasks that were not learned from, adapted on few and on many of their rows: what intervals are counted on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import numpy as np

from .adapting import AdaptTasks
from .intervals import Adapted, Calibration, calibrate
from .tasks import TaskSet, Units
from .tasks.episodes import ROTATIONS, draw
from .tasks.rows import batches


def calibrate_on(
    held_out: Iterable[tuple[TaskSet, AdaptTasks]],
    units: Units,
    seed: list[int],
    in_use: AdaptTasks | None = None,
) -> Calibration | None:
    """Calibrate on pairs of tasks and a way to adapt that has not seen them; None where no row can be asked.

    Each task gives some of its rows, once for each of a few numbers of rows, and is asked for others.
    ``in_use`` is the way to adapt that intervals are for, if it is another one.  All of them work in ``units``.
    """
    pairs = [(tasks, adapt) for tasks, adapt in held_out if len(tasks)]
    levels: list[tuple[int, list[Adapted]]] = []
    rows = float(np.median(np.concatenate([tasks.sizes for tasks, _ in pairs]))) * (1.0 - 1.0 / ROTATIONS)
    for n_support in sorted({0, round(rows / 4), round(rows)}):
        adapted: list[Adapted] = []
        for i, (tasks, adapt) in enumerate(pairs):
            adapted += _adapted(tasks, adapt, in_use, n_support, units, [*seed, i])
        levels.append((n_support, adapted))
    return calibrate(levels) if levels[-1][1] else None


def _adapted(
    tasks: TaskSet,
    adapt: AdaptTasks,
    in_use: AdaptTasks | None,
    n_support: int,
    units: Units,
    seed: list[int],
) -> list[Adapted]:
    out = []
    episodes = draw(tasks, n_support, seed, n_repeats=1)
    queries = iter(episodes.query)
    for support in batches(episodes.support):
        later = repeat(None) if in_use is None else in_use(support)[0]
        for given, weights, theta, moved in zip(support, *adapt(support), later, strict=False):
            query = next(queries)
            if len(query.y):
                rows = [(units.dense(part.X), units.targets(part.y)) for part in (given, query)]
                out.append(Adapted(*rows[0], theta, weights, *rows[1], moved))
    return out
