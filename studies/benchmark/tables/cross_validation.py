"""The recipe of cross-validation beside its hand-written loop."""

from __future__ import annotations

from ..recipe import N_FOLDS, N_TASKS
from ..results import Report, section, table

_ABOUT = f"""
{N_TASKS} tasks in {N_FOLDS} folds of whole tasks (`GroupKFold`), metadata routing on: mean scores of scikit-learn's functions and of a
loop that fits, adapts task by task and scores. The recipe is in [cross-validation.md](cross-validation.md).
"""


def write(report: Report) -> str:
    lines = [
        [str(line["scoring"]), *(f"{line[kind]:.8f}" for kind in ("cross_val_score", "grid_search", "loop"))]
        for line in report.recipe
    ]
    head = ["scoring", "`cross_val_score`", "`GridSearchCV`", "by hand"]
    return section("Cross-validation", _ABOUT, table(head, lines))
