"""Structures of the prior of the coefficients: what competes on held-out tasks, and is then fitted
to all tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..gaussian.em import (
    MStep,
    Source,
    em,
    fit_mixed_model,
    keep_diagonal,
    mean_from_sums,
    most_likely_mean,
    noise_floor,
    settle,
)
from ..gaussian.mixture import Mixture, Shrinkage
from ..gaussian.moments import Moments, used_columns
from ..gaussian.reml import maximise_restricted
from ..gaussian.rows import Tasks
from ..gaussian.side import SideStructure
from ..gaussian.sites import ResponseRows
from ..priors.base import Prior
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .data import Fold, Training, TrainingData

#: Candidate weights of the shrinkage of W to its diagonal, in pseudo-tasks.
PSEUDO_TASKS = (10.0, 100.0)
#: Maximum number of EM steps with at least as many columns as tasks: early stopping keeps W close
#: to a multiple of I.
WIDE_STEPS = 3
#: A fit is singular if W has an eigenvalue below this fraction of σ²; lme4's limit is 1e-4 for
#: standard deviations.
SINGULAR = 1e-8


@dataclass(frozen=True)
class Structure:
    """The structure of the prior of the coefficients."""

    kind: ClassVar[str]
    #: Whether the prior can have this structure; others only help to decide.
    is_final: ClassVar[bool] = True
    #: Whether EM for all tasks may be accelerated, which combines covariances.
    is_accelerated: ClassVar[bool] = True
    n_components: int = field(default=1, kw_only=True)
    #: The structure whose fit to the same tasks has the initial values.
    start: Structure | None = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def after(self) -> tuple[Structure, ...]:
        """The structures whose fits to the same tasks the fit of this one needs."""
        return ()

    def fit(self, training: Training, *after: Any, start: Any = None) -> Any:
        """Return the model fitted to the training tasks, given the fits of `after`, and initial
        values.
        """
        after = tuple(replace(model, side=None) for model in after)
        start = None if start is None else replace(start, side=None)
        return replace(self._fit(training, *after, start=start), side=training.side)

    def _fit(self, training: Training, *after: Mixture, start: Mixture | None) -> Mixture:
        """Return the fit without the effects Γ of side information, which were removed."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """The multiple of a low-rank covariance that was selected on held-out tasks."""
        return 1.0

    @property
    def is_pooled(self) -> bool:
        """Whether all tasks have the same coefficients."""
        return False

    def log_evidence(self, held_out: Any, model: Any) -> Array:
        return np.asarray(held_out.posterior(model).log_evidence)

    def prior(self, data: TrainingData, model: Any, fold: Fold | None = None) -> Prior:
        """Return the prior with a fitted model; ``fold`` has the tasks if these are not all."""
        return data.prior(model)

    def effects(self, training: Training, model: Any) -> SideStructure | None:
        """Return the effects of side information on the prior mean."""
        if training.side_fit is None or model.side is None:
            return None
        return SideStructure(tuple(term.effect for term in training.side_fit.terms))

    def restricted(
        self, training: Training, model: Any, reml: bool = True
    ) -> tuple[Any, float | None]:
        """Return the REML (or maximum likelihood) fit and its log likelihood; ``model`` and None if
        the likelihood is not available.
        """
        return model, None

    def refine(self, source: Source, model: Mixture) -> Mixture:
        """Refit the structure to all tasks of ``source`` by EM, starting from its fit to a sample.

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
            accelerate=self.is_accelerated,
            m_step=MStep(shrinkage=self.shrinkage(model), restrict=self.restrict),
        ).mixture
        return mean_from_sums(source, model) if is_fixed else model

    def restrict(self, covariances: Array) -> Array:
        """Return the covariances (K, d, d) of an M-step, restricted to this structure."""
        return covariances

    def shrinkage(self, model: Mixture) -> Shrinkage | None:
        """Return the prior of the covariances in an M-step that starts from ``model``."""
        return None

    def is_singular(self, model: Any, tasks: Any) -> bool:
        """Return whether a variance of the columns of tasks is zero, or a correlation ±1."""
        return False

    def describe(self) -> dict[str, Any]:
        """Return the kind, and the attributes that are not None, zero or "full"."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.repr}
        return {"kind": self.kind} | {
            k: v for k, v in values.items() if v not in (None, 0.0, "full")
        }

    def names(self, d: int, has_intercept: bool) -> tuple[str, str]:
        """Return the kind, of which tables have the best structure, and the name in tables."""
        return self.kind, self.kind


@dataclass(frozen=True)
class Independent(Structure):
    """Ridge regression of each task alone: W = ``ridge`` σ² I and b = 0."""

    kind = "independent"
    ridge: float

    def fit(self, training: Training, *after: Any, start: Any = None) -> Mixture:
        """Return the model with the most likely σ² of y ~ N(0, σ² (I + ridge XXᵀ)), without Γ.

        For classes and counts, the model has the dispersion of a pooled fit.
        """
        tasks, d = training.tasks, training.tasks.n_features
        if training.side is not None:
            tasks = tasks.shifted(-tasks.side @ training.side.T)
        unit = Mixture(np.ones(1), np.zeros((1, d)), self.ridge * np.eye(d)[None], 1.0)
        if isinstance(tasks, ResponseRows):
            return replace(unit, noise=tasks.pooled[1])
        sums = tasks.sums(unit).sums
        quadratic = sums.residual + float(np.trace(sums.second[0])) / self.ridge - d * len(tasks)
        noise = max(quadratic / tasks.n_rows, noise_floor(tasks.totals()))
        return replace(unit, covariances=noise * unit.covariances, noise=noise)


@dataclass(frozen=True)
class MixedModel(Structure):
    """One Gaussian."""

    kind = "mixed model"

    #: "none" (pooled regression), "intercept", "diagonal", or "full", with correlations.
    covariance: str = "full"
    pseudo_tasks: float = 0.0  # weight of the shrinkage of W to its diagonal
    varying: tuple[int, ...] | None = None  # coefficients that differ between tasks; None: all
    #: Means of the columns, in units of their scales, if W has no correlations when columns are not
    #: centred.
    centre: tuple[float, ...] = field(default=(), repr=False)

    @property
    def after(self) -> tuple[Structure, ...]:
        """The plain model, and that with the next weaker shrinkage."""
        if not self.pseudo_tasks:
            return ()
        weaker = max(nu for nu in (0.0, *PSEUDO_TASKS) if nu < self.pseudo_tasks)
        return replace(self, pseudo_tasks=0.0), replace(self, pseudo_tasks=weaker)

    @property
    def is_pooled(self) -> bool:
        return self.covariance == "none"

    def restrict(self, covariances: Array) -> Array:
        if self.covariance == "full":
            return covariances
        return keep_diagonal(covariances, self.basis(covariances.shape[1]))

    def basis(self, d: int) -> Array:
        """Return the map (d, d) from the coefficients of columns that are not centred to those of
        centred columns.
        """
        basis = np.eye(d)
        basis[-1, : len(self.centre)] += self.centre
        return basis

    def pattern(self, d: int) -> NDArray[np.bool_]:
        """Return a mask of the entries of W (d, d) that may be non-zero, for the coefficients
        before `basis`.
        """
        inside = np.ones(d, bool) if self.varying is None else np.isin(np.arange(d), self.varying)
        if self.covariance == "intercept":
            inside = np.arange(d) == d - 1
        every = np.outer(inside, inside) & (self.covariance != "none")
        return every if self.covariance == "full" else every & np.eye(d, dtype=bool)

    def is_singular(self, model: Mixture, tasks: Tasks) -> bool:
        used = used_columns(tasks.row_moment)
        inside = np.flatnonzero(self.pattern(len(used)).diagonal() & used)
        inverse = np.linalg.inv(self.basis(len(used)))[inside]
        variances = np.linalg.eigvalsh(inverse @ model.covariances[0] @ inverse.T)
        return bool((variances < SINGULAR * model.noise).any())

    def shrinkage(self, model: Mixture) -> Shrinkage | None:
        if not self.pseudo_tasks:
            return None
        return Shrinkage(self.pseudo_tasks, np.diag(np.diagonal(model.covariances[0])))

    def describe(self) -> dict[str, Any]:
        return {
            "structure" if name == "covariance" else name: value
            for name, value in super().describe().items()
        }

    def names(self, d: int, has_intercept: bool) -> tuple[str, str]:
        if self.is_pooled:
            return ("pooled regression",) * 2
        if self.covariance == "intercept" or (has_intercept and self.varying == (d - 1,)):
            return ("random intercept",) * 2
        if len(self.varying or range(d)) == 1:
            return ("one random effect",) * 2
        kind = {"diagonal": "uncorrelated", "full": "correlated"}[self.covariance]
        return kind, kind + ", shrunk" * (self.pseudo_tasks > 0.0)

    def _fit(self, training: Training, *after: Mixture, start: Mixture | None) -> Mixture:
        tasks, d = training.tasks, training.tasks.n_features
        # With at least as many columns as tasks, W stays close to its start.
        steps = 100 if d < len(tasks) else WIDE_STEPS
        if self.pseudo_tasks:
            plain, weaker = after
            m_step = MStep(shrinkage=self.shrinkage(plain))
            model = em(tasks, weaker, max_iter=steps, m_step=m_step).mixture
        else:
            model = self._likely(training, start, steps)
        varies = self.pattern(d).diagonal()
        if varies.all() or self.is_pooled:
            return model
        # Estimate the means of coefficients without variance, and set their covariances exactly to
        # zero.
        if self.pseudo_tasks:
            # The start has the means of the plain model, so one update is enough.
            model = most_likely_mean(tasks, model)
        elif tasks.is_gaussian:
            m_step = MStep(restrict=self.restrict)
            model = settle(tasks, model, m_step=m_step, max_iter=steps, tol=1e-9)
        return replace(model, covariances=model.covariances * np.outer(varies, varies))

    def _likely(self, training: Training, start: Mixture | None, steps: int) -> Mixture:
        tasks, basis = training.tasks, self.basis(training.tasks.n_features)
        if start is None and self.covariance == "full" and tasks.is_gaussian:
            start = None if training.side_fit is None else training.side_fit.rest
        options: dict[str, Any] = {"covariance": self.covariance, "varying": self.varying}
        options |= {"max_iter": steps, "tol": 1e-6, "basis": basis}
        model = fit_mixed_model(tasks, start=start, **options)
        if self.centre and isinstance(tasks, Moments):
            # EM is slow if columns are far from zero.
            pattern = self.pattern(len(basis))
            model, _ = maximise_restricted(tasks, model, pattern, is_restricted=False, basis=basis)
        return model

    def restricted(
        self, training: Training, model: Mixture, reml: bool = True
    ) -> tuple[Mixture, float | None]:
        """Use the search of `reml` for `Moments` and a covariance that is not shrunk, if there are
        more tasks than random effects of a task, and more rows than columns.
        """
        tasks, d, terms = training.tasks, training.tasks.n_features, []
        pattern = self.pattern(d)
        if self.pseudo_tasks or not isinstance(tasks, Moments):
            return model, None
        if not (pattern.diagonal().sum() < len(tasks) and d < tasks.n_rows):
            return model, None
        if training.side_fit is not None:
            assert tasks.side is not None
            terms = training.side_fit.terms
            tasks = tasks.shifted(-tasks.side @ training.side_fit.Gamma.T)
        return maximise_restricted(tasks, model, pattern, terms, reml, basis=self.basis(d))


@dataclass(frozen=True)
class Working(MixedModel):
    """The mixed model by which proposals for the rows are judged before the covariance is selected.

    The mean of tasks without rows is that of `difference`.
    """

    is_final = False

    @classmethod
    def of(cls, data: TrainingData) -> Working:
        """Return a model with the user's covariance, or with uncorrelated effects."""
        settings = data.settings
        return cls(settings.covariance or "diagonal", varying=settings.varying, centre=data.centre)

    def prior(self, data: TrainingData, model: Mixture, fold: Fold | None = None) -> Prior:
        if fold is None or not data.response.is_gaussian:
            return data.prior(model)
        moved = difference(data, data.tasks[fold.split.train], model)
        return replace(data.prior(model), without_rows=moved)


def difference(data: TrainingData, tasks: TaskSet, model: Mixture) -> Array:
    """Return δ: least squares of targets minus predictions without rows, with the same weight for
    each task.
    """
    X, residuals = rows_and_residuals(data, tasks, model)
    weight = np.ones(len(X)) if tasks.frequency_weight is None else tasks.frequency_weight
    root = np.sqrt(weight / np.repeat(np.maximum(tasks.n_observed, 1.0), tasks.sizes))
    return np.asarray(np.linalg.lstsq(root[:, None] * X, root * residuals)[0])


def rows_and_residuals(data: TrainingData, tasks: TaskSet, model: Mixture) -> tuple[Array, Array]:
    """Return scaled rows, and scaled targets minus predictions without rows."""
    prediction = data.predict(tasks.without_rows(), data.prior(model), tasks)
    return data.scaling.dense(tasks.X), (tasks.y - prediction) / data.scaling.target
