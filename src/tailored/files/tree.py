"""Encode objects as JSON and arrays, and check the fields of stored objects against the annotations of their classes.

`Encoder` turns an object into a tree of JSON values and a dictionary of arrays; `Decoder` rebuilds the object.  None,
numbers, strings and lists are stored as they are.  A JSON object has one key, which is the kind of value it encodes::

    {"number": "nan" | "inf" | "-inf"}          {"tuple": [..]}            {"dict": {name: ..}}
    {"array": [tensor, "C" | "F"]}              {"strings": tensor}        {"objects": [shape, [..]]}
    {"csr": [data, indices, indptr, shape]}     {"regressor": tensor}      {"object": [class, {field: ..}]}

Here ``tensor`` is the name of an array.  Arrays of strings are stored as UTF-32, one row of code points per string, and
scikit-learn regressors in the format of skops.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Union

import numpy as np
from scipy import sparse

from .._utils.records import MAY_BE_NAN, STORED, Fitted, Stored

#: Maximum size of the JSON in bytes and in values; the Python objects need many times as much memory.
MOST_JSON, MOST_VALUES = 2**26, 2**20
#: Maximum nesting depth, number of array dimensions, and string length.
DEEPEST, MOST_DIMENSIONS, LONGEST_STRING = 60, 4, 100_000
#: Supported array dtypes.
DTYPES = {"f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}
_SURROGATE = re.compile("[\ud800-\udfff]")
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Invalid(ValueError):
    """A part of a model file is not valid; ``place`` is its dotted path, or the name of a tensor."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place}: {reason}")


class Unstorable(TypeError):
    """A value that a model file cannot contain."""

    def __init__(self, place: str, value: Any) -> None:
        self.place, self.value = place, value
        super().__init__(f"{place}: {type(value).__name__}")


