"""Errors after few rows."""

from __future__ import annotations

import numpy as np

from ..methods import OURS, PAIRED, WITH_INTERCEPT, label
from ..results import Report, section, table
from ..suites import COLD_ROWS, SUITES

_METHODS = ("task mean", "item and user bias", "mixed model", WITH_INTERCEPT, PAIRED, OURS)

_ABOUT = """
Error after adapting on at most so many of the support rows, for the strongest baselines and the recommended learner.
"""


def write(report: Report) -> str:
    lines = []
    for suite in report.suites():
        # Data sets with an oracle have a table of their own.
        if SUITES[suite].cold_rows != COLD_ROWS:
            continue
        for method in _METHODS:
            found = [one.cold for one in report.of(suite, method).values() if one.cold]
            if found:
                means = [np.mean([cold[str(n)] for cold in found]) for n in COLD_ROWS]
                lines.append([suite, label(method), *(f"{mean:.4f}" for mean in means)])
    head = ["data set", "method", *(f"{n} row" + "s" * (n != 1) for n in COLD_ROWS)]
    return section("Cold start", _ABOUT, table(head, lines))
