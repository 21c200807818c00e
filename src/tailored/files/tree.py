"""Encode objects as JSON and arrays, and check the fields of stored objects against the annotations of their classes.

`Encoder` turns an object into a tree of JSON values and a dictionary of arrays; `Decoder` rebuilds the object.  None, booleans,
numbers, strings and lists are JSON values.  Other values are JSON objects with one key, the kind of the value::

    {"array": [tensor, "C" | "F"]}     {"csr": [data, indices, indptr, shape]}     {"tuple": [..]}
    {"strings": tensor}                {"objects": [shape, [..]]}                  {"dict": {name: ..}}
    {"object": [class, {field: ..}]}

Here ``tensor`` is the name of an array.  Arrays of strings are stored as UTF-32, one row of code points per string.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NoReturn, TypeAlias, TypeVar, Union

import numpy as np
from scipy import sparse

from .._utils.records import MAY_BE_NAN, STORED, Stored

#: Maximum size of the JSON in bytes and in values; the Python objects need many times as much memory.
MOST_JSON, MOST_VALUES = 2**26, 2**20
#: Supported array dtypes.
DTYPES = {"f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Scalar = TypeVar("Scalar")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Advice for each part of a learner that cannot be saved.
ADVICE = {
    "feature_map": "the maps 'mean', 'ridge', 'angle' and 'vector' can be saved. Compute the features yourself and pass them "
    "as side_info with feature_map='vector', or define the function in a module and pickle the learner",
    "tau": "a number or an array can be saved. Otherwise, define the function in a module and pickle the learner",
    "labels": "use numbers, strings or tuples of these as task labels, or pickle the learner",
    "random_state": "use an integer",
}


class Invalid(ValueError):
    """A part of a model file is not valid; ``place`` is its dotted path, or the name of a tensor."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place}: {reason}")


