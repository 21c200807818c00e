"""Statistics of tasks on a GPU: the sums of EM and the weights of many tasks, by kernels compiled at run time.

Nothing here is imported before a device is asked for: torch and CuPy come with the extra ``gpu``.
"""

from .collecting import TasksOnDevice
from .factors import CudaFactorRows
from .statistics import CudaStatistics
from .tensors import TensorTasks, check_device, is_tensor

__all__ = ["CudaFactorRows", "CudaStatistics", "TasksOnDevice", "TensorTasks", "check_device", "is_tensor"]
