"""Model files: golden ones of every format, forged ones, and what is in them."""

import hashlib
import json
import math
import pickle
import tracemalloc
import zipfile
from copy import deepcopy
from datetime import date
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import golden_models
import tailored
from forging import arrays_like, forge, members_of, objects_in, parts_of, put_together, tree_of
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskRegressor, TaskSet, load
from tailored.archive import FORMAT, READABLE, container
from tailored.archive.schema import SCHEMAS
from tailored.archive.schemas._learners import LEARNED, LEARNERS, PARAMETERS
from tailored.archive.tree import npy_header
from tailored.exceptions import ModelFileError
from tailored.persistence import KNOWN
from tailored.solvers import SOLVERS, ProjectedSGD

HERE = Path(__file__).parent
GOLDEN = sorted(HERE.glob("format-*/*.tailored"))
LATEST = HERE / f"format-{FORMAT}"


def named(name):
    return LATEST / f"{name}.tailored"


# ---------------------------------------------------------------------- golden files


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_golden_file_answers_as_when_it_was_written(path):
    expected = json.loads((path.parent / "expected.json").read_text())[path.stem]
    found = golden_models.answers(load(path))
    assert set(found) == set(expected)
    for name, numbers in expected.items():
        if numbers is None:
            assert found[name] is None
        else:
            np.testing.assert_allclose(found[name], numbers, rtol=1e-9, atol=1e-12)


def test_there_are_golden_files_of_every_format_and_class():
    assert {int(path.parent.name[7:]) for path in GOLDEN} == set(READABLE)
    assert set(KNOWN) == set(SCHEMAS)
    stored = {name for path in LATEST.glob("*.tailored") for name in objects_in(tree_of(path))}
    # losses for classes, one more loss, and a common part, which scikit-learn's version decides about
    assert set(SCHEMAS) - stored == {"Logistic", "Hinge", "EpsilonInsensitive", "CommonPart"}


def test_schemas_have_the_arguments_of_the_constructors():
    for name in LEARNERS:
        assert set(PARAMETERS[name]) == set(KNOWN[name]().get_params(deep=False)), name
        assert name in LEARNED
    assert {"projected", "adam", "lbfgs"} == set(SOLVERS)
    for kind in SOLVERS.values():
        assert set(SCHEMAS[kind.__name__].fields) == set(kind().get_params(deep=False))


def raw(path):
    """The tree and the arrays of a file, by other people's readers."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        tree = json.loads(archive.read("model.json"))
        arrays = [
            np.load(BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name.endswith(".npy")
        ]
    return tree, arrays


def test_the_file_of_an_independent_learner_is_a_ridge_regression():
    """By NumPy and zipfile alone, from the arrays in the file."""
    tree, arrays = raw(named("independent"))
    C = arrays[parts_of(tree, "fitted", "prior_", "conditioning")["C"]["array"][0]]
    X = golden_models.query(3, 4)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    w = C @ X.T @ np.linalg.solve(X @ C @ X.T + len(y) * np.eye(len(y)), y)
    expected = json.loads((LATEST / "expected.json").read_text())["independent"]["prediction"]
    np.testing.assert_allclose(np.clip(golden_models.query(3) @ w, -5, 5), expected, rtol=1e-9)


def test_the_file_of_empirical_bayes_is_a_gaussian_prior():
    """The posterior mean by NumPy alone, from the arrays in the file."""
    tree, arrays = raw(named("empirical-bayes"))
    prior = parts_of(tree, "fitted", "prior_")

    def array(node):
        return arrays[node["array"][0]]

    units = prior["units"]["object"][1]
    tau = array(prior["conditioning"]["object"][1]["C"])
    b = array(prior["bias"]["object"][1]["constant"])

    def inputs(X):
        return np.column_stack(
            [(X - array(units["shift"])[:3]) / array(units["columns"])[:3], np.ones(len(X))]
        )

    X = golden_models.query(3, 4)
    y = (np.where(X[:, 0] > 0, 1.0, -1.0) - units["target_shift"]) / units["target"]
    x = inputs(X)
    w = np.linalg.solve(np.eye(4) + tau @ x.T @ x, b + tau @ x.T @ y)
    found = inputs(golden_models.query(3)) @ w * units["target"] + units["target_shift"]
    expected = json.loads((LATEST / "expected.json").read_text())["empirical-bayes"]["prediction"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_is_read_is_written_again_to_the_same_bytes(tmp_path):
    for path in LATEST.glob("*.tailored"):
        how = {"stream": True} if path.stem.endswith("stream") else {}
        load(path).save(tmp_path / "again", **how)
        theirs, mine = members_of(path), members_of(tmp_path / "again")
        # the number of the version may be another one
        assert {**mine, "model.json": 0} == {**theirs, "model.json": 0}
        assert (
            json.loads(mine["model.json"])["dict"]["value"]
            == json.loads(theirs["model.json"])["dict"]["value"]
        )


# ---------------------------------------------------------------------- every failure is one type


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


# ---------------------------------------------------------------------- what is stored


def test_labels_that_are_numbers_words_or_tuples_of_these(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    for names in (
        [3, 1, 2],
        [0.5, -1.5, 2.0],
        ["a", "ä", "🙂"],
        [("a", 1), ("a", (2, None)), 7],
        [True, "x", 2.5],
    ):
        groups = [names[i % 3] for i in range(12)]
        learner = IndependentLearner().fit(X, y, groups=groups)
        learner.save(tmp_path / "a")
        again = load(tmp_path / "a")
        assert again.task_labels_.tolist() == learner.task_labels_.tolist()
        assert again.task_labels_.dtype == learner.task_labels_.dtype
        np.testing.assert_array_equal(again.predict(X, groups=groups), learner.predict(X, groups=groups))


def test_other_labels_are_refused_before_anything_is_written(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    dates = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")
    for names in (
        [date(2020, 1, i) for i in (1, 2, 3)],
        [b"a", b"b", b"c"],
        [frozenset({i}) for i in range(3)],
        list(dates),
    ):
        groups = [names[i % 3] for i in range(12)]
        learner = IndependentLearner().fit(X, y, groups=groups)
        with pytest.raises(TypeError, match=r"task_labels_.*numbers, words or tuples"):
            learner.save(tmp_path / "a")
        assert not list(tmp_path.iterdir())


def test_what_could_not_be_read_is_not_written(tmp_path):
    learner = load(named("independent"))
    learner.task_weights_[0, 0] = math.nan
    with pytest.raises(ValueError, match=r"task_weights_: cannot be saved: it holds NaN"):
        learner.save(tmp_path / "a")
    learner = load(named("independent")).set_params(fit_intercept=True)
    with pytest.raises(ValueError, match=r"fit_intercept: cannot be saved: .*fit again"):
        learner.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- rows


def rows_in(content, tasks):
    """How many of the numbers in rows and targets stand in these bytes."""
    numbers = np.concatenate([np.asarray(tasks.X).ravel(), tasks.y])
    return sum(
        number.tobytes() in content or repr(float(number)).encode() in content
        for number in numbers[: 200 * tasks.n_features]
    )


def strange_rows(n_tasks=12, n_rows=6):
    """Numbers that nobody computes from others by chance; no task is held out whole."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=n_tasks * n_rows)
    return TaskSet(rng.normal(size=(n_tasks * n_rows, 3)), y, np.repeat(np.arange(n_tasks), n_rows))


