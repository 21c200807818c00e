"""Small seeded environments for the golden values, written with NumPy alone.

`tailored.datasets` is not used: the data must stay the same when the library's generators change.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from tailored import TaskSet

#: Position among the new tasks of the one without support rows.
WITHOUT_ROWS = 2


class Environment(NamedTuple):
    """Tasks to learn from, tasks to hold out, and five new tasks with support and query rows."""

    train: TaskSet
    validation: TaskSet
    support: TaskSet
    query: TaskSet
    sides: list[Any]  # side information of each new task, as a user would pass it to `adapt`


def _environment(draw, sizes, *, name, n_validation=12, new_sizes=(6, 6, 0, 4, 7), n_query=5):
    """Draw tasks one after the other; ``draw(n)`` gives the rows, targets and side information of one."""
    drawn = [draw(n) for n in sizes]
    labels = [f"{name} {t}" for t in range(len(drawn))]
    held_out = [draw(10) for _ in range(n_validation)]
    new = [(n, draw(n + n_query)) for n in new_sizes]
    new_labels = [f"new {t}" for t in range(len(new))]
    support = [_entry(X[:n], y[:n], side) for n, (X, y, side) in new]
    query = [_entry(X[n:], y[n:], side) for n, (X, y, side) in new]
    return Environment(
        _task_set(drawn, labels),
        TaskSet.from_tasks([_entry(*one) for one in held_out]),
        TaskSet.from_tasks(support, new_labels),
        TaskSet.from_tasks(query, new_labels),
        [side for _, (_, _, side) in new],
    )


def _targets(X, w, noise):
    """X w + noise to six decimals, without BLAS: the data must be the same bits wherever they are made."""
    return np.round((X * w).sum(axis=1) + noise, 6)


def _entry(X, y, side):
    return (X, y) if side is None else (X, y, side)


def _task_set(drawn, labels):
    """Through long arrays with a label per row, or one by one where a task has no rows."""
    sizes = [len(y) for _, y, _ in drawn]
    if min(sizes) == 0:
        return TaskSet.from_tasks([_entry(*one) for one in drawn], labels)
    stack = sp.vstack if sp.issparse(drawn[0][0]) else np.concatenate
    X, y = stack([X for X, _, _ in drawn]), np.concatenate([y for _, y, _ in drawn])
    sides = {label: side for label, (_, _, side) in zip(labels, drawn, strict=True)}
    return TaskSet(X, y, np.repeat(labels, sizes), None if drawn[0][2] is None else sides)


@cache
def clusters():
    """Weights in one of two orthogonal planes: a mixture pays."""
    rng = np.random.default_rng(101)
    planes = np.array([[[1, 1, 1, 1], [1, -1, 1, -1]], [[1, 1, -1, -1], [1, -1, -1, 1]]]) / 2.0

    def draw(n):
        X = np.round(0.5 * rng.normal(size=(n, 4)), 6)
        first, second = planes[rng.integers(2)]
        w = 3.0 * (rng.normal() * first + rng.normal() * second)
        return X, _targets(X, w, 0.2 * rng.normal(size=n)), None

    return _environment(draw, [10] * 40, name="task")


@cache
def ragged():
    """Tasks of many sizes, some of one row and some without any; weights around a mean."""
    rng = np.random.default_rng(102)

    def draw(n):
        X = np.round(rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5], 6)
        w = np.array([1.0, -0.5, 0.3]) + rng.normal(size=3) * [0.8, 0.2, 0.5]
        return X, _targets(X, w, 0.3 + 0.3 * rng.standard_t(4, size=n)), None

    sizes = np.concatenate([[0, 1, 0, 1, 1, 0, 1], rng.integers(2, 15, size=27)])
    return _environment(draw, rng.permutation(sizes), name="unit", new_sizes=(5, 9, 0, 2, 1))


@cache
def ratings():
    """Sparse one-hot rows: users rate some of eight items, on a scale without ties."""
    rng = np.random.default_rng(103)
    items = rng.normal(size=8)
    taste = rng.normal(size=(8, 2))

    def draw(n):
        rated = np.sort(rng.choice(8, size=n, replace=False)) if n <= 8 else rng.integers(8, size=n)
        noise = 3.0 + items[rated] + 0.5 * rng.normal() + 0.3 * rng.normal(size=n)
        y = _targets(taste[rated], rng.normal(size=2), noise)
        return sp.csr_array(np.eye(8)[rated]), y, None

    return _environment(draw, [5 + t % 3 for t in range(32)], name="user")


@cache
def numbers():
    """Two numbers of side information that move the weights, and skewed noise: a conditional bias pays."""
    rng = np.random.default_rng(104)

    def draw(n):
        X, s = np.round(rng.normal(size=(n, 3)), 6), np.round(rng.normal(size=2), 6)
        w = np.ones(3) + rng.normal(size=3) * [1.0, 0.5, 0.1]
        w[:2] += 2.0 * s
        return X, _targets(X, w, 0.5 * (rng.exponential(size=n) - 1.0)), s

    return _environment(draw, [9] * 36, name="place")


@cache
def words():
    """Side information with an age and two columns of words; a new task has a word never seen before."""
    rng = np.random.default_rng(105)
    sexes = {"f": [1.0, 0.0, 0.0], "m": [-1.0, 0.5, 0.0]}
    cities = {"Genoa": 0.5, "London": -0.5, "Paris": 0.0}

    def draw(n):
        sex, city, age = (
            rng.choice(list(sexes)),
            rng.choice(list(cities)),
            float(rng.integers(20, 80)),
        )
        X = np.round(rng.normal(size=(n, 3)), 6)
        w = np.array(sexes[sex]) + [0.0, cities[city], age / 40.0] + 0.3 * rng.normal(size=3)
        side = {"age": age, "sex": str(sex), "city": str(city)}
        return X, _targets(X, w, 0.3 * rng.normal(size=n)), side

    made = _environment(draw, [8] * 36, name="person")
    elsewhere = {**made.sides[-1], "city": "Rome"}
    sides = [*made.sides[:-1], elsewhere]
    parts = [
        TaskSet.from_tasks(
            [(task.X, task.y, side) for task, side in zip(part, sides, strict=True)],
            list(part.labels),
        )
        for part in (made.support, made.query)
    ]
    return made._replace(support=parts[0], query=parts[1], sides=sides)


@cache
def signs():
    """Targets -1 and +1."""
    rng = np.random.default_rng(106)
    directions = rng.normal(size=(2, 3))

    def draw(n):
        X = np.round(rng.normal(size=(n, 3)), 6)
        w = 2.0 * rng.normal() * directions[rng.integers(2)]
        return X, np.where(_targets(X, w, 0.3 * rng.normal(size=n)) > 0, 1.0, -1.0), None

    return _environment(draw, [12] * 30, name="sign")


ENVIRONMENTS = {make.__name__: make for make in (clusters, ragged, ratings, numbers, words, signs)}
