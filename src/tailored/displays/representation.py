"""Display of the representation τ(s) as a function of side information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.linalg import eigh

from .._utils.validation import check_choice
from ..tasks.task_set import TaskSet
from .base import Array, ModelDisplay, names_of, shortened
from .coefficients import MAX_NAMED, MAX_VALUES, along_side_info


@dataclass
class RepresentationDisplay(ModelDisplay):
    """Image of τ(s): one row per coefficient, and one column of the side information on the horizontal axis.

    Attributes
    ----------
    column : str
    kind : {"diagonal", "direction"}
        The diagonal of τ(s), which is large for the inputs that the representation uses.  Or the unit eigenvector of the
        largest eigenvalue of τ(s), which is the combination of inputs that is penalised least.
    grid : array (m,)
        Values of the column.
    names : list of str
    values : array (m, d)
        In the units of `representation`.  Signs of eigenvectors are chosen so that neighbours have positive inner products.
    shares : array (m,)
        The largest eigenvalue as a fraction of the trace; zero where τ(s) is zero.
    """

    column: str
    kind: str
    grid: Array
    names: list[str]
    values: Array
    shares: Array

    @classmethod
    def from_estimator(
        cls, learner: Any, tasks: TaskSet, column: Any, *, kind: str = "diagonal", ax: Any = None
    ) -> Self:
        """Vary one ``column`` (name or position) of the side information over its range among ``tasks``.

        The other columns are fixed at their medians, or at their most frequent categories.
        """
        check_choice("kind", kind, ("diagonal", "direction"))
        names, prior = names_of(learner), learner.prior_
        side = getattr(prior, "side", None)
        feature_map = getattr(prior, "feature_map", None) if side is None else side.encoder
        if feature_map is not None and feature_map.needs_rows:
            raise ValueError(
                f"learner: {feature_map!r} computes the representation from the rows of a task. This display needs a "
                "feature map that reads only side information, such as 'vector' or a callable."
            )
        name, grid, empty = along_side_info(tasks, column)
        values, shares = np.empty((len(grid), len(names))), np.zeros(len(grid))
        # One grid point at a time: all (d, d) matrices together may not fit in memory.
        for i in range(len(grid)):
            tau = prior.representation(empty[i : i + 1], raw=True)[0]
            largest, vector = eigh(tau, subset_by_index=[len(tau) - 1, len(tau) - 1])
            shares[i] = largest[0] / trace if (trace := np.trace(tau)) > 0 else 0.0
            values[i] = np.diagonal(tau)
            if kind == "direction":
                sign = vector[:, 0] @ values[i - 1] if i else vector.sum()
                values[i] = vector[:, 0] if sign >= 0 else -vector[:, 0]
        return cls(name, kind, grid, names, values, shares).plot(ax)

    def _draw(self, ax: Any) -> None:
        few, d = len(self.grid) <= MAX_VALUES, len(self.names)
        x = np.arange(len(self.grid)) if few else self.grid
        half = 0.5 * (x[1] - x[0] if len(x) > 1 else 1.0)
        style: Any = {"extent": (x[0] - half, x[-1] + half, d - 0.5, -0.5), "aspect": "auto"}
        limit, label = float(np.abs(self.values).max()), "diagonal of τ(s)"
        if self.kind == "direction":
            label, bounds = "leading eigenvector of τ(s)", 100.0 * np.quantile(self.shares, [0.0, 1.0])
            title = "largest eigenvalue: {:.0f} to {:.0f} % of the trace".format(*bounds)
            ax.set_title(title, fontsize=8, color="0.35")
            style |= {"cmap": "RdBu_r", "vmin": -limit}
        image = ax.imshow(self.values.T, **{"cmap": "Blues", "vmin": 0.0, "vmax": limit, **style})
        ax.figure.colorbar(image, ax=ax, label=label)
        if few:
            ax.set_xticks(x, [f"{value:g}" for value in self.grid])
        if d <= MAX_NAMED:
            ax.set_yticks(np.arange(d), [shortened(name) for name in self.names])
        ax.set_xlabel(shortened(self.column, 40))
