"""Golden files of every release: they are read, and their models predict as when they were written."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import small_models
from forging import fields_of
from tailored import load

RELEASES = sorted((Path(__file__).parent / "golden").iterdir())
CASES = [(folder, name) for folder in RELEASES for name in json.loads((folder / "expected.json").read_text())]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(("folder", "name"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_golden_file_predicts_as_when_it_was_written(folder, name):
    found = small_models.answers(load(folder / f"{name}.tailored"))
    expected = json.loads((folder / "expected.json").read_text())[name]
    assert set(found) == set(expected)
    for part, numbers in expected.items():
        if numbers is None:
            assert found[part] is None
        else:
            np.testing.assert_allclose(found[part], numbers, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_the_file_of_an_independent_learner_is_a_ridge_regression(folder):
    """Compute the prediction with NumPy from the tensors in the file, which safetensors reads."""
    path = folder / "independent.tailored"
    fields = fields_of(json.loads(load_file(path)["tree"].tobytes()), "C", "n_side")
    C = load_file(path)[fields["C"]["array"][0]]
    X = small_models.query(3, 4)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    w = C @ X.T @ np.linalg.solve(X @ C @ X.T + len(y) * np.eye(len(y)), y)
    expected = json.loads((folder / "expected.json").read_text())["independent"]["prediction"]
    np.testing.assert_allclose(small_models.query(3) @ w, expected, rtol=1e-9)
