"""Damaged, forged and foreign files: each is refused with one type of error, which names the place."""

import hashlib
import json
import pickle
import tracemalloc
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import tailored
from forging import arrays_like, forge, forge_fields, members_of, parts_of, put_together, tree_of
from golden_models import named
from tailored import load
from tailored.archive import container
from tailored.archive.tree import npy_header
from tailored.exceptions import ModelFileError


def test_a_path_without_a_model(tmp_path):
    with pytest.raises(ModelFileError, match="there is no such file") as caught:
        load(tmp_path / "a")
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path, again.reason) == (
        str(caught.value),
        str(tmp_path / "a"),
        caught.value.reason,
    )
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)
    for content in (b"", b"hello", b"PK", b"PK\3\4" + bytes(500), named("independent").read_bytes()[:-1]):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"a: is not a file written by tailored"):
            load(tmp_path / "a")


def test_a_device_is_no_file():
    if Path("/dev/zero").exists():
        with pytest.raises(ModelFileError, match="no ordinary file"):
            load("/dev/zero")


def test_earlier_and_later_formats(tmp_path):
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("learner.json", '{"format": 3, "version": "0.1", "value": null}')
        archive.writestr("arrays.npz", b"")
    with pytest.raises(
        ModelFileError, match=r"old: was written by an earlier tailored, in format 3.*fit and save again"
    ):
        load(tmp_path / "old")
    later = forge(
        named("independent"), lambda tree: tree["dict"].update(format=99, version="9.9"), tmp_path / "new"
    )
    with pytest.raises(
        ModelFileError, match=r"written by tailored '9.9' in format 99; this version reads format 4"
    ):
        load(later)


