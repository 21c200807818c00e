"""The default on the data as they are, shifted and in mixed units, beside standardised data."""

from __future__ import annotations

from ..methods import MIXED, OURS, SHIFTED, STANDARD, label
from ..results import Mean, Ratio, Report, change_with_error, pairs, section, table

_ABOUT = """
The same learner on the same splits: the data as they are, with 100 added to the targets, and with columns in units from 1e-3
to 1e3 and a level of their own. Ratio of errors, in the units of the data set, to those on standardised columns and targets.
"""


def write(report: Report) -> str:
    lines = []
    for suite in report.suites():
        standard = report.of(suite, STANDARD)
        changes = []
        for method in (OURS, SHIFTED, MIXED):
            ours, theirs = pairs(report.of(suite, method), standard)
            errors = ([one.error for one in some] for some in (ours, theirs))
            changes.append(change_with_error(Ratio.of(*errors)) if ours else "")
        if any(changes):
            mean = Mean.of(one.error for one in standard.values()).value
            lines.append([suite, str(len(standard)), f"{mean:.4f}", *changes])
    head = ["data set", "seeds", f"MAE, {label(STANDARD)}", "as they are", "y + 100", "mixed units"]
    return section("Units do not matter", _ABOUT, table(head, lines))
