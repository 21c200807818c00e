"""Selection of the structure of the prior, and of a multiple of its τ, on held-out tasks.

With few tasks mean errors are noisy, and the log evidence of whole held-out tasks is more informative; with many tasks the
errors measure what the user asked for.  So the structure with the highest held-out evidence is selected, unless another one
has significantly lower held-out errors (`SIGNIFICANT` standard errors, paired by task).  With fewer than `FEW_TASKS` tasks
even the evidence is noisy: standard mixed models and independent tasks are then compared by AIC on all tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.progress import Stages
from .._utils.threads import single_threaded_blas
from ..gaussian.em import fit_mixed_model
from ..gaussian.low_rank import LowRankSearch, RotatedTasks
from ..gaussian.mixture import Mixture, Want
from ..gaussian.rows import Tasks
from ..gaussian.side import MOST_TASKS, SideStructure, select_side
from ..gaussian.starts import fit_mixture
from ..gaussian.structures import (
    GATE_PENALTIES,
    RIDGES,
    Structure,
    StructureFitter,
    all_structures,
    simple_structures,
    structures_of_many_columns,
    varying_structures,
)
from ..tasks.episodes import Episodes
from .data import SCALES, Draw, Fold, TrainingData, known_mean, significant

Array = NDArray[np.float64]

#: With fewer tasks none is held out: structures are compared by AIC.
FEW_TASKS = 40
#: More components must lower the held-out error by this fraction.
LEAST_GAIN = 1e-3
#: Numbers of components; the search ends after two in a row without a gain.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: Smallest number of training tasks per component, and the largest number of tasks to select the number on.
TASKS_PER_COMPONENT, COUNTING_TASKS = 10, 1200
#: Largest number of factors of a low-rank covariance, and the smallest number of training tasks per factor.
MOST_FACTORS, TASKS_PER_FACTOR = 16, 4
#: Smallest number of held-out tasks for a comparison with baselines.
LEAST_COMPARED = 10
#: A column is unusual if it is this many times as large in one task as in the median task.
UNUSUAL = 5.0


@dataclass(frozen=True)
class Candidate:
    """A structure with a multiple of its τ, fitted to the training tasks of each fold.

    ``errors`` and ``evidence`` have an entry for each held-out task of every fold; NaN for a task without query rows.
    ``penalty`` is that on the effects of side information on factors.
    """

    structure: Any
    scale: float
    fits: list[Any]
    errors: Array
    evidence: Array
    penalty: float = 0.0

    @property
    def error(self) -> float:
        """Mean error; 0 if no held-out task has query rows."""
        return known_mean(self.errors)

    @property
    def mean_evidence(self) -> float:
        """Mean log evidence; −inf for a model that overflows on a task."""
        return -np.inf if np.isnan(self.evidence).any() else float(np.mean(self.evidence))


@dataclass(frozen=True)
class Selection:
    """The selected candidate."""

    best: Candidate
    side: SideStructure | None  # structure of the effects of side information
    results: list[dict[str, Any]]  # errors and evidence of all candidates
    starts: dict[Structure, Mixture]  # models of the first fold, as starts for a fit to all tasks
    candidates: list[Candidate]
    task_mean_errors: Array  # errors of the held-out tasks when the mean of their support rows is predicted
    better_baseline: str | None = None  # a baseline with significantly lower errors


@dataclass(frozen=True)
class FoldState:
    """The fitter of a fold with the plain mixed models, its held-out tasks, and their episodes."""

    fitter: StructureFitter
    held_out: Tasks
    episodes: Episodes
    support: Tasks


def select(data: TrainingData, stage: Stages) -> Selection:
    """Select the effects of side information, then the structure and the scale."""
    with single_threaded_blas():
        parallel = joblib.Parallel(n_jobs=data.settings.n_jobs, require="sharedmem", return_as="generator")
        side: SideStructure | None = None
        if len(data) == 1:
            # A single task cannot inform about others.
            chains = all_structures(1, False)[:1]
        else:
            stage.begin("side information")
            side = _select_side(data)
            if data.settings.varying is not None:
                chains = varying_structures(data.settings.varying, few=len(data) < FEW_TASKS)
            elif len(data) < FEW_TASKS:
                chains = [[_best_ridge(data)], *simple_structures(data.settings.fit_intercept)]
            elif data.is_wide:
                chains = structures_of_many_columns()
            else:
                stage.begin("number of components")
                n_components, learn_mean = count_components(data, side)
                flags = {"has_intercept": data.settings.fit_intercept, "has_side": data.has_side}
                chains = all_structures(n_components, learn_mean, **flags)
        stage.begin("structures")
        folds = list(parallel(joblib.delayed(_prepare)(data, fold, chains, side) for fold in data.folds))
        scored: list[list[Candidate]] = []
        jobs = (joblib.delayed(_score_chain)(data, fold, some) for some in chains for fold in folds)
        for chain_scores in parallel(jobs):
            scored.append(chain_scores)
            stage(1)
    n = len(folds)
    by_chain = (zip(*scored[i : i + n], strict=True) for i in range(0, len(scored), n))
    candidates = [_join(of_folds) for of_chain in by_chain for of_folds in of_chain]
    few = 1 < len(data) < FEW_TASKS
    if len(data) >= FEW_TASKS and data.is_wide and data.settings.varying is None:
        candidates += _low_rank(data, folds)
    if not few:
        candidates += _rescaled(data, folds, candidates)
    results: list[dict[str, Any]] = [
        {**c.structure.describe(), "scale": c.scale, "error": c.error, "evidence": c.mean_evidence}
        for c in candidates
    ]
    best = decide_by_aic(data, candidates, side) if few else decide(candidates)
    task_means = np.concatenate([data.task_mean_errors(f.episodes, len(f.held_out)) for f in folds])
    baselines = {"the mean of their own rows": task_means}
    for pooled in (c for c in candidates if c.structure.covariance == "none"):
        baselines["one fit to the rows of all tasks"] = pooled.errors
    starts = {c.structure: c.fits[0] for c in candidates if c.scale == 1.0}
    better = better_baseline(best.errors, baselines)
    return Selection(best, side, results, starts, candidates, task_means, better)


def _join(of_folds: Sequence[Candidate]) -> Candidate:
    """Join the same candidate of several folds."""
    return replace(
        of_folds[0],
        fits=[fit for candidate in of_folds for fit in candidate.fits],
        errors=np.concatenate([candidate.errors for candidate in of_folds]),
        evidence=np.concatenate([candidate.evidence for candidate in of_folds]),
    )


def _low_rank(data: TrainingData, folds: list[FoldState]) -> list[Candidate]:
    """Return the best low-rank covariance, and the best mixture of them if it is better."""
    has_intercept = data.settings.fit_intercept
    train, held_out = [], []
    for fold in folds:
        rest, side = fold.held_out, fold.fitter.side
        if side is not None:
            assert rest.side is not None
            rest = rest.shifted(rest.side @ side.T)
        train.append(RotatedTasks.of(fold.fitter.tasks, has_intercept))
        held_out.append(RotatedTasks.of(rest, has_intercept))
    most = min(MOST_FACTORS, len(train[0]) // TASKS_PER_FACTOR, data.statistics.n_features // 2)
    out = []
    with single_threaded_blas():
        for selected in LowRankSearch(train, held_out, data.seed(Draw.COMPONENT_STARTS))(most):
            structure = Structure(
                "low rank",
                selected.n_components,
                learn_mean=True,
                n_factors=selected.n_factors,
                rank=selected.rank,
                calibration=selected.calibration,
            )
            pairs = zip(folds, selected.models, strict=True)
            fits = ((fold, replace(model.mixture(), side=fold.fitter.side)) for fold, model in pairs)
            out.append(_join([_score(data, fold, structure, fit, 1.0) for fold, fit in fits]))
    return out


def _rescaled(data: TrainingData, folds: list[FoldState], candidates: list[Candidate]) -> list[Candidate]:
    """Return the two candidates that may be selected, with other multiples of their τ."""
    out = []
    for finalist in {id(c): c for c in (_most_likely(candidates), _most_accurate(candidates))}.values():
        structure = finalist.structure
        # Independent tasks and low rank have their own scales of τ, and a zero τ has none.
        if structure.kind in ("independent", "low rank") or structure.covariance == "none":
            continue
        for scale in SCALES[1:]:
            pairs = zip(folds, finalist.fits, strict=True)
            with single_threaded_blas():
                out.append(_join([_score(data, fold, structure, fit, scale) for fold, fit in pairs]))
    return out


def _most_likely(candidates: list[Candidate]) -> Candidate:
    return max((c for c in candidates if c.scale == 1.0), key=lambda c: c.mean_evidence)


def _most_accurate(candidates: list[Candidate]) -> Candidate:
    return min(candidates, key=lambda c: c.error)


def decide(candidates: list[Candidate]) -> Candidate:
    """Return the candidate with the highest evidence, unless the most accurate one has significantly lower errors."""
    likely, accurate = _most_likely(candidates), _most_accurate(candidates)
    return accurate if significant(likely.errors - accurate.errors) else likely


def decide_by_aic(data: TrainingData, candidates: list[Candidate], side: SideStructure | None) -> Candidate:
    """Return the candidate with the lowest AIC of a fit to all tasks."""
    fitter = StructureFitter.of(data.statistics, data.seed(Draw.STRUCTURE_STARTS), side, data.groups)
    d = data.statistics.n_features

    def aic(candidate: Candidate) -> float:
        # The maximum of the likelihood, without shrinkage.
        structure = replace(candidate.structure, n_factors=None, pseudo_tasks=0.0)
        evidence = float(data.statistics.posterior(fitter.most_likely(structure)).log_evidence.sum())
        return np.inf if np.isnan(evidence) else 2.0 * structure.n_parameters(d) - 2.0 * evidence

    with single_threaded_blas():
        return min((c for c in candidates if c.scale == 1.0), key=aic)


def _best_ridge(data: TrainingData) -> Structure:
    """Return independent tasks with the ridge of highest evidence."""
    fitter = StructureFitter.of(data.statistics, data.seed(Draw.STRUCTURE_STARTS))
    structures = [Structure("independent", ridge=ridge) for ridge in RIDGES]
    with single_threaded_blas():
        return max(structures, key=lambda s: data.statistics.posterior(fitter.fit(s)).log_evidence.sum())


def _select_side(data: TrainingData) -> SideStructure | None:
    """Select the effects of side information in a plain mixed model, on a sample if there are many tasks.

    Features of the rows are not used: Γ would fit the noise of the rows.
    """
    if not data.has_side:
        return None
    order = np.random.default_rng(data.seed(Draw.SIDE_TASKS)).permutation(len(data))
    tasks = data.statistics.take(np.sort(order[:MOST_TASKS]))
    options: dict[str, Any] = {"has_intercept": data.settings.fit_intercept, "varying": data.settings.varying}
    return select_side(tasks, data.groups, **options)


def _fitter(data: TrainingData, fold: Fold, side: SideStructure | None) -> StructureFitter:
    seed = data.seed(Draw.STRUCTURE_STARTS, fold.number)
    return StructureFitter.of(
        data.statistics.take(fold.train), seed, side, data.groups, data.settings.fit_intercept
    )


def _prepare(
    data: TrainingData, fold: Fold, chains: list[list[Structure]], side: SideStructure | None
) -> FoldState:
    with single_threaded_blas():
        fitter = _fitter(data, fold, side)
        for plain in {structures[0].plain for structures in chains}:
            if plain is not None:
                fitter.fit(plain)
        return _fold_state(data, fold, fitter)


def _fold_state(data: TrainingData, fold: Fold, fitter: StructureFitter) -> FoldState:
    tasks, seed = data.tasks[fold.held_out], data.seed(Draw.HELD_OUT_ROWS, fold.number)
    episodes = data.settings.arrival.episodes(tasks, seed)
    held_out = data.statistics.take(fold.held_out)
    return FoldState(fitter, held_out, episodes, data.statistics_of(episodes.support))


def _score_chain(data: TrainingData, fold: FoldState, structures: list[Structure]) -> list[Candidate]:
    with single_threaded_blas():
        fitter = replace(fold.fitter, fitted=dict(fold.fitter.fitted))
        return [_score(data, fold, structure, fitter.fit(structure), 1.0) for structure in structures]


def _score(
    data: TrainingData, fold: FoldState, structure: Structure, fit: Mixture, scale: float
) -> Candidate:
    mixture = fit.scaled(scale)
    evidence = fold.held_out.posterior(mixture).log_evidence
    return Candidate(structure, scale, [mixture], _errors(data, fold, mixture), evidence)


def _errors(data: TrainingData, fold: FoldState, mixture: Mixture) -> Array:
    """Return the errors of the held-out tasks."""
    weights = fold.support.posterior(mixture, Want(means=True)).mean
    return data.errors(fold.episodes, data.predict(fold.episodes.query, weights), len(fold.held_out))


def count_components(data: TrainingData, side: SideStructure | None) -> tuple[int, bool]:
    """Return the number of components, and whether the prior has a mean, selected on held-out tasks.

    More components must raise the evidence by its standard error and lower the error.  Evidence alone would add
    components without end where coefficients are not Gaussian, and errors alone are too noisy with few tasks.
    """
    fold = data.folds[0]
    few = replace(fold, train=fold.train[:COUNTING_TASKS])
    fitter = _fitter(data, few, side)
    state = _fold_state(data, fold, fitter)

    def evaluate(model: Mixture) -> tuple[Array, float]:
        model = replace(model, side=fitter.side)
        errors = _errors(data, state, model)
        mean_error = float(np.nanmean(errors)) if len(errors) else 0.0
        return state.held_out.posterior(model).log_evidence, mean_error

    options: dict[str, Any] = {"max_iter": fitter.steps(few=30, many=30), "tol": 1e-6}
    singles = [fit_mixed_model(fitter.tasks, learn_mean=mean, **options) for mean in (False, True)]
    evaluated = [evaluate(model) for model in singles]
    learn_mean = bool(evaluated[1][0].mean() > evaluated[0][0].mean())
    (evidence, error), n_components, n_failures = evaluated[learn_mean], 1, 0

    def attempt(K: int, learn_mean: bool) -> tuple[Array, float]:
        short: dict[str, Any] = {"n_starts": 2, "short_iter": 4, "max_iter": 10, "learn_mean": learn_mean}
        seed = data.seed(Draw.COMPONENT_STARTS, K)
        mixture = fit_mixture(fitter.tasks, singles[learn_mean], K, seed=seed, **short)
        if data.has_side:
            mixture = fitter.with_gates(mixture, GATE_PENALTIES[0], max_iter=5, learn_mean=learn_mean)
        return evaluate(mixture)

    def is_better(new_evidence: Array, new_error: float) -> bool:
        gain = new_evidence - evidence
        likely = gain.mean() > gain.std() / np.sqrt(len(gain))
        return bool(likely and new_error < error * (1.0 - LEAST_GAIN))

    for K in COMPONENTS:
        if n_failures == 2 or len(few.train) < TASKS_PER_COMPONENT * K:
            break
        result = attempt(K, learn_mean)
        n_failures += 1
        if is_better(*result):
            n_components, n_failures, (evidence, error) = K, 0, result
    # Without a common mean, components may still have means: coefficients of a given length are close to ±m.
    twice = 2 * n_components
    enough = n_components > 1 and not learn_mean and len(few.train) >= TASKS_PER_COMPONENT * twice
    return (twice, True) if enough and is_better(*attempt(twice, True)) else (n_components, learn_mean)


def better_baseline(errors: Array, baselines: Mapping[str, Array]) -> str | None:
    """Return the name of the best baseline with significantly lower errors on the same tasks, if any."""
    if np.isfinite(errors).sum() < LEAST_COMPARED:
        return None
    better = [name for name, values in baselines.items() if significant(errors - values)]
    return min(better, key=lambda name: float(np.nanmean(baselines[name])), default=None)


def likely_cause(data: TrainingData) -> str:
    """Return advice for data on which a baseline is better: the most unusual column of X, or other causes."""
    statistics = data.statistics
    d, T = data.tasks.n_features, len(statistics)
    squares = statistics.gram[:, np.arange(d), np.arange(d)] / np.maximum(statistics.sizes, 1.0)[:, None]
    sizes = np.sqrt(squares[statistics.sizes > 0])
    if d and T > 1 and len(sizes):
        middle = np.median(sizes, axis=0)
        ratios = sizes.max(axis=0) / np.where(middle > 0, middle, np.inf)
        worst = int(ratios.argmax())
        if ratios[worst] > UNUSUAL:
            names = data.tasks.feature_names
            column = worst if names is None else repr(str(names[worst]))
            return (
                f"look at column {column} of X, which is {ratios[worst]:.0f} times as large in one task as in most: a "
                "label, or another unit?"
            )
    if not data.settings.fit_intercept:
        return "look at fit_intercept, which is False: targets have a level"
    return (
        "no column of X stands out: look at groups (are rows that belong together one task?) and at the columns of X, "
        "which may say nothing about y"
    )
