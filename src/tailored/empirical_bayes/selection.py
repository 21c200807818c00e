"""Which form of the prior, and which multiple of its τ: what predicts held-out tasks best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from .._threads import single_threaded_blas
from ..mixed_models import Mixture, TaskStatistics, adapt, fit_mixed_model, fit_mixture
from ..mixed_models.forms import Form, FormFitter, chains
from ..mixed_models.side import SIDE_PENALTIES
from ..tasks import TaskSet
from ..tasks.episodes import draw, rotate
from .data import COMPONENT_STARTS, FORM_STARTS, HELD_OUT_ROWS, Fold, TrainingData

Array = NDArray[np.float64]

#: Multiples of τ that calibration tries; 1 first, so that a tie leaves τ as it was learned.
SCALES = (1.0, 0.5, 0.7, 1.4, 2.0)
#: A multiple other than 1, and more components, must lower the held-out error by this fraction.
LEAST_GAIN = 1e-3
#: Γ has many parameters, and must lower the product of the errors with and without rows by this fraction.
SIDE_GAIN = 1e-2
#: Numbers of components tried, until two in a row do not help.
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
#: Training tasks that a component needs to be tried, and how many are used to count components.
TASKS_PER_COMPONENT, COUNTING_TASKS = 10, 1200


@dataclass(frozen=True)
class Candidate:
    """A form with one multiple of τ, its held-out error, and its fit to each fold's training tasks."""

    form: Form
    scale: float
    error: float
    fits: list[Mixture]

    @property
    def handicapped(self) -> float:
        return self.error if self.scale == 1.0 else self.error * (1.0 + LEAST_GAIN)


@dataclass(frozen=True)
class Choice:
    """The best candidate (the simplest of equals), the penalty on Γ, and the errors of all that was tried."""

    best: Candidate
    side_penalty: float | None
    results: list[dict[str, Any]]


def choose(data: TrainingData, tick: Callable[[int], None] | None) -> Choice:
    """Choose on held-out tasks: first whether the description helps, then the form and the scale."""
    with single_threaded_blas():
        parallel = joblib.Parallel(n_jobs=data.settings.n_jobs, prefer="threads", return_as="generator")
        side_penalty: float | None = None
        results: list[dict[str, Any]] = []
        if len(data) == 1:
            # Nothing is shared with a single task: only "every task alone" can be judged by its own rows.
            listed = chains(1, False)[:1]
        else:
            side_penalty, results = _choose_side(data, parallel)
            listed = chains(*count_components(data, side_penalty))
        jobs = (joblib.delayed(_prepare)(data, fold, listed, side_penalty) for fold in data.folds)
        boards = list(parallel(jobs))
        scored = []
        jobs = (joblib.delayed(_score)(data, board, chain) for board in boards for chain in listed)
        for entries in parallel(jobs):
            scored.append(entries)
            if tick is not None:
                tick(1)
    n = len(listed)
    by_fold = [list(chain.from_iterable(scored[i : i + n])) for i in range(0, len(scored), n)]
    candidates = []
    for entries in zip(*by_fold, strict=True):
        form, fits = entries[0].form, [entry.mixture for entry in entries]
        errors = np.mean([entry.errors for entry in entries], axis=0)
        for scale, error in zip(_scales(data, form), errors, strict=True):
            candidates.append(Candidate(form, scale, float(error), fits))
    results += [{**c.form.describe(), "scale": c.scale, "error": c.error} for c in candidates]
    return Choice(min(candidates, key=lambda candidate: candidate.handicapped), side_penalty, results)


def _choose_side(data: TrainingData, parallel: Any) -> tuple[float | None, list[dict[str, Any]]]:
    """The penalty on Γ that serves a plain mixed model best; None is "no Γ".

    Judged with rows to adapt on and without, where a description matters most: by the product of the errors.
    Features that read the task's rows are no description: Γ would learn the rows' own noise from them.
    """
    if data.side is None or not data.side.from_description:
        return None, []
    form = Form("mixed model", learn_mean=True)
    results: list[dict[str, Any]] = []
    for penalty in (None, *SIDE_PENALTIES):
        jobs = (joblib.delayed(_prepare)(data, fold, [[form]], penalty) for fold in data.folds)
        errors = []
        for fold, board in zip(data.folds, parallel(jobs), strict=True):
            without = draw(data.tasks[fold.held_out], 0, data.seed(HELD_OUT_ROWS, fold.number))
            cold = Board(board.fitter, without.query, data.statistics_of(without.support))
            errors.append([_errors(data, each, board.fitter.fit(form), (1.0,))[0] for each in (board, cold)])
        error, cold_error = np.mean(errors, axis=0).tolist()
        errors_found = {"error": error, "error without rows": cold_error}
        results.append({"kind": "side information", "penalty": penalty, **errors_found})
    products = [entry["error"] * entry["error without rows"] for entry in results]
    best = int(np.argmin(products))
    return results[best if products[best] < products[0] * (1.0 - SIDE_GAIN) else 0]["penalty"], results


