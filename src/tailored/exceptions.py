"""Warnings and errors that the library defines."""

__all__ = [
    "ConstantRepresentationWarning",
    "ModelFileError",
    "ShardError",
    "SingleTaskWarning",
    "UnhelpfulWarning",
    "UnknownCategoryWarning",
]


class SingleTaskWarning(UserWarning):
    """All rows were treated as one task, because no groups were passed."""


class UnhelpfulWarning(UserWarning):
    """The errors on held-out tasks are higher than those of a simple baseline: the task mean,
    pooled regression or, for the learners of the paper, independent learning.
    """


class ConstantRepresentationWarning(UserWarning):
    """`ConditionalLearner` learned a constant function (H = 0), so τ is the same for all tasks."""


class UnknownCategoryWarning(UserWarning):
    """A table has a category that did not occur in training; the message describes how it is
    encoded.
    """


class ShardError(RuntimeError):
    """A shard, which is a part of the tasks, could not be read or processed; the message gives the
    reason.
    """


class ModelFileError(ValueError):
    """The content of a model file cannot be read.  The message names the file, the invalid part,
    and the reason.
    """
