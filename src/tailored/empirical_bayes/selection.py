"""Selection of the structure of the prior on held-out tasks.

The criterion is the log predictive density of held-out tasks.  It is that of all rows of a task or, if the user sets the
number of support rows, that of its query rows given its support rows.  The structure with the highest density is selected.
With Gaussian targets and fewer than `ENOUGH_TASKS` tasks, cross-validation is repeated, and the simplest structure within one
standard error (paired by task) is selected.  With fewer than `FEW_TASKS` tasks, mixed models and independent tasks are compared
by AIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import joblib
import numpy as np

from .._utils.progress import Stages
from .._utils.threads import single_threaded_blas
from ..gaussian.em import fit_mixed_model
from ..gaussian.low_rank import LowRankSearch, RotatedTasks
from ..gaussian.mixture import Mixture
from ..gaussian.moments import Moments
from ..gaussian.rows import Tasks
from ..gaussian.side import MOST_TASKS, SideStructure, select_side
from ..gaussian.starts import fit_mixture
from ..gaussian.structures import (
    GATE_PENALTIES,
    Structure,
    StructureFitter,
    all_structures,
    ridge_structures,
    simple_structures,
    varying_structures,
)
from ..tasks.episodes import Episodes
from ..tasks.rows import Array
from .data import ENOUGH_TASKS, LARGEST_WORK, Draw, Fold, TrainingData, known_mean, significant

#: With fewer tasks, structures are compared by AIC instead of on held-out tasks.
FEW_TASKS = 40
#: The simplest structure within this many standard errors of the highest density is selected.
N_ERRORS = 1.0
#: Number of structures of each family that are evaluated on repeated folds; they differ only in shrinkage.
REPEATED = 3
#: Minimum gain in log predictive density per task for more components, or for atoms, in addition to the standard error.
LEAST_GAIN = 0.05
#: Number of held-out tasks used to select the number of components, from as many folds as needed.
COUNTED_TASKS = 100
#: Candidate numbers of components; the search stops after two in a row without a gain, or one with a significant loss.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: Minimum number of training tasks per component, and maximum number of training tasks for selecting their number.
TASKS_PER_COMPONENT, COUNTING_TASKS = 10, 1200
#: Maximum number of factors of a low-rank covariance, and minimum number of training tasks per factor.
MOST_FACTORS, TASKS_PER_FACTOR = 16, 4
#: Structures for classes and counts with more than this multiple of the least error are not selected.
MOST_ERROR = 1.5
#: Minimum number of training tasks for atoms.
LEAST_ATOMS = 100
#: Minimum number of held-out tasks for a comparison with baselines.
LEAST_COMPARED = 10
#: A column is unusual if it is more than this many times as large in one task as in the median task.
UNUSUAL = 5.0
#: What to check if a baseline is better.
ADVICE = "look at groups (are rows that belong together in one task?), and whether the columns of X predict y"


@dataclass(frozen=True)
class Candidate:
    """A structure, fitted to the training tasks of each fold.

    ``errors`` and ``density`` have an entry for each held-out task of every fold.  Errors are NaN for tasks without query
    rows.  Densities are averaged over repeated partitions.
    """

    structure: Any
    scale: float  # multiple of FFᵀ for many columns, otherwise 1
    fits: list[Any]
    errors: Array
    density: Array

    @property
    def error(self) -> float:
        """Mean error of the held-out tasks; 0 if none of them has query rows."""
        return known_mean(self.errors)

    @property
    def mean_density(self) -> float:
        """Mean log predictive density; −inf if the model overflows on a task."""
        return -np.inf if np.isnan(self.density).any() else float(np.mean(self.density))


@dataclass(frozen=True)
class Selection:
    """The selected candidate, and the results of all candidates."""

    best: Candidate
    side: SideStructure | None  # structure of the effects of side information
    results: list[dict[str, Any]]  # errors and evidence of all candidates
    starts: dict[Structure, Mixture]  # models of the first fold, used as starts of the fit to all tasks
    candidates: list[Candidate]
    task_mean_errors: Array  # errors of the held-out tasks when the mean of their support rows is predicted
    better_baseline: str | None = None  # a baseline with significantly lower errors


@dataclass(frozen=True)
class FoldState:
    """The fitter of a fold, its held-out tasks, and the support and query rows of these tasks."""

    fold: Fold
    fitter: StructureFitter
    held_out: Tasks
    episodes: Episodes
    support: Tasks


#: Function that returns the state of a fold, which is computed once.
StateOf = Callable[[Fold], FoldState]


def select(
    data: TrainingData, stage: Stages, known: tuple[Structure, SideStructure | None] | None = None
) -> Selection:
    """Select effects of side information, then a structure.  If ``known`` is given, it only competes with simple structures."""
    with single_threaded_blas():
        side: SideStructure | None = None
        state_of = cache(lambda fold: _fold_state(data, fold, side))
        # Low-rank structures and atoms are results of a search of their own, which must be repeated.
        if known is not None and (known[0].kind == "low rank" or known[0].atoms):
            known = None
        if known is not None:
            # The parts of the targets that were subtracted may have hidden differences between tasks.
            side, simple = known[1], simple_structures(data.settings.fit_intercept)
            others = simple if known[0].varying is None else []
            chains = [*(each for each in others if each != [known[0]]), [known[0]]]
        elif len(data) == 1:
            # A single task carries no information about other tasks.
            chains = [ridge_structures()]
        else:
            stage.begin("side information")
            side = _select_side(data)
            if data.settings.varying is not None:
                chains = varying_structures(data.settings.varying, few=len(data) < FEW_TASKS)
            elif len(data) < FEW_TASKS:
                ends: Sequence[float] = ()
                if data.settings.fit_intercept and data.tasks.n_features == 1 and len(data.tasks.y):
                    # If time is the only column, the intercept at its start or end may be uncorrelated with the slope.
                    x = data.scaling.dense(data.tasks.X)[:, 0]
                    ends = float(x.min()), float(x.max())
                chains = [[_best_ridge(data)], *simple_structures(data.settings.fit_intercept, ends)]
            elif data.is_wide:
                # The search for low-rank structures follows; a full covariance has too many parameters.
                kinds = "none", "diagonal"
                plain = [[Structure("mixed model", learn_mean=True, covariance=kind)] for kind in kinds]
                chains = [ridge_structures(), *plain]
            else:
                stage.begin("number of components")
                n_components, learn_mean = count_components(data, state_of)
                numbers = n_components, learn_mean, data.statistics.n_features
                flags = {"has_side": data.has_side, "shrunk": not data.may_have_low_rank}
                chains = all_structures(*numbers, has_intercept=data.settings.fit_intercept, **flags)
            if data.response is not None:
                # Non-Gaussian targets are not centred, so a prior without a mean would be centred at f = 0.
                # Their fits take longer, so truncation and shrinkage to common factors are not tried.
                kept = ([s for s in c if s.learn_mean and not (s.truncation or s.n_factors)] for c in chains)
                chains = [each for each in kept if each]
        stage.begin("structures")
        folds = _prepare(data, data.folds, chains, state_of)
        candidates = _score_chains(data, folds, chains, stage)
        few = 1 < len(data) < FEW_TASKS
        if not few and known is None:
            candidates = _repeat(data, candidates, chains, state_of, stage)
            if data.may_have_low_rank and data.settings.varying is None and len(data) > 1:
                candidates += _low_rank(data, folds)
    usable = candidates
    if data.response is not None:
        # Predictions are means, which explode if the log rates vary much, however likely the counts are.
        known_means = [c for c in candidates if np.isfinite(c.mean_density)] or candidates
        least = min(c.error for c in known_means)
        usable = [c for c in known_means if c.error <= MOST_ERROR * least] or candidates
    n_errors = N_ERRORS if len(data) < ENOUGH_TASKS and data.response is None else 0.0
    best = decide_by_aic(data, usable, side) if few else decide(usable, n_errors)
    with single_threaded_blas():
        atoms = _atoms(data, folds, best, candidates) if known is None else []
    candidates += atoms
    if atoms and significant(_most_likely(atoms).density - best.density - LEAST_GAIN, N_ERRORS):
        best = _most_likely(atoms)
    results = [{**c.structure.describe(), "error": c.error, "density": c.mean_density} for c in candidates]
    task_means = np.concatenate([data.task_mean_errors(f.episodes, len(f.held_out)) for f in folds])
    baselines = {"the mean of their own rows": task_means}
    for pooled in (c for c in candidates if c.structure.covariance == "none"):
        baselines["one fit to the rows of all tasks"] = pooled.errors
    starts = {c.structure: c.fits[0] for c in candidates}
    better = better_baseline(best.errors, baselines)
    return Selection(best, side, results, starts, candidates, task_means, better)


def _prepare(
    data: TrainingData, folds: list[Fold], chains: list[list[Structure]], state_of: StateOf
) -> list[FoldState]:
    """Fit the plain mixed models, from which other structures start, to the training tasks of each fold."""
    starts = {structures[0].plain for structures in chains}

    def prepare(fold: Fold) -> FoldState:
        with single_threaded_blas():
            state = state_of(fold)
            for plain in starts:
                if plain is not None:
                    state.fitter.fit(plain)
            return state

    parallel = joblib.Parallel(n_jobs=data.settings.n_jobs, require="sharedmem")
    return list(parallel(joblib.delayed(prepare)(fold) for fold in folds))


def _score_chains(
    data: TrainingData, folds: list[FoldState], chains: list[list[Structure]], stage: Stages
) -> list[Candidate]:
    """Fit and evaluate all structures on the folds of one partition."""

    def score(fold: FoldState, structures: list[Structure]) -> list[Candidate]:
        with single_threaded_blas():
            fitter = replace(fold.fitter, fitted=dict(fold.fitter.fitted))
            return [_score(data, fold, structure, fitter.fit(structure)) for structure in structures]

    parallel = joblib.Parallel(n_jobs=data.settings.n_jobs, require="sharedmem", return_as="generator")
    scored: list[list[Candidate]] = []
    for of_chain in parallel(joblib.delayed(score)(fold, each) for each in chains for fold in folds):
        scored.append(of_chain)
        stage(1)
    n = len(folds)
    by_chain = (zip(*scored[i : i + n], strict=True) for i in range(0, len(scored), n))
    return [_join(folds, of_folds) for of_chain in by_chain for of_folds in of_chain]


def _repeat(
    data: TrainingData,
    candidates: list[Candidate],
    chains: list[list[Structure]],
    state_of: StateOf,
    stage: Stages,
) -> list[Candidate]:
    """Average the densities of the best candidates over repeated partitions, if there are few tasks."""
    partitions = data.repeated_folds
    if not partitions:
        return candidates
    highest, structures, families = _most_likely(candidates), set(), Counter[Any]()
    for c in sorted(candidates, key=lambda c: -c.mean_density):
        families[c.structure.family] += 1
        if families[c.structure.family] <= REPEATED and not significant(highest.density - c.density):
            structures.add(c.structure)
    close = [c for c in candidates if c.structure in structures]
    kept = [some for some in ([s for s in each if s in structures] for each in chains) if some]
    prepared = (_prepare(data, folds, kept, state_of) for folds in partitions)
    repeats = [_score_chains(data, states, kept, stage) for states in prepared]
    averaged = {}
    for same in zip(close, *repeats, strict=True):
        averaged[same[0].structure] = replace(same[0], density=np.mean([c.density for c in same], axis=0))
    # The densities of other candidates keep their differences from the highest.
    change = averaged[highest.structure].density - highest.density
    return [averaged.get(c.structure) or replace(c, density=c.density + change) for c in candidates]


def _join(folds: Sequence[FoldState], of_folds: Sequence[Candidate]) -> Candidate:
    """Join the results of one structure on the folds of a partition; densities are in the order of the tasks."""
    order = np.argsort(np.concatenate([fold.fold.held_out for fold in folds]), kind="stable")
    return replace(
        of_folds[0],
        fits=[fit for candidate in of_folds for fit in candidate.fits],
        errors=np.concatenate([candidate.errors for candidate in of_folds]),
        density=np.concatenate([candidate.density for candidate in of_folds])[order],
    )


def _low_rank(data: TrainingData, folds: list[FoldState]) -> list[Candidate]:
    """Return the best candidate with a low-rank covariance, and the best mixture of these if it is better.

    If the maximum number of factors is selected, more may be needed, so an unrestricted covariance is a candidate too.
    """
    has_intercept, d = data.settings.fit_intercept, data.statistics.n_features
    train, held_out = [], []
    for fold in folds:
        rest, side = fold.held_out, fold.fitter.side
        if side is not None:
            assert rest.side is not None
            rest = rest.shifted(rest.side @ side.T)
        train.append(RotatedTasks.of(fold.fitter.tasks, has_intercept))
        held_out.append(RotatedTasks.of(rest, has_intercept))
    most = min(MOST_FACTORS, len(train[0]) // TASKS_PER_FACTOR, d // 2)
    out = []
    with single_threaded_blas():
        for selected in LowRankSearch(train, held_out, data.seed(Draw.COMPONENT_STARTS))(most):
            options: dict[str, Any] = {"n_factors": selected.n_factors, "rank": selected.rank}
            options |= {"learn_mean": True, "calibration": selected.calibration}
            structure = Structure("low rank", selected.n_components, **options)
            pairs = zip(folds, selected.models, strict=True)
            fits = ((fold, replace(model.mixture(), side=fold.fitter.side)) for fold, model in pairs)
            out.append(_join(folds, [_score(data, fold, structure, fit) for fold, fit in fits]))
        T, full = len(train[0]), Structure("mixed model", learn_mean=True)
        if data.is_wide and out[0].structure.n_factors == most and d < T and T * d**3 <= LARGEST_WORK:
            out.append(_join(folds, [_score(data, fold, full, fold.fitter.fit(full)) for fold in folds]))
    return out


def _atoms(
    data: TrainingData, folds: list[FoldState], best: Candidate, candidates: list[Candidate]
) -> list[Candidate]:
    """Return atoms derived from the best candidate, and atoms derived from the best mixed model."""
    tasks, settings, out = folds[0].fitter.tasks, data.settings, []
    if settings.varying is not None or settings.device is not None or data.is_wide:
        return []
    if len(tasks) < LEAST_ATOMS or not isinstance(tasks, Moments):
        return []
    single = _most_likely([c for c in candidates if c.structure.kind == "mixed model"])
    for start in {c.structure: c for c in (best, single)}.values():
        # Ridge fits have no effects of side information; a pooled regression has the same coefficients for all tasks.
        if start.structure.kind == "independent" or start.structure.covariance == "none":
            continue
        structure, scored = replace(start.structure, atoms=True), []
        for fold, fit in zip(folds, start.fits, strict=True):
            fitter = replace(fold.fitter, fitted={start.structure: replace(fit, side=None)})
            scored.append(_score(data, fold, structure, fitter.fit(structure)))
        out.append(_join(folds, scored))
    return out


def _most_likely(candidates: list[Candidate]) -> Candidate:
    return max(candidates, key=lambda c: c.mean_density)


def decide(candidates: list[Candidate], n_errors: float = N_ERRORS) -> Candidate:
    """Return the best candidate of the simplest family within ``n_errors`` standard errors of the highest density."""
    families: dict[Any, Candidate] = {}
    for candidate in candidates:
        family = candidate.structure.family
        if family not in families or candidate.mean_density > families[family].mean_density:
            families[family] = candidate
    best = _most_likely(candidates)
    known = (c for c in families.values() if np.isfinite(c.mean_density))
    return next((c for c in known if not significant(best.density - c.density, n_errors)), best)


def decide_by_aic(data: TrainingData, candidates: list[Candidate], side: SideStructure | None) -> Candidate:
    """Return the candidate with the lowest AIC of a fit to all tasks."""
    fitter = StructureFitter.of(data.statistics, data.seed(Draw.STRUCTURE_STARTS), side, data.groups)
    d = data.statistics.n_features

    def aic(candidate: Candidate) -> float:
        # AIC is defined at the maximum of the likelihood, without shrinkage.
        structure = replace(candidate.structure, n_factors=0, pseudo_tasks=0.0)
        evidence = float(data.statistics.posterior(fitter.most_likely(structure)).log_evidence.sum())
        penalty = 2.0 * structure.n_parameters(d)
        if data.response is not None:
            # Rows carry less information, so the small-sample correction (AICc) matters; observations are tasks.
            free = len(data) - structure.n_parameters(d) - 1
            penalty = penalty * len(data) / free if free > 0 else np.inf
        return np.inf if np.isnan(evidence) else penalty - 2.0 * evidence

    with single_threaded_blas():
        return min(candidates, key=aic)


def _best_ridge(data: TrainingData) -> Structure:
    """Return the structure of independent tasks with the ridge of highest evidence."""
    fitter = StructureFitter.of(data.statistics, data.seed(Draw.STRUCTURE_STARTS))
    with single_threaded_blas():
        fits = {structure: fitter.fit(structure) for structure in ridge_structures()}
        return max(fits, key=lambda s: data.statistics.posterior(fits[s]).log_evidence.sum())


def _select_side(data: TrainingData) -> SideStructure | None:
    """Select the effects of side information in a plain mixed model, on a sample if there are many tasks.

    Features of the rows are not used, because Γ would fit the noise of the rows.
    """
    if not data.has_side:
        return None
    order = np.random.default_rng(data.seed(Draw.SIDE_TASKS)).permutation(len(data))
    tasks = data.statistics.take(np.sort(order[:MOST_TASKS]))
    settings = data.settings
    return select_side(tasks, data.groups, has_intercept=settings.fit_intercept, varying=settings.varying)


def _fold_state(data: TrainingData, fold: Fold, side: SideStructure | None) -> FoldState:
    train, seed = data.statistics.take(fold.train), data.seed(Draw.STRUCTURE_STARTS, fold.number)
    fitter = StructureFitter.of(train, seed, side, data.groups, data.settings.fit_intercept)
    fitter.tol = 1e-6  # accurate enough for densities
    tasks, seed = data.tasks[fold.held_out], data.seed(Draw.HELD_OUT_ROWS, fold.number)
    episodes = data.settings.arrival.episodes(tasks, seed)
    held_out = data.statistics.take(fold.held_out)
    return FoldState(fold, fitter, held_out, episodes, data.statistics_of(episodes.support))


def _score(data: TrainingData, fold: FoldState, structure: Structure, fit: Mixture) -> Candidate:
    prediction = data.predict_mean(fold.support, fit, fold.episodes.query)
    errors = data.errors(fold.episodes, prediction, len(fold.held_out))
    return Candidate(structure, 1.0, [fit], errors, _density(data, fold, fit))


def _density(data: TrainingData, fold: FoldState, mixture: Mixture) -> Array:
    """Return the log predictive density of each held-out task: log p(y), or the mean of log p(query | support)."""
    density = fold.held_out.posterior(mixture).log_evidence
    if data.settings.arrival.support is None:
        return density
    support = fold.support.posterior(mixture).log_evidence
    both = data.statistics_of(fold.episodes.together)
    return mean_of_episodes(both.posterior(mixture).log_evidence - support, fold.episodes, len(fold.held_out))


def mean_of_episodes(values: Array, episodes: Episodes, n_tasks: int) -> Array:
    """Average values over the episodes of each task; 0 for a task without episodes."""
    n_episodes = np.bincount(episodes.task, minlength=n_tasks)
    return np.bincount(episodes.task, weights=values, minlength=n_tasks) / np.maximum(n_episodes, 1)


def count_components(data: TrainingData, state_of: StateOf) -> tuple[int, bool]:
    """Select the number of components, and whether the prior has a mean, on held-out tasks.

    A mean must raise the log predictive density by its standard error.  More components must raise it by `LEAST_GAIN` in
    addition, because each further component raises it a little if coefficients are not Gaussian.
    """
    states, n_tasks = [], 0
    for fold in chain.from_iterable([data.folds, *data.repeated_folds]):
        if n_tasks < COUNTED_TASKS:
            is_large = len(fold.train) > COUNTING_TASKS
            states.append(state_of(replace(fold, train=fold.train[:COUNTING_TASKS]) if is_large else fold))
            n_tasks += len(fold.held_out)
    least_train = min(len(state.fitter.tasks) for state in states)

    def density(models: list[Mixture]) -> Array:
        pairs = zip(states, models, strict=True)
        return np.concatenate([_density(data, s, replace(m, side=s.fitter.side)) for s, m in pairs])

    def single(state: FoldState, learn_mean: bool) -> Mixture:
        fitter, plain = state.fitter, Structure("mixed model", learn_mean=learn_mean)
        known: dict[str, Any] = {"max_iter": fitter.steps(few=30, many=30), "start": fitter.starts.get(plain)}
        fitter.starts[plain] = model = fit_mixed_model(fitter.tasks, learn_mean=learn_mean, tol=1e-6, **known)
        return model

    # Non-Gaussian targets are not centred and need a mean.
    singles = {
        mean: [single(state, mean) for state in states]
        for mean in (True, False)[: 1 + (data.response is None)]
    }
    densities = {mean: density(models) for mean, models in singles.items()}
    learn_mean = data.response is not None or significant(densities[True] - densities[False], N_ERRORS)
    best, n_components, n_failures = densities[learn_mean], 1, 0

    def attempt(K: int, learn_mean: bool) -> Array:
        short: dict[str, Any] = {"n_starts": 2, "short_iter": 4, "max_iter": 10, "learn_mean": learn_mean}
        models = []
        for state, plain in zip(states, singles[learn_mean], strict=True):
            seed = data.seed(Draw.COMPONENT_STARTS, K)
            mixture = fit_mixture(state.fitter.tasks, plain, K, seed=seed, **short)
            if data.has_side:
                mixture = state.fitter.with_gates(
                    mixture, GATE_PENALTIES[0], max_iter=5, learn_mean=learn_mean
                )
            models.append(mixture)
        return density(models)

    for K in COMPONENTS:
        if n_failures >= 2 or least_train < TASKS_PER_COMPONENT * K:
            break
        result = attempt(K, learn_mean)
        n_failures += 1 + significant(best - result, N_ERRORS)
        if significant(result - best - LEAST_GAIN, N_ERRORS):
            n_components, n_failures, best = K, 0, result
    # Components may have means even if the overall mean is zero: for example, coefficients close to ±m.
    twice = 2 * n_components
    enough = n_components > 1 and not learn_mean and least_train >= TASKS_PER_COMPONENT * twice
    if enough and significant(attempt(twice, True) - best - LEAST_GAIN, N_ERRORS):
        return twice, True
    return n_components, learn_mean


def better_baseline(errors: Array, baselines: Mapping[str, Array]) -> str | None:
    """Return the name of the best baseline with significantly lower errors on the same tasks; None if there is none."""
    if np.isfinite(errors).sum() < LEAST_COMPARED:
        return None
    better = [name for name, values in baselines.items() if significant(errors - values)]
    return min(better, key=lambda name: float(np.nanmean(baselines[name])), default=None)


def likely_cause(data: TrainingData) -> str:
    """Return what to check if a baseline is better: the most unusual column of X, or other possible causes."""
    statistics = data.statistics
    d, T = data.tasks.n_features, len(statistics)
    squares = statistics.gram[:, np.arange(d), np.arange(d)] / np.maximum(statistics.sizes, 1.0)[:, None]
    sizes = np.sqrt(squares[statistics.sizes > 0])
    if d and T > 1 and len(sizes):
        middle = np.median(sizes, axis=0)
        encoding = data.tasks.encoding
        is_own = (
            np.ones(d, dtype=bool) if encoding is None else encoding.feature_names == encoding.source_names
        )
        ratios = np.where(is_own, sizes.max(axis=0) / np.where(middle > 0, middle, np.inf), 0.0)
        worst = int(ratios.argmax())
        if ratios[worst] > UNUSUAL:
            names = data.tasks.feature_names
            column = worst if names is None else repr(str(names[worst]))
            found = f"which is {ratios[worst]:.0f} times as large in one task as in most"
            return f"look at column {column} of X, {found}: is it a label, or in another unit?"
    if not data.settings.fit_intercept:
        return "look at fit_intercept, which is False: the targets may need an intercept"
    return f"no column of X stands out: {ADVICE}"