@pytest.mark.parametrize(
    "learner",
    [
        EmpiricalBayesLearner(),
        IndependentLearner(),
        tailored.ConditionalLearner("mean", solver=ProjectedSGD(), rank=2),
        tailored.UnconditionalLearner(solver=ProjectedSGD()),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_files_and_pickles_of_learners_hold_no_training_rows(few_steps, learner, tmp_path):
    tasks = strange_rows()
    learner = deepcopy(learner).fit(tasks)
    learner.save(tmp_path / "a")
    for content in ((tmp_path / "a").read_bytes(), pickle.dumps(learner)):
        assert rows_in(content, tasks) == 0
    # a pickled learner answers as before, and cannot go on with a stream whose rows it does not have
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))
    if not isinstance(learner, IndependentLearner):
        with pytest.raises(ValueError, match="partial_fit"):
            again.partial_fit(tasks)
        # in memory nothing is left out
        others = TaskSet(tasks.X, tasks.y, 100 + np.repeat(np.arange(12), 6))
        deepcopy(learner).partial_fit(others)


def test_a_stream_is_kept_with_its_rows_where_it_is_asked_for(few_steps, tmp_path):
    tasks = strange_rows()
    learner = EmpiricalBayesLearner().partial_fit(tasks[:6])
    learner.save(tmp_path / "a")
    learner.save(tmp_path / "stream", stream=True)
    assert rows_in((tmp_path / "a").read_bytes(), tasks[:6]) == 0
    assert rows_in((tmp_path / "stream").read_bytes(), tasks[:6]) == 6 * 6 * 4
    pickled = pickle.dumps(learner)
    assert rows_in(pickled, tasks[:6]) == 6 * 6 * 4
    learner.partial_fit(tasks[6:])
    # and what was read is pickled with them as well
    for again in (
        load(tmp_path / "stream"),
        pickle.loads(pickled),
        pickle.loads(pickle.dumps(load(tmp_path / "stream"))),
    ):
        again.partial_fit(tasks[6:])
        np.testing.assert_array_equal(again.adapt_many(tasks), learner.adapt_many(tasks))


def test_an_adapted_model_holds_its_own_rows_alone(few_steps, tmp_path):
    tasks = strange_rows()
    learner = EmpiricalBayesLearner().fit(tasks)
    others = strange_rows(1)
    X, y = others.X + 0.1, others.y + 0.1
    model = learner.adapt(X, y)
    model.save(tmp_path / "a")
    assert rows_in((tmp_path / "a").read_bytes(), tasks) == 0
    again = load(tmp_path / "a")
    assert isinstance(again, TaskRegressor)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.predict_interval(X, 0.5), model.predict_interval(X, 0.5))
    assert again.score(X, y) == model.score(X, y)
    np.testing.assert_array_equal(again.update(X[:2], y[:2]).coef_, model.update(X[:2], y[:2]).coef_)
    # rows are gone where a few others say the same
    many = np.random.default_rng(0).normal(size=(200, 3))
    learner.adapt(many, many[:, 0]).save(tmp_path / "many")
    assert (tmp_path / "many").stat().st_size < (tmp_path / "a").stat().st_size + 2000
    fitted = TaskRegressor(loss="squared").fit(X, y)
    fitted.save(tmp_path / "fitted")
    assert rows_in((tmp_path / "fitted").read_bytes(), TaskSet(X, y)) == 0
    np.testing.assert_array_equal(load(tmp_path / "fitted").predict(X), fitted.predict(X))
