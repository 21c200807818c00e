"""Random tasks and factors, and the losses of the tests."""

from __future__ import annotations

import numpy as np

import reference as ref
from tailored import losses
from tailored.representation.bias import Bias
from tailored.solvers.base import TaskBatch
from tailored.solvers.factored import Factors
from tailored.solvers.objectives import Query, Surrogate
from tailored.tasks.rows import Rows

L = 0.4
LOSSES = {
    "squared": (losses.LOSSES["squared"](), ref.squared()),
    "absolute": (losses.LOSSES["absolute"](), ref.absolute()),
}


def random_rows(rng, sizes, d):
    X = rng.normal(size=(sum(sizes), d)) / np.sqrt(d)
    y = X @ rng.normal(size=d) + rng.normal(size=len(X))
    return Rows(X, y, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def random_batch(rng, d=3, k=2, support=(6, 1, 9, 4), query=(4, 3, 5, 2)):
    T = len(support)
    phis = rng.normal(size=(T, k))
    return TaskBatch(random_rows(rng, support, d), random_rows(rng, query, d), phis, np.ones(T))


def random_factors(rng, d=3, k=2, r=2, bias="conditional"):
    prior = Bias.zero(bias, d, k)
    start = Factors.of(np.eye(d), k, r, prior)
    return start.unpack(0.6 * rng.normal(size=start.pack().size))


def objective_of(kind, loss, tol=1e-13):
    return Query(loss, tol) if kind == "query" else Surrogate(loss, L, tol=tol)
