"""The computer survey of Lenk et al. (1996)."""

from __future__ import annotations

import io
import os

import numpy as np
from sklearn.utils import Bunch

from ..exceptions import DamagedFileError
from ..tasks.task_set import TaskSet
from ._files import Located, Source, locate, too_large

LENK = Source(
    name="lenk",
    file="lenk_data.mat",
    # The survey has no home page; this copy is part of the public code of a paper on the same data.
    url=(
        "https://raw.githubusercontent.com/prolearner/onlineLTL/"
        "fd12f3a3fc5aac798ee1fab9282f54d6e3981de2/lenk_data.mat"
    ),
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
CHARACTERISTICS = (
    "telephone hot line",
    "memory",
    "screen size",
    "CPU speed",
    "hard disk",
    "CD-ROM",
    "cache",
    "colour",
    "availability",
    "warranty",
    "software",
    "guarantee",
    "price",
)
N_TRAIN, N_TEST = 16, 4
#: Largest file that is read; the published one has 10,469 bytes.
MOST_BYTES = 200_000

DESCR = f"""\
Computer survey of Lenk et al. (1996)
=====================================

180 people (tasks) rated how likely they were to buy each of 20 personal computers, from 0 to 10. A
computer is described by 13 characteristics with two levels, coded -1 and +1. The rows of a person are the
{N_TRAIN} of the published training part followed by the {N_TEST} of its test part; people keep the order
of the file, which is the published split.

Citation: {LENK.citation}
Licence: {LENK.licence}
Source: {LENK.url}
"""


def fetch_lenk(
    *,
    add_constant: bool = False,
    path: str | os.PathLike[str] | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> Bunch:
    """Load the Lenk computer survey: 180 people, 20 rated computers each, 13 characteristics.

    Parameters
    ----------
    add_constant : bool
        Append a column of ones to the inputs, as the paper's protocol does.
    path : path, optional
        The file ``lenk_data.mat``, or a folder or zip archive that contains it.  The network is not used then, nor if
        the environment variable ``TAILORED_DATA`` names a folder with the data.
    data_home : path, optional
        Folder for downloads; ``TAILORED_DATA_HOME`` or the user's cache folder by default.
    download : bool
        False raises `FileNotFoundError` instead of downloading.
    progress : bool
        Show a progress bar while downloading.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`, with labels 0 to 179), ``feature_names``, ``target_name``,
        ``target_range``, ``n_train_rows`` (the first 16 rows of each task are the published training
        part), ``origin``, ``licence``, ``DESCR``.
    """
    files = locate(LENK, path=path, data_home=data_home, download=download, progress=progress)
    train, test = _read(files)
    people = len(train) // N_TRAIN
    rows = np.concatenate(
        [train.reshape(people, N_TRAIN, -1), test.reshape(people, N_TEST, -1)], axis=1, dtype=np.float64
    ).reshape(people * (N_TRAIN + N_TEST), -1)
    X, y = rows[:, 1:-1], rows[:, -1]
    names = list(CHARACTERISTICS)
    if add_constant:
        X, names = np.column_stack([X, np.ones(len(X))]), [*names, "constant"]
    groups = np.repeat(np.arange(people), N_TRAIN + N_TEST)
    return Bunch(
        tasks=TaskSet(X, y, groups),
        feature_names=names,
        target_name="rating",
        target_range=(0.0, 10.0),
        n_train_rows=N_TRAIN,
        origin=str(files.origin),
        licence=LENK.licence,
        DESCR=DESCR,
    )


def _read(files: Located) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat

    ((name, content),) = files.files.items()
    where = files.place(name)
    if len(content) > MOST_BYTES:
        # SciPy inflates compressed variables without a limit: a small file bounds the memory that it can take.
        raise too_large(where, f"{len(content)} bytes", f"It should be {LENK.url}", MOST_BYTES)
    try:
        variables = loadmat(io.BytesIO(content))
    except Exception as error:
        # SciPy's reader fails in many ways on other files: ValueError, TypeError, struct and zlib errors.
        raise DamagedFileError(
            f"{where} is not a readable MATLAB file ({error}); it should be {LENK.url}"
        ) from error
    width = len(CHARACTERISTICS) + 2
    parts = []
    for variable, per_person in (("Traindata", N_TRAIN), ("Testdata", N_TEST)):
        part = variables.get(variable)
        if (
            part is None
            or part.ndim != 2
            or part.shape[1] != width
            or not len(part)
            or len(part) % per_person
        ):
            raise DamagedFileError(
                f"{where}: expected a variable {variable} with {per_person} rows per person and "
                f"{width} columns, got {'none' if part is None else f'shape {part.shape}'}"
            )
        parts.append(part)
    train, test = parts
    if len(train) // N_TRAIN != len(test) // N_TEST:
        raise DamagedFileError(
            f"{where}: Traindata has {len(train) // N_TRAIN} people, Testdata {len(test) // N_TEST}"
        )
    if not all((part[:, 0] == 1).all() for part in parts):
        raise DamagedFileError(
            f"{where}: the first column should be the constant 1; is this the survey's file?"
        )
    return train, test
