"""Fit `EmpiricalBayesLearner` to a source of tasks: a sample of whole tasks, and the statistics of all tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..empirical_bayes.streaming import positions
from ..feature_maps import SideFeatures
from ..priors.shared_regressor import OutOfFold
from ..sources.base import Reader, Statistics, TaskSource
from ..sources.dask import DaskSource
from ..sources.disk import DiskSource, digest_tasks
from ..sources.scan import TaskScan
from ..tasks import Scaling, TaskSet


@contextmanager
def open_scan(
    scan: TaskScan, checkpoint: Any, *, seed: int, settings: dict[str, Any], validation: Any, n_threads: int
) -> Iterator[TaskSource]:
    """Open the source of a scan; without a ``checkpoint`` its folder is deleted at the end."""
    if scan.table.dask_frame is not None:
        if checkpoint is not None:
            raise ValueError(
                "checkpoint: statistics of a Dask dataframe stay on its cluster and are not stored; leave out checkpoint"
            )
        yield DaskSource(scan, seed)
        return
    if checkpoint is not None:
        settings = {**settings, "validation": digest_tasks(validation)}
        yield DiskSource(scan, Path(checkpoint), seed=seed, settings=settings, n_threads=n_threads)
        return
    with tempfile.TemporaryDirectory(prefix="tailored-") as folder:
        yield DiskSource(scan, Path(folder), seed=seed, settings=None, n_threads=n_threads)


def check_no_columns(**arguments: Any) -> None:
    """Raise if columns are passed in addition to a scan, which has its own."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(
                f"{name}: a scan has its own columns; name them in tailored.scan and leave out {name}"
            )


class AllTasks:
    """Statistics of all tasks of a source, in the scaling and with the features that were learned on the sample."""

    def __init__(self, source: TaskSource, sample: TaskSet) -> None:
        self._source, self._sample = source, sample
        self.n_tasks = 0

    def __call__(
        self, scaling: Scaling, side: SideFeatures | None, common: OutOfFold | None = None
    ) -> Statistics:
        residuals = None if common is None else partial(_residuals, common, self._sample)
        statistics = self._source.statistics(Reader(scaling, side, residuals))
        self.n_tasks = statistics.totals().n_tasks
        return statistics


def _residuals(common: OutOfFold, sample: TaskSet, tasks: TaskSet) -> TaskSet:
    """Subtract the shared regressor; tasks of the sample get the one that was fitted without them."""
    return common.residual_tasks(tasks, positions(sample, tasks))