class Encoder:
    """Encode objects as JSON values; `arrays` collects their arrays by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def encode(self, value: Any, place: str) -> Any:
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = value.item()
        if type(value) is float and not math.isfinite(value):
            return {"number": str(value)}
        if value is None or type(value) in (str, int, float, bool):
            return _checked_scalar(value, place)
        if isinstance(value, Stored):
            return self._encode_object(value, place)
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
        if is_regressor(value) and not type(value).__module__.startswith("tailored."):
            content = np.frombuffer(dump_regressor(value, place), dtype=np.uint8)
            return {"regressor": self._add(content)}
        raise Unstorable(place, value)

    def _encode_object(self, value: Stored, place: str) -> Any:
        if STORED.get(type(value).__name__) is not type(value):  # a user-defined class
            raise Unstorable(place, value)
        state = value.state()
        encoded = self._encode_dict(state, place)
        check_fields(type(value), state, place)
        return {"object": [type(value).__name__, encoded]}

    def _encode_dict(self, values: Mapping[Any, Any], place: str) -> dict[str, Any]:
        for key in values:
            if type(key) is not str:
                raise Unstorable(place, key)
        return {_checked_scalar(key, place): self.encode(v, f"{place}.{key}") for key, v in values.items()}

    def _encode_array(self, value: np.ndarray, place: str) -> Any:
        if value.ndim > MOST_DIMENSIONS:
            raise Unstorable(place, value)
        if value.dtype == object:
            items = [self.encode(item, f"{place}.{i}") for i, item in enumerate(value.ravel())]
            return {"objects": [list(value.shape), items]}
        if value.dtype.kind == "U":
            width = max(value.dtype.itemsize // 4, 1)
            codes = np.ascontiguousarray(value, dtype=f"<U{width}").view(np.uint32)
            return {"strings": self._add(codes.reshape(*value.shape, width))}
        if value.dtype.str[1:] not in DTYPES:
            raise Unstorable(place, value.flat[0] if value.size else value)
        # Keep the memory order, because products in another order can differ in the last bit.
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        name = self._add(np.asarray(value.T if by_columns else value, order="C"))
        return {"array": [name, "F" if by_columns else "C"]}

    def _add(self, array: np.ndarray) -> str:
        name = str(len(self.arrays))
        self.arrays[name] = array
        return name


def dump_json(tree: Any) -> bytes:
    """Return the bytes of a tree."""
    content = json.dumps(tree, separators=(",", ":"), allow_nan=False).encode()
    if problem := _excess(content):
        raise ValueError(f"path: the model has too many names and labels for a file: it {problem}")
    return content


def _excess(content: bytes) -> str:
    """Return a message if a tree exceeds the limits, otherwise ""."""
    n_values = sum(map(content.count, (b",", b"[", b"{")))  # an upper bound, as strings may contain these
    if len(content) <= MOST_JSON and n_values <= MOST_VALUES:
        return ""
    return f"has {len(content):,} bytes and {n_values:,} values; at most {MOST_JSON:,} and {MOST_VALUES:,} are read"


def load_json(content: bytes) -> Any:
    """Parse the bytes of a tree."""
    if problem := _excess(content):
        raise Invalid("tree", problem)
    try:
        return json.loads(content.decode(), object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except Invalid:
        raise
    except RecursionError:
        raise Invalid("tree", "is nested too deeply") from None
    except ValueError as error:  # invalid JSON or UTF-8, or an integer with thousands of digits
        raise Invalid("tree", f"is not valid JSON: {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise Invalid("tree", "has a name twice in one JSON object")
    return values


def _refuse_constant(word: str) -> Any:
    raise Invalid("tree", f"is not valid JSON: contains {word}")


class Decoder:
    """Build objects from JSON values and arrays; each array must be used exactly once.

    ``load_regressor`` is called with the bytes of each regressor and its dotted path.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], load_regressor: Callable[[bytes, str], Any]) -> None:
        self._arrays, self._load_regressor = dict(arrays), load_regressor

    def decode(self, node: Any, place: str) -> Any:
        """Build the object that a complete tree encodes."""
        value = self._decode(node, place, 0)
        for name in self._arrays:
            raise Invalid(_short(name), "is a tensor that the tree does not use")
        return value

    def _decode(self, node: Any, place: str, depth: int) -> Any:
        if depth > DEEPEST:
            raise Invalid(place[:200], "is nested too deeply")
        if isinstance(node, list):
            if not any(isinstance(item, list | dict) for item in node):
                return [_checked_scalar(item, place) for item in node]
            return [self._decode(item, f"{place}.{i}", depth + 1) for i, item in enumerate(node)]
        if not isinstance(node, dict):
            return _checked_scalar(node, place)
        if len(node) != 1:
            raise Invalid(place, f"must have one key that gives its kind, has {len(node)}")
        ((kind, body),) = node.items()
        decode = getattr(self, f"_decode_{kind}", None)
        if decode is None:
            raise Invalid(place, f"has the unknown kind {_short(kind)}")
        return decode(body, place, depth)

    def _decode_number(self, body: Any, place: str, depth: int) -> float:
        if not isinstance(body, str) or body not in NOT_FINITE:
            raise Invalid(place, "must be 'nan', 'inf' or '-inf'")
        return NOT_FINITE[body]

    def _decode_tuple(self, body: Any, place: str, depth: int) -> tuple[Any, ...]:
        return tuple(self._decode(_checked(body, list, place), place, depth))

    def _decode_dict(self, body: Any, place: str, depth: int) -> dict[str, Any]:
        return {
            _checked_scalar(key, place): self._decode(item, f"{place}.{_short(key, quoted=False)}", depth + 1)
            for key, item in _checked(body, dict, place).items()
        }

    def _decode_object(self, body: Any, place: str, depth: int) -> Any:
        if not isinstance(body, list) or len(body) != 2 or not isinstance(body[0], str):
            raise Invalid(place, "must have the name of a class and its fields")
        cls = STORED.get(body[0])
        if cls is None:
            raise Invalid(place, f"has the class {_short(body[0])}, which a model file cannot contain")
        fields = self._decode_dict(body[1], place, depth)
        check_fields(cls, fields, place)
        try:
            return cls.from_state(fields)
        except Invalid:
            raise
        except Exception as error:  # constructors check their arguments
            raise Invalid(place, f"is not a valid {cls.__name__}: {error}") from error

    def _decode_objects(self, body: Any, place: str, depth: int) -> np.ndarray:
        shape, items = _checked(body, list, place, 2)
        values = self._decode(_checked(items, list, place), place, depth)
        if math.prod(_shape(shape, place)) != len(values):
            raise Invalid(place, f"has {len(values)} objects in an array of shape {_short(shape)}")
        # np.array would make a second axis from tuples.
        return np.fromiter(values, dtype=object, count=len(values)).reshape(shape)

    def _decode_regressor(self, body: Any, place: str, depth: int) -> Any:
        return self._load_regressor(self._take(body, place, np.uint8).tobytes(), place)

    def _decode_array(self, body: Any, place: str, depth: int) -> np.ndarray:
        name, order = _checked(body, list, place, 2)
        if order not in ("C", "F"):
            raise Invalid(place, "must have the order 'C' or 'F'")
        array = self._take(name, place)
        return array if order == "C" else array.T

    def _decode_strings(self, body: Any, place: str, depth: int) -> np.ndarray:
        codes = self._take(body, place, np.uint32, MOST_DIMENSIONS + 1)
        if not codes.ndim or not 0 < codes.shape[-1] <= LONGEST_STRING:
            raise Invalid(place, "must be an array of strings")
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise Invalid(place, "contains an invalid character")
        return codes.view(f"<U{codes.shape[-1]}").reshape(codes.shape[:-1])

    def _decode_csr(self, body: Any, place: str, depth: int) -> sparse.csr_array:
        *parts, shape = _checked(body, list, place, 4)
        data, indices, indptr = (self._decode(part, place, depth + 1) for part in parts)
        for array, dtypes in ((data, ("f8",)), (indices, ("i4", "i8")), (indptr, ("i4", "i8"))):
            if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.str[1:] not in dtypes:
                raise Invalid(place, "must have one-dimensional arrays of numbers, columns and row pointers")
        try:
            matrix = sparse.csr_array((data, indices, indptr), shape=tuple(_shape(shape, place)))
            matrix.check_format(full_check=True)
        except (ValueError, TypeError) as error:
            raise Invalid(place, f"is not a valid sparse matrix in CSR format: {error}") from error
        # Compiled code requires increasing column indices in every row.
        if not matrix.has_canonical_format or len(matrix.data) != len(data) or not np.isfinite(data).all():
            raise Invalid(place, "is not a valid sparse matrix in CSR format")
        return matrix

    def _take(
        self, name: Any, place: str, dtype: type | None = None, most_dimensions: int = MOST_DIMENSIONS
    ) -> np.ndarray:
        """Return the array of this name, which may be used only once."""
        if not isinstance(name, str) or name not in self._arrays:
            raise Invalid(place, f"needs the tensor {_short(name)}, which is missing or used before")
        array = self._arrays.pop(name)
        if array.dtype.str[1:] not in DTYPES or (dtype is not None and array.dtype != dtype):
            raise Invalid(place, f"has a tensor of the type {array.dtype}")
        if array.ndim > most_dimensions:
            raise Invalid(place, f"has a tensor of {array.ndim} dimensions")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise Invalid(place, "contains a boolean that is neither 0 nor 1")
        return array


