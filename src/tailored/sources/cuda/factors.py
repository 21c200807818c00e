"""Sums of an EM step of the factor model on a device, for one-hot rows.

`tailored.gaussian.factor_em` computes the same row by row.  Here each row gives one vector, which is summed by task for
the posterior of the scores, and then by column.  Segmented sums have a fixed order, so results are bitwise reproducible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...gaussian.factor_em import FactorModel, FactorSums
from ...gaussian.factors import FactorRows

#: Number of rows that are summed at once.
BATCH_ROWS = 1 << 21


class RowBatch(NamedTuple):
    """Rows of some tasks as tensors.

    Attributes
    ----------
    column, value, y : tensor (n,)
        Column and value of the entry of each row, and the targets.
    sizes : tensor (T,)
        Number of rows of each task.
    task : tensor (n,)
        Task of each row.
    order, counts : tensor (n,), tensor (d,)
        Rows sorted by column, and the number of rows of each column.
    side : tensor (T, q)
    """

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
    """One-hot rows of T tasks on a device, for EM of the factor model."""

    batches: list[RowBatch]
    n_columns: int
    n_rows: int

    @classmethod
    def of(cls, rows: FactorRows, device: Any) -> CudaFactorRows:
        """Copy rows to the device; `FactorRows.one_hot` must be true."""
        import torch

        if not rows.one_hot:
            raise ValueError(
                "device: rows with many columns that are not one-hot are only supported on the CPU; use device=None"
            )
        batches, start = [], 0
        while start < len(rows):
            last = rows.starts[start] + BATCH_ROWS
            stop = max(int(np.searchsorted(rows.starts, last, side="right")) - 1, start + 1)
            some = rows.take(slice(start, stop))
            column = torch.tensor(some.X.indices, dtype=torch.int64, device=device)
            sizes = torch.tensor(np.diff(some.starts), device=device)
            batches.append(
                RowBatch(
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
        return cls(batches, rows.n_columns, rows.n_rows)

    def __len__(self) -> int:
        return sum(len(batch.sizes) for batch in self.batches)

    def sums(self, model: FactorModel) -> FactorSums:
        """Return the sums of an EM step as arrays in memory."""
        sums = FactorSums.zero(model)
        for batch in self.batches:
            sums = sums + _sums(model, batch)
        sums.curvature = sums.precision
        return sums


def _sums(model: FactorModel, batch: RowBatch) -> FactorSums:
    import torch

    device, r, q = batch.y.device, model.rank, len(model.score_mean)

    def to_device(value: Any) -> Any:
        return torch.tensor(np.asarray(value), dtype=torch.float64, device=device)

    columns = to_device(model.columns)[batch.column]
    covariance = to_device(model.column_covariances)[batch.column]
    precision = 1.0 / to_device(model.variances + model.noise)[batch.column]
    x = batch.value
    # y − x b = <g, (z, u)> + noise
    g = torch.ones((len(x), q), dtype=torch.float64, device=device)
    g[:, :r] = x[:, None] * columns[:, 1:]
    e = batch.y - x * columns[:, 0]
    square = (x * x * precision)[:, None]
    P = precision[:, None, None] * g[:, :, None] * g[:, None, :]
    P[:, :r, :r] += square[:, :, None] * covariance[:, 1:, 1:]
    right = precision[:, None] * e[:, None] * g
    right[:, :r] -= square * covariance[:, 0, 1:]
    constant = precision * (e * e + x * x * covariance[:, 0, 0]) - torch.log(precision / (2.0 * np.pi))
    scores, covariances, evidence = _scores(model, batch, P, right, constant, to_device)
    z, C = scores[batch.task], covariances[batch.task]
    residual = e - (g * z).sum(dim=1)
    C_g = (C @ g[:, :, None])[:, :, 0]
    h = torch.cat([torch.ones_like(x)[:, None], z[:, :r]], dim=1)
    gradient = residual[:, None] * h
    gradient[:, 1:] -= C_g[:, :r]
    gradient *= (precision * x)[:, None]
    second = h[:, :, None] * h[:, None, :]
    second[:, 1:, 1:] += C[:, :r, :r]
    second *= square[:, :, None]
    squares = residual * residual + (g * C_g).sum(dim=1)
    sums = _sum_by_column(batch, torch.cat([second.flatten(1), gradient, squares[:, None]], dim=1))
    width = 1 + r
    weights = sums[:, : width * width].reshape(-1, width, width)
    deviations = scores - to_device(model.score_mean)
    ones = torch.ones((len(batch.sizes), 1), dtype=torch.float64, device=device)
    side = torch.cat([ones, batch.side], dim=1)
    return FactorSums(
        weights,
        sums[:, width * width : -1],
        np.zeros_like(weights),
        batch.counts.double().cpu().numpy(),
        sums[:, -1],
        0.0,
        0.0,
        (deviations.T @ deviations + covariances.sum(dim=0)).cpu().numpy(),
        (side.T @ deviations).cpu().numpy(),
        (side.T @ side).cpu().numpy(),
        evidence,
    )


def _scores(
    model: FactorModel, batch: RowBatch, P: Any, right: Any, constant: Any, to_device: Any
) -> tuple[Any, Any, float]:
    """Return means and covariances of the scores of each task, and the log evidence of all tasks."""
    import torch

    q = len(model.score_mean)
    sums = torch.cat([P.flatten(1), right, constant[:, None]], dim=1)
    sums = torch.segment_reduce(sums, "sum", lengths=batch.sizes, axis=0, initial=0.0)
    inverse = to_device(np.linalg.inv(model.score_covariance))
    means = to_device(model.score_mean) + batch.side @ to_device(model.effect)
    precision = sums[:, : q * q].reshape(len(sums), q, q) + inverse
    right = sums[:, q * q : -1] + means @ inverse
    constants = sums[:, -1].sum() + ((means @ inverse) * means).sum()
    covariances = torch.linalg.inv(precision)
    scores = (covariances @ right[:, :, None])[:, :, 0]
    log_dets = torch.linalg.slogdet(precision)[1].sum()
    log_prior = len(batch.sizes) * float(np.linalg.slogdet(model.score_covariance)[1])
    evidence = 0.5 * (float((scores * right).sum() - log_dets - constants) - log_prior)
    return scores, covariances, evidence


def _sum_by_column(batch: RowBatch, rows: Any) -> Any:
    """Sum a vector for each row (n, m) over the rows of each column, (d, m)."""
    import torch

    sums = torch.segment_reduce(rows[batch.order], "sum", lengths=batch.counts, axis=0, initial=0.0)
    return sums.cpu().numpy()
