"""Data sets: a synthetic environment of clusters, and three real ones that are downloaded, never bundled.

``make_clusters`` returns a `TaskSet`; the ``fetch_*`` functions return a Bunch whose ``tasks`` is one,
with names, the licence and a description (``DESCR``) beside it. Give ``path=``, or set ``TAILORED_DATA``
to a folder, to use local files without any network; downloads are kept in ``data_home`` and have to match
their SHA-256.
"""

from . import _jester, _lenk, _movielens
from ._clusters import ClusterTruth, make_clusters
from ._fetch import DATA_VARIABLE, ChecksumError, DownloadError, Source, get_data_home
from ._jester import fetch_jester
from ._lenk import fetch_lenk
from ._movielens import fetch_movielens

#: The published file behind each ``fetch_<name>``: address, SHA-256, size, licence, citation.
SOURCES: dict[str, Source] = {module.SOURCE.name: module.SOURCE for module in (_lenk, _movielens, _jester)}

__all__ = [
    "DATA_VARIABLE",
    "SOURCES",
    "ChecksumError",
    "ClusterTruth",
    "DownloadError",
    "Source",
    "fetch_jester",
    "fetch_lenk",
    "fetch_movielens",
    "get_data_home",
    "make_clusters",
]
