"""Computation of the weights of many tasks on a GPU, from tensors of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..scale.cuda import CudaMoments
from ..scale.tensors import TensorTasks
from ..tasks.rows import Scaling
from .base import Prior
from .mixture import MixturePrior

if TYPE_CHECKING:
    from torch import Tensor

#: Maximum number of tasks that are adapted together.
BLOCK_TASKS = 1 << 20


def weights_on_device(prior: Prior, tasks: TensorTasks) -> Tensor:
    """Return the weights (T, d) of tasks with a `MixturePrior`, in the user's units; an intercept
    is last.
    """
    if not isinstance(prior, MixturePrior):
        raise ValueError(
            f"device: {type(prior).__name__} is only supported on the CPU; use device=None"
        )
    refused = {
        "classes, counts and correlated noise": prior.needs_rows,
        "effects that all tasks share": prior.shared is not None,
    }
    for what, is_refused in refused.items():
        if is_refused:
            raise ValueError(
                f"device: {what} are computed on the CPU; set device=None and pass arrays"
            )
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
    if prior.without_rows is not None:
        weights += (statistics.sizes == 0)[:, None] * _tensor(prior.without_rows, weights)
    return weights


def _tensor(value: ArrayLike, like: Tensor) -> Tensor:
    import torch

    return torch.tensor(np.ascontiguousarray(value), dtype=torch.float64, device=like.device)


def _raw(scaling: Scaling, weights: Tensor) -> Tensor:
    """Convert weights to the user's units, as `Scaling.raw_weights` does."""
    if scaling.is_raw:
        return weights
    out = weights * _tensor(scaling.weights, weights)
    if scaling.fit_intercept:
        out[:, -1] += scaling.target_shift - out[:, :-1] @ _tensor(scaling.shift[:-1], weights)
    return out
