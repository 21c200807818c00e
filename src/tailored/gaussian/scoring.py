"""Maximum likelihood, optionally penalised by shrinkage, for one component and non-Gaussian targets, by scoring steps.

EM needs hundreds of steps if rows carry little information.  Here, with w = b + Lu, a step changes b to ``b + Lβ`` and L to
``L (I + Δ)`` with a lower triangular Δ.  The factors 1 + Δᵢᵢ are replaced by exp(Δᵢᵢ) to keep them positive.  By Fisher's
identity, the score of a task is then E(u) and E(uuᵀ) − I.  If L has fewer columns than rows, b itself is a parameter, not β.
The information matrix is initially the sum of the outer products of the scores of tasks.  It is updated from changes of the
score (BFGS) and damped as in the Levenberg-Marquardt method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tasks.rows import Array, segment_sums
from .mixture import Mixture, Shrinkage
from .sites import DISPERSIONS, ResponseRows

#: If there are more than twice this many tasks, a sample of about this size is fitted first.
SAMPLE = 8000
#: Maximum absolute entries of a step: of Δ and the log dispersion, and of β (or of b).
LARGEST_STEP, LARGEST_MOVE = 0.7, 2.0
#: Initial damping, its factors after a successful and after a rejected step, and its maximum.
DAMPING, LESS, MORE, MOST = 0.03, 0.2, 6.0, 1e4
#: The fit stops if the expected gain in log evidence is below this value: a change of about a tenth of a standard error.
LEAST_GAIN = 0.005
#: The information is updated only if the curvature along the step is above this fraction of the expected curvature.
LEAST_CURVATURE = 0.1
#: Step of numerical derivatives, in standard errors.
DIFFERENCE = 0.05
#: Maximum absolute entry of L and of the mean, which otherwise diverge if classes are separable; maximum initial entry of W.
LARGEST_SCALE, LARGEST_START = 30.0, 100.0


class _Point(NamedTuple):
    """A model and its L, the log evidence, the log evidence plus the log prior of W (``value``), gradient and information."""

    model: Mixture
    root: Array
    log_evidence: float
    value: float
    gradient: Array
    information: Array


@dataclass(frozen=True)
class Scoring:
    """Fit a model of one component by scoring steps.

    The range of W does not change.  Means of coefficients with zero variance are estimated as well.
    """

    tasks: ResponseRows
    diagonal: bool = False
    shrinkage: Shrinkage | None = None

    def __call__(self, start: Mixture, max_iter: int) -> tuple[Mixture, float, int]:
        """Return the fitted model, its log evidence per task, and the number of steps."""
        T, n_steps, damping = len(self.tasks), 0, DAMPING
        # Rare events have small weights in a pooled fit, so the initial W derived from it can be too large.
        start = start.scaled(min(1.0, LARGEST_START / max(float(start.covariances.max()), 1e-300)))
        start = replace(start, noise=self.tasks.response.noise(start.noise))
        point = self._evaluate(start, start.factors[0])
        H = point.information
        for _ in range(max_iter):
            gain, step, model, root = self._step(point, H, damping)
            if gain < LEAST_GAIN or damping > MOST:
                break
            new, n_steps = self._evaluate(model, root), n_steps + 1
            H = _updated(H, step, point.gradient - new.gradient)
            is_better = new.value >= point.value
            point, damping = (new, LESS * damping) if is_better else (point, MORE * damping)
        return point.model, point.log_evidence / max(T, 1), n_steps

    def _evaluate(self, model: Mixture, root: Array) -> _Point:
        d, p = root.shape
        each, log_evidence = self.scores(model, root, in_b=p < d)
        gradient, information = each.sum(axis=0), each.T @ each
        value = log_evidence
        if self.shrinkage is not None and p:
            # The prior of W acts like pseudo-tasks with known coefficients.
            n, inverse = self.shrinkage.n_tasks, np.linalg.pinv(root)
            target = inverse @ self.shrinkage.target @ inverse.T
            i, j = self._entries(p)
            at = slice(d, d + len(i))
            gradient[at] += n * (target[i, j] - (i == j))
            information[at, at] += n * np.diag(1.0 + (i == j))
            value -= 0.5 * n * float(np.trace(target) + np.linalg.slogdet(root.T @ root)[1])
        return _Point(model, root, log_evidence, value, gradient, information)

    def scores(self, model: Mixture, root: Array, in_b: bool) -> tuple[Array, float]:
        """Return the scores of each task in β (in b if ``in_b``), Δ and the log dispersion, and the log evidence."""
        tasks = self.tasks
        found = tasks.directions(model.means[0], root, model.noise, slopes=in_b)
        i, j = self._entries(root.shape[1])
        squares = found.covariances[:, i, j] + found.means[:, i] * found.means[:, j] - (i == j)
        means = segment_sums(found.slopes[:, None] * tasks.X, tasks.starts) if in_b else found.means
        scores = [means, squares]
        if tasks.response.has_dispersion:
            scores.append(tasks.dispersion_scores(model)[:, None])
        return np.hstack(scores), float(found.log_evidence.sum())

    def observed_information(self, model: Mixture) -> Array:
        """Return minus the second derivatives of the log evidence of each task, (T, p, p), by differences of the score.

        The p parameters are b, Δ and, if the response has one, the log dispersion.
        """
        root, d = model.factors[0], self.tasks.n_features
        i, j = self._entries(root.shape[1])
        fresh = replace(self, tasks=replace(self.tasks, sites=None))

        def scores_at(parameters: Array) -> Array:
            moves, entries, rest = np.split(parameters, [d, d + len(i)])
            change = np.eye(root.shape[1])
            change[i, j] += entries
            there = replace(
                model, means=model.means + moves, noise=model.noise * float(np.exp(rest.sum()))
            )
            return fresh.scores(there, root @ change, in_b=True)[0]

        at = np.zeros(d + len(i) + self.tasks.response.has_dispersion)
        sizes = np.sqrt((scores_at(at) ** 2).sum(axis=0))
        steps = DIFFERENCE / np.where(sizes > 0, sizes, 1.0)
        # Scores of separable classes are nearly zero, so steps would be huge: limit the change of a linear predictor to 0.25.
        steps[:d] = np.minimum(
            steps[:d], 0.25 / np.maximum(np.abs(self.tasks.X).max(axis=0), 1e-300)
        )
        steps[d:] = np.minimum(steps[d:], 1.0)  # with a larger step, the dispersion could underflow
        changes = [scores_at(at - h) - scores_at(at + h) for h in np.diag(steps)]
        information = np.stack(changes, axis=1) / (2.0 * steps[:, None])
        return np.asarray(0.5 * (information + information.transpose(0, 2, 1)))

    def _entries(self, p: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows and columns of the free entries of Δ."""
        return (np.arange(p), np.arange(p)) if self.diagonal else np.tril_indices(p)

    def _step(
        self, point: _Point, information: Array, damping: float
    ) -> tuple[float, Array, Mixture, Array]:
        """Return the expected gain of the undamped step, the damped step, and the model and L after it."""
        model, root, p = point.model, point.root, point.root.shape[1]
        sizes = np.diag(information)
        used = sizes > 1e-12 * max(sizes.max(initial=0.0), 1e-300)
        H, g, step = information[np.ix_(used, used)], point.gradient[used], np.zeros(len(used))
        if not used.any():
            return 0.0, step, model, root
        gain = 0.5 * float(g @ np.linalg.lstsq(H + 1e-9 * np.diag(np.diag(H)), g, rcond=None)[0])
        step[used] = np.linalg.lstsq(H + damping * np.diag(np.diag(H)), g, rcond=None)[0]
        i, j = self._entries(p)
        n_means = len(step) - len(i) - self.tasks.response.has_dispersion
        moves, entries, rest = np.split(step, [n_means, n_means + len(i)])
        move = root @ moves if n_means == p else moves
        largest = (
            max(np.abs(entries).max(initial=0.0), np.abs(rest).max(initial=0.0)) / LARGEST_STEP
        )
        largest = max(largest, np.abs(moves).max(initial=0.0) / LARGEST_MOVE, 1.0)
        change = np.eye(p)
        change[i, j] = np.where(i == j, np.exp(entries / largest), entries / largest)
        new = root @ change
        if p and np.abs(new).max() > LARGEST_SCALE:
            new *= LARGEST_SCALE / np.abs(new).max()
        mean = model.means[0] + (move / largest if n_means else 0.0)
        mean = np.clip(mean, -LARGEST_SCALE, LARGEST_SCALE)
        noise = float(np.clip(model.noise * np.exp(rest.sum() / largest), *DISPERSIONS[[0, -1]]))
        moved = replace(model, means=mean[None], covariances=(new @ new.T)[None], noise=noise)
        return gain, step / largest, moved, new


def _updated(H: Array, step: Array, change: Array) -> Array:
    """Return the information after a BFGS update, for a step that lowers the gradient by ``change``."""
    Hs = H @ step
    old, new = float(step @ Hs), float(step @ change)
    # Skip the update if the log evidence is flat or convex along the step.
    if not new > LEAST_CURVATURE * old:
        return H
    return np.asarray(H - np.outer(Hs, Hs) / old + np.outer(change, change) / new)
