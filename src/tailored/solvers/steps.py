"""Step sizes of projected SGD, and which of them a search tries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

#: The paper's grid: 14 values, log-spaced over [1e-5, 1e5].
PAPER_STEP_SIZES = tuple(float(step) for step in np.logspace(-5, 5, 14))

#: The default grid of the search: coarser, because every step is tried with several ratios for H.
STEP_SIZES = tuple(float(step) for step in np.logspace(-4, 4, 9))


class StepSizes(NamedTuple):
    """Constant steps for ``C``, ``H`` and the prior mean ``b``."""

    C: float
    H: float
    bias: float

    def __str__(self) -> str:
        if self.C == self.H == self.bias:
            return f"{self.C:g}"
        return f"(C: {self.C:g}, H: {self.H:g}, bias: {self.bias:g})"


def candidate_steps(
    step_sizes: Iterable[float], step_ratios: Sequence[float], *, conditional: bool
) -> list[StepSizes]:
    """Steps ``(γ, ratio · γ)`` for C and H; the smallest ratio first, so that a tie goes to the simpler model."""
    ratios = sorted(set(map(float, step_ratios))) if conditional else [0.0]
    return [StepSizes(step, ratio * step, step) for ratio in ratios for step in step_sizes]
