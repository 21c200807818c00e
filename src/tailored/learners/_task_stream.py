"""Tasks in memory, in pieces of a stream, and in tables that need not fit into memory: what is done with each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._utils.threads import single_threaded_blas
from ..empirical_bayes.learn import Learned
from ..empirical_bayes.streaming import RunningModel, Stream, join, positions
from ..sources.base import TaskSource
from ..sources.scan import TaskScan
from ..tasks import Scaling, TaskSet
from ._base import MetaLearner
from ._reading import warn_repeated_numbers
from ._scanning import AllTasks, open_scan


class StreamLearner(MetaLearner):
    """Base of `EmpiricalBayesLearner`: where its tasks come from."""

    n_jobs: int | None
    random_state: Any
    _stream: Stream

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _train(
        self,
        tasks: TaskSet,
        n_validation: int,
        clip: tuple[float, float] | None,
        *,
        going_on: bool = False,
        source_in: Any = None,
    ) -> Learned:
        raise NotImplementedError

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _fit_tasks(self, tasks: TaskSet, validation: TaskSet | None) -> None:
        """Learn from tasks that have been read, and begin a stream with them."""
        held_out = None if validation is None else self._read_held_out(validation)
        if held_out is not None and len(tasks.y):
            # as new rows are
            units = Scaling.of(tasks, self.fit_intercept)
            units.check(held_out.X, held_out.y, names=tasks.feature_names)
        self._stream, _ = Stream.begin(self._seed()).take(tasks, held_out)
        learned, known = self._learn_from(tasks, held_out, self._clip(tasks.y))
        self._choose(learned, positions(known, tasks), tasks)

    def _learn_from(
        self, tasks: TaskSet, validation: TaskSet | None, clip: tuple[float, float] | None, **options: Any
    ) -> tuple[Learned, TaskSet]:
        """What is learned from tasks, and these in the order in which they were: that of their labels.

        All that is drawn from them, and the last bits of all sums, are those of whichever order they came in.
        """
        seed = self._stream.seed
        known = tasks.in_label_order(seed)
        held_out = None if validation is None else validation.in_label_order(seed)
        return self._train(*join(known, held_out), clip, **options), known

    def _go_on(self, piece: TaskSet, validation: TaskSet | None) -> None:
        before, clip = self._stream, self._clip(piece.y)
        self._stream, tasks = before.take(piece, validation)
        warn_repeated_numbers(before.sample, piece)
        if self._stream.is_due or before.running is None:
            samples = self._stream.sample.sample, self._stream.validation.tasks
            learned, known = self._learn_from(*samples, clip, going_on=self._stream.is_settled)
            self._choose(learned, positions(known, tasks), tasks)
            return
        running, shared = before.running, self.prior_.regressor
        assert running is not None
        left = tasks if shared is None else shared.residual_tasks(tasks)
        with single_threaded_blas():
            running = running.advance(left.in_label_order(before.seed), before.n_tasks)
        self._stream = replace(self._stream, running=running)
        self.prior_ = replace(running.prior(self.prior_), clip=clip)
        self.n_tasks_seen_ = self._stream.n_tasks
        self._remember(tasks)

    def _choose(self, learned: Learned, found: NDArray[np.intp], tasks: TaskSet) -> None:
        """Take what was learned; ``found`` are the places of ``tasks``, which are to be served, among those learned from."""
        running, before = None if learned.model is None else RunningModel.of(learned), self._stream.running
        n_tasks = self._stream.n_tasks
        if learned.shared is None and running is not None and before is not None:
            with single_threaded_blas():
                piece, unseen = (some.in_label_order(self._stream.seed) for some in (tasks, tasks[found < 0]))
                if running.is_superseded_by(before, unseen):
                    running = replace(running, model=before.model).advance(piece, n_tasks - len(tasks))
                    self.prior_ = running.prior(self.prior_)
        self._stream = replace(self._stream, running=running, n_selected=n_tasks)
        self.n_tasks_seen_ = n_tasks
        # Training tasks are predicted by the shared regressor that was not fitted to them.
        self._remember(tasks, None if learned.shared is None else learned.shared.folds_of(found))

    def _fit_scan(self, scan: TaskScan, validation: TaskSet | None, checkpoint: Any) -> Self:
        """Learn from the tasks of a table that is read in batches."""
        with self._all_or_nothing(reset=True):
            self._check_parameters()
            seed = self._seed()
            settings = {
                k: v for k, v in self.get_params(deep=False).items() if k not in ("n_jobs", "progress")
            }
            with open_scan(
                scan,
                checkpoint,
                seed=seed,
                settings=settings,
                validation=validation,
                n_threads=joblib.effective_n_jobs(self.n_jobs),
            ) as source:
                self._fit_source(source, seed, validation)
        return self

    def _fit_source(self, source: TaskSource, seed: int, validation: TaskSet | None) -> None:
        """Learn from the sample of a source, then fit the selected model to all tasks, whose weights are not stored."""
        sample = self._read(source.reservoir.sample, reset=True)
        if source.reservoir.is_whole:
            self._fit_tasks(sample, validation)
            return
        held_out = None if validation is None else self._read_held_out(validation)
        stream, _ = Stream.begin(seed).take(sample, held_out)
        self._stream = replace(stream, sample=source.reservoir)
        everything = AllTasks(source, sample.in_label_order(seed))
        clip = self._clip(np.array(source.target_range))
        learned, _ = self._learn_from(sample, held_out, clip, source_in=everything)
        n_tasks = self.n_tasks_seen_ = everything.n_tasks + (0 if held_out is None else len(held_out))
        self._stream = replace(
            self._stream, n_tasks=n_tasks, n_selected=n_tasks, running=RunningModel.of(learned)
        )

        source.close()
