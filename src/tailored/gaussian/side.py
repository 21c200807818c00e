"""Linear effects of side information on the prior mean: ``b(s) = b + Γ v(s)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .em import fit_mixed_model, maximise, most_likely_mean
from .mixture import Mixture, Want
from .rows import Tasks

Array = NDArray[np.float64]

#: Penalties on Γ, strongest first, so that each fit starts from a smaller Γ.  A penalty λ is equivalent to
#: λ (1 + σ²/(nW)) tasks with Γ = 0.
SIDE_PENALTIES = (100.0, 10.0, 1.0, 0.1)


@dataclass(frozen=True)
class SideStructure:
    """Structure of the effects of side information.

    Attributes
    ----------
    penalty : float
    intercept_only : bool
        Whether only the intercept depends on the side information, or all coefficients.
    curved : bool
        Whether all features are used, or only the first ``n_linear``, without the nonlinear ones.
    varying : tuple of int, optional
        Coefficients that differ between tasks, by default all; the others have no effects.
    """

    penalty: float
    intercept_only: bool = False
    curved: bool = False
    varying: tuple[int, ...] | None = None

    def describe(self) -> dict[str, Any]:
        effect = "intercept" if self.intercept_only else "all weights"
        return {"penalty": self.penalty, "effect on": effect, "curved": self.curved}


def side_structures(
    has_intercept: bool, has_curves: bool, varying: tuple[int, ...] | None = None
) -> list[SideStructure]:
    """Return all structures, simplest first."""
    effects = (True, False) if has_intercept else (False,)
    if has_intercept and varying is not None and len(varying) == 1:
        effects = (True,)  # only the intercept differs between tasks
    shapes = (False, True) if has_curves else (False,)
    return [
        SideStructure(penalty, effect, shape, varying)
        for shape in shapes
        for effect in effects
        for penalty in SIDE_PENALTIES
    ]


@dataclass(frozen=True)
class SideFit:
    """Γ (d, q), and the mixed model of the targets less Γ v(s)."""

    Gamma: Array
    rest: Mixture

    @property
    def model(self) -> Mixture:
        return replace(self.rest, side=self.Gamma)


def fit_side(
    tasks: Tasks,
    structure: SideStructure,
    n_linear: int,
    start: SideFit | None = None,
    *,
    max_iter: int = 60,
    tol: float = 1e-4,
) -> SideFit:
    """Fit the mixed model ``w ~ N(b + Γ v(s), W)`` by EM, from the fit of another structure if given.

    The M-step regresses the posterior means of the coefficients on v(s), with the prior Γ ~ N(0, W ⊗ I / penalty).  Γ and W
    are learned together: differences that side information explains must not count as random effects.

    At the fixed point, b and Γ maximise the penalised likelihood given W and σ², and these the likelihood given Γ.  The
    penalty does not enter W, which it would widen by λΓΓᵀ.
    """
    side = tasks.side
    assert side is not None
    used = side.shape[1] if structure.curved else n_linear
    v = side[:, :used]
    per_task = float(np.mean(v * v)) or 1.0
    regression = np.linalg.solve(v.T @ v + structure.penalty * per_task * np.eye(used), v.T)
    Gamma = np.zeros((tasks.n_features, side.shape[1]))
    fixed = np.zeros(tasks.n_features, dtype=bool)
    if structure.varying is not None:
        fixed = ~np.isin(np.arange(tasks.n_features), structure.varying)
    if start is None:
        model = fit_mixed_model(tasks, max_iter=30, varying=structure.varying)
    else:
        model = start.rest
        Gamma[:, :used] = start.Gamma[:, :used]
        if structure.intercept_only:
            Gamma[:-1] = 0.0
    totals = tasks.totals()
    for _ in range(max_iter):
        rest = tasks.shifted(side @ Gamma.T)
        expected = rest.posterior(model, Want(means=True, sums=True))
        deviations = expected.means[:, 0] - model.means[0] + side @ Gamma.T
        model = maximise(totals, model, expected.sums)
        if fixed.any():
            model = most_likely_mean(rest, model)
        previous, Gamma = Gamma, np.zeros_like(Gamma)
        if structure.intercept_only:
            Gamma[-1, :used] = regression @ _intercepts(deviations, model.covariances[0])
        else:
            Gamma[:, :used] = (regression @ deviations).T
        Gamma[fixed] = 0.0
        if np.abs(Gamma - previous).max() < tol * max(np.abs(Gamma).max(), tol):
            break
    return SideFit(Gamma, model)


def fit_side_path(tasks: Tasks, structure: SideStructure, n_linear: int) -> SideFit:
    """Call `fit_side` with decreasing penalties: EM takes many steps to a large Γ from zero."""
    fit: SideFit | None = None
    for penalty in SIDE_PENALTIES:
        if penalty > structure.penalty:
            fit = fit_side(tasks, replace(structure, penalty=penalty), n_linear, fit)
    return fit_side(tasks, structure, n_linear, fit)


def _intercepts(deviations: Array, W: Array) -> Array:
    """Return the deviations of the intercepts less their expectation given the other coefficients under N(0, W)."""
    others = W[:-1, :-1] + 1e-9 * (np.trace(W) / len(W)) * np.eye(len(W) - 1)
    slope = np.linalg.lstsq(others, W[:-1, -1], rcond=1e-10)[0] if len(others) else np.zeros(0)
    return np.asarray(deviations[:, -1] - deviations[:, :-1] @ slope)
