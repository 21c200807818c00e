"""Tensors of a learner's tasks, and what is computed on the device that they are on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..priors.mixture import MixturePrior
from ..priors.on_device import weights_on_device
from ..sources.cuda.tensors import TensorTasks, check_device
from ..tasks import TaskSet


def read_tensors(
    learner: Any, X: Any, y: Any, groups: Any, side_info: Any, *, reset: bool = False
) -> TensorTasks:
    """Rows as tensors on the learner's device; with the columns of `fit`, unless it is that."""
    if getattr(learner, "device", None) is None:
        raise ValueError(
            f"X: got a tensor; {type(learner).__name__} computes on the CPU, pass an array, or use "
            "EmpiricalBayesLearner(device='cuda')"
        )
    if y is None or groups is None:
        raise ValueError("X: a tensor needs y and groups, as tensors")
    tasks = TensorTasks.from_tensors(X, y, groups, side_info, check_device(learner.device))
    if not reset:
        if tasks.n_features != learner.n_features_in_:
            raise ValueError(
                f"X: expected {learner.n_features_in_} columns as in fit, got {tasks.n_features}"
            )
        if bool(learner.n_side_info_in_) != (side_info is not None):
            asked = "was" if learner.n_side_info_in_ else "was not"
            raise ValueError(f"side_info: the learner {asked} fitted with it")
    return tasks


def refuse_weights_of_tensors(sample_weight: Any) -> None:
    if sample_weight is not None:
        raise ValueError("sample_weight: not for tensors; repeat the rows, or pass arrays")


def weights_of_tensors(learner: Any, X: Any, y: Any, groups: Any, side_info: Any) -> Any:
    """Weights (T, d) as a tensor, tasks in the order of their labels."""
    return weights_on_device(_closed(learner), read_tensors(learner, X, y, groups, side_info))


def weights_of_tasks(learner: Any, tasks: TaskSet) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The same for tasks in memory, as an array."""
    there = TensorTasks.from_tasks(tasks, check_device(learner.device))
    found: np.ndarray[Any, np.dtype[np.float64]] = weights_on_device(_closed(learner), there).cpu().numpy()
    return found


def _closed(learner: Any) -> MixturePrior:
    prior = learner.prior_
    if not isinstance(prior, MixturePrior):
        raise ValueError(
            "device: tasks under this prior are solved on the CPU (more than 64 columns, or no empirical Bayes); use "
            "device=None"
        )
    return prior
