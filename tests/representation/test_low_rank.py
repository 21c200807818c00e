"""Factors and a diagonal against the dense matrix that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from tailored.representation.blocks import LowRank
from tailored.representation.dense import Constant


def test_blocks_products_and_multiples_are_those_of_the_matrix():
    rng = np.random.default_rng(0)
    F, D, columns = rng.standard_normal((6, 2)), rng.random(6), np.array([4, 1, 5])
    made, dense = LowRank(F, D), Constant(F @ F.T + np.diag(D))
    phi, vector = np.zeros(0), rng.standard_normal(3)
    np.testing.assert_allclose(made(phi), dense(phi))
    np.testing.assert_allclose(made(phi, columns), dense(phi, columns))
    np.testing.assert_allclose(made.multiply(phi, columns, vector), dense.multiply(phi, columns, vector))
    np.testing.assert_allclose(made.scale(3.0)(phi), 3.0 * dense(phi))
    np.testing.assert_allclose(made.evaluate(np.zeros((2, 0))), dense.evaluate(np.zeros((2, 0))))


def test_the_matrix_of_many_columns_is_refused_with_the_alternative():
    made = LowRank(np.ones((5000, 1)), np.ones(5000))
    assert made(np.zeros(0), np.array([4999])).item() == 2.0
    with pytest.raises(ValueError, match=r"5000 columns.*columns=\["):
        made(np.zeros(0))
