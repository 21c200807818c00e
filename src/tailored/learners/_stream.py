"""Where a stream of tasks stands: all that `partial_fit` needs to go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..feature_maps import FeatureMap
from ..solvers.held_out import HeldOutPool
from ..tasks import TaskSet

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """Taking tasks in makes a new one, so that a call that fails leaves the old one as it was.

    Attributes
    ----------
    seed : int
    pool : HeldOutPool or None
    feature_map : FeatureMap or None
        Fitted on the first piece.
    state : object
        The solver's own.
    n_tasks, n_train : int
        Tasks seen, and those of them that trained.
    squared_phi, squared_y, n_y
        Running sums behind the scale of φ and the stand-in for a Lipschitz constant.
    """

    seed: int
    pool: HeldOutPool | None
    feature_map: FeatureMap | None = None
    state: Any = None
    n_tasks: int = 0
    n_train: int = 0
    squared_phi: float = 0.0
    squared_y: float = 0.0
    n_y: int = 0

    def count_features(self, phis: Array) -> tuple[Stream, Array]:
        """The stream after these training tasks, and the mean of ‖φ‖² up to and including each of them."""
        norms = np.einsum("ij,ij->i", phis, phis)
        # cumsum adds one term after the other, so a stream cut anywhere sums to the same bits
        sums = np.cumsum(np.concatenate([[self.squared_phi], norms]))
        counts = self.n_train + np.arange(1, len(phis) + 1)
        after = replace(self, squared_phi=float(sums[-1]), n_train=self.n_train + len(phis))
        return after, sums[1:] / counts

    def count_targets(self, tasks: TaskSet) -> tuple[Stream, Array]:
        """The stream after these training tasks, and the root mean square of the targets so far, at each.

        The dual solution of the squared loss satisfies ‖α‖ ≤ ‖y‖, so this is what L² stands for in
        the surrogate of losses without a Lipschitz constant: a bound on the mean square of the slopes.
        """
        squares = np.array([float(task.y @ task.y) for task in tasks])
        sums = np.cumsum(np.concatenate([[self.squared_y], squares]))
        counts = self.n_y + np.cumsum(tasks.sizes)
        after = replace(self, squared_y=float(sums[-1]), n_y=int(counts[-1]))
        return after, np.sqrt(sums[1:] / np.maximum(counts, 1))
