"""The part of the prior mean that is linear in features of a task's description: ``b(s) = b + Γ v(s)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .common_weights import most_likely_mean
from .em import fit_mixed_model, maximise
from .mixture import Mixture
from .moments import Want
from .rows import Tasks

Array = NDArray[np.float64]

#: Penalties on Γ that are tried, strongest first, so that each starts from a smaller Γ near its own.
#: One of λ is worth λ (1 + σ²/(nW)) tasks: so many move Γ half way, more of them where n rows say less.
SIDE_PENALTIES = (100.0, 10.0, 1.0, 0.1)


@dataclass(frozen=True)
class SideForm:
    """What the description may move, through which of its features, and how freely.

    Attributes
    ----------
    penalty : float
    intercept_only : bool
        Whether it moves the intercept (q numbers), or all weights (d q numbers).
    curved : bool
        Whether the curved features are used, or the first ``n_linear`` alone.
    varying : tuple of int, optional
        The weights that tasks may differ in, and a description may move; all by default.
    """

    penalty: float
    intercept_only: bool = False
    curved: bool = False
    varying: tuple[int, ...] | None = None

    def describe(self) -> dict[str, Any]:
        effect = "intercept" if self.intercept_only else "all weights"
        return {"penalty": self.penalty, "effect on": effect, "curved": self.curved}


def side_forms(
    has_intercept: bool, has_curves: bool, varying: tuple[int, ...] | None = None
) -> list[SideForm]:
    """All forms, in the order in which one would try them."""
    effects = (True, False) if has_intercept else (False,)
    if has_intercept and varying is not None and len(varying) == 1:
        effects = (True,)  # nothing but the intercept varies
    shapes = (False, True) if has_curves else (False,)
    return [
        SideForm(penalty, effect, shape, varying)
        for shape in shapes
        for effect in effects
        for penalty in SIDE_PENALTIES
    ]


@dataclass(frozen=True)
class SideFit:
    """Γ (d, q), and the mixed model of what it leaves."""

    Gamma: Array
    rest: Mixture

    @property
    def model(self) -> Mixture:
        return replace(self.rest, side=self.Gamma)


def fit_side(
    statistics: Tasks,
    form: SideForm,
    n_linear: int,
    start: SideFit | None = None,
    *,
    max_iter: int = 60,
    tol: float = 1e-4,
) -> SideFit:
    """Γ of the mixed model ``w ~ N(b + Γ v(s), W)`` by EM, from the fit of another form where one is given.

    The M-step regresses the posterior means of the weights on v(s), with the prior Γ ~ N(0, W ⊗ I / penalty).
    Learned with the covariance and not before it: what the description explains must not be counted as
    a difference between tasks, or later rows would be trusted more than they deserve.

    No single objective is climbed: where it ends, b and Γ maximise the penalised likelihood given W and σ², and
    these the likelihood given Γ.  The penalty has no say in W, which it would widen by λΓΓᵀ.
    """
    known = statistics.side
    assert known is not None
    used = known.shape[1] if form.curved else n_linear
    v = known[:, :used]
    per_task = float(np.mean(v * v)) or 1.0
    regression = np.linalg.solve(v.T @ v + form.penalty * per_task * np.eye(used), v.T)
    Gamma = np.zeros((statistics.n_features, known.shape[1]))
    common = np.zeros(statistics.n_features, dtype=bool)
    if form.varying is not None:
        common = ~np.isin(np.arange(statistics.n_features), form.varying)
    model = fit_mixed_model(statistics, max_iter=30, varying=form.varying) if start is None else start.rest
    if start is not None:
        Gamma[:, :used] = start.Gamma[:, :used]
        if form.intercept_only:
            Gamma[:-1] = 0.0
    totals = statistics.totals()
    for _ in range(max_iter):
        rest = statistics.shifted(known @ Gamma.T)
        expected = rest.posterior(model, Want(means=True, sums=True))
        deviations = expected.means[:, 0] - model.means[0] + known @ Gamma.T
        model = maximise(totals, model, expected.sums)
        if common.any():
            model = most_likely_mean(rest, model)
        previous, Gamma = Gamma, np.zeros_like(Gamma)
        if form.intercept_only:
            Gamma[-1, :used] = regression @ _intercepts(deviations, model.covariances[0])
        else:
            Gamma[:, :used] = (regression @ deviations).T
        Gamma[common] = 0.0
        if np.abs(Gamma - previous).max() < tol * max(np.abs(Gamma).max(), tol):
            break
    return SideFit(Gamma, model)


def fit_along_path(statistics: Tasks, form: SideForm, n_linear: int) -> SideFit:
    """`fit_side` from the fits with stronger penalties: EM is slow to find a large Γ from nothing."""
    stronger = [penalty for penalty in SIDE_PENALTIES if penalty > form.penalty]
    fit: SideFit | None = None
    for penalty in stronger:
        fit = fit_side(statistics, replace(form, penalty=penalty), n_linear, fit)
    return fit_side(statistics, form, n_linear, fit)


def _intercepts(deviations: Array, W: Array) -> Array:
    """Deviations of the intercepts, less what those of the other weights let expect under N(0, W)."""
    others = W[:-1, :-1] + 1e-9 * (np.trace(W) / len(W)) * np.eye(len(W) - 1)
    slope = np.linalg.lstsq(others, W[:-1, -1], rcond=1e-10)[0] if len(others) else np.zeros(0)
    return np.asarray(deviations[:, -1] - deviations[:, :-1] @ slope)
