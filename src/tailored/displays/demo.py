"""The figure of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DemoDisplay:
    """Errors of the methods, and where the learned representations put their weight.

    Attributes
    ----------
    methods : list of str
    mean, standard_error : ndarray of shape (n_methods,)
        Of the errors on new tasks.
    subspace_share : ndarray of shape (m, m)
        Share of τ(s) in the subspace of cluster j, for tasks of cluster i.
    """

    methods: list[str]
    mean: Array
    standard_error: Array
    subspace_share: Array

    def plot(self, axes: Any = None) -> Any:
        """Draw on two axes (made when absent); returns the figure."""
        import matplotlib.pyplot as plt

        if axes is None:
            _, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=[1.35, 1], layout="constrained")
        left, right = axes
        place = np.arange(len(self.methods))[::-1]
        left.barh(place, self.mean, xerr=2 * self.standard_error, color="0.75", ecolor="0.3")
        for y, mean in zip(place, self.mean, strict=True):
            left.text(0.003, y, f"{mean:.4f}", va="center", fontsize=9)
        left.set_yticks(place, self.methods)
        left.set_xlabel("mean absolute error on new tasks (bars: ± 2 standard errors)")
        left.spines[["top", "right"]].set_visible(False)
        image = right.imshow(self.subspace_share, cmap="Greys", vmin=0)
        right.set_xlabel("subspace of cluster j")
        right.set_ylabel("task of cluster i")
        clusters = np.arange(len(self.subspace_share))
        right.set_xticks(clusters, [str(j + 1) for j in clusters])
        right.set_yticks(clusters, [str(j + 1) for j in clusters])
        right.set_title("share of τ(s) in each subspace", fontsize=10)
        right.figure.colorbar(image, ax=right, shrink=0.85)
        return left.figure
