"""Classes that model files can contain, and frozen records with cached properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """Compute a property once, without a lock, as `functools.cached_property` does since Python
        3.12.

        Python 3.11 holds a lock during the computation, and a process that is forked in the
        meantime waits for it forever. Without the lock, two threads may compute the same value
        twice.
        """

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self.compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: object | None, owner: type) -> Any:
            if instance is None:
                return self
            # This descriptor has no __set__, so the next access finds the attribute itself.
            value = vars(instance)[self.name] = self.compute(instance)
            return value


@contextmanager
def restored_on_failure(instance: object) -> Iterator[None]:
    """Restore the attributes of the instance if the block raises an exception."""
    before = dict(vars(instance))
    try:
        yield
    except BaseException:
        vars(instance).clear()
        vars(instance).update(before)
        raise


class Stored:
    """Marks the classes of the package whose objects model files can contain; `tailored.files`
    lists the subclasses.
    """


class Record(Stored):
    """Base of frozen dataclasses whose cached properties are excluded from pickles, copies and
    files.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # type: ignore[arg-type]
