"""Which form of the prior, and which multiple of its τ: what explains and predicts held-out tasks best.

With few tasks, mean errors are noise and the log evidence of whole held-out tasks says more; with many, errors
decide what the user asked for.  So the form with the highest held-out evidence is taken, unless another one
has held-out errors that are lower by more than chance (`SIGNIFICANT` standard errors, paired by task).  With
fewer than `FEW_TASKS` even the evidence of held-out tasks is noise: the classical structures of a mixed model,
and "every task alone", are then compared by Akaike's criterion on all tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.progress import Stages
from .._utils.threads import single_threaded_blas
from ..gaussian.em import em, fit_mixed_model
from ..gaussian.mixture import Mixture, Want
from ..gaussian.rows import Tasks
from ..gaussian.side import SIDE_PENALTIES, SideFit, SideStructure, fit_side, side_structures
from ..gaussian.starts import fit_mixture
from ..gaussian.structures import (
    GATE_PENALTIES,
    RIDGES,
    Structure,
    StructureFitter,
    all_structures,
    simple_structures,
    varying_structures,
)
from ..tasks.episodes import Episodes
from .data import COMPONENT_STARTS, FORM_STARTS, HELD_OUT_ROWS, Fold, TrainingData
from .judging import mean_errors, significant, surpassed_by

Array = NDArray[np.float64]

#: Multiples of τ that calibration tries; 1 first, so that a tie leaves τ as it was learned.
SCALES = (1.0, 0.5, 0.7, 1.4, 2.0)
#: Below this number of tasks, none of them can be spared to choose on.
FEW_TASKS = 40
#: Log evidence of all held-out tasks that an effect of the description on the intercept must bring.
LEAST_EVIDENCE = 0.5
#: More components must lower the held-out error by this fraction.
LEAST_GAIN = 1e-3
#: Numbers of components tried, until two in a row do not help.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: Training tasks that a component needs to be tried, and how many are used to count components.
TASKS_PER_COMPONENT, COUNTING_TASKS = 10, 1200


@dataclass(frozen=True)
class Candidate:
    """A form with one multiple of τ, its fit to each fold's training tasks, and how it did on held-out tasks.

    ``errors`` and ``evidence`` have an entry for each held-out task of every fold; NaN where it has no rows.
    """

    form: Structure
    scale: float
    fits: list[Mixture]
    errors: Array
    evidence: Array

    @property
    def error(self) -> float:
        """Mean error; that of a set without rows is nothing."""
        found = self.errors[~np.isnan(self.errors)]
        return float(found.mean()) if len(found) else 0.0

    @property
    def mean_evidence(self) -> float:
        """Mean log evidence; that of a model which overflows on a task is the lowest there is."""
        return -np.inf if np.isnan(self.evidence).any() else float(np.mean(self.evidence))


@dataclass(frozen=True)
class Choice:
    """The chosen candidate, what the description may move, all that was tried, and where a fit to all tasks starts.

    ``own_means`` are errors of the held-out tasks when the mean of the rows given is all that is predicted.
    """

    best: Candidate
    side: SideStructure | None
    results: list[dict[str, Any]]
    starts: dict[Structure, Mixture]
    candidates: list[Candidate]
    own_means: Array
    surpassed_by: str | None = None  # what predicts held-out rows better, by more than chance, in words


def choose(data: TrainingData, stage: Stages) -> Choice:
    """Choose on held-out tasks: first whether the description helps, then the form and the scale."""
    with single_threaded_blas():
        parallel = joblib.Parallel(n_jobs=data.settings.n_jobs, require="sharedmem", return_as="generator")
        side: SideStructure | None = None
        results: list[dict[str, Any]] = []
        if len(data) == 1:
            # Nothing is shared with a single task: only "every task alone" can be judged by its own rows.
            listed = all_structures(1, False)[:1]
        else:
            stage.begin("description")
            side, results = _choose_side(data, parallel)
            if data.settings.varying is not None:
                listed = varying_structures(data.settings.varying, few=len(data) < FEW_TASKS)
            elif len(data) < FEW_TASKS:
                listed = [[_likely_alone(data)], *simple_structures(data.settings.fit_intercept)]
            else:
                stage.begin("counting components")
                counted = count_components(data, side)
                flags = {"has_intercept": data.settings.fit_intercept, "has_side": data.has_description}
                listed = all_structures(*counted, **flags)
        stage.begin("forms")
        jobs = (joblib.delayed(_prepare)(data, fold, listed, side) for fold in data.folds)
        boards = list(parallel(jobs))
        scored = []
        jobs = (joblib.delayed(_score)(data, board, forms) for board in boards for forms in listed)
        for entries in parallel(jobs):
            scored.append(entries)
            stage(1)
    n = len(listed)
    by_fold = [list(chain.from_iterable(scored[i : i + n])) for i in range(0, len(scored), n)]
    candidates = [_candidate(list(entries)) for entries in zip(*by_fold, strict=True)]
    few = 1 < len(data) < FEW_TASKS
    if not few:
        candidates += _rescaled(data, boards, candidates)
    results += [
        {**c.form.describe(), "scale": c.scale, "error": c.error, "evidence": c.mean_evidence}
        for c in candidates
    ]
    best = decide_by_criterion(data, candidates, side) if few else decide(candidates)
    own = np.concatenate([mean_errors(data, board.episodes, len(board.held_out)) for board in boards])
    rivals = {"the mean of their own rows": own}
    for pooled in (c for c in candidates if c.form.covariance == "none"):
        rivals["one fit to the rows of all tasks"] = pooled.errors
    starts = {c.form: c.fits[0] for c in candidates if c.scale == 1.0}
    return Choice(best, side, results, starts, candidates, own, surpassed_by(best.errors, rivals))


def _candidate(entries: list[Scored]) -> Candidate:
    """What the folds say of one form at one scale."""
    return Candidate(
        entries[0].form,
        entries[0].scale,
        [entry.mixture for entry in entries],
        np.concatenate([entry.errors for entry in entries]),
        np.concatenate([entry.evidence for entry in entries]),
    )


def _rescaled(data: TrainingData, boards: list[Board], candidates: list[Candidate]) -> list[Candidate]:
    """The two candidates that may win, with other multiples of their τ."""
    out = []
    for finalist in {id(c): c for c in (_evident(candidates), _accurate(candidates))}.values():
        for scale in _scales(data, finalist.form)[1:]:
            pairs = zip(boards, finalist.fits, strict=True)
            with single_threaded_blas():
                entries = [_scored(data, board, finalist.form, fit, scale) for board, fit in pairs]
            out.append(_candidate(entries))
    return out


def _evident(candidates: list[Candidate]) -> Candidate:
    unscaled = [candidate for candidate in candidates if candidate.scale == 1.0]
    return max(unscaled, key=lambda c: c.mean_evidence)


def _accurate(candidates: list[Candidate]) -> Candidate:
    return min(candidates, key=lambda c: c.error)


def decide(candidates: list[Candidate]) -> Candidate:
    """The highest evidence, unless the lowest error is lower than its error by more than chance."""
    evident, accurate = _evident(candidates), _accurate(candidates)
    return accurate if significant(evident.errors - accurate.errors) else evident


def decide_by_criterion(
    data: TrainingData, candidates: list[Candidate], side: SideStructure | None
) -> Candidate:
    """Akaike's criterion of the forms, fitted to all tasks."""
    n_linear = 0 if data.side is None else data.side.n_linear
    fitter = StructureFitter.of(data.statistics, data.seed(FORM_STARTS), side, n_linear)
    d = data.statistics.n_features

    def criterion(candidate: Candidate) -> float:
        # The likelihood's own maximum: what a form is shrunk by afterwards is not counted against it.
        form = replace(candidate.form, n_factors=None, pseudo_tasks=0.0)
        evidence = float(data.statistics.posterior(fitter.most_likely(form)).log_evidence.sum())
        return np.inf if np.isnan(evidence) else 2.0 * form.n_parameters(d) - 2.0 * evidence

    with single_threaded_blas():
        return min((c for c in candidates if c.scale == 1.0), key=criterion)


