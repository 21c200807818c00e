"""The recommended learner beside itself at an earlier version, on the same seeds."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from ..methods import OURS
from ..results import Mean, Ratio, Report, change_with_error, pairs, seconds, section, table
from ..run import TrialResult, read

#: What the recommended learner was called in the cells of earlier versions, and is now.
_NAMES = ("conditional", OURS)

_ABOUT = """
`EmpiricalBayesLearner()` of this version and of an earlier one, each with the defaults of its day, on the same seeds: ratio
of errors (geometric mean over seeds, ± standard error), medians of the processor seconds of a fit on one machine, and of
their ratio.
"""


def read_before(folder: Path) -> dict[str, dict[int, TrialResult]]:
    """Trials of the recommended learner in a folder of cells of an earlier version, by data set and seed."""
    found: dict[str, dict[int, TrialResult]] = defaultdict(dict)
    for name in _NAMES:
        pattern = re.compile(rf"(?P<suite>[^_]+)_{re.escape(name)}_(?P<seed>\d+)_all\.json")
        for path in sorted(folder.glob("**/*.json")):
            match, result = pattern.fullmatch(path.name), read(path)
            if match and result is not None:
                found[match["suite"]][int(match["seed"])] = result
    return dict(found)


def write(report: Report) -> str:
    lines = []
    for suite in report.suites():
        now, then = pairs(report.of(suite, OURS), report.before.get(suite, {}))
        if now:
            mine, theirs = ([one.error for one in some] for some in (now, then))
            times = np.median([a.seconds / b.seconds for a, b in zip(now, then, strict=True)])
            lines.append(
                [
                    suite,
                    str(len(now)),
                    f"{Mean.of(theirs).value:.4f}",
                    f"{Mean.of(mine).value:.4f}",
                    change_with_error(Ratio.of(mine, theirs)),
                    seconds(then),
                    seconds(now),
                    f"{times:.2f}",
                ]
            )
    head = ["data set", "seeds", "MAE before", "MAE now", "change", "fit before", "fit now", "ratio"]
    return section("This version and the one before", _ABOUT, table(head, lines))
