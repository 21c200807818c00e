"""What the earlier methods share: train every candidate on the same tasks, keep the best on
held-out ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tailored._utils.threads import single_threaded_blas
from tailored._utils.validation import check_positive
from tailored.learners.reading import read
from tailored.paper.feature_maps import FeatureMap, features_of, get_feature_map
from tailored.paper.learners import PaperLearner
from tailored.paper.prior import RepresentationPrior
from tailored.paper.representation import Conditioning
from tailored.priors.base import predict_blocks
from tailored.tasks.rows import Rows, mean_error
from tailored.tasks.task_set import TaskSet

Array = NDArray[np.float64]


class SearchedLearner(PaperLearner):
    """Base of the earlier methods.

    A subclass lists its hyper-parameters in ``_grid`` (name of the constructor's argument to the
    candidates tried for "search") and learns a prior for each candidate in ``_train``.

    Attributes
    ----------
    best_params_ : dict
    search_results_ : list of dict
        The candidates with their error on the held-out tasks (NaN when there was nothing to
        choose).
    """

    _grid: ClassVar[dict[str, tuple[float, ...]]]
    #: Fraction of the tasks to choose on, fraction of their support rows, and iterations within a
    #: task.
    validation_fraction, support, max_iter = 0.2, 0.5, 1000
    random_state: Any
    #: Fitted attributes of a method, by candidate.
    _details: Sequence[dict[str, Any]] = ()

    def __init__(
        self,
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
        self.step_size = step_size
        self.regularization = regularization
        self.loss = loss
        self.inner = inner
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    @abstractmethod
    def _train(
        self,
        start: RepresentationPrior,
        rows: Rows,
        phis: Array,
        candidates: list[dict[str, float]],
    ) -> list[RepresentationPrior | None]:
        """The learned prior of each candidate; None where the iterates overflowed.

        ``start`` has everything but what is learned.
        """

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
        with self._all_or_nothing(reset=True):
            self._check_loss()
            candidates = self._candidates()
            given = read(self, X, y, groups, side_info, reset=True)
            # Draws, sums and passes are by position, and the order of tasks must not matter.
            tasks = given.in_label_order()
            if tasks.is_sparse:
                raise TypeError(f"X: {type(self).__name__} needs dense rows; pass X.toarray().")
            feature_map = self._fitted_map(tasks)
            train, held_out = tasks, validation
            if len(candidates) > 1 and validation is None and len(tasks) > 1:
                kept = 1.0 - self.validation_fraction
                train, held_out = tasks.split([kept, self.validation_fraction], self.random_state)
            elif held_out is not None:
                held_out = self._read_held_out(held_out).in_label_order()
            with single_threaded_blas():
                phis = features_of(feature_map, train)
                tau = Conditioning.constant(np.eye(self._n_weights), phis.shape[1])
                start = self._prior(tau, feature_map)
                priors = self._train(start, self._rows(train), phis, candidates)
                self._choose(candidates, priors, tasks if held_out is None else held_out)
            self._remember(given)
        return self

    def _fitted_map(self, tasks: TaskSet) -> FeatureMap | None:
        spec = getattr(self, "feature_map", None)
        return spec and get_feature_map(spec, has_side_info=tasks.side_info is not None).fit(tasks)

    def _rows(self, tasks: TaskSet) -> Rows:
        return Rows.of(tasks, bool(self.fit_intercept))

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
                values.append(
                    [check_positive(name, value) for value in np.atleast_1d(given).tolist()]
                )
        return [dict(zip(self._grid, choice, strict=True)) for choice in product(*values)]

    def _choose(
        self,
        candidates: list[dict[str, float]],
        priors: list[RepresentationPrior | None],
        held_out: TaskSet,
    ) -> None:
        errors = np.array([np.inf if prior is None else 0.0 for prior in priors])
        if np.isinf(errors).all():
            raise ValueError(
                f"step_size: the iterates overflow with every one of {candidates}; give smaller "
                "ones."
            )
        if len(candidates) > 1:
            support, query = held_out.support_query(self.support, random_state=self.random_state)
            for c, prior in enumerate(priors):
                if prior is not None:
                    predicted = predict_blocks(prior, support, query, n_jobs=self.n_jobs)
                    losses = self.loss_.value(predicted.prediction, query.y)
                    errors[c] = mean_error(losses, query.offsets)
        best = int(np.argmin(errors))
        chosen = priors[best]
        assert chosen is not None
        self.prior_ = chosen
        self.best_params_ = candidates[best]
        for name, value in (self._details[best] if self._details else {}).items():
            setattr(self, name, value)
        self._details = []
        measured = errors if len(candidates) > 1 else np.full(1, np.nan)
        self.search_results_ = [
            {**candidate, "error": float(error)}
            for candidate, error in zip(candidates, measured, strict=True)
        ]
