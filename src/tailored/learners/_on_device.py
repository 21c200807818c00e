"""Read tensors for learners with a device, and adapt many tasks there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..priors.mixture import MixturePrior
from ..priors.on_device import weights_on_device
from ..sources.cuda.tensors import TensorTasks, check_device
from ..tasks import TaskSet


def read_tensors(
    learner: Any, X: Any, y: Any, groups: Any, side_info: Any, *, reset: bool = False
) -> TensorTasks:
    """Check tensors of rows; unless ``reset``, they must have the columns of `fit`."""
    if getattr(learner, "device", None) is None:
        raise ValueError(
            f"X: got a tensor, but {type(learner).__name__} computes on the CPU. Pass an array, or use "
            "EmpiricalBayesLearner(device='cuda')."
        )
    if y is None or groups is None:
        raise ValueError("y, groups: missing; a tensor X needs both as tensors")
    tasks = TensorTasks.from_tensors(X, y, groups, side_info, check_device(learner.device))
    if reset:
        return tasks
    if tasks.n_features != learner.n_features_in_:
        raise ValueError(f"X: expected {learner.n_features_in_} columns as in fit, got {tasks.n_features}")
    if bool(learner.n_side_info_in_) != (side_info is not None):
        expected = "pass it" if learner.n_side_info_in_ else "leave it out"
        raise ValueError(f"side_info: must be given if and only if it was given to fit; {expected}")
    return tasks


def check_no_weights(sample_weight: Any) -> None:
    if sample_weight is not None:
        raise ValueError("sample_weight: not supported for tensors; repeat the rows, or pass arrays")


def weights_of_tensors(learner: Any, X: Any, y: Any, groups: Any, side_info: Any) -> Any:
    """Return weights (T, d) as a tensor, with the tasks in the order of their labels."""
    return weights_on_device(_mixture_prior(learner), read_tensors(learner, X, y, groups, side_info))


def weights_of_tasks(learner: Any, tasks: TaskSet) -> NDArray[np.float64]:
    """Return weights (T, d) of tasks in memory, computed on the device."""
    tensors = TensorTasks.from_tasks(tasks, check_device(learner.device))
    weights: NDArray[np.float64] = weights_on_device(_mixture_prior(learner), tensors).cpu().numpy()
    return weights


def _mixture_prior(learner: Any) -> MixturePrior:
    if not isinstance(learner.prior_, MixturePrior):
        raise ValueError(
            f"device: {type(learner.prior_).__name__} is only supported on the CPU (many columns, or a learner of the "
            "paper); use device=None"
        )
    return learner.prior_
