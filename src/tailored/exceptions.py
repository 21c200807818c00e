"""Warnings and errors that the library defines."""

import errno

__all__ = [
    "ConstantRepresentationWarning",
    "MissingModelFileError",
    "ModelFileError",
    "SecondGroupingWarning",
    "ShardError",
    "SingleTaskWarning",
    "UnhelpfulWarning",
    "UnknownCategoryWarning",
]


class SingleTaskWarning(UserWarning):
    """All rows were treated as one task, because no groups were passed."""


class UnhelpfulWarning(UserWarning):
    """The errors on held-out tasks are higher than those of a simple baseline: the task mean or pooled regression."""


class ConstantRepresentationWarning(UserWarning):
    """`ConditionalLearner` learned a constant function (H = 0), so τ is the same for all tasks."""


class UnknownCategoryWarning(UserWarning):
    """A table has a category that did not occur in training; the message describes how it is encoded."""


class SecondGroupingWarning(UserWarning):
    """A feature looks like a second grouping of the rows, besides the tasks."""


class ShardError(RuntimeError):
    """A shard, which is a part of the tasks, could not be read or processed; the message gives the reason."""


class ModelFileError(ValueError):
    """A model file cannot be read.  The message names the file, the invalid part, and the reason.

    Attributes
    ----------
    path : str
    member : str
        The dotted path of the invalid part; empty for the whole file.
    reason : str
    """

    def __init__(self, path: object, member: str, reason: str) -> None:
        self.path, self.member, self.reason = str(path), member, reason
        super().__init__(f"path: {self.path}{': ' if member else ''}{member}: {reason}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.member, self.reason)


class MissingModelFileError(ModelFileError, FileNotFoundError):
    """The model file does not exist."""

    def __init__(self, path: object, member: str, reason: str) -> None:
        super().__init__(path, member, reason)
        self.errno, self.filename = errno.ENOENT, self.path

    def __str__(self) -> str:
        return str(self.args[0])  # otherwise `OSError` would format its own message
