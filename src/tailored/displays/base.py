"""What the displays of a user's own model share: axes, names of columns, tasks by their labels."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.validation import is_integer, name_some, native
from ..summaries.effects import INTERCEPT, coefficient_names
from ..tasks import TaskSet
from .style import RC, pyplot

Array = NDArray[np.float64]

#: Characters of a name on an axis.
LONGEST = 22


class ModelDisplay:
    """Base of the displays of one's own model, in scikit-learn's manner.

    ``from_estimator`` computes the arrays, which are kept as attributes, and draws them; ``plot`` draws them again, on
    given axes or new ones, and returns the display with ``ax_`` and ``figure_``.
    """

    size: ClassVar[tuple[float, float]] = (5.2, 3.8)
    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on the axes of a new figure."""
        plt = pyplot()
        with plt.rc_context(RC):
            if ax is None:
                ax = plt.subplots(figsize=self.figure_size, layout="constrained")[1]
            self.ax_, self.figure_ = ax, ax.figure
            ax.spines[["top", "right"]].set_visible(False)
            self._draw(ax)
        return self

    @property
    def figure_size(self) -> tuple[float, float]:
        """Inches of a figure of its own."""
        return self.size

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError


def effect_names(learner: Any) -> list[str]:
    """Names of a fitted learner's weights, the intercept last."""
    check_is_fitted(learner, "prior_")
    names = getattr(learner, "feature_names_in_", None)
    return coefficient_names(names, learner.n_features_in_, learner.prior_.fit_intercept)


def effects_of(learner: Any, tasks: TaskSet, coverage: float = 0.9) -> tuple[Array, Array, Array]:
    """Effects of tasks and the ends of their intervals, (T, d) each."""
    table, d = learner.effects(tasks, coverage=coverage), len(effect_names(learner))
    effect, low, high = (
        np.asarray(table[name], dtype=float).reshape(-1, d) for name in ("effect", "lower", "upper")
    )
    return effect, low, high


def place_of(column: Any, names: list[str], argument: str = "column") -> int:
    """The position of a column, given by its name or number."""
    if is_integer(column):
        if -len(names) <= column < len(names):
            return int(column) % len(names)
    elif str(column) in names:
        return names.index(str(column))
    raise ValueError(f"{argument}: no column {column!r}; there are {name_some(names, 12)}")


def place_of_task(tasks: TaskSet, task: Any) -> int:
    """The position of a task, given by its label; the first where none is."""
    if task is None:
        return 0
    try:
        return int(tasks.index_of([task])[0])
    except ValueError as error:
        raise ValueError(f"task: no task {task!r}; there are {name_some(native(tasks.labels), 3)}") from error


def target_name(learner: Any) -> str:
    return str(learner.columns_in_.get("target") or "target")


def task_name(learner: Any) -> str:
    return str(learner.columns_in_.get("task") or "task")


def effect_label(name: str) -> str:
    """What an axis of effects says."""
    return "intercept" if name == INTERCEPT else f"effect of {shortened(name)}"


def shortened(name: Any, longest: int = LONGEST) -> str:
    """A long name without its middle."""
    text = str(name)
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def limits(values: Array, share: float = 0.98) -> tuple[float, float]:
    """Ends of an axis that holds nearly all of the values: a few that lie far out must not press the others together."""
    found = values[np.isfinite(values)]
    if not len(found):
        return -1.0, 1.0
    low, high = np.quantile(found, [0.5 - 0.5 * share, 0.5 + 0.5 * share])
    room = 0.08 * (high - low) or 1.0
    return float(low - room), float(high + room)
