"""Ratings: MovieLens-100k (GroupLens), Jester-1 (Goldberg et al.) and the computer survey of Lenk et al.

A user is a task, and a rating is a row.
"""

from __future__ import annotations

import gzip
import io
from collections import Counter
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.utils import Bunch

from .._utils.validation import check_int, check_real
from ..exceptions import DamagedFileError
from ..tasks.task_set import TaskSet
from ._files import Located, PathLike, Source, locate

#: With more items than this, the one-hot encoded rows are sparse by default.
DENSE_ITEMS = 256
N_JOKES, NOT_RATED, EXTREME = 100, 99.0, 10.0

MOVIELENS = Source(
    name="movielens",
    file="ml-100k.zip",
    url="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    size=4924029,
    licence=(
        "For research, with acknowledgement, without implying an endorsement; no redistribution and no "
        "commercial use without permission of GroupLens (see the README in the archive)."
    ),
    citation=(
        "F. M. Harper and J. A. Konstan (2015). The MovieLens datasets: history and context. "
        "ACM Transactions on Interactive Intelligent Systems 5(4), 19:1-19:19. doi:10.1145/2827872"
    ),
    folders=("ml-100k", "movielens"),
    layouts=(("u.data", "u.user", "u.item"),),
)
JESTER = Source(
    name="jester",
    file="jester_dataset_1_1.zip",
    url="https://eigentaste.berkeley.edu/dataset/jester_dataset_1_1.zip",
    # The official host is often unreachable; the Internet Archive has the same file.
    mirrors=(
        "https://web.archive.org/web/20260301101947id_/"
        "https://eigentaste.berkeley.edu/dataset/jester_dataset_1_1.zip",
    ),
    sha256="cb7841756ded125b15f3d95c9f8241224065e96354c132a46ae4214deeab7615",
    size=4171628,
    licence="Freely available for research use when acknowledged with the reference below.",
    citation=(
        "K. Goldberg, T. Roeder, D. Gupta and C. Perkins (2001). Eigentaste: a constant time collaborative "
        "filtering algorithm. Information Retrieval 4(2), 133-151."
    ),
    folders=("jester",),
    layouts=tuple((f"jester-{name}",) for name in ("data-1.xls", "data-1.csv.gz", "data-1.csv", "5k.csv.gz")),
)
LENK = Source(
    name="lenk",
    file="lenk_data.mat",
    # The survey has no home page; this copy is part of the public code of a paper on the same data.
    url="https://raw.githubusercontent.com/prolearner/onlineLTL/fd12f3a3fc5aac798ee1fab9282f54d6e3981de2/lenk_data.mat",
    sha256="e6cc1029fa15ba8135dfca0f6a4bfa75599b4d43fe77224ce6b07bf9cdeb3e0b",
    size=10469,
    licence="No licence is stated. The code of several multi-task papers includes the data. Cite its authors.",
    citation=(
        "P. J. Lenk, W. S. DeSarbo, P. E. Green and M. R. Young (1996). Hierarchical Bayes conjoint "
        "analysis: recovery of partworth heterogeneity from reduced experimental designs. "
        "Marketing Science 15(2), 173-191."
    ),
    folders=("lenk",),
    layouts=(("lenk_data.mat",),),
)

#: Names of the features of the survey.
CHARACTERISTICS = ["telephone hot line", "memory", "screen size", "CPU speed", "hard disk", "CD-ROM", "cache"]
CHARACTERISTICS += ["colour", "availability", "warranty", "software", "guarantee", "price"]
N_TRAIN, N_TEST = 16, 4

ABOUT_LENK = f"""\
Computer survey of Lenk et al. (1996): 180 people (tasks) rated how likely they were to buy each of 20 personal computers,
from 0 to 10. A computer is described by 13 characteristics with two values, coded -1 and +1. The first {N_TRAIN} rows of a
person are the published training part, and the last {N_TEST} rows are the published test part. People are in the order of
the file."""


