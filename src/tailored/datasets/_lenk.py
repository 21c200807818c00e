"""The computer survey of Lenk et al. (1996)."""

from __future__ import annotations

import io

import numpy as np
from sklearn.utils import Bunch

from ..exceptions import DamagedFileError
from ..tasks.task_set import TaskSet
from ._files import Located, PathLike, Source, locate, too_large

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
#: Largest file that is read; the published one has 10,469 bytes.
MOST_BYTES = 200_000

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
    progress: bool = False,
) -> Bunch:
    """Load the Lenk computer survey: 180 people, 20 rated computers each, 13 characteristics.

    Parameters
    ----------
    add_constant : bool
        Append a column of ones to the inputs, as the paper's protocol does.
    path : path, optional
        The file ``lenk_data.mat``, or a folder or zip archive that contains it.
    data_home, download, progress
        See `fetch_movielens`.

    Returns
    -------
    data : Bunch
        ``tasks`` (the `TaskSet`, with labels 0 to 179), ``feature_names``, ``target_name``,
        ``target_range``, ``n_train_rows`` (the first 16 rows of each task are the published training
        part), ``origin``, ``licence``, ``DESCR``.
    """
    files = locate(LENK, path=path, data_home=data_home, download=download, progress=progress)
    train, test = _read(files)
    people = len(train)
    rows = np.concatenate([train, test], axis=1, dtype=np.float64).reshape(people * (N_TRAIN + N_TEST), -1)
    X, names = rows[:, 1:-1], CHARACTERISTICS.copy()
    if add_constant:
        X, names = np.column_stack([X, np.ones(len(X))]), [*names, "constant"]
    tasks = TaskSet(X, rows[:, -1], np.repeat(np.arange(people), N_TRAIN + N_TEST))
    more = {"feature_names": names, "target_range": (0.0, 10.0), "n_train_rows": N_TRAIN}
    return files.bunch(LENK, tasks, ABOUT, **more)


def _read(files: Located) -> list[np.ndarray]:
    """Return the training and the test part, (people, rows, columns) each."""
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
        message = f"{where} is not a readable MATLAB file ({error}); it should be {LENK.url}"
        raise DamagedFileError(message) from error
    width = len(CHARACTERISTICS) + 2
    parts = []
    for variable, n_rows in (("Traindata", N_TRAIN), ("Testdata", N_TEST)):
        part = variables.get(variable, np.zeros(0))
        if part.ndim != 2 or part.shape[1] != width or not len(part) or len(part) % n_rows:
            found = f"shape {part.shape}" if variable in variables else "none"
            expected = f"a variable {variable} with {n_rows} rows per person and {width} columns"
            raise DamagedFileError(f"{where}: expected {expected}, got {found}")
        if not (part[:, 0] == 1).all():
            raise DamagedFileError(f"{where}: the first column should be the constant 1; is this the survey?")
        parts.append(part.reshape(-1, n_rows, width))
    if len(parts[0]) != len(parts[1]):
        raise DamagedFileError(f"{where}: Traindata has {len(parts[0])} people, Testdata {len(parts[1])}")
    return parts
