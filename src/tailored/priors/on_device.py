"""Computation of the weights of many tasks on a GPU, from tensors of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..sources.device import DeviceSource
from .base import Prior
from .mixture import MixturePrior

if TYPE_CHECKING:
    from torch import Tensor


def weights_on_device(prior: Prior, tasks: DeviceSource) -> Tensor:
    """Return the weights (T, d) of tasks in the user's units; an intercept is last."""
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

    scaling = prior.scaling
    side = None if tasks.side_tasks is None else prior.side_features(tasks.side_tasks)
    blocks = tasks.moments(scaling, side)
    weights = torch.cat([block.weights(prior.model) for block in blocks])
    if prior.without_rows is not None:
        is_empty = tasks.offsets.diff() == 0
        weights += is_empty[:, None] * weights.new_tensor(np.array(prior.without_rows))
    if scaling.is_raw:
        return weights
    # As in `Scaling.raw_weights`.
    out = weights * weights.new_tensor(scaling.weights)
    if scaling.fit_intercept:
        shift = weights.new_tensor(scaling.shift[:-1])
        out[:, -1] += scaling.target_shift - out[:, :-1] @ shift
    return out
