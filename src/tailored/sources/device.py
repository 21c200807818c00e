"""Tasks whose rows are tensors on a GPU: their statistics, and their posteriors.

All of it is batched linear algebra of torch, in double precision, on blocks of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.frames import SideInfoLike, is_tensor
from .._utils.records import cached_property
from ..gaussian.mixture import Mixture
from ..gaussian.moments import NEGLIGIBLE, Summed, Sums, Totals
from ..tasks.reading import label_keys
from ..tasks.rows import Array, Scaling
from ..tasks.task_set import TaskSet
from .base import BLOCK_FLOATS, Blocks, Reader
from .reservoir import Reservoir

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device


def check_device(device: object) -> Device:
    """Return the torch device with this name, which must be a CUDA device of this machine."""
    if not isinstance(device, str) or not device.startswith("cuda"):
        raise ValueError(
            f"device must be None, 'cuda' or a device such as 'cuda:0'; got {device!r}."
        )
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={device!r}: a GPU needs torch; run python -m pip install '.[gpu]' in a "
            "checkout, or use device=None"
        ) from error
    n_devices = torch.cuda.device_count()
    if device not in ("cuda", *(f"cuda:{i}" for i in range(n_devices))) or not n_devices:
        raise ValueError(
            f"device: {device!r} does not exist: this machine has {n_devices} CUDA devices; use "
            "one of them, or None for the CPU"
        )
    index = torch.cuda.current_device() if device == "cuda" else int(device[5:])
    return torch.device("cuda", index)


@dataclass(frozen=True)
class DeviceSource:
    """Tasks whose rows are tensors: task t has the rows ``offsets[t]:offsets[t + 1]``."""

    X: Tensor  # (N, d)
    y: Tensor  # (N,)
    offsets: Tensor  # (T + 1,) int64
    labels: Tensor | NDArray[Any]  # (T,)
    seed: int = 0  # determines the sample, together with the labels
    side_tasks: TaskSet | None = None  # the same tasks with side information; rows are not used
    in_memory: TaskSet | None = None  # the same tasks with their rows, if they were copied

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def names(self) -> NDArray[Any]:
        """The labels as a NumPy array."""
        return self.labels if isinstance(self.labels, np.ndarray) else self.labels.cpu().numpy()

    @classmethod
    def from_tensors(
        cls, X: Tensor, y: Tensor, groups: Tensor, side_info: SideInfoLike, device: Device
    ) -> DeviceSource:
        """Check tensors of rows and sort them by label."""
        import torch

        if not is_tensor(y) or not is_tensor(groups):
            raise TypeError("y, groups: expected tensors, because X is a tensor")
        for name, value in (("X", X), ("y", y), ("groups", groups)):
            if value.device != device:
                raise ValueError(
                    f"{name}: the tensor is on {value.device}, but the learner computes on "
                    f"{device}; move it there"
                )
        if X.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"X: expected float32 or float64, got {X.dtype}; use X.double()")
        if X.ndim != 2 or y.shape != X.shape[:1] or groups.shape != X.shape[:1]:
            raise ValueError(
                "X, y, groups: expected shapes (n, d), (n,), (n,), got "
                f"{tuple(X.shape)}, {tuple(y.shape)}, {tuple(groups.shape)}"
            )
        if not bool((groups[1:] >= groups[:-1]).all()):
            groups, order = torch.sort(groups, stable=True)
            X, y = X[order], y[order]
        labels, sizes = torch.unique_consecutive(groups, return_counts=True)
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        side_tasks = None
        if side_info is not None:
            names = labels.cpu().numpy()
            side_tasks = TaskSet(np.zeros((len(names), 1)), np.zeros(len(names)), names, side_info)
        return cls(X, y, offsets, labels, side_tasks=side_tasks)

    @classmethod
    def from_tasks(cls, tasks: TaskSet, device: Device) -> DeviceSource:
        """Copy tasks from memory to the device, dense and in double precision."""
        if tasks.row_weights is not None:
            raise ValueError(
                "device: rows with weights are only supported on the CPU; use device=None"
            )
        import torch

        X = tasks.X.toarray() if tasks.is_sparse else tasks.X
        X, y, offsets = (torch.tensor(part, device=device) for part in (X, tasks.y, tasks.offsets))
        side_tasks = None if tasks.side_info is None else tasks
        return cls(X, y, offsets, tasks.labels, side_tasks=side_tasks, in_memory=tasks)

    def take(self, selected: NDArray[np.bool_]) -> TaskSet:
        """Copy the selected tasks from the device to memory, with all of their rows."""
        if self.in_memory is not None:
            return self.in_memory[selected]
        sizes = self.offsets.diff().cpu().numpy()
        rows = self.offsets.new_tensor(np.flatnonzero(np.repeat(selected, sizes)))
        X, y = (part[rows].double().cpu().numpy() for part in (self.X, self.y))
        names, side = self.names[selected], None
        if self.side_tasks is not None and self.side_tasks.side_info is not None:
            side = dict(zip(names.tolist(), self.side_tasks.side_info[selected], strict=True))
        return TaskSet(X, y, np.repeat(names, sizes[selected]), side)

    @cached_property
    def reservoir(self) -> Reservoir:
        # Add one task more than the sample may contain, so that `Reservoir.limit` is set.
        empty, keys = Reservoir(seed=self.seed), label_keys(self.names, self.seed)
        largest = np.sort(keys)[: empty.size + 1].max(initial=0)
        return empty.take(self.take(keys <= largest))

    def statistics(self, read: Reader) -> Blocks:
        """Compute statistics in the memory of the device."""
        tasks = self
        side = None if read.side is None or self.side_tasks is None else read.side(self.side_tasks)
        if read.residuals is not None:  # shared effects are computed on the CPU
            in_memory = read.residuals(self.take(np.ones(len(self), dtype=bool)))
            tasks = DeviceSource.from_tasks(in_memory, self.X.device)
        return Blocks(list(tasks.moments(read.scaling, side)))

    def moments(self, scaling: Scaling, side: Array | None = None) -> Iterator[DeviceMoments]:
        """Yield the statistics of blocks of tasks, for scaled rows."""
        import torch

        size = max(1, 4 * BLOCK_FLOATS // len(scaling.columns) ** 2)
        features = None if side is None else torch.tensor(side, device=self.X.device)
        for start in range(0, len(self), size):
            stop = start + size
            known = None if features is None else features[start:stop]
            yield self._moments(scaling, self.offsets[start : stop + 1], known)

    def _moments(self, scaling: Scaling, offsets: Tensor, side: Tensor | None) -> DeviceMoments:
        """Return the statistics of the tasks between these offsets."""
        import torch

        sizes, d = offsets.diff(), len(scaling.columns)
        shift, scale = (
            offsets.new_tensor([*columns, target], dtype=torch.float64)
            for columns, target in (
                (scaling.shift, scaling.target_shift),
                (scaling.columns, scaling.target),
            )
        )
        products = shift.new_zeros((len(sizes), d + 1, d + 1))
        # Tasks with the same number of rows are multiplied together: without atomic additions, sums
        # are the same each time.
        order = sizes.argsort(stable=True)
        numbers, counts = sizes[order].unique_consecutive(return_counts=True)
        for n, index in zip(numbers.tolist(), order.split(counts.tolist()), strict=True):
            for part in index.split(max(1, BLOCK_FLOATS // (max(n, 1) * (d + 1)))):
                rows = offsets[part, None] + torch.arange(n, device=offsets.device)
                columns = [self.X[rows].double(), self.y[rows, None].double()]
                if scaling.fit_intercept:
                    columns.insert(1, torch.ones_like(columns[1]))
                scaled = (torch.cat(columns, dim=2) - shift) / scale
                products[part] = scaled.mT @ scaled
        if not bool(products.isfinite().all()):
            raise ValueError(
                "X, y: the tensors contain NaN, infinity, or values whose squares overflow; "
                "remove those rows"
            )
        gram, cross, square = products[:, :d, :d], products[:, :d, d], products[:, d, d]
        return DeviceMoments(gram, cross, square, sizes.double(), side)


class Posterior(NamedTuple):
    """The posterior of each task under one component, w = b + L u with u in p dimensions."""

    root: Tensor  # L (d, p)
    mean: Tensor  # E u (T, p)
    covariance: Tensor  # Cov u (T, p, p)
    log_joint: Tensor  # log p(y) under the component (T,)
    residual: Tensor  # E‖y − Xw‖² (T,)


@dataclass(frozen=True)
class DeviceMoments:
    """Sufficient statistics of T tasks as tensors in the memory of a device."""

    gram: Tensor  # XᵀX (T, d, d)
    cross: Tensor  # Xᵀy (T, d)
    square: Tensor  # yᵀy (T,)
    sizes: Tensor  # (T,) number of rows
    side: Tensor | None = None  # (T, q) features of the side information

    @property
    def n_features(self) -> int:
        return int(self.cross.shape[1])

    def totals(self) -> Totals:
        n_rows, square = float(self.sizes.sum()), float(self.square.sum())
        cross, gram = (part.sum(0).cpu().numpy() for part in (self.cross, self.gram))
        return Totals(len(self.sizes), n_rows, square, cross, gram)

    def sums(self, model: Mixture, shares: object = None) -> Summed:
        """Return the expected sufficient statistics; earlier ``shares`` are ignored."""
        posteriors, shares_here, evidence = self.posteriors(model)
        counts, first, second, residual = [], [], [], 0.0
        for post, share in zip(posteriors, shares_here * (shares_here > NEGLIGIBLE), strict=True):
            weighted, L = share @ post.mean, post.root
            products = (share @ post.covariance.flatten(1)).view(post.covariance.shape[1:])
            products = products + (share[:, None] * post.mean).T @ post.mean
            counts.append(float(share.sum()))
            first.append((L @ weighted).cpu().numpy())
            second.append((L @ products @ L.T).cpu().numpy())
            residual += float(share @ post.residual)
        sums = Sums(
            float(evidence.sum()), np.array(counts), np.array(first), np.array(second), residual
        )
        return Summed(sums, None)

    def weights(self, model: Mixture) -> Tensor:
        """Return the posterior means of the coefficients (T, d)."""
        posteriors, shares, _ = self.posteriors(model)
        means = self.cross.new_tensor(model.means)
        weights = shares.T @ means + sum(
            share[:, None] * (post.mean @ post.root.T)
            for post, share in zip(posteriors, shares, strict=True)
        )
        return weights if model.side is None else weights + self._side_effects(model)

    def posteriors(self, model: Mixture) -> tuple[list[Posterior], Tensor, Tensor]:
        """Return the posteriors by component, responsibilities (K, T), and log p(y) (T,)."""
        import torch

        cross, square = self.cross, self.square
        if model.side is not None:  # subtract XΓv from the targets
            w = self._side_effects(model)
            left = cross - (self.gram @ w[:, :, None])[:, :, 0]
            square = (square - ((cross + left) * w).sum(1)).clamp(min=0.0)
            cross = left
        posteriors = [self._posterior(model, k, cross, square) for k in range(model.n_components)]
        joint = torch.stack([post.log_joint for post in posteriors]) + self._log_proportions(model)
        evidence = joint.logsumexp(0)
        return posteriors, (joint - evidence).exp(), evidence

    def _posterior(self, model: Mixture, k: int, cross: Tensor, square: Tensor) -> Posterior:
        """Return the posterior under component k, without its mixing weight."""
        import torch

        b, L = (cross.new_tensor(part) for part in (model.means[k], model.factors[k]))
        p, noise = L.shape[1], model.noise
        gram_b = self.gram @ b
        r = (cross - gram_b) @ L / noise
        precision = L.T @ self.gram @ L / noise + torch.eye(p, dtype=L.dtype, device=L.device)
        factor = torch.linalg.cholesky(precision)
        covariance = torch.cholesky_inverse(factor)
        mean = (covariance @ r[:, :, None])[:, :, 0]
        fit = (mean * r).sum(1)
        squared = square - (2.0 * cross - gram_b) @ b  # ‖y − Xb‖²
        log_determinant = 2.0 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = self.sizes * log(2.0 * pi * noise)
        log_joint = -0.5 * (constant + log_determinant + squared / noise - fit)
        second_moments = covariance.diagonal(dim1=1, dim2=2).sum(1) + mean.square().sum(1)
        # E uᵀLᵀXᵀXLu = σ² (p + uᵀr − E uᵀu) for the posterior mean u
        residual = squared - noise * (fit - p + second_moments)
        return Posterior(L, mean, covariance, log_joint, residual)

    def _side_effects(self, model: Mixture) -> Tensor:
        """Return Γv (T, d)."""
        assert self.side is not None
        return self.side @ self.side.new_tensor(model.side).T

    def _log_proportions(self, model: Mixture) -> Tensor:
        """Return log π, (K, 1), or (K, T) if the mixing weights depend on the side information."""
        if model.gates is None:
            return self.sizes.new_tensor(np.log(model.proportions))[:, None]
        assert self.side is not None
        gates = self.sizes.new_tensor(model.gates)
        return (gates[:, :1] + gates[:, 1:] @ self.side.T).log_softmax(0)