def test_damage_is_noticed(tmp_path):
    content = named("independent").read_bytes()
    for place in (0, 40, len(content) // 2, len(content) - 200, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "a").write_bytes(bytes(changed))
        with pytest.raises(ModelFileError):
            load(tmp_path / "a")


def test_the_arrays_of_another_model_do_not_fit(tmp_path):
    """Not under the old checksum, and under a new one only where the rest of the model agrees."""
    mine, theirs = members_of(named("conditional")), members_of(named("conditional-exact"))
    content = named("conditional").read_bytes()
    for name in (name for name in mine if name.endswith(".npy")):
        if name not in theirs or mine[name] == theirs[name]:
            continue
        forged = b"".join(container.pack({**mine, name: theirs[name]}))
        (tmp_path / "a").write_bytes(forged[: -container.DIGEST] + content[-container.DIGEST :])
        with pytest.raises(ModelFileError, match="checksum"):
            load(tmp_path / "a")
    # and an array of another shape
    other = next(
        body for body in mine.values() if len(body) != len(mine["arrays/0.npy"]) and body[:2] == b"\x93N"
    )
    forged = put_together(tmp_path / "a", {**mine, "arrays/0.npy": other})
    with pytest.raises(ModelFileError, match=r"arrays/0.npy"):
        load(forged)


def set_in(*names):
    """A change of one field, by the names that lead to it."""
    *path, last, value = names

    def change(tree):
        parts_of(tree, *path)[last] = value

    return change


def drop(*names):
    return lambda tree: parts_of(tree, *names[:-1]).pop(names[-1])


PRIOR = ("fitted", "prior_")
MIXTURE = (*PRIOR, "feature_map", "model", "mixture")

FORGED = {
    "a class that is none of ours": (
        set_in(*PRIOR, "loss", {"object": ["Popen", {}]}),
        r"prior_.loss: must be Absolute",
    ),
    "a class in another place": (
        set_in(*PRIOR, "loss", {"object": ["MeanEmbedding", {}]}),
        r"must be .*, is MeanEmb",
    ),
    "a field of another class": (set_in(*PRIOR, "__init__", 1), r"prior_.__init__: is unknown"),
    "a missing field": (drop(*PRIOR, "tol"), r"prior_.tol: is missing"),
    "an argument that is none": (set_in("parameters", "__init__", {"dict": {}}), r"__init__: is unknown"),
    "a word for a number": (set_in(*PRIOR, "tol", "small"), r"tol: must be a number"),
    "a tolerance below zero": (
        set_in("parameters", "tol", -1.0),
        r"parameters.tol: must be strictly between 0",
    ),
    "no number": (set_in(*PRIOR, "tol", {"number": "nan"}), r"tol: must be finite"),
    "an infinite number": (set_in(*PRIOR, "units", "target", {"number": "inf"}), r"target: must be finite"),
    "a unit of zero": (set_in(*PRIOR, "units", "target", 0), r"target: must be between 1e-153 and"),
    "no noise": (set_in(*MIXTURE, "noise", 0.0), r"mixture.noise: must be between 1e-300"),
    "a truth value of two": (set_in(*MIXTURE, "averaged", 2), r"averaged: must be true or false"),
    "other columns": (
        set_in("fitted", "n_features_in_", 4),
        r"n_features_in_: columns: 3 here, 4 in the rest",
    ),
    "features that are not there": (
        set_in(*PRIOR, "conditioning", "n_side", 3),
        r"features of a task: 3 here, 2 in",
    ),
    "a name of nothing": (
        set_in("parameters", "feature_map", "nothing"),
        r"feature_map: must be .*is of type str",
    ),
    "an intercept that came later": (set_in("parameters", "fit_intercept", False), r"fitted with; fit again"),
    "a range that ends before it begins": (
        set_in(*PRIOR, "clip", {"tuple": [1.0, 0.0]}),
        r"clip: ends before",
    ),
    "a quantile that nobody asked for": (set_in(*PRIOR, "quantile", 0.5), r"quantile without spreads"),
    "half of a character": (set_in("parameters", "order", "\ud800"), r"half of a character"),
    "two kinds at once": (set_in("parameters", "order", {"list": [], "tuple": []}), r"has 2 kinds"),
    "a bare list": (set_in("parameters", "order", [1]), r"bare list"),
    "nothing at all": (lambda tree: tree["dict"].update(value=None), r"that nothing in the file names"),
    "a part of a learner": (
        lambda tree: tree["dict"].update(
            value=tree["dict"]["value"]["object"][1]["fitted"]["dict"]["prior_"]
        ),
        r"no learner|that nothing in the file names",
    ),
    "a third array": (
        lambda tree: next(iter(arrays_like(tree)))["array"].__setitem__(0, 3),
        r"that is not the next one",
    ),
    "objects": (
        lambda tree: next(iter(arrays_like(tree)))["array"].__setitem__(1, "|O"),
        r"a type that save does not",
    ),
    "a huge shape": (
        lambda tree: next(iter(arrays_like(tree)))["array"].__setitem__(2, [2**30, 2**30]),
        r"header",
    ),
    "a shape below zero": (
        lambda tree: next(iter(arrays_like(tree)))["array"].__setitem__(2, [-1]),
        r"without a shape",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_field_is_refused_by_its_name(case, tmp_path):
    change, reason = FORGED[case]
    modules = dict(vars(tailored.learners))
    path = forge(named("empirical-bayes"), change, tmp_path / "a")
    with pytest.raises(ModelFileError, match=reason) as caught:
        load(path)
    assert caught.value.path == str(path)
    assert caught.value.member
    assert str(path) in str(caught.value)
    assert vars(tailored.learners) == modules


def test_an_unfitted_learner_is_no_model(tmp_path):
    tree = tree_of(named("independent"))
    tree["dict"]["value"]["object"][1]["fitted"] = {"dict": {}}
    forged = {"model.json": json.dumps(tree).encode()}
    with pytest.raises(ModelFileError, match="is not fitted"):
        load(put_together(tmp_path / "a", forged))


def test_a_learner_inside_of_a_feature_map_is_fitted(tmp_path):
    def without_the_fit(tree):
        parts_of(tree, *PRIOR, "feature_map", "model")["fitted"] = {"dict": {}}

    with pytest.raises(ModelFileError, match=r"feature_map.model: is not fitted"):
        load(forge_fields(named("conditional-refined"), without_the_fit, tmp_path / "a"))


def changed_array(path, place, change, target):
    """A copy with other numbers in the array at a place."""
    members = members_of(path)
    node = parts_of(json.loads(members["model.json"]), *place[:-1])[place[-1]]
    name = f"arrays/{node['array'][0]}.npy"
    array = change(np.load(BytesIO(members[name])).copy())
    order = "C" if array.flags.c_contiguous else "F"
    return put_together(
        target, {**members, name: npy_header(array.dtype.str, array.shape, order) + array.tobytes(order)}
    )


def at(index, value):
    def change(array):
        array[index] = value
        return array

    return change


ARRAYS = {
    "NaN": ((*PRIOR, "conditioning", "C"), at((0, 0), np.nan), "NaN or infinity"),
    "infinity": ((*PRIOR, "bias", "constant"), at(0, np.inf), "NaN or infinity"),
    "not symmetric": ((*PRIOR, "conditioning", "C"), at((0, 1), 99.0), "must be symmetric"),
    "not in the cone": ((*PRIOR, "conditioning", "C"), lambda C: -C, "positive semidefinite"),
    "a covariance below zero": ((*MIXTURE, "covariances"), lambda C: -C, "positive semidefinite"),
    "proportions of two": ((*MIXTURE, "proportions"), lambda p: 2 * p, "add up to one"),
    "a unit of zero": ((*PRIOR, "units", "columns"), at(0, 0.0), "not at least 1e-300"),
    "no constant column": ((*PRIOR, "units", "columns"), at(-1, 2.0), "no constant column"),
    "levels out of order": ((*PRIOR, "calibration", "rows"), lambda r: r[::-1].copy(), "must increase"),
    "labels twice": (("fitted", "task_labels_"), at(0, 1), "different labels"),
    "weights that are NaN": (("fitted", "task_weights_"), at((0, 0), np.nan), "NaN or infinity"),
    "another size": (("fitted", "task_weights_"), lambda w: w[:-1], "header"),
    "another type": (("fitted", "task_weights_"), lambda w: w.astype("<f4"), "header"),
    "another order": (("fitted", "task_weights_"), np.asfortranarray, "header"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_a_forged_array_is_refused_by_its_name(case, tmp_path):
    place, change, reason = ARRAYS[case]
    with pytest.raises(ModelFileError, match=reason):
        load(changed_array(named("empirical-bayes"), place, change, tmp_path / "a"))


def test_a_small_file_takes_little_memory(tmp_path):
    """Members that are deflated are not even looked at; a shape without its bytes neither."""
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members_of(named("independent")).items():
            archive.writestr(name, body)
        archive.writestr("arrays/99.npy", bytes(50_000_000))
        archive.comment = container.SEAL + b"0" * container.DIGEST
    content = (tmp_path / "bomb").read_bytes()
    body = content[: -container.DIGEST]
    (tmp_path / "bomb").write_bytes(body + hashlib.sha256(body).hexdigest().encode())
    deep = members_of(named("independent"))
    deep["model.json"] = b'{"dict":' * 100_000 + b"1" + b"}" * 100_000
    put_together(tmp_path / "deep", deep)
    for name in ("bomb", "deep"):
        tracemalloc.start()
        with pytest.raises(ModelFileError):
            load(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
        tracemalloc.stop()


def test_a_name_twice(tmp_path):
    members = members_of(named("independent"))
    text = (
        members["model.json"]
        .decode()
        .replace('"format": 4', '"format": 4, "format": 4')
        .replace('"format":4', '"format":4,"format":4')
    )
    with pytest.raises(ModelFileError, match="has the name 'format' twice"):
        load(put_together(tmp_path / "a", {**members, "model.json": text.encode()}))
    with pytest.raises(ModelFileError, match="no JSON"):
        load(put_together(tmp_path / "a", {**members, "model.json": b'{"a": NaN}'}))


def test_a_member_too_many_or_too_few(tmp_path):
    members = members_of(named("independent"))
    with pytest.raises(ModelFileError, match=r"arrays/77.npy'?: is a member that nothing in the file names"):
        load(put_together(tmp_path / "a", {**members, "arrays/77.npy": b""}))
    members.pop("arrays/1.npy")
    with pytest.raises(ModelFileError, match=r"arrays/1.npy: is missing"):
        load(put_together(tmp_path / "a", members))
