"""What was learned, for people: `summary` and `effects`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.frames import as_frame
from .._utils.validation import check_fraction
from ..losses import Loss
from ..prior import Prior
from ..summaries import Account, Facts, Summary, column_names, rival_errors, summarise, task_effects
from ..summaries.words import (
    arrival_in_words,
    form_in_words,
    scale_in_words,
    share_in_words,
    side_in_words,
)
from ..tasks import TaskSet
from ..tasks.episodes import Arrival

Array = NDArray[np.float64]


class Summarised:
    """Mixed into the meta-learners."""

    prior_: Prior
    loss_: Loss
    account_: Account
    n_jobs: int | None
    n_features_in_: int
    n_side_info_in_: int
    columns_in_: dict[str, Any]
    scale_: float

    def _arrival(self) -> Arrival:
        raise NotImplementedError

    def _read(self, X: Any, y: Any = None, groups: Any = None, side_info: Any = None) -> TaskSet:
        raise NotImplementedError

    def _split(self, tasks: TaskSet, support: Any, order: str | None, rng: Any) -> tuple[TaskSet, TaskSet]:
        raise NotImplementedError

    def effects(
        self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None, coverage: float = 0.9
    ) -> Any:
        """Each task's effects after adapting to its rows, with intervals.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            The tasks: new ones, or those of `fit`, whose rows are not kept.
        y, groups, side_info
            See `TaskSet`.
        coverage : float, default=0.9
            Of the intervals.

        Returns
        -------
        dataframe of pandas, or structured array where it is not installed
            A row for each task and column, the intercept last: ``"task"``, ``"column"``, ``"effect"`` (the posterior mean
            of the weight, in the user's units), ``"std"`` (standard deviation of its error: what the task's rows leave
            open and, of a single component, what is open about the common effects, the estimated noise and covariances
            taken as they are), ``"low"`` and ``"high"`` (the Gaussian interval).  All are those of the Gaussian model of
            `EmpiricalBayesLearner`; where query rows taught it to move the prior mean beyond that model
            (``bias_penalty_``), models of `adapt` have other weights, which predict better.  Other learners, and where
            columns are many, give the weights of `adapt` and NaN for the last three.
        """
        check_is_fitted(self, "prior_")
        check_fraction("coverage", coverage)
        tasks = self._read(X, y, groups, side_info)
        account = getattr(self, "account_", None)
        found = task_effects(self.prior_, tasks, None if account is None else account.mean, self.n_jobs)
        low, high = found.interval(coverage)
        names = self._effect_names()
        columns = {
            "task": np.repeat(tasks.labels, len(names)),
            "column": np.tile(np.array(names, dtype=object), len(tasks)),
            "effect": found.weights.ravel(),
            "std": found.std.ravel(),
            "low": low.ravel(),
            "high": high.ravel(),
        }
        return as_frame(columns)

    def summary(
        self,
        tasks: TaskSet | None = None,
        *,
        support: float | int | None = None,
        order: str | None = None,
    ) -> Summary:
        """What was learned: as a text when printed, as tables in a notebook, and as frames.

        Common effects with standard errors, how much they vary between tasks, noise, components, which side information
        mattered, the chosen form in words, and errors beside those of simpler methods; see `Summary`.  Errors are those
        of the tasks that were held out in `fit`, or those of ``tasks``.

        Parameters
        ----------
        tasks : TaskSet, optional
            Tasks that the learner was not fitted to, adapted on some of their rows and asked for the others.
        support, order
            How many of their rows are given, and which; see `task_errors`.
        """
        check_is_fitted(self, "prior_")
        account = getattr(self, "account_", None)
        names = self._effect_names()
        side = self.columns_in_.get("side_info") or [f"s{j}" for j in range(self.n_side_info_in_)]
        facts = Facts(self.prior_, account, names, [str(name) for name in side], getattr(self, "scale_", 1.0))
        if tasks is None:
            errors = {} if account is None else account.errors
            how = f"tasks held out in fit, each given {arrival_in_words(self._arrival())} and asked for the others"
            if errors:
                how += "; the form was chosen on the same tasks, which flatters this learner a little"
        else:
            given, query = self._split(self._read(tasks), support, order, getattr(self, "random_state", None))
            errors = dict(rival_errors(self.prior_, account, given, query, self.loss_, self.n_jobs))
            share = self._arrival().typical if support is None else support
            how = f"the tasks given here, adapted on {share_in_words(share)} of their rows and asked for the others"
        loss = account.loss if account is not None and tasks is None else self.loss_.name
        title = (type(self).__name__, self.columns_in_.get("task"), self.columns_in_.get("target"))
        return summarise(title, self._form_in_words(), facts, errors, loss, how)

    def _effect_names(self) -> list[str]:
        return column_names(
            getattr(self, "feature_names_in_", None), self.n_features_in_, self.prior_.fit_intercept
        )

    def _form_in_words(self) -> tuple[str, ...]:
        """Sentences about what was chosen."""
        form: dict[str, Any] | None = getattr(self, "form_", None)
        if form is None:
            return (f"{type(self).__name__}: see its documentation for the form of its prior.",)
        common = getattr(self, "common_", None)
        said = [
            ""
            if common is None
            else f"{type(common).__name__} predicts what all tasks share; all below is about the rest.",
            form_in_words(form, self._effect_names()),
            side_in_words(getattr(self, "side_form_", None), form, self._side_columns_used()),
            scale_in_words(self.scale_),
            ""
            if getattr(self, "bias_penalty_", None) is None
            else "What a task's rows say beyond this model moves its prior mean as well (learned on query rows).",
            self._stream_in_words(),
        ]
        return tuple(sentence for sentence in said if sentence)

    def _side_columns_used(self) -> int:
        """Columns of the description that the form was chosen with; none where the feature map reads rows alone."""
        features = self.prior_.feature_map
        return self.n_side_info_in_ if features is not None and features.needs_side_info else 0

    def _stream_in_words(self) -> str:
        """Where a stream has gone on since tasks were last chosen on."""
        seen, account = getattr(self, "n_tasks_seen_", 0), getattr(self, "account_", None)
        if account is None or seen <= account.n_tasks:
            return ""
        return (
            f"The stream has brought {seen:,} tasks; standard errors and held-out errors are those of the last "
            f"{account.n_tasks:,} that were chosen on."
        )
