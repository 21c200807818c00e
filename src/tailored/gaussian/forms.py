"""The forms a prior may take, from "every task alone" to a mixture, and how each is fitted to tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .common_weights import most_likely_mean, settle
from .em import Shrinkage, Source, em, factor_target, fit_mixed_model, maximise, noise_floor, truncate
from .mixture import Mixture
from .moments import Sums, Totals
from .rows import Tasks
from .side import SideForm, fit_along_path
from .starts import COMPONENT_SHRINKAGE, continue_mixture, fit_mixture

Array = NDArray[np.float64]

#: τ = ridge · I for tasks that share nothing; 1 first, so that a tie leaves the plainest one.
RIDGES = (1.0, *(float(ridge) for ridge in np.logspace(-3, 4, 15) if ridge != 1.0))
#: Factors of the covariance that full correlations are shrunk to, and the tasks that the target is worth.
FACTORS = (0, 1, 2, 4)
PSEUDO_TASKS = (10.0, 30.0, 100.0, 300.0)
#: With few tasks, correlations of the full form are worth one task less: the most likely ones lie too near to ±1.
FEW_PSEUDO_TASKS = 1.0
#: Tasks up to which EM is given more steps.
FEW = 50
#: Steps of EM at most where columns outnumber tasks: to stop early is what keeps W near a multiple of I.
WIDE_STEPS = 3
#: Penalties on gates, and the steps of EM that they are learned in.
GATE_PENALTIES, GATE_STEPS = (1.0, 10.0), 20
#: Structures whose W has no correlations.
DIAGONAL = ("diagonal", "intercept", "none")
#: Steps of EM over all tasks, where a form was chosen and fitted on a sample of them.
REFINING_STEPS = 20
#: Directions of W below this fraction of its largest are dropped and the rest is fitted again.
TRUNCATIONS = (0.0, 0.01, 0.05)


@dataclass(frozen=True)
class Form:
    """One way to learn the prior of a task's weights.

    Attributes
    ----------
    kind : {"independent", "mixed model", "mixture"}
        Independent: W = ``ridge`` σ² I, b = 0.  Mixed model: one Gaussian.  Mixture: several.
    n_components : int
    structure : {"full", "diagonal", "intercept", "none"}
        Of W in a mixed model.
    gate_penalty : float
        Of gates, the mixture's proportions as a function of the description; 0 is without them.
    learn_mean : bool
        Whether b is learned or zero.
    ridge : float or None
    n_factors, pseudo_tasks
        Shrink W to ``n_factors`` common factors plus a diagonal, a target worth ``pseudo_tasks`` tasks.
    truncation : float
        Least eigenvalue of W kept, relative to its largest.
    varying : tuple of int or None
        The weights that tasks may differ in, where the user has said so; the others are the same in all tasks.
    """

    kind: str
    n_components: int = 1
    structure: str = "full"
    gate_penalty: float = 0.0
    learn_mean: bool = False
    ridge: float | None = None
    n_factors: int | None = None
    pseudo_tasks: float = 0.0
    truncation: float = 0.0
    varying: tuple[int, ...] | None = None

    @property
    def plain(self) -> Form | None:
        """The mixed model that the fit of this form starts from; None where it starts from nothing."""
        if self.kind == "independent" or self.structure != "full":
            return None
        return Form("mixed model", learn_mean=self.learn_mean, varying=self.varying)

    def n_parameters(self, d: int) -> int:
        """Numbers that are learned, beside the noise: the mean, variances and covariances, or the ridge."""
        if self.kind == "independent":
            return 1
        m = d if self.varying is None else len(self.varying)
        variances = {"none": 0, "intercept": 1, "diagonal": m, "full": m * (m + 1) // 2}[self.structure]
        return variances + d * self.learn_mean

    def describe(self) -> dict[str, Any]:
        """The fields that say something about this form."""
        plain = (None, 0.0, "full")
        said = {name: value for name, value in asdict(self).items() if value not in plain}
        if self.pseudo_tasks:
            said["n_factors"] = self.n_factors
        return said


def structures(has_intercept: bool) -> list[list[Form]]:
    """The mixed models that one would try first: no variation, the intercept, uncorrelated, full.

    And before them the intercept where no column says anything: tasks have a level of their own, and that is all.
    """
    names = ("none", "intercept", "diagonal") if has_intercept else ("none", "diagonal")
    listed = [[Form("mixed model", learn_mean=True, structure=name)] for name in names]
    if has_intercept:
        listed.insert(0, [Form("mixed model", structure="intercept")])
    return [*listed, [Form("mixed model", learn_mean=True, n_factors=0, pseudo_tasks=FEW_PSEUDO_TASKS)]]


def chains(
    n_components: int, learn_mean: bool, *, has_intercept: bool = False, has_side: bool = False
) -> list[list[Form]]:
    """All forms, simplest first, in chains whose members start from the one before."""
    single = Form("mixed model", learn_mean=learn_mean)
    listed = [
        [Form("independent", ridge=ridge) for ridge in RIDGES],
        *structures(has_intercept)[:-1],
        [replace(single, truncation=threshold) for threshold in TRUNCATIONS],
    ]
    for n_factors in FACTORS:
        listed.append([replace(single, n_factors=n_factors, pseudo_tasks=nu) for nu in PSEUDO_TASKS])
    if n_components > 1:
        mixture = Form("mixture", n_components, learn_mean=learn_mean)
        gates = (0.0, *GATE_PENALTIES) if has_side else (0.0,)
        listed.append(
            [
                replace(mixture, truncation=threshold, gate_penalty=penalty)
                for penalty in gates
                for threshold in TRUNCATIONS
            ]
        )
    return listed


def chains_of_varying(varying: tuple[int, ...], *, few: bool) -> list[list[Form]]:
    """Mixed models whose tasks differ in these weights alone: uncorrelated, full, and in between.

    That they differ is the user's word; a mixture, or every task alone, would have them differ in all weights.
    """
    single = Form("mixed model", learn_mean=True, varying=varying)
    if len(varying) < 2:
        return [[single]]
    listed = [[replace(single, structure="diagonal")]]
    if few:
        return [*listed, [replace(single, n_factors=0, pseudo_tasks=FEW_PSEUDO_TASKS)]]
    listed.append([single])
    for n_factors in (rank for rank in FACTORS if rank < len(varying)):
        listed.append([replace(single, n_factors=n_factors, pseudo_tasks=nu) for nu in PSEUDO_TASKS])
    return listed


@dataclass
class FormFitter:
    """Fits forms to the same tasks, each from what was fitted before.

    Parameters
    ----------
    statistics : Tasks
        In units in which columns and targets have mean square one, less what ``side`` predicts.
    seed : list of int
        Draws the starts of mixtures.
    side : array (d, q), optional
        Γ, which all forms but "independent" have in common.
    fitted : dict
        Results by form, without Γ; filled as they are asked for.
    starts : dict
        Fits of forms to some of the tasks, to start from.
    """

    statistics: Tasks
    seed: list[int]
    side: Array | None = None
    fitted: dict[Form, Mixture] = field(default_factory=dict)
    starts: dict[Form, Mixture] = field(default_factory=dict)

    @classmethod
    def of(
        cls, statistics: Tasks, seed: list[int], side: SideForm | None = None, n_linear: int = 0
    ) -> FormFitter:
        """For tasks as they are; a form ``side`` makes the prior mean linear in features of their description."""
        if side is None:
            return cls(statistics, seed)
        assert statistics.side is not None
        Gamma = fit_along_path(statistics, side, n_linear).Gamma
        return cls(statistics.shifted(statistics.side @ Gamma.T), seed, Gamma)

    def fit(self, form: Form) -> Mixture:
        """The form's model of the tasks as they are."""
        found, T = self.most_likely(form), len(self.statistics)
        if form.kind == "mixed model" and form.learn_mean and T > 1:
            # The mean was learned from the same tasks: what they differ by is divided by one task less.
            return found.scaled(T / (T - 1.0))
        # Where the component is uncertain, the mean of the mixture is better than that of its moments.
        return replace(found, averaged=form.kind == "mixture")

    def most_likely(self, form: Form) -> Mixture:
        """The same without what makes up for learning from few tasks."""
        return self._bare(form) if form.kind == "independent" else replace(self._bare(form), side=self.side)

    def _bare(self, form: Form) -> Mixture:
        if form not in self.fitted:
            found = self._fit(form)
            self.fitted[form] = found if form.varying is None else self._with_common_weights(form, found)
        return self.fitted[form]

    def _with_common_weights(self, form: Form, found: Mixture) -> Mixture:
        """The means that EM does not move, and zeros that are not rounded."""
        if form.pseudo_tasks:
            found = most_likely_mean(self.statistics, found)  # next to those of the plain model
        else:
            options: dict[str, Any] = {"max_iter": self.steps(few=100, many=40), "tol": 1e-9}
            found = settle(self.statistics, found, diagonal=form.structure in DIAGONAL, **options)
        inside = np.isin(np.arange(self.statistics.n_features), form.varying or ())
        return replace(found, covariances=found.covariances * np.outer(inside, inside))

    def _fit(self, form: Form) -> Mixture:
        if form.kind == "independent":
            return self._independent(form)
        if form.gate_penalty:
            start = self._bare(replace(form, gate_penalty=0.0))
            found = em(
                self.statistics,
                start,
                max_iter=GATE_STEPS,
                learn_mean=form.learn_mean,
                gate_penalty=form.gate_penalty,
            )
            return found.mixture
        if form.truncation:
            # EM keeps the range of W, so this refits the directions that are left.
            start = truncate(self._bare(replace(form, truncation=0.0)), form.truncation)
            return em(self.statistics, start, max_iter=15, learn_mean=form.learn_mean).mixture
        if form.pseudo_tasks:
            return self._shrunk(form)
        if form.kind == "mixture":
            assert form.plain is not None
            single = self._bare(form.plain)
            if form in self.starts:
                known = replace(self.starts[form], side=None, averaged=False)
                return continue_mixture(self.statistics, known, single, learn_mean=form.learn_mean)
            return fit_mixture(
                self.statistics,
                single,
                form.n_components,
                seed=self.seed,
                learn_mean=form.learn_mean,
            )
        options: dict[str, Any] = {"learn_mean": form.learn_mean, "structure": form.structure}
        options["varying"] = form.varying
        options.update(max_iter=self.steps(few=100, many=40), tol=1e-9 if self._few else 1e-6)
        if form in self.starts:
            options["start"] = replace(self.starts[form], side=None)
        return fit_mixed_model(self.statistics, **options)

    def _independent(self, form: Form) -> Mixture:
        statistics, d = self.statistics, self.statistics.n_features
        if self.side is not None:
            # It has no Γ: the tasks as they are.
            assert statistics.side is not None
            statistics = statistics.shifted(-statistics.side @ self.side.T)
        assert form.ridge is not None
        unit = Mixture(np.ones(1), np.zeros((1, d)), form.ridge * np.eye(d)[None], 1.0)
        # y ~ N(0, σ² (I + ridge XXᵀ)): the σ² that is most likely.
        sums = statistics.sums(unit).sums
        quadratic = sums.residual + float(np.trace(sums.second[0])) / form.ridge - d * len(statistics)
        noise = max(quadratic / statistics.n_rows, noise_floor(statistics.totals()))
        return replace(unit, covariances=noise * unit.covariances, noise=noise)

    def _shrunk(self, form: Form) -> Mixture:
        """Some steps from the next weaker shrinkage; the first starts from the plain mixed model."""
        assert form.plain is not None
        assert form.n_factors is not None
        plain = self._bare(form.plain)
        weaker = [nu for nu in PSEUDO_TASKS if nu < form.pseudo_tasks]
        start = self._bare(replace(form, pseudo_tasks=weaker[-1])) if weaker else plain
        shrinkage = Shrinkage(form.pseudo_tasks, factor_target(plain.covariances[0], form.n_factors))
        options: dict[str, Any] = {"learn_mean": form.learn_mean, "shrinkage": shrinkage}
        return em(self.statistics, start, max_iter=self.steps(few=60, many=8), **options).mixture

    @property
    def _few(self) -> bool:
        """Whether EM needs many steps, which are cheap: the likelihood of few tasks is flat."""
        return self.statistics.n_features < len(self.statistics) <= FEW

    def steps(self, *, few: int, many: int) -> int:
        """Steps of EM for tasks like these."""
        if self._few:
            return few
        # With more columns than tasks, the last steps fit W to what these tasks happen to be.
        return many if self.statistics.n_features < len(self.statistics) else min(many, WIDE_STEPS)