def _likely_alone(data: TrainingData) -> Structure:
    """Every task alone, with the ridge that is most likely for all of them."""
    fitter = StructureFitter.of(data.statistics, data.seed(FORM_STARTS))
    forms = [Structure("independent", ridge=ridge) for ridge in RIDGES]
    with single_threaded_blas():
        return max(forms, key=lambda form: data.statistics.posterior(fitter.fit(form)).log_evidence.sum())


def _choose_side(data: TrainingData, parallel: Any) -> tuple[SideStructure | None, list[dict[str, Any]]]:
    """What the description may move in a plain mixed model; None is nothing.

    Judged by the evidence of held-out tasks, which counts the first row of a task as much as the last.
    Features that read the task's rows are no description: Γ would learn the rows' own noise from them.
    """
    if not data.has_description:
        return None, []
    assert data.side is not None
    has_curves = data.side.n_linear < len(data.side.mean)
    options = side_structures(data.settings.fit_intercept, has_curves, data.settings.varying)
    by_fold = list(parallel(joblib.delayed(_side_evidence)(data, fold, options) for fold in data.folds))
    evidence = [np.concatenate(found) for found in zip(*by_fold, strict=True)]
    results: list[dict[str, Any]] = []
    for option, found in zip([None, *options], evidence, strict=True):
        described = {"penalty": None} if option is None else option.describe()
        mean = float(np.mean(found))
        results.append({"kind": "side information", **described, "error": -mean, "evidence": mean})
    # An effect on the intercept is what one would take for granted, and is shrunk where it is small: more evidence is
    # enough.  A later option, with more numbers to learn, must beat the best so far by more than chance.
    best = 0
    for first in range(1, len(evidence), len(SIDE_PENALTIES)):
        tried = range(first, first + len(SIDE_PENALTIES))
        likely = max(tried, key=lambda i: float(np.mean(evidence[i])))
        gain = evidence[likely] - evidence[best]
        plainest = first == 1 and options[0].intercept_only
        least = LEAST_EVIDENCE / len(gain) if plainest else gain.std() / np.sqrt(len(gain))
        if gain.mean() > least:
            best = likely
    return (options[best - 1] if best else None), results


