"""Selection of the structure of the prior on held-out tasks, by the rule of `rule`.

The log predictive density is that of all rows of a held-out task.  If the user sets the number of support rows, it is that of
the query rows of the task, given its support rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from .._utils.progress import Stages
from ..gaussian.em import fit_mixture
from ..gaussian.low_rank import LowRankFitter, RotatedTasks
from ..gaussian.mixture import Mixture
from ..gaussian.normality import non_normality
from ..gaussian.rows import Tasks
from ..gaussian.side import MOST_TASKS, SideStructure, select_side
from ..gaussian.structures import (
    GATE_PENALTY,
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
from .low_rank_search import LowRankSearch
from .rule import RICHER, Score, is_as_good, is_better, significant
from .without_rows import difference

#: Candidate numbers of components; the search stops after three in a row that are not accepted.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: Maximum number of factors of a low-rank covariance, and minimum number of training tasks per factor.
MOST_FACTORS, TASKS_PER_FACTOR = 16, 4
#: Minimum number of held-out tasks for a warning about baselines.
LEAST_COMPARED = 10
#: Advice to the user if a baseline is better.
ADVICE = (
    "check whether rows that belong together are in one task, whether features are labels or have another unit in some "
    "tasks, whether the model should have an intercept, and whether the features predict the target"
)


@dataclass(frozen=True)
class Candidate(Score):
    """A structure, fitted to the training tasks of each fold, and its results on the held-out tasks, fold after fold."""

    structure: Any
    fits: list[Any]
    scale: float = 1.0  # multiple of FFᵀ for many columns


@dataclass(frozen=True)
class Selection:
    """The selected candidate, and all candidates."""

    best: Candidate
    side: SideStructure | None  # structure of the effects of side information
    candidates: list[Candidate]
    task_mean_errors: (
        Array  # errors of the held-out tasks when the mean of their support rows is predicted
    )
    ridge: Candidate | None = None  # ridge regression of each task on its own, a baseline

    @property
    def results(self) -> list[dict[str, Any]]:
        """Errors and densities of all candidates."""
        return [
            {**each.structure.describe(), "error": each.error, "density": each.mean_density}
            for each in self.candidates
        ]

    @property
    def starts(self) -> dict[Structure, Mixture]:
        """Models of the first fold, used as starts of the fit to all tasks."""
        return {each.structure: each.fits[0] for each in self.candidates}


@dataclass(frozen=True)
class FoldState:
    """The fitter of a fold, and its held-out tasks in two ways: as episodes, and with all rows as query rows."""

    fold: Fold
    fitter: StructureFitter
    held_out: Tasks
    episodes: Episodes
    support: Tasks
    prior: Episodes
    no_rows: Tasks


def select(data: TrainingData, stage: Stages) -> Selection:
    """Select a structure, and effects of side information."""
    stage.begin("side information")
    side = _propose_side(data)
    states = cache(
        lambda side: list(data.in_parallel(_fold_state, ((data, f, side) for f in data.folds)))
    )
    stage.begin("structures")
    if len(data) == 1:
        # A single task carries no information about other tasks.
        tried = _score_chains(data, states(None), [ridge_structures()], stage)
        best = max(tried, key=lambda c: c.mean_density)
        return Selection(best, None, tried, _task_mean_errors(data, states(None)))
    folds = states(side)
    tried, single = _select_covariance(data, folds, stage)
    if side is not None:
        without = _score_chains(data, states(None), [[single.structure]], stage)[0]
        if not is_as_good(single, without):
            side, folds = None, states(None)
            tried, single = _select_covariance(data, folds, stage)
    best = single
    is_free = data.settings.varying is None and data.settings.covariance is None
    if data.may_have_low_rank and is_free:
        # The first has one component; its number of factors and its scales were set by the evidence on held-out tasks.
        first, *others = _low_rank(data, folds)
        best = first if is_as_good(first, best) else best
        best = _richest(others, best, single)
        tried += [first, *others]
    if not data.is_wide and is_free and _may_be_mixture(folds, single):
        stage.begin("number of components")
        mixtures = _mixtures(data, folds, best, single, stage)
        best = _richest(sorted(mixtures, key=lambda c: -c.mean_density)[:1], best, single)
        tried += mixtures
    ridges = (
        _score_chains(data, folds, [ridge_structures()], stage) if data.response.is_gaussian else []
    )
    ridge = min(ridges, key=lambda c: c.error, default=None)
    return Selection(best, side, tried, _task_mean_errors(data, folds), ridge)


def _richest(richer: Sequence[Candidate], best: Candidate, single: Candidate) -> Candidate:
    """Return ``best``, replaced in turn by each of ``richer`` that is better."""
    for candidate in richer:
        best = candidate if is_better(candidate, best, single) else best
    return best


def _task_mean_errors(data: TrainingData, folds: list[FoldState]) -> Array:
    return np.concatenate(
        [data.task_mean_errors(fold.episodes, len(fold.held_out)) for fold in folds]
    )


def score_parts(data: TrainingData, subtract: Callable[[TrainingData], TrainingData]) -> Score:
    """Score a mixed model with uncorrelated random effects; ``subtract`` fits other parts to the training tasks of a fold.

    ``subtract`` returns the data of all tasks without these parts.
    """
    structure = MixedModel("diagonal", varying=data.settings.varying, centre=data.centre)
    scored = []
    for fold in data.folds:
        rest = subtract(replace(data, tasks=data.tasks[fold.train], n_validation=0))
        state = _fold_state(rest, fold, None)
        fit = state.fitter.fit(structure)
        scored.append(
            _score(rest, state, structure, fit, difference(rest, rest.tasks[fold.train], fit))
        )
    return _join(scored)


def _select_covariance(
    data: TrainingData, folds: list[FoldState], stage: Stages
) -> tuple[list[Candidate], Candidate]:
    """Fit one Gaussian with each covariance; return all candidates and the selected one."""
    settings, d = data.settings, data.statistics.n_features
    chains = covariance_structures(
        d, settings.fit_intercept, settings.varying, full=not data.is_wide
    )
    if settings.covariance is not None:
        chosen = MixedModel(settings.covariance, varying=settings.varying, centre=data.centre)
        chains = [[chosen]]
    tried = _score_chains(data, folds, chains, stage)
    # Pooled regression of numeric targets is a baseline: a random intercept with variance zero is the same model.  With a log
    # link, means grow exponentially with the variance of random effects, so a model with a high density can have huge errors.
    simplest, *others = [c for c in tried if not c.structure.is_pooled]
    usable = [
        simplest,
        *(candidate for candidate in others if candidate.total_error <= simplest.total_error),
    ]
    return tried, max(usable, key=lambda candidate: candidate.mean_density)


def _may_be_mixture(folds: list[FoldState], single: Candidate) -> bool:
    """Return whether the coefficients of the held-out tasks are not Gaussian, by two standard errors."""
    pairs = zip(folds, single.fits, strict=True)
    return non_normality((fold.held_out, fit) for fold, fit in pairs) > RICHER


def _mixtures(
    data: TrainingData, folds: list[FoldState], best: Candidate, single: Candidate, stage: Stages
) -> list[Candidate]:
    """Return mixtures with the selected number of components; none for one component.

    They differ in their truncation, and in whether side information affects the mixing weights.
    """
    n_components = count_components(data, folds, best, single)
    if n_components == 1:
        return []
    chain = [
        MixtureModel(n_components=n_components, truncation=threshold) for threshold in TRUNCATIONS
    ]
    if data.side is not None:
        chain += [replace(each, gate_penalty=GATE_PENALTY) for each in chain]
    return _score_chains(data, folds, [chain], stage)


def _score_chains(
    data: TrainingData, folds: list[FoldState], chains: Sequence[Sequence[Structure]], stage: Stages
) -> list[Candidate]:
    """Fit and evaluate all structures on the same folds; those of a chain are fitted in turn.

    The plain mixed models are fitted first, because other structures start from them.
    """
    starts = {plain for structures in chains if (plain := structures[0].plain) is not None}
    list(data.in_parallel(lambda fold, plain: fold.fitter.fit(plain), product(folds, starts)))

    def score(structures: Sequence[Structure], fold: FoldState) -> list[Candidate]:
        fitter = replace(fold.fitter, fitted=dict(fold.fitter.fitted))
        return [_score(data, fold, structure, fitter.fit(structure)) for structure in structures]

    scored: list[list[Candidate]] = []
    for of_chain in data.in_parallel(score, product(chains, folds)):
        scored.append(of_chain)
        stage(1)
    n = len(folds)
    by_chain = (zip(*scored[i : i + n], strict=True) for i in range(0, len(scored), n))
    return [_join(of_folds) for of_chain in by_chain for of_folds in of_chain]


def _join(of_folds: Sequence[Candidate]) -> Candidate:
    """Join the results of one structure on the folds, in their order."""
    return replace(
        of_folds[0],
        density=np.concatenate([candidate.density for candidate in of_folds]),
        errors=np.concatenate([candidate.errors for candidate in of_folds]),
        prior_errors=np.concatenate([candidate.prior_errors for candidate in of_folds]),
        fits=[fit for candidate in of_folds for fit in candidate.fits],
    )


def _low_rank(data: TrainingData, folds: list[FoldState]) -> list[Candidate]:
    """Return the best candidate with a low-rank covariance, and the best mixture if several components are selected.

    If the maximum number of factors is selected, more may be needed.  A full covariance is then also returned if none was
    tried before, there are fewer coefficients than tasks, and EM is not too slow.
    """
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
        fits = ((fold, replace(model.mixture(), side=fold.fitter.side)) for fold, model in pairs)
        out.append(_join([_score(data, fold, structure, fit) for fold, fit in fits]))
    full = MixedModel()
    if data.is_wide and out[0].structure.n_factors == most and d < T and T * d**3 <= LARGEST_WORK:
        out.append(_join([_score(data, fold, full, fold.fitter.fit(full)) for fold in folds]))
    return out


def _propose_side(data: TrainingData) -> SideStructure | None:
    """Propose effects of side information by their evidence in a plain mixed model of all tasks, or of a sample.

    Tasks that are held out in a fold also contribute to the proposal, but not to the fit in this fold.
    """
    if data.side is None:
        return None
    order = np.random.default_rng(data.seed(Draw.SIDE_TASKS)).permutation(len(data))
    tasks = data.statistics.take(np.sort(order[:MOST_TASKS]))
    settings = data.settings
    return select_side(
        tasks, data.groups, has_intercept=settings.fit_intercept, varying=settings.varying
    )


def _fold_state(data: TrainingData, fold: Fold, side: SideStructure | None) -> FoldState:
    train = data.statistics.take(fold.train).roughly()
    seed = data.seed(Draw.STRUCTURE_STARTS, fold.number)
    fitter = StructureFitter.of(train, seed, side, data.groups, data.settings.fit_intercept)
    fitter.tol = 1e-6  # accurate enough for densities
    tasks, episodes = data.tasks[fold.held_out], data.episodes(fold)
    held_out, empty = data.statistics.take(fold.held_out).roughly(), tasks.without_rows()
    prior = Episodes(empty, tasks, np.arange(len(tasks)))
    support = data.statistics_of(episodes.support)
    return FoldState(fold, fitter, held_out, episodes, support, prior, data.statistics_of(empty))


def _score(
    data: TrainingData,
    fold: FoldState,
    structure: Structure,
    fit: Mixture,
    moved: Array | None = None,
) -> Candidate:
    pairs, n_tasks = ((fold.support, fold.episodes), (fold.no_rows, fold.prior)), len(fold.held_out)
    prior = data.prior(fit, moved)
    errors, prior_errors = (
        data.errors(episodes, data.predict(support, prior, episodes.query), n_tasks)
        for support, episodes in pairs
    )
    return Candidate(_density(data, fold, fit), errors, prior_errors, structure, [fit])


def _density(data: TrainingData, fold: FoldState, mixture: Mixture) -> Array:
    """Return the log density of each held-out task: log p(y), or with ``n_support`` the mean of log p(query | support).

    It is the density of targets in the user's units, so that models can be compared after subtracting different parts.
    """
    unit, n_tasks = np.log(data.scaling.target), len(fold.held_out)
    if data.settings.arrival.support is None:
        return (
            fold.held_out.posterior(mixture).log_evidence
            - unit * data.tasks.sizes[fold.fold.held_out]
        )
    support = fold.support.posterior(mixture).log_evidence
    both = data.statistics_of(fold.episodes.together).posterior(mixture).log_evidence
    return mean_of_episodes(
        both - support - unit * fold.episodes.query.sizes, fold.episodes, n_tasks
    )


def mean_of_episodes(values: Array, episodes: Episodes, n_tasks: int) -> Array:
    """Average values over the episodes of each task; 0 for a task without episodes."""
    n_episodes = np.bincount(episodes.task, minlength=n_tasks)
    return np.bincount(episodes.task, weights=values, minlength=n_tasks) / np.maximum(n_episodes, 1)


def count_components(
    data: TrainingData, folds: list[FoldState], best: Candidate, single: Candidate
) -> int:
    """Select the number of components with short fits; each number is compared with the last that was accepted."""
    least_train = min(len(fold.fitter.tasks) for fold in folds)
    plain = MixedModel()

    def attempt(K: int, fold: FoldState) -> Candidate:
        fitter, seed = fold.fitter, data.seed(Draw.COMPONENT_STARTS, K)
        start = replace(fitter.fit(plain), side=None)
        mixture = fit_mixture(
            fitter.tasks, start, K, seed=seed, n_starts=2, short_iter=4, max_iter=10
        )
        if data.side is not None:
            mixture = fitter.with_gates(mixture, GATE_PENALTY, max_iter=5)
        return _score(data, fold, plain, replace(mixture, side=fitter.side))

    last: Score = best
    n_components, n_failures = 1, 0
    for K in COMPONENTS:
        if n_failures >= 3 or least_train < 2 * K:  # the variance of a component needs two tasks
            break
        result = _join(list(data.in_parallel(attempt, ((K, fold) for fold in folds))))
        n_failures += 1
        if is_better(result, last, single):
            n_components, n_failures, last = K, 0, result
    return n_components


def better_baseline(errors: Array, baselines: Mapping[str, Array]) -> str | None:
    """Return the best baseline with significantly lower errors on the same tasks; None without one, or with few tasks."""
    if np.isfinite(errors).sum() < LEAST_COMPARED:
        return None
    # Errors may be 1 % higher: estimating a variance that is almost zero raises errors slightly, perhaps equally in all tasks.
    # If the targets are equal within each task, or linear in the features, differences are rounding errors.
    everything = np.concatenate([errors, *baselines.values()])
    rounding = 1e-6 * everything[np.isfinite(everything)].max()
    better = [
        name for name, values in baselines.items() if significant(errors - 1.01 * values - rounding)
    ]
    return min(better, key=lambda name: float(np.nanmean(baselines[name])), default=None)
