"""Bayes oracles: the weights that an observer who knows the environment would give to a task.

An oracle knows what a learner has to find out (subspaces, curves, variances), sees the same rows
and the same side information, and answers with the posterior mean of the task's weights.  No method
predicts with a smaller expected squared error.  With the absolute error that holds for the circle,
whose posterior is Gaussian; in the clusters the posterior median would be about 1 % better where
few rows leave the cluster in doubt.

On the sphere
-------------
Weights of a cluster are ``w = P u`` with u uniform on the unit sphere, so that given rows the
density of u is that of a Gaussian, ``exp(bᵀu - ½ uᵀAu)`` with ``A = PᵀXᵀXP/σ²`` and ``b =
PᵀXᵀy/σ²``, held to ``‖u‖ = 1``. The multiplier t of that constraint makes it an integral over one
variable, in any dimension r:

    ∫_{‖u‖=1} exp(bᵀu - ½ uᵀAu) du  ∝  1/(2πi) ∫ exp(t + ½ bᵀ(A + 2tI)⁻¹b) det(A + 2tI)^-½ dt ,

the inverse Laplace transform, at ``‖u‖² = 1``, of what is Gaussian without the constraint; with a
factor ``(A + 2tI)⁻¹b`` in the integrand it gives the mean of u.  Quadrature along a hyperbola
through the saddle point is exact to rounding for every noise level, where points on the sphere
would have to be as dense as the posterior is narrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from tailored._utils.validation import check_nonnegative, check_positive, check_real
from tailored.losses import get_loss
from tailored.paper.theory import Array
from tailored.tasks.rows import BATCH_FLOATS, Rows, dense, predictions, task_means
from tailored.tasks.task_set import TaskSet

#: Nodes on the upper half of the contour; the lower half is its mirror image.
NODES = 96

#: Slope of the contour's ends, dx / dy.  Below 1 the integrand falls all along it, whatever A and b
#: are: with ``D = A + 2t₀I`` diagonal, the saddle point has ``Σ b²/D² <= 1``, and each direction's
#: part of the exponent, ``-slope·y + ½D²(Re 1/(D - 2slope·y + 2iy) - 1/D)``, is negative.
SLOPE = 0.5

#: The contour is followed until the integrand has fallen by this many powers of e.
FALL = 42.0

#: Halvings of an interval: enough for a saddle point and an end that need not be exact.
HALVINGS = 50


class BayesOracle(ABC):
    """Knows an environment; adapts to tasks as a learner does, and is scored as one."""

    @abstractmethod
    def adapt_many(self, tasks: TaskSet) -> Array:
        """Posterior mean of the weights of each task given its rows and side information, (T,
        d).
        """

    def task_errors(self, tasks: TaskSet, query: TaskSet, *, loss: Any = "absolute") -> Array:
        """Error of each task (T,) on the rows of `query`, adapted on those of `tasks`, of which
        there may be none.

        Parameters
        ----------
        tasks, query : TaskSet
            Rows of the same tasks, in the same order.
        loss : str or Loss
            What to average over the query rows.
        """
        if len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")
        prediction = predictions(Rows.of(query), self.adapt_many(tasks))
        return task_means(get_loss(loss).value(prediction, query.y), query.offsets)


# -------------------------------------------------------------------------------------------
# clusters


@dataclass(frozen=True)
class ClusterOracle(BayesOracle):
    """Bayes oracle of the clusters: a task of cluster j has ``w = P_j u``, u uniform on the unit
    sphere.

    Exact posterior mean: clusters weighted by ``p(j | hint) p(y | X, j)``, and within each the mean
    of u. (Clusters are held to be equally likely before the hint.)

    Parameters
    ----------
    bases : array (m, d, r)
        The ``P_j``, orthonormal or not: `ClusterTruth.bases`.
    noise : float
        Standard deviation of the Gaussian noise, above zero.
    hint : float in [0, 1], optional
        Side information starts with the indicator (m,) of a cluster: with this probability the
        task's own, else that of a uniformly random one.  None: side information is not looked at.
    """

    bases: Array
    noise: float
    hint: float | None = None

    def __post_init__(self) -> None:
        bases = np.asarray(self.bases, dtype=float)
        if bases.ndim != 3:
            raise ValueError(f"bases must have shape (m, d, r); got {bases.shape}.")
        object.__setattr__(self, "bases", bases)
        check_positive("noise", self.noise)
        if self.hint is not None:
            check_real("hint", self.hint, 0.0, 1.0)

    def adapt_many(self, tasks: TaskSet) -> Array:
        return self._posterior(tasks)[1]

    def responsibilities(self, tasks: TaskSet) -> Array:
        """Posterior probability of each cluster given rows and hint, (T, m)."""
        return self._posterior(tasks)[0]

    def prior_probabilities(self, tasks: TaskSet) -> Array:
        """Probability of each cluster given the hint alone, (T, m)."""
        m = len(self.bases)
        if self.hint is None:
            return np.full((len(tasks), m), 1.0 / m)
        side = np.zeros((len(tasks), 0))
        if tasks.side_info is not None:
            side = np.asarray(tasks.side_info, float)[:, :m]
        if side.shape[1] != m or not (np.sort(side, axis=1) == np.eye(m)[-1]).all():
            raise ValueError(
                f"side_info: hint={self.hint} needs the indicator of one of {m} clusters for each "
                "task, "
                f"{m} columns of which one is 1; got {side.shape[1]} columns. Pass hint=None to do "
                "without."
            )
        return self.hint * side + (1.0 - self.hint) / m

    def _posterior(self, tasks: TaskSet) -> tuple[Array, Array]:
        m, d, r = self.bases.shape
        with np.errstate(divide="ignore"):  # a sure hint rules the others out
            log_prior = np.log(self.prior_probabilities(tasks))
        responsibilities, weights = np.empty((len(tasks), m)), np.empty((len(tasks), d))
        step = max(1, BATCH_FLOATS // (2 * m * r * NODES))
        for start in range(0, len(tasks), step):
            batch = slice(start, start + step)
            gram, moment = _statistics(tasks[batch], self.bases, self.noise)
            log_evidence, u = sphere_posterior(gram, moment)
            responsibilities[batch] = softmax(log_prior[batch] + log_evidence, axis=1)
            weights[batch] = np.einsum(
                "tm,mdr,tmr->td", responsibilities[batch], self.bases, u, optimize=True
            )
        return responsibilities, weights


@dataclass(frozen=True)
class SubspaceOracle(BayesOracle):
    """Bayes oracle of weights ``w = P_j u`` with ``u ~ N(0, I / r)`` and equally likely clusters
    j.
    """

    bases: Array  # the ``P_j``, (m, d, r)
    noise: float  # standard deviation

    def adapt_many(self, tasks: TaskSet) -> Array:
        gram, moment = _statistics(tasks, self.bases, self.noise)
        r = gram.shape[-1]
        precision = gram + r * np.eye(r)
        u = np.linalg.solve(precision, moment[..., None])[..., 0]
        log_evidence = 0.5 * ((moment * u).sum(axis=-1) - np.linalg.slogdet(precision)[1])
        return np.einsum(
            "tm,mdr,tmr->td", softmax(log_evidence, axis=1), self.bases, u, optimize=True
        )


def _statistics(tasks: TaskSet, bases: Array, noise: float) -> tuple[Array, Array]:
    """A (T, m, r, r) and b (T, m, r) of each task in the coordinates of each cluster."""
    XX, Xy = _sums(tasks)
    A = np.einsum("mdr,tde,mes->tmrs", bases, XX, bases, optimize=True) / noise**2
    return A, np.einsum("mdr,td->tmr", bases, Xy) / noise**2


def _sums(tasks: TaskSet) -> tuple[Array, Array]:
    """``XᵀX`` (T, d, d) and ``Xᵀy`` (T, d) of each task; zero without rows."""
    X, d = dense(tasks.X), tasks.n_features
    spans = [slice(a, b) for a, b in zip(tasks.offsets[:-1], tasks.offsets[1:], strict=True)]
    XX = np.array([X[span].T @ X[span] for span in spans]).reshape(len(tasks), d, d)
    return XX, np.array([X[span].T @ tasks.y[span] for span in spans]).reshape(len(tasks), d)


def sphere_posterior(A: Array, b: Array) -> tuple[Array, Array]:
    """Density ``exp(bᵀu - ½ uᵀAu)`` on the unit sphere: log of its integral up to a constant, and
    its mean.

    Parameters
    ----------
    A : array (..., r, r)
        Symmetric, positive semidefinite.
    b : array (..., r)

    Returns
    -------
    log_integral : array (...)
        The constant depends on r alone.
    mean : array (..., r)
    """
    values, vectors = np.linalg.eigh(A)
    beta = np.einsum("...ij,...i->...j", vectors, b)
    D, squares = _at_saddle_point(values, beta**2), beta**2
    z = D[..., :1] / 2  # from the saddle point to the nearest singularity: the scale of the contour

    def exponent(v: Array) -> tuple[Any, Any]:
        """The exponent and t, both less what they are at the saddle point: subtracted by hand, to
        keep digits.
        """
        t = z * (1j * np.sinh(v) - SLOPE * (np.cosh(v) - 1))
        s, S, E = t[..., None], D[..., None, :], squares[..., None, :]
        return t - (E * s / (S * (S + 2 * s)) + np.log1p(2 * s / S) / 2).sum(axis=-1), t

    # Halving finds where the contour may end, since the exponent falls all along it.  What is left
    # of t where b takes most of it back, 1 - Σ b²/D² = Σ 1/D >= 1/(2z), has fallen by FALL at the
    # last place to look.
    low, high = np.zeros_like(z), np.full_like(z, np.arccosh(1 + 2 * (FALL + 1) / SLOPE))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fallen = exponent(middle)[0].real < -FALL
        low, high = np.where(fallen, low, middle), np.where(fallen, middle, high)

    v = high * np.linspace(0, 1, NODES)
    value, t = exponent(v)
    # dt / i: the lower half is the conjugate, so that real parts are what is left of the sum.
    density = np.exp(value) * z * (np.cosh(v) + 1j * SLOPE * np.sinh(v))
    density[..., 0] /= 2
    total = density.real.sum(axis=-1)
    means = (density[..., None] / (D[..., None, :] + 2 * t[..., None])).real.sum(axis=-2) * beta
    saddle = (D[..., 0] - values[..., 0]) / 2
    at_saddle = saddle + (squares / D - np.log(D)).sum(axis=-1) / 2
    log_integral = at_saddle + np.log(total * high[..., 0] / (NODES - 1))
    return log_integral, np.einsum("...ij,...j->...i", vectors, means / total[..., None])


def _at_saddle_point(values: Array, squares: Array) -> Array:
    """``D = λ + 2t`` (..., r) with t such that the unconstrained Gaussian has ``E‖u‖² = Σ 1/D +
    b²/D² = 1``.
    """
    r = values.shape[-1]
    gaps = values - values[..., :1]
    # The sum decreases in the least D: it is at least 1/D, and at most r/D + ‖b‖²/D².
    low = np.ones_like(values[..., :1])
    high = (r + np.sqrt(r**2 + 4 * squares.sum(axis=-1, keepdims=True))) / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = ((1 + squares / (gaps + middle)) / (gaps + middle)).sum(axis=-1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return gaps + high


# ---------------------------------------------------------------------------------------------
# curves


@dataclass(frozen=True)
class CurveOracle(BayesOracle):
    """Bayes oracle of weights around a curve: ``w ~ N(mean(s), spread² I)``; its posterior mean is
    closed form.

    Parameters
    ----------
    mean : callable
        Prior mean (T, d) of the weights at the first column (T, 1) of the side information:
        `studies.curves.CircleTruth.mean`.
    spread, noise : float
        Standard deviation of the weights around the curve, and of the noise (above zero).
    """

    mean: Callable[[Array], Array]
    spread: float
    noise: float

    def __post_init__(self) -> None:
        check_nonnegative("spread", self.spread)
        check_positive("noise", self.noise)

    def adapt_many(self, tasks: TaskSet) -> Array:
        if tasks.side_info is None:
            raise ValueError("side_info: these tasks have none, and the curve is indexed by it.")
        prior = np.asarray(self.mean(np.asarray(tasks.side_info, dtype=float)[:, :1]), dtype=float)
        XX, Xy = _sums(tasks)
        system = XX * self.spread**2 + self.noise**2 * np.eye(tasks.n_features)
        right = self.spread**2 * (Xy - np.einsum("tij,tj->ti", XX, prior))
        return prior + np.linalg.solve(system, right[..., None])[..., 0]
