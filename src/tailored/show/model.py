"""`FittedModel`: the numbers of a fitted learner in the user's units, and coefficients of tasks.

Tables, sentences and figures read these numbers and do not compute them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from .._utils.frames import as_frame
from .._utils.threads import single_threaded_blas
from ..gaussian.errors import task_estimates
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import used_columns
from ..priors.base import adapt_tasks
from ..priors.mixture import MixturePrior
from ..selection.training_summary import OWN, TrainingSummary
from ..tasks.rows import Array, batches, standard_errors
from ..tasks.task_set import TaskSet

#: Name of the intercept in tables.
INTERCEPT = "(intercept)"


class FittedModel:
    """The numbers of a fitted learner, in the user's units unless stated otherwise.

    The paper's learners have those of `__init__` only.  Those of `_read_mixture` are numbers of
    mixed models, and missing for many columns.
    """

    def __init__(self, learner: Any) -> None:
        check_is_fitted(learner, "prior_")
        self.learner, self.prior, self.scaling = learner, learner.prior_, learner.prior_.scaling
        positions = range(learner.n_features_in_)
        names = getattr(learner, "feature_names_in_", [f"x{j}" for j in positions])
        #: Names of the coefficients; an intercept is last.
        self.columns = [*map(str, names), *[INTERCEPT] * self.prior.fit_intercept]
        names = [f"s{j}" for j in range(learner.n_side_info_in_)]
        self.side_columns = [str(name) for name in learner.columns_in_["side_info"] or names]
        shared = self.prior.shared
        #: Effects that all tasks share, and positions of the categorical columns with an effect for
        #: each value; the other columns have a coefficient.
        self.effects = () if shared is None else shared.effects
        self.categories = [] if shared is None else shared.coded_columns
        self.coefficients = np.setdiff1d(np.arange(len(self.columns)), self.categories)
        mean = self.prior.mean_at_centre()
        mean = np.full(len(self.columns), np.nan) if mean is None else mean
        #: Prior mean at the mean of the side information; NaN if the prior does not define it.  If
        #: there is one task, its coefficients.
        self.fixed_effects: Array = self.scaling.raw_weights(mean)
        if getattr(learner, "structure_", {}).get("kind") == "independent":
            self.fixed_effects = learner.task_posterior_.weights[0]
        if hasattr(learner, "training_summary_"):
            self._read_summary()

    def named(self, positions: Any) -> list[str]:
        """Return the names of coefficients."""
        return [self.columns[j] for j in positions]

    def _read_summary(self) -> None:
        learner = self.learner
        self.training: TrainingSummary = learner.training_summary_
        self.structure, self.mixture = learner.structure_, self.prior.mixture
        self.response = self.prior.response
        #: Names of the regression, of the scale of its coefficients, and of exp(coefficient).
        self.regression, self.scale, self.ratio = {
            "bernoulli": ("logistic", "log odds", "odds ratio"),
            "poisson": ("Poisson", "log rates", "rate ratio"),
            "negative_binomial": ("negative binomial", "log rates", "rate ratio"),
        }.get(self.response.name, ("linear", "", ""))
        moment, mean = self.training.row_moment, self.training.mean
        unused: Any = [] if moment is None else np.flatnonzero(~used_columns(moment))
        #: Positions of columns that are constant in all rows, or tiny, and so left out.
        self.constant = [j for j in unused if j not in self.categories]
        #: Positions of the coefficients in tables.
        self.shown = np.setdiff1d(self.coefficients, self.constant)
        #: Whether the prior mean was estimated; one that was fixed has no standard error.
        self.has_estimated_mean = mean is not None and bool((mean.column == 0).any())
        #: Whether anything was selected on the held-out tasks.
        self.is_selected = (
            len(self.effects) > len(self.categories)
            or self.prior.reads_side_info
            or len(self.training.compared) > 1
        )
        #: The formula of the random effects, if there is one.
        self.formula = (
            getattr(learner.encoding_, "formula", None) if learner.varying is None else None
        )
        is_stated = learner.covariance is not None or self.formula is not None
        #: Whether selected covariances are uncorrelated, or have shrunk correlations, at the means
        #: of the columns.
        self.is_at_centre = bool(self.scaling.shift.any()) and not is_stated
        if self.mixture is not None:
            self._read_mixture(self.mixture)

    def _read_mixture(self, mixture: Mixture) -> None:
        moment, mean, d = self.training.row_moment, self.training.mean, len(self.columns)
        W, noise = mixture.moments()[1], mixture.noise
        varies = W.diagonal() > 1e-16 * max(float(W.diagonal().max()), noise)
        #: Covariance of the random effects, for scaled columns and targets; variances that are
        #: rounding errors are zero.
        self.covariance: Array = W * np.outer(varies, varies)
        #: NaN where they are unknown, as with one task
        self.standard_errors = self.random_effect_std = np.full(d, np.nan)
        if mean is not None and self.has_estimated_mean:
            self.standard_errors = self.scaling.raw_deviations(mean.of(d, {0: 1.0}))
        if self.training.n_tasks > 1:
            self.random_effect_std = self.scaling.raw_deviations(self.covariance)
        # Multiply by the scales of the columns: whether a coefficient varies must not depend on the
        # unit of its column.
        relevance = self.random_effect_std * self.scaling.columns
        least = 1e-9 * max(float(relevance.max(initial=0.0)), 1e-300)
        #: Positions of the coefficients with random effects.
        self.varying = np.flatnonzero(relevance > least)
        variance = np.nan if moment is None else float(np.sum(self.covariance * moment))
        share = 0.0 if self.response.correlation is None else self.response.correlation.share
        #: Standard deviation of the random effects at a row (root mean square over rows), and of
        #: the noise of a row with weight 1.
        stds = np.sqrt([max(variance, 0.0), noise * (1.0 + share)])
        self.std_between_tasks, self.noise_std = (self.scaling.target * stds).tolist()
        #: Fraction of the variance of each coefficient that the side information explains (that of
        #: the intercept is at the feature means), and of the variance between tasks averaged over
        #: rows, for all side information and for each column.
        self.r2_of_coefficients: Any = None
        self.r2_of_rows: Any = None
        if (side := self.training.side) is not None:
            total = max(self.std_between_tasks**2 + side.row_variance[0], 1e-300)
            self.r2_of_rows = side.row_variance / total
        if side is not None and mixture.side is not None:
            explained = side.coefficient_std[0]
            total = np.hypot(explained, self.scaling.centred_deviations(self.covariance))
            self.r2_of_coefficients = (explained / np.where(total > 0, total, 1.0)) ** 2

    @property
    def correlations(self) -> Array:
        """Correlations of the random effects of the ``varying`` coefficients."""
        at = np.ix_(self.varying, self.varying)
        covariance = self.scaling.raw_representation(self.covariance)[at]
        std = np.sqrt(covariance.diagonal())
        correlations = covariance / np.outer(std, std)
        np.fill_diagonal(correlations, 1.0)
        return np.asarray(correlations)


def compare_errors(
    errors: Mapping[str, Array], learner: str = OWN
) -> list[tuple[str, float, float, float]]:
    """Return name, mean error, and mean and standard error of the difference from the learner,
    which is first; nothing if no task was held out.
    """
    own, rows = errors.get(learner, np.zeros(0)), []
    for name, values in errors.items() if np.isfinite(own).any() else ():
        gaps = (values - own)[np.isfinite(values - own)]
        if len(gaps):
            std_error = float(standard_errors(gaps)) if len(gaps) > 1 else np.nan
            rows.append((name, float(np.nanmean(values)), float(gaps.mean()), std_error))
    return sorted(rows, key=lambda row: (row[0] != learner, row[1]))


def task_effects(learner: Any, tasks: TaskSet) -> tuple[Array, ...]:
    """Return coefficients (T, d) in the user's units, intercept last, their standard errors (NaN if
    unknown) and prior means.

    The coefficients are posterior means under the prior's Gaussian model.  The part of b(s) that
    was learned on query rows is left out, because it improves predictions but does not estimate a
    coefficient.  For priors without a mixture, return the coefficients of `adapt`.
    """
    prior = learner.prior_
    if not isinstance(prior, MixturePrior):
        found, means = (
            adapt_tasks(prior, each, covariances=False, n_jobs=learner.n_jobs).weights
            for each in (tasks, tasks.without_rows())
        )
        return found, np.full_like(found, np.nan), means
    mean, units, parts = learner.training_summary_.mean, prior.scaling, []
    with single_threaded_blas():
        for batch in batches(prior.residual_tasks(tasks)):
            statistics = prior.statistics(batch)
            found, covariances = task_estimates(prior.mixture, statistics, mean)
            before = prior.response.statistics(batch.without_rows(), units, statistics.side)
            means = before.posterior(prior.mixture, Want(means=True)).mean
            errors = units.raw_deviations(covariances)
            parts.append((units.raw_weights(found), errors, units.raw_weights(means)))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def errors_of_means(learner: Any, tasks: TaskSet) -> Array | None:
    """Return standard errors of the prior means of tasks (T, d), in the user's units; None if they
    are unknown.
    """
    mean, prior = getattr(getattr(learner, "training_summary_", None), "mean", None), learner.prior_
    if mean is None or not isinstance(prior, MixturePrior):
        return None
    return mean.deviations(
        prior.scaling.target * prior.scaling.back(np.arange(prior.n_weights)),
        prior.side_features(tasks),
        len(tasks),
    )


def effects_frame(learner: Any, tasks: TaskSet, coverage: float) -> Any:
    """Return a table of the coefficients of each task after adapting to its rows.

    See `MetaLearner.effects`.
    """
    model = FittedModel(learner)
    at = model.coefficients
    weights, std, prior = (values[:, at].ravel() for values in task_effects(learner, tasks))
    half_width = norm.ppf(0.5 + 0.5 * coverage) * std
    columns = {
        "task": np.repeat(tasks.labels, len(at)),
        "column": np.tile(np.array(model.columns, dtype=object)[at], len(tasks)),
        "effect": weights,
        "std": std,
        "lower": weights - half_width,
        "upper": weights + half_width,
        "prior": prior,
    }
    return as_frame(columns)
