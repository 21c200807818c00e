"""Learners that minimise one of the paper's objectives with a solver, over tasks at once or in a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from .._utils.progress import progress_bar
from .._utils.validation import check_choice, check_fraction, check_int, check_positive
from ..feature_maps import FeatureMap, check_features, get_feature_map
from ..priors.representation import RepresentationPrior
from ..representation import BIASES, Bias, Conditioning, Constant
from ..solvers import Solver, get_solver
from ..solvers.base import Problem, TaskBatch
from ..solvers.held_out import HeldOutPool
from ..solvers.objectives import OBJECTIVES, Objective, Query, Surrogate
from ..solvers.projected import StepSizes
from ..tasks import Rows, TaskSet
from ..tasks.episodes import split_rows
from ..tasks.rows import clipped, mean_error, predictions
from ._base import MetaLearner
from ._reading import refuse_arguments
from ._stream import Stream

Array = NDArray[np.float64]

# What a seed is drawn for, besides the held-out tasks: query rows, the solver, and other query rows.
QUERY_ROWS, SOLVER, REDRAWN_ROWS = 2, 3, 4


def _takes_tasks_in_pieces(learner: ObjectiveLearner) -> bool:
    try:
        solver = get_solver(learner.solver)
    except (TypeError, ValueError):
        return True  # the call itself says what is wrong with it
    if not solver.streams:
        raise AttributeError(
            f"partial_fit: {type(solver).__name__} needs all tasks at once; use solver='projected'"
        )
    return True


class ObjectiveLearner(MetaLearner):
    """Fit and partial_fit with a solver; the subclasses say whether there is an H."""

    feature_map: Any
    inner: str
    objective: str
    rank: int | None
    bias: str
    solver: Any
    initial_representation: Any
    lipschitz: float | None
    scale_features: bool
    calibrate: bool
    validation_fraction: float
    support: float
    progress: bool
    random_state: Any
    step_size_: StepSizes
    theory_constants_: dict[str, float]
    _stream: Stream

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        validation: TaskSet | None = None,
        **others: Any,
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            The training tasks; Algorithm 1 visits them in their order, which matters to no other solver.
        y, groups, side_info
            See `TaskSet`; without ``groups`` all rows are one task.
        validation : TaskSet, optional
            Tasks to choose on; by default some of the training tasks are held out.
        """
        refuse_arguments(self, others)
        with self._all_or_nothing(reset=True):
            self._learn(X, y, groups, side_info, validation, reset=True, whole=True)
        return self

    @available_if(_takes_tasks_in_pieces)
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        validation: TaskSet | None = None,
    ) -> Self:
        """Go on with more tasks of the stream.

        With projected steps, a stream gives the same representation, bit for bit, however it is cut into
        pieces (feature maps that learn from data, such as category encoders, are fitted on the first piece).
        `fit` differs in one thing: it knows all tasks, and measures φ by their root mean square, where a
        stream has to take that of the tasks so far.  `predict` then serves the tasks of the last piece.

        A call succeeds whole or changes nothing.
        """
        fresh = not hasattr(self, "_stream")
        if fresh and hasattr(self, "prior_"):
            raise ValueError(
                "partial_fit: a loaded learner cannot continue a stream. Pickle it instead, or fit a new one."
            )
        with self._all_or_nothing(reset=fresh):
            self._learn(X, y, groups, side_info, validation, reset=fresh, whole=False)
            self._goes_on = True
        return self

    def set_params(self, **params: Any) -> Self:
        """Set arguments; ``solver__step`` reaches into the solver, which a name then becomes an object for."""
        before = self.solver
        if any(name.startswith("solver__") for name in params):
            # A copy, so that a name that the solver does not have leaves it as it was.
            self.solver = params["solver"] = clone(get_solver(params.get("solver", self.solver)))
        try:
            super().set_params(**params)
        except (TypeError, ValueError):
            self.solver = before
            raise
        return self

    # ------------------------------------------------------------------ learning

    def _learn(
        self,
        X: Any,
        y: Any,
        groups: Any,
        side_info: Any,
        validation: TaskSet | None,
        *,
        reset: bool,
        whole: bool,
    ) -> None:
        solver = self._check_parameters()
        tasks = self._read(X, y, groups, side_info, reset=reset)
        stream = self._begin(solver) if reset else self._stream
        held_out = None if validation is None else self._read_held_out(validation)
        in_turn = tasks
        if whole and not solver.uses_task_order:
            in_turn = tasks.in_label_order(stream.seed)
            held_out = None if held_out is None else held_out.in_label_order(stream.seed)
        stream, train = self._hold_out(stream, in_turn, held_out)
        if stream.feature_map is None:
            # On the training tasks alone: a map that learns must not have seen the held-out ones.
            stream = replace(stream, feature_map=self._fitted_map(train))
        stream, batch = self._batch(stream, train, whole)
        stream = replace(stream, n_tasks=stream.n_tasks + len(tasks))
        start = self._start(stream, batch.phis.shape[1], self._clip(tasks.y))
        with progress_bar("Learning from tasks", solver.n_ticks(len(batch)), enabled=self.progress) as tick:
            problem = Problem(
                start,
                self._objective(),
                train,
                batch,
                lambda number: self._redrawn(stream, train, batch, number),
                self._judge(stream, start),
                has_start=self.initial_representation is not None,
                rank=self.rank,
                tune_scale=bool(self.calibrate),
                scale_features=bool(self.scale_features),
                seed=[stream.seed, SOLVER, stream.n_train],
                n_jobs=self.n_jobs,
                tick=tick,
            )
            solution = solver.solve(problem, stream.state)
        self._stream = replace(stream, state=solution.state)
        self.prior_ = solution.prior
        self.search_results_, self.validation_error_ = solution.history, solution.error
        self.scale_, self.n_iter_ = solution.scale, solution.n_iter
        self.n_tasks_seen_ = stream.n_tasks
        for name, value in solution.details.items():
            setattr(self, name, value)
        self._remember(tasks)

    def _begin(self, solver: Solver) -> Stream:
        # RandomState.randint exists in every form that scikit-learn accepts for random_state.
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        pool = HeldOutPool(self.validation_fraction, self.support, seed) if solver.needs_held_out else None
        return Stream(seed, pool)

    def _hold_out(self, stream: Stream, tasks: TaskSet, validation: TaskSet | None) -> tuple[Stream, TaskSet]:
        """The stream with its held-out tasks, and the tasks that train."""
        if validation is not None:
            if stream.pool is None:
                raise ValueError(
                    "validation: these tasks are only used where something is chosen on them, "
                    "as with ProjectedSGD(step='search')"
                )
            return replace(stream, pool=stream.pool.add(validation)), tasks
        if stream.pool is None:
            return stream, tasks
        pool, mask = stream.pool.partition(tasks, stream.n_tasks)
        return replace(stream, pool=pool), tasks[np.flatnonzero(mask)]

    def _fitted_map(self, train: TaskSet) -> FeatureMap | None:
        """Φ, fitted; None for a learner without one."""
        if self.feature_map is None:
            return None
        return get_feature_map(self.feature_map, has_side_info=train.side_info is not None).fit(train)

    def _start(self, stream: Stream, n_side: int, clip: tuple[float, float] | None) -> RepresentationPrior:
        C0 = self._initial_representation(self.initial_representation)
        return RepresentationPrior(
            scaling=self._raw_units(),
            conditioning=Constant(C0, n_side),
            bias=Bias.zero(self.bias, len(C0), n_side),
            feature_map=stream.feature_map,
            clip=clip,
            **self._within_settings(),
        )

    def _features(self, feature_map: FeatureMap | None, tasks: TaskSet) -> Array:
        if feature_map is None:
            return np.zeros((len(tasks), 0))
        known = self.conditioning_.n_side if hasattr(self, "prior_") else None
        return check_features(feature_map.transform(tasks), tasks, known)

    def _batch(self, stream: Stream, train: TaskSet, whole: bool) -> tuple[Stream, TaskBatch]:
        """The training tasks as solvers see them, and the stream that has counted them."""
        support, query = train, None
        if OBJECTIVES[self.objective].needs_query:
            # Positions count training tasks: held-out tasks have their own draw.
            positions = range(stream.n_train, stream.n_train + len(train))
            support, query = split_rows(train, positions, self.support, (stream.seed, QUERY_ROWS))
        phis = self._features(stream.feature_map, support)
        stream, squared_scale = stream.count_features(phis)
        if not self.scale_features:
            squared_scale = np.ones(len(train))
        elif whole and len(train):
            squared_scale = np.full(len(train), squared_scale[-1])
        lipschitz = None
        if self.objective == "surrogate" and self.lipschitz is None and not np.isfinite(self.loss_.lipschitz):
            stream, lipschitz = stream.count_targets(support)
        batch = TaskBatch(
            self._rows(support),
            None if query is None else self._rows(query),
            phis,
            squared_scale,
            # of the query rows too: a rating to be predicted is of an item that was not rated before
            self._rows(train).columns() if train.is_sparse else None,
            lipschitz,
        )
        return stream, batch

    def _redrawn(self, stream: Stream, train: TaskSet, batch: TaskBatch, number: int) -> TaskBatch:
        """The batch with other support rows in every pass: a task of n rows is many."""
        if batch.query is None or number == 0:
            return batch
        positions = range(stream.n_train - len(train), stream.n_train)
        key = (stream.seed, REDRAWN_ROWS, number)
        support, query = split_rows(train, positions, self.support, key)
        phis = self._features(stream.feature_map, support)
        return replace(batch, support=self._rows(support), query=self._rows(query), phis=phis)

    def _judge(self, stream: Stream, start: RepresentationPrior) -> Any:
        """The error of a conditioning function and a prior mean on the held-out tasks."""
        if stream.pool is None:
            return None
        support, query = stream.pool.tasks()
        phis = self._features(stream.feature_map, support)
        support_rows, query_rows = self._rows(support), self._rows(query)

        def judge(conditioning: Conditioning, bias: Bias) -> float:
            prior = replace(start, conditioning=conditioning, bias=bias)
            prediction = predictions(query_rows, prior.solve(support_rows, phis, self.n_jobs))
            losses = self.loss_.value(clipped(prediction, prior.clip), query.y)
            return mean_error(losses, query.offsets)

        return judge

    def _rows(self, tasks: TaskSet) -> Rows:
        return Rows.of(tasks, bool(self.fit_intercept))

    def _objective(self) -> Objective:
        if self.objective == "query":
            return Query(self.loss_, self.tol, self.max_iter)
        lipschitz = self.loss_.lipschitz if self.lipschitz is None else float(self.lipschitz)
        return Surrogate(self.loss_, lipschitz, self.inner, self.tol, self.max_iter)

    def _check_parameters(self) -> Solver:
        self._check_common()
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("bias", self.bias, BIASES)
        check_fraction("validation_fraction", self.validation_fraction)
        check_fraction("support", self.support)
        if self.rank is not None:
            check_int("rank", self.rank)
        if self.lipschitz is not None:
            check_positive("lipschitz", self.lipschitz)
        if self.objective == "query" and self.inner != "exact":
            raise ValueError(
                "inner: the query objective differentiates the exact solution; use inner='exact'"
            )
        solver = get_solver(self.solver)
        solver.check(inner=self.inner, rank=self.rank, conditional=self.feature_map is not None)
        return solver
