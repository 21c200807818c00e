"""From (user, item, rating) triples to tasks: a user is a task, an item's one-hot vector an input."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse as sp

from .._utils.validation import check_int
from ._fetch import DamagedFileError

# Above this many items a dense one-hot matrix is a waste that users notice.
DENSE_ITEMS = 256


class OneHotRatings(NamedTuple):
    """Rows sorted by user, then item; column `j` of `X` stands for the item ``item_ids[j]``."""

    X: Any
    y: np.ndarray
    users: np.ndarray
    item_ids: np.ndarray


def one_hot_ratings(
    users: np.ndarray,
    items: np.ndarray,
    ratings: np.ndarray,
    *,
    n_items: int | None,
    min_ratings: int,
    sparse: bool | None,
    origin: str,
) -> OneHotRatings:
    """Keep the most rated items and the users who rated enough of them.

    Columns go from the most to the least rated item, ties by item id, so that fewer items are a prefix of
    more. Rows are sorted, so that the order of the file has no say. `sparse` None means: CSR above 256
    items.
    """
    ids, counts = np.unique(items, return_counts=True)
    n_items = len(ids) if n_items is None else check_int("n_items", n_items)
    min_ratings = check_int("min_ratings", min_ratings)
    if n_items > len(ids):
        raise ValueError(f"n_items={n_items}, but {origin} has ratings of {len(ids)} items only")
    item_ids = ids[np.lexsort((ids, -counts))][:n_items]

    kept = np.isin(items, item_ids)
    users, items, ratings = users[kept], items[kept], ratings[kept]
    people, rated = np.unique(users, return_counts=True)
    kept = np.isin(users, people[rated >= min_ratings])
    if not kept.any():
        raise ValueError(
            f"no user of {origin} rated min_ratings={min_ratings} of the {n_items} most rated items; "
            f"the most anyone rated is {rated.max()}"
        )
    order = np.lexsort((items[kept], users[kept]))
    users, items, ratings = users[kept][order], items[kept][order], ratings[kept][order]
    twice = (users[1:] == users[:-1]) & (items[1:] == items[:-1])
    if twice.any():
        where = int(np.argmax(twice))
        raise DamagedFileError(f"{origin}: user {users[where]} rated item {items[where]} more than once")

    by_id = np.argsort(item_ids)
    columns = by_id[np.searchsorted(item_ids, items, sorter=by_id)]
    X: Any
    if sparse or (sparse is None and n_items > DENSE_ITEMS):
        ones = np.ones(len(columns))
        X = sp.csr_array((ones, columns, np.arange(len(columns) + 1)), shape=(len(columns), n_items))
    else:
        X = np.zeros((len(columns), n_items))
        X[np.arange(len(columns)), columns] = 1.0
    return OneHotRatings(X, ratings.astype(np.float64), users, item_ids)
