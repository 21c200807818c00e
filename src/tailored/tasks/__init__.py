"""Task sets: how they are read, and the rows of each task."""

from .describing import Description
from .encoding import Encoding
from .rows import Rows
from .scaling import Scaling
from .task_set import Task, TaskSet

__all__ = ["Description", "Encoding", "Rows", "Scaling", "Task", "TaskSet"]
