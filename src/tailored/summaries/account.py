"""What a summary has to know of the tasks that were learned from, when they are gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..feature_maps import SideFeatures
from ..gaussian import MeanCovariance, Mixture
from ..gaussian.gates import log_gates
from ..tasks import Units

Array = NDArray[np.float64]

#: The learner itself among those that held-out tasks judged.
OWN = "this learner"


@dataclass(frozen=True)
class SideAccount:
    """What the description did, by its m columns.

    Attributes
    ----------
    moved : array (1 + m, d)
        Standard deviation over tasks of what all of it, and each column alone, adds to each weight, in the user's units
        (whose squares may be no numbers).
    at_rows : array (1 + m,)
        Variance of what that adds to the prediction of a row, averaged over rows, in squared units of the target.
    told : array (1 + m,)
        Share of the uncertainty about a task's component (entropy) that the gates take away; each column with the others
        at their means.
    shares : array (K, m) or None
        Mean of each column in each component, where all columns are numbers.
    """

    moved: Array
    at_rows: Array
    told: Array
    shares: Array | None = None


@dataclass(frozen=True)
class Account:
    """Numbers about the tasks that a prior was learned from; no rows.

    Attributes
    ----------
    n_tasks, n_rows : int
    target_mean : float
        Mean of the targets, in the user's units.
    loss : str
        What ``errors`` are measured with.
    errors : dict of str to array
        Errors of the held-out tasks, by method, the same tasks and rows for all; NaN where a task was not asked.
    row_moment : array (d, d) or None
        Mean of xxᵀ over rows, in the units of the prior.
    mean : MeanCovariance or None
        How well b and Γ are known.
    plain : Mixture or None
        The mixed model with full covariance that was fitted to the same tasks.
    ridge : float or None
        τ = ridge · I of "every task alone", the one that held-out tasks were predicted best with.
    side : SideAccount or None
    """

    n_tasks: int
    n_rows: int
    target_mean: float
    loss: str
    errors: dict[str, Array] = field(default_factory=dict)
    row_moment: Array | None = None
    mean: MeanCovariance | None = None
    plain: Mixture | None = None
    ridge: float | None = None
    side: SideAccount | None = None


def side_account(
    model: Mixture, units: Units, features: SideFeatures, side: Array, row_moment: Array, table: Array | None
) -> SideAccount:
    """Of tasks with features ``side`` (T, q); ``table`` (T, m) are their descriptions, where these are numbers."""
    columns = np.asarray(features.origins)
    d, m = model.means.shape[1], int(columns.max(initial=-1)) + 1
    moved, at_rows, told = np.zeros((1 + m, d)), np.zeros(1 + m), np.zeros(1 + m)
    for place in range(1 + m):
        mine = columns >= 0 if place == 0 else columns == place - 1
        if model.side is not None:
            added = side[:, mine] @ model.side[:, mine].T
            covariance = np.atleast_2d(np.cov(added.T, bias=True))
            at_rows[place] = units.target**2 * float(np.sum(covariance * row_moment))
            moved[place] = units.target * np.sqrt(
                np.maximum(np.diag(units.raw_representation(covariance)), 0.0)
            )
        if model.gates is not None:
            told[place] = _told(np.exp(log_gates(model.gates[:, np.append(True, mine)], side[:, mine])))
    shares = None
    if table is not None and model.n_components > 1 and model.gates is not None:
        r = np.exp(log_gates(model.gates, side))
        with np.errstate(invalid="ignore"):
            known = ~np.isnan(table)
            shares = (r.T @ np.nan_to_num(table)) / np.maximum(r.T @ known, 1e-300)
    return SideAccount(moved, at_rows, told, shares)


def _told(proportions: Array) -> float:
    """1 − mean entropy of the proportions / entropy of their mean."""
    whole = _entropy(proportions.mean(axis=0))
    return 1.0 - float(_entropy(proportions).mean() / whole) if whole > 0 else 0.0


def _entropy(p: Array) -> Array:
    return np.asarray(-(p * np.log(np.maximum(p, 1e-300))).sum(axis=-1))
