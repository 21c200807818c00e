"""Frank-Wolfe on the convex surrogate: no projection, one rank-one direction per iteration."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from tailored._utils.validation import check_int
from tailored.representation.base import Conditioning
from tailored.representation.bias import Bias
from tailored.representation.dense import Constant
from tailored.representation.factored import Factored
from tailored.solvers.objectives import MetaGradient
from tailored.tasks.rows import Rows

from .searched import Array, Learned, SearchedLearner, mean_square


class _Atom(NamedTuple):
    """An extreme point of the trace ball: ``radius · v vᵀ`` in C, ``radius · q qᵀ`` in H, or zero."""

    slope: float
    for_C: Array | None = None
    for_H: Array | None = None


class FrankWolfeLearner(SearchedLearner):
    """``min of the surrogate over H, C ⪰ 0, Tr H + Tr C <= radius`` without a projection.

    What the paper's conclusion suggests in place of the eigendecomposition in Alg. meta_alg: the linear
    problem over the trace ball is solved by the eigenvector of the most negative eigenvalue of the gradient,
    found by Lanczos' method from products with it.  Every iteration looks at all training tasks and adds one
    direction; after k of them H has rank at most k, and the Frank-Wolfe gap bounds the distance to the
    minimum.

    Parameters
    ----------
    feature_map : optional
        As for `ConditionalLearner`; None (the default) learns an unconditional representation.  Features act
        as if they had unit root-mean-square norm.
    radius : "search" or float, default="search"
        Of the trace ball.
    n_iterations : int, default=100
    lipschitz : float, optional
        L in the surrogate; the loss's own by default, the root mean square of the targets where it has none.
    loss, fit_intercept, tol, n_jobs, random_state
        As for `ConditionalLearner`; the within-task algorithm is exact.

    Attributes
    ----------
    objective_, gap_ : arrays (n_iterations,)
        Surrogate over the training tasks and Frank-Wolfe gap at each iterate, for the chosen radius.
    """

    _grid: ClassVar = {"radius": tuple(np.logspace(-1, 4, 6))}
    inner = "exact"

    def __init__(
        self,
        feature_map: Any = None,
        *,
        radius: Any = "search",
        n_iterations: int = 100,
        lipschitz: float | None = None,
        loss: Any = "absolute",
        fit_intercept: bool = True,
        tol: float = 1e-8,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.feature_map = feature_map
        self.radius = radius
        self.n_iterations = n_iterations
        self.lipschitz = lipschitz
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _train(self, rows: Rows, phis: Array, candidates: list[dict[str, float]]) -> list[Learned | None]:
        check_int("n_iterations", self.n_iterations)
        grams = np.array(
            [rows.X[a:b].T @ rows.X[a:b] for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
        )
        scale = np.sqrt(mean_square(phis))
        scaled = phis / scale if scale > 0 else phis
        runs = [self._minimise(rows, grams, scaled, **candidate) for candidate in candidates]
        self._details = [{"objective_": history[:, 0], "gap_": history[:, 1]} for _, history in runs]
        bias = Bias.zero("none", rows.X.shape[1], phis.shape[1])
        return [(_unscale(conditioning, scale), bias) for conditioning, _ in runs]

    def _minimise(self, rows: Rows, grams: Array, phis: Array, radius: float) -> tuple[Conditioning, Array]:
        T, d, k = len(phis), rows.X.shape[1], phis.shape[1]
        C, directions, masses = np.zeros((d, d)), np.zeros((0, d, k)), np.zeros(0)
        thetas = np.zeros((T, d, d))
        lipschitz = self.lipschitz or self.loss_.lipschitz
        if not np.isfinite(lipschitz):
            lipschitz = float(np.sqrt(np.mean(rows.y**2)))
        surrogate, history = self._surrogate(lipschitz), []
        for i in range(self.n_iterations):
            gradient = surrogate(rows, None, thetas, None)
            atom = _best_atom(gradient, grams, phis)
            inner = np.einsum("td,tde,te->t", gradient.left, thetas, gradient.right)
            inner += gradient.gram * np.einsum("tde,tde->t", grams, thetas)
            history.append((gradient.value.mean(), inner.mean() - radius * atom.slope))
            step = 2.0 / (i + 2.0)
            C, masses, thetas = (1.0 - step) * C, (1.0 - step) * masses, (1.0 - step) * thetas
            if atom.for_C is not None:
                added = step * radius * np.outer(atom.for_C, atom.for_C)
                C, thetas = C + added, thetas + added
            elif atom.for_H is not None:
                directions = np.concatenate([directions, atom.for_H[None]])
                masses = np.append(masses, step * radius)
                V = phis @ atom.for_H.T
                thetas = thetas + step * radius * V[:, :, None] * V[:, None, :]
        if k == 0:
            return Constant(C), np.array(history)
        tensor = directions * np.sqrt(masses)[:, None, None]
        return (Factored.from_tensor(tensor, C) if len(tensor) else Factored.zero(C, k)), np.array(history)


def _best_atom(gradient: MetaGradient, grams: Array, phis: Array) -> _Atom:
    """The atom on which the mean gradient over the tasks is smallest (zero if it is nowhere negative)."""
    T, d, k = len(phis), grams.shape[1], phis.shape[1]
    mean_C = (gradient.left.T @ gradient.right + np.tensordot(gradient.gram, grams, 1)) / T
    values, vectors = np.linalg.eigh(0.5 * (mean_C + mean_C.T))
    best = _Atom(0.0)
    if values[0] < 0:
        best = _Atom(float(values[0]), for_C=vectors[:, 0])
    if k == 0:
        return best

    def multiply(q: Array) -> Array:
        V = phis @ q.reshape(d, k).T
        moved = gradient.left * np.einsum("td,td->t", gradient.right, V)[:, None]
        moved += gradient.gram[:, None] * np.einsum("tde,te->td", grams, V)
        return (moved.T @ phis / T).ravel()

    slope, vector = _smallest(multiply, d * k)
    return _Atom(slope, for_H=vector.reshape(d, k)) if slope < best.slope else best


def _smallest(multiply: Any, size: int) -> tuple[float, Array]:
    """The smallest eigenvalue of a symmetric operator and its eigenvector."""
    if size <= 16:  # Lanczos' method needs room between one vector and the whole space
        matrix = np.array([multiply(e) for e in np.eye(size)])
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        return float(values[0]), vectors[:, 0]
    operator = LinearOperator((size, size), matvec=lambda q: multiply(np.ravel(q)), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    values, vectors = eigsh(operator, k=1, which="SA", v0=start, tol=1e-6)
    return float(values[0]), vectors[:, 0]


def _unscale(conditioning: Conditioning, scale: float) -> Conditioning:
    """τ for raw features, when it was learned for features divided by ``scale``."""
    if not isinstance(conditioning, Factored) or scale == 0:
        return conditioning
    values = conditioning.eigenvalues / scale**2
    return Factored(conditioning.basis, values, conditioning.C, conditioning.n_side, conditioning.rank)
