"""Select richer noise: a dispersion, which raises the variance of counts above that of the Poisson
distribution, or, if the rows have times, a correlation in time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...gaussian.responses import NegativeBinomial, Poisson
from ...gaussian.serial import fit_serial
from ..data import TrainingData, folds_of
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


def accept_correlated_noise(state: State, table: Table) -> State:
    """Accept the correlation if it raises the density significantly, and not the error given rows.

    The error without rows may rise: correlated noise changes the weights of the rows, and so the
    fixed effects.
    """
    data, settings = state.data, state.data.settings
    time = settings.time
    tasks = data.tasks
    first = tasks.offsets[tasks.task_of_row]
    if time is None or np.array_equal(tasks.X[:, time], tasks.X[first, time]):
        return state  # without differences of times within tasks
    working, d = Working.of(data), data.tasks.n_features + settings.fit_intercept

    def correlated(train: TrainingData) -> TrainingData:
        parts = working.pattern(d), settings.reml, working.basis(d)
        serial = fit_serial(train.tasks, data.scaling, time, *parts)
        return replace(data, settings=replace(settings, serial=serial))

    folds = state.views(data, correlated)
    serial, plain = (table.compete(working, each) for each in (folds, state.folds))
    if not (significant(serial.density - plain.density) and serial.error <= plain.error):
        return state
    accepted = correlated(data)
    return replace(state, data=accepted, folds=folds_of(accepted))
