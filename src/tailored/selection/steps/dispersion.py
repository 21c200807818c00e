"""A dispersion of counts, by which their variance exceeds that of the Poisson distribution."""

from __future__ import annotations

from dataclasses import replace

from ...gaussian.responses import NegativeBinomial, Poisson
from ..loop import State, Table
from ..rule import significant
from ..structures import Working


def accept_dispersion(state: State, table: Table) -> State:
    """Use a negative binomial response for counts if it raises the density significantly.

    A slightly higher error is accepted: for overdispersed counts, Poisson standard errors are too
    small and intervals too narrow.
    """
    if not isinstance(state.data.response, Poisson):
        return state
    settings = replace(state.data.settings, loss=NegativeBinomial())
    richer = State.of(replace(state.original, settings=settings), state.effects)
    plain, dispersed = (
        table.compete(Working.of(each.data), each.folds) for each in (state, richer)
    )
    return richer if significant(dispersed.density - plain.density) else state
