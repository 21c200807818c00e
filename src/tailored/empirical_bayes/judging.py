"""When errors on held-out tasks say something, and when they say that nothing was learned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..tasks.episodes import Episodes
from ..tasks.rows import task_means
from .data import TrainingData

Array = NDArray[np.float64]

#: Standard errors of a paired difference that are no chance.
SIGNIFICANT = 2.0
#: Held-out tasks that it takes to tell that nothing was learned.
LEAST_JUDGES = 10
#: A column that is so many times as large in one task as in most is worth a look.
UNUSUAL = 5.0


def significant(gains: Array, n_errors: float = SIGNIFICANT) -> bool:
    """Whether the mean of paired gains is above zero by more than chance, ``n_errors`` standard errors.

    A task whose error is infinite on one side alone settles it.
    """
    gains = gains[~np.isnan(gains)]
    if len(gains) < 2:
        return False
    if np.isinf(gains).any():
        return not (gains == -np.inf).any()
    return bool(gains.mean() > n_errors * gains.std(ddof=1) / np.sqrt(len(gains)))


def surpassed_by(errors: Array, rivals: Mapping[str, Array]) -> str | None:
    """The rival, by its name, whose errors on the same tasks are lower by more than chance; None if there is none."""
    if np.isfinite(errors).sum() < LEAST_JUDGES:
        return None
    better = [name for name, found in rivals.items() if significant(errors - found)]
    return min(better, key=lambda name: float(np.nanmean(rivals[name])), default=None)


def mean_errors(data: TrainingData, episodes: Episodes, n_tasks: int) -> Array:
    """Errors of tasks when the mean of their support rows is all that is predicted."""
    support, query = episodes.support, episodes.query
    overall = float(data.tasks.y.mean()) if len(data.tasks.y) else 0.0
    own = task_means(support.y, support.offsets)
    prediction = np.repeat(np.where(support.sizes > 0, own, overall), query.sizes)
    return data.errors(episodes, prediction, n_tasks)


def where_to_look(data: TrainingData) -> str:
    """The column of X that differs most in size between tasks, in words; or what else may be wrong."""
    statistics = data.statistics
    d, T = data.tasks.n_features, len(statistics)
    squares = statistics.gram[:, np.arange(d), np.arange(d)] / np.maximum(statistics.sizes, 1.0)[:, None]
    seen = np.sqrt(squares[statistics.sizes > 0])
    if d and T > 1 and len(seen):
        middle = np.median(seen, axis=0)
        ratios = seen.max(axis=0) / np.where(middle > 0, middle, np.inf)
        worst = int(ratios.argmax())
        if ratios[worst] > UNUSUAL:
            names = data.tasks.feature_names
            column = worst if names is None else repr(str(names[worst]))
            return (
                f"look at column {column} of X, which is {ratios[worst]:.0f} times as large in one task as in most: a "
                "label, or another unit?"
            )
    if not data.settings.fit_intercept:
        return "look at fit_intercept, which is False: targets have a level"
    return (
        "no column of X stands out: look at groups (are rows that belong together one task?) and at the columns of X, "
        "which may say nothing about y"
    )
