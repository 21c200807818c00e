"""Model structures of the prior, from independent tasks to mixtures, and their fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._utils.validation import check_choice
from ..tasks.rows import Array
from .em import (
    COMPONENT_SHRINKAGE,
    Source,
    em,
    fit_mixed_model,
    fit_mixture,
    keep_diagonal,
    mean_from_sums,
    most_likely_mean,
    noise_floor,
    restrict_rank,
    settle,
    truncate,
)
from .low_rank import Calibration, LowRankFitter, RotatedTasks
from .mixture import Mixture, Shrinkage
from .moments import Moments
from .reml import maximise_restricted
from .rows import Tasks
from .side import Group, SideFit, SideStructure, Term, fit_side, gate_penalties
from .sites import ResponseRows

#: Covariances W of a mixed model, simplest first; "none" is pooled regression, and only "full" has
#: correlations.
COVARIANCES = ("none", "intercept", "diagonal", "full")
#: Candidates for the ridge of independent tasks, τ = ridge · I; 1 is first, so it is selected in
#: case of ties.
RIDGES = (1.0, *(float(ridge) for ridge in np.logspace(-3, 4, 15) if ridge != 1.0))
#: Candidate weights of the shrinkage of W to its diagonal, in pseudo-tasks.
PSEUDO_TASKS = (10.0, 100.0)
#: A fit is singular if W has an eigenvalue below this fraction of σ²; lme4's limit is 1e-4 for
#: standard deviations.
SINGULAR = 1e-8
#: Maximum number of EM steps with at least as many columns as tasks: early stopping keeps W close
#: to a multiple of I.
WIDE_STEPS = 3
#: Candidate thresholds, relative to the largest eigenvalue of W, below which eigenvalues are set to
#: zero.
TRUNCATIONS = (0.0, 0.01, 0.05)


@dataclass(frozen=True)
class Structure(ABC):
    """The structure of the prior of the coefficients."""

    kind: ClassVar[str]
    n_components: int = field(default=1, kw_only=True)

    @abstractmethod
    def fit(self, fitter: StructureFitter) -> Mixture:
        """Return this structure fitted to the fitter's tasks, without the effects Γ of side
        information.
        """

    @property
    def plain(self) -> MixedModel | None:
        """The mixed model that is fitted first, as the start of this structure; None if not
        needed.
        """
        return None

    @property
    def is_pooled(self) -> bool:
        """Whether all tasks have the same coefficients."""
        return False

    def restrict(self, covariances: Array) -> Array:
        """Return the covariances (K, d, d) of an M-step, restricted to this structure."""
        return covariances

    def shrinkage(self, model: Mixture) -> Shrinkage | None:
        """Return the prior of the covariances in an M-step that starts from ``model``."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return the kind, and the attributes that are not None, zero or "full"."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"kind": self.kind} | {
            k: v for k, v in values.items() if v not in (None, 0.0, "full")
        }


@dataclass(frozen=True)
class Independent(Structure):
    """Ridge regression of each task alone: W = ``ridge`` σ² I and b = 0."""

    kind = "independent"
    ridge: float

    def fit(self, fitter: StructureFitter) -> Mixture:
        """Return the model with the maximum likelihood σ² of y ~ N(0, σ² (I + ridge XXᵀ)).

        For classes and counts, the model has the dispersion of a pooled fit.
        """
        tasks, d = fitter.tasks, fitter.tasks.n_features
        if fitter.side is not None:
            # The model of independent tasks has no Γ: add the effects of Γ back to the targets.
            assert tasks.side is not None
            tasks = tasks.shifted(-tasks.side @ fitter.side.T)
        unit = Mixture(np.ones(1), np.zeros((1, d)), self.ridge * np.eye(d)[None], 1.0)
        if isinstance(tasks, ResponseRows):
            return replace(unit, noise=tasks.pooled[1])
        sums = tasks.sums(unit).sums
        quadratic = sums.residual + float(np.trace(sums.second[0])) / self.ridge - d * len(tasks)
        noise = max(quadratic / tasks.n_rows, noise_floor(tasks.totals()))
        return replace(unit, covariances=noise * unit.covariances, noise=noise)


