"""Damaged, crafted and foreign files raise a ModelFileError, and no code of a foreign type runs."""

import io
import json
import os
import random
import warnings
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import skops.io
from scipy import sparse
from sklearn.linear_model import Ridge

import small_models
from tailored import IndependentLearner, TaskSet, load
from tailored.exceptions import ModelFileError
from tailored.files import ENTRY, FORMAT
from tailored.losses import Squared

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def refused(path, match=None):
    with pytest.raises(ModelFileError, match=match) as caught:
        load(path)
    return caught.value


def crafted(path, model, head=None):
    """Write a file as `save` does, but with any object."""
    content = io.BytesIO()
    skops.io.dump(model, content)
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr(ENTRY, json.dumps(head or {"format": FORMAT, "version": "0"}))
    path.write_bytes(content.getvalue())
    return path


def changed(source, target, change, **entries):
    """Write a copy of a file after ``change(schema)``, and with other entries."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in set(old.namelist()) - set(entries):
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema)
            new.writestr(name, content)
        for name, content in entries.items():
            new.writestr(name, content)
    return target


def attributes(schema):
    return schema["content"]["content"]


CALLS = []


class Reduced:
    def __reduce__(self):
        return os.system, ("exit 1",)


class Own:
    """Stands for a class whose state runs code."""

    def __setstate__(self, state):
        CALLS.append(state)


FOREIGN = {
    "an estimator": (Ridge(), r"sklearn\.linear_model\._ridge\.Ridge"),
    "a function": (os.getcwd, r"posix\.getcwd|nt\.getcwd"),
    "a function of NumPy": (np.linalg.inv, r"inv, which"),
    "a universal function": (np.exp, r"exp, which"),
    "a partial function": (partial(os.system, "exit 1"), r"functools\.partial"),
    "a method": ("".join, r"join, which"),
    "a reduced object": (Reduced(), r"Reduced, which"),
    "an object": (Own(), r"Own, which"),
    "a type": (int, r"builtins\.int, which"),
    "a path": (Path("a"), r"Path, which|PosixPath"),
    "a generator": (np.random.default_rng(0), r"Generator"),
    "a masked array": (np.ma.masked_array([1.0, 2.0], [True, False]), r"MaskedArray"),
    "another sparse matrix": (sparse.csc_matrix(np.eye(2)), r"csc_matrix"),
}


@pytest.mark.parametrize("where", ["on top", "inside"])
@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_type_is_refused_by_its_name(case, where, saved, tmp_path, monkeypatch):
    foreign, name = FOREIGN[case]
    model = foreign
    if where == "inside":
        model = load(saved("independent"))
        model.loss = [foreign]
    monkeypatch.setattr(os, "system", lambda command: pytest.fail("a command was run"))
    try:
        path = crafted(tmp_path / "a", model)
    except Exception as error:  # skops does not write this type
        pytest.skip(f"skops: {error}")
    CALLS.clear()
    error = refused(path, name)
    assert str(path) in str(error)
    assert ("loss.0 has the type" in str(error)) == (where == "inside")
    assert not CALLS


LOADERS = {
    "a constructor": {"__loader__": "ConstructorFromReduceNode", "content": {}},
    "a method": {"__loader__": "MethodNode", "content": {"func": "save", "obj": {}}},
    "a function": {"__loader__": "FunctionNode", "__module__": "os", "__class__": "system"},
    "an unknown loader": {"__loader__": "Unknown"},
    "an object of a container": {"__loader__": "ObjectNode", "__module__": "builtins", "__class__": "dict"},
    "another class of a container": {"__loader__": "DictNode", "__module__": "os", "__class__": "environ"},
    "a class of a user": {"__loader__": "ObjectNode", "__module__": "tailored.other", "__class__": "Loss"},
    "a nested name": {"__loader__": "ObjectNode", "__module__": "tailored.losses", "__class__": "np.save"},
    "a base class": {"__loader__": "ObjectNode", "__module__": "tailored._utils.records", "__class__": "Stored"},
}  # fmt: skip


@pytest.mark.parametrize("case", LOADERS)
def test_a_crafted_loader_is_refused(case, saved, tmp_path):
    def change(schema):
        attributes(schema)["loss_"].update(LOADERS[case])

    refused(
        changed(saved("independent"), tmp_path / "a", change),
        r"loss_ has the type .*cannot contain",
    )


def test_the_top_must_be_a_learner(tmp_path):
    for model in (Squared(), {"a": 1}, 3, TaskSet(np.eye(2), np.ones(2))):
        refused(crafted(tmp_path / "a", model), "must be a learner or the model of one task")
    refused(crafted(tmp_path / "a", IndependentLearner()), "NotFittedError")


def test_another_format_is_refused_before_an_object_is_built(tmp_path):
    path = crafted(tmp_path / "a", Own(), {"format": 99, "version": "9.9"})
    refused(
        path,
        rf"has the format 99 of tailored 9\.9; this version reads format {FORMAT}\. .*fit and save "
        rf"again",
    )
    assert not CALLS
    old = b'\x40\0\0\0\0\0\0\0{"__metadata__":{"sha256":"' + b"0" * 100  # format 6
    for content in (b"", b"hello", b"PK\3\4" + bytes(500), old):
        (tmp_path / "a").write_bytes(content)
        refused(
            tmp_path / "a",
            r"is damaged, or was not written by `save` of this version .* fit and save again",
        )
    skops.io.dump(Own(), tmp_path / "a")
    refused(tmp_path / "a", "not written by `save`")
    crafted(tmp_path / "a", Own(), ["format"])
    refused(tmp_path / "a", "cannot be read")


def test_a_path_without_a_model(tmp_path, saved):
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "a")):
        load(tmp_path / "a")
    refused(tmp_path, "not a regular file")
    with pytest.raises(NotADirectoryError):
        load(saved("independent") / "a")


#: Small files with arrays, sparse rows and side information.
DAMAGED = ("described", "task-adapted-sparse", "three-classes")


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_or_gives_the_same_model(name, saved, tmp_path):
    content, rng = saved(name).read_bytes(), random.Random(name)
    expected, n_refused = small_models.answers(load(saved(name))), 0
    for number in range(200):
        damaged = bytearray(content)
        if number % 4 == 0:
            del damaged[rng.randrange(len(content)) :]
        elif number % 4 == 1:  # the directory of the archive is at the end
            damaged[-rng.randrange(1, 2000)] ^= 1 << rng.randrange(8)
        elif number % 4 == 2:
            damaged[rng.randrange(len(content))] = rng.randrange(256)
        else:
            start = rng.randrange(len(content))
            damaged[start : start + rng.randrange(50)] = rng.randbytes(rng.randrange(50))
        (tmp_path / "a").write_bytes(damaged)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                again = load(tmp_path / "a")
            except ModelFileError:
                n_refused += 1
                continue
        small_models.assert_equal(expected, small_models.answers(again))
    assert n_refused > 100


CRAFTED = {
    "no entry of an array": lambda schema: find(schema, "file").update(file="missing.npy"),
    "an entry of another kind": lambda schema: find(schema, "file").update(file="schema.json"),
    "no content": lambda schema: schema.pop("content"),
    "no class": lambda schema: schema.pop("__class__"),
    "another protocol": lambda schema: schema.update(protocol=99),
    "a cycle": lambda schema: attributes(schema).update(loss={"__id__": schema["__id__"], "__loader__": "CachedNode"}),
    "a missing attribute": lambda schema: [attributes(schema).pop(name) for name in list(attributes(schema)) if name[-1] == "_"],
}  # fmt: skip


def find(node, key):
    """Return the first node of a schema with this key."""
    if isinstance(node, dict) and isinstance(node.get(key), str):
        return node
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next((found for part in parts if (found := find(part, key))), None)


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_schema_is_refused(case, saved, tmp_path):
    refused(changed(saved("described"), tmp_path / "a", CRAFTED[case]))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"content":' * 100_000, "", "[]", "3", "{", '{"protocol": 2}']
)
def test_crafted_json_is_refused(text, saved, tmp_path):
    refused(
        changed(saved("independent"), tmp_path / "a", lambda schema: None, **{"schema.json": text})
    )


def test_pickles_in_arrays_are_refused(saved, tmp_path):
    array = io.BytesIO()
    np.save(array, np.array([Reduced()]), allow_pickle=True)
    with zipfile.ZipFile(saved("independent")) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".npy"))
    refused(
        changed(
            saved("independent"), tmp_path / "a", lambda schema: None, **{name: array.getvalue()}
        ),
        "pickle",
    )


def test_decompression_bombs_are_refused(saved, tmp_path):
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", bytes(1 << 29))
    path = changed(
        saved("independent"), tmp_path / "a", lambda schema: None, **{"more.npz": zeros.getvalue()}
    )
    refused(path, r"bytes declare .* bytes of entries")
