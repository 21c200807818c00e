"""Model files: archives of skops with an entry for the version of the format.

skops stores the attributes of objects as JSON and arrays as .npy files, and it builds objects
without calling their constructors.  A file can contain objects of the classes below `Stored`,
arrays, numbers, strings and containers of these. `load` refuses every other type before it builds
an object.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Container, Iterator
from copy import copy
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._utils.files import PathLike, write_atomically
from ._utils.records import Stored
from ._version import __version__
from .exceptions import ModelFileError

#: Version of the file format, both written and read, and the entry of the archive with it.
FORMAT, ENTRY = 8, "tailored.json"
#: Types that a file can contain besides the classes below `Stored`, by the loader of skops that
#: builds them.
TYPES = {
    "DictNode": {"builtins.dict"},
    "JsonNode": {"builtins.str"},
    "ListNode": {"builtins.list"},
    "NdArrayNode": {
        "numpy.ndarray",
        *(f"numpy.{np.dtype(code).type.__name__}" for code in "?bhilqBHILQfdU"),
    },
    "SparseMatrixNode": {"scipy.sparse._csr.csr_array"},
    "TupleNode": {"builtins.tuple"},
    "TypeNode": {"builtins.str"},  # the type of keys
}
#: Advice for each part of a learner that cannot be saved.
ADVICE = {
    "feature_map": "the maps 'mean', 'ridge', 'angle' and 'vector' can be saved. Compute the "
    "features yourself and pass them as side_info with feature_map='vector', or define the "
    "function in a module and pickle the learner",
    "tau": "a number or an array can be saved. Otherwise, define the function in a module and "
    "pickle the learner",
    "labels": "use numbers, strings or tuples of these as task labels, or pickle the learner",
    "random_state": "use an integer",
}


def save(path: PathLike, model: Stored) -> None:
    """Write a fitted learner, or the model of one task, to a file, atomically.

    The content is read back before it replaces an earlier file.
    """
    model = copy(model)
    for name in getattr(model, "unsaved", ()):
        vars(model).pop(name, None)
    content = _dump(model)
    try:
        again = _build(content, path)
    except ModelFileError as error:
        raise ValueError(f"model: cannot be saved: {error}") from error
    if _state(_dump(again)) != _state(content):
        raise ValueError("model: cannot be saved: it differs after reading. Pickle it instead.")
    write_atomically(path, content)


def load(path: PathLike) -> Any:
    """Read a learner, or the model of one task, from a file written by its ``save``.

    A loaded learner of the paper cannot continue `partial_fit`. SECURITY.md describes what an
    untrusted file can do.

    Raises
    ------
    ModelFileError
        A ValueError that names the file, the invalid part, and the reason.
    OSError
        If the file does not exist or cannot be opened.
    """
    # Check before opening, because opening a pipe would wait for a writer.
    if os.path.exists(path) and not os.path.isfile(path):
        raise ModelFileError(f"path: {path} is not a regular file")
    return _build(Path(path).read_bytes(), path)


def _dump(model: Stored) -> bytes:
    """Return the content of a file; raise TypeError if it cannot contain a part of the model."""
    from skops.io import dump

    file = io.BytesIO()
    try:
        dump(model, file, compression=ZIP_DEFLATED)
    except Exception as error:  # skops raises various errors for objects that it does not know
        raise TypeError(
            f"model: cannot be saved without pickle: {error}; pickle the learner"
        ) from error
    with ZipFile(file, "a", ZIP_DEFLATED) as archive:
        archive.writestr(ENTRY, json.dumps({"format": FORMAT, "version": __version__}))
        schema = json.loads(archive.read("schema.json"))
    for place, kind in _refused(schema, _classes()):
        advice = next(
            (text for part, text in ADVICE.items() if part in place), "pickle the learner"
        )
        raise TypeError(f"{place or 'model'}: {kind} cannot be saved without pickle; {advice}")
    return file.getvalue()


def _build(content: bytes, path: PathLike) -> Any:
    """Build a model from the content of a file; ``path`` is for errors."""
    from skops.io import loads

    try:
        with ZipFile(io.BytesIO(content)) as archive:
            head = json.loads(archive.read(ENTRY))
            if head["format"] != FORMAT:
                number, version = str(head["format"])[:20], str(head["version"])[:40]
                found = f"the format {number} of tailored {version}"
                advice = "Read it with that version, or fit and save again."
                raise ValueError(f"it has {found}; this version reads format {FORMAT}. {advice}")
            # At most 256 MiB, or 50 times the size of the file.
            if (total := _size(archive)) > max(1 << 28, 50 * len(content)):
                raise ValueError(f"{len(content):,} bytes declare {total:,} bytes of entries")
            schema = json.loads(archive.read("schema.json"))
        classes = _classes()
        for place, kind in _refused(schema, classes):
            raise ValueError(
                f"{place or 'model'} has the type {kind[:200]}, which a model file cannot contain"
            )
        top = f"{schema['__module__']}.{schema['__class__']}"
        if not hasattr(classes.get(top), "save"):
            raise ValueError(
                f"it contains {top[:200]}; it must be a learner or the model of one task"
            )
        model = loads(content, trusted=[*classes, *TYPES["SparseMatrixNode"]])
        check_is_fitted(model)
        return model
    except (BadZipFile, KeyError) as error:
        reason = f"is damaged, or was not written by `save` of this version of tailored ({error})"
        raise ModelFileError(
            f"path: {path} {reason}. Copy it again, or fit and save again."
        ) from error
    except Exception as error:
        # An untrusted file can trigger any exception; report all of them as ModelFileError.
        reason = f"cannot be read: {type(error).__name__}: {error}"
        raise ModelFileError(f"path: {path} {reason}") from error


def _size(archive: ZipFile) -> int:
    """Return the declared size of the entries of an archive, and of the archives in it."""
    total = 0
    for entry in archive.infolist():
        total += entry.file_size
        with archive.open(entry) as file:
            if file.read(2) == b"PK":  # a sparse matrix
                total += _size(ZipFile(file))
    return total


def _refused(node: Any, classes: Container[str], place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path and the type of each object in a schema that a file cannot contain."""
    if isinstance(node, dict) and "__loader__" in node:
        loader, kind = node["__loader__"], ".".join([node["__module__"], node["__class__"]])
        if kind not in (classes if loader == "ObjectNode" else TYPES.get(loader, ())):
            yield place, kind
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, dict | list):
            # Keys of skops are not a part of the path.
            inside = place if key in ("content", "key_types") else f"{place}.{key}".lstrip(".")
            yield from _refused(value, classes, inside)


def _classes(base: type = Stored) -> dict[str, type]:
    """Return the classes of this package below ``base``, by the names that skops uses."""
    found: dict[str, type] = {}
    kind: type
    for kind in base.__subclasses__():
        if kind.__module__.partition(".")[0] == __package__:
            found |= {f"{kind.__module__}.{kind.__qualname__}": kind, **_classes(kind)}
    return found


def _state(content: bytes) -> Any:
    """Return the schema of a file with the bytes of the arrays and without the names that differ
    between two writings.
    """
    with ZipFile(io.BytesIO(content)) as archive:

        def plain(node: dict[str, Any]) -> dict[str, Any]:
            node.pop("__id__", None)
            if isinstance(name := node.get("file"), str):
                node["file"] = archive.read(name)
            return node

        return json.loads(archive.read("schema.json"), object_hook=plain)
