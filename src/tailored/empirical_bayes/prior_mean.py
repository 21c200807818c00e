"""The conditional part of b(s): learned on query rows, its penalty chosen on held-out tasks.

A change of the prior mean moves the weights of a task with no rows as it is and those of a task with many
rows hardly at all.  What is learned at one number of rows is therefore wrong at another, and one B is
learned for each of a few levels; `PosteriorMap` lets them hand over to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from .._utils.threads import single_threaded_blas
from ..feature_maps import TaskSummary
from ..gaussian.mixture import Mixture, Want
from ..gaussian.moments import influence
from ..tasks import TaskSet
from ..tasks.episodes import Episodes, SupportSampling
from ..tasks.rows import BATCH_FLOATS
from .data import ALL_BIAS_ROWS, BIAS_ROWS, HELD_OUT_ROWS, MANY_TASKS, Fold, TrainingData
from .judging import significant
from .query_risk import PENALTIES, QueryBias

Array = NDArray[np.float64]
Tick = Callable[[int], None]

#: The conditional bias must lower the held-out error by this fraction.
LEAST_GAIN = 1e-3
#: Standard errors that the gain must have, and the tasks that it takes to tell.
PROBABLE, LEAST_TASKS = 1.0, 50
#: Penalties in a row without a gain after which the path ends.
PATIENCE = 3
#: Tasks that B is learned from at most.
BIAS_TASKS = 5000


@dataclass(frozen=True)
class LevelBias:
    """B (d, 1 + m) for the features (1, ψ) of tasks with about ``rows`` rows; None where it does not pay.

    In the units of the training tasks.  ``errors`` are those of the held-out tasks with this B.
    """

    rows: int
    B: Array | None
    summary: TaskSummary | None
    penalty: float | None
    errors: Array

    @property
    def error(self) -> float:
        return _mean(self.errors)


@dataclass(frozen=True)
class Path:
    """Where a fold stands on the path of penalties."""

    train: QueryBias
    held_out: QueryBias
    episodes: Episodes
    n_tasks: int
    summary: TaskSummary
    B: Array | None = None


@dataclass(frozen=True)
class LearnedBias:
    """The B of every level, by increasing number of rows.

    ``levels`` are learned from all tasks, ``folds[i]`` with the same penalties from those of fold i alone, and
    ``results`` are the errors of all that was tried.
    """

    levels: list[LevelBias]
    folds: list[list[LevelBias]]
    results: list[dict[str, Any]]


def learn_bias(data: TrainingData, model: Mixture, fits: list[Mixture], tick: Tick) -> LearnedBias:
    """Learn the B of every level; ``model`` is fitted to all tasks, ``fits`` are those of the folds.

    No level where fewer than `LEAST_TASKS` tasks could say whether it pays, or fewer than there are columns: B has d² numbers.
    """
    learned = LearnedBias([], [[] for _ in fits], [])
    asked = sum(len(fold.held_out) for fold in data.folds)
    if asked < LEAST_TASKS or len(data) <= data.statistics.n_features:
        return learned
    for rows in support_sizes(data.tasks, data.settings.arrival):
        in_folds, results = _choose_penalty(data, fits, rows, tick)
        learned.levels.append(_learn_level(data, model, in_folds[0]))
        for fold, level in zip(learned.folds, in_folds, strict=True):
            fold.append(level)
        learned.results.extend(results)
    return learned


def support_sizes(tasks: TaskSet, arrival: SupportSampling) -> list[int]:
    """Numbers of rows at which a B is learned; the last stands for tasks as they will come and all larger ones."""
    low, high = arrival.rows(tasks.sizes)
    if arrival.support is not None:
        return sorted({0, round(low), round(high)})
    return sorted({0, round(high / 4), round(high * 3 / 4)})


def _learn_level(data: TrainingData, model: Mixture, chosen: LevelBias) -> LevelBias:
    """B from all tasks, with the penalty that was chosen in the folds."""
    if chosen.penalty is None:
        return chosen
    with single_threaded_blas():
        order = np.random.default_rng(data.seed(ALL_BIAS_ROWS)).permutation(len(data))
        learned_from = data.tasks[np.sort(order[:BIAS_TASKS])]
        more = 2 if len(data) < MANY_TASKS else 1
        episodes = _episodes(data, learned_from, chosen.rows, data.seed(ALL_BIAS_ROWS, 1), more)
        problem, summary = query_bias(data, episodes, model, None)
        B: Array | None = None
        for value in PENALTIES:
            if value >= chosen.penalty:
                B = problem.fit(value, B)
        assert B is not None
        B = problem.settle(chosen.penalty, B)
    return replace(chosen, B=B, summary=summary)


def _episodes(data: TrainingData, chosen: TaskSet, rows: int, seed: list[int], more: int = 1) -> Episodes:
    arrival = data.settings.arrival
    if rows == support_sizes(data.tasks, arrival)[-1]:
        return arrival.episodes(chosen, seed, more)
    return arrival.draw(chosen, rows, seed, 2 * more)


def _choose_penalty(
    data: TrainingData, fits: list[Mixture], rows: int, tick: Tick
) -> tuple[list[LevelBias], list[dict[str, Any]]]:
    """Follow the path of penalties in all folds until it stops paying; each fold's B there, and the path.

    What was learned is used where held-out tasks gain by `LEAST_GAIN` and by more than chance.
    """
    with single_threaded_blas():
        parallel = joblib.Parallel(n_jobs=data.settings.n_jobs, require="sharedmem")
        jobs = zip(data.folds, fits, strict=True)
        paths: list[Path] = parallel(joblib.delayed(_start)(data, fold, fit, rows) for fold, fit in jobs)
        without = np.concatenate([_errors(data, path, path.held_out.prediction) for path in paths])
        results: list[dict[str, Any]] = []
        results.append({"kind": "conditional bias", "rows": rows, "penalty": None, "error": _mean(without)})
        best, best_errors, best_paths, failures = results[0], without, paths, 0
        for penalty in PENALTIES:
            if failures == PATIENCE:
                break
            done = parallel(joblib.delayed(_advance)(data, path, penalty) for path in paths)
            paths = [path for path, _ in done]
            errors = np.concatenate([each for _, each in done])
            found = {"penalty": penalty, "error": _mean(errors)}
            results.append({"kind": "conditional bias", "rows": rows, **found})
            failures += 1
            if results[-1]["error"] < best["error"]:
                best, best_errors, best_paths, failures = results[-1], errors, paths, 0
            tick(1)
    start = results[0]["error"]
    if best["error"] >= start * (1.0 - LEAST_GAIN) or not significant(without - best_errors, PROBABLE):
        return [LevelBias(rows, None, None, None, without) for _ in fits], results
    return [LevelBias(rows, p.B, p.summary, best["penalty"], best_errors) for p in best_paths], results


def _mean(errors: Array) -> float:
    found = errors[~np.isnan(errors)]
    return float(found.mean()) if len(found) else 0.0


def _errors(data: TrainingData, path: Path, prediction: Array) -> Array:
    return data.errors(path.episodes, prediction, path.n_tasks)


def _start(data: TrainingData, fold: Fold, fit: Mixture, rows: int) -> Path:
    with single_threaded_blas():
        seeds = data.seed(BIAS_ROWS, fold.number), data.seed(HELD_OUT_ROWS, fold.number)
        trained, held_out = (
            _episodes(data, data.tasks[part], rows, seed)
            for part, seed in zip((fold.train, fold.held_out), seeds, strict=True)
        )
        train, summary = query_bias(data, trained, fit, None)
        asked = query_bias(data, held_out, fit, summary)[0]
        return Path(train, asked, held_out, len(fold.held_out), summary)


def _advance(data: TrainingData, path: Path, penalty: float) -> tuple[Path, Array]:
    with single_threaded_blas():
        B = path.train.fit(penalty, path.B)
        return replace(path, B=B), _errors(data, path, path.held_out.predict(B))


def query_bias(
    data: TrainingData, episodes: Episodes, model: Mixture, summary: TaskSummary | None
) -> tuple[QueryBias, TaskSummary]:
    """The problem of learning B on these episodes; ψ is fitted on them unless it is given."""
    d, query_rows = data.statistics.n_features, episodes.query
    directions, prediction = np.empty((len(query_rows.y), d)), np.empty(len(query_rows.y))
    features: list[Array] = []
    size = max(1, BATCH_FLOATS // d**2)
    for start in range(0, len(query_rows), size):
        support, query = (part[start : start + size] for part in episodes[:2])
        statistics = data.statistics_of(support)
        expected = statistics.posterior(model, Want(means=True, covariances=True))
        weights, R = expected.mean, influence(statistics, model, expected.covariances)
        if summary is None:
            # The first batch has plenty of tasks for means and scales.
            with_side = data.side is not None and not data.side.from_description
            summary = TaskSummary.fit(model, statistics, weights, with_side)
        psi = summary(statistics, weights)
        features.append(np.repeat(np.hstack([np.ones((len(psi), 1)), psi]), query.sizes, axis=0))
        X = data.units.dense(query.X)
        rows = slice(query_rows.offsets[start], query_rows.offsets[start] + len(X))
        prediction[rows] = data.predict(query, weights)
        moved = directions[rows]
        for t, (first, end) in enumerate(pairwise(query.offsets)):
            np.matmul(X[first:end], R[t], out=moved[first:end])
        moved *= data.units.target
        if data.settings.varying is not None:
            # Rows of B that move nothing stay zero: these weights are the same in all tasks.
            moved[:, ~np.isin(np.arange(d), data.settings.varying)] = 0.0
    assert summary is not None
    weight = 1.0 / (np.repeat(query_rows.sizes, query_rows.sizes) * len(query_rows))
    problem = QueryBias(
        directions,
        np.concatenate(features),
        prediction,
        query_rows.y,
        weight,
        data.settings.loss,
        data.units.target,
    )
    return problem, summary
