"""Damaged, crafted and foreign files: each is refused with a ModelFileError that names the place."""

import errno
import hashlib
import json
import pickle
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forging import apart, at, fields_of, forge, nodes, places, together
from tailored import load
from tailored._utils.records import MAY_BE_NAN
from tailored.exceptions import ModelFileError
from tailored.files.format import CHECKSUM, FORMAT, START
from tailored.files.tree import Invalid, check_value

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def refused(path, match=None):
    with pytest.raises(ModelFileError, match=match) as caught:
        load(path)
    return caught.value


def sealed(header, data=b""):
    """A file with this header, whose metadata are put in front, and a right checksum."""
    header = START + b"0" * 64 + b'"},' + header[1:]
    content = struct.pack("<Q", len(header)) + header + data
    digest = hashlib.sha256(content).hexdigest().encode()
    return content[: CHECKSUM.start] + digest + content[CHECKSUM.stop :]


NUMBERS = NDArray[np.float64]
ANNOTATED = {
    "a number": (float, [1, 2.5], [True, "1", None, np.nan]),
    "an integer": (int, [3], [True, 2.5, None]),
    "a number or NaN": (Annotated[float, MAY_BE_NAN], [np.nan, 1.0], ["nan", None]),
    "a text or None": (str | None, ["a", None], [3]),
    "None": (None, [None], [0]),
    "numbers": (NUMBERS, [np.zeros(2)], [np.array([np.inf]), np.array([1]), [1.0]]),
    "numbers or NaN": (Annotated[NUMBERS, MAY_BE_NAN], [np.array([np.nan])], [np.array([1]), [1.0]]),
    "any array": (np.ndarray, [np.array(["a"]), np.array([1])], [np.array([np.nan]), 1.0]),
    "a list": (list[int], [[], [1], (1, 2)], [[1.5], {}, 3]),
    "a pair": (tuple[int, str], [(1, "a")], [(1,), (1, "a", 2), ("a", 1), [1, "a"]]),
    "a tuple": (tuple[int, ...], [(), (1, 2, 3)], [(1, 1.5)]),
    "a dictionary": (dict[str, float], [{}, {"a": 1.0}], [{"a": "b"}, []]),
    "anything": (Any, [None, np.nan, "a"], []),
}


@pytest.mark.parametrize("case", ANNOTATED)
def test_values_have_the_type_of_their_annotation(case):
    hint, right, wrong = ANNOTATED[case]
    for value in right:
        check_value(value, hint, "x")
    for value in wrong:
        with pytest.raises(Invalid):
            check_value(value, hint, "x")


def test_the_place_inside_a_value_is_named():
    with pytest.raises(Invalid) as caught:
        check_value([1, 2.5], str | list[int], "x")
    assert caught.value.place == "x.1"
    with pytest.raises(Invalid) as caught:
        check_value(2.5, str | list[int], "x")
    assert (caught.value.place, caught.value.reason) == (
        "x",
        "must be str, is float; or must be list, is float",
    )