@dataclass(frozen=True)
class MixedModel(Structure):
    """One Gaussian; ``covariance`` is one of `COVARIANCES`."""

    kind = "mixed model"

    covariance: str = "full"
    pseudo_tasks: float = 0.0  # weight of the shrinkage of W to its diagonal
    varying: tuple[int, ...] | None = (
        None  # coefficients that differ between tasks, as set by the user
    )
    #: Means of the columns, in units of their scales, if W has no correlations when columns are not centred.
    centre: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, COVARIANCES)

    @property
    def plain(self) -> MixedModel | None:
        return MixedModel(varying=self.varying) if self.covariance == "full" else None

    @property
    def is_pooled(self) -> bool:
        return self.covariance == "none"

    def restrict(self, covariances: Array) -> Array:
        if self.covariance == "full":
            return covariances
        return keep_diagonal(covariances, self.basis(covariances.shape[1]))

    def basis(self, d: int) -> Array:
        """Return the map (d, d) from the coefficients of columns that are not centred to those of centred columns."""
        basis = np.eye(d)
        basis[-1, : len(self.centre)] += self.centre
        return basis

    def pattern(self, d: int) -> NDArray[np.bool_]:
        """Return a mask of the entries of W (d, d) that may be non-zero, for the coefficients before `basis`."""
        inside = np.ones(d, bool) if self.varying is None else np.isin(np.arange(d), self.varying)
        if self.covariance == "intercept":
            inside = np.arange(d) == d - 1
        every = np.outer(inside, inside) & (self.covariance != "none")
        return every if self.covariance == "full" else every & np.eye(d, dtype=bool)

    def is_singular(self, model: Mixture, used: NDArray[np.bool_]) -> bool:
        """Return whether a variance of the ``used`` (d,) columns is zero, or a correlation ±1."""
        inside = np.flatnonzero(self.pattern(len(used)).diagonal() & used)
        inverse = np.linalg.inv(self.basis(len(used)))[inside]
        variances = np.linalg.eigvalsh(inverse @ model.covariances[0] @ inverse.T)
        return bool((variances < SINGULAR * model.noise).any())

    def shrinkage(self, model: Mixture) -> Shrinkage | None:
        if not self.pseudo_tasks:
            return None
        return Shrinkage(self.pseudo_tasks, np.diag(np.diagonal(model.covariances[0])))

    def describe(self) -> dict[str, Any]:
        values = super().describe()
        values.pop("centre")
        return {
            "structure" if name == "covariance" else name: value for name, value in values.items()
        }

    def fit(self, fitter: StructureFitter) -> Mixture:
        model = self._shrunk(fitter) if self.pseudo_tasks else self._likely(fitter)
        varies = self.pattern(fitter.tasks.n_features).diagonal()
        return (
            model
            if varies.all() or self.is_pooled
            else self._with_fixed_coefficients(fitter, model, varies)
        )

    def _likely(self, fitter: StructureFitter) -> Mixture:
        known = fitter.start_of(self)
        if self.covariance == "diagonal":
            known = fitter.fitted.get(replace(self, covariance="full"), known)
        options: dict[str, Any] = {"covariance": self.covariance, "varying": self.varying}
        tasks, basis = fitter.tasks, self.basis(fitter.tasks.n_features)
        options |= {"max_iter": fitter.steps, "tol": 1e-6, "basis": basis}
        model = fit_mixed_model(tasks, start=known, **options)
        if self.centre and isinstance(tasks, Moments):
            # EM is slow if columns are far from zero.
            pattern = self.pattern(len(basis))
            model, _ = maximise_restricted(tasks, model, pattern, is_restricted=False, basis=basis)
        return model

    def _shrunk(self, fitter: StructureFitter) -> Mixture:
        """Run EM from the fit with the next weaker shrinkage, or from the plain mixed model."""
        plain = fitter.without_side(replace(self, pseudo_tasks=0.0))
        weaker = [nu for nu in PSEUDO_TASKS if nu < self.pseudo_tasks]
        start = fitter.without_side(replace(self, pseudo_tasks=weaker[-1])) if weaker else plain
        shrinkage = self.shrinkage(plain)
        return em(fitter.tasks, start, max_iter=fitter.steps, shrinkage=shrinkage).mixture

    def _with_fixed_coefficients(
        self, fitter: StructureFitter, model: Mixture, varies: NDArray[np.bool_]
    ) -> Mixture:
        """Estimate the means of coefficients without variance, and set their covariances exactly to
        zero.
        """
        if self.pseudo_tasks:
            # The start has the means of the plain model, so one update is enough.
            model = most_likely_mean(fitter.tasks, model)
        elif fitter.tasks.is_gaussian:
            options: dict[str, Any] = {"max_iter": fitter.steps, "tol": 1e-9}
            model = settle(fitter.tasks, model, restrict=self.restrict, **options)
        return replace(model, covariances=model.covariances * np.outer(varies, varies))