def refine(source: Source, form: Form, model: Mixture) -> Mixture:
    """The form's model of all tasks of ``source``, by EM from its fit to a sample of them.

    Γ and gates stay as they are, and so do all of "every task alone" and weights that all tasks have in common.  What W is
    shrunk to is the sample's.
    """
    if form.kind == "independent":
        return model
    options: dict[str, Any] = {"learn_mean": form.learn_mean, "diagonal": form.structure in DIAGONAL}
    options["shrinkage"] = _shrinkage(form, model)
    return em(source, model, max_iter=REFINING_STEPS, accelerate=True, **options).mixture


def m_step(form: Form, model: Mixture, totals: Totals, sums: Sums) -> Mixture:
    """A single M-step of that EM."""
    found = maximise(totals, model, sums, form.learn_mean, _shrinkage(form, model))
    if form.structure in DIAGONAL:
        found = replace(found, covariances=found.covariances * np.eye(found.means.shape[1]))
    return found


def _shrinkage(form: Form, model: Mixture) -> Shrinkage | None:
    if form.pseudo_tasks:
        assert form.n_factors is not None
        return Shrinkage(form.pseudo_tasks, factor_target(model.covariances[0], form.n_factors))
    if form.kind == "mixture":
        return Shrinkage(COMPONENT_SHRINKAGE, model.moments()[1])
    return None
