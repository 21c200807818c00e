"""Finished trials as tables ask for them, and the statistics of pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .run import Trial, TrialResult

Array = NDArray[np.float64]
Results = Sequence[tuple[Trial, TrialResult]]


@dataclass(frozen=True)
class Report:
    """All that the page is written from.

    Attributes
    ----------
    results : list of (Trial, TrialResult)
    before : dict
        Trials of the recommended learner of an earlier version, by data set and seed.
    recipe : list
        Lines of the table of cross-validation.
    figures : dict
        Paths of the figures, from the page, by kind ("rows", "tasks").
    skipped : dict
        Why a data set or a method was left out.
    """

    results: Results
    before: Mapping[str, Mapping[int, TrialResult]] = field(default_factory=dict)
    recipe: Sequence[Mapping[str, float | str]] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def suites(self) -> list[str]:
        """Data sets of which there is any trial, in order."""
        return list(dict.fromkeys(trial.suite for trial, _ in self.results))

    def of(self, suite: str, method: str) -> dict[int, TrialResult]:
        """Results of a method on all training tasks of a data set, by seed."""
        return {
            trial.seed: result
            for trial, result in self.results
            if (trial.suite, trial.method, trial.n_train) == (suite, method, None)
        }


class Mean(NamedTuple):
    """A mean over seeds and its standard error (not a number for a single seed)."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        array = np.array(list(values), dtype=float)
        n = len(array)
        return cls(float(array.mean()), float(array.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan"))


class Ratio(NamedTuple):
    """Geometric mean of ratios of errors on the same seeds.

    ``error`` is its standard error, ``upper`` its one-sided 95 % limit from Student's t over the log ratios (not a
    number for a single seed).
    """

    n: int
    value: float
    error: float
    upper: float

    @classmethod
    def of(cls, ours: Iterable[float], theirs: Iterable[float]) -> Ratio:
        from scipy import stats

        logs = np.log(np.array(list(ours))) - np.log(np.array(list(theirs)))
        mean, n = float(logs.mean()), len(logs)
        if n < 2:
            return cls(n, float(np.exp(mean)), float("nan"), float("nan"))
        error = float(logs.std(ddof=1) / np.sqrt(n))
        upper = float(np.exp(mean + stats.t.ppf(0.95, n - 1) * error))
        return cls(n, float(np.exp(mean)), float(np.exp(mean)) * error, upper)


def pairs(
    ours: Mapping[int, TrialResult], theirs: Mapping[int, TrialResult]
) -> tuple[list[TrialResult], list[TrialResult]]:
    """Results on the seeds that both have."""
    seeds = sorted(set(ours) & set(theirs))
    return [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]


def calibrated_levels(found: Sequence[TrialResult]) -> list[str]:
    """Numbers of rows that intervals are calibrated at and judged with, on most seeds; the largest is "most"."""
    levels = [str(n) for one in found for n in one.calibrated[:-1] if str(n) in one.coverage]
    levels += ["most" for one in found if one.calibrated and "most" in one.coverage]
    return [level for level in dict.fromkeys(levels) if levels.count(level) > len(found) / 2]


# --- how numbers are written


def change(ratio: float) -> str:
    """A ratio as a change in percent; nothing where there is none."""
    return "" if np.isnan(ratio) else f"{100 * (ratio - 1):+.2f} %"


def change_with_error(ratio: Ratio) -> str:
    if np.isnan(ratio.error):
        return change(ratio.value)
    return f"{100 * (ratio.value - 1):+.2f} ± {100 * ratio.error:.2f} %"


def percent(mean: Mean) -> str:
    """A share as a percentage with its standard error."""
    shown = f"{100 * mean.value:.1f}"
    return f"{shown} %" if np.isnan(mean.error) else f"{shown} ± {100 * mean.error:.1f} %"


def seconds(results: Iterable[TrialResult]) -> str:
    """The median of the fits."""
    return f"{np.nanmedian([result.seconds for result in results]):.1f} s"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; nothing without lines."""
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    if not rows:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *rows]) + "\n"


def section(title: str, about: str, body: str) -> str:
    """A title, a paragraph and a table; nothing without the table."""
    return f"## {title}\n\n{about.strip()}\n\n{body}" if body else ""
