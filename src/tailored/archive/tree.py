"""Trees of our own objects, as JSON and arrays.

An object stands as the name of its class and its fields (`Node`): the dictionary that its ``state`` method gives, or
the fields of a dataclass or named tuple.  Words, numbers and containers stand in the JSON; arrays are members in
NumPy's format, whose header the JSON determines, so that none is ever parsed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np

from .container import Broken

#: The member with the tree, and the most of it: of a larger one Python's objects would fill the memory.
TREE, MOST_JSON = "model.json", 2**26
#: Containers within containers, dimensions of an array, and letters of a word in one.
DEEPEST, MOST_DIMENSIONS, LONGEST_WORD = 60, 4, 4096
#: Numbers, truth values and words: all that an array may hold.
DTYPES = re.compile(r"<f[48]|<[iu][248]|\|[iu]1|\|b1|<U[1-9][0-9]{0,3}")

NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class Node:
    """An object of a class of ours, in parts."""

    kind: str
    parts: dict[str, Any]


@dataclass(frozen=True)
class Regressor:
    """A regressor of scikit-learn, in the bytes of skops' format."""

    content: bytes


class Unstorable(TypeError):
    """A value that a file cannot hold: its place, and what it is."""

    def __init__(self, place: str, value: Any) -> None:
        self.place, self.value = place, value
        super().__init__(f"{place}: {type(value).__name__}")


# --- objects to nodes


def plain(value: Any, place: str, dump: Any) -> Any:
    """``value`` with every object as a `Node`; ``dump`` makes bytes of a regressor."""

    def items(values: Mapping[Any, Any]) -> dict[str, Any]:
        return {_name(key, place): plain(item, f"{place}.{key}", dump) for key, item in values.items()}

    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        return plain(value.item(), place, dump)
    if isinstance(value, np.ndarray):
        return _plain_array(value, place, dump)
    if type(value).__module__.partition(".")[0] == "tailored":
        return Node(type(value).__name__, items(_state(value, place)))
    if isinstance(value, dict):
        return items(value)
    if type(value) in (list, tuple):
        return type(value)(plain(item, f"{place}.{i}", dump) for i, item in enumerate(value))
    if hasattr(value, "predict") and hasattr(value, "get_params"):
        return Regressor(dump(value, place))
    raise Unstorable(place, value)


def _name(key: Any, place: str) -> str:
    if type(key) is not str:
        raise Unstorable(place, key)
    return key


def _plain_array(value: np.ndarray, place: str, dump: Any) -> np.ndarray:
    if value.dtype == object:
        if value.ndim != 1:
            raise Unstorable(place, value)
        return _of_objects([plain(item, f"{place}.{i}", dump) for i, item in enumerate(value)])
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    too_long = little.dtype.kind == "U" and little.dtype.itemsize > 4 * LONGEST_WORD
    if not DTYPES.fullmatch(little.dtype.str) or too_long or value.ndim > MOST_DIMENSIONS:
        raise Unstorable(place, value.flat[0] if value.size else value)
    return little


def _of_objects(values: list[Any]) -> np.ndarray:
    # Not np.array: it would spread tuples over a second axis.
    return np.fromiter(values, dtype=object, count=len(values))


def _state(value: Any, place: str) -> Mapping[str, Any]:
    if hasattr(value, "state"):
        state: Mapping[str, Any] = value.state()
        return state
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: getattr(value, part.name) for part in fields(value) if part.init}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        named: Mapping[str, Any] = value._asdict()
        return named
    raise Unstorable(place, value)


# --- nodes to members


