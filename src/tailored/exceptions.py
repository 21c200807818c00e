"""Warnings and errors of the library's own."""


class SingleTaskWarning(UserWarning):
    """All rows were taken as one task, because no groups were given."""


class UnhelpfulWarning(UserWarning):
    """Held-out tasks are predicted worse than without any learning across tasks."""


class UnknownCategoryWarning(UserWarning):
    """A table has a category that was not there in training; the message says what it was taken for."""


class SecondGroupingWarning(UserWarning):
    """A column of inputs looks like another grouping of the rows, beside that by tasks."""


class ShardError(RuntimeError):
    """A part of the tasks could not be read or summed; the message names it."""