@dataclass(frozen=True)
class MixtureModel(Structure):
    """Several Gaussians, whose mixing weights may depend on side information."""

    kind = "mixture"

    has_gates: bool = False  # whether side information has effects on the mixing weights
    truncation: float = 0.0  # smallest eigenvalue of W that is kept, relative to the largest

    @property
    def plain(self) -> MixedModel | None:
        return MixedModel()

    def shrinkage(self, model: Mixture) -> Shrinkage | None:
        return Shrinkage(COMPONENT_SHRINKAGE, model.moments()[1])

    def fit(self, fitter: StructureFitter) -> Mixture:
        if self.has_gates:
            start = fitter.without_side(replace(self, has_gates=False))
            return fitter.with_gates(start, max_iter=20)
        if self.truncation:
            # EM does not change the range of W, so it refits only the remaining directions.
            start = truncate(fitter.without_side(replace(self, truncation=0.0)), self.truncation)
            return em(fitter.tasks, start, max_iter=15).mixture
        single, known = fitter.without_side(MixedModel()), fitter.start_of(self)
        return fit_mixture(fitter.tasks, single, self.n_components, seed=fitter.seed, start=known)


@dataclass(frozen=True)
class LowRank(Structure):
    """One or several Gaussians with a few factors each, see `tailored.gaussian.low_rank`."""

    kind = "low rank"

    n_factors: int  # number of factors of the fit with one component
    rank: int  # number of factors of each component of a mixture; 0 with one component
    calibration: Calibration  # c, δ and σ² from held-out tasks

    def restrict(self, covariances: Array) -> Array:
        # One more factor than in `low_rank`, for the intercept.
        return restrict_rank(covariances, (self.rank or self.n_factors) + 1)

    def describe(self) -> dict[str, Any]:
        return {name: value for name, value in super().describe().items() if name != "calibration"}

    def fit(self, fitter: StructureFitter) -> Mixture:
        tasks = RotatedTasks.of(fitter.tasks, fitter.has_intercept)
        model = LowRankFitter(tasks, fitter.seed).fit(self.n_factors, self.n_components, self.rank)
        return model.scaled(self.calibration).mixture()


def covariance_structures(
    n_features: int,
    has_intercept: bool,
    varying: tuple[int, ...] | None = None,
    *,
    full: bool = True,
) -> list[MixedModel]:
    """Return mixed models with each covariance, simplest first.

    Without ``full``, no model has correlations.  If ``varying`` is given, only these coefficients
    differ between tasks, and pooled regression and the random intercept are left out.
    """
    single = MixedModel(varying=varying)
    if varying is not None and len(varying) < 2:
        return [single]
    kinds = [] if varying is not None else ["none", "intercept"] if has_intercept else ["none"]
    if varying is not None or n_features > has_intercept:
        kinds.append("diagonal")
    out = [replace(single, covariance=kind) for kind in kinds]
    if full and n_features > 1:
        out += [single, *(replace(single, pseudo_tasks=nu) for nu in PSEUDO_TASKS)]
    return out


def ridge_structures() -> list[Independent]:
    """Return the structures of independent tasks."""
    return [Independent(ridge) for ridge in RIDGES]


