"""Stepwise EM on a stream of tasks: each batch updates the model once and is discarded.

The model moves part of the way to an EM step on the batch alone, ``θ ← (1 − γ) θ + γ M(batch; θ)``, where θ are the moments
of the model and γ = n^−α at the n-th batch (Cappé and Moulines, 2009).  Large steps reduce the weight of the initial model;
averaging the iterates reduces the noise of the steps (Polyak and Juditsky, 1992).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .mixture import Mixture
from .rows import Tasks
from .structures import Structure, m_step

#: The exponent α.  With 1/2 the noise would not vanish; with 1 the initial model would keep too much weight.
RATE = 0.6


@dataclass(frozen=True)
class Stepwise:
    """The state of stepwise EM.  Γ, mixing weights and atoms stay fixed."""

    structure: Structure
    last: Mixture  # the current iterate
    average: Mixture  # weighted average of the iterates, with larger weights for later ones; the model to use

    def advance(self, batch: Tasks, n_before: int) -> Stepwise:
        """Return the state after a batch of tasks that follows ``n_before`` tasks."""
        m = len(batch)
        if not self.structure.is_refined or not m or not batch.sizes.any():
            return self
        factor = (n_before + m) / m
        totals, sums = batch.totals().times(factor), batch.sums(self.last).sums.times(factor)
        last = blend(self.last, m_step(self.structure, self.last, totals, sums), factor**-RATE)
        return replace(self, last=last, average=blend(self.average, last, min(1.0, 2.0 / (factor + 1.0))))


def blend(one: Mixture, other: Mixture, share: float) -> Mixture:
    """Return the model of a population of which a fraction ``share`` follows ``other`` and the rest ``one``."""
    proportions = (1.0 - share) * one.proportions + share * other.proportions
    s = (share * other.proportions / proportions)[:, None]
    moves = other.means - one.means
    between = np.einsum("k,ki,kj->kij", (s * (1.0 - s))[:, 0], moves, moves)
    within = (1.0 - s[:, :, None]) * one.covariances + s[:, :, None] * other.covariances
    return replace(
        one,
        proportions=proportions,
        means=one.means + s * moves,
        covariances=within + between,
        noise=(1.0 - share) * one.noise + share * other.noise,
    )
