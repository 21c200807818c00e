"""Seven classical multilevel data sets from R packages, read from files that the user exported."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from .._utils.validation import check_choice
from ..tasks.task_set import TaskSet
from ._files import DATA_VARIABLE, PathLike, reading

#: Sub-folder of a local data folder that is also searched.
FOLDER = "multilevel"
#: Missing values as R writes them.
MISSING = frozenset({"", "NA", "NaN"})
#: Categorical columns whose categories are written as numbers.
CODED = ("denomina",)


class MultilevelTable(NamedTuple):
    """A file and the roles of its columns."""

    file: str
    package: str
    about: str
    task: str
    target: str
    columns: list[str]
    side_info: list[str]


_ABOUT = {
    "sleepstudy": "reaction times of 18 people over ten days of sleep deprivation (Belenky et al., 2003)",
    "Oxboys": "heights of 26 boys of Oxford at nine ages (Goldstein, 1987)",
    "Exam": "examination scores of pupils of 65 schools of inner London (Goldstein et al., 1993)",
    "Early": "cognitive scores of 103 infants in a study of early childhood intervention, at three ages",
    "bdf": "language scores of pupils of 131 Dutch schools (Snijders and Bosker, 1999)",
    "Hsb82": "mathematics scores of pupils of 160 schools, High School and Beyond 1982 (Bryk and Raudenbush, 1992)",
    "egsingle": "mathematics scores of 1,721 children over the years of primary school (US Sustaining Effects study)",
}
#: R package, and the columns of the task, target, features and side information.
_ROLES = {
    "sleepstudy": ("lme4", "Subject", "Reaction", "Days", ""),
    "Oxboys": ("nlme", "Subject", "height", "age", ""),
    "Exam": ("mlmRev", "school", "normexam", "standLRT sex vr", "schavg schgend"),
    "Early": ("mlmRev", "id", "cog", "age", "trt"),
    "bdf": ("nlme", "schoolNR", "langPOST", "IQ.verb sex ses langPRET", "schoolSES denomina"),
    "Hsb82": ("mlmRev", "school", "mAch", "minrty sx cses", "meanses sector"),
    "egsingle": ("mlmRev", "childid", "math", "year grade", "female black hispanic lowinc mobility"),
}
#: The sets by name; `load_multilevel` ignores case.
MULTILEVEL = {
    name.lower(): MultilevelTable(f"{name}.csv", package, _ABOUT[name], task, target, x.split(), side.split())
    for name, (package, task, target, x, side) in _ROLES.items()
}


def load_multilevel(name: str, path: PathLike | None = None) -> Bunch:
    """Load one of the multilevel data sets of the R packages lme4, nlme and mlmRev from a local file.

    The files have the format of R's ``write.csv``; ``benchmarks/export_multilevel.R`` in the repository writes them.
    Rows with a missing value are dropped.  A categorical column is one-hot encoded without its first category in
    alphabetical order.  Rows keep the order of the file; in sleepstudy, Oxboys, Early and egsingle they are sorted by time.

    Parameters
    ----------
    name : str
        sleepstudy, Oxboys, Exam, Early, bdf, Hsb82 or egsingle; upper and lower case are equivalent.
    path : path, optional
        The file, or a folder that contains it, directly or in a sub-folder ``multilevel``.  By default the folder in the
        environment variable ``TAILORED_DATA``.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`: labels are those of the file, as strings),
        ``feature_names``, ``target_name``, ``task_name``, ``side_names`` (None without side information),
        ``origin``, ``licence``, ``DESCR``.
    """
    layout = MULTILEVEL[check_choice("name", str(name).lower(), MULTILEVEL)]
    file = _find(layout, path)
    with reading(str(file), f"Is it {layout.file}?"):
        table = _read(layout, file)
        X, names = _encode(table, layout.columns)
        y = _numbers(table[layout.target])
        if y is None:
            raise ValueError(f"the column {layout.target} must contain numbers")
        side, side_names = _encode(table, layout.side_info) if layout.side_info else (None, None)
    tasks = TaskSet(X, y, table[layout.task], side_info=side)
    return Bunch(
        tasks=tasks.replace(side_names=side_names, feature_names=np.array(names, dtype=object)),
        feature_names=names,
        target_name=layout.target,
        task_name=layout.task,
        side_names=side_names,
        origin=str(file),
        licence=f"GPL (>= 2), that of the R package {layout.package}",
        DESCR=f"{layout.file.removesuffix('.csv')} of the R package {layout.package}: {layout.about}.\n",
    )


def _find(layout: MultilevelTable, path: PathLike | None) -> Path:
    given = path if path is not None else os.environ.get(DATA_VARIABLE)
    if given:
        place = Path(given).expanduser()
        for file in (place, place / layout.file, place / FOLDER / layout.file):
            if file.is_file():
                return file
    raise FileNotFoundError(
        f"{layout.file} was not found: {f'{place} does not contain it' if given else 'no folder was given'}. Export it "
        f"from the R package {layout.package} with `Rscript benchmarks/export_multilevel.R FOLDER`, then give path=FOLDER, "
        f"or set {DATA_VARIABLE} to the folder (a sub-folder {FOLDER} will do as well). It is never downloaded."
    )


def _read(layout: MultilevelTable, file: Path) -> dict[str, list[str]]:
    """Read the columns of the data set as text; drop rows with missing values."""
    columns = (layout.task, layout.target, *layout.columns, *layout.side_info)
    reader = csv.DictReader(io.StringIO(file.read_text("utf-8"), newline=""))
    # The reader returns None for the last columns of a short line.
    rows = [[(row[name] or "").strip() for name in columns] for row in reader]
    rows = [row for row in rows if not MISSING.intersection(row)]
    if not rows:
        raise ValueError("there is no row without missing values")
    return dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))


def _encode(table: dict[str, list[str]], names: list[str]) -> tuple[NDArray[np.float64], list[str]]:
    """Return columns and their names; categorical columns are one-hot encoded without their first category."""
    columns: dict[str, NDArray[Any]] = {}
    for name in names:
        numbers = None if name in CODED else _numbers(table[name])
        if numbers is not None:
            columns[name] = numbers
        else:
            values = np.array(table[name])
            columns |= {f"{name}={category}": values == category for category in np.unique(values)[1:]}
    return np.column_stack(list(columns.values())).astype(float), list(columns)


def _numbers(column: list[str]) -> NDArray[np.float64] | None:
    """Return a column as numbers; None if a value is not a finite number."""
    try:
        values = np.array(column, dtype=float)
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None
