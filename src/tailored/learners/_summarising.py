"""`summary` and `effects` of the meta-learners."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.frames import as_frame
from .._utils.validation import check_fraction
from ..losses import Loss
from ..priors.base import Prior
from ..summaries.baselines import baseline_errors
from ..summaries.building import (
    ModelDescription,
    build_summary,
    describe_scale,
    describe_side,
    describe_structure,
    describe_support,
    format_share,
)
from ..summaries.effects import coefficient_names, task_effects
from ..summaries.tables import Summary
from ..summaries.training import TrainingSummary
from ..tasks import TaskSet
from ..tasks.episodes import SupportSampling

Array = NDArray[np.float64]


class Summarised:
    """Summaries of a fitted meta-learner."""

    prior_: Prior
    loss_: Loss
    training_summary_: TrainingSummary
    n_jobs: int | None
    n_features_in_: int
    n_side_info_in_: int
    columns_in_: dict[str, Any]
    scale_: float

    def _arrival(self) -> SupportSampling:
        raise NotImplementedError

    def _read(self, X: Any, y: Any = None, groups: Any = None, side_info: Any = None) -> TaskSet:
        raise NotImplementedError

    def _split(self, tasks: TaskSet, support: Any, order: str | None, rng: Any) -> tuple[TaskSet, TaskSet]:
        raise NotImplementedError

    def effects(
        self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None, coverage: float = 0.9
    ) -> Any:
        """Adapt to tasks and return their coefficients with intervals.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            New tasks, or those of `fit`.
        y, groups, side_info
            See `TaskSet`.
        coverage : float, default=0.9
            Nominal coverage of the intervals.

        Returns
        -------
        pandas data frame, or structured array if pandas is not installed
            One row per task and column, the intercept last: ``"task"``, ``"column"``, ``"effect"`` (posterior mean of the
            coefficient, in the user's units), ``"std"`` (its standard error, given the estimated noise and covariances;
            with one component it includes the uncertainty of the fixed effects), ``"lower"`` and ``"upper"`` (Gaussian
            interval).  They belong to the Gaussian model of `EmpiricalBayesLearner`.  If a part of the prior mean was
            learned on query rows (``bias_penalty_``), models of `adapt` have other coefficients, which predict better.
            Other learners, and priors for many columns, return the coefficients of `adapt` and NaN for the last three.
        """
        check_is_fitted(self, "prior_")
        check_fraction("coverage", coverage)
        tasks = self._read(X, y, groups, side_info)
        training = getattr(self, "training_summary_", None)
        effects = task_effects(self.prior_, tasks, None if training is None else training.mean, self.n_jobs)
        lower, upper = effects.interval(coverage)
        names = self._coefficient_names()
        columns = {
            "task": np.repeat(tasks.labels, len(names)),
            "column": np.tile(np.array(names, dtype=object), len(tasks)),
            "effect": effects.weights.ravel(),
            "std": effects.std.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
        }
        return as_frame(columns)

    def summary(
        self,
        tasks: TaskSet | None = None,
        *,
        support: float | int | None = None,
        order: str | None = None,
    ) -> Summary:
        """Summarise the fitted model as text, as tables in a notebook, and as data frames.

        It has the selected model structure, fixed effects with standard errors, random-effect standard deviations, noise,
        components, the R² of the side information, and errors next to those of baselines; see `Summary`.  Errors are
        those of the tasks that were held out in `fit`, or those of ``tasks``.

        Parameters
        ----------
        tasks : TaskSet, optional
            Tasks that the learner was not fitted to.
        support, order
            How many of their rows are support rows, and which; see `task_errors`.
        """
        check_is_fitted(self, "prior_")
        training = getattr(self, "training_summary_", None)
        side_names = self.columns_in_.get("side_info") or [f"s{j}" for j in range(self.n_side_info_in_)]
        description = ModelDescription(
            self.prior_,
            training,
            self._coefficient_names(),
            [str(name) for name in side_names],
            getattr(self, "scale_", 1.0),
        )
        if tasks is None:
            errors = {} if training is None else training.errors
            evaluated_on = f"tasks held out in fit, each with {describe_support(self._arrival())}"
            if errors:
                evaluated_on += (
                    "; the model was selected on the same tasks, so its error is slightly optimistic"
                )
        else:
            given, query = self._split(self._read(tasks), support, order, getattr(self, "random_state", None))
            errors = dict(baseline_errors(self.prior_, training, given, query, self.loss_, self.n_jobs))
            share = self._arrival().typical if support is None else support
            evaluated_on = f"the given tasks, each with {format_share(share)} of its rows as support"
        loss = training.loss if training is not None and tasks is None else self.loss_.name
        title = (type(self).__name__, self.columns_in_.get("task"), self.columns_in_.get("target"))
        return build_summary(title, self._sentences(), description, errors, loss, evaluated_on)

    def _coefficient_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return coefficient_names(names, self.n_features_in_, self.prior_.fit_intercept)

    def _sentences(self) -> tuple[str, ...]:
        """Return sentences about the selected model."""
        form: dict[str, Any] | None = getattr(self, "form_", None)
        if form is None:
            return (f"The documentation of {type(self).__name__} describes its prior.",)
        common, training = getattr(self, "common_", None), getattr(self, "training_summary_", None)
        sentences = []
        if common is not None:
            name = type(common).__name__
            sentences.append(f"{name} is the shared regressor; the numbers below describe the residuals.")
        sentences.append(describe_structure(form, self._coefficient_names()))
        sentences.append(describe_side(getattr(self, "side_form_", None), form, self._n_side_columns_used()))
        sentences.append(describe_scale(self.scale_))
        if getattr(self, "bias_penalty_", None) is not None:
            sentences.append(
                "A part of the prior mean was learned on query rows; it is not in the tables below."
            )
        n_seen = getattr(self, "n_tasks_seen_", 0)
        if training is not None and n_seen > training.n_tasks:
            sentences.append(
                f"The stream has {n_seen:,} tasks so far; standard errors and held-out errors are those of the last "
                f"selection, on {training.n_tasks:,} tasks."
            )
        return tuple(sentence for sentence in sentences if sentence)

    def _n_side_columns_used(self) -> int:
        """Return the number of side information columns; zero if the feature map does not read them."""
        return self.n_side_info_in_ if self.prior_.reads_side_info else 0
