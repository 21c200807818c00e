"""Solving one task or many, a case of every loss, random tasks and representations, and the value
at zero.
"""

import numpy as np
import pytest

from tailored.losses import Huber, Pinball, get_loss
from tailored.paper.within_task import WithinSolution, WithinTask
from tailored.tasks.rows import Rows

CASES = {
    "absolute": get_loss("absolute"),
    "pinball": Pinball(0.3),
    "huber": Huber(0.6),
    "squared": get_loss("squared"),
    "logistic": get_loss("logistic"),
    "hinge": get_loss("hinge"),
}
losses = pytest.mark.parametrize("loss", CASES.values(), ids=CASES.keys())
WITHIN = ("exact", "online")
inners = pytest.mark.parametrize("inner", WITHIN)

# n < d/2 takes the route through X theta X', the others that through a root of theta
SHAPES = [(1, 1), (1, 7), (3, 11), (6, 9), (9, 9), (12, 5), (30, 4), (25, 1)]


def solve_many(X, y, starts, thetas, loss, *, offset=None, labels=None, **settings):
    """The solution of tasks; ``thetas`` (d, d) is for all of them."""
    thetas = thetas if thetas.ndim == 3 else thetas[None]
    return WithinTask(loss, **settings).solve(Rows(X, y, starts), thetas, offset, labels)


def solve(X, y, theta, loss, **options):
    """The solution of one task; values of tasks are numbers."""
    many = solve_many(X, y, np.array([0, len(y)]), theta, loss, **options)
    coef, alpha, *numbers = many
    return WithinSolution(coef[0], alpha, *(values.item() for values in numbers))


def random_theta(rng, d, rank=None):
    root = rng.normal(size=(d, d if rank is None else rank))
    return root @ root.T


def random_task(rng, n, d, loss):
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) / np.sqrt(d) + 0.5 * rng.normal(size=n)
    return X, np.where(y > 0, 1.0, -1.0) if loss.name in ("logistic", "hinge") else y


def zero_value(y, loss, offset):
    return loss.value(offset, y).mean()
