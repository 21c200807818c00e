"""The lowest eigenpairs of tridiagonal matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tailored.representation.tridiagonal import lowest


@pytest.mark.parametrize("n", [2, 9, 150])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_lowest_eigenpairs_are_lapacks(n, scale):
    rng = np.random.default_rng(n)
    diagonal, beside = scale * rng.normal(size=n), scale * rng.normal(size=n - 1)
    T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    expected = np.linalg.eigvalsh(T)
    for bound in (-10.0 * scale, 0.1 * scale, 10.0 * scale):
        values, vectors = lowest(diagonal, beside, bound)
        np.testing.assert_allclose(values, expected[expected < bound], rtol=0, atol=1e-14 * n * scale)
        np.testing.assert_allclose(T @ vectors, vectors * values, rtol=0, atol=1e-13 * n * scale)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-9)


def test_entries_of_zero_beside_the_diagonal():
    values, vectors = lowest(np.array([3.0, -2.0, 1.0, -1.0]), np.zeros(3), 0.0)
    np.testing.assert_allclose(values, [-2.0, -1.0], rtol=1e-15)
    np.testing.assert_array_equal(np.abs(vectors), np.eye(4)[:, [1, 3]])
