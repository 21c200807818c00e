"""Rows of many tasks as tensors on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._utils.frames import SideInfoLike, is_tensor
from ..tasks.task_set import TaskSet

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device


def check_device(device: object) -> Device:
    """Return the torch device with this name; raise an error unless it is a CUDA device of this
    machine.
    """
    if not isinstance(device, str) or not device.startswith("cuda"):
        raise ValueError(
            f"device must be None, 'cuda' or a device such as 'cuda:0'; got {device!r}."
        )
    try:
        import cupy  # noqa: F401
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={device!r}: a GPU needs torch and CuPy; run python -m pip install '.[gpu]' in "
            "a checkout, or use device=None"
        ) from error
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device not in ("cuda", *(f"cuda:{i}" for i in range(n_devices))) or not n_devices:
        raise ValueError(
            f"device: {device!r} does not exist: this machine has {n_devices} CUDA devices; use "
            "one of them, or None for the CPU"
        )
    return torch.device(
        "cuda", torch.cuda.current_device() if device == "cuda" else int(device[5:])
    )


@dataclass(frozen=True)
class TensorTasks:
    """Rows of T tasks as tensors, sorted by task: task t has the rows ``offsets[t]:offsets[t +
    1]``.
    """

    X: Tensor  # (N, d)
    y: Tensor  # (N,)
    offsets: Tensor  # (T + 1,) int64
    labels: Tensor | NDArray[Any]  # (T,) tensor or array
    side_tasks: TaskSet | None = (
        None  # the same tasks with their side information; its rows are not used
    )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @classmethod
    def from_tensors(
        cls, X: Tensor, y: Tensor, groups: Tensor, side_info: SideInfoLike, device: Device
    ) -> TensorTasks:
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
                f"X, y, groups: expected shapes (n, d), (n,), (n,), got {tuple(X.shape)}, "
                f"{tuple(y.shape)}, "
                f"{tuple(groups.shape)}"
            )
        if not bool((groups[1:] >= groups[:-1]).all()):
            order = torch.argsort(groups, stable=True)
            X, y, groups = X[order], y[order], groups[order]
        labels, sizes = torch.unique_consecutive(groups, return_counts=True)
        offsets = torch.zeros(len(labels) + 1, dtype=torch.int64, device=device)
        torch.cumsum(sizes, 0, out=offsets[1:])
        side_tasks = None
        if side_info is not None:
            names = labels.cpu().numpy()
            side_tasks = TaskSet(np.zeros((len(names), 1)), np.zeros(len(names)), names, side_info)
        return cls(X.contiguous(), y.to(X.dtype).contiguous(), offsets, labels, side_tasks)

    @classmethod
    def from_tasks(cls, tasks: TaskSet, device: Device) -> TensorTasks:
        """Copy tasks from memory to the device, dense and in double precision."""
        if tasks.row_weights is not None:
            raise ValueError(
                "device: rows with weights are only supported on the CPU; use device=None"
            )
        import torch

        X = tasks.X.toarray() if tasks.is_sparse else tasks.X
        X, y, offsets = (torch.tensor(part, device=device) for part in (X, tasks.y, tasks.offsets))
        return cls(X, y, offsets, tasks.labels, None if tasks.side_info is None else tasks)

    def take(self, index: NDArray[np.intp]) -> TaskSet:
        """Copy the tasks at these positions from the device to memory, with all of their rows."""
        import torch

        offsets = self.offsets.cpu().numpy()
        sizes = np.diff(offsets)[index]
        rows = np.repeat(offsets[index] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        rows_there = torch.from_numpy(rows).to(self.X.device)
        X, y = (part[rows_there].double().cpu().numpy() for part in (self.X, self.y))
        side = None
        if self.side_tasks is not None:
            side_info = self.side_tasks[index].side_info
            assert side_info is not None
            side = np.repeat(side_info, sizes, axis=0)
        return TaskSet(X, y, np.repeat(self.names[index], sizes), side)

    def slice(self, start: int, stop: int) -> TensorTasks:
        """Return the tasks ``start`` to ``stop - 1`` without copying their rows."""
        if start == 0 and stop >= len(self):
            return self
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        side_tasks = None if self.side_tasks is None else self.side_tasks[start:stop]
        return TensorTasks(
            self.X[first:last],
            self.y[first:last],
            offsets - first,
            self.labels[start:stop],
            side_tasks,
        )

    @property
    def names(self) -> NDArray[Any]:
        """The labels as a NumPy array."""
        return self.labels if isinstance(self.labels, np.ndarray) else self.labels.cpu().numpy()
