"""The stream of tasks that Algorithm 1 reads, one task per step (Sec. 4).

Some of its tasks are held out to select the step size (Sec. 5), and the others have features
``φ = Φ(s)``.  With features of mean square norm c², the algorithm is that for φ/c: dividing φ by c
is the same as dividing the step of H by c⁴.

A `Stream` is what `partial_fit` continues from.  What is learned does not depend on how the stream
is split into calls, because all draws depend on positions in the stream, and sums are added up task
by task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..tasks.episodes import split_rows
from ..tasks.features import FeatureMap
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .algorithm_1 import Trajectory
from .feature_maps import features_of, get_feature_map

#: Support rows and query rows of the same tasks.
Pair = tuple[TaskSet, TaskSet]
#: Maximum number of held-out tasks.
MAX_HELD_OUT = 300


@dataclass(frozen=True)
class Stream:
    """State of a stream: the held-out tasks, the runs, and sums over the training tasks."""

    seed: int  # of the draws of held-out tasks and of their support rows
    held_out: Pair | None = None
    #: The first four training tasks, which stand in until a task with query rows is held out.
    stand_ins: Pair | None = None
    feature_map: FeatureMap | None = None  # fitted to the training tasks of the first call
    runs: Sequence[Trajectory] = ()
    n_tasks: int = 0
    n_train: int = 0
    squared_phi: float = 0.0  # sum of ‖φ‖²
    phi_products: Array | float = 0.0  # sum of φφᵀ, (k, k)

    @property
    def n_held_out(self) -> int:
        return len(self.held_out[0]) if self.held_out else 0

    def validation(self) -> Pair:
        """Return the tasks on which the step is selected."""
        for pair in (self.held_out, self.stand_ins):
            if pair and len(pair[1].y):
                return pair
        raise ValueError(
            "X: none of the held-out tasks has a query row. Give tasks with more rows, "
            "validation=, or a step size, such as solver=ProjectedSGD(step=0.1)"
        )

    def with_held_out(self, pair: Pair) -> Stream:
        """Hold out further tasks."""
        return replace(self, held_out=_joined(self.held_out, pair))

    def split(self, tasks: TaskSet, positions: NDArray[np.intp], support: float) -> Pair:
        """Split the rows of tasks at these positions into support and query rows."""
        return split_rows(tasks, positions, support, (self.seed, 1))

    def hold_out(self, tasks: TaskSet, fraction: float, support: float) -> tuple[Stream, TaskSet]:
        """Hold out a fraction of the next tasks, at most `MAX_HELD_OUT` in all; return the others,
        too.

        One task in every block of ``1 / fraction`` consecutive tasks is held out, and never the
        first of the block.
        """
        block = max(2, round(1.0 / fraction))
        positions = self.n_tasks + np.arange(len(tasks))
        draws = [
            1 + np.random.default_rng([self.seed, 0, number]).integers(block - 1)
            for number in (positions // block).tolist()
        ]
        drawn = np.flatnonzero(positions % block == draws)
        held = drawn[: max(0, MAX_HELD_OUT - self.n_held_out)]
        train = np.setdiff1d(np.arange(len(tasks)), held)
        early = train[: max(0, 4 - self.n_train)]
        stand_ins = _joined(self.stand_ins, self.split(tasks[early], positions[early], support))
        held_out = self.split(tasks[held], positions[held], support)
        return replace(self, stand_ins=stand_ins).with_held_out(held_out), tasks[train]

    def features(
        self, train: TaskSet, feature_map: object, *, whole: bool, scaled: bool
    ) -> tuple[Stream, Array, Array]:
        """Return the stream after the training tasks, their features φ (T, k), and the factors (T,)
        of their steps of H.

        c² is the mean of ‖φ‖² over all training tasks if these are the ``whole`` stream, otherwise
        up to and including each task, and 1 if φ is not ``scaled``.
        """
        fitted = self.feature_map
        if fitted is None and feature_map is not None:
            # Fit on the training tasks only, because the map must not use the held-out tasks.
            unfitted = get_feature_map(feature_map, has_side_info=train.side_info is not None)
            fitted = unfitted.fit(train)
        phis = features_of(fitted, train, self.runs[0].n_side if self.runs else None)
        # cumsum adds the terms one by one.
        sums = np.cumsum(np.concatenate([[self.squared_phi], np.einsum("ij,ij->i", phis, phis)]))
        n_train = self.n_train + len(train)
        squares = sums[1:] / np.arange(self.n_train + 1, n_train + 1)
        if whole:
            squares = np.full(len(train), squares[-1])
        factors = np.ones(len(train))
        if scaled:  # no step if c⁴ underflows to zero
            factors = np.divide(1.0, squares**2, 0.0 * factors, where=squares**2 > 0.0)
        stream = replace(
            self,
            feature_map=fitted,
            n_train=n_train,
            squared_phi=float(sums[-1]),
            phi_products=self.phi_products + phis.T @ phis,
        )
        return stream, phis, factors


def _joined(pair: Pair | None, more: Pair) -> Pair:
    """Return the tasks of both pairs."""
    if pair is None:
        return more
    support, query = (TaskSet.concat(sets, relabel=True) for sets in zip(pair, more, strict=True))
    return support, query
