"""What a task is: many small tasks as one set, how they are read, and the rows of each."""

from ._task_set import Task, TaskSet
from .rows import Rows
from .units import Units

__all__ = ["Rows", "Task", "TaskSet", "Units"]
