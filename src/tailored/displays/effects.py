"""Effects of tasks with their intervals, and how far each was drawn from the task's own fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..summaries.effects import posterior_model
from ..tasks import TaskSet
from ..tasks.rows import dense_rows
from .base import (
    Array,
    ModelDisplay,
    effect_label,
    effect_names,
    effects_of,
    limits,
    place_of,
    shortened,
    task_name,
)
from .style import PALETTE

#: Tasks up to which each has its name on the axis, and up to which each has its own mark.
NAMED, MARKED = 45, 250


@dataclass
class EffectsDisplay(ModelDisplay):
    """The effect of one column in every task, in increasing order, with its interval (a caterpillar).

    Filled marks are tasks whose interval leaves out the common effect.

    Attributes
    ----------
    column : str
    labels : array (T,)
    effects, low, high : arrays (T,)
        In the order of the tasks; see `effects` of the learners.
    common : float or None
        The mean of the prior, without side information.
    coverage : float
    task : str
        What tasks are called.
    """

    column: str
    labels: NDArray[Any]
    effects: Array
    low: Array
    high: Array
    common: float | None
    coverage: float
    task: str = "task"

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: Any = None, *, coverage: float = 0.9, ax: Any = None
    ) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw the effects of ``column`` (name or position).

        By default that of the column that varies most between tasks, for a typical size of its values.
        """
        names = effect_names(learner)
        found = effects_of(learner, tasks, coverage)
        j = varied(learner, found[0])[0] if column is None else place_of(column, names)
        common = common_effects(learner)
        mean = None if common is None else float(common[j])
        effects, low, high = (values[:, j] for values in found)
        made = cls(names[j], tasks.labels, effects, low, high, mean, coverage, task_name(learner))
        return made.plot(ax)

    @property
    def figure_size(self) -> tuple[float, float]:
        return 4.8, float(np.clip(0.17 * len(self.labels) + 0.9, 2.4, 8.0)) if self._named else 4.6

    @property
    def _named(self) -> bool:
        return len(self.labels) <= NAMED

    def _draw(self, ax: Any) -> None:
        order = np.argsort(self.effects, kind="stable")
        effects, low, high = self.effects[order], self.low[order], self.high[order]
        place = np.arange(len(order))
        has_interval = bool(np.isfinite(low).all())
        if self.common is not None:
            ax.axvline(
                self.common, color="0.35", linestyle="--", linewidth=1.0, label="common effect", zorder=1
            )
        apart = np.zeros(len(order), dtype=bool)
        if has_interval and self.common is not None:
            apart = (low > self.common) | (high < self.common)
        if len(order) <= MARKED:
            self._draw_marks(ax, effects, low, high, apart)
        else:
            if has_interval:
                name = f"{100 * self.coverage:g} % interval"
                ax.fill_betweenx(place, low, high, color="0.82", linewidth=0, label=name)
            ax.plot(effects, place, color=PALETTE[0], linewidth=1.8, label="effect")
        if self._named:
            ax.set_yticks(place, [shortened(label) for label in self.labels[order]])
            ax.tick_params(axis="y", length=0)
        else:
            ax.set_yticks([])
            what = "tasks" if self.task == "task" else f"tasks ({shortened(self.task)})"
            ax.set_ylabel(f"{len(order):,} {what} by their effect")
        ax.set_ylim(-0.8, len(order) - 0.2)
        ax.set_xlabel(
            effect_label(self.column) + (f", with {100 * self.coverage:g} % interval" if has_interval else "")
        )
        if self.common is not None or len(order) > MARKED:
            ax.legend(loc="lower right", fontsize=7)

    def _draw_marks(self, ax: Any, effects: Array, low: Array, high: Array, apart: NDArray[np.bool_]) -> None:
        """A mark and a line for each task."""
        place, has_interval = np.arange(len(effects)), bool(np.isfinite(low).all())
        if has_interval:
            ax.hlines(place, low, high, color="0.55", linewidth=1.0 if self._named else 0.6, zorder=2)
        marks = {"marker": "o", "linestyle": "none", "color": PALETTE[0], "markeredgewidth": 0.8, "zorder": 3}
        marks["markersize"] = 4.5 if self._named else 2.5
        for chosen, face, name in (
            (~apart, "white", "interval holds it"),
            (apart, PALETTE[0], "interval leaves it out"),
        ):
            if chosen.any():
                said = {"label": name} if has_interval and self.common is not None else {}
                ax.plot(effects[chosen], place[chosen], markerfacecolor=face, **marks, **said)