def test_a_path_without_a_model(tmp_path, saved):
    error = refused(tmp_path / "a", "this file does not exist")
    assert isinstance(error, FileNotFoundError)
    assert isinstance(error, ValueError)
    assert (error.errno, error.filename) == (errno.ENOENT, str(tmp_path / "a"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.reason) == (str(error), str(tmp_path / "a"), error.reason)
    refused(tmp_path, "not a regular file")
    refused(saved("independent") / "a", "cannot be opened: Not a directory")
    for content in (b"", b"hello", b"PK\3\4" + bytes(500)):
        (tmp_path / "a").write_bytes(content)
        refused(tmp_path / "a", "is not a model file: it was not written by `save` of this version")
    if Path("/dev/zero").exists():
        refused("/dev/zero", "not a regular file")


def test_other_formats(tmp_path, saved):
    with zipfile.ZipFile(tmp_path / "old", "w") as archive:
        archive.writestr("model.json", '{"format": 4, "version": "0.1", "value": null}')
    refused(tmp_path / "old", "is not a model file: it was not written by `save` of this version")
    later = forge(
        saved("independent"), lambda tree, _: tree.update(format=99, version="9.9"), tmp_path / "new"
    )
    refused(later, rf"has the format 99 of tailored 9\.9; this version reads format {FORMAT}\. .* save again")


def test_damage_is_noticed(tmp_path, saved):
    content = saved("independent").read_bytes()
    for place in (0, 7, 20, CHECKSUM.start, CHECKSUM.stop + 5, len(content) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        (tmp_path / "a").write_bytes(bytes(damaged))
        refused(tmp_path / "a")
    for damaged in (content[:-1], content + b"x", content[1:]):
        (tmp_path / "a").write_bytes(damaged)
        refused(tmp_path / "a", "checksum is wrong|not a model file")


# --- fields


def set_at(*names):
    """Set a field of the first object that has fields of these names; the last name is that of the field."""
    *path, last, value = names
    return lambda tree, arrays: fields_of(tree, *path).update({last: value})


MIXTURE, SCALING, PRIOR = ("proportions", "noise"), ("columns", "shift", "target"), ("offset", "quantile")

FIELDS = {
    "an unknown class": (set_at("loss_", {"object": ["Popen", {}]}), "class 'Popen', which a model"),
    "an abstract class": (set_at("loss_", {"object": ["Loss", {}]}), "is not a valid Loss"),
    "a class of another field": (
        set_at("loss_", {"object": ["MeanEmbedding", {}]}),
        "must be Loss, is MeanEmbedding",
    ),
    "an unknown field": (set_at(*MIXTURE, "__init__", 1), r"\.__init__: is not an annotated field"),
    "a method": (set_at("predict", 1), r"predict: is not an annotated field"),
    "a missing field": (lambda tree, _: fields_of(tree, *MIXTURE).pop("noise"), "is not a valid .*noise"),
    "a string for a number": (set_at("scale_", "small"), "scale_: must be a number, is str"),
    "a truth value for a number": (set_at("scale_", True), "scale_: must be a number, is bool"),
    "NaN": (set_at("scale_", float("nan")), "scale_: must be finite"),
    "infinity": (set_at(*SCALING, float("inf")), "target: must be finite"),
    "a scale of zero": (set_at(*SCALING, 0), r"target must be a finite number in \[1e-153"),
    "no noise": (set_at(*MIXTURE, 0.0), "noise: must be between 1e-300"),
    "other columns": (set_at("n_features_in_", 4), "expected an array of shape"),
    "another intercept": (set_at("fit_intercept", False), "fit again"),
    "a huge integer": (set_at("n_iter_", 10**400), "at most 64 bits|not valid JSON"),
    "an integer above 64 bits": (set_at("n_iter_", 2**64), "at most 64 bits"),
    "an integer below 64 bits": (set_at("n_iter_", -(2**63) - 1), "at most 64 bits"),
    "half of a character": (set_at("order", "\ud800"), "contains an invalid string"),
    "a number for a list": (set_at("order", {"tuple": 5}), "order: must be a list"),
    "a list for a dictionary": (set_at("structure_", {"dict": []}), "structure_: must be a dict"),
    "an array without an order": (set_at("task_labels_", {"array": ["0"]}), "must be a list of length 2"),
    "two kinds": (set_at("order", {"tuple": [], "dict": {}}), "must have one key .* has 2"),
    "an unknown kind": (set_at("order", {"pickle": "gASV"}), "unknown kind 'pickle'"),
    "a private kind": (set_at("order", {"_take": "0"}), "unknown kind '_take'"),
    "a tensor twice": (
        lambda tree, _: fields_of(tree).update(
            task_labels_=dict(fields_of(tree, "weights", "squares")["weights"])
        ),
        "missing or was already used|does not use",
    ),
    "a tensor that does not exist": (
        set_at("task_labels_", {"array": ["999", "C"]}),
        "missing or was already used",
    ),
    "an unused tensor": (lambda _, arrays: arrays.update(more=np.zeros(3)), "'more': is a tensor that"),
    "not a learner": (
        lambda tree, arrays: (tree.update(value=fields_of(tree)["loss_"]), arrays.clear()),
        "must be a learner",
    ),
    "nothing": (lambda tree, arrays: (tree.update(value=None), arrays.clear()), "must be a learner"),
    "an unfitted learner": (
        lambda tree, arrays: (
            [fields_of(tree).pop(name) for name in list(fields_of(tree)) if name.endswith("_")],
            arrays.clear(),
        ),
        "is not fitted",
    ),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_crafted_field_is_refused_by_its_name(case, tmp_path, saved):
    change, reason = FIELDS[case]
    error = refused(forge(saved("empirical-bayes"), change, tmp_path / "a"), reason)
    assert error.path == str(tmp_path / "a")
    assert len(str(error)) < 1000


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63)])
def test_integers_of_64_bits_are_read(value, tmp_path, saved):
    assert load(forge(saved("empirical-bayes"), set_at("n_iter_", value), tmp_path / "a")).n_iter_ == value


