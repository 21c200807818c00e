"""What the recommended learner is held to, and whether the numbers of the other tables meet it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ..methods import COMMON, IN_ORDER, MIXED, ORACLE, OURS, PAIRED, QUANTILE, SHIFTED, STANDARD
from ..results import Mean, Ratio, Report, calibrated_levels, change, pairs, percent, section, table
from ..suites import SUITES
from .multilevel import Compared, compare

_ABOUT = """
Limits that were set before these seeds were looked at; a mean is held to them, unless a limit is named. The tables below have
the numbers with their standard errors.
"""

#: Percent above the oracle, by data set and number of rows.
_ABOVE_ORACLE = {("hint", 8): 9.0, ("hint", 3): 8.0, ("hint", 1): 2.0, ("circle", 3): 3.0, ("circle", 0): 3.0}
#: Groups from which on a multilevel set is held to its upper limit; smaller ones to the mean.
_MANY_GROUPS = 30
#: Tasks from which on intervals are held to their coverage.
_MANY_TASKS = 30
#: Ratings without rows may be covered more often: the scale has ends.
_EXEMPT = {(name, "0") for name in ("lenk", "movielens", "movielens-side", "jester", "jester-4k")}


class Aim(NamedTuple):
    """One line: what is held to what, what was found, and whether that will do."""

    what: str
    asked: str
    found: str
    is_met: bool


def _above_oracle(report: Report) -> Iterator[Aim]:
    for (suite, rows), limit in _ABOVE_ORACLE.items():
        ours, theirs = pairs(report.of(suite, OURS), report.of(suite, ORACLE))
        if ours:
            above = Ratio.of(*([one.cold[str(rows)] for one in some] for some in (ours, theirs))).value
            yield Aim(
                f"{suite}, {rows} rows, above the oracle",
                f"{limit:g} %",
                change(above),
                above <= 1 + limit / 100,
            )


def _multilevel(report: Report) -> Iterator[Aim]:
    better: set[str] = set()
    for suite in (s for s in report.suites() if SUITES[s].is_multilevel and not SUITES[s].in_time):
        found = [compare(report, suite, method, PAIRED) for method in (OURS, COMMON)]
        lines = [line for line in found if line is not None]
        if any(min(line.error.upper, line.rmse.upper) < 1 for line in lines):
            better.add(suite)
        for line in lines[:1]:
            yield _against_lme4(line)
    if better:
        yield Aim(
            "sets on which the default or `common` is better than lme4 in MAE or RMSE, upper limit below 0",
            "3",
            f"{len(better)}: {', '.join(sorted(better))}",
            len(better) >= 3,
        )


def _against_lme4(line: Compared) -> Aim:
    # A quarter of the groups is new.
    is_large = SUITES[line.suite].n_train * 4 / 3 >= _MANY_GROUPS
    held = [ratio.upper if is_large else ratio.value for ratio in (line.error, line.rmse)]
    kind = "upper limit" if is_large else "mean"
    found = f"{change(held[0])} and {change(held[1])}"
    return Aim(f"{line.suite}, MAE and RMSE against lme4, {kind}", "+1 %", found, max(held) <= 1.01)


def _forecasts(report: Report) -> Iterator[Aim]:
    for suite in (s for s in report.suites() if SUITES[s].in_time):
        line = compare(report, suite, IN_ORDER, PAIRED)
        if line is not None:
            found = f"{change(line.error.value)} and {change(line.rmse.value)}"
            is_met = _not_worse(line.error) and _not_worse(line.rmse)
            yield Aim(f"{suite}, MAE and RMSE against lme4, within two standard errors", "0 %", found, is_met)


def _not_worse(ratio: Ratio) -> bool:
    return ratio.value - (0.0 if np.isnan(ratio.error) else 2 * ratio.error) <= 1.0


def _before(report: Report) -> Iterator[Aim]:
    for suite in report.suites():
        now, then = pairs(report.of(suite, OURS), report.before.get(suite, {}))
        if now:
            errors = Ratio.of((one.error for one in now), (one.error for one in then)).value
            times = float(np.median([a.seconds / b.seconds for a, b in zip(now, then, strict=True)]))
            yield Aim(f"{suite}, error against the version before", "+0.3 %", change(errors), errors <= 1.003)
            yield Aim(f"{suite}, time of a fit against it", "1.5", f"{times:.2f}", times <= 1.5)


def _units(report: Report) -> Iterator[Aim]:
    for suite in report.suites():
        for method, what in ((OURS, "as they are"), (SHIFTED, "y + 100"), (MIXED, "mixed units")):
            ours, theirs = pairs(report.of(suite, method), report.of(suite, STANDARD))
            if ours:
                ratio = Ratio.of((one.error for one in ours), (one.error for one in theirs)).value
                what = f"{suite}, {what}, against standardised data"
                yield Aim(what, "± 2 %", change(ratio), abs(ratio - 1) <= 0.02)


def _coverage(report: Report) -> Iterator[Aim]:
    for suite in report.suites():
        found = report.of(suite, SUITES[suite].recommended)
        if SUITES[suite].n_train < _MANY_TASKS or not found:
            continue
        for level in calibrated_levels(list(found.values())):
            if (suite, level) not in _EXEMPT:
                mean = Mean.of(one.coverage[level][0] for one in found.values() if level in one.coverage)
                margin = 0.0 if np.isnan(mean.error) else 2 * mean.error
                is_met = 0.89 - margin <= mean.value <= 0.93 + margin
                what = f"{suite}, {level} rows, coverage within two standard errors"
                yield Aim(what, "89 to 93 %", percent(mean), is_met)
        now, then = pairs(found, report.before.get(suite, {}))
        for level in ("0", "5", "all") if now and now[0].coverage and then[0].coverage else ():
            widths = Ratio.of(*([one.coverage[level][1] for one in some] for some in (now, then))).value
            what = f"{suite}, {level} rows, width against the version before"
            yield Aim(what, "0 %", change(widths), widths <= 1.0)


def _quantiles(report: Report) -> Iterator[Aim]:
    for suite in report.suites():
        ours, theirs = pairs(report.of(suite, QUANTILE), report.of(suite, OURS))
        if ours and ours[0].quantile and theirs[0].quantile:
            below = Mean.of(one.quantile["all"][0] for one in ours)
            losses = Ratio.of(*([one.quantile["all"][1] for one in some] for some in (ours, theirs)))
            yield Aim(
                f"{suite}, below the quantile", "88 to 92 %", percent(below), 0.88 <= below.value <= 0.92
            )
            what = f"{suite}, pinball loss against the end of the interval, within two standard errors"
            yield Aim(what, "0 %", change(losses.value), _not_worse(losses))


#: In the order of the tables.
AIMS: tuple[Callable[[Report], Iterator[Aim]], ...] = (
    _above_oracle,
    _multilevel,
    _forecasts,
    _before,
    _coverage,
    _quantiles,
    _units,
)


def write(report: Report) -> str:
    found = [aim for aims in AIMS for aim in aims(report)]
    lines = [[aim.what, aim.asked, aim.found, "yes" if aim.is_met else "**no**"] for aim in found]
    met = sum(aim.is_met for aim in found)
    about = f"{_ABOUT.strip()} {met} of {len(found)} are met."
    return section("What it is held to", about, table(["", "at most, or within", "measured", "met"], lines))
