"""Data sets: two synthetic environments, and three real sets that are downloaded, never bundled.

``make_clusters`` and ``make_circle`` return a `TaskSet`; the ``fetch_*`` functions return a Bunch whose
``tasks`` is one, with names, the licence and a description (``DESCR``) beside it. Give ``path=``, or set ``TAILORED_DATA``
to a folder, to use local files without any network; downloads are kept in ``data_home`` and have to match
their SHA-256. ``load_multilevel`` reads the classical sets of R's packages from a local folder only.
"""

from . import _jester, _lenk, _movielens
from ._circle import CURVES, CircleTruth, make_circle
from ._clusters import ClusterTruth, make_clusters
from ._fetch import DATA_VARIABLE, ChecksumError, DamagedFileError, DownloadError, Source, get_data_home
from ._jester import fetch_jester
from ._lenk import fetch_lenk
from ._movielens import fetch_movielens
from ._multilevel import MULTILEVEL, load_multilevel

#: The published file behind each ``fetch_<name>``: address, SHA-256, size, licence, citation.
SOURCES: dict[str, Source] = {module.SOURCE.name: module.SOURCE for module in (_lenk, _movielens, _jester)}

__all__ = [
    "CURVES",
    "DATA_VARIABLE",
    "MULTILEVEL",
    "SOURCES",
    "ChecksumError",
    "CircleTruth",
    "ClusterTruth",
    "DamagedFileError",
    "DownloadError",
    "Source",
    "fetch_jester",
    "fetch_lenk",
    "fetch_movielens",
    "get_data_home",
    "load_multilevel",
    "make_circle",
    "make_clusters",
]
