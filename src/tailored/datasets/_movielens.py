"""MovieLens-100k (GroupLens)."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from ..tasks import TaskSet
from ._fetch import DamagedFileError, Source
from ._local import locate
from ._ratings import one_hot_ratings

SOURCE = Source(
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

DESCR = f"""\
MovieLens-100k
==============

100,000 ratings of 1,682 movies by 943 people (tasks), from 1 to 5, collected by GroupLens from September
1997 to April 1998. An input is the one-hot vector of a movie, a target its rating. Side information: age,
sex and occupation.

Citation: {SOURCE.citation}
Licence: {SOURCE.licence}
Source: {SOURCE.url}
"""


def fetch_movielens(
    *,
    n_items: int | None = 20,
    min_ratings: int = 10,
    sparse: bool | None = None,
    path: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> Bunch:
    """Load MovieLens-100k: one task per user, one-hot movies, ratings from 1 to 5, demographics.

    Parameters
    ----------
    n_items : int or None
        Keep this many of the most rated movies (ties by movie id); None keeps all 1,682.
    min_ratings : int
        Keep the users who rated at least this many of them.
    sparse : bool, optional
        Whether the inputs are a CSR array; by default they are above 256 movies.
    path : path, optional
        The archive ``ml-100k.zip``, or a folder with ``u.data``, ``u.user`` and ``u.item`` (in any order
        of ratings). No network is touched then. Neither is it when the environment variable
        ``TAILORED_DATA`` names a folder with the data.
    data_home : path, optional
        Folder for downloads; ``TAILORED_DATA_HOME`` or the user's cache folder by default.
    download : bool
        False raises `FileNotFoundError` rather than downloading.
    progress : bool
        Show a progress bar while downloading, on a terminal.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`: labels are user ids, in order; rows sorted by movie id; side information
        age, sex, occupation), ``feature_names`` (movie titles, from the most to the least rated),
        ``item_ids``, ``target_name``, ``target_range``, ``side_names``, ``origin`` (where the data was
        read from), ``licence``, ``DESCR``.

    Examples
    --------
    >>> from tailored.datasets import fetch_movielens
    >>> tasks = fetch_movielens().tasks  # doctest: +SKIP
    """
    found = locate(SOURCE, path=path, data_home=data_home, download=download, progress=progress)
    origin = str(found.origin)
    users, items, ratings = _read_ratings(found.files["u.data"], found.place("u.data"))
    people = _read_users(found.files["u.user"], found.place("u.user"))
    titles = _read_titles(found.files["u.item"], found.place("u.item"))
    kept = one_hot_ratings(
        users,
        items,
        ratings,
        n_items=n_items,
        min_ratings=min_ratings,
        sparse=sparse,
        origin=found.place("u.data"),
    )
    labels, item_ids = np.unique(kept.users).tolist(), kept.item_ids.tolist()
    _refuse_unknown(labels, people, f"{origin}: u.user describes no user")
    _refuse_unknown(item_ids, titles, f"{origin}: u.item describes no movie")
    return Bunch(
        tasks=TaskSet(kept.X, kept.y, kept.users, side_info={label: people[label] for label in labels}),
        feature_names=[titles[i] for i in item_ids],
        item_ids=kept.item_ids,
        target_name="rating",
        target_range=(1.0, 5.0),
        side_names=["age", "sex", "occupation"],
        origin=origin,
        licence=SOURCE.licence,
        DESCR=DESCR,
    )


def _read_ratings(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not content.strip():
        raise DamagedFileError(f"{where} is empty")
    try:
        table = np.loadtxt(io.BytesIO(content), dtype=np.int64, delimiter="\t", ndmin=2, comments=None)
    except ValueError as error:
        raise DamagedFileError(
            f"{where} is not a table of whole numbers separated by tabs: {error}"
        ) from error
    if table.shape[1] != 4:
        raise DamagedFileError(
            f"{where} should have 4 columns (user, item, rating, time), it has {table.shape[1]}"
        )
    users, items, ratings = table[:, 0], table[:, 1], table[:, 2]
    outside = (ratings < 1) | (ratings > 5)
    if outside.any():
        row = int(np.argmax(outside))
        raise DamagedFileError(f"{where}: line {row + 1} has the rating {ratings[row]}, outside 1 to 5")
    return users, items, ratings


def _read_users(content: bytes, where: str) -> dict[int, dict[str, Any]]:
    def user(fields: list[str]) -> tuple[int, dict[str, Any]]:
        number, age, sex, occupation, _zip_code = fields
        return int(number), {"age": float(age), "sex": sex, "occupation": occupation}

    return dict(_parse(content, where, user, "id|age|sex|occupation|zip"))


def _read_titles(content: bytes, where: str) -> dict[int, str]:
    def movie(fields: list[str]) -> tuple[int, str]:
        return int(fields[0]), fields[1]

    titles = dict(_parse(content, where, movie, "id|title|..."))
    # 18 movies are listed twice under two ids, and the names of columns have to differ.
    times = Counter(titles.values())
    return {i: f"{title} [{i}]" if times[title] > 1 else title for i, title in titles.items()}


def _parse(content: bytes, where: str, parse: Callable[[list[str]], Any], layout: str) -> Iterator[Any]:
    # Latin-1, as the titles are; it decodes anything, so that a damaged line is met by its number below.
    for number, line in enumerate(content.decode("latin-1").split("\n"), start=1):
        if line.strip():
            try:
                yield parse(line.rstrip("\r").split("|"))
            except (ValueError, IndexError) as error:
                raise DamagedFileError(f"{where}: line {number} is not {layout}: {line[:60]!r}") from error


def _refuse_unknown(wanted: list[int], known: dict[int, Any], message: str) -> None:
    for i in wanted:
        if i not in known:
            raise DamagedFileError(f"{message} {i}, which occurs in u.data; the file is incomplete")
