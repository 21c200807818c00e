"""Biased regularisation: the representation is fixed, the mean of the weights is learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tailored.paper.kernels import WithinSolution
from tailored.paper.prior import RepresentationPrior
from tailored.paper.representation import Conditioning
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows, dense, predictions
from tailored.tasks.task_set import TaskSet

from .searched import Array, SearchedLearner


@dataclass(frozen=True, kw_only=True, repr=False)
class BiasedPrior(RepresentationPrior):
    """A prior with the mean ``b(s) = Bφ + b₀``."""

    constant: Array  # b₀ (d,)
    linear: Array  # B (d, k)

    def solve(self, rows: Rows, phis: Array, labels: Any = None) -> WithinSolution:
        rows, means = rows._replace(X=dense(rows.X)), self.constant + phis @ self.linear.T
        thetas, offset = self.conditioning.evaluate(phis), predictions(rows, means)
        found = self.algorithm.solve(rows, thetas, offset, labels)
        return found._replace(coef=found.coef + means)

    def _mean(self, tasks: TaskSet) -> Array:
        return np.asarray(self.constant + self.features(tasks) @ self.linear.T)

    def mean_at_centre(self) -> None:
        """Return None, because the mean depends on the task."""


class _BiasLearner(SearchedLearner):
    _is_conditional: bool
    _grid: ClassVar = {
        "step_size": tuple(np.logspace(-3, 1, 5)),
        "regularization": tuple(np.logspace(-4, 0, 5)),
    }

    def _train(
        self,
        start: RepresentationPrior,
        rows: Rows,
        phis: Array,
        candidates: list[dict[str, float]],
    ) -> list[RepresentationPrior | None]:
        # The mean of ‖φ‖² over the tasks: with it features act as if their root mean square were
        # one.
        squared = np.einsum("tk,tk->", phis, phis) / len(phis)
        learned = [
            self._descend(start.algorithm, rows, phis, squared, **candidate)
            for candidate in candidates
        ]
        d = rows.X.shape[1]
        priors: list[RepresentationPrior | None] = []
        for candidate, found in zip(candidates, learned, strict=True):
            tau = Conditioning.constant(np.eye(d) / candidate["regularization"], phis.shape[1])
            fields = vars(replace(start, conditioning=tau))
            priors.append(found and BiasedPrior(**fields, constant=found[0], linear=found[1]))
        return priors

    def _descend(
        self,
        algorithm: WithinTask,
        rows: Rows,
        phis: Array,
        squared: float,
        step_size: float,
        regularization: float,
    ) -> tuple[Array, Array] | None:
        """One pass of SGD over the tasks: the means of b₀ and B, or None if they overflow."""
        d, k = rows.X.shape[1], phis.shape[1]
        theta = np.eye(d)[None] / regularization
        constant, linear = np.zeros(d), np.zeros((d, k))
        mean_constant, mean_linear = constant, linear
        step_linear = step_size / squared if self._is_conditional and squared > 0 else 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for t, phi in enumerate(phis):
                share = 1.0 / (t + 1)
                mean_constant = (1.0 - share) * mean_constant + share * constant
                mean_linear = (1.0 - share) * mean_linear + share * linear
                task = rows.tasks(t, t + 1)
                try:
                    offset = np.einsum("ij,j->i", task.X, constant + linear @ phi)
                    solution = algorithm.solve(task, theta, offset)
                except OverflowError:
                    return None
                gradient = (task.X * solution.alpha[:, None]).sum(axis=0) / max(len(task.y), 1)
                constant = constant - step_size * gradient
                linear = linear - step_linear * np.outer(gradient, phi)
                parts = solution.value, constant, linear
                if not all(np.isfinite(part).all() for part in parts):
                    return None
        return mean_constant, mean_linear


class UnconditionalBiasLearner(_BiasLearner):
    """``min over b of E min_w 1/n Σ ℓ(<x_i, w>, y_i) + λ/2 ‖w - b‖²`` by SGD, the mean of the
    iterates.

    Helps when the weight vectors of the tasks are close to one vector, rather than in one subspace.

    Parameters
    ----------
    step_size : "search" or float, default="search"
        Step of b.
    regularization : "search" or float, default="search"
        λ; the representation is ``I/λ``.
    loss, inner, fit_intercept, tol, n_jobs, random_state
        As for `UnconditionalLearner`.
    """

    _is_conditional = False


class ConditionalBiasLearner(_BiasLearner):
    """As `UnconditionalBiasLearner` with a mean for each task, ``b(s) = BΦ(s) + b₀``.

    The companion of the paper's method: it tailors a vector to the task where the paper tailors a
    representation.

    Parameters
    ----------
    feature_map : str, callable or FeatureMap, default="auto"
        As for `ConditionalLearner`; features act as if they had unit root-mean-square norm.
    step_size, regularization, loss, inner, fit_intercept, tol, n_jobs, random_state
        As for `UnconditionalBiasLearner`.
    """

    _is_conditional = True

    def __init__(
        self,
        feature_map: Any = "auto",
        *,
        step_size: Any = "search",
        regularization: Any = "search",
        loss: Any = "absolute",
        inner: str = "exact",
        fit_intercept: bool = True,
        tol: float = 1e-8,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            step_size=step_size,
            regularization=regularization,
            loss=loss,
            inner=inner,
            fit_intercept=fit_intercept,
            tol=tol,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.feature_map = feature_map
