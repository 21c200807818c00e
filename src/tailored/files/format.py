"""Model files: a safetensors container with arrays and a JSON tree.

The tensor "tree" contains the JSON text (`tailored.files.tree`).  The metadata contains the SHA-256 checksum of the file,
computed with 64 zeros in place of the checksum.  Reading a file does not execute code from it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._utils.files import PathLike, write_atomically
from .._utils.records import Stored
from .._version import __version__
from ..exceptions import MissingModelFileError, ModelFileError
from .tree import Decoder, Encoder, Invalid, load_json

#: Version of the file format, both written and read.
FORMAT = 6
#: A file starts with the header length (8 bytes) and this text; the checksum follows.
START = b'{"__metadata__":{"sha256":"'
CHECKSUM = slice(8 + len(START), 8 + len(START) + 64)


def save(path: PathLike, model: Stored) -> None:
    """Write a fitted learner, or the model of one task, to a file, atomically."""
    encoder = Encoder()
    value = encoder.encode(model, "model")
    tree = json.dumps({"format": FORMAT, "version": __version__, "value": value}, separators=(",", ":"))
    try:
        # Before writing the file, check that it can be read.
        _build(tree.encode(), encoder.arrays)
    except Invalid as error:
        raise ValueError(f"{error.place}: cannot be saved: it {error.reason}") from error
    write_atomically(path, pack(tree.encode(), encoder.arrays))


def load(path: PathLike) -> Any:
    """Read a learner, or the model of one task, from a file written by its ``save``.

    A loaded learner adapts, predicts and scores as before, but one of the paper cannot continue a stream of `partial_fit`.  SECURITY.md
    describes what an untrusted file can do.

    Raises
    ------
    ModelFileError
        A ValueError that names the file, the invalid part, and the reason.  If the file does not exist, it is also a
        FileNotFoundError.
    """
    content = _read(path)
    try:
        return _build(*unpack(content))
    except Invalid as error:
        raise ModelFileError(path, error.place, error.reason) from error
    except NotFittedError:
        raise ModelFileError(path, "", "is not fitted") from None
    except Exception as error:
        # An untrusted file can trigger any exception; report all of them as ModelFileError.
        raise ModelFileError(path, "", f"cannot be read: {type(error).__name__}: {error}") from error


def _read(path: PathLike) -> bytes:
    """Read the bytes of a regular file."""
    try:
        # Check before opening, because opening a pipe would wait for a writer.
        if os.path.exists(path) and not os.path.isfile(path):
            raise ModelFileError(path, "", "is not a regular file")
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise MissingModelFileError(path, "", "this file does not exist") from None
    except OSError as error:
        raise ModelFileError(path, "", f"cannot be opened: {error.strerror or error}") from error


def _build(content: bytes, arrays: dict[str, np.ndarray]) -> Any:
    """Build a model from its JSON and its arrays."""
    tree = load_json(content)
    if not isinstance(tree, dict) or set(tree) != {"format", "version", "value"}:
        raise Invalid("tree", "must have a format, a version and a value")
    if tree["format"] != FORMAT:
        raise Invalid(
            "tree",
            f"has the format {str(tree['format'])[:20]} of tailored {str(tree['version'])[:40]}; this version reads "
            f"format {FORMAT}. Read it with that version, or fit and save again.",
        )
    model = Decoder(arrays).decode(tree["value"], "model")
    if not hasattr(model, "save"):
        raise Invalid("model", "must be a learner or the model of one task")
    check_is_fitted(model)
    return model


def pack(tree: bytes, arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes of a file."""
    tensors = {**arrays, "tree": np.frombuffer(tree, dtype=np.uint8)}
    content = save_tensors(tensors, metadata={"sha256": "0" * 64})
    assert content[8 : 8 + len(START)] == START
    return content[: CHECKSUM.start] + _checksum(content) + content[CHECKSUM.stop :]


def unpack(content: bytes) -> tuple[bytes, dict[str, np.ndarray]]:
    """Verify the checksum, and return the JSON and the arrays of a file."""
    if content[8 : 8 + len(START)] != START:
        raise Invalid("", "is not a model file: it was not written by `save` of this version of tailored")
    if content[CHECKSUM] != _checksum(content):
        raise Invalid("", "is damaged: its checksum is wrong. Copy it again, or save the learner again.")
    try:
        # Copies are aligned like NumPy's own arrays, so that products are bitwise reproducible.
        arrays = {name: array.copy() for name, array in load_tensors(content).items()}
    except (SafetensorError, ValueError, KeyError) as error:
        raise Invalid("", f"is not a valid safetensors file: {error}") from error
    tree = arrays.pop("tree", None)
    if tree is None or tree.dtype != np.uint8:
        raise Invalid("tree", "is missing")
    return tree.tobytes(), arrays


def _checksum(content: bytes) -> bytes:
    digest = hashlib.sha256(content[: CHECKSUM.start] + b"0" * 64)
    digest.update(memoryview(content)[CHECKSUM.stop :])
    return digest.hexdigest().encode()
