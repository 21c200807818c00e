"""Noise that is correlated in time, if the rows have times."""

from __future__ import annotations

from dataclasses import replace

from ...gaussian.serial import fit_serial
from ..data import TrainingData
from ..folds import folds_of
from ..loop import State, Table
from ..rule import significant
from ..structures import MixedModel, Working


def accept_correlated_noise(state: State, table: Table) -> State:
    """Accept the correlation if it raises the density significantly, and not the error given rows.

    The error without rows may rise: correlated noise changes the weights of the rows, and so the
    fixed effects.
    """
    data, settings = state.data, state.data.settings
    time = settings.time
    if time is None:
        return state
    d = data.tasks.n_features + settings.fit_intercept
    covariance = settings.covariance or "diagonal"
    model = MixedModel(covariance, varying=settings.varying, centre=data.centre)

    def correlated(train: TrainingData) -> TrainingData:
        parts = model.pattern(d), settings.reml, model.basis(d)
        serial = fit_serial(train.tasks, data.scaling, time, *parts)
        return replace(data, settings=replace(settings, serial=serial))

    folds, working = state.views(data, correlated), Working.of(data)
    serial, plain = (table.compete(working, each) for each in (folds, state.folds))
    if not (significant(serial.density - plain.density) and serial.error <= plain.error):
        return state
    accepted = correlated(data)
    return replace(state, data=accepted, folds=folds_of(accepted))
