"""The sums of the factor model of many columns on a device, for one-hot rows.

What `tailored.gaussian.factor_moments` computes row by row, as sums of one vector for each row: first by task, for the
posteriors of the scores, then by column.  Sums by segments have a fixed order, so that results are the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...gaussian.factor_model import FactorModel
from ...gaussian.factor_moments import FactorMoments
from ...gaussian.factor_rows import FactorRows

#: Rows that are summed at once.
ROWS_AT_ONCE = 1 << 21


class Piece(NamedTuple):
    """Rows of some tasks: columns, entries and targets (n,), rows of each task, and the rows sorted by column."""

    column: Any
    value: Any
    y: Any
    sizes: Any
    task: Any
    order: Any
    counts: Any
    side: Any


@dataclass(frozen=True)
class CudaFactorRows:
    """One-hot rows of T tasks on a device: a source for EM of the factor model."""

    pieces: list[Piece]
    n_columns: int
    n_rows: int

    @classmethod
    def of(cls, rows: FactorRows, device: Any) -> CudaFactorRows:
        """Move rows to the device; they are told apart as one-hot by `FactorRows`."""
        import torch

        if not rows.one_hot:
            raise ValueError(
                "device: wide rows that are not one-hot are computed on the CPU; use device=None"
            )
        pieces, start = [], 0
        while start < len(rows):
            last = rows.offsets[start] + ROWS_AT_ONCE
            stop = max(int(np.searchsorted(rows.offsets, last, side="right")) - 1, start + 1)
            some = rows.tasks(start, stop)
            column = torch.tensor(some.X.indices, dtype=torch.int64, device=device)
            sizes = torch.tensor(np.diff(some.offsets), device=device)
            pieces.append(
                Piece(
                    column,
                    torch.tensor(some.X.data, device=device),
                    torch.tensor(some.y, device=device),
                    sizes,
                    torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes),
                    torch.argsort(column, stable=True),
                    torch.bincount(column, minlength=rows.n_columns),
                    torch.tensor(some.side, device=device),
                )
            )
            start = stop
        return cls(pieces, rows.n_columns, rows.n_rows)

    def __len__(self) -> int:
        return sum(len(piece.sizes) for piece in self.pieces)

    def moments(self, model: FactorModel) -> FactorMoments:
        """The sums that a step of EM needs, as arrays in memory."""
        sums = FactorMoments.zero(model)
        for piece in self.pieces:
            sums = sums.merge(_moments(model, piece))
        sums.bound = sums.weight
        return sums


def _moments(model: FactorModel, piece: Piece) -> FactorMoments:
    import torch

    device, r, q = piece.y.device, model.rank, len(model.level)

    def there(value: Any) -> Any:
        return torch.tensor(np.asarray(value), dtype=torch.float64, device=device)

    columns, spread = there(model.columns)[piece.column], there(model.spread)[piece.column]
    sure = 1.0 / there(model.variances + model.noise)[piece.column]
    x = piece.value
    # y − x b = <g, (z, u)> + noise
    g = torch.ones((len(x), q), dtype=torch.float64, device=device)
    g[:, :r] = x[:, None] * columns[:, 1:]
    e = piece.y - x * columns[:, 0]
    square = (x * x * sure)[:, None]
    P = sure[:, None, None] * g[:, :, None] * g[:, None, :]
    P[:, :r, :r] += square[:, :, None] * spread[:, 1:, 1:]
    right = sure[:, None] * e[:, None] * g
    right[:, :r] -= square * spread[:, 0, 1:]
    constant = sure * (e * e + x * x * spread[:, 0, 0]) - torch.log(sure / (2.0 * np.pi))
    scores, covariances, evidence = _scores(model, piece, P, right, constant, there)
    z, C = scores[piece.task], covariances[piece.task]
    left = e - (g * z).sum(dim=1)
    image = (C @ g[:, :, None])[:, :, 0]
    h = torch.cat([torch.ones_like(x)[:, None], z[:, :r]], dim=1)
    gradient = left[:, None] * h
    gradient[:, 1:] -= image[:, :r]
    gradient *= (sure * x)[:, None]
    second = h[:, :, None] * h[:, None, :]
    second[:, 1:, 1:] += C[:, :r, :r]
    second *= square[:, :, None]
    squares = left * left + (g * image).sum(dim=1)
    sums = _by_column(piece, torch.cat([second.flatten(1), gradient, squares[:, None]], dim=1))
    width = 1 + r
    weight = sums[:, : width * width].reshape(-1, width, width)
    deviations = scores - there(model.level)
    known = torch.cat([torch.ones_like(deviations[:, :1]) if q else _ones(piece), piece.side], dim=1)
    found = FactorMoments(
        weight,
        sums[:, width * width : -1],
        np.zeros_like(weight),
        piece.counts.double().cpu().numpy(),
        sums[:, -1],
        0.0,
        0.0,
        (deviations.T @ deviations + covariances.sum(dim=0)).cpu().numpy(),
        (known.T @ deviations).cpu().numpy(),
        (known.T @ known).cpu().numpy(),
        evidence,
    )
    return found


def _ones(piece: Piece) -> Any:
    import torch

    return torch.ones((len(piece.sizes), 1), dtype=torch.float64, device=piece.y.device)


def _scores(
    model: FactorModel, piece: Piece, P: Any, right: Any, constant: Any, there: Any
) -> tuple[Any, Any, float]:
    """Posteriors of the scores of each task, and the evidence of all."""
    import torch

    q = len(model.level)
    sums = torch.cat([P.flatten(1), right, constant[:, None]], dim=1)
    sums = torch.segment_reduce(sums, "sum", lengths=piece.sizes, axis=0, initial=0.0)
    inverse = there(np.linalg.inv(model.scores))
    means = there(model.level) + piece.side @ there(model.side)
    precision = sums[:, : q * q].reshape(len(sums), q, q) + inverse
    right = sums[:, q * q : -1] + means @ inverse
    constants = sums[:, -1].sum() + ((means @ inverse) * means).sum()
    covariances = torch.linalg.inv(precision)
    scores = (covariances @ right[:, :, None])[:, :, 0]
    log_dets = torch.linalg.slogdet(precision)[1].sum()
    log_prior = len(piece.sizes) * float(np.linalg.slogdet(model.scores)[1])
    evidence = 0.5 * (float((scores * right).sum() - log_dets - constants) - log_prior)
    return scores, covariances, evidence


def _by_column(piece: Piece, rows: Any) -> Any:
    """Sums of a vector for each row (n, m) over the rows of each column, (d, m)."""
    import torch

    found = torch.segment_reduce(rows[piece.order], "sum", lengths=piece.counts, axis=0, initial=0.0)
    return found.cpu().numpy()
