"""Rows of many tasks as tensors on a device."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tasks import TaskSet


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of torch, which need not be installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_device(device: Any) -> Any:
    """The device of torch, if it is there.

    Raises
    ------
    TypeError
        For anything but a string.
    ImportError
        Without torch and CuPy.
    ValueError
        For a device that is no CUDA device, or is absent.
    """
    if not isinstance(device, str):
        raise TypeError(f"device: expected None or a string such as 'cuda', got {device!r}")
    try:
        import cupy  # noqa: F401
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={device!r}: a GPU needs torch and CuPy; pip install 'tailored[gpu]', or use device=None"
        ) from error
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: {device!r} is no device; use None or 'cuda'") from error
    if found.type != "cuda":
        raise ValueError(f"device: {device!r} is not a CUDA device; use None for the CPU, or 'cuda'")
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = found.index if found.index is not None else (torch.cuda.current_device() if present else 0)
    if index >= present:
        raise ValueError(
            f"device: {device!r} was asked for and {present} CUDA devices are here; use device=None for the CPU"
        )
    return torch.device("cuda", index)


@dataclass(frozen=True)
class TensorTasks:
    """Rows of T tasks, those of a task next to each other.

    Attributes
    ----------
    X : tensor (N, d)
    y : tensor (N,)
    offsets : tensor (T + 1,) of int64
        Task t has the rows ``offsets[t]:offsets[t + 1]``.
    labels : tensor (T,) or array (T,)
    described : TaskSet, optional
        The same tasks with their descriptions; its rows are not used.
    """

    X: Any
    y: Any
    offsets: Any
    labels: Any
    described: TaskSet | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @classmethod
    def of(cls, X: Any, y: Any, groups: Any, side_info: Any, device: Any) -> TensorTasks:
        """Read tensors; tasks come in the order of their labels."""
        import torch

        if not is_tensor(y) or not is_tensor(groups):
            raise TypeError("X is a tensor: y and groups must be tensors, too")
        for name, value in (("X", X), ("y", y), ("groups", groups)):
            if value.device != device:
                raise ValueError(f"{name}: the tensor is on {value.device}, the learner computes on {device}")
        if X.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"X: expected float32 or float64, got {X.dtype}")
        if X.ndim != 2 or y.shape != X.shape[:1] or groups.shape != X.shape[:1]:
            raise ValueError(
                f"X, y, groups: expected shapes (n, d), (n,), (n,), got {tuple(X.shape)}, {tuple(y.shape)}, "
                f"{tuple(groups.shape)}"
            )
        if not bool((groups[1:] >= groups[:-1]).all()):
            order = torch.argsort(groups, stable=True)
            X, y, groups = X[order], y[order], groups[order]
        labels, sizes = torch.unique_consecutive(groups, return_counts=True)
        offsets = torch.zeros(len(labels) + 1, dtype=torch.int64, device=device)
        torch.cumsum(sizes, 0, out=offsets[1:])
        described = None
        if side_info is not None:
            names = labels.cpu().numpy()
            described = TaskSet(np.zeros((len(names), 1)), np.zeros(len(names)), names, side_info)
        return cls(X.contiguous(), y.to(X.dtype).contiguous(), offsets, labels, described)

    @classmethod
    def moved(cls, tasks: TaskSet, device: Any) -> TensorTasks:
        """Tasks from memory, dense, in double precision."""
        import torch

        X = tasks.X.toarray() if tasks.is_sparse else tasks.X
        X, y, offsets = (torch.tensor(part, device=device) for part in (X, tasks.y, tasks.offsets))
        return cls(X, y, offsets, tasks.labels, None if tasks.side_info is None else tasks)

    def take(self, chosen: NDArray[np.intp]) -> TaskSet:
        """The tasks at these positions with all of their rows, in memory."""
        import torch

        offsets = self.offsets.cpu().numpy()
        sizes = np.diff(offsets)[chosen]
        rows = np.repeat(offsets[chosen] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
        where = torch.from_numpy(rows).to(self.X.device)
        X, y = (part[where].double().cpu().numpy() for part in (self.X, self.y))
        side = None
        if self.described is not None:
            described = self.described[chosen].side_info
            assert described is not None
            side = np.repeat(described, sizes, axis=0)
        return TaskSet(X, y, np.repeat(self.names[chosen], sizes), side)

    @property
    def names(self) -> NDArray[Any]:
        """The labels, in memory."""
        return self.labels.cpu().numpy() if is_tensor(self.labels) else np.asarray(self.labels)
