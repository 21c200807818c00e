"""Coverage and width of intervals, and quantiles."""

from __future__ import annotations

import numpy as np

from ..measures import COVERAGE
from ..methods import OURS, QUANTILE, QUANTILE_LEVEL, label
from ..results import Mean, Ratio, Report, change_with_error, pairs, percent, section, table

_ABOUT = f"""
Share of query rows inside the {100 * COVERAGE:.0f} % intervals of `TaskRegressor.predict_interval`, and their mean width, by
the number of support rows: those that intervals are calibrated at (in bold), 0, 5 and all. Means over tasks and seeds, ±
standard error over seeds; beside them, where it was run on the same seeds, the width of the version before.
"""

_QUANTILES = f"""
`loss=Pinball({QUANTILE_LEVEL})` asks for the {100 * QUANTILE_LEVEL:.0f} % quantile: share of query rows at or below it, beside that
of the upper end of the default's {200 * QUANTILE_LEVEL - 100:.0f} % interval, which leaves as much above it, and the ratio of
their pinball losses; ± standard error over seeds.
"""


def write(report: Report) -> str:
    lines = []
    for suite in report.suites():
        found = {seed: one for seed, one in report.of(suite, OURS).items() if one.coverage}
        if not found:
            continue
        levels = dict.fromkeys(level for one in found.values() for level in one.coverage)
        for level in sorted(levels, key=lambda n: np.inf if n == "all" else int(n)):
            of_level = {s: one for s, one in found.items() if level in one.coverage}
            calibrated = np.mean([level in map(str, one.calibrated) for one in of_level.values()]) > 0.5
            before = {s: one for s, one in report.before.get(suite, {}).items() if level in one.coverage}
            now, then = pairs(of_level, before)
            widths = [[one.coverage[level][1] for one in some] for some in (now, then)]
            lines.append(
                [
                    suite,
                    f"**{level}**" if calibrated else level,
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
