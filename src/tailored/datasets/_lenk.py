"""The computer survey of Lenk et al. (1996)."""

from __future__ import annotations

import io

import numpy as np
from sklearn.utils import Bunch

from ..tasks.task_set import TaskSet
from ._files import PathLike, Source, locate

LENK = Source(
    name="lenk",
    file="lenk_data.mat",
    # The survey has no home page; this copy is part of the public code of a paper on the same data.
    url="https://raw.githubusercontent.com/prolearner/onlineLTL/fd12f3a3fc5aac798ee1fab9282f54d6e3981de2/lenk_data.mat",
    sha256="e6cc1029fa15ba8135dfca0f6a4bfa75599b4d43fe77224ce6b07bf9cdeb3e0b",
    size=10469,
    licence="None is stated; it circulates with the code of several multi-task papers. Cite its authors.",
    citation=(
        "P. J. Lenk, W. S. DeSarbo, P. E. Green and M. R. Young (1996). Hierarchical Bayes conjoint "
        "analysis: recovery of partworth heterogeneity from reduced experimental designs. "
        "Marketing Science 15(2), 173-191."
    ),
    folders=("lenk",),
    layouts=(("lenk_data.mat",),),
)

#: Names of the columns.
CHARACTERISTICS = ["telephone hot line", "memory", "screen size", "CPU speed", "hard disk", "CD-ROM", "cache"]
CHARACTERISTICS += ["colour", "availability", "warranty", "software", "guarantee", "price"]
N_TRAIN, N_TEST = 16, 4

ABOUT = f"""\
Computer survey of Lenk et al. (1996): 180 people (tasks) rated how likely they were to buy each of 20 personal computers,
from 0 to 10. A computer is described by 13 characteristics with two levels, coded -1 and +1. The rows of a person are the
{N_TRAIN} of the published training part followed by the {N_TEST} of its test part; people keep the order of the file, which
is the published split."""


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
        Append a column of ones to the inputs, as the paper's protocol does.
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
    return files.bunch(tasks, ABOUT, **more)
