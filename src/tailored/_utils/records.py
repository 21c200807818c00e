"""Frozen records that remember what they computed from their fields, and are copied and pickled without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """`functools.cached_property` as it is from Python 3.12 on: without a lock.

    The lock of 3.11 is held while something is computed, by all instances; a child that is forked meanwhile waits for it for
    ever.  Two threads may compute the same twice.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        # No data descriptor: from now on the attribute itself is found.
        value = vars(instance)[self.name] = self.compute(instance)
        return value


class Record:
    """Base of frozen dataclasses with cached properties: what was computed is no part of what they are."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # type: ignore[arg-type]
