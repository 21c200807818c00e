"""A test whether coefficients of tasks are Gaussian, from their posteriors under a Gaussian prior.

Let w ~ N(b, W), and let m and C be the posterior mean and covariance of a task.  If the model is
right, W^-½ (m − b) has the covariance ``R = I − W^-½ C W^-½``, so ``e = R^-½ W^-½ (m − b)`` is
standard normal, whatever the rows of the task are.  The test compares the third and fourth moments
of e with those of a normal distribution, in all directions at once: the Hermite tensors ``H₃(e)``
and ``H₄(e)`` have mean zero.  Directions in which the rows say little about w are noise even if w
is not Gaussian, so a direction has the weight of the mean of R.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..tasks.rows import Array
from .mixture import SMALL_EIGENVALUE, Mixture, Want
from .rows import Tasks


def non_normality(parts: Iterable[tuple[Tasks, Mixture]]) -> float:
    """Return the evidence against Gaussian coefficients, in standard errors; each Gaussian was not
    fitted to its tasks.
    """
    found = [_whitened(tasks, model) for tasks, model in parts]
    z, R = (np.concatenate(each) for each in zip(*found, strict=True))
    weights, axes = np.linalg.eigh(R.mean(axis=0))
    D = np.where(weights > SMALL_EIGENVALUE, weights, 0.0)
    return _hermite_score((_standardised(z, R) @ axes) * np.sqrt(D), D)


def _whitened(tasks: Tasks, model: Mixture) -> tuple[Array, Array]:
    """Return z = W^-½ (m − b), (T, d), and its covariance R (T, d, d); both are zero in directions
    without variance.
    """
    values, vectors = np.linalg.eigh(model.covariances[0])
    large = values > SMALL_EIGENVALUE * max(float(values[-1]), 0.0)
    root = (vectors[:, large] / np.sqrt(values[large])) @ vectors[:, large].T
    found = tasks.posterior(model, Want(means=True, covariances=True))
    effects = model.effects(tasks.side)
    means = model.means[0] if effects is None else model.means[0] + effects
    return (found.mean - means) @ root, root @ (model.covariances[0] - found.covariances) @ root


def _standardised(z: Array, R: Array) -> Array:
    """Return e = R^-½ z (T, d).

    In directions in which R is zero, because a task has few rows, e is noise.  With zeros instead,
    the tensors of such tasks would not have mean zero.
    """
    values, vectors = np.linalg.eigh(R)
    known = values > SMALL_EIGENVALUE
    noise = np.random.default_rng(0).standard_normal(z.shape)
    scaled = np.einsum("tji,tj->ti", vectors, z) / np.sqrt(np.where(known, values, 1.0))
    return np.einsum("tij,tj->ti", vectors, np.where(known, scaled, noise))


def _hermite_score(f: Array, D: Array) -> float:
    """Return the sum over pairs of tasks of <H₃, H₃>/3! + <H₄, H₄>/4!, divided by its standard
    error.

    f (T, d) has the covariance diag(D) if the coefficients are Gaussian.  Then products of
    different tasks have mean zero.
    """
    a, b = f @ f.T, (f * D * D) @ f.T
    p, p3, r2, r4 = (f * f) @ D, (f * f) @ D**3, np.sum(D**2), np.sum(D**4)
    of_two, of_pair = p[:, None] + p, p[:, None] * p
    squares = p[:, None] ** 2 + p**2
    third = a**3 - 3.0 * a * of_two + 3.0 * a * r2 + 6.0 * b
    fourth = a**4 - 6.0 * a**2 * of_two + 6.0 * (a**2 * r2 + of_pair + 4.0 * a * b)
    fourth += (
        3.0 * squares - 6.0 * (of_two * r2 + 2.0 * (p3[:, None] + p3)) + 3.0 * (r2**2 + 2.0 * r4)
    )
    products = (third / 6.0 + fourth / 24.0)[np.triu_indices(len(f), 1)]
    size = float(np.sqrt(products @ products))
    return float(products.sum()) / size if size > 0.0 else 0.0
