"""Classes that model files can contain, and frozen records with cached properties."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """Compute a property once, without a lock, as `functools.cached_property` does since Python 3.12.

        Python 3.11 holds a lock during the computation, and a process that is forked in the meantime waits for it forever.
        Without the lock, two threads may compute the same value twice.
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


#: Classes that a model file can contain, by class name.
STORED: dict[str, type[Stored]] = {}
#: Annotates numbers and arrays that may be NaN or infinite in a file: ``Annotated[float, MAY_BE_NAN]``.
MAY_BE_NAN = "may be NaN"


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
    """Base of the classes whose objects model files can contain.

    A file stores the constructor arguments, which are attributes of the same names.  `tailored.files` checks their types
    against the annotations; constructors and `restore` check everything else.  An untrusted file can call a constructor
    with any values of the annotated types, so constructors must have no side effects.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("tailored."):
            known = STORED.setdefault(cls.__name__, cls)
            # A decorator such as dataclass(slots=True) defines the same class twice.
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"two classes that model files can contain have the name {cls.__name__}")
            STORED[cls.__name__] = cls

    def state(self) -> dict[str, Any]:
        """Return the fields that a model file stores."""
        if is_dataclass(self):
            return {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Build an object from the fields in a file."""
        made = cls(**state)
        made.restore()
        return made

    def restore(self) -> None:
        """Complete an object that was read from a file; raise ValueError if its fields are inconsistent."""


class Fitted(Stored):
    """Base of stored classes with public attributes besides the constructor arguments, such as those set by `fit`.

    The class must annotate these attributes.
    """

    def state(self) -> dict[str, Any]:
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**super().state(), **public}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        names = inspect.signature(cls).parameters
        made = cls(**{name: value for name, value in state.items() if name in names})
        vars(made).update({name: value for name, value in state.items() if name not in names})
        made.restore()
        return made


class Record(Stored):
    """Base of frozen dataclasses whose cached properties are excluded from pickles, copies and files."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # type: ignore[arg-type]
