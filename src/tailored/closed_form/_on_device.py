"""The same pass on a GPU: tensors of rows -> weights, on the device that the rows are on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..feature_maps import TaskSummary
from ..feature_maps.summaries import NOISE_ROWS, hats
from ..sources.cuda.moments import CudaMoments
from ..sources.cuda.tensors import TensorTasks
from ._solving import ClosedForm

#: Tasks that are adapted at once.
AT_ONCE = 1 << 20


def weights_on_device(closed: ClosedForm, tasks: TensorTasks) -> Any:
    """Weights (T, d) in the user's units, the intercept last where there is one."""
    import torch

    if closed.needs_rows:
        raise ValueError("device: features of a task's rows are computed on the CPU; use device=None")
    parts = []
    for start in range(0, len(tasks), AT_ONCE):
        parts.append(_raw(closed, _weights(closed, tasks.slice(start, start + AT_ONCE))))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _weights(closed: ClosedForm, tasks: TensorTasks) -> Any:
    import torch

    mixture = closed.model.mixture
    side = None if tasks.side_tasks is None else closed.side(tasks.side_tasks)
    statistics = CudaMoments.of(tasks, closed.units, side)
    D, K = statistics.n_features, mixture.n_components
    device, double = tasks.X.device, torch.float64
    posterior = statistics.posterior(mixture)
    r = posterior.shares
    found = torch.einsum("tk,tkd->td", r, posterior.means)
    learned = any(B is not None for B in closed.levels)
    if not learned and (mixture.averaged or K == 1):
        return found
    gram, cross, square = statistics.dense()
    taus = torch.from_numpy(mixture.covariances / mixture.noise).to(device)
    tau = torch.einsum("tk,kij->tij", r, taus)
    systems = torch.eye(D, dtype=double, device=device) + tau @ gram
    if not mixture.averaged and K > 1:
        b = r @ torch.from_numpy(mixture.means).to(device)
        if mixture.side is not None:
            b = b + statistics.side @ torch.from_numpy(mixture.side).to(device).T
        found = torch.linalg.solve(systems, b + (tau @ cross[:, :, None])[:, :, 0])
    if learned:
        added = _learned(closed, found, gram, cross, square, statistics.sizes)
        found = found + torch.linalg.solve(systems, added)
    return found


def _learned(closed: ClosedForm, w: Any, gram: Any, cross: Any, square: Any, sizes: Any) -> Any:
    """What the levels add to b(s) of each task, ``Σ_i h_i(n) B_i (1, ψ_i)``, (T, D)."""
    import torch

    levels, total = closed.model.levels, torch.zeros_like(w)
    tips = torch.from_numpy(hats(levels, sizes.cpu().numpy())).to(w.device)
    for level, B, tip in zip(levels, closed.levels, tips, strict=True):
        if B is not None and level.summary is not None:
            psi = _summary(level.summary, w, gram, cross, square, sizes)
            there = torch.tensor(B, device=w.device)
            total += tip[:, None] * (there[:, 0] + psi @ there[:, 1:].T)
    return total


def _summary(summary: TaskSummary, w: Any, gram: Any, cross: Any, square: Any, sizes: Any) -> Any:
    """ψ(s), as `TaskSummary` computes it."""
    import torch

    def there(value: Any) -> Any:
        return torch.as_tensor(np.array(value), dtype=torch.float64, device=w.device)

    def left(weights: Any) -> Any:
        fitted = (gram @ weights[..., None])[..., 0]
        return torch.clamp(square + ((fitted - 2.0 * cross) * weights).sum(dim=1), min=0.0)

    centre = there(summary.centre)
    own, common = left(w), left(centre.expand_as(w))
    noises = torch.stack([own + NOISE_ROWS * summary.noise, common + NOISE_ROWS * summary.spread], dim=1)
    levels = torch.log(noises / (sizes + NOISE_ROWS)[:, None])
    levels = (levels - there(summary.noise_mean)) / there(summary.noise_deviation)
    parts = torch.cat([(w - centre) @ there(summary.axes), levels], dim=1)
    return (parts - there(summary.mean)) / summary.norm


def _raw(closed: ClosedForm, weights: Any) -> Any:
    """Weights of the raw columns, as `Units.raw_weights`."""
    import torch

    units = closed.units
    if units.is_raw:
        return weights
    out = weights * torch.from_numpy(units.weights).to(weights.device)
    if units.fit_intercept:
        shift = torch.from_numpy(np.array(units.shift[:-1])).to(weights.device)
        out[:, -1] += units.target_shift - out[:, :-1] @ shift
    return out
