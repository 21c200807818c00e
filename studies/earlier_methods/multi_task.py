"""Multi-task feature learning (Argyriou, Evgeniou, Pontil): all training tasks at once,
alternating.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tailored._utils.validation import check_int, check_positive
from tailored.paper.prior import RepresentationPrior
from tailored.paper.representation import Conditioning
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

from .searched import Array, SearchedLearner


class MultiTaskFeatureLearner(SearchedLearner):
    """``min over W, θ ⪰ 0, Tr θ <= 1 of 1/T Σ_t [1/n Σ_i ℓ(<x_i, w_t>, y_i) + λ/2 w_tᵀθ†w_t] + λε/2
    Tr θ†``.

    For fixed θ the tasks are separate; for fixed weights ``θ = (WᵀW/T + εI)^½ / Tr(·)``.
    Alternating between the two decreases the (jointly convex) objective at every round; with ε = 0
    its minimum is that of trace-norm regularisation, ``λ/2 ‖W‖²_*/T``.  A new task is fitted with
    the representation θ/λ.

    Parameters
    ----------
    regularization : "search" or float, default="search"
        λ.
    perturbation : float, default=1e-6
        ε: without it a direction that is lost in one round could not come back.
    n_rounds : int, default=50
        At most; stops when the objective decreases by less than 1e-6 of its value.
    loss, fit_intercept, tol, n_jobs, random_state
        As for `UnconditionalLearner`; the within-task algorithm is exact, without which the
        alternation would not descend.

    Attributes
    ----------
    objective_ : array (n_rounds,)
        The objective after each round, for the chosen λ.
    """

    _grid: ClassVar = {"regularization": tuple(np.logspace(-4, 1, 6))}
    inner = "exact"

    def __init__(
        self,
        *,
        regularization: Any = "search",
        perturbation: float = 1e-6,
        n_rounds: int = 50,
        loss: Any = "absolute",
        fit_intercept: bool = True,
        tol: float = 1e-8,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.regularization = regularization
        self.perturbation = perturbation
        self.n_rounds = n_rounds
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _train(
        self,
        start: RepresentationPrior,
        rows: Rows,
        phis: Array,
        candidates: list[dict[str, float]],
    ) -> list[RepresentationPrior | None]:
        check_positive("perturbation", self.perturbation)
        check_int("n_rounds", self.n_rounds)
        runs = [self._alternate(start.algorithm, rows, **candidate) for candidate in candidates]
        self._details = [{"objective_": objective} for _, objective in runs]
        return [replace(start, conditioning=Conditioning.constant(theta)) for theta, _ in runs]

    def _alternate(
        self, algorithm: WithinTask, rows: Rows, regularization: float
    ) -> tuple[Array, Array]:
        """The representation θ/λ and the objective after each round."""
        d, T = rows.X.shape[1], len(rows.offsets) - 1
        theta, objective = np.eye(d) / d, []
        for _ in range(self.n_rounds):
            thetas = np.broadcast_to(theta / regularization, (T, d, d))
            solution = algorithm.solve(rows, thetas)
            perturbed = 0.5 * regularization * self.perturbation * np.trace(np.linalg.inv(theta))
            objective.append(float(solution.value.mean() + perturbed))
            if len(objective) > 1 and objective[-2] - objective[-1] <= 1e-6 * abs(objective[-1]):
                break
            values, vectors = np.linalg.eigh(solution.coef.T @ solution.coef / T)
            roots = np.sqrt(np.maximum(values, 0.0) + self.perturbation)
            theta = (vectors * (roots / roots.sum())) @ vectors.T
        return theta / regularization, np.array(objective)
