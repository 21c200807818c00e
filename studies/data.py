"""Real data sets of the studies: ratings by many people, and classical multilevel tables.

Files are read from the folder ``data``, or from the folder in the environment variable
``TAILORED_DATA``, directly or in a sub-folder.  Without such a folder, ratings are downloaded to
the user's cache folder, and their SHA-256 is checked. Multilevel tables are never downloaded:
``benchmarks/export_multilevel.R`` writes them.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from tailored._utils.validation import check_choice, check_int
from tailored.tasks.task_set import TaskSet


@dataclass(frozen=True)
class Source:
    """Where the file of a data set may be found.  See studies/README.md for licences and
    citations.
    """

    folder: str  # sub-folder of a local data folder that is also searched
    files: tuple[str, ...]  # names that are looked for in turn; the first one is the published file
    urls: tuple[str, ...]  # official address and mirrors
    sha256: str


LENK = Source(
    "lenk",
    ("lenk_data.mat",),
    # The survey has no home page; this copy is part of the public code of a paper on the same data.
    (
        "https://raw.githubusercontent.com/prolearner/onlineLTL/fd12f3a3fc5aac798ee1fab9282f54d6e3981de2/lenk_data.mat",
    ),
    "e6cc1029fa15ba8135dfca0f6a4bfa75599b4d43fe77224ce6b07bf9cdeb3e0b",
)
MOVIELENS = Source(
    "ml-100k",
    ("ml-100k.zip", "u.data"),
    ("https://files.grouplens.org/datasets/movielens/ml-100k.zip",),
    "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
)
_JESTER = "https://eigentaste.berkeley.edu/dataset/jester_dataset_1_1.zip"
JESTER = Source(
    "jester",
    (
        "jester_dataset_1_1.zip",
        "jester-data-1.xls",
        "jester-data-1.csv.gz",
        "jester-data-1.csv",
        "jester-5k.csv.gz",
    ),
    # The official host is often unreachable; the Internet Archive has the same file.
    (_JESTER, f"https://web.archive.org/web/20260301101947id_/{_JESTER}"),
    "cb7841756ded125b15f3d95c9f8241224065e96354c132a46ae4214deeab7615",
)

#: Features of the survey, with the values -1 and +1.
CHARACTERISTICS = [
    "telephone hot line",
    "memory",
    "screen size",
    "CPU speed",
    "hard disk",
    "CD-ROM",
    "cache",
]
CHARACTERISTICS += ["colour", "availability", "warranty", "software", "guarantee", "price"]
#: Rows of the published training and test parts of a person.
LENK_PARTS = {"Traindata": 16, "Testdata": 4}
NOT_RATED = 99.0


class Ratings(NamedTuple):
    """Ratings as tasks: a person is a task, and a rating is a row."""

    tasks: TaskSet
    feature_names: list[str]
    target_range: tuple[float, float]


def load_lenk(data: str | None = None) -> Ratings:
    """Load the computer survey of Lenk et al.: 180 people rated 20 computers with 13
    characteristics, from 0 to 10.

    The first 16 rows of a person are the published training part, and the last 4 rows are the
    published test part.
    """
    from scipy.io import loadmat

    variables, width = loadmat(locate(LENK, data)), len(CHARACTERISTICS) + 2
    parts = [variables[name].reshape(-1, n, width) for name, n in LENK_PARTS.items()]
    rows = np.concatenate(parts, axis=1, dtype=np.float64).reshape(-1, width)
    # The first column is the constant 1.
    tasks = TaskSet(rows[:, 1:-1], rows[:, -1], np.arange(len(rows)) // sum(LENK_PARTS.values()))
    return Ratings(tasks, CHARACTERISTICS.copy(), (0.0, 10.0))


def load_movielens(
    data: str | None = None, *, n_items: int | None = 20, min_ratings: int = 10
) -> Ratings:
    """Load MovieLens-100k: 943 people with age, sex and occupation, one-hot encoded movies, ratings
    from 1 to 5.

    Keep the ``n_items`` most rated movies (None: all, as a sparse matrix), and the people who rated
    at least ``min_ratings`` of them.  Columns are sorted from the most to the least rated movie,
    and rows by person and movie.
    """
    file = locate(MOVIELENS, data)
    folder = zipfile.Path(file, "ml-100k/") if file.suffix == ".zip" else file.parent
    columns = {
        "u.data": ["user", "item", "rating"],
        "u.user": ["user", "age", "sex", "occupation"],
        "u.item": ["item", "title"],
    }
    tables = {}
    for name, names in columns.items():
        separator = "\t" if name == "u.data" else "|"
        with folder.joinpath(name).open(encoding="latin-1") as content:
            tables[name] = pd.read_csv(
                content,
                sep=separator,
                quoting=csv.QUOTE_NONE,
                names=names,
                usecols=range(len(names)),
            )
    X, ratings, items = _one_hot(tables["u.data"], n_items, min_ratings)
    people = tables["u.user"].astype({"age": float}).set_index("user").loc[ratings["user"].unique()]
    tasks = TaskSet(
        X, ratings["rating"], ratings["user"].to_numpy(), side_info=people.to_dict("index")
    )
    return Ratings(
        tasks, tables["u.item"].set_index("item")["title"].loc[items].tolist(), (1.0, 5.0)
    )


def load_jester(
    data: str | None = None, *, n_items: int | None = 20, min_ratings: int = 10, shift: float = 0.0
) -> Ratings:
    """Load Jester-1: 24,983 people, one-hot encoded jokes, ratings from -10 to 10.

    ``n_items`` and ``min_ratings`` are those of `load_movielens`.  ``shift`` is added to every
    rating: the published results use 11.  The label of a person is the row number in the file.
    """
    file = locate(JESTER, data)
    if file.suffix in (".zip", ".xls"):
        import xlrd

        content = (
            zipfile.ZipFile(file).read(JESTER.files[1])
            if file.suffix == ".zip"
            else file.read_bytes()
        )
        # Pass a log file, because xlrd prints to standard output by default.
        sheet = xlrd.open_workbook(file_contents=content, logfile=io.StringIO()).sheet_by_index(0)
        table = np.array([sheet.row_values(i) for i in range(sheet.nrows)], dtype=float)
    else:
        table = pd.read_csv(file, header=None).to_numpy(dtype=float)
    # The first column is the number of ratings.
    users, jokes = np.nonzero(table[:, 1:] != NOT_RATED)
    rated = table[users, jokes + 1] + shift
    X, ratings, items = _one_hot(
        pd.DataFrame({"user": users, "item": jokes + 1, "rating": rated}), n_items, min_ratings
    )
    tasks = TaskSet(X, ratings["rating"], ratings["user"].to_numpy())
    return Ratings(tasks, [f"joke {item}" for item in items], (shift - 10.0, shift + 10.0))


def _one_hot(
    ratings: pd.DataFrame, n_items: int | None, min_ratings: int
) -> tuple[sparse.csr_array | np.ndarray, pd.DataFrame, list[int]]:
    """Keep the most rated items and the users who rated enough of them; return X, the sorted
    ratings and the items.
    """
    ids, counts = np.unique(ratings["item"], return_counts=True)
    # Items with equally many ratings are sorted by their number.
    items = ids[np.lexsort((ids, -counts))][
        : None if n_items is None else check_int("n_items", n_items)
    ]
    kept = ratings[ratings["item"].isin(items)]
    n_rated = kept.groupby("user")["item"].transform("size")
    kept = kept[n_rated >= check_int("min_ratings", min_ratings)].sort_values(["user", "item"])
    if kept.empty:
        raise ValueError(
            f"min_ratings={min_ratings}: no user rated as many of the {len(items)} most rated items"
        )
    columns = pd.Index(items).get_indexer(kept["item"])
    X = sparse.csr_array(
        (np.ones(len(kept)), columns, np.arange(len(kept) + 1)), shape=(len(kept), len(items))
    )
    return X if n_items is None else X.toarray(), kept.astype({"rating": float}), items.tolist()


class MultilevelTable(NamedTuple):
    """A file and the roles of its columns."""

    file: str
    about: str
    task: str
    target: str
    columns: list[str]
    side_info: list[str]


_ABOUT = {
    "sleepstudy": "reaction times of 18 people over ten days of sleep deprivation (Belenky et al., "
    "2003)",
    "Oxboys": "heights of 26 boys of Oxford at nine ages (Goldstein, 1987)",
    "Exam": "examination scores of pupils of 65 schools of inner London (Goldstein et al., 1993)",
    "Early": "cognitive scores of 103 infants in a study of early childhood intervention, at "
    "three ages",
    "bdf": "language scores of pupils of 131 Dutch schools (Snijders and Bosker, 1999)",
    "Hsb82": "mathematics scores of pupils of 160 schools, High School and Beyond 1982 (Bryk "
    "and Raudenbush, 1992)",
    "egsingle": "mathematics scores of 1,721 children over the years of primary school (US "
    "Sustaining Effects study)",
}
#: Columns of the task, target, features and side information.
_ROLES = {
    "sleepstudy": ("Subject", "Reaction", "Days", ""),
    "Oxboys": ("Subject", "height", "age", ""),
    "Exam": ("school", "normexam", "standLRT sex vr", "schavg schgend"),
    "Early": ("id", "cog", "age", "trt"),
    "bdf": ("schoolNR", "langPOST", "IQ.verb sex ses langPRET", "schoolSES denomina"),
    "Hsb82": ("school", "mAch", "minrty sx cses", "meanses sector"),
    "egsingle": ("childid", "math", "year grade", "female black hispanic lowinc mobility"),
}
#: The tables by name in lower case.
MULTILEVEL = {
    name.lower(): MultilevelTable(
        f"{name}.csv", _ABOUT[name], task, target, x.split(), side.split()
    )
    for name, (task, target, x, side) in _ROLES.items()
}
#: A categorical column whose categories are written as numbers.
CODED = "denomina"


def load_multilevel(name: str, data: str | None = None) -> TaskSet:
    """Load one of the multilevel tables of the R packages lme4, nlme and mlmRev, in the format of
    R's ``write.csv``.

    Rows with a missing value are dropped.  A categorical column is one-hot encoded without its
    first category in alphabetical order.  Rows keep the order of the file; in sleepstudy, Oxboys,
    Early and egsingle they are sorted by time.
    """
    layout = MULTILEVEL[check_choice("name", name.lower(), MULTILEVEL)]
    file = locate(Source("multilevel", (layout.file,), (), ""), data)
    used = [layout.task, layout.target, *layout.columns, *layout.side_info]
    as_text = dict.fromkeys((layout.task, CODED), str)
    table = pd.read_csv(file, usecols=used, dtype=as_text).dropna()

    def encoded(columns: list[str]) -> pd.DataFrame:
        # One column at a time, because get_dummies moves categorical columns to the end.
        parts = [
            pd.get_dummies(table[[each]], drop_first=True, prefix_sep="=", dtype=float)
            for each in columns
        ]
        return pd.concat(parts, axis=1).astype(float)

    X = encoded(layout.columns)
    side = encoded(layout.side_info) if layout.side_info else None
    tasks = TaskSet(
        X.to_numpy(),
        table[layout.target].astype(float),
        table[layout.task].to_numpy(),
        side_info=None if side is None else side.to_numpy(),
    )
    return tasks.replace(
        feature_names=np.array(X.columns, dtype=object),
        side_names=None if side is None else list(side.columns),
    )


def locate(source: Source, data: str | None = None) -> Path:
    """Return the file of a data set in the folder `data` or ``TAILORED_DATA``; without a folder,
    download it.
    """
    given = data or os.environ.get("TAILORED_DATA")
    if not given and source.urls:
        return _download(source)
    for folder in (Path(given), Path(given, source.folder)) if given else ():
        for name in source.files:
            if (folder / name).is_file():
                return folder / name
    advice = (
        "" if source.urls else " Write it with `Rscript benchmarks/export_multilevel.R FOLDER`."
    )
    raise FileNotFoundError(
        f"{' or '.join(source.files)} was not found in "
        f"{given or 'TAILORED_DATA, which is not set'}. Give a folder that "
        f"contains it, directly or in a sub-folder {source.folder}, with --data or "
        f"TAILORED_DATA.{advice}"
    )


def _download(source: Source) -> Path:
    import pooch

    file, folder, failures = source.files[0], pooch.os_cache("tailored"), []
    for url in source.urls:
        try:
            # pooch verifies the digest before it moves the file into place, and does not download a
            # file that it has.
            return Path(pooch.retrieve(url, f"sha256:{source.sha256}", fname=file, path=folder))
        except (OSError, ValueError) as error:
            # A wrong checksum is not final: a parked domain returns its own page, and a mirror may
            # have the file.
            failures.append(f"{url}: {type(error).__name__}: {error}.")
    raise OSError(
        f"{file} could not be downloaded. {' '.join(failures)} To provide it yourself, set "
        "TAILORED_DATA to a folder that "
        "contains it; the network is not used then."
    )
