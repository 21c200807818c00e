"""Polls of the US election of 2016 by state: predictions must not depend on labels or on a seed.

The data are `polls_us_election_2016` of the R package dslabs, exported by R at run time.
"""

from __future__ import annotations

import io
import subprocess
from functools import cache
from typing import Any

import numpy as np

from tailored.learners.empirical_bayes import EmpiricalBayesLearner
from tailored.tasks.task_set import TaskSet

from .splits import Split

_EXPORT = """
polls <- na.omit(dslabs::polls_us_election_2016[c("state", "rawpoll_trump", "enddate", "samplesize")])
write.csv(data.frame(lapply(polls, as.numeric)), stdout(), row.names = FALSE)
"""
#: A poll of the usual size and the second largest one.
SIZES = (772, 26574)
N_RELABELLINGS, N_SEEDS = 6, 4


@cache
def _read() -> Any:
    command = ["Rscript", "--vanilla", "-e", _EXPORT]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return np.genfromtxt(io.StringIO(text), delimiter=",", skip_header=1)


def missing(data: str | None) -> str | None:
    """Return why the polls cannot be read; None if they can."""
    try:
        _read()
    except (OSError, subprocess.CalledProcessError):
        return "Rscript or the R package dslabs is not installed (on Debian: r-base-core, r-cran-dslabs)"
    return None


def load(seed: int, data: str | None) -> Split:
    """A quarter of the states is new; five of their rows are given."""
    table = _read()
    tasks = TaskSet(table[:, 2:], table[:, 1], table[:, 0])
    order = np.random.default_rng(seed).permutation(np.flatnonzero(tasks.sizes > 5))
    new = tasks[order[: len(tasks) // 4]]
    support, query = new.support_query(5, random_state=seed)
    return Split(
        tasks[np.setdiff1d(np.arange(len(tasks)), order[: len(tasks) // 4])],
        support,
        query,
        new=new,
    )


def stability_table(first: int) -> tuple[list[str], list[list[Any]]]:
    """Predictions for a state without rows, for each relabelling of the states and each
    `random_state`.
    """
    table, head = _read(), ["relabelling", "random_state", *(f"size_{size}" for size in SIZES)]
    X = np.column_stack([np.full(len(SIZES), np.median(table[:, 2])), SIZES])
    lines: list[list[Any]] = []
    for relabelling in range(first, first + N_RELABELLINGS):
        labels = np.random.default_rng(relabelling).permutation(int(table[:, 0].max()) + 1)
        tasks = TaskSet(table[:, 2:], table[:, 1], labels[table[:, 0].astype(int)])
        for seed in range(N_SEEDS):
            learner = EmpiricalBayesLearner(loss="squared", random_state=seed).fit(tasks)
            prediction = learner.adapt(X[:0], np.zeros(0)).predict(X)
            lines.append([relabelling, seed, *prediction.tolist()])
    return head, lines
