"""Data sets: synthetic tasks, and real data sets that are downloaded or read from local files.

``make_clusters`` and ``make_circle`` return a `TaskSet`.  The loaders return a Bunch with a `TaskSet` in ``tasks``.
"""

from ._files import Source, get_data_home
from ._multilevel import MULTILEVEL, load_multilevel
from ._ratings import JESTER, LENK, MOVIELENS, fetch_jester, fetch_lenk, fetch_movielens
from ._synthetic import CircleTruth, ClusterTruth, make_circle, make_clusters

#: The published file of each ``fetch_<name>``: address, SHA-256, size, licence, citation.
SOURCES: dict[str, Source] = {source.name: source for source in (LENK, MOVIELENS, JESTER)}

__all__ = [
    "MULTILEVEL",
    "SOURCES",
    "CircleTruth",
    "ClusterTruth",
    "Source",
    "fetch_jester",
    "fetch_lenk",
    "fetch_movielens",
    "get_data_home",
    "load_multilevel",
    "make_circle",
    "make_clusters",
]
