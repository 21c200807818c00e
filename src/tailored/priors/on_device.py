"""Computation of the weights of many tasks on a GPU, from tensors of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..sources.cuda.moments import CudaMoments
from ..sources.cuda.tensors import TensorTasks
from ..tasks.rows import Scaling
from .base import Prior
from .mixture import NOISE_ROWS, MixturePrior, TaskSummary, interpolation

if TYPE_CHECKING:
    from torch import Tensor

#: Maximum number of tasks that are adapted together.
BLOCK_TASKS = 1 << 20


def weights_on_device(prior: Prior, tasks: TensorTasks) -> Tensor:
    """Return the weights (T, d) of tasks with a `MixturePrior`, in the user's units; an intercept is last."""
    if not isinstance(prior, MixturePrior):
        raise ValueError(f"device: {type(prior).__name__} is only supported on the CPU; use device=None")
    refused = {
        "features of a task's rows": prior.needs_rows,
        "effects that all tasks share": prior.shared is not None,
    }
    for what, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"device: {what} are computed on the CPU; set device=None and pass arrays")
    import torch

    starts = range(0, len(tasks), BLOCK_TASKS)
    parts = [_raw(prior.scaling, _weights(prior, tasks.slice(s, s + BLOCK_TASKS))) for s in starts]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _weights(prior: MixturePrior, tasks: TensorTasks) -> Tensor:
    import torch

    side = None if tasks.side_tasks is None else prior.side_features(tasks.side_tasks)
    statistics = CudaMoments.of(tasks, prior.scaling, side)
    shares, means = statistics.posterior(prior.model)
    weights = torch.einsum("tk,tkd->td", shares, means)
    if all(shift.B is None for shift in prior.shifts):
        return weights
    shift = _mean_shifts(prior, weights, *statistics.dense(), statistics.sizes)
    # For prior means shifted by δ, posterior means are δ plus those for the targets y − Xδ.  Responsibilities are kept.
    shifted = replace(statistics, products=statistics.products.double()).shifted(shift)
    return shift + torch.einsum("tk,tkd->td", shares, shifted.posterior(prior.model)[1])


def _tensor(value: ArrayLike, like: Tensor) -> Tensor:
    import torch

    return torch.tensor(np.ascontiguousarray(value), dtype=torch.float64, device=like.device)


def _mean_shifts(
    prior: MixturePrior, w: Tensor, gram: Tensor, cross: Tensor, square: Tensor, sizes: Tensor
) -> Tensor:
    """Return the shifts of the prior means, (T, D), as `mean_shifts` does."""
    total = 0.0 * w
    heights = _tensor(interpolation(prior.shifts, sizes.cpu().numpy()), w)
    for shift, height in zip(prior.shifts, heights, strict=True):
        if shift.B is not None and shift.summary is not None:
            psi, B = _summary(shift.summary, w, gram, cross, square, sizes), _tensor(shift.B, w)
            total += height[:, None] * (B[:, 0] + psi @ B[:, 1:].T)
    return total


def _summary(
    summary: TaskSummary, w: Tensor, gram: Tensor, cross: Tensor, square: Tensor, sizes: Tensor
) -> Tensor:
    """Return ψ(s) as `TaskSummary` does."""
    import torch

    def squared_residuals(weights: Tensor) -> Tensor:
        fitted = (gram @ weights[..., None])[..., 0]
        return torch.clamp(square + ((fitted - 2.0 * cross) * weights).sum(dim=1), min=0.0)

    centre = _tensor(summary.centre, w)
    own, common = squared_residuals(w), squared_residuals(centre.expand_as(w))
    noises = torch.stack([own + NOISE_ROWS * summary.noise, common + NOISE_ROWS * summary.spread], dim=1)
    levels = torch.log(noises / (sizes + NOISE_ROWS)[:, None])
    parts = torch.cat([(w - centre) @ _tensor(summary.axes, w), levels], dim=1)
    return (parts - _tensor(summary.mean, w)) / _tensor(summary.scale, w)


def _raw(scaling: Scaling, weights: Tensor) -> Tensor:
    """Convert weights to the user's units, as `Scaling.raw_weights` does."""
    if scaling.is_raw:
        return weights
    out = weights * _tensor(scaling.weights, weights)
    if scaling.fit_intercept:
        out[:, -1] += scaling.target_shift - out[:, :-1] @ _tensor(scaling.shift[:-1], weights)
    return out