# --- arrays


def at_place(index, value):
    def change(array):
        array[index] = value
        return array

    return change


ARRAYS = {
    "NaN": ("conditional", ("basis", "C"), at_place((0, 0), np.nan), "NaN or infinity"),
    "infinity": ("conditional", ("linear", "constant"), at_place(0, np.inf), "NaN or infinity"),
    "not symmetric": ("conditional", ("basis", "C"), at_place((0, 1), 99.0), "must be symmetric"),
    "not positive": ("conditional", ("basis", "C"), np.negative, "positive semidefinite"),
    "a negative covariance": (
        "empirical-bayes",
        ("proportions", "covariances"),
        np.negative,
        "positive semidefinite",
    ),
    "proportions of two": ("empirical-bayes", ("noise", "proportions"), lambda p: 2 * p, "add up to one"),
    "a scale of zero": ("empirical-bayes", ("shift", "columns"), at_place(0, 0.0), "must be between 1e-300"),
    "no constant column": ("empirical-bayes", ("shift", "columns"), at_place(-1, 2.0), "constant column"),
    "unsorted levels": ("empirical-bayes", ("scores", "rows"), lambda r: r[::-1].copy(), "be increasing"),
    "equal labels": ("empirical-bayes", ("task_labels_",), at_place(0, 1), "must be distinct"),
    "a negative variance": (
        "empirical-bayes",
        ("n_rows", "squares", "covariances"),
        np.negative,
        "positive semidefinite",
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_a_crafted_array_is_refused(case, tmp_path, saved):
    model, path, change, reason = ARRAYS[case]

    def forged(tree, arrays):
        name = fields_of(tree, *path)[path[-1]]["array"][0]
        arrays[name] = change(arrays[name])

    refused(forge(saved(model), forged, tmp_path / "a"), reason)


def array_fields(path):
    """The place and the tensor of every array that is a field of an object."""
    tree, _ = apart(path)
    for place in places(tree):
        node = at(tree, place)
        if isinstance(node, dict) and set(node) == {"array"} and at(tree, place[:-2]) is not tree:
            yield place, node["array"][0]


#: Most of their fields are in other models too.
OTHERS = ("table", "task-adapted", "many-columns")


def is_read(path):
    try:
        load(path)
    except ModelFileError:
        return False
    return True


@pytest.mark.parametrize(
    "name",
    ["conditional", "described", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)],
)
def test_every_array_has_its_type_and_shape(name, tmp_path, saved):
    """No array can have another type, another length or one axis more."""
    tree, arrays = apart(saved(name))
    accepted = []
    for place, tensor in array_fields(saved(name)):
        array = arrays[tensor]
        wrong = [array.astype(np.float32), array[None], array[..., None]]
        if array.dtype != bool:
            wrong.append(array != 0)
        for other in wrong:
            # Labels can be of any type.
            if {"task_labels_", "labels"} & set(place) and other.shape == array.shape:
                continue
            accepted += is_read(together(tmp_path / "a", tree, {**arrays, tensor: other})) * [place]
        longer = np.concatenate([array, array[:1]])
        # Errors of held-out tasks are only reported, so their number does not matter.
        if "errors" not in place and len(array):
            accepted += is_read(together(tmp_path / "a", tree, {**arrays, tensor: longer})) * [place]
    assert accepted == []


# --- containers and JSON


@pytest.mark.parametrize(
    "header",
    [
        b'{"tree":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8]}}',
        b'{"tree":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8]}}',
        b'{"tree":{"dtype":"U8","shape":[0,4294967296,4294967296,4294967296],"data_offsets":[0,0]}}',
        b'{"tree":{"dtype":"U8","shape":[8],"data_offsets":[0,1000000000000]}}',
        b'{"tree":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}',
        b'{"tree":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"0":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        b'{"other":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        b'{"tree":' + b"[" * 100_000,
        b'{"tree":1}',
    ],
)
def test_a_crafted_header_is_refused_without_memory(header, tmp_path):
    (tmp_path / "a").write_bytes(sealed(header, b"12345678"))
    tracemalloc.start()
    refused(tmp_path / "a")
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    (tmp_path / "a").write_bytes(struct.pack("<Q", 2**62) + sealed(header)[8:])
    refused(tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "RecursionError"),
        (b'{"tuple":' * 100_000 + b"1" + b"}" * 100_000, "RecursionError"),
        (b'{"format": ' + b"9" * 10_000 + b"}", "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[]", "must have a format"),
        (b'{"format": 5, "version": "0", "value": 1, "more": 2}', "must have a format"),
    ],
    ids=["lists", "tuples", "digits", "UTF-8", "empty", "list", "more"],
)
def test_crafted_json_is_refused(text, reason, tmp_path):
    refused(together(tmp_path / "a", text, {}), reason)