@dataclass
class StructureFitter:
    """Fit several structures to the same tasks; a fit may start from the fit of a simpler
    structure.
    """

    tasks: Tasks  # scaled, without the effects of side information
    seed: list[int]  # for the random starts of mixtures
    side_fit: SideFit | None = (
        None  # effects of side information, for all structures except "independent"
    )
    groups: Sequence[Group] = ()  # groups of side features
    fitted: dict[Structure, Mixture] = field(
        default_factory=dict
    )  # fits without Γ, added on demand
    starts: dict[Structure, Mixture] = field(default_factory=dict)  # initial values from other fits
    has_intercept: bool = False  # whether the last column is constant

    @classmethod
    def of(
        cls,
        tasks: Tasks,
        seed: list[int],
        side: SideStructure | None = None,
        groups: Sequence[Group] = (),
        has_intercept: bool = False,
    ) -> StructureFitter:
        """Return a fitter for tasks; if ``side`` is given, fit the effects of side information
        first.
        """
        if side is None:
            return cls(tasks, seed, groups=groups, has_intercept=has_intercept)
        assert tasks.side is not None
        fit = fit_side(tasks, side, groups)
        rest = tasks.shifted(tasks.side @ fit.Gamma.T)
        starts: dict[Structure, Mixture] = {}
        if tasks.is_gaussian:
            starts[MixedModel(varying=side.varying)] = fit.rest
        return cls(rest, seed, fit, groups, starts=starts, has_intercept=has_intercept)

    @property
    def side(self) -> Array | None:
        """Γ (d, q)."""
        return None if self.side_fit is None else self.side_fit.Gamma

    def restricted(self, structure: Structure, reml: bool = True) -> tuple[Mixture, float | None]:
        """Return the REML (or maximum likelihood) fit and its log likelihood, or None if the
        likelihood is not available.

        The search of `reml` is used for `Moments` and one Gaussian whose covariance is not shrunk,
        if there are more tasks than random effects of a task, and more rows than columns.
        Otherwise, the result is that of `fit`.
        """
        model, tasks, d = self.fit(structure), self.tasks, self.tasks.n_features
        if (
            not isinstance(structure, MixedModel)
            or structure.pseudo_tasks
            or not isinstance(tasks, Moments)
        ):
            return model, None
        pattern = structure.pattern(d)
        if not (pattern.diagonal().sum() < len(tasks) and d < tasks.n_rows):
            return model, None
        terms: list[Term] = []
        if self.side_fit is not None:
            assert tasks.side is not None
            tasks, terms = tasks.shifted(-tasks.side @ self.side_fit.Gamma.T), self.side_fit.terms
        return maximise_restricted(tasks, model, pattern, terms, reml, basis=structure.basis(d))

    def fit(self, structure: Structure) -> Mixture:
        """Return the fitted model."""
        model = self.without_side(structure)
        return model if isinstance(structure, Independent) else replace(model, side=self.side)

    def without_side(self, structure: Structure) -> Mixture:
        """Return the fitted model without Γ; each structure is fitted once."""
        if structure not in self.fitted:
            self.fitted[structure] = structure.fit(self)
        return self.fitted[structure]

    def start_of(self, structure: Structure) -> Mixture | None:
        """Return the initial values for a structure, or None if there are none."""
        known = self.starts.get(structure)
        return None if known is None else replace(known, side=None)

    def with_gates(self, start: Mixture, max_iter: int) -> Mixture:
        """Estimate mixing weights that depend on the relevant side information; return ``start`` if
        there is none.
        """
        assert self.tasks.side is not None
        shares = self.tasks.posterior(start).shares
        penalties = gate_penalties(self.tasks.side, self.groups, shares)
        if not np.isfinite(penalties).any():
            return start
        return em(self.tasks, start, gate_penalty=penalties, max_iter=max_iter).mixture

    @property
    def steps(self) -> int:
        """Maximum number of EM steps of a mixed model."""
        return 100 if self.tasks.n_features < len(self.tasks) else WIDE_STEPS


def refine(source: Source, structure: Structure, model: Mixture) -> Mixture:
    """Refit a structure to all tasks of ``source`` by EM, starting from ``model``, its fit to a
    sample of the tasks.

    Γ, gates and the shrinkage target are kept from the sample.
    """
    # EM does not change the mean of a coefficient without variance.
    is_fixed = model.n_components == 1 and not model.covariances[0].diagonal().all()
    if is_fixed:
        model = mean_from_sums(source, model)
    model = em(
        source,
        model,
        max_iter=20,
        # Acceleration combines covariances, and a combination of low-rank covariances has a higher
        # rank.
        accelerate=not isinstance(structure, LowRank),
        restrict=structure.restrict,
        shrinkage=structure.shrinkage(model),
    ).mixture
    return mean_from_sums(source, model) if is_fixed else model
