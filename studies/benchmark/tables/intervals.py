"""Coverage and width of intervals, and quantiles."""

from __future__ import annotations

import numpy as np

from ..measures import COVERAGE
from ..methods import OURS, QUANTILE, QUANTILE_LEVEL, label
from ..results import (
    Mean,
    Ratio,
    Report,
    calibrated_levels,
    change_with_error,
    pairs,
    percent,
    section,
    table,
)
from ..suites import SUITES

_ABOUT = f"""
Share of query rows inside the {100 * COVERAGE:.0f} % intervals of `TaskRegressor.predict_interval`, and their mean width, by
the number of support rows: all that are given, 0, 5, and those that intervals are calibrated at (in bold; the largest is the
median over seeds). In the order of time (`-time`) it is the learner that was told so. Means over tasks and seeds, ± standard
error over seeds; beside them, where it was run on the same seeds, the width and coverage of the version before.
"""

_QUANTILES = f"""
`loss=Pinball({QUANTILE_LEVEL})` asks for the {100 * QUANTILE_LEVEL:.0f} % quantile: share of query rows at or below it, beside that
of the upper end of the default's {200 * QUANTILE_LEVEL - 100:.0f} % interval, which leaves as much above it, and the ratio of
their pinball losses; ± standard error over seeds.
"""


def write(report: Report) -> str:
    lines = []
    for suite in report.suites():
        recommended = report.of(suite, SUITES[suite].recommended)
        found = {seed: one for seed, one in recommended.items() if one.coverage}
        if not found:
            continue
        calibrated = calibrated_levels(list(found.values()))
        largest = np.median([one.calibrated[-1] for one in found.values() if one.calibrated] or [0])
        for level in sorted({*calibrated, "0", "5", "all"}, key=_place):
            of_level = {s: one for s, one in found.items() if level in one.coverage}
            if not of_level:
                continue
            shown = f"{largest:.0f} (most)" if level == "most" else level
            before = {s: one for s, one in report.before.get(suite, {}).items() if level in one.coverage}
            now, then = pairs(of_level, before)
            widths = [[one.coverage[level][1] for one in some] for some in (now, then)]
            lines.append(
                [
                    suite,
                    f"**{shown}**" if level in calibrated else shown,
                    str(len(of_level)),
                    percent(Mean.of(one.coverage[level][0] for one in of_level.values())),
                    f"{Mean.of(one.coverage[level][1] for one in of_level.values()).value:.4g}",
                    f"{Mean.of(widths[1]).value:.4g}" if now else "",
                    change_with_error(Ratio.of(*widths)) if now else "",
                    percent(Mean.of(one.coverage[level][0] for one in then)) if now else "",
                ]
            )
    head = ["data set", "rows", "seeds", "coverage", "width", "width before", "change", "coverage before"]
    return section("Prediction intervals", _ABOUT, table(head, lines))


def _place(level: str) -> float:
    """What is given comes first, then the numbers."""
    return {"all": -1.0, "most": np.inf}[level] if level.isalpha() else float(level)


def quantiles(report: Report) -> str:
    lines = []
    for suite in report.suites():
        ours, theirs = pairs(report.of(suite, QUANTILE), report.of(suite, OURS))
        levels = ours[0].quantile if ours and theirs[0].quantile else {}
        for level in levels:
            a, b = (np.array([one.quantile[level] for one in some]).T for some in (ours, theirs))
            lines.append(
                [
                    suite,
                    level,
                    str(len(ours)),
                    percent(Mean.of(a[0])),
                    percent(Mean.of(b[0])),
                    f"{a[1].mean():.4g}",
                    f"{b[1].mean():.4g}",
                    change_with_error(Ratio.of(a[1], b[1])),
                ]
            )
    head = ["data set", "rows", "seeds", f"below, {label(QUANTILE)}", "below, end of the interval"]
    head += ["pinball loss", "that of the end", "change"]
    return section("Quantiles", _QUANTILES, table(head, lines))
