"""A second grouping among the inputs, nested in the tasks or crossing them: seen, and answered plainly.

One grouping is modelled, that by tasks.  Levels of another are indicators with a weight each, which is no model of a group
that was never seen.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from .._utils.validation import outside
from ..exceptions import SecondGroupingWarning
from ._columns import MANY_LEVELS
from ._frames import Frame, Grouping, group_rows
from .encoding import Encoding

#: Rows of a table that are looked at.
LOOKED_AT = 100_000
#: Rows that a level has on average where it is a group, and not a measurement that was rounded.
LEAST_ROWS = 2.0


class Levels(NamedTuple):
    """How the levels of a column and the tasks lie in each other."""

    n_levels: int
    n_tasks: int
    tasks_per_level: float
    levels_per_task: float

    @property
    def are_nested(self) -> bool:
        """Each level in one task, several in a task."""
        return self.tasks_per_level == 1.0 and self.levels_per_task > 1.0

    @property
    def hold_tasks(self) -> bool:
        """Each task in one level, several in a level."""
        return self.levels_per_task == 1.0 and self.tasks_per_level > 1.0


def warn_of_groupings(data: Frame, encoding: Encoding, grouping: Grouping) -> None:
    """Warn of columns of inputs that look like groups: many levels, each with several rows."""
    task = " and ".join(map(repr, encoding.task_columns))
    if len(data) > LOOKED_AT:
        data, grouping = data.head(LOOKED_AT), grouping._replace(codes=grouping.codes[:LOOKED_AT])
    for column in encoding.features:
        is_whole = column.kind == "number" and data[column.name].dtype.is_integer()
        if not (is_whole or column.kind == "words") or len(grouping.labels) < 2:
            continue
        if column.kind == "words" and len(column.levels) <= MANY_LEVELS:
            continue
        levels = levels_of(data, column.name, grouping)
        many = levels is not None and levels.n_levels > MANY_LEVELS
        # Whole numbers that cross the tasks may be counts; nested in them they are names.
        if levels is None or not many or (is_whole and not levels.are_nested):
            continue
        warnings.warn(_answer(column.name, task, levels), SecondGroupingWarning, stacklevel=outside())


def levels_of(data: Frame, name: str, grouping: Grouping) -> Levels | None:
    """None for a column with missing values, or whose levels have too few rows to be groups."""
    if data[name].is_null().any():
        return None
    found = group_rows(data[name].to_native(), len(data))
    n_levels, n_tasks = len(found.labels), len(np.unique(grouping.codes))
    if len(data) < LEAST_ROWS * n_levels:
        return None
    pairs = len(np.unique(found.codes * len(grouping.labels) + grouping.codes))
    return Levels(n_levels, n_tasks, pairs / n_levels, pairs / n_tasks)


def _answer(name: str, task: str, levels: Levels) -> str:
    if levels.are_nested:
        what = f"nested in {task}: each of its {levels.n_levels} values appears in one task only"
        advice = f"make each a task of its own, task=[{task}, {name!r}] (its label is then the pair),"
    elif levels.hold_tasks:
        what = f"above {task}: each task has one of its {levels.n_levels} values"
        advice = f"describe the tasks by what these groups are like (side_columns=) and not by {name!r},"
    else:
        what = f"crossing {task}: each of its {levels.n_levels} values appears in {levels.tasks_per_level:.3g} tasks on average"
        advice = f"choose {name!r} as the task instead, if that is what new ones will come of,"
    return (
        f"column {name!r} looks like a second grouping, {what}. One grouping is modelled, that by tasks, and values of "
        f"other columns get one weight each, or are read as numbers. You can {advice} or leave the column out of `features`; "
        "for random effects of both groupings at once use a mixed-model package such as lme4."
    )