@dataclass
class ShrinkageDisplay(ModelDisplay):
    """From each task's own fit, least squares on its rows alone, to its tailored one.

    Of two columns arrows in the plane, of one a line for each task.  Tasks whose own rows do not determine these effects
    are left out (NaN in ``own``).

    Attributes
    ----------
    columns : list of one or two str
    labels : array (T,)
    own, tailored : arrays (T, 1 or 2)
    common : array (1 or 2,) or None
        The mean of the prior, without side information.
    n_rows : array (T,)
    """

    columns: list[str]
    labels: NDArray[Any]
    own: Array
    tailored: Array
    common: Array | None
    n_rows: NDArray[np.int64]

    @classmethod
    def from_estimator(cls, learner: Any, tasks: TaskSet, columns: Any = None, *, ax: Any = None) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw one column or a pair of them (names or positions).

        By default the two that vary most between tasks, for a typical size of their values.
        """
        names = effect_names(learner)
        weights = effects_of(learner, tasks)[0]
        own = own_fits(tasks, learner.prior_.fit_intercept)
        if columns is None:
            known = (~np.isnan(own)).sum(axis=0)
            chosen = [j for j in varied(learner, weights) if 2 * known[j] >= known.max()][:2]
        else:
            given = [columns] if np.ndim(columns) == 0 else list(columns)
            if len(given) not in (1, 2):
                raise ValueError(f"columns: give one column or two, got {len(given)}")
            chosen = [place_of(column, names, "columns") for column in given]
        common = common_effects(learner)
        made = cls(
            [names[j] for j in chosen],
            tasks.labels,
            own[:, chosen],
            weights[:, chosen],
            None if common is None else common[chosen],
            tasks.sizes,
        )
        return made.plot(ax)

    @property
    def left_out(self) -> int:
        """Tasks whose own rows do not determine these effects."""
        return int(np.isnan(self.own).any(axis=1).sum())

    def _draw(self, ax: Any) -> None:
        kept = ~np.isnan(self.own).any(axis=1)
        own, tailored = self.own[kept], self.tailored[kept]
        faint = float(np.clip(25.0 / max(len(own), 1), 0.15, 0.8))
        (self._draw_plane if len(self.columns) == 2 else self._draw_line)(ax, own, tailored, faint)
        if self.left_out:
            said = f"{self.left_out:,} of {len(self.labels):,} tasks: own rows do not determine it"
            ax.set_title(said, fontsize=8, color="0.35")

    def _draw_plane(self, ax: Any, own: Array, tailored: Array, faint: float) -> None:
        # In pixels a head as long as the longest arrows would hide the short ones.
        shape = {
            "angles": "xy",
            "scale_units": "xy",
            "scale": 1.0,
            "width": 0.0022,
            "headwidth": 5.0,
            "minlength": 0.0,
        }
        ax.quiver(*own.T, *(tailored - own).T, color="0.45", alpha=faint, zorder=2, **shape)
        size = 4.0 if len(own) <= 60 else 2.5
        ax.plot(
            *own.T,
            "o",
            color="0.45",
            markerfacecolor="white",
            markersize=size,
            linestyle="none",
            label="own fit",
            zorder=3,
        )
        ax.plot(
            *tailored.T, "s", color=PALETTE[0], markersize=size, linestyle="none", label="tailored", zorder=4
        )
        if self.common is not None:
            ax.plot(
                *self.common,
                "X",
                color="black",
                markeredgecolor="white",
                markersize=11,
                linestyle="none",
                label="common",
                zorder=5,
            )
        for axis, values in zip("xy", np.concatenate([own, tailored]).T, strict=True):
            getattr(ax, f"set_{axis}lim")(*limits(values))
        ax.set_xlabel(effect_label(self.columns[0]))
        ax.set_ylabel(effect_label(self.columns[1]))
        ax.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none")

    def _draw_line(self, ax: Any, own: Array, tailored: Array, faint: float) -> None:
        ends = np.hstack([own, tailored])
        ax.plot([0, 1], ends.T, color="0.45", alpha=max(faint, 0.25), linewidth=0.8, zorder=1)
        size = 4.0 if len(own) <= 60 else 2.5
        ax.plot(
            np.zeros(len(own)),
            own[:, 0],
            "o",
            color="0.45",
            markerfacecolor="white",
            markersize=size,
            linestyle="none",
            zorder=3,
        )
        ax.plot(
            np.ones(len(own)),
            tailored[:, 0],
            "s",
            color=PALETTE[0],
            markersize=size,
            linestyle="none",
            zorder=3,
        )
        if self.common is not None:
            ax.axhline(
                float(self.common[0]),
                color=PALETTE[1],
                linestyle="--",
                linewidth=1.2,
                label="common",
                zorder=2,
            )
            ax.legend(loc="upper right")
        ax.set_xlim(-0.25, 1.25)
        ax.set_ylim(*limits(ends))
        ax.set_xticks([0, 1], ["own fit", "tailored"])
        ax.set_ylabel(effect_label(self.columns[0]))


def own_fits(tasks: TaskSet, fit_intercept: bool) -> Array:
    """Least squares on each task's own rows, (T, d); NaN for effects that they do not determine.

    A column that does not vary within a task leaves its own effect and the intercept open, and no other.
    """
    found = np.full((len(tasks), tasks.n_features + fit_intercept), np.nan)
    for t, task in enumerate(tasks):
        rows = dense_rows(task.X, fit_intercept)
        if not len(rows):
            continue
        # Columns of very different units are no reason to call an effect undetermined.
        size = np.sqrt(np.mean(rows**2, axis=0))
        size = np.where(size > 0, size, 1.0)
        left, values, right = np.linalg.svd(rows / size, full_matrices=False)
        kept = values > 1e-9 * values[0]
        weights = right[kept].T @ ((left[:, kept].T @ task.y) / values[kept])
        determined = (right[kept] ** 2).sum(axis=0) > 1.0 - 1e-8
        found[t, determined] = (weights / size)[determined]
    return found


def varied(learner: Any, weights: Array) -> list[int]:
    """Columns by how much their weights differ between tasks, for a typical size of their values."""
    return [int(j) for j in np.argsort(-weights.std(axis=0) * learner.prior_.units.columns, kind="stable")]


def common_effects(learner: Any) -> Array | None:
    """The mean of the prior, at the mean of the side information; None where it depends on the task otherwise."""
    prior, model = learner.prior_, posterior_model(learner.prior_)
    if model is not None:
        return np.asarray(prior.units.raw_weights(model.mixture.moments()[0].copy()))
    if prior.bias.conditional:
        return None
    return np.asarray(prior.units.raw_weights(np.array(prior.bias.constant, dtype=float)))