@dataclass(frozen=True)
class Board:
    """What all chains share in one fold: the plain mixed model, and the episodes to predict."""

    fitter: FormFitter
    query: TaskSet
    support: TaskStatistics


class Scored(NamedTuple):
    """A form's fit to one fold and its held-out error at every scale."""

    form: Form
    mixture: Mixture
    errors: list[float]


def _prepare(data: TrainingData, fold: Fold, listed: list[list[Form]], side_penalty: float | None) -> Board:
    with single_threaded_blas():
        seed = data.seed(FORM_STARTS, fold.number)
        fitter = FormFitter.of(data.statistics.take(fold.train), seed, side_penalty)
        for plain in {forms[0].plain for forms in listed}:
            if plain is not None:
                fitter.fit(plain)
        return _board(data, fold, fitter)


def _board(data: TrainingData, fold: Fold, fitter: FormFitter) -> Board:
    episodes = rotate(data.tasks[fold.held_out], data.seed(HELD_OUT_ROWS, fold.number))
    return Board(fitter, episodes.query, data.statistics_of(episodes.support))


def _score(data: TrainingData, board: Board, forms: list[Form]) -> list[Scored]:
    with single_threaded_blas():
        fitter = replace(board.fitter, fitted=dict(board.fitter.fitted))
        out = []
        for form in forms:
            mixture = fitter.fit(form)
            out.append(Scored(form, mixture, _errors(data, board, mixture, _scales(data, form))))
        return out


def _errors(data: TrainingData, board: Board, mixture: Mixture, scales: tuple[float, ...]) -> list[float]:
    """Held-out errors at every multiple of τ."""
    _, tau, b = mixture.prior(board.support)
    predictions = (data.predict(board.query, adapt(scale * tau, b, board.support)) for scale in scales)
    return [data.error(board.query, prediction) for prediction in predictions]


def _scales(data: TrainingData, form: Form) -> tuple[float, ...]:
    # The ridge of independent tasks is a scale of τ already.
    return SCALES if data.settings.calibrate and form.kind != "independent" else SCALES[:1]


def count_components(data: TrainingData, side_penalty: float | None) -> tuple[int, bool]:
    """How many components, and whether the prior has a mean, judged on held-out tasks.

    Evidence alone would count components without end where weights are not Gaussian, and errors alone are
    too noisy where tasks are few: more components must raise the one by its standard error and lower the
    other.
    """
    fold = data.folds[0]
    train = data.statistics.take(fold.train[:COUNTING_TASKS])
    held_out = data.statistics.take(fold.held_out)
    fitter = FormFitter.of(train, data.seed(COMPONENT_STARTS), side_penalty)
    board = _board(data, fold, fitter)

    def judge(model: Mixture) -> tuple[Array, float]:
        model = replace(model, side=fitter.side)
        return model.expect(held_out).log_evidence, _errors(data, board, model, (1.0,))[0]

    singles = [
        fit_mixed_model(fitter.statistics, max_iter=100, tol=1e-6, learn_mean=mean) for mean in (False, True)
    ]
    judged = [judge(model) for model in singles]
    learn_mean = bool(judged[1][0].mean() > judged[0][0].mean())
    (evidence, error), n_components, failures = judged[learn_mean], 1, 0
    short: dict[str, Any] = {"n_starts": 2, "short_iter": 6, "max_iter": 15, "learn_mean": learn_mean}
    for K in COMPONENTS:
        if failures == 2 or len(train) < TASKS_PER_COMPONENT * K:
            break
        seed = data.seed(COMPONENT_STARTS, K)
        found, found_error = judge(fit_mixture(fitter.statistics, singles[learn_mean], K, seed=seed, **short))
        gain = found - evidence
        failures += 1
        if gain.mean() > gain.std() / np.sqrt(len(gain)) and found_error < error * (1.0 - LEAST_GAIN):
            n_components, failures, evidence, error = K, 0, found, found_error
    return n_components, learn_mean
