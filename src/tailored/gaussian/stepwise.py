"""Stepwise EM: each piece of a stream of tasks moves the model once, and is forgotten.

A step of EM from the piece alone is taken part of the way, ``θ ← (1 − γ) θ + γ M(piece; θ)`` in the moments that a model
is made of, with γ = n^−α at the n-th piece (Cappé and Moulines, 2009).  Large steps forget where the stream began, and the
average of the models takes out the noise that they bring (Polyak and Juditsky, 1992).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .forms import Form, m_step
from .mixture import Mixture
from .rows import Tasks

#: α: at one half noise does not settle, at one the start is never forgotten.
RATE = 0.6


@dataclass(frozen=True)
class Stepwise:
    """A model on its way through a stream.

    Attributes
    ----------
    form : Form
    last : Mixture
        Where the steps are; Γ and gates stay as they were.
    average : Mixture
        Of the models so far, later ones counting more: the one to use.
    """

    form: Form
    last: Mixture
    average: Mixture

    @classmethod
    def of(cls, form: Form, model: Mixture) -> Stepwise:
        """From a model that was fitted to the tasks so far."""
        return cls(form, model, model)

    def advance(self, piece: Tasks, n_before: int) -> Stepwise:
        """The model after some more tasks; ``n_before`` came before them."""
        m = len(piece)
        if self.form.kind == "independent" or not m or not piece.sizes.any():
            return self
        share = (n_before + m) / m
        step = m_step(
            self.form, self.last, piece.totals().times(share), piece.sums(self.last).sums.times(share)
        )
        last = blend(self.last, step, share**-RATE)
        return replace(self, last=last, average=blend(self.average, last, min(1.0, 2.0 / (share + 1.0))))


def blend(one: Mixture, other: Mixture, share: float) -> Mixture:
    """The model of tasks of which the part ``share`` comes from ``other``: its moments are those of both."""
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
