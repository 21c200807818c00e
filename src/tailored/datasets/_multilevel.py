"""Seven classical multilevel data sets of R's packages, from files that the user exported: never downloaded."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from .._utils.validation import check_choice
from ..tasks import TaskSet
from ._fetch import DATA_VARIABLE, DamagedFileError
from ._local import read_whole

#: Sub-folder of a local data folder that is looked into, besides the folder itself.
FOLDER = "multilevel"
#: How R writes a value that is not there.
MISSING = frozenset({"", "NA", "NaN"})


@dataclass(frozen=True)
class Layout:
    """A file, and which of its columns are what.

    ``coded`` are columns whose words look like numbers: 4 is then a name and not twice 2.
    """

    file: str
    package: str
    about: str
    task: str
    target: str
    columns: tuple[str, ...]
    description: tuple[str, ...] = ()
    coded: tuple[str, ...] = ()


#: The sets by name; `load_multilevel` does not mind capitals.
MULTILEVEL: dict[str, Layout] = {
    "sleepstudy": Layout(
        "sleepstudy.csv",
        "lme4",
        "reaction times of 18 people over ten days of sleep deprivation (Belenky et al., 2003)",
        "Subject",
        "Reaction",
        ("Days",),
    ),
    "oxboys": Layout(
        "Oxboys.csv",
        "nlme",
        "heights of 26 boys of Oxford at nine ages (Goldstein, 1987)",
        "Subject",
        "height",
        ("age",),
    ),
    "exam": Layout(
        "Exam.csv",
        "mlmRev",
        "examination scores of pupils of 65 schools of inner London (Goldstein et al., 1993)",
        "school",
        "normexam",
        ("standLRT", "sex", "vr"),
        ("schavg", "schgend"),
    ),
    "early": Layout(
        "Early.csv",
        "mlmRev",
        "cognitive scores of 103 infants in a study of early childhood intervention, at three ages",
        "id",
        "cog",
        ("age",),
        ("trt",),
    ),
    "bdf": Layout(
        "bdf.csv",
        "nlme",
        "language scores of pupils of 131 Dutch schools (Snijders and Bosker, 1999)",
        "schoolNR",
        "langPOST",
        ("IQ.verb", "sex", "ses", "langPRET"),
        ("schoolSES", "denomina"),
        coded=("denomina",),
    ),
    "hsb82": Layout(
        "Hsb82.csv",
        "mlmRev",
        "mathematics scores of pupils of 160 schools, High School and Beyond 1982 (Bryk and Raudenbush, 1992)",
        "school",
        "mAch",
        ("minrty", "sx", "cses"),
        ("meanses", "sector"),
    ),
    "egsingle": Layout(
        "egsingle.csv",
        "mlmRev",
        "mathematics scores of 1,721 children over the years of primary school (US Sustaining Effects study)",
        "childid",
        "math",
        ("year", "grade"),
        ("female", "black", "hispanic", "lowinc", "mobility"),
    ),
}


class _Columns(NamedTuple):
    values: NDArray[np.float64]
    names: list[str]


def load_multilevel(name: str, path: str | os.PathLike[str] | None = None) -> Bunch:
    """Load one of the multilevel sets of R's packages lme4, nlme and mlmRev from a local file.

    The files are those of ``write.csv``; ``benchmarks/export_multilevel.R`` of the project writes them.
    Rows with a missing value are dropped; a column of words becomes an indicator for each word but the
    first in alphabetical order.  Rows keep the order of the file, which is that of time in sleepstudy, Oxboys,
    Early and egsingle.

    Parameters
    ----------
    name : str
        sleepstudy, Oxboys, Exam, Early, bdf, Hsb82 or egsingle, in capitals or not.
    path : path, optional
        The file, or a folder with it or with a sub-folder ``multilevel``.  By default the folder that the
        environment variable ``TAILORED_DATA`` names.  Nothing is ever downloaded.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`: labels are the file's, as strings; the description is its side information),
        ``feature_names``, ``target_name``, ``task_name``, ``side_names`` (None without a description),
        ``origin``, ``licence``, ``DESCR``.

    Examples
    --------
    >>> from tailored.datasets import load_multilevel
    >>> tasks = load_multilevel("sleepstudy").tasks  # doctest: +SKIP
    """
    layout = MULTILEVEL[check_choice("name", str(name).lower(), MULTILEVEL)]
    file = _find(layout, path)
    table = _read(layout, file)
    X = _encode(table, layout.columns, layout)
    side = _encode(table, layout.description, layout) if layout.description else None
    tasks = TaskSet(
        X.values,
        _numbers(table[layout.target], layout.target, file),
        table[layout.task],
        side_info=None if side is None else side.values,
    )
    names = np.array(X.names, dtype=object)
    side_names = None if side is None else side.names
    return Bunch(
        tasks=tasks.replace(side_names=side_names, feature_names=names, encoding=None),
        feature_names=X.names,
        target_name=layout.target,
        task_name=layout.task,
        side_names=side_names,
        origin=str(file),
        licence=f"GPL (>= 2), that of the R package {layout.package}",
        DESCR=f"{layout.file.removesuffix('.csv')} of the R package {layout.package}: {layout.about}.\n",
    )


def _find(layout: Layout, path: str | os.PathLike[str] | None) -> Path:
    named_by = "path=" if path is not None else DATA_VARIABLE
    given = path if path is not None else os.environ.get(DATA_VARIABLE)
    advice = (
        f"Export it from the R package {layout.package} with `Rscript benchmarks/export_multilevel.R FOLDER`, "
        f"then give path=FOLDER, or set {DATA_VARIABLE} to the folder (a sub-folder {FOLDER} will do as well). "
        "It is never downloaded."
    )
    if not given:
        raise FileNotFoundError(f"{layout.file} is read from a local folder, and none was named. {advice}")
    place = Path(given).expanduser()
    for file in (place, place / layout.file, place / FOLDER / layout.file):
        if file.is_file():
            return file
    raise FileNotFoundError(f"{named_by} names {place}, where there is no {layout.file}. {advice}")


def _read(layout: Layout, file: Path) -> dict[str, list[str]]:
    """The columns that are used, as text, of the rows that miss none of them."""
    wanted = (layout.task, layout.target, *layout.columns, *layout.description)
    try:
        reader = csv.DictReader(io.StringIO(read_whole(file).decode("utf-8"), newline=""))
        lost = [name for name in wanted if name not in (reader.fieldnames or ())]
        # A short line has None for its last columns.
        rows = [] if lost else [[(row[name] or "").strip() for name in wanted] for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DamagedFileError(
            f"{file} is not a table separated by commas ({error}); is it {layout.file}?"
        ) from error
    if lost:
        raise DamagedFileError(f"{file} has no column {', '.join(lost)}; is it {layout.file}?")
    rows = [row for row in rows if not MISSING.intersection(row)]
    if not rows:
        raise DamagedFileError(f"{file} has no row without missing values")
    return dict(zip(wanted, map(list, zip(*rows, strict=True)), strict=True))


def _encode(table: dict[str, list[str]], names: Sequence[str], layout: Layout) -> _Columns:
    """Numbers as they are, words as indicators of all but the first of them."""
    values, labels = [], []
    for name in names:
        column = table[name]
        if name not in layout.coded and all(map(_is_number, column)):
            values.append(np.array(column, dtype=float))
            labels.append(name)
            continue
        words = np.array(column)
        for word in np.unique(words)[1:]:
            values.append((words == word).astype(float))
            labels.append(f"{name}={word}")
    return _Columns(np.column_stack(values), labels)


def _numbers(column: list[str], name: str, file: Path) -> NDArray[np.float64]:
    wrong = next((text for text in column if not _is_number(text)), None)
    if wrong is not None:
        raise DamagedFileError(f"{file}: column {name} should be numbers, it has {wrong!r}")
    return np.array(column, dtype=float)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
