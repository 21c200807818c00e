"""Golden files: those of every format answer as when they were written, and their arrays are the model of the page."""

import json
import zipfile
from io import BytesIO

import numpy as np
import pytest

import golden_models
from forging import members_of, objects_in, parts_of, tree_of
from golden_models import HERE, LATEST, named
from tailored import load
from tailored.archive import READABLE
from tailored.archive.schema import SCHEMAS
from tailored.archive.schemas._learners import LEARNED, LEARNERS, PARAMETERS
from tailored.persistence import KNOWN
from tailored.solvers import SOLVERS

GOLDEN = sorted(HERE.glob("format-*/*.tailored"))


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
    assert {"projected", "lbfgs"} == set(SOLVERS)
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
