"""Running the benchmark: one trial per (data set, method, seed, number of training tasks)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tailored._utils.progress import progress_bar
from tailored._utils.threads import single_threaded_blas
from tailored._utils.validation import check_choice

from ..files import make_folder, write_atomically
from ..parallel import in_any_order
from . import measures
from .methods import METHODS, predictions
from .suites import SUITES

#: Seeds of the splits: the same for every data set, or by data set.
Seeds = Sequence[int] | Mapping[str, Sequence[int]]


class Trial(NamedTuple):
    """The name of a trial."""

    suite: str
    method: str
    seed: int

    @property
    def file(self) -> str:
        slug = "".join(c if c.isalnum() else "-" for c in self.method)
        return f"{self.suite}_{slug}_{self.seed}_all.json"


@dataclass(frozen=True)
class TrialResult:
    """What was measured on the new tasks; numbers of support rows are keys of the dicts."""

    #: Mean over tasks of the mean absolute error, after adapting on all support rows.
    error: float
    #: Processor seconds of the fit, including programs that it starts; NaN if not measured.
    seconds: float
    #: The error of predictions clipped to the known range of the target.
    clipped: float | None = None
    #: The error after adapting on few support rows.
    cold: dict[str, float] = field(default_factory=dict)
    #: Share of query rows inside their intervals, and mean width.  "most" is the largest calibrated
    #: number of rows.
    coverage: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: Mean absolute and root mean squared error over all query rows.
    row_error: float | None = None
    row_rmse: float | None = None
    #: The numbers of rows that the intervals are calibrated at.
    calibrated: list[int] = field(default_factory=list)
    #: Mean over tasks of ‖ŵ − w‖, after adapting on all support rows; None if the true weights are
    #: not known.
    weight_error: float | None = None


class Finished(list[tuple[Trial, TrialResult]]):
    """The finished trials, and in ``skipped`` why a data set or a method was left out."""

    def __init__(
        self, trials: Iterable[tuple[Trial, TrialResult]], skipped: Mapping[str, str]
    ) -> None:
        super().__init__(trials)
        self.skipped = dict(skipped)


def run_trial(trial: Trial, data: str | None = None) -> TrialResult:
    """Fit one method on one seed of one data set and score it on the test tasks."""
    suite = SUITES[trial.suite]
    split = suite.load(trial.seed, data)
    method = METHODS[trial.method].make(split)
    with single_threaded_blas():
        start = _processor_seconds()
        method.fit(split.train)
        seconds = _processor_seconds() - start
        predicted = predictions(method, split.support, split.query)
        cold = measures.cold_errors(method, split, suite.cold_rows, trial.seed)
        calibrated = measures.calibrated_rows(method)
        known_rows = suite.cold_rows if split.oracle else ()
        covered = measures.coverage(method, split, known_rows, trial.seed) if calibrated else {}
    clipped = None
    if split.target_range is not None:
        clipped = measures.error(np.clip(predicted, *split.target_range), split.query)
    left = predicted - split.query.y
    return TrialResult(
        measures.error(predicted, split.query),
        seconds,
        clipped,
        cold,
        covered,
        float(np.abs(left).mean()),
        float(np.sqrt(np.square(left).mean())),
        calibrated,
        measures.weight_error(method, split),
    )


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def list_trials(suites: Sequence[str], methods: Sequence[str], seeds: Seeds) -> list[Trial]:
    """All trials, data set by data set; what does not apply to a data set is left out."""
    trials = []
    for suite in suites:
        applicable = [method for method in methods if applies(method, suite)]
        for place, seed in enumerate(seeds[suite] if isinstance(seeds, Mapping) else seeds):
            for method in applicable:
                most = METHODS[method].most_seeds
                if most is None or place < most:
                    trials.append(Trial(suite, method, seed))
    return trials


def applies(method: str, suite: str) -> bool:
    """Whether a method is run on a data set."""
    known = SUITES[suite]
    return method in known.also if METHODS[method].is_asked else method not in known.excludes


def run_benchmark(
    suites: Sequence[str],
    methods: Sequence[str],
    seeds: Seeds,
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int | None = None,
    progress: bool = False,
    only_finished: bool = False,
) -> Finished:
    """Run what is not there yet; finished trials are kept in ``out`` and reused.

    A data set without its local files, or a method without its program, is left out: the reason is
    printed on standard error and kept in ``skipped`` of the result.  ``only_finished`` runs
    nothing.
    """
    for name in suites:
        check_choice("data set", name, SUITES)
    for name in methods:
        check_choice("method", name, METHODS)
    make_folder(out)
    trials = list_trials(suites, methods, seeds)
    if only_finished:
        return Finished(finished(trials, out), {})
    missing = [trial for trial in trials if read(out / trial.file) is None]
    skipped = _cannot_run(missing, data)
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}", file=sys.stderr)
    missing = [
        trial for trial in missing if trial.suite not in skipped and trial.method not in skipped
    ]
    cells = [(trial, out, data) for trial in missing]
    with progress_bar("Benchmark", len(missing), enabled=progress) as tick:
        for _ in in_any_order(_run_and_store, cells, n_jobs):
            if tick is not None:
                tick(1)
    return Finished(finished(trials, out), skipped)


def finished(trials: Iterable[Trial], folder: Path) -> list[tuple[Trial, TrialResult]]:
    """Those of the trials that lie in a folder."""
    results = [(trial, read(folder / trial.file)) for trial in trials]
    return [(trial, result) for trial, result in results if result is not None]


def _cannot_run(trials: Sequence[Trial], data: str | None) -> dict[str, str]:
    """Why, by data set and method, some of these trials cannot be run here."""
    reasons = {
        suite: SUITES[suite].missing(data)
        for suite in dict.fromkeys(trial.suite for trial in trials)
    }
    there = [trial for trial in trials if reasons[trial.suite] is None]
    reasons |= {
        name: METHODS[name].missing() for name in dict.fromkeys(trial.method for trial in there)
    }
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _run_and_store(trial: Trial, out: Path, data: str | None) -> None:
    result = run_trial(trial, data)
    write_atomically(out / trial.file, (json.dumps(asdict(result)) + "\n").encode())


def read(path: Path) -> TrialResult | None:
    """Return a finished trial; None if there is no file, or (with a warning) none that can be
    read.
    """
    if not path.exists():
        return None
    try:
        return TrialResult(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        print(f"warning: {path} is damaged ({error}); it is computed again", file=sys.stderr)
        return None
