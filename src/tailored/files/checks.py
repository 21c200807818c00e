"""Check the fields of stored objects against the annotations of their classes."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union

import numpy as np

from .._utils.records import MAY_BE_NAN, Fitted

#: Annotations of mappings and of sequences; the sequences of a file are lists and tuples.
MAPPINGS = (dict, Mapping)
SEQUENCES = (list, Sequence, Iterable)


class Invalid(ValueError):
    """A part of a model file is not valid.

    Attributes
    ----------
    place : str
        The names that lead to the part, or the name of a tensor.
    reason : str
    """

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place}: {reason}")


def check_fields(cls: type, fields: Mapping[str, Any], place: str) -> None:
    """Check every field of an object of a stored class against its annotation."""
    hints = annotations_of(cls)
    for name, value in fields.items():
        if name not in hints:
            raise Invalid(f"{place}.{name[:60]}", f"is not an annotated field of {cls.__name__}")
        problem = problem_of(value, hints[name], f"{place}.{name}")
        if problem is not None:
            raise problem


@cache
def annotations_of(cls: type) -> dict[str, Any]:
    """Return the annotations of the fields that a file stores of a class."""
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


def problem_of(value: Any, hint: Any, place: str, *, finite: bool = True) -> Invalid | None:
    """Return why a value does not have the annotated type, or None if it has.

    Numbers must be finite unless the annotation says `MAY_BE_NAN` or `Any`.
    """
    if isinstance(value, np.generic):
        value = value.item()
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any or hint is object or hint is inspect.Parameter.empty:
        return None
    if origin is Annotated:
        return problem_of(value, arguments[0], place, finite=finite and MAY_BE_NAN not in arguments[1:])
    if origin in (Union, types.UnionType):
        return _problem_of_union(value, arguments, place, finite)
    if origin is Literal:
        expected = f"must be one of {', '.join(map(repr, arguments))}"
        return (
            None if value in arguments and type(value) in map(type, arguments) else Invalid(place, expected)
        )
    if origin is np.ndarray:
        return _problem_of_array(value, arguments, place, finite)
    if origin in MAPPINGS:
        return _problem_of_items(value, dict, "a dictionary", arguments[1:], place, finite)
    if origin in SEQUENCES:
        return _problem_of_items(value, list, "a list", arguments, place, finite)
    if origin is tuple:
        return _problem_of_tuple(value, arguments, place, finite)
    if origin is float:
        return _problem_of_number(value, place, finite)
    if hint is None or origin in (type(None), bool, int, str):
        expected_type = type(None) if hint is None else origin
        if type(value) is expected_type:
            return None
        return Invalid(place, f"must be {_name(expected_type)}, is {_name(type(value))}")
    if isinstance(origin, type):
        if isinstance(value, origin):
            return None
        return Invalid(place, f"must be {_name(origin)}, is {_name(type(value))}")
    raise TypeError(f"{place}: model files do not support the annotation {hint}")


def _problem_of_union(value: Any, members: Sequence[Any], place: str, finite: bool) -> Invalid | None:
    problems = []
    for member in members:
        problem = problem_of(value, member, place, finite=finite)
        if problem is None:
            return None
        if member is not type(None):
            problems.append(problem)
    if len(problems) == 1:
        return problems[0]
    # A reason from inside of the value says more than that its own type is wrong.
    inside = next((problem for problem in problems if problem.place != place), None)
    expected = "; or ".join(problem.reason for problem in problems)
    return inside or Invalid(place, expected)


def _problem_of_number(value: Any, place: str, finite: bool) -> Invalid | None:
    if type(value) not in (int, float):
        return Invalid(place, f"must be a number, is {_name(type(value))}")
    if finite and not math.isfinite(value):
        return Invalid(place, "must be finite")
    return None


def _problem_of_array(value: Any, arguments: Sequence[Any], place: str, finite: bool) -> Invalid | None:
    if not isinstance(value, np.ndarray):
        return Invalid(place, f"must be an array, is {_name(type(value))}")
    (scalar,) = typing.get_args(arguments[1]) if len(arguments) > 1 else (Any,)
    if scalar is not Any and value.dtype != np.dtype(scalar):
        return Invalid(place, f"must be an array of {np.dtype(scalar)}, is one of {value.dtype}")
    if finite and value.dtype.kind in "fc" and not np.isfinite(value).all():
        return Invalid(place, "contains NaN or infinity")
    return None


def _problem_of_items(
    value: Any, kind: Any, name: str, hints: Sequence[Any], place: str, finite: bool
) -> Invalid | None:
    if type(value) is not kind and not (kind is list and type(value) is tuple):
        return Invalid(place, f"must be {name}, is {_name(type(value))}")
    if hints:
        for key, item in value.items() if kind is dict else enumerate(value):
            problem = problem_of(item, hints[0], f"{place}.{key}", finite=finite)
            if problem is not None:
                return problem
    return None


def _problem_of_tuple(value: Any, hints: Sequence[Any], place: str, finite: bool) -> Invalid | None:
    if type(value) is not tuple:
        return Invalid(place, f"must be a tuple, is {_name(type(value))}")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = [hints[0]] * len(value)
    if hints and len(hints) != len(value):
        return Invalid(place, f"must have {len(hints)} entries, has {len(value)}")
    for i, (item, hint) in enumerate(zip(value, hints, strict=False)):
        problem = problem_of(item, hint, f"{place}.{i}", finite=finite)
        if problem is not None:
            return problem
    return None


def _name(kind: type) -> str:
    return "None" if kind is type(None) else kind.__name__