def fetch_movielens(
    *,
    n_items: int | None = 20,
    min_ratings: int = 10,
    sparse: bool | None = None,
    path: PathLike | None = None,
    data_home: PathLike | None = None,
    download: bool = True,
) -> Bunch:
    """Load MovieLens-100k: 943 users (tasks), one-hot movies, ratings from 1 to 5, side information.

    Parameters
    ----------
    n_items : int or None
        Number of most rated movies to keep (ties by movie id); None keeps all 1,682.
    min_ratings : int
        Keep the users who rated at least this many of these movies.
    sparse : bool, optional
        Whether the features are a CSR array; by default if there are more than 256 movies.
    path : path, optional
        The archive ``ml-100k.zip``, or a folder with ``u.data``, ``u.user`` and ``u.item``.  With ``path``, or with a
        folder in the environment variable ``TAILORED_DATA``, the network is not used.
    data_home : path, optional
        Folder for downloads; ``TAILORED_DATA_HOME`` or the user's cache folder by default.
    download : bool
        If False, raise `FileNotFoundError` instead of downloading.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`: labels are user ids; rows sorted by movie id; side information age, sex, occupation),
        ``feature_names`` (movie titles, from the most to the least rated), ``item_ids``, ``target_name``,
        ``target_range``, ``side_names``, ``origin``, ``licence``, ``DESCR``.
    """
    files = locate(MOVIELENS, path=path, data_home=data_home, download=download)
    with files.reading("u.data"):
        content = io.BytesIO(files.files["u.data"])
        table = np.loadtxt(content, dtype=int, delimiter="\t", ndmin=2, comments=None)
        users, items, ratings, _ = table.T
        if (outside := (ratings < 1) | (ratings > 5)).any():
            row = int(np.argmax(outside))
            raise ValueError(f"line {row + 1} has the rating {ratings[row]}, outside 1 to 5")
    X, y, users, item_ids = _one_hot(files, users, items, ratings, n_items, min_ratings, sparse)
    with files.reading("u.user"):
        people = {
            int(number): {"age": float(age), "sex": sex, "occupation": occupation}
            for number, age, sex, occupation, _ in _split(files.files["u.user"])
        }
        side_info = {label: people[label] for label in np.unique(users).tolist()}
    with files.reading("u.item"):
        titles = {int(fields[0]): fields[1] for fields in _split(files.files["u.item"])}
        # 18 titles have two ids, but column names must be unique, so the id is appended.
        times = Counter(titles.values())
        names = [titles[i] + (f" [{i}]" if times[titles[i]] > 1 else "") for i in item_ids.tolist()]
    return files.bunch(
        TaskSet(X, y, users, side_info=side_info),
        "100,000 ratings of 1,682 movies by 943 people, collected from September 1997 to April 1998. Side information: "
        "age, sex and occupation.",
        feature_names=names,
        item_ids=item_ids,
        target_range=(1.0, 5.0),
        side_names=["age", "sex", "occupation"],
    )


def fetch_jester(
    *,
    n_items: int | None = 20,
    min_ratings: int = 10,
    shift: float = 0.0,
    sparse: bool | None = None,
    path: PathLike | None = None,
    data_home: PathLike | None = None,
    download: bool = True,
) -> Bunch:
    """Load Jester-1: 24,983 users (tasks), one-hot jokes, ratings from -10 to 10.

    Parameters
    ----------
    n_items : int or None
        Number of most rated jokes to keep (ties by number); None keeps all 100.
    min_ratings, sparse, data_home, download
        See `fetch_movielens`.
    shift : float
        Constant added to every rating.  The published results use 11, which makes all ratings positive.
    path : path, optional
        The archive ``jester_dataset_1_1.zip``, its ``jester-data-1.xls``, a CSV file of the same layout
        (plain or gzipped), or a folder with one of them.

    Returns
    -------
    data : Bunch
        As returned by `fetch_movielens`, without side information.  The label of a user is the row number in the file,
        starting at 0.

    Notes
    -----
    The file has one row per user: the number of ratings, followed by 100 ratings, where 99 means "not rated".  The ``.xls``
    file is read with xlrd (in the ``all`` extra), which takes about five seconds.
    """
    shift = check_real("shift", shift)
    files = locate(JESTER, path=path, data_home=data_home, download=download)
    table = _read_jester(files)
    users, jokes = np.nonzero(table != NOT_RATED)
    ratings = table[users, jokes] + shift
    X, y, users, item_ids = _one_hot(files, users, jokes + 1, ratings, n_items, min_ratings, sparse)
    return files.bunch(
        TaskSet(X, y, users),
        "Ratings of 100 jokes, from -10 to 10, by 24,983 people with 36 ratings or more, collected from April 1999 to "
        "May 2003 (the first of three files).",
        feature_names=[f"joke {i}" for i in item_ids],
        item_ids=item_ids,
        target_range=(shift - EXTREME, shift + EXTREME),
    )