def members(content: Any) -> dict[str, bytes]:
    """The members of a file that holds a plain tree."""
    arrays: list[bytes] = []
    regressors: list[bytes] = []

    def encode(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")}
        if isinstance(value, Node):
            return {"object": [value.kind, {key: encode(item) for key, item in value.parts.items()}]}
        if isinstance(value, Regressor):
            regressors.append(value.content)
            return {"regressor": len(regressors) - 1}
        if isinstance(value, dict):
            return {"dict": {key: encode(item) for key, item in value.items()}}
        if isinstance(value, np.ndarray) and value.dtype != object:
            columns = value.flags.f_contiguous and not value.flags.c_contiguous
            order: Literal["C", "F"] = "F" if columns else "C"
            arrays.append(npy_header(value.dtype.str, value.shape, order) + value.tobytes(order))
            return {"array": [len(arrays) - 1, value.dtype.str, list(value.shape), order]}
        if isinstance(value, np.ndarray | list | tuple):
            kind = {np.ndarray: "objects", list: "list", tuple: "tuple"}[type(value)]
            return {kind: [encode(item) for item in value]}
        return value

    tree = json.dumps(encode(content), separators=(",", ":"), allow_nan=False).encode()
    if len(tree) > MOST_JSON:
        raise ValueError(
            f"path: the words and labels of the model take {len(tree):,} bytes, too many for one file"
        )
    return {TREE: tree, **_named("arrays/{}.npy", arrays), **_named("regressors/{}.skops", regressors)}


def _named(name: str, bodies: list[bytes]) -> dict[str, bytes]:
    return {name.format(i): body for i, body in enumerate(bodies)}


def npy_header(dtype: str, shape: tuple[int, ...], order: str) -> bytes:
    """The header of NumPy's format, version 1.0."""
    text = f"{{'descr': '{dtype}', 'fortran_order': {order == 'F'}, 'shape': {shape}, }}"
    padding = -(10 + len(text) + 1) % 64
    return (
        b"\x93NUMPY\x01\x00"
        + (len(text) + padding + 1).to_bytes(2, "little")
        + f"{text}{' ' * padding}\n".encode()
    )


# --- members to nodes


def parse(found: Mapping[str, memoryview]) -> Any:
    """The JSON of a file, as it stands."""
    if TREE not in found:
        raise Broken(TREE, "is missing")
    if len(found[TREE]) > MOST_JSON:
        raise Broken(TREE, f"has {len(found[TREE]):,} bytes, more than the {MOST_JSON:,} that are read")
    try:
        return json.loads(str(found[TREE], "utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except Broken:
        raise
    except RecursionError:
        raise Broken(TREE, "is nested too deeply") from None
    except ValueError as error:  # of JSON, of UTF-8, or of a number with thousands of digits
        raise Broken(TREE, f"is no JSON: {error}") from error


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        for name, _ in pairs:
            if name not in found:  # it was met before
                raise Broken(TREE, f"has the name {_short(name)} twice in one place")
            del found[name]
    return found


def _no_constant(word: str) -> Any:
    raise Broken(TREE, f"holds {word}, which is no JSON")


class Decoder:
    """Makes a plain tree of the JSON and the other members, each of which is used once and in its turn."""

    def __init__(self, found: Mapping[str, memoryview]) -> None:
        self._found, self._n_used = found, {"arrays": 0, "regressors": 0}

    def tree(self, node: Any) -> Any:
        value = self._decode(node, "", 0)
        used = {TREE, *(f"arrays/{i}.npy" for i in range(self._n_used["arrays"]))}
        used.update(f"regressors/{i}.skops" for i in range(self._n_used["regressors"]))
        for name in self._found:
            if name not in used:
                raise Broken(_short(name), "is a member that nothing in the file names")
        return value

    def _decode(self, node: Any, place: str, depth: int) -> Any:
        if depth > DEEPEST:
            raise Broken(place, "is nested too deeply")
        if isinstance(node, str) and not _is_text(node):
            raise Broken(place, "holds half of a character")
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise Broken(place, "is a bare list, which save does not write")
            return node
        if len(node) != 1:
            raise Broken(place, f"has {len(node)} kinds instead of one")
        ((kind, body),) = node.items()
        readers = {
            "number": self._number,
            "array": self._array,
            "regressor": self._regressor,
            "object": self._object,
            "dict": self._dict,
            "list": self._sequence,
            "tuple": self._sequence,
            "objects": self._sequence,
        }
        if kind not in readers:
            raise Broken(place, f"is of the kind {_short(kind)}, which save does not write")
        value: Any = readers[kind](body, place, depth)
        if kind == "objects":
            return _of_objects(value)
        return tuple(value) if kind == "tuple" else value

    def _number(self, body: Any, place: str, depth: int) -> float:
        if not isinstance(body, str) or body not in NOT_FINITE:
            raise Broken(place, "is no number that save writes in words")
        return NOT_FINITE[body]

    def _dict(self, body: Any, place: str, depth: int) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise Broken(place, "has fields without names")
        found = {}
        for key, item in body.items():
            if not _is_text(key):
                raise Broken(place, "has half of a character in a name")
            found[key] = self._decode(item, f"{place}.{_short(key, quoted=False)}".lstrip("."), depth + 1)
        return found

    def _object(self, body: Any, place: str, depth: int) -> Node:
        if not isinstance(body, list) or len(body) != 2 or not isinstance(body[0], str):
            raise Broken(place, "is no object with a name and fields")
        return Node(body[0], self._dict(body[1], place, depth))

    def _sequence(self, body: Any, place: str, depth: int) -> list[Any]:
        if not isinstance(body, list):
            raise Broken(place, "is no list")
        return [self._decode(item, f"{place}.{i}", depth + 1) for i, item in enumerate(body)]

    def _regressor(self, body: Any, place: str, depth: int) -> Regressor:
        return Regressor(bytes(self._next("regressors", "skops", body, place)))

    def _next(self, folder: str, ending: str, number: Any, place: str) -> memoryview:
        if type(number) is not int or number != self._n_used[folder]:
            raise Broken(place, f"names a member of {folder} that is not the next one")
        name = f"{folder}/{number}.{ending}"
        if name not in self._found:
            raise Broken(name, f"is missing, which {place} names")
        self._n_used[folder] += 1
        return self._found[name]

    def _array(self, body: Any, place: str, depth: int) -> np.ndarray:
        if not isinstance(body, list) or len(body) != 4:
            raise Broken(place, "is no array with a member, a type, a shape and an order")
        number, dtype, shape, order = body
        if not isinstance(dtype, str) or not DTYPES.fullmatch(dtype) or order not in ("C", "F"):
            raise Broken(place, f"is an array of a type that save does not write: {_short(dtype)}")
        kind = np.dtype(dtype)
        if kind.kind == "U" and kind.itemsize > 4 * LONGEST_WORD:
            raise Broken(place, "is an array of words that are too long")
        if (
            not isinstance(shape, list)
            or len(shape) > MOST_DIMENSIONS
            or not all(type(n) is int and 0 <= n < 2**31 for n in shape)
        ):
            raise Broken(place, "is an array without a shape")
        body = self._next("arrays", "npy", number, place)
        name = f"arrays/{number}.npy"
        header = npy_header(dtype, tuple(shape), order)
        if body[: len(header)] != header:
            raise Broken(name, "its header is not the one that its type and shape ask for")
        if len(body) - len(header) != math.prod(shape) * kind.itemsize:
            raise Broken(
                name,
                f"has {len(body) - len(header):,} bytes, not those of {dtype} in the shape {tuple(shape)}",
            )
        flat = np.frombuffer(body[len(header) :], dtype=kind).copy()
        _check_bits(flat, name)
        return flat.reshape(shape, order=order)


def _check_bits(flat: np.ndarray, name: str) -> None:
    """Truth values are 0 and 1, and words are made of characters."""
    if flat.dtype.kind == "b" and (flat.view(np.uint8) > 1).any():
        raise Broken(name, "holds a truth value that is neither 0 nor 1")
    if flat.dtype.kind == "U":
        codes = flat.view(np.uint32)
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise Broken(name, "holds a word with half of a character")


def _is_text(word: str) -> bool:
    return word.isascii() or not any("\ud800" <= letter < "\ue000" for letter in word)


def _short(value: Any, *, quoted: bool = True) -> str:
    """A stranger's value for a message."""
    text = repr(value) if quoted else ascii(value)[1:-1]
    return text if len(text) <= 60 else f"{text[:57]}..."
