"""Golden files: they are read, and their models predict as when they were written."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import small_models
from forging import fields_of
from tailored import load

FOLDER = Path(__file__).parent / "golden"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", small_models.GOLDEN)
def test_a_golden_file_predicts_as_when_it_was_written(name):
    found = small_models.answers(load(FOLDER / f"{name}.tailored"))
    assert set(found) == set(EXPECTED[name])
    for part, numbers in EXPECTED[name].items():
        if numbers is None:
            assert found[part] is None
        else:
            np.testing.assert_allclose(found[part], numbers, rtol=1e-9, atol=1e-12)


def test_the_file_of_an_independent_learner_is_a_ridge_regression():
    """Compute the prediction with NumPy from the tensors in the file, which safetensors reads."""
    path = FOLDER / "independent.tailored"
    fields = fields_of(json.loads(load_file(path)["tree"].tobytes()), "C", "n_side")
    C = load_file(path)[fields["C"]["array"][0]]
    X = small_models.query(3, 4)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    w = C @ X.T @ np.linalg.solve(X @ C @ X.T + len(y) * np.eye(len(y)), y)
    expected = EXPECTED["independent"]["prediction"]
    np.testing.assert_allclose(np.clip(small_models.query(3) @ w, -5, 5), expected, rtol=1e-9)
