"""The rule by which `EmpiricalBayesLearner` selects its model.

Models are compared on held-out tasks by their log predictive density, and by their errors given
support rows and without.  A *proposal* of the evidence is accepted unless one of the three gets
worse by two paired standard errors; a *richer* model has to raise the density by as much.  Steps:
(1) shared effects (curves and products of columns, effects of values), one proposal;
(2) dispersion of counts, richer;
(3) correlated noise in time, richer, without a higher error given rows;
(4) side information that has effects on the coefficients, a proposal;
(5) covariance with the highest density, among those that `is_usable` allows by their errors;
(6) low rank, a proposal;
(7) mixture if coefficients are not Gaussian, richer, without higher errors than (5);
(8) offset to medians, if it lowers the held-out error by two standard errors;
(9) mean without rows, moved as far as the held-out error falls, shrunk by its uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tasks.rows import Array, standard_errors

#: A richer model needs a gain of this many paired standard errors.
RICHER = 2.0
#: Candidate numbers of components.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: A search stops after this many numbers of factors or components in a row without improvement.
#: With few tasks, the first factors may lower the evidence even if more factors raise it.
PATIENCE = 3


@dataclass(frozen=True)
class Score:
    """Results of a model on the held-out tasks, in the same order for all models."""

    density: Array  # (T,) log predictive density of the targets in the user's units
    #: (T,) error in the user's loss, given support rows; NaN for a task without query rows
    errors: Array
    prior_errors: Array  # (T,) error without support rows

    @property
    def error(self) -> float:
        """Mean error given support rows; 0 if none of the tasks has query rows."""
        return known_mean(self.errors)

    @property
    def total_error(self) -> float:
        """Sum of the mean errors with and without support rows.

        Without support rows, good models differ only by the errors of their estimated means.  That
        difference alone is too noisy.
        """
        return self.error + known_mean(self.prior_errors)

    @property
    def mean_density(self) -> float:
        """Mean log predictive density; −inf if the model overflows on a task."""
        return -np.inf if np.isnan(self.density).any() else float(np.mean(self.density))


def is_better(richer: Score, simpler: Score, single: Score) -> bool:
    """Return whether a richer model replaces a simpler one; ``single`` is the selected Gaussian,
    for the guard.
    """
    is_finite = np.isfinite(richer.mean_density)
    return (
        is_finite and significant(richer.density - simpler.density) and passes_guard(richer, single)
    )


def is_as_good(proposed: Score, without: Score) -> bool:
    """Return whether a proposal is accepted: neither does the density fall nor an error rise by two
    paired standard errors.
    """
    with np.errstate(invalid="ignore"):  # a task may have an infinite error under both
        rises = proposed.errors - without.errors, proposed.prior_errors - without.prior_errors
        losses = without.density - proposed.density
    if not np.isfinite(proposed.mean_density):
        return False
    return not any(map(significant, (losses, *rises)))


def passes_guard(richer: Score, single: Score) -> bool:
    """Return whether neither the error given support rows nor the total error is higher than that
    of ``single``.
    """
    return richer.error <= single.error and richer.total_error <= single.total_error


def is_usable(richer: Score, simplest: Score) -> bool:
    """Return whether the errors of a covariance do not exclude it.

    Its total error must not be higher than that of the simplest covariance, unless its error given
    support rows is lower by two paired standard errors, and that without rows not higher by as
    much: where tasks differ much more than their rows, the sum is decided by chance.
    """
    if richer.total_error <= simplest.total_error:
        return True
    with np.errstate(invalid="ignore"):  # a task may have an infinite error under both
        falls = simplest.errors - richer.errors
        rises = richer.prior_errors - simplest.prior_errors
    return significant(falls) and not significant(rises)


def known_mean(errors: Array) -> float:
    """Return the mean of the errors that are not NaN; 0 if there are none."""
    known = errors[~np.isnan(errors)]
    return float(known.mean()) if len(known) else 0.0


def significant(gains: Array) -> bool:
    """Return whether the mean of paired gains exceeds zero by `RICHER` standard errors.

    Return False with fewer than two tasks.  If any gain is infinite, return whether none is −inf.
    """
    gains = gains[~np.isnan(gains)]
    if len(gains) < 2:
        return False
    if np.isinf(gains).any():
        return not (gains == -np.inf).any()
    return bool(gains.mean() > RICHER * standard_errors(gains))


def least_gain(n_alternatives: int) -> float:
    """Return the gain in log evidence above which an effect is proposed: the logarithm of the
    number of alternatives.
    """
    return float(np.log(max(n_alternatives, 1)))
