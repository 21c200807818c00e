"""Selection of the structure of the prior on held-out tasks, by the rule of `rule`.

The log predictive density is that of all rows of a held-out task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._utils.progress import Stages
from ..gaussian.em import fit_mixture
from ..gaussian.low_rank import LowRankFitter, RotatedTasks
from ..gaussian.mixture import Mixture
from ..gaussian.normality import non_normality
from ..gaussian.rows import Tasks
from ..gaussian.side import SideStructure, select_side
from ..gaussian.structures import (
    TRUNCATIONS,
    LowRank,
    MixedModel,
    MixtureModel,
    Structure,
    StructureFitter,
    covariance_structures,
    ridge_structures,
)
from ..tasks.episodes import Episodes
from ..tasks.rows import Array
from .data import LARGEST_WORK, Draw, Fold, TrainingData
from .low_rank_search import COMPONENTS, PATIENCE, LowRankSearch
from .rule import RICHER, Score, is_as_good, is_better, significant
from .without_rows import difference

#: Maximum number of factors of a low-rank covariance, and minimum number of training tasks per
#: factor.
MOST_FACTORS, TASKS_PER_FACTOR = 16, 4
#: Minimum number of held-out tasks for a warning about baselines.
LEAST_COMPARED = 10


@dataclass(frozen=True)
class Candidate(Score):
    """A structure, fitted to the training tasks of each fold, and its results on the held-out
    tasks, fold after fold.
    """

    structure: Any
    fits: list[Any]
    scale: float = 1.0  # multiple of FFᵀ for many columns

    @property
    def result(self) -> dict[str, Any]:
        """The structure, the error and the density."""
        return {**self.structure.describe(), "error": self.error, "density": self.mean_density}


@dataclass(frozen=True)
class Selection:
    """The selected candidate, and all candidates."""

    best: Candidate
    side: SideStructure | None  # structure of the effects of side information
    candidates: list[Candidate]
    #: Errors of the held-out tasks when the mean of their support rows is predicted.
    task_mean_errors: Array
    ridge: Candidate | None = None  # ridge regression of each task on its own, a baseline


class FoldState(NamedTuple):
    """The fitter of a fold, and its held-out tasks: all rows, and episodes with and without support
    rows.
    """

    fold: Fold
    fitter: StructureFitter
    held_out: Tasks
    episodes: tuple[Episodes, Episodes]
    support: tuple[Tasks, Tasks]  # statistics of the support rows of the episodes


def select(data: TrainingData, stage: Stages) -> Selection:
    """Select a structure, and effects of side information."""
    stage.begin("side information")
    side = None if len(data) == 1 else _propose_side(data)
    search = _Search(data, side, stage)
    stage.begin("structures")
    if len(data) == 1:
        # A single task carries no information about other tasks.
        tried = search.scored(ridge_structures())
        best = max(tried, key=lambda candidate: candidate.mean_density)
        return Selection(best, None, tried, search.task_mean_errors())
    tried, single = search.covariances()
    if side is not None:
        plain = _Search(data, None, stage)
        if not is_as_good(single, *plain.scored([single.structure])):
            side, search = None, plain
            tried, single = search.covariances()
    best = single
    is_free = data.settings.varying is None and data.settings.covariance is None
    if data.may_have_low_rank and is_free:
        # The first has one component; its number of factors and its scales were set by the evidence
        # on held-out tasks.
        first, *others = search.low_rank()
        best = first if is_as_good(first, best) else best
        best = _richest(others, best, single)
        tried += [first, *others]
    if not data.is_wide and is_free and search.may_be_mixture(single):
        stage.begin("number of components")
        mixtures = search.mixtures(best, single)
        best = _richest(sorted(mixtures, key=lambda c: -c.mean_density)[:1], best, single)
        tried += mixtures
    ridges = search.scored(ridge_structures()) if data.response.is_gaussian else []
    ridge = min(ridges, key=lambda candidate: candidate.error, default=None)
    return Selection(best, side, tried, search.task_mean_errors(), ridge)


def _richest(richer: Sequence[Candidate], best: Candidate, single: Candidate) -> Candidate:
    """Return ``best``, replaced in turn by each of ``richer`` that is better."""
    for candidate in richer:
        best = candidate if is_better(candidate, best, single) else best
    return best


def score_parts(data: TrainingData, subtract: Callable[[TrainingData], TrainingData]) -> Score:
    """Score a mixed model with uncorrelated random effects; ``subtract`` fits other parts to the
    training tasks of a fold.

    ``subtract`` returns the data of all tasks without these parts.
    """
    structure = MixedModel("diagonal", varying=data.settings.varying, centre=data.centre)
    scored = []
    for fold in data.folds:
        rest = subtract(replace(data, tasks=data.tasks[fold.train], n_validation=0))
        state = _fold_state(rest, fold, None)
        fit = state.fitter.fit(structure)
        moved = None
        if rest.response.is_gaussian:
            moved = difference(rest, rest.tasks[fold.train], fit)
        scored.append(_score(rest, state, structure, fit, moved))
    return _join(scored)


class _Search:
    """Fits candidates to the training tasks of each fold, and scores them on the held-out tasks."""

    def __init__(self, data: TrainingData, side: SideStructure | None, stage: Stages) -> None:
        self.data, self.stage = data, stage
        self.folds = list(data.in_parallel(_fold_state, ((data, f, side) for f in data.folds)))

    def task_mean_errors(self) -> Array:
        """Return the errors of the held-out tasks when the mean of their support rows is
        predicted.
        """
        errors = self.data.task_mean_errors
        return np.concatenate([errors(f.episodes[0], len(f.held_out)) for f in self.folds])

    def scored(self, structures: Sequence[Structure]) -> list[Candidate]:
        """Fit and score structures in turn; the plain mixed models are first, because others start
        from them.
        """
        plain = {each.plain for each in structures if each.plain is not None}

        def score(fold: FoldState) -> list[Candidate]:
            for structure in plain:
                fold.fitter.fit(structure)
            return [_score(self.data, fold, each, fold.fitter.fit(each)) for each in structures]

        of_folds = []
        for of_fold in self.data.in_parallel(score, ((fold,) for fold in self.folds)):
            of_folds.append(of_fold)
            self.stage(1)
        return [_join(of_structure) for of_structure in zip(*of_folds, strict=True)]

    def covariances(self) -> tuple[list[Candidate], Candidate]:
        """Fit one Gaussian with each covariance; return all candidates and the selected one."""
        settings, d = self.data.settings, self.data.statistics.n_features
        structures = covariance_structures(
            d, settings.fit_intercept, settings.varying, full=not self.data.is_wide
        )
        if settings.covariance is not None:
            centre = self.data.centre
            structures = [MixedModel(settings.covariance, varying=settings.varying, centre=centre)]
        tried = self.scored(structures)
        # Pooled regression of numeric targets is a baseline: a random intercept with variance zero
        # is the same model.  With a log link, means grow exponentially with the variance of random
        # effects, so a model with a high density can have huge errors.
        simplest, *others = [each for each in tried if not each.structure.is_pooled]
        usable = [each for each in others if each.total_error <= simplest.total_error]
        return tried, max([simplest, *usable], key=lambda candidate: candidate.mean_density)

    def low_rank(self) -> list[Candidate]:
        """Return the best candidate with a low-rank covariance, and the best mixture if several
        components are selected.

        If the maximum number of factors is selected, more may be needed.  A full covariance is then
        also returned if none was tried before, there are fewer coefficients than tasks, and EM is
        not too slow.
        """
        data, folds = self.data, self.folds
        has_intercept, d = data.settings.fit_intercept, data.statistics.n_features
        train, held_out, seed = [], [], data.seed(Draw.COMPONENT_STARTS)
        for fold in folds:
            rest, side = fold.held_out, fold.fitter.side
            if side is not None:
                assert rest.side is not None
                rest = rest.shifted(rest.side @ side.T)
            train.append(LowRankFitter(RotatedTasks.of(fold.fitter.tasks, has_intercept), seed))
            held_out.append(RotatedTasks.of(rest, has_intercept))
        T = len(train[0].tasks)
        most = min(MOST_FACTORS, T // TASKS_PER_FACTOR, d // 2)
        out = []
        for selected in LowRankSearch(train, held_out)(most):
            n_factors, n_components, rank = selected.numbers
            structure = LowRank(n_factors, rank, selected.calibration, n_components=n_components)
            pairs = zip(folds, selected.models, strict=True)
            fits = (
                (fold, replace(model.mixture(), side=fold.fitter.side)) for fold, model in pairs
            )
            out.append(_join([_score(data, fold, structure, fit) for fold, fit in fits]))
        is_largest = out[0].structure.n_factors == most
        if data.is_wide and is_largest and d < T and T * d**3 <= LARGEST_WORK:
            out += self.scored([MixedModel()])
        return out

    def may_be_mixture(self, single: Candidate) -> bool:
        """Return whether the coefficients of the held-out tasks are not Gaussian, by two standard
        errors.
        """
        pairs = zip(self.folds, single.fits, strict=True)
        return non_normality((fold.held_out, fit) for fold, fit in pairs) > RICHER

    def mixtures(self, best: Candidate, single: Candidate) -> list[Candidate]:
        """Return mixtures with the selected number of components; none for one component.

        They differ in their truncation, and in whether side information affects the mixing weights.
        """
        n_components = self.count_components(best, single)
        if n_components == 1:
            return []
        gates = (False,) if self.data.side is None else (False, True)
        return self.scored(
            [
                MixtureModel(n_components=n_components, has_gates=has_gates, truncation=threshold)
                for has_gates in gates
                for threshold in TRUNCATIONS
            ]
        )

    def count_components(self, best: Candidate, single: Candidate) -> int:
        """Select the number of components with short fits; each number is compared with the last
        that was accepted.
        """
        data, plain = self.data, MixedModel()
        least_train = min(len(fold.fitter.tasks) for fold in self.folds)

        def attempt(K: int, fold: FoldState) -> Candidate:
            fitter, seed = fold.fitter, data.seed(Draw.COMPONENT_STARTS, K)
            start = replace(fitter.fit(plain), side=None)
            mixture = fit_mixture(
                fitter.tasks, start, K, seed=seed, n_starts=2, short_iter=4, max_iter=10
            )
            if data.side is not None:
                mixture = fitter.with_gates(mixture, max_iter=5)
            return _score(data, fold, plain, replace(mixture, side=fitter.side))

        last: Score = best
        n_components, n_failures = 1, 0
        for K in COMPONENTS:
            # The variance of a component needs two tasks.
            if n_failures == PATIENCE or least_train < 2 * K:
                break
            result = _join(list(data.in_parallel(attempt, ((K, fold) for fold in self.folds))))
            n_failures += 1
            if is_better(result, last, single):
                n_components, n_failures, last = K, 0, result
        return n_components


def _join(of_folds: Sequence[Candidate]) -> Candidate:
    """Join the results of one structure on the folds, in their order."""
    return replace(
        of_folds[0],
        density=np.concatenate([each.density for each in of_folds]),
        errors=np.concatenate([each.errors for each in of_folds]),
        prior_errors=np.concatenate([each.prior_errors for each in of_folds]),
        fits=[fit for each in of_folds for fit in each.fits],
    )


def _propose_side(data: TrainingData) -> SideStructure | None:
    """Propose effects of side information by their evidence in a plain mixed model of all tasks.

    Tasks that are held out in a fold also contribute to the proposal, but not to the fit in this
    fold.
    """
    if data.side is None:
        return None
    has_intercept, varying = data.settings.fit_intercept, data.settings.varying
    return select_side(data.statistics, data.groups, has_intercept=has_intercept, varying=varying)


def _fold_state(data: TrainingData, fold: Fold, side: SideStructure | None) -> FoldState:
    train = data.statistics.take(fold.train).roughly()
    seed = data.seed(Draw.STRUCTURE_STARTS, fold.number)
    fitter = StructureFitter.of(train, seed, side, data.groups, data.settings.fit_intercept)
    episodes = data.episodes(fold), data.without_rows(fold)
    given, empty = (data.statistics_of(each.support) for each in episodes)
    held_out = data.statistics.take(fold.held_out).roughly()
    return FoldState(fold, fitter, held_out, episodes, (given, empty))


def _score(
    data: TrainingData,
    fold: FoldState,
    structure: Structure,
    fit: Mixture,
    moved: Array | None = None,
) -> Candidate:
    prior, pairs = data.prior(fit, moved), zip(fold.support, fold.episodes, strict=True)
    errors, prior_errors = (
        data.errors(episodes, data.predict(support, prior, episodes.query), len(fold.held_out))
        for support, episodes in pairs
    )
    # Densities are those of targets in the user's units, to compare models after subtracting
    # different parts.
    unit = np.log(data.scaling.target) * data.tasks.sizes[fold.fold.held_out]
    density = fold.held_out.posterior(fit).log_evidence - unit
    return Candidate(density, errors, prior_errors, structure, [fit])


def better_baseline(errors: Array, baselines: Mapping[str, Array]) -> str | None:
    """Return the best baseline with significantly lower errors on the same tasks; None without one,
    or with few tasks.
    """
    if np.isfinite(errors).sum() < LEAST_COMPARED:
        return None
    # Errors may be 1 % higher: estimating a variance that is almost zero raises errors slightly,
    # perhaps equally in all tasks.  If the targets are equal within each task, or linear in the
    # features, differences are rounding errors.
    everything = np.concatenate([errors, *baselines.values()])
    rounding = 1e-6 * everything[np.isfinite(everything)].max()
    better = [
        name for name, values in baselines.items() if significant(errors - 1.01 * values - rounding)
    ]
    return min(better, key=lambda name: float(np.nanmean(baselines[name])), default=None)
