"""The figure of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..studies.demo import DemoResult


@dataclass(frozen=True)
class DemoDisplay:
    """Errors of the methods, and where the learned representations put their weight."""

    result: DemoResult

    @classmethod
    def from_result(cls, result: DemoResult) -> DemoDisplay:
        return cls(result)

    def plot(self, axes: Any = None) -> Any:
        """Draw on two axes (made when absent); returns the figure."""
        import matplotlib.pyplot as plt

        if axes is None:
            _, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=[1.35, 1], layout="constrained")
        left, right = axes
        methods = self.result.methods
        place = np.arange(len(methods))[::-1]
        means = [m.mean for m in methods]
        left.barh(place, means, xerr=[2 * m.standard_error for m in methods], color="0.75", ecolor="0.3")
        for y, method in zip(place, methods, strict=True):
            left.text(0.003, y, f"{method.mean:.4f}", va="center", fontsize=9)
        left.set_yticks(place, [m.name for m in methods])
        left.set_xlabel("mean absolute error on new tasks (bars: ± 2 standard errors)")
        left.spines[["top", "right"]].set_visible(False)
        share = self.result.subspace_share
        image = right.imshow(share, cmap="Greys", vmin=0)
        right.set_xlabel("subspace of cluster j")
        right.set_ylabel("task of cluster i")
        right.set_xticks(range(len(share)), [str(j + 1) for j in range(len(share))])
        right.set_yticks(range(len(share)), [str(j + 1) for j in range(len(share))])
        right.set_title("share of τ(s) in each subspace", fontsize=10)
        right.figure.colorbar(image, ax=right, shrink=0.85)
        return left.figure
