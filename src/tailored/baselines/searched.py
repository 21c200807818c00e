"""What the rivals share: train every candidate on the same tasks, keep the best on held-out ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._threads import single_threaded_blas
from .._validation import check_fraction, check_positive
from ..feature_maps import get_feature_map
from ..learners._base import MetaLearner
from ..objectives import Surrogate
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning
from ..solvers import trajectory as optimizers
from ..solvers.trajectory import TaskBatch, Trajectory
from ..tasks import Rows, TaskSet
from ..tasks.rows import predictions, task_means

Array = NDArray[np.float64]


class Prior(NamedTuple):
    """What a method ends in: τ(s) and b(s)."""

    conditioning: Conditioning
    bias: Bias


class SearchedLearner(MetaLearner):
    """Base of the rivals.

    A subclass lists its hyper-parameters in ``_grid`` (name of the constructor's argument to the candidates
    tried for "search") and trains one prior per candidate in ``_train``.

    Attributes
    ----------
    best_params_ : dict
    search_results_ : list of dict
        The candidates with their error on the held-out tasks (NaN when there was nothing to choose).
    """

    _grid: ClassVar[dict[str, tuple[float, ...]]]
    validation_fraction: float
    support: float
    random_state: Any

    @abstractmethod
    def _train(self, rows: Rows, phis: Array, candidates: list[dict[str, float]]) -> list[Prior | None]:
        """One prior for each candidate; None where the iterates overflowed."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        validation: TaskSet | None = None,
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
        y, groups, side_info
            See `TaskSet`.
        validation : TaskSet, optional
            Tasks to choose hyper-parameters on; by default some of the training tasks are held out.
        """
        self._check_common()
        check_fraction("validation_fraction", self.validation_fraction)
        check_fraction("support", self.support)
        candidates = self._candidates()
        tasks = self._tasks(X, y, groups, side_info, reset=True)
        if tasks.is_sparse:
            raise TypeError(f"X: {type(self).__name__} needs dense rows; pass X.toarray().")
        self.feature_map_ = None
        spec = getattr(self, "feature_map", None)
        if spec is not None:
            self.feature_map_ = get_feature_map(spec, has_side_info=tasks.side_info is not None).fit(tasks)
        train, held_out = tasks, validation
        if len(candidates) > 1 and validation is None and len(tasks) > 1:
            kept = 1.0 - self.validation_fraction
            train, held_out = tasks.split([kept, self.validation_fraction], self.random_state)
        elif held_out is not None:
            held_out = self._tasks(held_out, reset=False)
        with single_threaded_blas():
            priors = self._train(self._rows(train), self._features(train), candidates)
            self._choose(candidates, priors, tasks if held_out is None else held_out)
        self._remember(tasks)
        return self

    def _candidates(self) -> list[dict[str, float]]:
        values: list[Sequence[float]] = []
        for name, tried in self._grid.items():
            given = getattr(self, name)
            if isinstance(given, str) and given == "search":
                values.append(tried)
            elif isinstance(given, str):
                raise ValueError(
                    f"{name} must be a positive number, a list of them, or 'search'; got {given!r}."
                )
            else:
                values.append([check_positive(name, value) for value in np.atleast_1d(given).tolist()])
        return [dict(zip(self._grid, choice, strict=True)) for choice in product(*values)]

    def _choose(
        self, candidates: list[dict[str, float]], priors: list[Prior | None], held_out: TaskSet
    ) -> None:
        errors = np.array([np.inf if prior is None else 0.0 for prior in priors])
        if np.isinf(errors).all():
            raise ValueError(
                f"step_size: the iterates overflow with every one of {candidates}; give smaller ones."
            )
        if len(candidates) > 1:
            support, query = held_out.support_query(self.support, random_state=self.random_state)
            rows, phis, query_rows = self._rows(support), self._features(support), self._rows(query)
            for c, prior in enumerate(priors):
                if prior is not None:
                    weights = self._solve_batch(rows, phis, prior.conditioning, prior.bias)
                    losses = self.loss_.value(predictions(query_rows, weights), query.y)
                    errors[c] = np.nanmean(task_means(losses, query.offsets))
        best = int(np.argmin(errors))
        chosen = priors[best]
        assert chosen is not None
        self.conditioning_, self.bias_ = chosen
        self.best_params_ = candidates[best]
        measured = errors if len(candidates) > 1 else np.full(1, np.nan)
        self.search_results_ = [
            {**candidate, "error": float(error)}
            for candidate, error in zip(candidates, measured, strict=True)
        ]

    def _surrogate(self, lipschitz: float) -> Surrogate:
        return Surrogate(self.loss_, lipschitz, self.inner, self.tol, self.max_iter)

    def _run(self, trajectories: list[Trajectory], rows: Rows, phis: Array) -> list[Prior | None]:
        """One pass of projected SGD over the tasks for each trajectory; the averages of the iterates."""
        scale = np.full(len(phis), mean_square(phis))
        batch = TaskBatch(rows, None, phis, scale)
        done = optimizers.run(trajectories, batch, self._surrogate(0.0), n_jobs=self.n_jobs)
        return [None if run.failure else Prior(run.average, run.bias_average) for run in done]


def mean_square(phis: Array) -> float:
    """Mean of ‖φ‖² over the tasks: φ acts as if it had unit root-mean-square norm."""
    return float(np.einsum("tk,tk->", phis, phis) / max(len(phis), 1))