def test_objects_nested_below_the_limit_of_the_parser_are_refused(tmp_path, saved):
    node = 1
    for _ in range(300):
        node = {"tuple": [node]}
    path = forge(saved("independent"), lambda tree, _: fields_of(tree).update(loss=node), tmp_path / "a")
    refused(path, "RecursionError|must be Loss, is tuple")  # the limit depends on the version of Python


def test_strings_are_checked(tmp_path, saved):
    for code in (0xD800, 0x110000):

        def invalid(tree, arrays, code=code):
            arrays["names"] = np.full((3, 1), code, dtype=np.uint32)
            fields_of(tree)["feature_names_in_"] = {"strings": "names"}

        refused(forge(saved("independent"), invalid, tmp_path / "a"), "invalid character")


CSR = {
    "columns": lambda data, indices, indptr: indices.__setitem__(0, 10**6),
    "negative columns": lambda data, indices, indptr: indices.__setitem__(0, -1),
    "order": lambda data, indices, indptr: indices.__setitem__(slice(None), indices[::-1].copy()),
    "pointers": lambda data, indices, indptr: indptr.__setitem__(1, 10**6),
    "end": lambda data, indices, indptr: indptr.__setitem__(-1, 0),
    "numbers": lambda data, indices, indptr: data.__setitem__(0, np.nan),
}


@pytest.mark.parametrize("case", CSR)
def test_sparse_rows_are_checked(case, tmp_path, saved):
    from tailored import TaskRegressor

    learner = load(saved("many-columns"))
    rows = np.zeros((3, learner.n_features_in_))
    rows[::2, [3, 5, 8]] = 1.0  # the second row is empty
    from scipy import sparse

    model = learner.adapt(sparse.csr_array(rows), np.ones(3))
    model.save(tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), TaskRegressor)

    def forged(tree, arrays):
        (body,) = nodes(tree, "csr")
        CSR[case](*(arrays[part["array"][0]] for part in body[:3]))

    def shaped(tree, arrays):
        nodes(tree, "csr")[0][3][0] = 3.0  # not an integer

    refused(forge(tmp_path / "model", forged, tmp_path / "a"), "not a valid sparse matrix")
    refused(forge(tmp_path / "model", shaped, tmp_path / "a"), "invalid shape")


def test_truth_values_are_zero_or_one(tmp_path, saved):
    header = b'{"0":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"tree":{"dtype":"U8","shape":[N],"data_offsets":[1,M]}}'
    tree = json.dumps(
        {
            "format": FORMAT,
            "version": "0",
            "value": {"object": ["IndependentLearner", {"clip": {"array": ["0", "C"]}}]},
        }
    ).encode()
    header = header.replace(b"N", str(len(tree)).encode()).replace(b"M", str(len(tree) + 1).encode())
    (tmp_path / "a").write_bytes(sealed(header, b"\x02" + tree))
    refused(tmp_path / "a", "neither 0 nor 1")


LARGE = {
    "a long key over a million values": lambda: {"k" * 100_000: [0] * 1_000_000},
    "a thousand long keys": lambda: {"k" * 50_000 + str(i): [0] * 100 for i in range(1_000)},
    "nested long keys": lambda: {"k" * 100_000: {"dict": {"j" * 100_000: [0] * 500_000}}},
}


@pytest.mark.parametrize("case", LARGE)
def test_long_keys_are_read_in_linear_time(case, tmp_path, saved):
    tree = {"dict": LARGE[case]()}
    path = forge(saved("independent"), lambda t, _: fields_of(t).update(columns_in_=tree), tmp_path / "a")
    start = time.process_time()
    refused(path, "columns_in_")
    assert time.process_time() - start < 3.0  # with 100,000 letters copied for each value: 60 s


@pytest.mark.parametrize("value", [b"[],", b'{"tuple":[]},', b"0,"])
def test_too_many_values_are_refused_before_they_are_read(value, tmp_path):
    """A tree of 64 MiB would need gigabytes of Python's objects."""
    path = together(tmp_path / "a", b"[" + value * (2**25 // len(value)) + b"0]", {})
    start = time.process_time()
    tracemalloc.start()
    refused(path, "values, .*; at most 67,108,864 and 1,048,576 are read")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 2**25
    assert time.process_time() - start < 2.0
