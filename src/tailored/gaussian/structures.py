"""Model structures of the prior, from independent tasks to mixtures, and their fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..tasks.rows import Array
from .atoms import fit_atoms
from .em import (
    Shrinkage,
    Source,
    em,
    fit_mixed_model,
    keep_diagonal,
    maximise,
    most_likely_mean,
    noise_floor,
    restrict_rank,
    settle,
    truncate,
)
from .low_rank import Calibration, LowRankFitter, RotatedTasks
from .mixture import Mixture
from .moments import Moments, Sums, Totals
from .rows import Tasks
from .side import Group, SideFit, SideStructure, fit_side, gate_penalties
from .sites import ResponseRows
from .starts import COMPONENT_SHRINKAGE, fit_mixture

#: Candidates for the ridge of independent tasks, τ = ridge · I; 1 is first, so it is selected in case of ties.
RIDGES = (1.0, *(float(ridge) for ridge in np.logspace(-3, 4, 15) if ridge != 1.0))
#: Candidate weights of the shrinkage of W to its diagonal, in pseudo-tasks.
PSEUDO_TASKS = (10.0, 30.0, 100.0, 300.0)
#: Maximum number of tasks for which EM takes more steps.
FEW = 50
#: Number of EM steps if columns outnumber tasks: early stopping keeps W close to a multiple of I.
WIDE_STEPS = 3
#: Candidate penalties on mixing weights, and number of EM steps that estimate them.
GATE_PENALTIES, GATE_STEPS = (1.0, 10.0), 20
#: Number of EM steps over all tasks, starting from a model that was fitted to a sample.
REFINING_STEPS = 20
#: Candidate thresholds, relative to the largest eigenvalue of W, below which eigenvalues are set to zero.
TRUNCATIONS = (0.0, 0.01, 0.05)


@dataclass(frozen=True)
class Structure:
    """The structure of the prior of the coefficients.

    The kinds are "independent" (W = ``ridge`` σ² I, b = 0), "mixed model" (one Gaussian), "mixture" (several Gaussians) and
    "low rank" (one or several Gaussians with a few factors each, see `tailored.gaussian.low_rank`).
    """

    kind: str
    n_components: int = 1
    covariance: str = "full"  # of W in a mixed model: "full", "diagonal", "intercept" or "none"
    gate_penalty: float = 0.0  # penalty on mixing weights that depend on side information; 0: constant
    ridge: float = 0.0  # of independent tasks
    n_factors: int = 0  # number of factors of one component of low rank
    pseudo_tasks: float = 0.0  # weight of the shrinkage of W to its diagonal
    truncation: float = 0.0  # smallest eigenvalue of W that is kept, relative to the largest
    varying: tuple[int, ...] | None = None  # coefficients that differ between tasks, as set by the user
    rank: int = 0  # number of factors per component, for several components of low rank
    calibration: Calibration | None = None  # c, δ and σ² of low rank, from held-out tasks
    atoms: bool = False  # whether the fit is replaced by atoms derived from it (`tailored.gaussian.atoms`)

    @property
    def plain(self) -> Structure | None:
        """The mixed model that is fitted first, as the start of this structure; None if not needed."""
        if self.kind in ("independent", "low rank") or self.covariance != "full":
            return None
        return Structure("mixed model", varying=self.varying)

    @property
    def has_mean(self) -> bool:
        """Whether the prior mean b is estimated; it is zero for independent tasks."""
        return self.kind != "independent"

    def restrict(self, covariances: Array) -> Array:
        """Return the covariances (K, d, d) of an M-step, restricted to this structure."""
        if self.kind == "low rank":
            # One more factor than in `low_rank`, for the intercept.
            return restrict_rank(covariances, (self.rank or self.n_factors) + 1)
        return covariances if self.covariance == "full" else keep_diagonal(covariances)

    def describe(self) -> dict[str, Any]:
        """Return the attributes that differ from their defaults."""
        if self.atoms:
            gated = {"gate_penalty": self.gate_penalty} if self.gate_penalty else {}
            return {"kind": "atoms", "n_components": self.n_components, **gated}
        values = asdict(self)
        values["structure"] = values.pop("covariance")
        del values["calibration"]
        return {name: value for name, value in values.items() if value not in (None, 0.0, "full")}


def covariance_structures(
    n_features: int, has_intercept: bool, varying: tuple[int, ...] | None = None, *, full: bool = True
) -> list[list[Structure]]:
    """Return one Gaussian with each covariance, simplest first.  Within a list, each fit starts from the previous one.

    "none" is pooled regression.  If the user sets ``varying``, only these coefficients differ between tasks.
    """
    single = Structure("mixed model", varying=varying)
    if varying is not None and len(varying) < 2:
        return [[single]]
    kinds = [] if varying is not None else ["none", "intercept"] if has_intercept else ["none"]
    if varying is not None or n_features > has_intercept:
        kinds.append("diagonal")
    out = [[replace(single, covariance=kind)] for kind in kinds]
    if full and n_features > 1:
        out.append([single, *(replace(single, pseudo_tasks=nu) for nu in PSEUDO_TASKS)])
    return out


def ridge_structures() -> list[Structure]:
    """Return the structures of independent tasks."""
    return [Structure("independent", ridge=ridge) for ridge in RIDGES]


@dataclass
class StructureFitter:
    """Fit several structures to the same tasks; a fit may start from the fit of a simpler structure."""

    tasks: Tasks  # scaled to mean square one; effects of side information are subtracted from the targets
    seed: list[int]  # for the random starts of mixtures
    side_fit: SideFit | None = None  # effects of side information, for all structures except "independent"
    groups: Sequence[Group] = ()  # groups of side features
    fitted: dict[Structure, Mixture] = field(default_factory=dict)  # fits without Γ, added on demand
    starts: dict[Structure, Mixture] = field(default_factory=dict)  # initial values from other fits
    has_intercept: bool = False  # whether the last column is constant
    tol: float = 1e-9  # tolerance of EM for few tasks

    @classmethod
    def of(
        cls,
        tasks: Tasks,
        seed: list[int],
        side: SideStructure | None = None,
        groups: Sequence[Group] = (),
        has_intercept: bool = False,
    ) -> StructureFitter:
        """Return a fitter for tasks; if ``side`` is given, fit the effects of side information first."""
        if side is None:
            return cls(tasks, seed, groups=groups, has_intercept=has_intercept)
        assert tasks.side is not None
        fit = fit_side(tasks, side, groups)
        rest, plain = tasks.shifted(tasks.side @ fit.Gamma.T), Structure("mixed model")
        starts = {} if isinstance(tasks, ResponseRows) else {replace(plain, varying=side.varying): fit.rest}
        return cls(rest, seed, fit, groups, starts=starts, has_intercept=has_intercept)

    @property
    def side(self) -> Array | None:
        """Γ (d, q)."""
        return None if self.side_fit is None else self.side_fit.Gamma

    def fit(self, structure: Structure) -> Mixture:
        """Return the fitted model; W of a mixed model is corrected for the degrees of freedom of the mean."""
        model, T = self.most_likely(structure), len(self.tasks)
        if structure.kind == "mixed model" and T > 1 and not structure.atoms:
            return model.scaled(T / (T - 1.0))
        return model

    def most_likely(self, structure: Structure) -> Mixture:
        """Return the maximum likelihood model, without the correction of `fit`."""
        model = self._without_side(structure)
        return model if structure.kind == "independent" else replace(model, side=self.side)

    def _without_side(self, structure: Structure) -> Mixture:
        if structure not in self.fitted:
            model = self._fit(structure)
            if structure.varying is not None:
                model = self._with_fixed_coefficients(structure, model)
            self.fitted[structure] = model
        return self.fitted[structure]

    def _with_fixed_coefficients(self, structure: Structure, model: Mixture) -> Mixture:
        """Estimate the means of coefficients without variance, and set their covariances exactly to zero."""
        if structure.pseudo_tasks:
            # The start has the means of the plain model, so one update is enough.
            model = most_likely_mean(self.tasks, model)
        elif not isinstance(self.tasks, ResponseRows):
            max_iter = self.steps(few=100, many=40)
            model = settle(self.tasks, model, restrict=structure.restrict, max_iter=max_iter, tol=1e-9)
        inside = np.isin(np.arange(self.tasks.n_features), structure.varying or ())
        return replace(model, covariances=model.covariances * np.outer(inside, inside))

    def _fit(self, structure: Structure) -> Mixture:
        tasks = self.tasks
        if structure.atoms:
            assert isinstance(tasks, Moments)
            return fit_atoms(tasks, self._without_side(replace(structure, atoms=False)), self.seed)
        if structure.kind == "independent":
            return self._independent(structure)
        if structure.kind == "low rank":
            assert structure.calibration is not None
            numbers = structure.n_factors, structure.n_components, structure.rank
            model = LowRankFitter(RotatedTasks.of(tasks, self.has_intercept), self.seed).fit(*numbers)
            return model.scaled(structure.calibration).mixture()
        if structure.gate_penalty:
            start = self._without_side(replace(structure, gate_penalty=0.0))
            return self.with_gates(start, structure.gate_penalty, max_iter=GATE_STEPS)
        if structure.truncation:
            # EM does not change the range of W, so it refits only the remaining directions.
            start = truncate(self._without_side(replace(structure, truncation=0.0)), structure.truncation)
            return em(tasks, start, max_iter=15).mixture
        if structure.pseudo_tasks:
            return self._shrunk(structure)
        known = self.starts.get(structure)
        known = None if known is None else replace(known, side=None)
        if structure.kind == "mixture":
            assert structure.plain is not None
            single = self._without_side(structure.plain)
            return fit_mixture(tasks, single, structure.n_components, seed=self.seed, start=known)
        if structure.covariance == "diagonal":
            known = self.fitted.get(replace(structure, covariance="full"), known)
        options: dict[str, Any] = {"covariance": structure.covariance, "varying": structure.varying}
        options |= {"max_iter": self.steps(few=100, many=40), "tol": self.tol if self._few else 1e-6}
        return fit_mixed_model(tasks, start=known, **options)

    def with_gates(self, start: Mixture, penalty: float, **options: Any) -> Mixture:
        """Estimate mixing weights that depend on the relevant side information, if any."""
        assert self.tasks.side is not None
        shares = self.tasks.posterior(start).shares
        penalties = gate_penalties(self.tasks.side, self.groups, shares, penalty)
        if not np.isfinite(penalties).any():
            return start
        return em(self.tasks, start, gate_penalty=penalties, **options).mixture

    def _independent(self, structure: Structure) -> Mixture:
        tasks, d = self.tasks, self.tasks.n_features
        if self.side is not None:
            # The model of independent tasks has no Γ: add its effects back to the targets.
            assert tasks.side is not None
            tasks = tasks.shifted(-tasks.side @ self.side.T)
        unit = Mixture(np.ones(1), np.zeros((1, d)), structure.ridge * np.eye(d)[None], 1.0)
        if isinstance(tasks, ResponseRows):
            return replace(unit, noise=tasks.pooled[1])
        # The maximum likelihood σ² of y ~ N(0, σ² (I + ridge XXᵀ)).
        sums = tasks.sums(unit).sums
        quadratic = sums.residual + float(np.trace(sums.second[0])) / structure.ridge - d * len(tasks)
        noise = max(quadratic / tasks.n_rows, noise_floor(tasks.totals()))
        return replace(unit, covariances=noise * unit.covariances, noise=noise)

    def _shrunk(self, structure: Structure) -> Mixture:
        """Run EM from the fit with the next weaker shrinkage, or from the plain mixed model."""
        assert structure.plain is not None
        plain = self._without_side(structure.plain)
        weaker = [nu for nu in PSEUDO_TASKS if nu < structure.pseudo_tasks]
        start = self._without_side(replace(structure, pseudo_tasks=weaker[-1])) if weaker else plain
        steps, shrinkage = self.steps(few=60, many=8), _shrinkage(structure, plain)
        return em(self.tasks, start, max_iter=steps, shrinkage=shrinkage).mixture

    @property
    def _few(self) -> bool:
        """Whether there are few tasks; EM then takes more steps, because the likelihood is flat."""
        return self.tasks.n_features < len(self.tasks) <= FEW

    def steps(self, *, few: int, many: int) -> int:
        """Return the maximum number of EM steps for these tasks."""
        if self._few:
            return few
        # With more columns than tasks, late steps overfit W.
        return many if self.tasks.n_features < len(self.tasks) else min(many, WIDE_STEPS)


def refine(source: Source, structure: Structure, model: Mixture) -> Mixture:
    """Refit a structure to all tasks of ``source`` by EM, starting from ``model``, its fit to a sample of the tasks.

    Γ, mixing weights, the shrinkage target and the means of coefficients without variance are kept from the sample.  The
    models of independent tasks and of atoms are not changed.
    """
    if structure.kind == "independent" or structure.atoms:
        return model
    return em(
        source,
        model,
        max_iter=REFINING_STEPS,
        # Acceleration combines covariances, and a combination of low-rank covariances has a higher rank.
        accelerate=structure.kind != "low rank",
        restrict=structure.restrict,
        shrinkage=_shrinkage(structure, model),
    ).mixture


def m_step(structure: Structure, model: Mixture, totals: Totals, sums: Sums) -> Mixture:
    """Return the model after one M-step, as in `refine`."""
    step = maximise(totals, model, sums, shrinkage=_shrinkage(structure, model))
    return replace(step, covariances=structure.restrict(step.covariances))


def _shrinkage(structure: Structure, model: Mixture) -> Shrinkage | None:
    if structure.pseudo_tasks:
        return Shrinkage(structure.pseudo_tasks, np.diag(np.diagonal(model.covariances[0])))
    if structure.kind == "mixture":
        return Shrinkage(COMPONENT_SHRINKAGE, model.moments()[1])
    return None
