"""The paper's numbers: the ends of its published curves."""

from __future__ import annotations

import csv
import io
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from ..files import ResultsError


class Published(NamedTuple):
    """Mean and standard deviation over the paper's five seeds, after all training tasks."""

    mean: float
    deviation: float


def read_published(path: Path | None = None) -> dict[str, dict[str, Published]]:
    """End-of-curve numbers by experiment and method.

    ``path`` is a CSV file with the columns experiment, method, n_tasks, mean_test_error and
    std_test_error, of which the largest n_tasks counts; by default the numbers that come with the
    package.
    """
    if path is None:
        text = (resources.files(__package__) / "published.csv").read_text()
    else:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ResultsError(f"cannot read {path}: {error}") from error
    ends: dict[tuple[str, str], tuple[int, Published]] = {}
    try:
        for row in csv.DictReader(io.StringIO(text)):
            key, n_tasks = (row["experiment"], row["method"]), int(row["n_tasks"])
            if key not in ends or n_tasks >= ends[key][0]:
                numbers = Published(float(row["mean_test_error"]), float(row["std_test_error"]))
                ends[key] = (n_tasks, numbers)
    except (KeyError, ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} is no table of published curves ({error!r}); expected the columns experiment, "
            "method, "
            "n_tasks, mean_test_error, std_test_error"
        ) from error
    out: dict[str, dict[str, Published]] = {}
    for (experiment, method), (_, numbers) in ends.items():
        out.setdefault(experiment, {})[method] = numbers
    return out
