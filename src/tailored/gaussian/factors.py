"""EM for the model of `factor_model`: posteriors of the scores, then of the columns, then all else.

Every step raises the evidence, or rather its variational bound: that of columns and scores taken apart (which a
penalty on A alone may disturb).  All columns move at once; for one-hot rows that is where they end, and for others
a step that cannot go too far.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .factor_model import FactorModel
from .factor_moments import FactorMoments, moments
from .factor_rows import FactorRows

Array = NDArray[np.float64]

#: Tasks that the usual noise counts for in that of one column.
NOISE_TASKS = 20.0
#: EM ends when a step gains so little for each row.
ENOUGH = 1e-5
#: Least eigenvalue of Λ, relative to its trace: a factor that nothing speaks for.
LEAST_SCATTER = 1e-9


class FactorSource(Protocol):
    """Rows that EM can learn from, wherever they are."""

    @property
    def n_rows(self) -> int: ...

    def moments(self, model: FactorModel) -> FactorMoments: ...


def bound(model: FactorModel, sums: FactorMoments) -> float:
    """What EM climbs: the evidence of the rows, less how far the columns moved from their prior."""
    width = model.columns.shape[1]
    inverse = np.linalg.inv(model.scatter)
    moved = model.columns - model.centre
    distance = np.einsum("ja,ab,jb->j", moved, inverse, moved) + np.einsum("jab,ab->j", model.spread, inverse)
    roots = np.linalg.cholesky(model.spread)
    log_dets = np.linalg.slogdet(model.scatter)[1] - 2.0 * np.log(np.einsum("jaa->ja", roots)).sum(axis=1)
    divergence = 0.5 * float(np.sum(distance - width + log_dets))
    seen = sums.count > 0
    parts = model.variances[seen] + (0.0 if sums.n_rows else model.noise)
    shrunk = float(np.sum(np.log(model.usual / parts) - model.usual / parts))
    return sums.evidence - divergence + 0.5 * NOISE_TASKS * shrunk


def step(
    model: FactorModel, sums: FactorMoments, penalty: float = 0.0, *, noise_turn: bool = False
) -> FactorModel:
    """The next model; ``noise_turn`` moves the noise and not the columns, where rows are not one-hot."""
    seen = sums.count > 0
    one_hot = sums.n_rows == 0
    moved = model if noise_turn and not one_hot else _move_columns(model, sums)
    if one_hot:
        moved = _one_hot_noise(model, moved, sums, seen)
    elif noise_turn:
        moved = _noise(moved, sums, seen)
    return _column_prior(_score_prior(moved, sums, penalty).whitened(), seen)


def _move_columns(model: FactorModel, sums: FactorMoments) -> FactorModel:
    inverse = np.linalg.inv(model.scatter)
    spread = np.linalg.inv(inverse + sums.weight)
    reach = spread if sums.bound is sums.weight else np.linalg.inv(inverse + sums.bound)
    rise = sums.gradient - (model.columns - model.centre) @ inverse
    columns = model.columns + np.einsum("jab,jb->ja", reach, rise)
    return replace(model, columns=columns, spread=0.5 * (spread + spread.transpose(0, 2, 1)))


def _one_hot_noise(
    before: FactorModel, model: FactorModel, sums: FactorMoments, seen: NDArray[np.bool_]
) -> FactorModel:
    """The noise of each column's rows, D_j + σ²; they cannot be told apart, and what all columns have is σ²."""
    way = model.columns - before.columns
    change = np.einsum("ja,jab,jb->j", way, sums.weight, way) - 2.0 * np.einsum(
        "ja,ja->j", way, sums.gradient
    )
    change += np.einsum("jab,jab->j", model.spread, sums.weight)
    squares = np.maximum(sums.square + (before.variances + before.noise) * change, 0.0)
    noises = (squares + NOISE_TASKS * before.usual) / (sums.count + NOISE_TASKS)
    usual = 1.0 / float(np.mean(1.0 / noises[seen]))
    noises = np.where(seen, noises, usual)
    noise = float(noises.min())
    return replace(model, variances=noises - noise, noise=noise, usual=usual)


def _noise(model: FactorModel, sums: FactorMoments, seen: NDArray[np.bool_]) -> FactorModel:
    variances = (sums.square + NOISE_TASKS * model.usual) / (sums.count + NOISE_TASKS)
    usual = 1.0 / float(np.mean(1.0 / variances[seen]))
    noise = sums.residual / sums.n_rows
    return replace(model, variances=np.where(seen, variances, usual), noise=noise, usual=usual)


def _score_prior(model: FactorModel, sums: FactorMoments, penalty: float) -> FactorModel:
    """μ, A and S by the regression of the scores on (1, v(s))."""
    square, cross = sums.side_square, sums.side_score
    ridge = np.zeros(len(square))
    ridge[1:] = penalty
    found = np.asarray(np.linalg.lstsq(square + np.diag(ridge), cross, rcond=None)[0], dtype=np.float64)
    fitted = found.T @ cross
    scores = (sums.score_square - fitted - fitted.T + found.T @ square @ found) / square[0, 0]
    return replace(model, level=model.level + found[0], side=found[1:], scores=0.5 * (scores + scores.T))


def _column_prior(model: FactorModel, seen: NDArray[np.bool_]) -> FactorModel:
    """m and Λ from the columns that were seen; the others are what these say."""
    centre = model.columns[seen].mean(axis=0)
    moved = model.columns[seen] - centre
    scatter = (moved.T @ moved + model.spread[seen].sum(axis=0)) / seen.sum()
    scatter += LEAST_SCATTER * np.trace(scatter) * np.eye(len(scatter))
    columns, spread = model.columns.copy(), model.spread.copy()
    columns[~seen], spread[~seen] = centre, scatter
    return replace(model, columns=columns, spread=spread, centre=centre, scatter=scatter)


def fit_factors(
    rows: FactorRows | FactorSource, model: FactorModel, penalty: float = 0.0, *, max_iter: int = 60
) -> FactorModel:
    """EM from a model on, until a step gains nothing worth speaking of."""
    last, stays = -np.inf, 0
    for i in range(max_iter):
        sums = moments(model, rows) if isinstance(rows, FactorRows) else rows.moments(model)
        now = bound(model, sums)
        stays = stays + 1 if now - last < ENOUGH * rows.n_rows else 0
        if stays == 3:
            break
        last = now
        model = step(model, sums, penalty, noise_turn=i % 2 == 1)
    return model
