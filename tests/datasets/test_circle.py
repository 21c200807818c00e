"""Tasks on a circle."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from same_tasks import equal
from tailored.datasets import CircleTruth, make_circle
from tailored.datasets._synthetic import CURVES
from tailored.tasks.task_set import TaskSet


@pytest.fixture(scope="module")
def circle() -> tuple[TaskSet, CircleTruth]:
    return make_circle(2000, random_state=0, return_truth=True)


def test_circle_shapes(circle: tuple[TaskSet, CircleTruth]) -> None:
    tasks, truth = circle
    assert tasks.X.shape == (2000 * 20, 10)
    assert tasks.labels.tolist() == list(range(2000))
    assert tasks.side_names == ["s"]
    assert np.array_equal(tasks.side_info, truth.s[:, None])
    frame = np.stack([truth.u, truth.v])
    np.testing.assert_allclose(frame @ frame.T, np.eye(2), atol=1e-12)
    with pytest.raises(FrozenInstanceError):
        truth.weights = None


def test_circle_distributions(circle: tuple[TaskSet, CircleTruth]) -> None:
    tasks, truth = circle
    assert truth.s.mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 12 / 2000))
    assert (truth.s.min(), truth.s.max()) == pytest.approx((0, 1), abs=0.01)
    angle = 2 * np.pi * truth.s[:, None]
    around = truth.weights - 4 * (np.cos(angle) * truth.u + np.sin(angle) * truth.v)
    np.testing.assert_allclose(around.T @ around / 2000, 0.09 * np.eye(10), atol=0.015)
    np.testing.assert_allclose(tasks.X.T @ tasks.X / len(tasks.y), np.eye(10), atol=0.03)
    noise = tasks.y - np.einsum("nd,nd->n", tasks.X, np.repeat(truth.weights, 20, axis=0))
    assert noise.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("curve", CURVES)
def test_curves(curve: str) -> None:
    tasks, truth = make_circle(
        50, n_rows=(1, 4), radius=2.5, spread=0, noise=0, curve=curve, random_state=1, return_truth=True
    )
    c = 2 * truth.s - 1
    along, across = {
        "circle": (-np.cos(np.pi * c), -np.sin(np.pi * c)),
        "line": (c, 0 * c),
        "quadratic": (c, c**2),
    }[curve]
    expected = 2.5 * (along[:, None] * truth.u + across[:, None] * truth.v)
    np.testing.assert_allclose(truth.weights, expected, atol=1e-12)
    np.testing.assert_allclose(truth.mean(tasks.side_info), expected, atol=1e-12)
    np.testing.assert_allclose(truth.mean(truth.s), expected, atol=1e-12)
    assert set(tasks.sizes.tolist()) == {1, 2, 3, 4}
    np.testing.assert_allclose(
        tasks.y, np.einsum("nd,nd->n", tasks.X, np.repeat(expected, tasks.sizes, axis=0)), atol=1e-12
    )


def test_circle_seeds() -> None:
    assert equal(make_circle(5, random_state=3), make_circle(5, random_state=np.random.default_rng(3)))
    assert not equal(make_circle(5, random_state=3), make_circle(5, random_state=4))
    options: dict[str, Any] = {"random_state": 3, "return_truth": True}
    first = make_circle(5, **options)[1]
    for change in ({"n_rows": 2}, {"n_rows": (1, 4)}, {"noise": 0.1}):
        assert np.array_equal(first.weights, make_circle(5, **change, **options)[1].weights)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_tasks": 0}, ValueError, "n_tasks must be an integer >= 1"),
        ({"n_features": 1}, ValueError, "n_features must be an integer >= 2"),
        ({"n_rows": 0}, ValueError, "n_rows must be an integer >= 1"),
        ({"radius": -1}, ValueError, "radius must be a finite number >= 0"),
        ({"spread": np.inf}, ValueError, "spread must be a finite number"),
        ({"noise": "much"}, TypeError, "noise must be a number"),
        ({"curve": "circel"}, ValueError, "'circle', 'line', 'quadratic'.*Did you mean 'circle'"),
    ],
)
def test_bad_circles(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_circle(**options)
