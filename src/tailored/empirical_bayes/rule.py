"""The rule by which `EmpiricalBayesLearner` selects its model.

Models are compared on held-out tasks, in the same folds, by their log predictive density in nats per task.  Of the
covariances of one Gaussian (random intercept, uncorrelated or correlated random effects, with several amounts of
shrinkage), the one with the highest density is selected.  Its total error must not be higher than that of the simplest
covariance.  The total error is the held-out error in the user's loss given support rows plus the one without support
rows.  The simplest covariance is the random intercept; for classes and counts it is pooled regression.  With several
``varying`` coefficients, or for numeric targets without an intercept, it is that of uncorrelated random effects.

A mixture of several components has to raise the density by two paired standard errors.  It also has to pass a
guard: neither its error given support rows nor its total error may be higher than that of the selected Gaussian.  The
number of components is selected by the same rule, with short fits.  Of the mixtures with this number, the one with the
highest density is the candidate.  Noise that is correlated in time is compared with independent noise, in a model with
uncorrelated random effects.  It has to raise the density by two paired standard errors, and its error given support rows
must not be higher.  A dispersion of counts has to raise the density by two paired standard errors, and neither error may
rise by two paired standard errors.

Effects of side information, shared curves and shared products are proposed if they raise the log evidence by more than
the logarithm of the number of alternatives.  The evidence is that of a sample if there are more than 3,000 tasks (side
information) or 5,000 tasks (curves and products).  The effects of side information are one proposal; curves and products
are another.  Each proposal is accepted or rejected as a whole on held-out tasks: the density must not fall, and neither
error may rise by two paired standard errors.  For this comparison, the proposed effects of side information are fitted to
the training tasks of each fold.  Curves and products are also selected again in each fold.  A low-rank covariance is
accepted like a proposal, after its number of factors and its scales were set on the held-out tasks.

Shifts of the prior mean are selected by errors, not by a density.  They have to lower the relative held-out error,
averaged over several numbers of support rows, by two paired standard errors.

Shared curves and products are selected first.  All other models are compared on the residuals.  The next steps select the
dispersion of counts, and whether noise is correlated in time.  The last steps are, in this order: side information
together with the covariance, a low-rank covariance, the number of components, and shifts.  For large tables with
many columns, only a low-rank plus diagonal covariance is fitted.  There, more factors are a richer model, and effects of
side information are always proposed.  A single task is fitted by ridge regression.  With more tasks, ridge regression and
pooled regression of numeric targets are only baselines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tasks.rows import Array

#: Short forms of this rule for the table of the selection in `summary`.
RULE = (
    "Of the covariances of one Gaussian (random intercept, uncorrelated or correlated random effects), the one with the "
    "highest density is selected. Its total error (given support rows plus without) must not be higher than that of the "
    "simplest. A mixture of several components has to raise the density by two paired standard errors. Neither its "
    "error given support rows nor its total error may be higher than that of the selected Gaussian. With a low-rank "
    "covariance, the density must not fall, and neither error may rise by two paired standard errors. Mixtures are listed if "
    "short fits accept more than one component."
)
RULE_OF_FACTORS = (
    "More factors have to raise the density by two paired standard errors. Neither their error given support rows nor their "
    "total error may be higher. With effects of side information, the density must not fall, and neither error may rise by "
    "two paired standard errors."
)
#: A richer model needs a gain of this many paired standard errors.
RICHER = 2.0


@dataclass(frozen=True)
class Score:
    """Results of a model on the held-out tasks, in the same order for all models."""

    density: Array  # (T,) log predictive density
    errors: Array  # (T,) error in the user's loss, given support rows; NaN for a task without query rows
    prior_errors: Array  # (T,) error without support rows

    @property
    def error(self) -> float:
        """Mean error given support rows; 0 if none of the tasks has query rows."""
        return known_mean(self.errors)

    @property
    def total_error(self) -> float:
        """Sum of the mean errors with and without support rows.

        Without support rows, good models differ only by the errors of their estimated means.  That difference alone is too noisy.
        """
        return known_mean(self.errors) + known_mean(self.prior_errors)

    @property
    def mean_density(self) -> float:
        """Mean log predictive density; −inf if the model overflows on a task."""
        return -np.inf if np.isnan(self.density).any() else float(np.mean(self.density))


def is_better(richer: Score, simpler: Score, single: Score) -> bool:
    """Return whether a richer model replaces a simpler one; ``single`` is the selected Gaussian, for the guard."""
    is_finite = np.isfinite(richer.mean_density)
    return is_finite and significant(richer.density - simpler.density) and passes_guard(richer, single)


def is_as_good(proposed: Score, without: Score) -> bool:
    """Return whether a proposal is accepted: neither does the density fall nor an error rise by two paired standard errors."""
    with np.errstate(invalid="ignore"):  # a task may have an infinite error under both
        rises = proposed.errors - without.errors, proposed.prior_errors - without.prior_errors
        losses = without.density - proposed.density
    if not np.isfinite(proposed.mean_density):
        return False
    return not any(map(significant, (losses, *rises)))


def passes_guard(richer: Score, single: Score) -> bool:
    """Return whether neither the error given support rows nor the total error is higher than that of ``single``."""
    return richer.error <= single.error and richer.total_error <= single.total_error


def known_mean(errors: Array) -> float:
    """Return the mean of the errors that are not NaN; 0 if there are none."""
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if len(known) else 0.0


def significant(gains: Array, n_errors: float = RICHER) -> bool:
    """Return whether the mean of paired gains exceeds zero by ``n_errors`` standard errors.

    Return False with fewer than two tasks.  If any gain is infinite, return whether none is −inf.
    """
    gains = gains[~np.isnan(gains)]
    if len(gains) < 2:
        return False
    if np.isinf(gains).any():
        return not (gains == -np.inf).any()
    return bool(gains.mean() > n_errors * gains.std(ddof=1) / np.sqrt(len(gains)))
