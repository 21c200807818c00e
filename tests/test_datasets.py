"""Synthetic tasks: clusters, hints at them, and schools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailored.datasets import ClusterTruth, load_schools, make_clusters
from tailored.tasks.task_set import TaskSet


def equal(a: TaskSet, b: TaskSet) -> bool:
    fields = ("X", "y", "labels", "offsets", "side_info")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in fields)


@pytest.fixture(scope="module")
def six() -> tuple[TaskSet, ClusterTruth]:
    return make_clusters(n_clusters=6, random_state=0, return_truth=True)


@pytest.mark.parametrize(
    ("m", "d", "rank"), [(2, 20, None), (6, 20, None), (3, 7, 2), (5, 5, 1), (1, 4, 4)]
)
def test_subspaces_are_orthogonal(m: int, d: int, rank: int | None) -> None:
    _, truth = make_clusters(
        40, n_clusters=m, n_features=d, rank=rank, random_state=1, return_truth=True
    )
    frame = np.concatenate(list(truth.bases), axis=1)
    assert frame.shape == (d, m * (rank or 2))
    np.testing.assert_allclose(frame.T @ frame, np.eye(frame.shape[1]), atol=1e-12)
    inside = np.linalg.norm(np.einsum("mdr,td->tmr", truth.bases, truth.weights), axis=2)
    np.testing.assert_allclose(inside, np.eye(m)[truth.clusters], atol=1e-12)


def test_distributions(six: tuple[TaskSet, ClusterTruth]) -> None:
    tasks, truth = six
    np.testing.assert_allclose(np.linalg.norm(tasks.X, axis=1), 1)
    np.testing.assert_allclose(tasks.X.T @ tasks.X / len(tasks.y), np.eye(20) / 20, atol=2e-3)
    noise = tasks.y - np.einsum("nd,nd->n", tasks.X, np.repeat(truth.weights, 80, axis=0))
    assert noise.std() == pytest.approx(0.1, rel=0.02)
    assert abs(noise.mean()) < 5 * 0.1 / np.sqrt(len(noise))
    # Gaussian, not merely of that spread: the fourth moment is three times the squared second.
    assert (noise**4).mean() / (noise**2).mean() ** 2 == pytest.approx(3, rel=0.05)
    # A uniform mixture: each count within 5 standard deviations of the binomial.
    counts = np.bincount(truth.clusters, minlength=6)
    assert np.abs(counts - 150).max() < 5 * np.sqrt(900 * 5 / 36)
    # Directions inside a cluster have no preference: their second moment is I / rank.
    inner = np.einsum("tdr,td->tr", truth.bases[truth.clusters], truth.weights)
    np.testing.assert_allclose(inner.T @ inner / 900, np.eye(2) / 2, atol=0.06)


def test_seeds() -> None:
    options: dict[str, Any] = {"n_tasks": 8, "n_rows": (2, 9), "hint": 0.5}
    first = make_clusters(random_state=3, **options)
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()  # noqa: NPY002
    assert equal(first, make_clusters(random_state=3, **options))
    assert equal(first, make_clusters(random_state=np.random.default_rng(3), **options))
    assert not equal(first, make_clusters(random_state=4, **options))
    legacy = [make_clusters(random_state=np.random.RandomState(5), **options) for _ in range(2)]
    assert equal(*legacy)
    assert not equal(make_clusters(**options), make_clusters(**options))
    assert all(np.array_equal(a, b) for a, b in zip(state, np.random.get_state(), strict=True))  # noqa: NPY002


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_tasks": 0}, ValueError, "n_tasks must be an integer >= 1"),
        ({"n_tasks": 2.5}, TypeError, "n_tasks must be an integer"),
        (
            {"n_clusters": 11},
            ValueError,
            "n_clusters=11 orthogonal subspaces of rank=2 need 22 dimensions",
        ),
        ({"rank": 0}, ValueError, "rank must be an integer >= 1"),
        ({"rank": 11}, ValueError, "n_features=20: lower n_clusters or rank"),
        ({"noise": -1}, ValueError, "noise must be a finite number >= 0"),
        ({"n_rows": 0}, ValueError, "n_rows must be an integer >= 1"),
        ({"n_rows": (0, 3)}, ValueError, r"n_rows\[0\] must be an integer >= 1"),
        ({"n_rows": (4, 3)}, ValueError, r"n_rows\[1\] must be an integer >= 4"),
        ({"n_rows": (1, 2, 3)}, TypeError, r"n_rows must be an integer or a pair \(low, high\)"),
        ({"hint": 1.5}, ValueError, r"hint must be a finite number in \[0, 1\]"),
        ({"hint": True}, TypeError, "hint must be a number"),
    ],
)
def test_bad_clusters(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_clusters(**options)


def test_hints_change_nothing_else() -> None:
    options: dict[str, Any] = {"n_tasks": 25, "n_clusters": 4, "n_rows": (1, 6), "random_state": 2}
    plain, truth = make_clusters(**options, return_truth=True)
    hinted, told = make_clusters(**options, hint=0.7, return_truth=True)
    assert np.array_equal(plain.X, hinted.X)
    assert np.array_equal(plain.y, hinted.y)
    assert np.array_equal(plain.offsets, hinted.offsets)
    assert np.array_equal(truth.weights, told.weights)
    assert told.hint == 0.7
    assert np.array_equal(hinted.side_info, np.eye(4)[told.hints])


@pytest.mark.parametrize(("hint", "m"), [(0.0, 3), (0.3, 2), (0.7, 6), (1.0, 6), (0.5, 1)])
def test_hints_are_right_as_often_as_said(hint: float, m: int) -> None:
    n = 4000
    _, truth = make_clusters(
        n, n_clusters=m, n_rows=1, hint=hint, random_state=0, return_truth=True
    )
    right = hint + (1 - hint) / m
    assert abs((truth.hints == truth.clusters).mean() - right) <= 5 * np.sqrt(
        right * (1 - right) / n
    )
    # Wrong ones have no preference.
    for j in range(m):
        wrong = truth.hints[(truth.clusters == j) & (truth.hints != j)]
        counts = np.delete(np.bincount(wrong, minlength=m), j)
        assert np.all(np.abs(counts - len(wrong) / max(m - 1, 1)) <= 5 * np.sqrt(len(wrong) + 1))


def test_schools_are_as_described():
    pupils, schools = load_schools()
    assert len(pupils) == 1363
    assert pupils.groupby("school").size().between(8, 15).all()
    assert set(pupils.school) == set(schools.school)
    assert sorted(schools.kind.unique()) == ["church", "private", "state"]
    # An hour is worth 1 point in church schools and 3 in others, on average, as they were
    # simulated.
    slopes = pupils.groupby("school")[["hours", "score"]].apply(
        lambda rows: np.polyfit(rows.hours, rows.score, 1)[0]
    )
    church = slopes.index.isin(schools.school[schools.kind == "church"])
    assert slopes[church].mean() == pytest.approx(1.0, abs=0.3)
    assert slopes[~church].mean() == pytest.approx(3.0, abs=0.3)
