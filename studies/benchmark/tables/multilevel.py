"""Multilevel sets against lme4: with rows at random, in the order of time, and with a common part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..methods import COMMON, IN_ORDER, METHODS, OURS, PAIRED, is_baseline, label
from ..results import (
    Mean,
    Ratio,
    Report,
    TrialResult,
    change,
    change_with_error,
    pairs,
    percent,
    seconds,
    section,
    table,
)
from ..suites import SUITES

_ABOUT = """
A quarter of the groups, at least five, is new; some rows of each are given, drawn at random, and the others are
predicted. lme4 chooses by AIC between a random intercept, uncorrelated and full slopes, all with the columns and the
description as fixed effects; new groups by the best linear predictor from its estimates. Numbers are geometric means
over the same splits of (error / lme4's error), less one: MAE is the mean over groups of the mean absolute error, RMSE
that over all predicted rows; the upper limits are one-sided (95 %, Student's t over the log ratios of the splits).
Splits of one data set share groups, so that the limits are optimistic. Times are medians of processor seconds; lme4's include the start of R.
"""

_TIME = """
The first rows of a new group are given and the later ones predicted; the rest as above. Told so, the learner selects and
calibrates on first rows as well (`order="given"`, `support` the number of rows). Coverage is that of its 90 % intervals
after these rows, ± standard error over splits.
"""

_COMMON = """
`common="auto"` tries boosting for what all groups share on held-out groups, and keeps it where it pays. Ratios of its errors
to those of the default, on the same splits, ± standard error.
"""


@dataclass(frozen=True)
class Compared:
    """Errors of one method over those of another on the same splits of one data set."""

    suite: str
    method: str
    error: Ratio
    rmse: Ratio
    ours: Sequence[TrialResult]
    theirs: Sequence[TrialResult]


def compare(report: Report, suite: str, method: str, other: str) -> Compared | None:
    """The ratios; None without a split that both have."""
    # Trials of an earlier run may know no errors over rows.
    found = (
        {s: r for s, r in report.of(suite, m).items() if r.row_rmse is not None} for m in (method, other)
    )
    ours, theirs = pairs(*found)
    if not ours:
        return None
    errors = Ratio.of((one.error for one in ours), (one.error for one in theirs))
    squares = Ratio.of((one.row_rmse or 0.0 for one in ours), (one.row_rmse or 0.0 for one in theirs))
    return Compared(suite, method, errors, squares, ours, theirs)


def _suites(report: Report, *, in_time: bool) -> list[str]:
    return [s for s in report.suites() if SUITES[s].is_multilevel and SUITES[s].in_time == in_time]


def _compare_all(report: Report, suites: Sequence[str], methods: Sequence[str]) -> list[Compared]:
    found = [compare(report, suite, method, PAIRED) for suite in suites for method in methods]
    return [line for line in found if line is not None]


def write(report: Report) -> str:
    """Default and common part against lme4, then the others."""
    suites = _suites(report, in_time=False)
    ours = _ratio_table(_compare_all(report, suites, (OURS, COMMON)))
    rivals = [m for m in METHODS if is_baseline(m) and m != PAIRED]
    others = _ratio_table(_compare_all(report, suites, rivals))
    body = ours + ("\nOther methods, in the same terms:\n\n" + others if others else "")
    return section("Multilevel data against lme4", _ABOUT, body)


def _ratio_table(lines: Sequence[Compared]) -> str:
    head = ["data set", "groups to learn from", "method", "splits", "MAE", "upper 95 %"]
    head += ["RMSE", "upper 95 %", "fit", "lme4's fit"]
    return table(
        head,
        [
            [
                line.suite,
                str(SUITES[line.suite].n_train),
                label(line.method),
                str(line.error.n),
                *(change(x) for x in (line.error.value, line.error.upper, line.rmse.value, line.rmse.upper)),
                seconds(line.ours),
                seconds(line.theirs),
            ]
            for line in lines
        ],
    )


def forecasts(report: Report) -> str:
    """In the order of time, with coverage."""
    found = _compare_all(report, _suites(report, in_time=True), (IN_ORDER, OURS))
    lines = [
        [
            line.suite,
            label(line.method),
            str(line.error.n),
            *(change(x) for x in (line.error.value, line.error.upper, line.rmse.value, line.rmse.upper)),
            percent(Mean.of(one.coverage["all"][0] for one in line.ours if "all" in one.coverage))
            if any("all" in one.coverage for one in line.ours)
            else "",
        ]
        for line in found
    ]
    head = ["data set", "method", "splits", "MAE", "upper 95 %", "RMSE", "upper 95 %", "coverage"]
    return section("Forecasts in the order of time", _TIME, table(head, lines))


def common(report: Report) -> str:
    """The common part on and off."""
    found = [compare(report, suite, COMMON, OURS) for suite in report.suites()]
    lines = [
        [
            line.suite,
            str(line.error.n),
            change_with_error(line.error),
            change_with_error(line.rmse),
            seconds(line.ours),
            seconds(line.theirs),
        ]
        for line in found
        if line is not None
    ]
    head = ["data set", "splits", "MAE", "RMSE", "fit", "fit without"]
    return section("A common part, on and off", _COMMON, table(head, lines))
