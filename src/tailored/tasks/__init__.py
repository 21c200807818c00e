"""What a task is: many small tasks as one set, how they are read, and the rows of each."""

from ._describing import Description
from ._task_set import Task, TaskSet
from .encoding import Encoding
from .rows import Rows
from .units import Units

__all__ = ["Description", "Encoding", "Rows", "Task", "TaskSet", "Units"]
