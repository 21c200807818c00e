"""Maximum likelihood, optionally penalised by shrinkage, for one component and non-Gaussian
targets, by Newton's method.

The parameters are b, the entries of a lower triangular L with ``W = LLᵀ`` for the coefficients that
vary, and the logarithm of the dispersion if the response has one.  First and second derivatives of
the evidence are computed by quadrature (`tailored.gaussian.quadrature.write_scores`).  A variance
of zero is a regular point of L, so the fit can end there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from ..tasks.rows import Array
from .mixture import Mixture, Shrinkage
from .sites import DISPERSIONS, ResponseRows

#: If there are more than twice this many tasks, a sample of about this size is fitted first.
SAMPLE = 8000
#: Maximum change of a parameter in one step; data are scaled to unit size.
LARGEST_STEP = 2.0
#: A fit, and a rough fit, stops if the expected gain in log evidence is below this value: the
#: estimates are then 0.005 or 0.3 standard errors from the maximum.  The evidence of a rough fit
#: jumps by about as much where the positions of its few nodes change.
LEAST_GAIN = (1e-5, 0.05)
#: Minimum curvature, relative to the diagonal of the information matrix.
LEAST_CURVATURE = 1e-7
#: Maximum absolute entry of L and of the mean, which otherwise diverge if classes are separable;
#: maximum initial entry of W, and an initial variance that is added to W, because variances of zero
#: have zero gradient.
LARGEST_SCALE, LARGEST_START, ADDED = 30.0, 100.0, 0.01


class _Point(NamedTuple):
    """Parameters, the log evidence, the log evidence plus the log prior of W (``value``), gradient
    and information.
    """

    parameters: Array
    log_evidence: float
    value: float
    gradient: Array
    information: Array
    squares: Array  # sum of the outer products of the scores of tasks


@dataclass(frozen=True)
class Scoring:
    """Fit a model of one component.

    Coefficients whose variance is zero at the start do not vary, but their means are estimated as
    well.
    """

    tasks: ResponseRows
    diagonal: bool = False
    shrinkage: Shrinkage | None = None

    def __call__(self, start: Mixture, max_iter: int) -> tuple[Mixture, float]:
        """Return the fitted model and its log evidence per task."""
        W, noise = start.covariances[0], [np.log(start.noise)] * self.tasks.response.has_dispersion
        varying = np.flatnonzero(W.diagonal())
        root = np.linalg.cholesky(W[np.ix_(varying, varying)] + ADDED * np.eye(len(varying)))
        entries = root[self._entries(len(root))]
        point = self._maximise(np.concatenate([start.means[0], entries, noise]), varying, max_iter)
        if self.shrinkage is None and not self.tasks.is_rough:
            # The model without variances is a limit of the fitted one, so its evidence is a lower
            # bound.
            fixed = self._maximise(np.append(start.means[0], noise), varying[:0], max_iter)
            if point.value < fixed.value:
                parameters = np.insert(fixed.parameters, len(start.means[0]), 1e-3 * entries)
                point = fixed._replace(parameters=parameters)
        b, L, sigma = self._parts(point.parameters, varying)
        model = replace(start, means=b[None], covariances=(L @ L.T)[None], noise=sigma)
        return model, point.log_evidence / max(len(self.tasks), 1)

    def _parts(self, parameters: Array, varying: NDArray[np.intp]) -> tuple[Array, Array, float]:
        """Return b (d,), L (d, p) and the noise."""
        i, j = self._entries(len(varying))
        d = self.tasks.n_features
        b, entries, noise = np.split(parameters, [d, d + len(i)])
        L = np.zeros((d, len(varying)))
        L[varying[i], j] = entries
        return b, L, float(np.exp(noise.sum()))

    def _entries(self, p: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows and columns of the free entries of L."""
        return (np.arange(p), np.arange(p)) if self.diagonal else np.tril_indices(p)

    def _maximise(self, start: Array, varying: NDArray[np.intp], max_iter: int) -> _Point:
        point, damping = self._evaluate(start, varying), 0.01
        least, q = LEAST_GAIN[self.tasks.is_rough], len(start)
        bounds = np.full((2, q), LARGEST_SCALE) * np.array([[-1.0], [1.0]])
        if self.tasks.response.has_dispersion:
            bounds[:, -1] = np.log(DISPERSIONS[[0, -1]])
        for _ in range(max_iter):
            x, gradient = point.parameters, point.gradient
            stuck = ((x <= bounds[0]) & (gradient < 0)) | ((x >= bounds[1]) & (gradient > 0))
            sizes = np.sqrt(np.abs(point.information.diagonal()))
            used = ~stuck & (sizes > 1e-6 * sizes.max(initial=1e-300))
            sizes = sizes[used]
            if not used.any() or not np.isfinite(point.value):
                break
            H = point.information[np.ix_(used, used)]
            if np.linalg.eigvalsh(H / sizes / sizes[:, None])[0] < LEAST_CURVATURE:
                # Far from the maximum, the sum of squared scores is a better guess of the
                # curvature.
                H = point.squares[np.ix_(used, used)]
                sizes = np.sqrt(H.diagonal())
            curvature, vectors = np.linalg.eigh(H / sizes / sizes[:, None])
            curvature = np.maximum(curvature, LEAST_CURVATURE)
            slopes = vectors.T @ (gradient[used] / sizes)
            if 0.5 * np.sum(slopes**2 / curvature) < least or damping > 1e5:
                break
            step = np.zeros(q)
            step[used] = vectors @ (slopes / (curvature + damping)) / sizes
            step /= max(np.abs(step).max() / LARGEST_STEP, 1.0)
            new = self._evaluate(np.clip(x + step, *bounds), varying)
            is_better = new.value > point.value
            point, damping = (new, 0.3 * damping) if is_better else (point, 10.0 * damping)
        return point

    def _evaluate(self, parameters: Array, varying: NDArray[np.intp]) -> _Point:
        b, L, noise = self._parts(parameters, varying)
        entries, rows = self._entries(len(varying)), self.tasks.X[:, varying]
        each, scores, informations = self.tasks.scores(b, L, noise, rows, entries)
        log_evidence = value = float(each.sum())
        gradient, information = scores.sum(axis=0), informations.sum(axis=0)
        squares = scores.T @ scores
        if self.shrinkage is not None and len(varying):
            at = slice(len(b), len(b) + len(entries[0]))
            more, slope, curvature = self._prior(L[varying], varying)
            value += more
            gradient[at] += slope
            information[at, at] += curvature
            squares[at, at] += np.diag(np.abs(curvature.diagonal()))
        return _Point(parameters, log_evidence, value, gradient, information, squares)

    def _prior(self, root: Array, varying: NDArray[np.intp]) -> tuple[float, Array, Array]:
        """Return the log prior of W, and its first and minus its second derivatives in the entries
        of L.
        """
        assert self.shrinkage is not None
        n, target = self.shrinkage.n_tasks, self.shrinkage.target[np.ix_(varying, varying)]
        at, p = self._entries(len(root)), len(root)

        def gradient(entries: Array) -> Array:
            L = np.zeros((p, p))
            L[at] = entries
            inverse = np.linalg.inv(L)
            return n * (inverse.T @ (inverse @ target @ inverse.T - np.eye(p)))[at]

        inverse = np.linalg.inv(root)
        value = -0.5 * n * np.trace(inverse @ target @ inverse.T)
        value -= n * np.log(np.abs(root.diagonal())).sum()
        entries = root[at]
        curvature = -approx_fprime(entries, gradient, 1e-6).reshape(len(entries), -1)
        return value, gradient(entries), curvature
