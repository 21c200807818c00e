"""How far above the oracle that knows the environment."""

from __future__ import annotations

from ..methods import ALGORITHM_1, ORACLE, OURS, label
from ..results import Mean, Ratio, Report, change_with_error, pairs, section, table
from ..suites import SUITES

_ABOUT = """
Environments in which a description says something of the task's weights. The oracle knows the environment (subspaces or
curve, variances, how often the hint is right) and sees the same rows and the same description; its answer is the posterior
mean. All are scored on the same rows of the same 400 new tasks. Last columns: geometric mean over seeds of (error /
oracle's error) less one, ± standard error.
"""


def write(report: Report) -> str:
    lines = []
    for suite in report.suites():
        known = report.of(suite, ORACLE)
        for rows in sorted(SUITES[suite].cold_rows, reverse=True) if known else ():
            ours, theirs = pairs(report.of(suite, OURS), known)
            if not ours:
                continue
            mine, best = ([one.cold[str(rows)] for one in some] for some in (ours, theirs))
            lines.append(
                [
                    suite,
                    str(rows),
                    str(len(ours)),
                    f"{Mean.of(best).value:.4f}",
                    f"{Mean.of(mine).value:.4f}",
                    change_with_error(Ratio.of(mine, best)),
                    _above(report, suite, "mixed model", rows),
                    _above(report, suite, ALGORITHM_1, rows),
                ]
            )
    head = ["data set", "rows", "seeds", "MAE, oracle", f"MAE, {label(OURS)}"]
    head += ["above the oracle", "mixed model", "Algorithm 1, conditional"]
    return section("Beside the oracle", _ABOUT, table(head, lines))


def _above(report: Report, suite: str, method: str, rows: int) -> str:
    ours, theirs = pairs(report.of(suite, method), report.of(suite, ORACLE))
    if not ours:
        return ""
    return change_with_error(Ratio.of(*([one.cold[str(rows)] for one in some] for some in (ours, theirs))))
