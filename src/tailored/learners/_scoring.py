"""Scoring tasks as they will come: adapted on some of their rows, judged on the others."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.validation import check_choice, check_rng
from ..losses import Loss, get_loss
from ..priors.base import Prior, predict_blocks
from ..tasks import TaskSet
from ..tasks.episodes import ORDERS, SupportSampling
from ..tasks.rows import task_means
from ._reading import weights_as_targets

Array = NDArray[np.float64]


class ScoredByTask:
    """Mixed into the meta-learners: `task_errors` and `score`."""

    prior_: Prior
    loss_: Loss
    n_jobs: int | None

    def _arrival(self) -> SupportSampling:
        """How the user said that new tasks come."""
        return SupportSampling()

    def _read(self, X: Any, y: Any = None, groups: Any = None, side_info: Any = None) -> TaskSet:
        raise NotImplementedError

    def _split(self, tasks: TaskSet, support: Any, order: str | None, rng: Any) -> tuple[TaskSet, TaskSet]:
        """Support and query rows as asked for here, or else as tasks come."""
        arrival = self._arrival()
        in_order = arrival.in_order if order is None else check_choice("order", order, ORDERS) == "given"
        share = arrival.typical if support is None else support
        return tasks.support_query(share, random_state=rng, shuffle=not in_order)

    def task_errors(
        self,
        tasks: TaskSet,
        query: TaskSet | None = None,
        *,
        support: float | int | None = None,
        order: str | None = None,
        loss: Any = None,
    ) -> Array:
        """Error of each task on rows that were not used to adapt to it.

        Parameters
        ----------
        tasks : TaskSet
            The tasks; adapted on all rows when ``query`` is given, on ``support`` of them otherwise.
        query : TaskSet, optional
            Further rows of the same tasks, in the same order.
        support : float or int, optional
            Fraction or number of rows of each task to adapt on.  By default as the learner was told that tasks come
            (the middle of a range), and one half where it was told nothing.
        order : {"random", "given"}, optional
            Whether these are random rows or the first ones; likewise.
        loss : str or Loss, optional
            What to average over the query rows; the learner's own loss by default.

        Returns
        -------
        array (n_tasks,)
        """
        check_is_fitted(self, "prior_")
        if query is None:
            tasks, query = self._split(tasks, support, order, getattr(self, "random_state", None))
        elif len(query) != len(tasks):
            raise ValueError(f"query: expected the same {len(tasks)} tasks, got {len(query)}")
        query = self._read(query)
        measure = self.loss_ if loss is None else get_loss(loss)
        prediction = predict_blocks(self.prior_, self._read(tasks), query, None, self.n_jobs).prediction
        return task_means(measure.value(prediction, query.y), query.offsets)

    def score(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        support: float | int | None = None,
        order: str | None = None,
        sample_weight: Any = None,
    ) -> float:
        """R² over the query rows after adapting to the support rows of each task.

        Every task, seen or new, is adapted on ``support`` (a fraction or a number) of its rows, random ones or the
        first ones (``order``), and scored on the rest; see `task_errors` for the defaults.  ``sample_weight``
        weights rows in the score, not in adapting.
        """
        from sklearn.metrics import r2_score  # slow to import, and only needed here

        check_is_fitted(self, "prior_")
        tasks = self._read(X, y, groups, side_info)
        rng = check_rng(getattr(self, "random_state", None))
        again = deepcopy(rng)
        adapt_on, query = self._split(tasks, support, order, rng)
        weights = None
        if sample_weight is not None:
            # Split as the rows are.
            carried = weights_as_targets(tasks, sample_weight, None if isinstance(X, TaskSet) else groups)
            weights = self._split(carried, support, order, again)[1].y
        prediction = predict_blocks(self.prior_, adapt_on, query, None, self.n_jobs).prediction
        if len(query.y) < 2:
            raise ValueError(
                f"X: R² takes at least two rows that tasks are not adapted on, and there are {len(query.y)}; give more "
                "rows, or a smaller support"
            )
        # It does not depend on the unit, in which squares may be no numbers.
        units = self.prior_.scaling
        return float(r2_score(units.targets(query.y), units.targets(prediction), sample_weight=weights))
