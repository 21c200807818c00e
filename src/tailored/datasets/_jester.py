"""Jester-1: ratings of jokes (Goldberg et al.)."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from .._utils.validation import check_real
from ..tasks import TaskSet
from ._fetch import DamagedFileError, Source
from ._local import Located, locate, unzipped
from ._ratings import one_hot_ratings

SOURCE = Source(
    name="jester",
    file="jester_dataset_1_1.zip",
    url="https://eigentaste.berkeley.edu/dataset/jester_dataset_1_1.zip",
    # The official host has been out of reach for months at a time; the Internet Archive keeps its file.
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
    layouts=(
        ("jester-data-1.xls",),
        ("jester-data-1.csv.gz",),
        ("jester-data-1.csv",),
        ("jester-5k.csv.gz",),
    ),
)
N_JOKES, NOT_RATED, EXTREME = 100, 99.0, 10.0

DESCR = f"""\
Jester-1
========

Ratings of 100 jokes, from -10 to 10, collected from April 1999 to May 2003: the first of three files,
24,983 people (tasks) with 36 ratings or more. An input is the one-hot vector of a joke, a target its
rating. No side information.

Citation: {SOURCE.citation}
Licence: {SOURCE.licence}
Source: {SOURCE.url}
"""


def fetch_jester(
    *,
    n_items: int | None = 20,
    min_ratings: int = 10,
    shift: float = 0.0,
    sparse: bool | None = None,
    path: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> Bunch:
    """Load Jester-1: one task per user, one-hot jokes, ratings from -10 to 10.

    Parameters
    ----------
    n_items : int or None
        Keep this many of the most rated jokes (ties by number); None keeps all 100.
    min_ratings : int
        Keep the users who rated at least this many of them.
    shift : float
        Added to every rating; the published numbers use 11, which makes all ratings positive.
    sparse : bool, optional
        Whether the inputs are a CSR array; by default they are dense.
    path : path, optional
        The archive ``jester_dataset_1_1.zip``, its ``jester-data-1.xls``, a CSV file of the same layout
        (plain or gzipped), or a folder with one of them. No network is touched then. Neither is it when
        the environment variable ``TAILORED_DATA`` names a folder with the data.
    data_home : path, optional
        Folder for downloads; ``TAILORED_DATA_HOME`` or the user's cache folder by default.
    download : bool
        False raises `FileNotFoundError` rather than downloading.
    progress : bool
        Show a progress bar while downloading, on a terminal.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`: a label is the row of the user in the file, from 0; rows sorted by joke
        number), ``feature_names`` ("joke 5", ..., from the most to the least rated), ``item_ids`` (their
        numbers, 1 to 100), ``target_name``, ``target_range`` (shifted), ``origin`` (where the data was
        read from), ``licence``, ``DESCR``.

    Notes
    -----
    The file has one row per user: the number of ratings, then 100 ratings, 99 for "not rated". The ``.xls``
    file takes xlrd (in the ``data`` extra) some five seconds.

    Examples
    --------
    >>> from tailored.datasets import fetch_jester
    >>> tasks = fetch_jester(shift=11).tasks  # doctest: +SKIP
    """
    shift = check_real("shift", shift)
    found = locate(SOURCE, path=path, data_home=data_home, download=download, progress=progress)
    table = _read(found)
    users, jokes = np.nonzero(table != NOT_RATED)
    kept = one_hot_ratings(
        users,
        jokes + 1,
        table[users, jokes] + shift,
        n_items=n_items,
        min_ratings=min_ratings,
        sparse=sparse,
        origin=str(found.origin),
    )
    return Bunch(
        tasks=TaskSet(kept.X, kept.y, kept.users),
        feature_names=[f"joke {i}" for i in kept.item_ids],
        item_ids=kept.item_ids,
        target_name="rating",
        target_range=(shift - EXTREME, shift + EXTREME),
        origin=str(found.origin),
        licence=SOURCE.licence,
        DESCR=DESCR,
    )


def _read(found: Located) -> np.ndarray:
    """Return the (n_users, 100) ratings of the file found, 99 where there is none."""
    ((name, content),) = found.files.items()
    where = found.place(name)
    table = _read_xls(content, where) if name.lower().endswith(".xls") else _read_csv(content, where)
    if table.ndim != 2 or table.shape[1] != N_JOKES + 1 or not len(table):
        raise DamagedFileError(
            f"{where} should have {N_JOKES + 1} columns, the number of ratings and {N_JOKES} ratings; "
            f"its shape is {table.shape}"
        )
    ratings = table[:, 1:]
    bad = ~((np.abs(ratings) <= EXTREME) | (ratings == NOT_RATED))
    if bad.any():
        row, joke = np.argwhere(bad)[0]
        raise DamagedFileError(
            f"{where}: row {row + 1} rates joke {joke + 1} with {ratings[row, joke]:g}; "
            f"ratings lie between -10 and 10, and {NOT_RATED:g} means not rated"
        )
    return ratings


def _read_csv(content: bytes, where: str) -> np.ndarray:
    if content[:2] == b"\x1f\x8b":
        content = unzipped(content, where)
    try:
        if not content.strip():
            raise ValueError("it is empty")
        return np.loadtxt(io.BytesIO(content), delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise DamagedFileError(
            f"{where} is not a whole table of numbers separated by commas: {error}"
        ) from error


def _read_xls(content: bytes, where: str) -> np.ndarray:
    try:
        import xlrd
    except ImportError as error:
        raise ImportError(
            f"reading {where} needs xlrd: pip install 'tailored[data]', "
            "or give a CSV file of the same layout with path="
        ) from error
    try:
        # What the workbook says about itself would go to standard output otherwise.
        book = xlrd.open_workbook(file_contents=content, on_demand=True, logfile=io.StringIO())
        sheet = book.sheet_by_index(0)
        rows: list[list[Any]] = [sheet.row_values(i) for i in range(sheet.nrows)]
    except Exception as error:
        # Besides its own XLRDError, xlrd lets struct, index and assertion errors of a damaged file through.
        raise DamagedFileError(
            f"{where} is not a readable Excel file ({error!r}); the official one is in {SOURCE.url}"
        ) from error
    for number, row in enumerate(rows, start=1):
        for column, value in enumerate(row, start=1):
            if not isinstance(value, float):
                raise DamagedFileError(
                    f"{where}: row {number}, column {column} holds {value!r} where a number should be"
                )
    return np.array(rows)
