"""Running the benchmark: one trial per (data set, method, seed, number of training tasks)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from ..._threads import single_threaded_blas
from ..._validation import check_choice
from ...progress import progress_bar
from ...tasks import TaskSet
from ...tasks.rows import mean_error
from ..files import make_folder, write_atomically
from .methods import METHODS, missing_program, predictions
from .suites import SUITES, Split

#: Support rows of the cold-start curve.
COLD_ROWS = (0, 1, 2, 5, 10)
#: Support rows that intervals are judged with (None: all), and the coverage they are asked for.
INTERVAL_ROWS, COVERAGE = (0, 5, None), 0.9
#: Methods of the curves against the number of training tasks, and how many of the seeds they take.
CURVE_METHODS, CURVE_SEEDS = ("ridge per task", "mixed model", "conditional"), 5

#: Seeds of the splits: the same for every data set, or by data set.
Seeds = Sequence[int] | Mapping[str, Sequence[int]]


class Trial(NamedTuple):
    """The name of a trial; ``n_train`` None: all training tasks."""

    suite: str
    method: str
    seed: int
    n_train: int | None = None

    @property
    def file(self) -> str:
        tasks = "all" if self.n_train is None else str(self.n_train)
        slug = "".join(c if c.isalnum() else "-" for c in self.method)
        return f"{self.suite}_{slug}_{self.seed}_{tasks}.json"


@dataclass(frozen=True)
class TrialResult:
    """Mean absolute error over the test tasks.

    ``clipped``: with predictions clipped to the target's known range (None where there is none).
    ``cold``: error after adapting on 0, 1, 2, 5, 10 random support rows.  ``seconds``: of the fit.
    ``coverage``: share of query rows inside their intervals, and the intervals' mean width, after adapting on
    0, 5 and all support rows; for methods that give intervals.
    ``row_error``, ``row_rmse``: mean absolute and root mean squared error over all query rows alike, where
    ``error`` is the mean over tasks.
    """

    error: float
    seconds: float
    clipped: float | None = None
    cold: dict[str, float] = field(default_factory=dict)
    coverage: dict[str, tuple[float, float]] = field(default_factory=dict)
    row_error: float | None = None
    row_rmse: float | None = None


class Finished(list[tuple[Trial, TrialResult]]):
    """The finished trials, and in ``skipped`` why a data set or a method was left out."""

    def __init__(self, trials: Iterable[tuple[Trial, TrialResult]], skipped: Mapping[str, str]) -> None:
        super().__init__(trials)
        self.skipped = dict(skipped)


def run_trial(trial: Trial, data: str | None = None) -> TrialResult:
    """Fit one method on one seed of one data set and score it on the test tasks."""
    split = SUITES[trial.suite].load(trial.seed, data)
    train = split.train if trial.n_train is None else split.train[: trial.n_train]
    method = METHODS[trial.method]()
    with single_threaded_blas():
        start = time.perf_counter()
        method.fit(train)
        seconds = time.perf_counter() - start
        predicted = predictions(method, split.support, split.query)
        cold = {}
        for rows in COLD_ROWS:
            fewer = _some_rows(split.support, rows, trial.seed)
            cold[str(rows)] = _error(predictions(method, fewer, split.query), split.query)
        coverage = _coverage(method, split, trial.seed) if getattr(method, "calibration_", None) else {}
    clipped = None
    if split.target_range is not None:
        clipped = _error(np.clip(predicted, *split.target_range), split.query)
    left = predicted - split.query.y
    return TrialResult(
        _error(predicted, split.query),
        seconds,
        clipped,
        cold,
        coverage,
        row_error=float(np.abs(left).mean()),
        row_rmse=float(np.sqrt(np.square(left).mean())),
    )


def _error(predicted: Any, query: TaskSet) -> float:
    return mean_error(np.abs(predicted - query.y), query.offsets)


def _coverage(method: Any, split: Split, seed: int) -> dict[str, tuple[float, float]]:
    """Means over tasks, by the number of support rows, of models as a user gets them."""
    out = {}
    for rows in INTERVAL_ROWS:
        support = split.support if rows is None else _some_rows(split.support, rows, seed)
        inside, widths = [], []
        for given, asked in zip(support, split.query, strict=True):
            described = {} if given.side_info is None else {"side_info": given.side_info}
            model = method.adapt(*((given.X, given.y) if len(given.y) else ()), **described)
            low, high = model.predict_interval(asked.X, COVERAGE).T
            inside.append(np.mean((low <= asked.y) & (asked.y <= high)))
            widths.append(np.mean(high - low))
        out["all" if rows is None else str(rows)] = (float(np.mean(inside)), float(np.mean(widths)))
    return out


def _some_rows(tasks: TaskSet, rows: int, seed: int) -> TaskSet:
    """The same tasks with at most ``rows`` random rows each; more rows contain fewer rows."""
    task = np.repeat(np.arange(len(tasks)), tasks.sizes)
    order = np.lexsort((np.random.default_rng([seed, 1]).random(len(task)), task))
    place = np.empty(len(task), dtype=int)
    place[order] = np.arange(len(task)) - tasks.offsets[task]
    return tasks.with_rows(place < rows, np.minimum(tasks.sizes, rows))


def list_trials(
    suites: Sequence[str], methods: Sequence[str], seeds: Seeds, task_counts: Sequence[int] = ()
) -> list[Trial]:
    """All trials, data set by data set; what does not apply to a data set is left out."""
    trials = []
    for suite in suites:
        applicable = [method for method in methods if method not in SUITES[suite].excludes]
        fewer = [n for n in task_counts if n < SUITES[suite].n_train]
        for place, seed in enumerate(seeds[suite] if isinstance(seeds, Mapping) else seeds):
            trials += [Trial(suite, method, seed) for method in applicable]
            if place < CURVE_SEEDS:
                in_curves = [method for method in applicable if method in CURVE_METHODS]
                trials += [Trial(suite, method, seed, n) for n in fewer for method in in_curves]
    return trials


def run_benchmark(
    suites: Sequence[str],
    methods: Sequence[str],
    seeds: Seeds,
    out: Path,
    *,
    task_counts: Sequence[int] = (),
    data: str | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Finished:
    """Run what is not there yet; finished trials are kept in ``out`` and reused.

    A data set without its local files, or a method without its program, is left out: the reason is printed on
    standard error and kept in ``skipped`` of the result.  What was finished elsewhere is shown all the same.

    Parameters
    ----------
    suites, methods : names in `SUITES` and `METHODS`
    seeds : of the splits, one sequence for all data sets or a mapping from data sets to theirs (`seeds_of`)
    out : Path
        Folder of the finished trials, one JSON file each.
    task_counts : also run `CURVE_METHODS` with only so many training tasks, where there are more, on the first
        `CURVE_SEEDS` seeds
    data : folder with the data sets instead of downloads
    """
    for name in suites:
        check_choice("data set", name, SUITES)
    for name in methods:
        check_choice("method", name, METHODS)
    make_folder(out)
    trials = list_trials(suites, methods, seeds, task_counts)
    missing = [trial for trial in trials if _read(out / trial.file) is None]
    skipped = _cannot_run(missing, data)
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}", file=sys.stderr)
    missing = [trial for trial in missing if trial.suite not in skipped and trial.method not in skipped]
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    with progress_bar("Benchmark", len(missing), enabled=progress) as tick:
        for _ in parallel(joblib.delayed(_run_and_store)(trial, out, data) for trial in missing):
            if tick is not None:
                tick(1)
    results = [(trial, _read(out / trial.file)) for trial in trials]
    return Finished(((trial, result) for trial, result in results if result is not None), skipped)


def _cannot_run(trials: Sequence[Trial], data: str | None) -> dict[str, str]:
    """Why, by data set and method, some of these trials cannot be run here."""
    reasons = {suite: SUITES[suite].missing(data) for suite in dict.fromkeys(trial.suite for trial in trials)}
    there = [trial for trial in trials if reasons[trial.suite] is None]
    reasons |= {name: missing_program(name) for name in dict.fromkeys(trial.method for trial in there)}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _run_and_store(trial: Trial, out: Path, data: str | None) -> None:
    result = run_trial(trial, data)
    write_atomically(out / trial.file, (json.dumps(asdict(result)) + "\n").encode())


def _read(path: Path) -> TrialResult | None:
    """A finished trial, or None where there is none that can be read."""
    try:
        return TrialResult(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