class Encoder:
    """Encode objects as JSON values; `arrays` collects their arrays by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def encode(self, value: Any, place: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = value.item()
        if value is None or type(value) in (str, int, float, bool):
            return value
        # A user-defined class cannot be read back.
        if isinstance(value, Stored) and STORED.get(type(value).__name__) is type(value):
            return {"object": [type(value).__name__, self._encode_dict(value.state(), place)]}
        if isinstance(value, np.ndarray):
            return self._encode_array(value, place)
        if isinstance(value, sparse.csr_array):
            parts = [self._encode_array(part, place) for part in (value.data, value.indices, value.indptr)]
            return {"csr": [*parts, list(value.shape)]}
        if isinstance(value, dict):
            return {"dict": self._encode_dict(value, place)}
        if type(value) in (list, tuple):
            items = [self.encode(item, f"{place}.{i}") for i, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        _refuse(value, place)

    def _encode_dict(self, values: Mapping[Any, object], place: str) -> dict[str, Any]:
        for key in values:
            if type(key) is not str:
                _refuse(key, place)
        return {key: self.encode(item, f"{place}.{key}") for key, item in values.items()}

    def _encode_array(self, value: np.ndarray, place: str) -> dict[str, Any]:
        if value.dtype == object:
            items = [self.encode(item, f"{place}.{i}") for i, item in enumerate(value.ravel())]
            return {"objects": [list(value.shape), items]}
        if value.dtype.kind == "U":
            width = max(value.dtype.itemsize // 4, 1)
            codes = np.ascontiguousarray(value, dtype=f"<U{width}").view(np.uint32)
            return {"strings": self._add(codes.reshape(*value.shape, width))}
        if value.dtype.str[1:] not in DTYPES:
            _refuse(value.flat[0] if value.size else value, place)
        # Keep the memory order, because products in another order can differ in the last bit.
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        name = self._add(np.asarray(value.T if by_columns else value, order="C"))
        return {"array": [name, "F" if by_columns else "C"]}

    def _add(self, array: np.ndarray) -> str:
        name = str(len(self.arrays))
        self.arrays[name] = array
        return name


def _refuse(value: object, place: str) -> NoReturn:
    advice = next((text for part, text in ADVICE.items() if part in place), "pickle the learner")
    raise TypeError(f"{place}: {type(value).__name__} cannot be saved without pickle; {advice}")


def load_json(content: bytes) -> Any:
    """Parse the bytes of a tree."""
    n_values = sum(map(content.count, (b",", b"[", b"{")))  # an upper bound, as strings may contain these
    if len(content) > MOST_JSON or n_values > MOST_VALUES:
        found = f"has {len(content):,} bytes and {n_values:,} values, mostly names and labels"
        raise Invalid("tree", f"{found}; at most {MOST_JSON:,} and {MOST_VALUES:,} are read")
    try:
        return json.loads(content.decode())
    except ValueError as error:  # invalid JSON or UTF-8, or an integer with thousands of digits
        raise Invalid("tree", f"is not valid JSON: {error}") from error


class Decoder:
    """Build objects from JSON values and arrays; each array must be used exactly once."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)

    def decode(self, node: Json, place: str) -> Any:
        """Build the object that a complete tree encodes."""
        value = self._decode(node, place)
        for name in self._arrays:
            raise Invalid(_short(name), "is a tensor that the tree does not use")
        return value

    def _decode(self, node: Json, place: str) -> Any:
        if isinstance(node, list):
            if not any(isinstance(item, list | dict) for item in node):
                return [_checked_scalar(item, place) for item in node]
            return [self._decode(item, f"{place}.{i}") for i, item in enumerate(node)]
        if not isinstance(node, dict):
            return _checked_scalar(node, place)
        if len(node) != 1:
            raise Invalid(place, f"must have one key that gives its kind, has {len(node)}")
        ((kind, body),) = node.items()
        decode = getattr(self, f"_decode_{kind}", None)
        if decode is None:
            raise Invalid(place, f"has the unknown kind {_short(kind)}")
        return decode(body, place)

    def _decode_tuple(self, body: Json, place: str) -> tuple[Any, ...]:
        return tuple(self._decode(_checked(body, list, place), place))

    def _decode_dict(self, body: Json, place: str) -> dict[str, Any]:
        items = _checked(body, dict, place).items()
        return {
            _checked_scalar(key, place): self._decode(item, f"{place}.{_short(key)[1:-1]}")
            for key, item in items
        }

    def _decode_object(self, body: Json, place: str) -> Stored:
        name, fields = _checked(body, list, place, 2)
        cls = STORED.get(name) if isinstance(name, str) else None
        if cls is None:
            raise Invalid(place, f"has the class {_short(name)}, which a model file cannot contain")
        state = self._decode_dict(fields, place)
        kind: type = cls
        hints = annotations_of(kind)
        for field, value in state.items():
            if field not in hints:
                raise Invalid(f"{place}.{field[:60]}", f"is not an annotated field of {cls.__name__}")
            check_value(value, hints[field], f"{place}.{field}")
        try:
            return cls.from_state(state)
        except Exception as error:  # constructors check their arguments
            raise Invalid(place, f"is not a valid {cls.__name__}: {error}") from error

    def _decode_objects(self, body: Json, place: str) -> np.ndarray:
        shape, items = _checked(body, list, place, 2)
        values = self._decode(_checked(items, list, place), place)
        if math.prod(_shape(shape, place)) != len(values):
            raise Invalid(place, f"has {len(values)} objects in an array of shape {_short(shape)}")
        # np.array would make a second axis from tuples.
        return np.fromiter(values, dtype=object, count=len(values)).reshape(shape)

    def _decode_array(self, body: Json, place: str) -> np.ndarray:
        name, order = _checked(body, list, place, 2)
        if order not in ("C", "F"):
            raise Invalid(place, "must have the order 'C' or 'F'")
        array = self._take(name, place)
        return array if order == "C" else array.T

    def _decode_strings(self, body: Json, place: str) -> np.ndarray:
        codes = self._take(body, place, np.uint32)
        if not codes.ndim or not codes.shape[-1]:
            raise Invalid(place, "must be an array of strings")
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise Invalid(place, "contains an invalid character")
        return codes.view(f"<U{codes.shape[-1]}").reshape(codes.shape[:-1])

    def _decode_csr(self, body: Json, place: str) -> sparse.csr_array:
        *parts, shape = _checked(body, list, place, 4)
        arrays = data, *_ = tuple(self._decode(part, place) for part in parts)
        kinds = "".join(array.dtype.kind for array in arrays if isinstance(array, np.ndarray))
        try:
            if kinds != "fii":
                raise TypeError("it must have arrays of numbers, columns and row pointers")
            matrix = sparse.csr_array(arrays, shape=tuple(_shape(shape, place)))
            matrix.check_format(full_check=True)
        except (ValueError, TypeError) as error:
            raise Invalid(place, f"is not a valid sparse matrix in CSR format: {error}") from error
        # Compiled code requires increasing column indices in every row.
        if not matrix.has_canonical_format or len(matrix.data) != len(data) or not np.isfinite(data).all():
            raise Invalid(place, "is not a valid sparse matrix in CSR format")
        return matrix

    def _take(self, name: Json, place: str, dtype: type | None = None) -> np.ndarray:
        """Return the array of this name, which may be used only once."""
        if not isinstance(name, str) or name not in self._arrays:
            raise Invalid(place, f"needs the tensor {_short(name)}, which is missing or was already used")
        array = self._arrays.pop(name)
        if array.dtype.str[1:] not in DTYPES or (dtype is not None and array.dtype != dtype):
            raise Invalid(place, f"has a tensor of the unsupported type {array.dtype}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise Invalid(place, "contains a boolean that is neither 0 nor 1")
        return array


def _checked_scalar(value: Scalar, place: str) -> Scalar:
    if isinstance(value, str) and _SURROGATE.search(value):
        raise Invalid(place, "contains an invalid string")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise Invalid(place, "must be an integer of at most 64 bits")
    return value


def _checked(
    body: Json, kind: type[list[Any] | dict[str, Any]], place: str, length: int | None = None
) -> Any:
    if type(body) is not kind or (length is not None and len(body) != length):
        raise Invalid(place, f"must be a {kind.__name__}" + (f" of length {length}" if length else ""))
    return body


def _shape(shape: Json, place: str) -> list[int]:
    sizes: list[int] = _checked(shape, list, place)
    if not all(type(n) is int and 0 <= n < 2**31 for n in sizes):
        raise Invalid(place, f"has the invalid shape {_short(shape)}")
    return sizes


def _short(value: object) -> str:
    """Shorten a value of an untrusted file for a message."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}...{text[-1]}"


@cache
def annotations_of(cls: type) -> dict[str, Any]:
    """Return the annotations of the stored fields of a class: its own, and those of its constructor."""
    hints: dict[str, Any] = {}
    if not is_dataclass(cls):
        parameters = inspect.signature(cls, eval_str=True).parameters
        hints = {name: parameter.annotation for name, parameter in parameters.items()}
    for base in reversed(cls.__mro__):
        # Annotations of other packages' base classes do not describe stored fields.
        if base.__module__.startswith("tailored."):
            hints |= inspect.get_annotations(base, eval_str=True)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not ClassVar}


def check_value(value: Any, hint: Any, place: str, *, finite: bool = True) -> None:
    """Raise `Invalid` unless a value has the annotated type.

    Numbers must be finite unless the annotation contains `MAY_BE_NAN` or is `Any`.
    """
    origin, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint in (Any, object, inspect.Parameter.empty):
        return
    if hasattr(origin, "__value__"):  # a type alias: NDArray since NumPy 2.5
        check_value(value, origin.__value__[arguments], place, finite=finite)
    elif origin is Annotated:
        check_value(value, arguments[0], place, finite=finite and MAY_BE_NAN not in arguments[1:])
    elif origin in (Union, types.UnionType):
        _check_union(value, arguments, place, finite)
    elif origin is np.ndarray:
        _check_array(value, arguments, place, finite)
    elif origin in (dict, list, tuple):
        _check_container(value, origin, arguments, place, finite)
    elif origin is float:
        if type(value) not in (int, float):
            raise Invalid(place, f"must be a number, is {_name(type(value))}")
        if finite and not math.isfinite(value):
            raise Invalid(place, "must be finite")
    else:
        kind = type(None) if hint is None else origin
        if not isinstance(kind, type):
            raise TypeError(f"{place}: model files do not support the annotation {hint}")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Invalid(place, f"must be {_name(kind)}, is {_name(type(value))}")


def _check_container(value: Any, kind: type, arguments: Sequence[Any], place: str, finite: bool) -> None:
    if type(value) not in ((list, tuple) if kind is list else (kind,)):
        raise Invalid(place, f"must be {_name(kind)}, is {_name(type(value))}")
    if kind is tuple and arguments and Ellipsis not in arguments:
        hints = arguments
        if len(hints) != len(value):
            raise Invalid(place, f"must have {len(hints)} entries, has {len(value)}")
    else:
        hints = [arguments[kind is dict]] * len(value) if arguments else ()
    items = value.items() if kind is dict else enumerate(value)
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
    # Report the error inside the value, which is more specific than its type.
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
