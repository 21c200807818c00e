"""The representation τ(s) as a map, and the prior along a column of the side information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .. import adapting
from .._utils.validation import check_choice, is_missing
from ..tasks import TaskSet
from ..tasks.rows import batches, dense
from ..wide import is_wide
from .base import Array, ModelDisplay, effect_names, place_of, place_of_task, shortened
from .style import PALETTE, look

#: Columns up to which cells hold their numbers, signs, and names.
NUMBERED, SIGNED, NAMED = 8, 40, 40
#: Lines that are told apart.
MOST_LINES = 7
#: Places along a column of the side information, and different values up to which these are the places.
PLACES, FEW_VALUES = 61, 5
#: What a map may show, and a path.
MAPS, KINDS = ("tau", "correlation"), ("mean", "std")


@dataclass
class RepresentationMapDisplay(ModelDisplay):
    """τ(s) of one task as a map: darker is larger, white is zero, and negative entries bear a minus.

    Attributes
    ----------
    names : list of str
    tau : array (d, d)
        In units in which columns have a typical size of one and the intercept is the level at a typical row.
    title : str
    kind : {"tau", "correlation"}
        Whether τ itself is drawn, or scaled to a diagonal of ones: how effects go together, whatever their size.
    """

    names: list[str]
    tau: Array
    title: str = "τ(s)"
    kind: str = "tau"

    @classmethod
    def from_estimator(
        cls,
        learner: Any,
        tasks: TaskSet,
        task: Any = None,
        *,
        columns: Any = None,
        kind: str = "tau",
        ax: Any = None,
    ) -> Self:
        """Draw τ(s) of one of the ``tasks``, by its label, given its rows and side information; the mean of all by default.

        ``columns`` are the names or positions to draw; by default all, or the 40 with the largest τ where there are more.
        """
        check_choice("kind", kind, MAPS)
        names = effect_names(learner)
        some = tasks if task is None else tasks[[place_of_task(tasks, task)]]
        if columns is None and len(names) > NAMED:
            size = diagonal(learner) if is_wide(learner.prior_) else np.diagonal(taus(learner, some))
            chosen = np.sort(np.argsort(-size, kind="stable")[:NAMED])
        else:
            given = range(len(names)) if columns is None else columns
            chosen = np.array([place_of(column, names, "columns") for column in given])
        title = f"τ(s) of {shortened(task)}" if task is not None else f"τ(s), mean of {len(tasks):,} tasks"
        if len(chosen) < len(names):
            title += f", {len(chosen)} of {len(names):,} columns"
        return cls([names[j] for j in chosen], taus(learner, some, chosen), title, kind).plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        side = float(np.clip(0.42 * len(self.names), 2.6, 6.4))
        return side + 1.9, side + 0.9

    def _draw(self, ax: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        shown = self.shown
        d, top = len(self.names), float(np.abs(shown).max()) or 1.0
        ends = LinearSegmentedColormap.from_list(
            "sign", ["#7a3300", PALETTE[1], "white", PALETTE[0], "#00263d"]
        )
        image = ax.imshow(shown, cmap=ends, vmin=-top, vmax=top, interpolation="nearest")
        if d <= SIGNED:
            for i, j in np.ndindex(d, d):
                self._mark(ax, i, j, float(shown[i, j]), top)
        ax.set_xticks(range(d), [shortened(name) for name in self.names], rotation=90)
        ax.set_yticks(range(d), [shortened(name) for name in self.names])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(True)
        ax.set_title(self.title)
        ax.figure.colorbar(
            image, ax=ax, shrink=0.75, label="standardised columns" if self.kind == "tau" else "correlation"
        )

    @property
    def shown(self) -> Array:
        """What is drawn, (d, d)."""
        if self.kind == "tau":
            return self.tau
        size = np.sqrt(np.maximum(np.diagonal(self.tau), 1e-300))
        return self.tau / np.outer(size, size)

    def _mark(self, ax: Any, i: int, j: int, value: float, top: float) -> None:
        light = "white" if abs(value) > 0.45 * top else "0.15"
        if len(self.names) <= NUMBERED:
            # A minus of the same width as that of numbers, and no minus before a rounded zero.
            text = f"{value:.2g}".replace("-", "−") if abs(value) >= 5e-3 * top else "0"
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color=light)
        elif value < -0.05 * top:
            size = 8 if len(self.names) <= 20 else 6
            ax.text(j, i, "−", ha="center", va="center", fontsize=size, color=light)


@dataclass
class PriorPathDisplay(ModelDisplay):
    """The prior of a task without rows along one column of the side information, the others held.

    Attributes
    ----------
    column : str
    kind : {"mean", "std"}
        The prior mean b(s) of the weights, or the square roots of the diagonal of τ(s).
    places : array (m,)
    names : list of str
    values : array (m, d)
        In units in which columns have a typical size of one and the intercept is the level at a typical row.
    """

    column: str
    kind: str
    places: Array
    names: list[str]
    values: Array

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: Any, *, kind: str = "mean", ax: Any = None
    ) -> Self:
        """Vary one column of the side information over its range among ``tasks``, the others at their medians.

        Parameters
        ----------
        column : str or int
            Its name or position.
        kind : {"mean", "std"}, default="mean"
        """
        check_choice("kind", kind, KINDS)
        names = effect_names(learner)
        if tasks.side_info is None:
            raise ValueError("tasks: there is no side information to go along; give tasks that have it")
        side_names = [
            str(name) for name in tasks.side_names or [f"s{j}" for j in range(tasks.side_info.shape[1])]
        ]
        j = place_of(column, side_names)
        places, table = _along(tasks.side_info, j, side_names[j])
        n, X = len(places), dense(tasks.X[:0])
        empty = TaskSet.from_arrays(X, tasks.y[:0], np.zeros(n + 1, dtype=np.int64), np.arange(n), table)
        prior = learner.prior_
        phis = adapting.features(prior, empty)
        if kind == "mean":
            found = np.array(prior.bias.evaluate(phis))
        elif is_wide(prior):
            found = np.tile(np.sqrt(diagonal(learner)), (n, 1))
        else:
            found = np.sqrt(np.array([np.diagonal(prior.conditioning(phi)) for phi in phis]))
        return cls(side_names[j], kind, places, names, found).plot(ax)

    def _draw(self, ax: Any) -> None:
        span = np.ptp(self.values, axis=0)
        order = np.argsort(-span, kind="stable")
        told = order[:MOST_LINES]
        moved = float(span.max()) > 1e-9 * max(float(np.abs(self.values).max()), 1e-300)
        few = len(self.places) <= FEW_VALUES
        for j in order[MOST_LINES:]:
            ax.plot(self.places, self.values[:, j], color="0.8", linewidth=0.7, zorder=1)
        for i, j in enumerate(told):
            style = look(i)
            every = 1 if few else max(len(self.places) // 6, 1)
            ax.plot(
                self.places,
                self.values[:, j],
                markevery=every,
                markersize=5,
                linewidth=1.5,
                label=shortened(self.names[j]),
                **style,
            )
        if few:
            ax.set_xticks(self.places)
        ax.set_xlabel(shortened(self.column, 40))
        what = "prior mean b(s)" if self.kind == "mean" else "√ of the diagonal of τ(s)"
        ax.set_ylabel(f"{what}, standardised columns")
        if not moved:
            ax.set_title("the side information does not move it", fontsize=8, color="0.35")
        title = (
            None if len(self.names) <= MOST_LINES else f"the {len(told)} of {len(self.names)} that move most"
        )
        ax.legend(title=title, title_fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def taus(learner: Any, tasks: TaskSet, columns: Any = None) -> Array:
    """Mean of τ(s) over tasks in the units of the prior, at some columns."""
    prior = learner.prior_
    left = adapting.left_to_tasks(prior, tasks)
    chosen = slice(None) if columns is None else columns
    if is_wide(prior):
        return np.asarray(prior.conditioning(np.zeros(prior.conditioning.n_side), columns))
    phis = np.concatenate([adapting.features(prior, batch) for batch in batches(left)])
    total = sum(prior.conditioning(phi)[chosen][:, chosen] for phi in phis)
    return np.asarray(total) / len(phis)


def diagonal(learner: Any) -> Array:
    """The diagonal of a prior's τ whose matrix is not formed."""
    conditioning = learner.prior_.conditioning
    return np.asarray((conditioning.factors**2).sum(axis=1) + conditioning.diagonal)


def _along(table: Any, j: int, name: str) -> tuple[Array, Any]:
    """Values of column j over its range, and descriptions with them; other columns at their medians or commonest words."""
    held = [_middle(column) for column in table.T]
    try:
        known = np.array([value for value in table[:, j] if not is_missing(value)], dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column: {name!r} has words; a path goes along a column of numbers") from error
    values = np.unique(known)
    places = values if len(values) <= FEW_VALUES else np.linspace(values[0], values[-1], PLACES)
    rows = np.empty((len(places), table.shape[1]), dtype=table.dtype)
    rows[:] = held
    rows[:, j] = places
    return places, rows


def _middle(column: Any) -> Any:
    known = [value for value in column if not is_missing(value)]
    try:
        return float(np.median(np.array(known, dtype=float)))
    except (TypeError, ValueError):
        return max(known, key=known.count)
