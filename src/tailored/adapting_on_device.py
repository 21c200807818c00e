"""(Prior, tensors of rows) -> weights of many tasks, on the device that the rows are on.

The same numbers as `tailored.adapting.weights`, for priors of empirical Bayes: posterior means under the mixture, and what
the learned part of the prior mean adds to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .feature_maps import PosteriorMap, PosteriorModel, TaskSummary
from .feature_maps.summaries import NOISE_ROWS, hats
from .prior import Prior
from .shards.cuda import CudaStatistics, TensorTasks

#: Tasks that are adapted at once.
AT_ONCE = 1 << 20


def weights(prior: Prior, tasks: TensorTasks) -> Any:
    """Weights (T, d) in the user's units, the intercept last where there is one."""
    import torch

    model = _model(prior)
    parts = []
    for start in range(0, len(tasks), AT_ONCE):
        batch = _slice(tasks, start, start + AT_ONCE)
        parts.append(_raw(prior, _weights(prior, model, batch)))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _model(prior: Prior) -> PosteriorModel:
    found = prior.feature_map.model if isinstance(prior.feature_map, PosteriorMap) else None
    if found is None or prior.loss.name != "squared" or prior.common is not None:
        raise ValueError(
            "device: only a prior of EmpiricalBayesLearner without common= adapts on a device; use device=None"
        )
    if found.side is not None and not found.side.from_description:
        raise ValueError("device: features of a task's rows are computed on the CPU; use device=None")
    return found


def _slice(tasks: TensorTasks, start: int, stop: int) -> TensorTasks:
    if start == 0 and stop >= len(tasks):
        return tasks
    offsets = tasks.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    described = None if tasks.described is None else tasks.described[start:stop]
    return TensorTasks(
        tasks.X[first:last], tasks.y[first:last], offsets - first, tasks.labels[start:stop], described
    )


def _side(model: PosteriorModel, tasks: TensorTasks) -> Any:
    """v(s) (T, q), computed here from the descriptions."""
    if model.side is None:
        return None
    assert tasks.described is not None
    return model.side(tasks.described)


def _weights(prior: Prior, model: PosteriorModel, tasks: TensorTasks) -> Any:
    import torch

    mixture = model.mixture
    statistics = CudaStatistics.of(tasks, prior.units, _side(model, tasks))
    T, D, K = len(tasks), statistics.n_features, mixture.n_components
    device, double = tasks.X.device, torch.float64
    deviations = torch.empty((K, D, T), dtype=double, device=device)
    r = torch.softmax(statistics.evidence(mixture, deviations), dim=0)
    means = torch.from_numpy(mixture.means).to(device)
    # Σ_k r_k (b_k + E(w − b_k)) + Γv
    found = torch.einsum("kt,kdt->td", r, deviations) + r.T @ means
    if mixture.side is not None:
        found += statistics.side @ torch.from_numpy(mixture.side).to(device).T
    learned = any(level.summary is not None for level in model.levels)
    if not learned and (mixture.averaged or K == 1):
        return found
    gram, cross, square = statistics.dense()
    taus = torch.from_numpy(mixture.covariances / mixture.noise).to(device)
    tau = torch.einsum("kt,kij->tij", r, taus)
    systems = torch.eye(D, dtype=double, device=device) + tau @ gram
    if not mixture.averaged and K > 1:
        b = r.T @ means
        if mixture.side is not None:
            b = b + statistics.side @ torch.from_numpy(mixture.side).to(device).T
        found = torch.linalg.solve(systems, b + (tau @ cross[:, :, None])[:, :, 0])
    if learned:
        added = _learned(prior, model, found, gram, cross, square, statistics.sizes)
        found = found + torch.linalg.solve(systems, added)
    return found


def _learned(
    prior: Prior, model: PosteriorModel, w: Any, gram: Any, cross: Any, square: Any, sizes: Any
) -> Any:
    """What the levels add to the prior mean of each task, (T, D)."""
    import torch

    device, blocks = w.device, []
    tips = torch.from_numpy(hats(model.levels, sizes.cpu().numpy())).to(device)
    for level, tip in zip(model.levels, tips, strict=True):
        if level.summary is not None:
            psi = _summary(level.summary, w, gram, cross, square, sizes)
            blocks.append(tip[:, None] * torch.cat([torch.ones_like(psi[:, :1]), psi], dim=1))
    features = torch.cat(blocks, dim=1)
    # The levels are the last features that b(s) is linear in.
    B = torch.from_numpy(np.array(prior.bias.linear[:, -features.shape[1] :])).to(device)
    return features @ B.T


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


def _raw(prior: Prior, weights: Any) -> Any:
    """Weights of the raw columns, as `Units.raw_weights`."""
    import torch

    units = prior.units
    if units.is_raw:
        return weights
    out = weights * torch.from_numpy(units.weights).to(weights.device)
    if units.fit_intercept:
        shift = torch.from_numpy(np.array(units.shift[:-1])).to(weights.device)
        out[:, -1] += units.target_shift - out[:, :-1] @ shift
    return out