def _checked_scalar(value: Any, place: str) -> Any:
    if isinstance(value, str) and (len(value) > LONGEST_STRING or _SURROGATE.search(value)):
        raise Invalid(place[:200], f"has a string that is invalid or longer than {LONGEST_STRING:,} letters")
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise Invalid(place, "must be an integer of at most 64 bits")
    return value


def _checked(body: Any, kind: Any, place: str, length: int | None = None) -> Any:
    if type(body) is not kind or (length is not None and len(body) != length):
        raise Invalid(place, f"must be a {kind.__name__}" + (f" of length {length}" if length else ""))
    return body


def _shape(shape: Any, place: str) -> list[int]:
    is_short = isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS
    if not is_short or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise Invalid(place, f"has the invalid shape {_short(shape)}")
    return shape


def _short(value: Any, *, quoted: bool = True) -> str:
    """Shorten a value of an untrusted file for a message."""
    text = repr(value) if quoted else ascii(value)[1:-1]
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_regressor(value: Any) -> bool:
    """Return whether an object is an estimator, to be stored with skops."""
    return hasattr(value, "predict") and hasattr(value, "get_params") and not isinstance(value, type)


def dump_regressor(value: Any, place: str) -> bytes:
    """Return a regressor as bytes in the skops format."""
    name = type(value).__name__
    try:
        from skops.io import dumps, loads
    except ImportError:
        raise TypeError(
            f"{place}: {name} is saved in the format of skops; install the extra 'all', or pickle the learner"
        ) from None
    try:
        content: bytes = dumps(value)
        # Some objects cannot be read back, such as instances of a class defined inside a function.
        loads(content, trusted=_types_in(content))
    except Exception as error:
        raise TypeError(
            f"{place}: skops cannot save {name}: {error}. Pickle the learner, or use another regressor."
        ) from error
    return content


def load_regressor(content: bytes, place: str) -> Any:
    """Read a regressor; this can execute code, so the caller must trust its author."""
    try:
        from skops.io import loads
    except ImportError:
        raise Invalid(place, "is a regressor in skops format; install the extra 'all' to read it") from None
    regressor = loads(content, trusted=_types_in(content))
    if not is_regressor(regressor):
        raise Invalid(place, f"must be a regressor, is {type(regressor).__name__}")
    return regressor


def _types_in(content: bytes) -> list[str]:
    from skops.io import get_untrusted_types

    return list(get_untrusted_types(data=content))


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
