"""Means of the iterates of Algorithm 1.

The algorithm returns the mean of ``(H_1, C_1) .. (H_t, C_t)``.  Without a rank limit, adding every H_t would dominate
the cost of a run.  But a step changes H only by ``−γ (I ⊗ φ) G (I ⊗ φᵀ)`` and the part that the projection removes:
at most d directions, although H itself may have hundreds.  Because of

    1/t Σ_i H_i = H_{t+1} − 1/t Σ_s s · (change of step s) ,

only the changes are summed.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
from scipy.linalg.blas import dsyrk

from ..representation.base import Conditioning, Iterate, in_cone
from ..representation.dense import Constant, Dense
from ..representation.exact import Change, Exact
from ..representation.factored import Factored

#: Number of steps whose changes are added to the dense sum together.
BLOCK = 16


class RunningMean:
    """The mean of the iterates, stored like ``average``: constant, or factored with its rank limit."""

    def __init__(self, average: Constant | Factored) -> None:
        self.average, self.count = average, 0

    def add(self, iterate: Iterate) -> None:
        """Add an iterate, before its step."""
        self.count += 1
        self.average.accumulate(iterate, 1.0 / self.count)

    def follow(self, iterate: Iterate) -> None:
        """Do nothing after a step, because the next iterate is read in `add`."""

    def conditioning(self, iterate: Iterate) -> Conditioning:
        """Return the mean of all added iterates; ``iterate`` is the result of the last step."""
        return self.average.copy()


class ExactMean:
    """The mean of `Exact` iterates, computed from their changes and stored as a dense (dk, dk) matrix."""

    def __init__(self, n_features: int, n_side: int) -> None:
        size = n_features * n_side
        self.n_features, self.n_side, self.count = n_features, n_side, 0
        self.total_C = np.zeros((n_features, n_features))
        # Σ_s s · change_s: ``restored`` is the lower triangle for the projections, ``moved`` the sum for the gradients
        self.restored = np.zeros((size, size), order="F")
        self.moved = np.zeros((n_features, n_features, n_side, n_side))
        self.pending: list[tuple[int, Change]] = []

    def add(self, iterate: Iterate) -> None:
        self.count += 1
        self.total_C += iterate.C

    def follow(self, iterate: Iterate) -> None:
        assert isinstance(iterate, Exact)
        if iterate.change is not None:
            self.pending.append((self.count, iterate.change))
        if len(self.pending) == BLOCK:
            self.flush()

    def conditioning(self, iterate: Iterate) -> Dense:
        # Use a copy: the blocks, and hence the rounding, must not depend on when this is called.
        sums = deepcopy(self)
        sums.flush()
        size = self.n_features * self.n_side
        lower = np.tril(sums.restored)
        weighted = lower + np.tril(lower, -1).T
        weighted += sums.moved.transpose(0, 2, 1, 3).reshape(size, size)
        H = iterate.dense_H() - weighted / self.count
        # Rounding errors of large steps that cancel can move the mean out of the cone.
        return Dense(in_cone(0.5 * (H + H.T)), self.total_C / self.count)

    def flush(self) -> None:
        """Add the pending changes to the sums."""
        if not self.pending:
            return
        d, k = self.n_features, self.n_side
        gradients = np.zeros((len(self.pending), d, d))
        directions = []
        for i, (weight, change) in enumerate(self.pending):
            gradients[i][np.ix_(change.used, change.used)] = weight * change.moved
            # Positive values are rounding noise within the tolerance of the projection.
            directions.append(change.removed * np.sqrt(weight * np.maximum(-change.values, 0.0)))
        seen = np.array([change.phi for _, change in self.pending])
        outer = (seen[:, :, None] * seen[:, None, :]).reshape(-1, k * k)
        self.moved += (gradients.reshape(-1, d * d).T @ outer).reshape(d, d, k, k)
        columns = np.asfortranarray(np.hstack(directions))
        if columns.size:
            self.restored = dsyrk(1.0, columns, beta=1.0, c=self.restored, lower=1, overwrite_c=1)
        self.pending = []


#: A mean of iterates: `add` is called before each step, `follow` after it.
Mean = RunningMean | ExactMean
