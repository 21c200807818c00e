"""Plain trees of our own objects in one file, without pickle: words and numbers as JSON, arrays as NPZ.

An object is written as the name of its class and its state: the dictionary that its ``state`` method gives, or the
fields of a dataclass or named tuple.  Reading turns the names back through a table of known classes, which the
reader brings; a name that is not in it is refused.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 3

#: The members of a file.
TREE, ARRAYS = "learner.json", "arrays.npz"

#: What to do instead, by the part of a learner that cannot be written.
_ADVICE = {
    "feature_map": "; compute the features yourself and pass them as side_info with feature_map='vector', "
    "or pickle the learner",
    "common": "; a common part is code as well: pickle the learner, or leave common out",
    "task_labels_": "; use numbers, words or tuples of these as the labels of tasks, or pickle the learner",
    "random_state": "; give a number",
}


def write(path: Any, value: Any, version: str) -> None:
    """Write ``value``, all of whose parts are numbers, words, arrays, containers or objects of this package."""
    arrays: dict[str, np.ndarray] = {}
    content = {"format": FORMAT, "version": version, "value": _encode("value", value, arrays)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **dict[str, Any](arrays))
    target = Path(path)
    # Written aside and moved into place: a run that dies while saving leaves the old file whole.
    partial = target.with_name(target.name + ".part")
    with open(partial, "wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(TREE, json.dumps(content, indent=1))
            archive.writestr(ARRAYS, buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, target)


def read(path: Any, known: Mapping[str, type]) -> Any:
    """Read what `write` wrote; ``known`` are the classes that may be in it, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read(TREE))
            with np.load(io.BytesIO(archive.read(ARRAYS)), allow_pickle=False) as stored:
                arrays = dict(stored)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"path: {path} is not a file written by tailored's save ({error})") from error
    if content["format"] != FORMAT:
        raise ValueError(
            f"path: {path} was written by tailored {content['version']} in format {content['format']}; "
            f"this version reads format {FORMAT}. Read it with that version, or fit and save again."
        )
    return _decode(content["value"], arrays, known)


def _encode(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """JSON for ``value``; arrays go aside, under the name of the place they were found at."""

    def items(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: _encode(f"{name}.{key}", item, arrays) for key, item in values.items()}

    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype != object:
        arrays[name] = value
        return {"array": name}
    if _is_ours(value):
        return {"object": [type(value).__name__, items(_state(name, value))]}
    if isinstance(value, dict):
        return {"dict": items(value)}
    if isinstance(value, np.ndarray | list | tuple):
        kind = {np.ndarray: "objects", list: "list", tuple: "tuple"}[type(value)]
        return {kind: [_encode(f"{name}.{i}", item, arrays) for i, item in enumerate(value)]}
    raise _refused(name, value)


def _is_ours(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == __package__


def _state(name: str, value: Any) -> Mapping[str, Any]:
    if hasattr(value, "state"):
        state: Mapping[str, Any] = value.state()
        return state
    if is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in fields(value) if part.init}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        named: Mapping[str, Any] = value._asdict()
        return named
    raise _refused(name, value)


def _refused(name: str, value: Any) -> TypeError:
    advice = next((text for part, text in _ADVICE.items() if part in name), "; pickle the learner")
    return TypeError(f"{name}: {type(value).__name__} cannot be saved without pickle{advice}")


def _decode(node: Any, arrays: Mapping[str, np.ndarray], known: Mapping[str, type]) -> Any:
    """The value that `_encode` was given."""
    if not isinstance(node, dict):
        return node
    ((kind, body),) = node.items()
    if kind == "array":
        return arrays[body]
    if kind == "dict":
        return {key: _decode(item, arrays, known) for key, item in body.items()}
    if kind == "object":
        name, parts = body
        if name not in known:
            raise ValueError(f"path: the file names {name!r}, which is nothing that tailored stores")
        state = {key: _decode(item, arrays, known) for key, item in parts.items()}
        cls: Any = known[name]
        return cls.from_state(state) if hasattr(cls, "from_state") else cls(**state)
    values = [_decode(item, arrays, known) for item in body]
    if kind == "objects":
        return np.fromiter(values, dtype=object, count=len(values))
    return tuple(values) if kind == "tuple" else values
