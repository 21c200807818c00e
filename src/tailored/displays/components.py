"""The components of a mixture in two dimensions, with the tasks that come from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..adapting import left_to_tasks
from ..gaussian import TaskStatistics
from ..summaries.effects import posterior_model
from ..tasks import TaskSet
from ..tasks.rows import batches
from .base import Array, ModelDisplay, effect_label, effect_names, limits, place_of, shortened
from .style import look

#: A task is that of a component from this probability on; below, its mark is hollow.
CERTAIN = 0.8
#: Deviations that an ellipse reaches: 86 % of a Gaussian in two dimensions.
REACH = 2.0


@dataclass
class ComponentsDisplay(ModelDisplay):
    """Weights of tasks in a plane, marked by their most likely component, with an ellipse for each component.

    Hollow marks are tasks whose component is not certain.

    Attributes
    ----------
    points : array (T, 2)
        The tasks' weights less what side information adds to them: two columns, or along two directions in the units of
        the prior.
    responsibilities : array (T, K)
        Probabilities of the components given the rows and the side information.
    means, covariances : arrays (K, 2), (K, 2, 2)
        Of the components, in the same plane.
    proportions : array (K,)
    axis_names : list of two str
    directions : array (2, d)
        Of the plane, for weights in the units of the prior; rows of the identity for two columns.
    """

    points: Array
    responsibilities: Array
    means: Array
    covariances: Array
    proportions: Array
    axis_names: list[str]
    directions: Array
    labels: NDArray[Any]

    @classmethod
    def from_estimator(cls, learner: Any, tasks: TaskSet, columns: Any = None, *, ax: Any = None) -> Self:
        """Adapt ``learner`` to ``tasks`` and draw them over two columns (names or positions).

        By default along two directions: those that tell the components apart best.
        """
        names = effect_names(learner)
        prior, model = learner.prior_, posterior_model(learner.prior_)
        if model is None:
            raise ValueError(
                f"learner: {type(learner).__name__} has no components in its prior; this display is for "
                "EmpiricalBayesLearner, of not too many columns"
            )
        mixture, units = model.mixture, prior.units
        r, weights = [], []
        for batch in batches(left_to_tasks(prior, tasks)):
            side = None if model.side is None else model.side(batch)
            _, shares, means = mixture.expect(TaskStatistics.of(batch, units, side))
            r.append(shares)
            weights.append(np.matmul(shares[:, None, :], means)[:, 0])
        standard = np.concatenate(weights)
        if columns is None:
            plane = telling_plane(mixture.proportions, mixture.means, mixture.covariances)
            points, means = standard @ plane.T, mixture.means @ plane.T
            covariances = plane @ mixture.covariances @ plane.T
            axis_names = [_direction(v, names) for v in plane]
        else:
            chosen = [place_of(column, names, "columns") for column in columns]
            if len(chosen) != 2:
                raise ValueError(f"columns: give two columns, got {len(chosen)}")
            plane = np.eye(len(names))[chosen]
            points = units.raw_weights(standard)[:, chosen]
            means = units.raw_weights(mixture.means.copy())[:, chosen]
            raw = units.target**2 * units.raw_representation(mixture.covariances)
            covariances = raw[:, chosen][:, :, chosen]
            axis_names = [effect_label(names[j]) for j in chosen]
        made = cls(
            points,
            np.concatenate(r),
            means,
            covariances,
            mixture.proportions,
            axis_names,
            plane,
            tasks.labels,
        )
        return made.plot(ax)

    @property
    def component(self) -> NDArray[np.intp]:
        """The most likely component of each task, (T,)."""
        return self.responsibilities.argmax(axis=1)

    def _draw(self, ax: Any) -> None:
        from matplotlib.patches import Ellipse

        certain = self.responsibilities.max(axis=1) >= CERTAIN
        size = 4.5 if len(self.points) <= 120 else 3.0
        for k in range(len(self.proportions)):
            style, mine = look(k), self.component == k
            values, vectors = np.linalg.eigh(self.covariances[k])
            width, height = 2.0 * REACH * np.sqrt(np.maximum(values, 0.0))
            angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
            dash = {
                "edgecolor": style["color"],
                "linestyle": style["linestyle"],
                "linewidth": 1.6,
                "facecolor": "none",
            }
            ax.add_patch(Ellipse(self.means[k], width, height, angle=angle, zorder=4, **dash))
            marks = {
                "marker": style["marker"],
                "linestyle": "none",
                "markersize": size,
                "color": style["color"],
            }
            name = f"{k + 1}: {100.0 * self.proportions[k]:.0f} %"
            ax.plot([], [], label=name, **{**marks, "linestyle": style["linestyle"], "markersize": 5})
            for whose, face in ((mine & certain, style["color"]), (mine & ~certain, "white")):
                ax.plot(
                    *self.points[whose].T,
                    markerfacecolor=face,
                    markeredgewidth=0.7,
                    alpha=0.75,
                    zorder=3,
                    **marks,
                )
        reach = REACH * np.sqrt(np.maximum(np.diagonal(self.covariances, axis1=1, axis2=2), 0.0))
        for i, axis in enumerate("xy"):
            ends = np.concatenate(
                [self.points[:, i], self.means[:, i] - reach[:, i], self.means[:, i] + reach[:, i]]
            )
            getattr(ax, f"set_{axis}lim")(*limits(ends, 1.0))
            getattr(ax, f"set_{axis}label")(self.axis_names[i])
        ax.axhline(0.0, color="0.85", linewidth=0.6, zorder=0)
        ax.axvline(0.0, color="0.85", linewidth=0.6, zorder=0)
        ax.legend(title="component", loc="center left", bbox_to_anchor=(1.0, 0.5))


def telling_plane(proportions: Array, means: Array, covariances: Array) -> Array:
    """Two orthonormal directions (2, d) along which components differ most.

    In means and in variances: the leading directions of the spread of the means and of the components' deviations from
    the mean covariance, over all components.
    """
    mean = proportions @ means
    centred = means - mean
    average = np.tensordot(proportions, covariances, 1)
    between = np.einsum("k,ki,kj->ij", proportions, centred, centred)
    apart = sum(p * (W - average) @ (W - average) for p, W in zip(proportions, covariances, strict=True))
    scale = max(float(np.trace(average)), 1e-300)
    if len(proportions) == 1:
        apart = scale * covariances[0]
    vectors = np.linalg.eigh(between + apart / scale)[1]
    plane = vectors[:, ::-1][:, :2].T if len(mean) > 1 else np.vstack([vectors.T, np.zeros((1, 1))])
    # Let the largest loading be positive.
    largest = np.abs(plane).argmax(axis=1)
    return np.asarray(plane * np.where(plane[np.arange(2), largest] < 0, -1.0, 1.0)[:, None])


def _direction(vector: Array, names: list[str]) -> str:
    """The largest loadings of a direction."""
    largest = np.argsort(-np.abs(vector), kind="stable")[:3]
    parts = [f"{vector[j]:+.2f} {shortened(names[j], 12)}" for j in largest if abs(vector[j]) > 0.05]
    more = " .." if (np.abs(vector) > 0.05).sum() > 3 else ""
    return " ".join(parts).lstrip("+").replace("-", "−") + more