def _side_evidence(data: TrainingData, fold: Fold, options: list[SideStructure]) -> list[Array]:
    """Log evidence of the held-out tasks without the description, and with each option, each from the one before."""
    assert data.side is not None
    with single_threaded_blas():
        train, held_out = (data.statistics.take(part) for part in (fold.train, fold.held_out))
        plain = fit_mixed_model(train, max_iter=30, tol=1e-6, varying=data.settings.varying)
        fit = SideFit(np.zeros((train.n_features, len(data.side.mean))), plain)
        out = [held_out.posterior(plain).log_evidence]
        for option in options:
            fit = fit_side(train, option, data.side.n_linear, fit)
            out.append(held_out.posterior(fit.model).log_evidence)
        return out


@dataclass(frozen=True)
class Board:
    """What all chains share in one fold: the plain mixed model, held-out tasks, and the episodes to predict."""

    fitter: StructureFitter
    held_out: Tasks
    episodes: Episodes
    support: Tasks


class Scored(NamedTuple):
    """A form's fit to one fold at one scale, and its errors and evidence on the held-out tasks."""

    form: Structure
    scale: float
    mixture: Mixture
    errors: Array
    evidence: Array


def _fitter(data: TrainingData, fold: Fold, side: SideStructure | None) -> StructureFitter:
    n_linear = 0 if data.side is None else data.side.n_linear
    return StructureFitter.of(
        data.statistics.take(fold.train), data.seed(FORM_STARTS, fold.number), side, n_linear
    )


def _prepare(
    data: TrainingData, fold: Fold, listed: list[list[Structure]], side: SideStructure | None
) -> Board:
    with single_threaded_blas():
        fitter = _fitter(data, fold, side)
        for plain in {forms[0].plain for forms in listed}:
            if plain is not None:
                fitter.fit(plain)
        return _board(data, fold, fitter)


