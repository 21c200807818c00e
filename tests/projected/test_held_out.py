"""Held-out tasks: one of every block, however the stream is cut."""

from __future__ import annotations

import numpy as np
import pytest

from tailored.solvers.held_out import HeldOutPool
from tailored.tasks.task_set import TaskSet


def some_tasks(n_tasks, seed=0):
    rng = np.random.default_rng(seed)
    return TaskSet.from_tasks([(rng.normal(size=(6, 2)), rng.normal(size=6)) for _ in range(n_tasks)])


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_one_task_of_every_block_is_held_out_and_never_its_first(fraction):
    tasks, block = some_tasks(60), round(1 / fraction)
    empty = HeldOutPool(fraction, 0.5, seed=3)
    pool, train = empty.partition(tasks, 0)
    assert (~train).reshape(-1, block).sum(axis=1).tolist() == [1] * (60 // block)
    assert train[::block].all()
    support, query = pool.tasks()
    assert len(support) == len(query) == 60 // block
    held = tasks[np.flatnonzero(~train)]
    for t in range(len(held)):
        assert len(support[t].y) == len(query[t].y) == 3
        np.testing.assert_array_equal(np.sort(np.append(support[t].y, query[t].y)), np.sort(held[t].y))
    # a pool that takes tasks in is a new one
    assert (empty.held_out, empty.fallback) == ((), ())
    assert not np.array_equal(HeldOutPool(fraction, 0.5, seed=4).partition(tasks, 0)[1], train) or block == 2


def test_the_pool_does_not_depend_on_how_the_stream_is_cut():
    tasks = some_tasks(43)
    whole, train = HeldOutPool(0.2, 0.5, seed=1).partition(tasks, 0)
    pool, masks = HeldOutPool(0.2, 0.5, seed=1), []
    for piece in np.split(np.arange(43), [1, 2, 9, 10, 31]):
        pool, mask = pool.partition(tasks[piece], int(piece[0]))
        masks.append(mask)
    np.testing.assert_array_equal(np.concatenate(masks), train)
    for one, other in zip(pool.tasks(), whole.tasks(), strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)
        np.testing.assert_array_equal(one.offsets, other.offsets)


def test_the_pool_has_a_limit_and_a_fallback_until_it_has_tasks():
    tasks = some_tasks(40)
    limited, train = HeldOutPool(0.2, 0.5, seed=1, limit=3).partition(tasks, 0)
    assert (~train).sum() == len(limited.tasks()[0]) == 3
    assert train[15:].all()
    first, mask = HeldOutPool(0.2, 0.5, seed=1).partition(tasks[:1], 0)
    assert mask.all()
    assert (first.held_out, len(first.fallback), len(first.tasks()[0])) == ((), 1, 1)
    np.testing.assert_array_equal(
        np.sort(np.append(*[part.y for part in first.tasks()])), np.sort(tasks[0].y)
    )
    given = first.add(tasks[20:30])
    assert len(given.tasks()[0]) == 10
    assert first.held_out == ()
