"""Conditioning functions τ(s) and prior means b(s), and the steps of Algorithm 1 on them.

Every conditioning function except `Given` stores the pair ``(H, C)`` of the paper's Eq. (feature-space-T),

    τ(s) = (I_d ⊗ φᵀ) H (I_d ⊗ φ) + C ,    H ⪰ 0 (dk, dk),  C ⪰ 0 (d, d),

in its own way: `Constant` has H = 0, `Dense` stores H, and `factored.Factored` stores H in a basis of its range.  The package
contains linear algebra only.

The prior mean of a task's weights is b(s) = B φ(s) + b₀.  `"none"` keeps it at zero (the paper), `"shared"` learns b₀,
`"conditional"` learns B and b₀ (the companion method of biased regularisation).  The prior mean is unconstrained, so its
gradient steps need no projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Stored
from .._utils.validation import check_choice

Array = NDArray[np.float64]
Index = NDArray[np.intp]

#: Eigenvalues below this fraction of the largest one, in absolute value, are rounding noise and are dropped.
RANK_TOLERANCE = 1e-14


def project_psd(matrix: Array) -> Array:
    """Return the positive semidefinite matrix nearest to the symmetric part, in Frobenius norm."""
    # Entries are halved first, because the sum of two entries near the largest float would overflow.
    matrix = 0.5 * matrix + 0.5 * matrix.T
    try:
        # Most steps of C stay in the cone; a Cholesky factorisation checks this in a tenth of the time of eigh.
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        vectors = vectors[:, values > 0] * np.sqrt(values[values > 0])
        matrix = vectors @ vectors.T
    return matrix


def in_cone(matrix: Array) -> Array:
    """Return a symmetric matrix unchanged if it is positive semidefinite up to rounding, else its projection."""
    rounding = 1e-8 * np.abs(matrix).max(initial=0.0)
    try:
        np.linalg.cholesky(matrix + max(rounding, np.finfo(float).tiny) * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return project_psd(matrix)
    return matrix


def finite(matrix: Array, name: str) -> Array:
    """Return the matrix, or raise an OverflowError if it is not finite."""
    # The sum is cheaper than a mask: infinities and NaN survive addition.
    if not np.isfinite(matrix.sum()) and not np.isfinite(matrix).all():
        raise OverflowError(f"the iterate {name} is no longer finite")
    return matrix


class Conditioning(Stored, ABC):
    """A conditioning function τ with parameters ``(H, C)``."""

    def __init__(self, C: Array, n_side: int = 0) -> None:
        self.C = np.array(C, dtype=float)
        self.n_side = n_side

    @property
    def n_features(self) -> int:
        return len(self.C)

    @abstractmethod
    def __call__(self, phi: Array) -> Array:
        """Return τ at one feature vector ``phi`` (k,): a (d, d) matrix."""

    def evaluate(self, phis: Array) -> Array:
        """Return τ at many feature vectors ``phis`` (T, k): an array (T, d, d)."""
        return np.array([self(phi) for phi in phis]).reshape(
            len(phis), self.n_features, self.n_features
        )

    def columns(self, phi: Array, columns: Index) -> Array:
        """Return ``τ(s)[:, columns]``, for a sparse task whose other columns are zero."""
        return self(phi)[:, columns]

    @abstractmethod
    def scale(self, factor: float) -> Conditioning:
        """Return the conditioning function ``factor · τ``."""

    @abstractmethod
    def dense_H(self) -> Array:
        """Return H as a (dk, dk) matrix (Prop. matricial_rewriting); for tests and small problems."""

    @property
    def depends_on_task(self) -> bool:
        """Whether τ can differ between tasks: H ≠ 0, or τ is given by the user."""
        return True

    def mean(self, moment: Array) -> Array:
        """Return the mean of τ over tasks with mean φφᵀ = ``moment`` (k, k); not valid for `Given`."""
        values, vectors = np.linalg.eigh(moment)
        # τ − C is a quadratic form in φ, so it is enough to know it at the scaled eigenvectors.
        taus = self.evaluate((vectors * np.sqrt(np.maximum(values, 0.0))).T)
        return np.asarray((taus - self.C).sum(axis=0) + self.C)

    def copy(self) -> Self:
        """Return an independent copy."""
        return deepcopy(self)


class Iterate(Conditioning):
    """A conditioning function that takes projected gradient steps (paper's Alg. meta_alg), in place."""

    def step(self, gradient: Array, phi: Array, step_C: float, step_H: float) -> None:
        """Set ``C ← proj(C − step_C · G)`` and ``H ← proj(H − step_H · (I ⊗ φ) G (I ⊗ φᵀ))``.

        G (d, d) is the gradient of the objective in θ.
        """
        self._step_C(gradient, step_C)
        self._step_H(gradient, phi, step_H)

    def _step_C(self, gradient: Array, step: float) -> None:
        if step != 0:
            moved = finite(self.C - step * gradient, "C")
            self.C = finite(project_psd(moved), "C")

    @abstractmethod
    def _step_H(self, gradient: Array, phi: Array, step: float) -> None: ...

    @abstractmethod
    def accumulate(self, other: Self, weight: float) -> None:
        """Update a running average, in place."""


class Constant(Iterate):
    """τ(s) = C for every task: the unconditional case."""

    def __call__(self, phi: Array) -> Array:
        return self.C

    def evaluate(self, phis: Array) -> Array:
        return np.broadcast_to(self.C, (len(phis), *self.C.shape))

    @property
    def depends_on_task(self) -> bool:
        return False

    def _step_H(self, gradient: Array, phi: Array, step: float) -> None:
        """Keep H = 0."""

    def accumulate(self, other: Constant, weight: float) -> None:
        self.C = (1.0 - weight) * self.C + weight * other.C

    def scale(self, factor: float) -> Constant:
        return Constant(factor * self.C, self.n_side)

    def dense_H(self) -> Array:
        return np.zeros((self.n_features * self.n_side, self.n_features * self.n_side))


class Given(Conditioning):
    """τ(s) given by the user: φ(s) contains the entries of τ(s), row by row (see `feature_maps.maps.GivenMap`)."""

    def __init__(self, n_features: int) -> None:
        super().__init__(np.zeros((n_features, n_features)), n_features**2)

    def __call__(self, phi: Array) -> Array:
        return phi.reshape(self.C.shape)

    def evaluate(self, phis: Array) -> Array:
        return phis.reshape(-1, *self.C.shape)

    def scale(self, factor: float) -> Given:
        raise TypeError(
            "tau: a given function cannot be scaled; multiply the values that it returns"
        )

    def dense_H(self) -> Array:
        raise AttributeError("H_: a given function τ has no H; representation() returns its values")


class Dense(Conditioning):
    """H as a full (dk, dk) matrix, as the paper writes it."""

    def __init__(self, H: Array, C: Array) -> None:
        super().__init__(C, len(H) // max(len(C), 1))
        self.H = np.array(H, dtype=float)

    def __call__(self, phi: Array) -> Array:
        return np.asarray(self.evaluate(phi[None])[0])

    def evaluate(self, phis: Array) -> Array:
        d, k = self.n_features, self.n_side
        taus = np.empty((len(phis), d, d))
        for start in range(0, len(phis), 64):  # blocks limit the memory
            block = phis[start : start + 64]
            half = (block @ self.H.reshape(d * k * d, k).T).reshape(len(block), d, k, d)
            taus[start : start + 64] = np.einsum("tihj,th->tij", half, block)
        return np.asarray(taus + self.C)

    def scale(self, factor: float) -> Dense:
        return Dense(factor * self.H, factor * self.C)

    def dense_H(self) -> Array:
        return self.H

    @property
    def depends_on_task(self) -> bool:
        # The mean of the iterates leaves rounding errors in an H that is zero.
        return bool(
            np.abs(self.H).max(initial=0.0) > RANK_TOLERANCE * np.abs(self.C).max(initial=0.0)
        )


#: For each value of a learner's ``bias``: whether the mean is learned, and whether it depends on φ.
BIASES = {"none": (False, False), "shared": (True, False), "conditional": (True, True)}


class Bias(Stored):
    """b(s) = B φ(s) + b₀ with the parts that ``kind`` selects: ``constant`` is b₀ (d,), ``linear`` is B (d, k).

    B is (d, 0) unless the kind is "conditional".
    """

    def __init__(self, kind: str, constant: Array, linear: Array) -> None:
        self.kind = kind
        self.moves, self.conditional = BIASES[check_choice("bias", kind, BIASES)]
        self.constant = constant
        self.linear = linear

    @classmethod
    def zero(cls, kind: str, n_features: int, n_side: int) -> Bias:
        """Return b = 0, the initial value."""
        conditional = BIASES[kind][1]
        return cls(kind, np.zeros(n_features), np.zeros((n_features, n_side if conditional else 0)))

    def __call__(self, phi: Array) -> Array:
        return self.constant + self.linear @ phi if self.conditional else self.constant

    def evaluate(self, phis: Array) -> Array:
        """Return b at many feature vectors (T, k): an array (T, d)."""
        if self.conditional:
            return self.constant + phis @ self.linear.T
        return np.broadcast_to(self.constant, (len(phis), len(self.constant)))

    def step(self, gradient: Array, phi: Array, step: float, step_linear: float) -> None:
        """Take a gradient step of b₀ and B, or of those that are learned, in place."""
        if not self.moves or step == 0:
            return
        self.constant -= step * gradient
        if self.conditional:
            self.linear -= step_linear * np.outer(gradient, phi)
        if not (np.isfinite(self.constant).all() and np.isfinite(self.linear).all()):
            raise OverflowError("the iterate b is no longer finite")

    def accumulate(self, other: Bias, weight: float) -> None:
        """Update a running average, in place."""
        if self.moves:
            self.constant = (1.0 - weight) * self.constant + weight * other.constant
            self.linear = (1.0 - weight) * self.linear + weight * other.linear

    def copy(self) -> Bias:
        """Return an independent copy."""
        return deepcopy(self)