def _board(data: TrainingData, fold: Fold, fitter: StructureFitter) -> Board:
    tasks, seed = data.tasks[fold.held_out], data.seed(HELD_OUT_ROWS, fold.number)
    episodes = data.settings.arrival.episodes(tasks, seed)
    held_out = data.statistics.take(fold.held_out)
    return Board(fitter, held_out, episodes, data.statistics_of(episodes.support))


def _score(data: TrainingData, board: Board, forms: list[Structure]) -> list[Scored]:
    with single_threaded_blas():
        fitter = replace(board.fitter, fitted=dict(board.fitter.fitted))
        return [_scored(data, board, form, fitter.fit(form), 1.0) for form in forms]


def _scored(data: TrainingData, board: Board, form: Structure, fit: Mixture, scale: float) -> Scored:
    mixture = fit.scaled(scale)
    evidence = board.held_out.posterior(mixture).log_evidence
    return Scored(form, scale, mixture, _errors(data, board, mixture), evidence)


def _errors(data: TrainingData, board: Board, mixture: Mixture) -> Array:
    """Errors of the held-out tasks."""
    prediction = data.predict(board.episodes.query, board.support.posterior(mixture, Want(means=True)).mean)
    return data.errors(board.episodes, prediction, len(board.held_out))


def _scales(data: TrainingData, form: Structure) -> tuple[float, ...]:
    # The ridge of independent tasks is a scale of τ already, and nothing times a scale is nothing.
    fixed = form.kind == "independent" or form.covariance == "none"
    return SCALES[:1] if fixed or not data.settings.calibrate else SCALES


def count_components(data: TrainingData, side: SideStructure | None) -> tuple[int, bool]:
    """How many components, and whether the prior has a mean, judged on held-out tasks.

    Evidence alone would count components without end where weights are not Gaussian, and errors alone are
    too noisy where tasks are few: more components must raise the one by its standard error and lower the
    other.
    """
    fold = data.folds[0]
    few = replace(fold, train=fold.train[:COUNTING_TASKS])
    fitter = _fitter(data, few, side)
    board = _board(data, fold, fitter)

    def judge(model: Mixture) -> tuple[Array, float]:
        # as it will be used
        model = replace(model, side=fitter.side)
        errors = _errors(data, board, model)
        return board.held_out.posterior(model).log_evidence, float(np.nanmean(errors)) if len(errors) else 0.0

    options: dict[str, Any] = {"max_iter": fitter.steps(few=30, many=30), "tol": 1e-6}
    singles = [fit_mixed_model(fitter.tasks, learn_mean=mean, **options) for mean in (False, True)]
    judged = [judge(model) for model in singles]
    learn_mean = bool(judged[1][0].mean() > judged[0][0].mean())
    (evidence, error), n_components, failures = judged[learn_mean], 1, 0

    def attempt(K: int, learn_mean: bool) -> tuple[Array, float]:
        short: dict[str, Any] = {"n_starts": 2, "short_iter": 4, "max_iter": 10, "learn_mean": learn_mean}
        seed = data.seed(COMPONENT_STARTS, K)
        mixture = fit_mixture(fitter.tasks, singles[learn_mean], K, seed=seed, **short)
        if data.has_description:
            options: dict[str, Any] = {"max_iter": 5, "learn_mean": learn_mean}
            mixture = em(fitter.tasks, mixture, gate_penalty=GATE_PENALTIES[0], **options).mixture
        return judge(mixture)

    def pays(found: Array, found_error: float) -> bool:
        gain = found - evidence
        likely = gain.mean() > gain.std() / np.sqrt(len(gain))
        return bool(likely and found_error < error * (1.0 - LEAST_GAIN))

    for K in COMPONENTS:
        if failures == 2 or len(few.train) < TASKS_PER_COMPONENT * K:
            break
        tried = attempt(K, learn_mean)
        failures += 1
        if pays(*tried):
            n_components, failures, (evidence, error) = K, 0, tried
    # Without a common mean, components may still have one each: where weights have a length, w and −w are two.
    twice = 2 * n_components
    enough = n_components > 1 and not learn_mean and len(few.train) >= TASKS_PER_COMPONENT * twice
    return (twice, True) if enough and pays(*attempt(twice, True)) else (n_components, learn_mean)
