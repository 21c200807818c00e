"""Check the fields of stored objects against the annotations of their classes."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Union

import numpy as np

from .._utils.records import MAY_BE_NAN, Fitted


class Invalid(ValueError):
    """A part of a model file is not valid; ``place`` is its dotted path, or the name of a tensor."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place}: {reason}")


def check_fields(cls: type, fields: Mapping[str, Any], place: str) -> None:
    """Check the fields of a stored object against the annotations of its class."""
    hints = annotations_of(cls)
    for name, value in fields.items():
        if name not in hints:
            raise Invalid(f"{place}.{name[:60]}", f"is not an annotated field of {cls.__name__}")
        check_value(value, hints[name], f"{place}.{name}")


@cache
def annotations_of(cls: type) -> dict[str, Any]:
    """Return the annotations of the stored fields of a class."""
    if is_dataclass(cls):
        return _class_annotations(cls)
    signature = inspect.signature(cls, eval_str=True)
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return {**hints, **_class_annotations(cls)} if issubclass(cls, Fitted) else hints


def _class_annotations(cls: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        # scikit-learn annotates its classes with names that exist only for type checkers.
        if base.__module__.startswith("tailored."):
            hints |= inspect.get_annotations(base, eval_str=True)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not ClassVar}


def check_value(value: Any, hint: Any, place: str, *, finite: bool = True) -> None:
    """Raise `Invalid` unless a value has the annotated type.

    Numbers must be finite unless the annotation contains `MAY_BE_NAN` or is `Any`.
    """
    if isinstance(value, np.generic):
        value = value.item()
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any or hint is object or hint is inspect.Parameter.empty:
        return
    if hasattr(origin, "__value__"):  # a type alias: NDArray since NumPy 2.5
        check_value(value, origin.__value__[arguments], place, finite=finite)
    elif origin is Annotated:
        check_value(value, arguments[0], place, finite=finite and MAY_BE_NAN not in arguments[1:])
    elif origin in (Union, types.UnionType):
        _check_union(value, arguments, place, finite)
    elif origin is np.ndarray:
        _check_array(value, arguments, place, finite)
    elif origin is dict:
        _check_type(value, (dict,), place)
        _check_items(value.items(), arguments[1:] * len(value), place, finite)
    elif origin is list:
        _check_type(value, (list, tuple), place)
        _check_items(enumerate(value), arguments * len(value), place, finite)
    elif origin is tuple:
        _check_type(value, (tuple,), place)
        hints = arguments[:1] * len(value) if Ellipsis in arguments else arguments
        if hints and len(hints) != len(value):
            raise Invalid(place, f"must have {len(hints)} entries, has {len(value)}")
        _check_items(enumerate(value), hints, place, finite)
    elif origin is float:
        if type(value) not in (int, float):
            raise Invalid(place, f"must be a number, is {_name(type(value))}")
        if finite and not math.isfinite(value):
            raise Invalid(place, "must be finite")
    elif hint is None or origin in (type(None), bool, int, str):
        _check_type(value, (type(None) if hint is None else origin,), place)
    elif not isinstance(origin, type):
        raise TypeError(f"{place}: model files do not support the annotation {hint}")
    elif not isinstance(value, origin):
        raise Invalid(place, f"must be {_name(origin)}, is {_name(type(value))}")


def _check_type(value: Any, expected: Sequence[type], place: str) -> None:
    if type(value) not in expected:
        raise Invalid(place, f"must be {_name(expected[0])}, is {_name(type(value))}")


def _check_items(items: Iterable[tuple[Any, Any]], hints: Sequence[Any], place: str, finite: bool) -> None:
    for (key, item), hint in zip(items, hints, strict=False):
        check_value(item, hint, f"{place}.{str(key)[:60]}", finite=finite)


def _check_union(value: Any, members: Sequence[Any], place: str, finite: bool) -> None:
    problems = []
    for member in members:
        try:
            return check_value(value, member, place, finite=finite)
        except Invalid as problem:
            if member is not type(None):
                problems.append(problem)
    # An error inside the value is more specific than a wrong type of the whole value.
    inside = next((problem for problem in problems if problem.place != place), None)
    raise inside or Invalid(place, "; or ".join(problem.reason for problem in problems))


def _check_array(value: Any, arguments: Sequence[Any], place: str, finite: bool) -> None:
    if not isinstance(value, np.ndarray):
        raise Invalid(place, f"must be an array, is {_name(type(value))}")
    (scalar,) = typing.get_args(arguments[1]) if len(arguments) > 1 else (Any,)
    if scalar is not Any and value.dtype != np.dtype(scalar):
        raise Invalid(place, f"must be an array of {np.dtype(scalar)}, is an array of {value.dtype}")
    if finite and value.dtype.kind in "fc" and not np.isfinite(value).all():
        raise Invalid(place, "contains NaN or infinity")


def _name(kind: type) -> str:
    return "None" if kind is type(None) else kind.__name__
