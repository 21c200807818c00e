"""`FittedModel`.

The numbers of a fitted learner in the user's units, and the coefficients of single tasks.

Tables, sentences and figures read these numbers and do not compute them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted

from .._utils.frames import as_frame
from .._utils.threads import single_threaded_blas
from ..gaussian.errors import MeanCovariance, task_estimates
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import used_columns
from ..priors.base import Prior, adapt_tasks
from ..priors.mixture import MixturePrior
from ..selection.training_summary import TrainingSummary
from ..tasks.rows import Array, batches
from ..tasks.task_set import TaskSet

#: Name of the intercept in tables.
INTERCEPT = "(intercept)"


def coefficient_names(learner: Any) -> list[str]:
    """Return the names of a fitted learner's coefficients.

    An intercept is last, and unnamed features are x0, x1, ...
    """
    names = getattr(learner, "feature_names_in_", None)
    names = [f"x{j}" for j in range(learner.n_features_in_)] if names is None else map(str, names)
    return [*names, INTERCEPT] if learner.prior_.fit_intercept else list(names)


class Scale(NamedTuple):
    """Names for a response: of the regression, of the scale of its coefficients, and of
    exp(coefficient).
    """

    regression: str
    coefficients: str = ""
    ratio: str = ""


#: Scales of the responses other than Gaussian.
SCALES = {
    "bernoulli": Scale("logistic", "log odds", "odds ratio"),
    "poisson": Scale("Poisson", "log rates", "rate ratio"),
    "negative_binomial": Scale("negative binomial", "log rates", "rate ratio"),
}


@dataclass(frozen=True)
class FittedModel:
    """A fitted prior with the names of its coefficients and side information.

    Units are the user's, unless stated otherwise.
    """

    prior: Prior
    training: TrainingSummary | None
    columns: list[str]
    side_columns: list[str]

    @classmethod
    def of(cls, learner: Any) -> FittedModel:
        check_is_fitted(learner, "prior_")
        side = learner.columns_in_["side_info"] or [f"s{j}" for j in range(learner.n_side_info_in_)]
        training = getattr(learner, "training_summary_", None)
        return cls(
            learner.prior_, training, coefficient_names(learner), [str(name) for name in side]
        )

    @property
    def correlation(self) -> Any:
        """Correlation of the noise in time; None if it is independent."""
        return self.prior.response.correlation

    @property
    def scale(self) -> Scale:
        """Scale of the coefficients."""
        return SCALES.get(self.prior.response.name, Scale("linear"))

    @cached_property
    def categories(self) -> list[int]:
        """Positions of categorical columns that have an effect for each value instead of a
        coefficient.
        """
        return [] if self.prior.shared is None else self.prior.shared.coded_columns

    @property
    def coefficients(self) -> NDArray[np.intp]:
        """Positions of the columns that have a coefficient."""
        return np.setdiff1d(np.arange(len(self.columns)), self.categories)

    @property
    def has_curves(self) -> bool:
        """Whether all tasks share curves or products of columns."""
        return self.prior.shared is not None and len(self.categories) < len(
            self.prior.shared.effects
        )

    @cached_property
    def constant(self) -> list[int]:
        """Positions of columns that are left out of the model, because they are constant in all
        rows, or tiny.
        """
        moment = None if self.training is None else self.training.row_moment
        unused = [] if moment is None else np.flatnonzero(~used_columns(moment)).tolist()
        return [j for j in unused if j not in self.categories]

    @property
    def mixture(self) -> Mixture:
        """Gaussian mixture of the coefficients, for scaled columns and targets."""
        assert self.prior.mixture is not None
        return self.prior.mixture

    @property
    def covariance(self) -> Array:
        """Covariance of the random effects, for scaled columns and targets.

        Variances that are rounding errors are zero.
        """
        W, noise = self.mixture.moments()[1], self.mixture.noise
        varies = W.diagonal() > 1e-16 * max(float(W.diagonal().max()), noise)
        return W * np.outer(varies, varies)

    @cached_property
    def fixed_effects(self) -> Array:
        """Prior mean at the mean of the side information; NaN if the prior does not define it."""
        mean = self.prior.mean_at_centre()
        return self.prior.scaling.raw_weights(
            np.full(len(self.columns), np.nan) if mean is None else mean
        )

    @property
    def has_estimated_mean(self) -> bool:
        """Whether the prior mean was estimated.

        A mean that was fixed at zero (of scaled targets) has no standard error.
        """
        mean = None if self.training is None else self.training.mean
        return mean is not None and bool((mean.column == 0).any())

    @cached_property
    def standard_errors(self) -> Array:
        """Standard errors of the fixed effects; NaN where they are unknown."""
        d = len(self.columns)
        if self.training is None or self.training.mean is None or not self.has_estimated_mean:
            return np.full(d, np.nan)
        return self.prior.scaling.raw_deviations(self.training.mean.of(d, {0: 1.0}))

    @cached_property
    def random_effect_std(self) -> Array:
        """Standard deviations of the random effects.

        NaN with one task, which does not identify them.
        """
        if self.training is not None and self.training.n_tasks == 1:
            return np.full(len(self.columns), np.nan)
        return self.prior.scaling.raw_deviations(self.covariance)

    @cached_property
    def r2_of_side_info(self) -> Array | None:
        """Fraction of the variance of each coefficient that the side information explains.

        None if it affects none.

        The fraction of the intercept is at the feature means.
        """
        if self.training is None or self.training.side is None or self.mixture.side is None:
            return None
        explained = self.training.side.coefficient_std[0]
        total = np.hypot(explained, self.prior.scaling.centred_deviations(self.covariance))
        return np.divide(explained, total, np.zeros(len(total)), where=total > 0) ** 2

    @cached_property
    def varying(self) -> NDArray[np.intp]:
        """Positions of the coefficients with random effects.

        None with one task, where their std is NaN.
        """
        # Multiply by the scales of the columns: whether a coefficient varies must not depend on the
        # unit of its column.
        relevance = self.random_effect_std * self.prior.scaling.columns
        return np.flatnonzero(relevance > 1e-9 * max(float(relevance.max(initial=0.0)), 1e-300))

    @cached_property
    def correlations(self) -> Array:
        """Correlations of the random effects of the ``varying`` coefficients."""
        at = np.ix_(self.varying, self.varying)
        covariance = self.prior.scaling.raw_representation(self.covariance)[at]
        deviation = np.sqrt(np.diagonal(covariance))
        correlations = covariance / np.outer(deviation, deviation)
        np.fill_diagonal(correlations, 1.0)
        return correlations

    @cached_property
    def std_between_tasks(self) -> float | None:
        """Standard deviation of the random effects at a row (root mean square over rows); None if
        it is unknown.
        """
        if self.training is None or self.training.row_moment is None:
            return None
        variance = max(float(np.sum(self.covariance * self.training.row_moment)), 0.0)
        return self.prior.scaling.target * float(np.sqrt(variance))


def task_effects(
    prior: Prior, tasks: TaskSet, mean: MeanCovariance | None, n_jobs: int | None
) -> tuple[Array, ...]:
    """Return coefficients (T, d) in the user's units, intercept last, their standard errors (NaN if
    unknown) and prior means.

    The coefficients are posterior means under the prior's Gaussian model.  ``mean`` is the
    covariance of the estimation error of the prior mean.  The part of b(s) that was learned on
    query rows is left out, because it improves predictions but does not estimate a coefficient.
    For priors without a mixture, return the coefficients of `adapt`.
    """
    if not isinstance(prior, MixturePrior):
        coefficients = adapt_tasks(prior, tasks, covariances=False, n_jobs=n_jobs).weights
        means = adapt_tasks(prior, tasks.without_rows(), covariances=False, n_jobs=n_jobs).weights
        return coefficients, np.full_like(coefficients, np.nan), means
    parts = []
    with single_threaded_blas():
        for batch in batches(prior.residual_tasks(tasks)):
            statistics = prior.statistics(batch)
            estimates, covariances = task_estimates(prior.mixture, statistics, mean)
            before = prior.response.statistics(batch.without_rows(), prior.scaling, statistics.side)
            means = before.posterior(prior.mixture, Want(means=True)).mean
            errors = prior.scaling.raw_deviations(covariances)
            parts.append(
                (prior.scaling.raw_weights(estimates), errors, prior.scaling.raw_weights(means))
            )
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
    model = FittedModel.of(learner)
    mean = None if model.training is None else model.training.mean
    found, at = task_effects(learner.prior_, tasks, mean, learner.n_jobs), model.coefficients
    weights, std, prior = (values[:, at].ravel() for values in found)
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
