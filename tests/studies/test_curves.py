"""Tasks around a curve."""

from __future__ import annotations

import numpy as np
import pytest

from studies.curves import CURVES, CircleTruth, make_circle
from tailored.tasks.task_set import TaskSet


@pytest.fixture(scope="module")
def circle() -> tuple[TaskSet, CircleTruth]:
    return make_circle(2000, random_state=0, return_truth=True)


def test_circle_distributions(circle: tuple[TaskSet, CircleTruth]) -> None:
    tasks, truth = circle
    assert truth.s.mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 12 / 2000))
    assert (truth.s.min(), truth.s.max()) == pytest.approx((0, 1), abs=0.01)
    angle = 2 * np.pi * truth.s[:, None]
    around = truth.weights - 4 * (np.cos(angle) * truth.plane[0] + np.sin(angle) * truth.plane[1])
    np.testing.assert_allclose(around.T @ around / 2000, 0.09 * np.eye(10), atol=0.015)
    np.testing.assert_allclose(tasks.X.T @ tasks.X / len(tasks.y), np.eye(10), atol=0.03)
    noise = tasks.y - np.einsum("nd,nd->n", tasks.X, np.repeat(truth.weights, 20, axis=0))
    assert noise.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("curve", CURVES)
def test_curves(curve: str) -> None:
    tasks, truth = make_circle(
        50,
        n_rows=(1, 4),
        radius=2.5,
        spread=0,
        noise=0,
        curve=curve,
        random_state=1,
        return_truth=True,
    )
    c = 2 * truth.s - 1
    along, across = {
        "circle": (-np.cos(np.pi * c), -np.sin(np.pi * c)),
        "quadratic": (c, c**2),
    }[curve]
    expected = 2.5 * (along[:, None] * truth.plane[0] + across[:, None] * truth.plane[1])
    np.testing.assert_allclose(truth.weights, expected, atol=1e-12)
    np.testing.assert_allclose(truth.mean(tasks.side_info), expected, atol=1e-12)
    np.testing.assert_allclose(truth.mean(truth.s), expected, atol=1e-12)
    assert set(tasks.sizes.tolist()) == {1, 2, 3, 4}
    np.testing.assert_allclose(
        tasks.y,
        np.einsum("nd,nd->n", tasks.X, np.repeat(expected, tasks.sizes, axis=0)),
        atol=1e-12,
    )
