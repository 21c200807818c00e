"""Tasks whose noise is skewed, for the tests of the recommended learner."""

from dataclasses import fields, is_dataclass

import numpy as np

from tailored import TaskSet
from tailored._utils.progress import Stages
from tailored._utils.records import Stored
from tailored.selection.loop import search
from tailored.selection.steps import STEPS


def skewed_tasks(seed, n_tasks=60, d=4, n_rows=12, side=False, scale=0.5):
    """Weights around a mean, and noise whose median is not its mean."""
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        X = rng.normal(size=(n_rows, d))
        s = rng.normal(size=2)
        w = np.ones(d) + rng.normal(size=d) * np.linspace(1.0, 0.1, d)
        if side:
            w[:2] += 3.0 * s
        y = X @ w + scale * (rng.exponential(size=n_rows) - 1.0)
        entries.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(entries)


def weights_of(model):
    """As `adapt_many` has them: the intercept, where there is one, comes last."""
    return np.append(model.coef_, model.intercept_)[: len(model.bias_)]


def learned(learner):
    """The fitted attributes of a learner, by name."""
    return {name: value for name, value in vars(learner).items() if name.endswith("_")}


def same_numbers(one, other):
    """Compare two objects and all that they hold, to the last bit."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(other, one)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same_numbers(one[key], other[key])
    elif isinstance(one, list | tuple):
        for mine, its in zip(one, other, strict=True):
            same_numbers(mine, its)
    elif isinstance(one, Stored):
        same_numbers(one.__getstate__() or {}, other.__getstate__() or {})
    elif is_dataclass(one):
        for part in fields(one):
            if part.init:
                same_numbers(getattr(one, part.name), getattr(other, part.name))
    else:
        assert one == other


def selected(data, steps=STEPS):
    """Return what some steps of the selection accept."""
    return search(data, steps, Stages(""))[0]
