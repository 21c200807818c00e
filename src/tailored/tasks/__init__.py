"""Task sets: how they are read, and the rows of each task."""

from .describing import Description
from .encoding import Encoding
from .rows import Rows
from .task_set import Task, TaskSet
from .units import Units

__all__ = ["Description", "Encoding", "Rows", "Task", "TaskSet", "Units"]