def fetch_lenk(
    *,
    add_constant: bool = False,
    path: PathLike | None = None,
    data_home: PathLike | None = None,
    download: bool = True,
) -> Bunch:
    """Load the Lenk computer survey: 180 people, 20 rated computers each, 13 characteristics.

    Parameters
    ----------
    add_constant : bool
        Append a column of ones to the features, as in the paper's experiments.
    path : path, optional
        The file ``lenk_data.mat``, or a folder or zip archive that contains it.
    data_home, download
        See `fetch_movielens`.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`, with labels 0 to 179), ``feature_names``, ``target_name``,
        ``target_range``, ``n_train_rows`` (the first 16 rows of each task are the published training
        part), ``origin``, ``licence``, ``DESCR``.
    """
    from scipy.io import loadmat

    files = locate(LENK, path=path, data_home=data_home, download=download)
    ((name, content),) = files.files.items()
    with files.reading(name):
        variables = loadmat(io.BytesIO(content))
        width, sizes = len(CHARACTERISTICS) + 2, {"Traindata": N_TRAIN, "Testdata": N_TEST}
        parts = [variables[name].reshape(-1, n, width) for name, n in sizes.items()]
        rows = np.concatenate(parts, axis=1, dtype=np.float64).reshape(-1, width)
        if not len(rows) or not (rows[:, 0] == 1).all():
            raise ValueError("the first column should be the constant 1")
        tasks = TaskSet(rows[:, 1:-1], rows[:, -1], np.arange(len(rows)) // (N_TRAIN + N_TEST))
    names = CHARACTERISTICS.copy()
    if add_constant:
        tasks, names = tasks.replace(X=np.column_stack([tasks.X, np.ones(len(rows))])), [*names, "constant"]
    more = {"feature_names": names, "target_range": (0.0, 10.0), "n_train_rows": N_TRAIN}
    return files.bunch(tasks, ABOUT_LENK, **more)


def _one_hot(
    files: Located,
    users: np.ndarray,
    items: np.ndarray,
    ratings: np.ndarray,
    n_items: int | None,
    min_ratings: int,
    sparse: bool | None,
) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Keep the most rated items and the users who rated enough of them; return X, y, users and item ids.

    Columns are sorted from the most to the least rated item, ties by item id.  Rows are sorted by user and item, so the
    result does not depend on the order of the file.
    """
    ids, counts = np.unique(items, return_counts=True)
    n_items = len(ids) if n_items is None else check_int("n_items", n_items)
    min_ratings = check_int("min_ratings", min_ratings)
    if n_items > len(ids):
        raise ValueError(f"n_items={n_items}, but {files.origin} has ratings of {len(ids)} items only")
    item_ids = ids[np.lexsort((ids, -counts))][:n_items]

    kept = np.isin(items, item_ids)
    users, items, ratings = users[kept], items[kept], ratings[kept]
    people, rated = np.unique(users, return_counts=True)
    kept = np.isin(users, people[rated >= min_ratings])
    if not kept.any():
        raise ValueError(
            f"no user of {files.origin} rated min_ratings={min_ratings} of the {n_items} most rated items; "
            f"the most anyone rated is {rated.max()}"
        )
    order = np.lexsort((items[kept], users[kept]))
    users, items, ratings = users[kept][order], items[kept][order], ratings[kept][order]
    twice = (users[1:] == users[:-1]) & (items[1:] == items[:-1])
    if twice.any():
        i = int(np.argmax(twice))
        raise DamagedFileError(f"{files.origin}: user {users[i]} rated item {items[i]} more than once")

    by_id = np.argsort(item_ids)
    columns = by_id[np.searchsorted(item_ids, items, sorter=by_id)]
    n_rows, sparse = len(columns), n_items > DENSE_ITEMS if sparse is None else sparse
    X = sp.csr_array((np.ones(n_rows), columns, np.arange(n_rows + 1)), shape=(n_rows, n_items))
    return X if sparse else X.toarray(), ratings.astype(np.float64), users, item_ids


def _split(content: bytes) -> list[list[str]]:
    """Return the fields of each line of a MovieLens file, which is encoded in Latin-1."""
    lines = content.decode("latin-1").split("\n")
    return [line.rstrip("\r").split("|") for line in lines if line.strip()]


def _read_jester(files: Located) -> np.ndarray:
    """Return the ratings in the file, (n_users, 100); 99 means that a joke is not rated."""
    ((name, content),) = files.files.items()
    is_excel = name.lower().endswith(".xls")
    if is_excel:
        try:
            import xlrd
        except ImportError as error:
            advice = "python -m pip install '.[all]' in a checkout, or give a CSV file of the same layout with path="
            raise ImportError(f"reading {name} needs xlrd: {advice}") from error
    with files.reading(name):
        if is_excel:
            # Pass a log file, because xlrd prints to standard output by default.
            sheet = xlrd.open_workbook(file_contents=content, logfile=io.StringIO()).sheet_by_index(0)
            table = np.array([sheet.row_values(i) for i in range(sheet.nrows)], dtype=float)
        else:
            content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
            table = np.loadtxt(io.BytesIO(content), delimiter=",", ndmin=2, comments=None)
        if table.ndim != 2 or table.shape[1] != N_JOKES + 1 or not len(table):
            expected = f"{N_JOKES + 1} columns, the number of ratings and {N_JOKES} ratings"
            raise ValueError(f"it should have {expected}; its shape is {table.shape}")
        ratings = table[:, 1:]
        bad = ~((np.abs(ratings) <= EXTREME) | (ratings == NOT_RATED))
        if bad.any():
            row, joke = np.argwhere(bad)[0]
            rating = f"row {row + 1} rates joke {joke + 1} with {ratings[row, joke]:g}"
            raise ValueError(f"{rating}; ratings lie between -10 and 10, and {NOT_RATED:g} means not rated")
    return ratings
