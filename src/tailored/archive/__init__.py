"""Model files: our own objects in one file, without pickle.

`container` is the file's bytes, `tree` its JSON and arrays, `schemas` what may stand in it, `regressors` the common
part in skops' format, `writing` how it comes to the disk.  The writer checks what it writes as the reader does, so that
what could not be read is never written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

from ..exceptions import MissingModelFileError, ModelFileError
from .container import MOST_BYTES, Broken, pack, unpack
from .kinds import Wrong, is_node, need, word
from .regressors import dump_regressor, load_regressor
from .schema import check_node
from .schemas import WHOLE
from .tree import Decoder, Node, Regressor, Unstorable, members, parse, plain
from .writing import write_whole

#: The format that is written, and those that are read: one that was ever written stays among them.
FORMAT, READABLE = 4, (4,)

#: What to do instead, by the part of a learner that cannot be written.
_ADVICE = {
    "feature_map": "compute the features yourself and pass them as side_info with feature_map='vector', "
    "or pickle the learner",
    "labels": "use numbers, words or tuples of these as the labels of tasks, or pickle the learner",
    "random_state": "give a number",
}


def write(path: Any, value: Any, version: str) -> None:
    """Write a learner, a paused one or the model of a task, whole or not at all."""
    name = type(value).__name__
    try:
        found = plain(value, name, dump_regressor)
        check_node(found, name)
    except Unstorable as error:
        advice = next((text for part, text in _ADVICE.items() if part in error.place), "pickle the learner")
        kind = type(error.value).__name__
        raise TypeError(f"{error.place}: {kind} cannot be saved without pickle; {advice}") from None
    except Wrong as error:
        raise ValueError(f"{error.place}: cannot be saved: it {error.reason}") from error
    write_whole(path, pack(members({"format": FORMAT, "version": version, "value": found})))


def read(path: Any, known: Mapping[str, Any]) -> Any:
    """Read what `write` wrote; ``known`` are the classes, by the names that schemas give them.

    Raises
    ------
    ModelFileError
        Whatever is wrong with the file.
    """
    content = _content(path)
    try:
        return _read(content, known)
    except Broken as error:
        raise ModelFileError(path, error.member, error.reason) from error
    except Wrong as error:
        raise ModelFileError(path, error.place, error.reason) from error
    except Exception as error:
        # The last gate: a stranger's file may find what nobody thought of, and that is the file's failure too.
        raise ModelFileError(path, "", f"cannot be read: {type(error).__name__}: {error}") from error


def _content(path: Any) -> bytes:
    """The bytes of an ordinary file."""
    try:
        # Looked at before it is opened: a pipe would keep us waiting.
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(
                path, "", f"is {'a folder' if stat.S_ISDIR(status.st_mode) else 'no ordinary file'}"
            )
        if status.st_size > MOST_BYTES:
            raise ModelFileError(path, "", f"has {status.st_size:,} bytes, more than a model file can have")
        with open(path, "rb") as file:
            return file.read(status.st_size)
    except FileNotFoundError:
        raise MissingModelFileError(path, "", "there is no such file") from None
    except OSError as error:
        raise ModelFileError(path, "", f"cannot be opened: {error.strerror or error}") from error


def _read(content: bytes, known: Mapping[str, Any]) -> Any:
    found = unpack(content)
    head = parse(found)
    body = head.get("dict") if isinstance(head, dict) else None
    if not isinstance(body, dict) or set(body) != {"format", "version", "value"}:
        raise Broken("model.json", "is not one that save writes")
    number, version = body["format"], body["version"]
    word(version, "version")
    need(type(number) is int and 0 < number < 10**6, "format", "must be a number of a format")
    if number not in READABLE:
        raise Broken(
            "model.json",
            f"was written by tailored {version[:40]!r} in format {number}; this version reads format "
            f"{', '.join(map(str, READABLE))}. Read it with that version, or fit and save again",
        )
    value = Decoder(found).tree(head)["value"]
    need(is_node(value, *WHOLE), "value", "is no learner and no model of a task")
    check_node(value, value.kind)
    need(value.parts.get("fitted", True), value.kind, "is not fitted")
    try:
        return _build(value, known)
    except ValueError as error:  # what a class says itself of its own fields
        raise error if isinstance(error, Broken) else Wrong(value.kind, str(error)) from error


def _build(value: Any, known: Mapping[str, Any]) -> Any:
    """The objects of a tree that was checked."""
    if type(value) is Node:
        state, cls = {name: _build(part, known) for name, part in value.parts.items()}, known[value.kind]
        return cls.from_state(state) if hasattr(cls, "from_state") else cls(**state)
    if type(value) is Regressor:
        return load_regressor(value.content)
    if type(value) is dict:
        return {name: _build(part, known) for name, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_build(part, known) for part in value)
    return value


__all__ = ["FORMAT", "READABLE", "read", "write"]
