"""Learners trained by projected SGD over a stream of tasks (the paper's Alg. meta_alg), or on factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from .._threads import single_threaded_blas
from .._validation import check_choice, check_fraction, check_int, check_nonnegative, check_positive
from ..feature_maps import get_feature_map
from ..objectives import OBJECTIVES, Objective, Query, Surrogate
from ..progress import progress_bar
from ..representation.bias import BIASES, Bias
from ..representation.conditioning import Conditioning
from ..solvers import factored as _factored
from ..solvers import steps as search
from ..solvers import trajectory as optimizers
from ..solvers.factors import Factors
from ..solvers.steps import ValidationPool
from ..solvers.trajectory import StepSizes, TaskBatch, Trajectory
from ..tasks import TaskSet
from ..tasks.rows import clipped, predictions, task_means
from ._base import MetaLearner

Array = NDArray[np.float64]


@dataclass
class _Stream:
    """Where a stream of tasks stands: all that `partial_fit` needs to go on."""

    seed: int
    trajectories: list[Trajectory]
    pool: ValidationPool | None
    solver: str
    factored: _factored.State | None = None
    n_tasks: int = 0
    # running sums behind the scale of φ and the stand-in for a Lipschitz constant
    squared_phi: float = 0.0
    n_phi: int = 0
    squared_y: float = 0.0
    n_y: int = 0


def _takes_tasks_in_pieces(learner: _StreamingLearner) -> bool:
    if learner.solver == "lbfgs":
        raise AttributeError(
            "partial_fit: solver='lbfgs' needs all tasks at once; use solver='adam' or 'projected'"
        )
    return True


class _StreamingLearner(MetaLearner):
    """Fit and partial_fit by Algorithm 1; the subclasses say whether there is an H."""

    _conditional: bool
    feature_map: Any
    rank: int | None
    objective: str
    bias: str
    solver: str
    batch_size: int
    max_passes: int
    step_size: Any
    step_sizes: Any
    step_ratios: Any
    theory_constants: Any
    initial_representation: Any
    lipschitz: float | None
    scale_features: bool
    calibrate: bool
    validation_fraction: float
    support: float
    progress: bool
    random_state: Any

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        validation: TaskSet | None = None,
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            The training tasks, in the order in which they are visited.
        y, groups, side_info
            See `TaskSet`; without ``groups`` all rows are one task.
        validation : TaskSet, optional
            Tasks to choose the step size on; by default some of the training tasks are held out.
        """
        self._stream: _Stream | None = None
        return self._learn(X, y, groups, side_info, validation, reset=True)

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

        Giving a stream in pieces gives the same representation, bit for bit, as giving it to `fit`
        at once (feature maps that learn from data, such as category encoders, are fitted on the
        first piece).  `predict` then serves the tasks of the last piece.

        With ``solver="adam"`` a piece is learned from in several passes, from where the last one ended,
        and how the stream is cut does matter.  With ``solver="lbfgs"`` there is no `partial_fit`.
        """
        fresh = getattr(self, "_stream", None) is None
        if fresh and hasattr(self, "conditioning_"):
            raise ValueError(
                "partial_fit: this learner was loaded from a file, which holds the result and not the "
                "state of the stream; fit a new one, or keep it with pickle"
            )
        return self._learn(X, y, groups, side_info, validation, reset=fresh)

    @property
    def _steps_asked(self) -> Any:
        """``step_size`` as Algorithm 1 reads it."""
        return self.step_size

    # ------------------------------------------------------------------ the stream

    def _learn(
        self, X: Any, y: Any, groups: Any, side_info: Any, validation: TaskSet | None, *, reset: bool
    ) -> Self:
        self._check_parameters()
        if not reset and self._stream is not None and self._stream.solver != self.solver:
            raise ValueError(
                f"solver: it was changed between two calls of partial_fit from {self._stream.solver!r} to "
                f"{self.solver!r}; call fit to start over"
            )
        tasks = self._tasks(X, y, groups, side_info, reset=reset)
        self._set_clip(tasks, reset=reset)
        if reset:
            self._begin()
        if validation is not None:
            if self._stream is not None and self._stream.pool is None:
                raise ValueError("validation: these tasks are only used with step_size='search'")
            validation = self._tasks(validation, reset=False)
        stream = self._stream
        assert stream is not None
        train = tasks
        if stream.pool is not None:
            if validation is not None:
                stream.pool.add(validation, stream.pool.n_held_out)
            else:
                mask = stream.pool.partition(tasks, stream.n_tasks)
                train = tasks[np.flatnonzero(mask)]
        if reset and self._conditional:
            # On the training tasks alone: a map that learns must not have seen the held-out ones.
            spec = get_feature_map(self.feature_map, has_side_info=tasks.side_info is not None)
            self.feature_map_ = spec.fit(train)
        batch = self._batch(train, stream)
        stream.n_tasks += len(tasks)
        if self.solver == "projected":
            self._run_projected(train, batch, stream)
        else:
            self._run_factored(train, batch, stream)
        self.n_tasks_seen_ = stream.n_tasks
        self._remember(tasks)
        return self

    def _run_projected(self, train: TaskSet, batch: TaskBatch, stream: _Stream) -> None:
        """Algorithm 1 with every candidate for the steps, and the choice between them."""
        if not stream.trajectories:
            stream.trajectories = [self._start(steps) for steps in self._candidates(train, batch)]
        with progress_bar("Learning from tasks", len(batch), enabled=self.progress) as tick:
            stream.trajectories = optimizers.run(
                stream.trajectories, batch, self._objective(), n_jobs=self.n_jobs, tick=tick
            )
        self._choose(stream)

    def _begin(self) -> None:
        # RandomState.randint exists in every form that scikit-learn accepts for random_state.
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.feature_map_ = None
        for stale in ("n_side_", "conditioning_", "step_size_"):
            if hasattr(self, stale):
                delattr(self, stale)
        pool = None
        if isinstance(self._steps_asked, str) and self._steps_asked == "search":
            pool = ValidationPool(self.validation_fraction, self.support, seed)
        self._stream = _Stream(seed, [], pool, self.solver)

    def _batch(self, tasks: TaskSet, stream: _Stream) -> TaskBatch:
        objective = OBJECTIVES[self.objective]
        support, query = tasks, None
        if objective.needs_query:
            # Positions count training tasks: held-out tasks have their own draw.
            positions = range(stream.n_phi, stream.n_phi + len(tasks))
            support, query = search.split_rows(tasks, positions, self.support, (stream.seed, 2))
        phis = self._features(support)
        self.n_side_ = phis.shape[1]
        norms = np.einsum("ij,ij->i", phis, phis)
        # cumsum adds one term after the other, so a stream cut anywhere sums to the same bits
        sums = np.cumsum(np.concatenate([[stream.squared_phi], norms]))
        counts = stream.n_phi + np.arange(1, len(tasks) + 1)
        squared_scale = sums[1:] / counts if self.scale_features else np.ones(len(tasks))
        rows = self._rows(support)
        lipschitz = self._running_lipschitz(support, stream)
        stream.squared_phi, stream.n_phi = float(sums[-1]), stream.n_phi + len(tasks)
        return TaskBatch(
            rows,
            None if query is None else self._rows(query),
            phis,
            squared_scale,
            # of the query rows too: a rating to be predicted is of an item that was not rated before
            self._columns(self._rows(tasks)) if tasks.is_sparse else None,
            lipschitz,
        )

    def _running_lipschitz(self, tasks: TaskSet, stream: _Stream) -> Array | None:
        """Root mean square of the targets so far, for losses without a Lipschitz constant.

        The dual solution of the squared loss satisfies ‖α‖ ≤ ‖y‖, so this is what L² stands for in
        the surrogate: a bound on the mean square of the slopes.
        """
        if self.objective != "surrogate" or self.lipschitz is not None or np.isfinite(self.loss_.lipschitz):
            return None
        squares = np.array([float(task.y @ task.y) for task in tasks])
        sums = np.cumsum(np.concatenate([[stream.squared_y], squares]))
        counts = stream.n_y + np.cumsum(tasks.sizes)
        stream.squared_y, stream.n_y = float(sums[-1]), int(counts[-1])
        return np.sqrt(sums[1:] / np.maximum(counts, 1))

    def _start(self, steps: StepSizes) -> Trajectory:
        C0 = self._initial_representation(self.initial_representation)
        return Trajectory.start(
            steps, C0, self.n_side_, rank=self.rank, bias=self.bias, conditional=self._conditional
        )

    def _objective(self) -> Objective:
        if self.objective == "query":
            return Query(self.loss_, self.tol, self.max_iter)
        lipschitz = self.loss_.lipschitz if self.lipschitz is None else float(self.lipschitz)
        return Surrogate(self.loss_, lipschitz, self.inner, self.tol, self.max_iter)

    # ------------------------------------------------------------------ step sizes

    def _candidates(self, train: TaskSet, batch: TaskBatch) -> list[StepSizes]:
        if isinstance(self._steps_asked, str):
            if self._steps_asked == "search":
                sizes = search.STEP_SIZES if self.step_sizes is None else self.step_sizes
                return search.candidate_steps(sizes, self.step_ratios, conditional=self._conditional)
            step = search.theory_step(**self._theory_constants(train, batch))
            return [StepSizes(step, step, step)]
        if np.ndim(self._steps_asked) == 0:
            return [StepSizes(*[float(self._steps_asked)] * 3)]
        step_C, step_H = map(float, self._steps_asked)
        return [StepSizes(step_C, step_H, step_C)]

    def _theory_constants(self, train: TaskSet, batch: TaskBatch) -> dict[str, Any]:
        """Constants of Thm. bound_estimated_feature: those stated, the others estimated."""
        stated = dict(self.theory_constants or {})
        unknown = set(stated) - {"distance", "K", "L", "R", "n", "T"}
        if unknown:
            raise ValueError(
                f"theory_constants: unknown {sorted(unknown)}; valid names are distance, K, L, R, n, T"
            )
        for name, value in stated.items():
            check_positive(f"theory_constants[{name!r}]", value)
        rows = self._rows(train)
        X = rows.X.toarray() if train.is_sparse else rows.X
        norms = np.einsum("ij,ij->i", batch.phis, batch.phis)
        scale = batch.squared_scale[-1] if self.scale_features and batch.squared_scale[-1] > 0 else 1.0
        lipschitz = self.lipschitz or self.loss_.lipschitz
        if not np.isfinite(lipschitz):
            lipschitz = float(np.sqrt(np.mean(train.y**2)))
        estimates: dict[str, Any] = {
            "K": lambda: float(np.sqrt(norms.max(initial=0.0) / scale)) if self._conditional else 0.0,
            "L": lambda: float(lipschitz),
            "R": lambda: float(np.sqrt(np.einsum("ij,ij->i", X, X).max(initial=0.0))),
            "n": lambda: float(np.mean(train.sizes)),
            "T": lambda: len(train),
        }
        constants = {name: stated.get(name) or estimate() for name, estimate in estimates.items()}
        C0 = self._initial_representation(self.initial_representation)
        constants["distance"] = stated.get("distance") or search.oracle_distance(
            X, rows.y, rows.offsets, C0, constants["L"]
        )
        self.theory_constants_ = constants
        return constants

    def _choose(self, stream: _Stream) -> None:
        """Set the fitted attributes from the trajectory that does best on the held-out tasks."""
        trajectories = stream.trajectories
        errors = np.array([np.inf if run.failure else 0.0 for run in trajectories])
        if np.isinf(errors).all():
            steps = ", ".join(str(run.steps) for run in trajectories)
            raise ValueError(
                f"step_size: the iterates overflow with step {steps} ({trajectories[0].failure}); "
                "give a smaller step, or rescale X and y"
            )
        if stream.pool is not None:
            support, query = stream.pool.tasks()
            phis = self._features(support)
            scales = search.CALIBRATION_SCALES if self.calibrate else (1.0,)
            table = np.full((len(trajectories), len(scales)), np.inf)
            with single_threaded_blas():
                for c, run in enumerate(trajectories):
                    for j, scale in enumerate(scales):
                        if not run.failure:
                            table[c, j] = self._validation_error(
                                run.average.scale(scale), run.bias_average, support, query, phis
                            )
            self.search_results_ = [
                {"step_C": r.steps.C, "step_H": r.steps.H, "scale": scale, "error": float(error)}
                for r, row in zip(trajectories, table, strict=True)
                for scale, error in zip(scales, row, strict=True)
            ]
            errors = table.min(axis=1)
            self.scale_ = float(scales[int(np.argmin(table[int(np.argmin(errors))]))])
        best = trajectories[int(np.argmin(errors))]
        self.step_size_ = best.steps
        self.validation_error_ = float(errors.min()) if stream.pool is not None else None
        self.conditioning_ = best.average if stream.pool is None else best.average.scale(self.scale_)
        self.bias_ = best.bias_average
        self.n_iter_ = max(best.n_steps, 1)

    def _validation_error(
        self, conditioning: Conditioning, bias: Bias, support: TaskSet, query: TaskSet, phis: Array
    ) -> float:
        weights = self._solve_batch(self._rows(support), phis, conditioning, bias)
        prediction = clipped(predictions(self._rows(query), weights), self.clip_)
        losses = self.loss_.value(prediction, query.y)
        error = float(np.nanmean(task_means(losses, query.offsets)))
        return error if np.isfinite(error) else np.inf

    # ------------------------------------------------------------------ factors

    def _run_factored(self, train: TaskSet, batch: TaskBatch, stream: _Stream) -> None:
        """Optimise factors of H and C, judged on the held-out tasks, and set the fitted attributes."""
        assert stream.pool is not None
        support, query = stream.pool.tasks()
        phis = self._features(support)

        def error(conditioning: Conditioning, bias: Bias) -> float:
            return self._validation_error(conditioning, bias, support, query, phis)

        def error_of(factors: Factors, scale: float) -> float:
            return error(factors.conditioning(self.rank).scale(scale), factors.bias(self.bias))

        objective = self._objective()
        if batch.lipschitz is not None:
            # all tasks are at hand: one constant for all of them
            objective = replace(objective, lipschitz=float(batch.lipschitz[-1]))  # type: ignore[type-var]
        rng = np.random.default_rng([stream.seed, 3, stream.n_phi])
        with (
            single_threaded_blas(),
            progress_bar("Passes over the tasks", self.max_passes, enabled=self.progress) as tick,
        ):
            state = stream.factored or self._factored_start(train, batch, objective, error, rng)
            trained = _factored.train(
                self.solver,
                objective,
                state,
                lambda number: self._redrawn(train, batch, stream, number),
                error_of,
                max_passes=self.max_passes,
                batch_size=self.batch_size,
                calibrate=bool(self.calibrate),
                n_jobs=self.n_jobs,
                rng=rng,
                tick=tick,
            )
        stream.factored = replace(state, factors=trained.factors, scale=trained.scale)
        factors = state.coordinates.leave(trained.factors)
        self.conditioning_ = factors.conditioning(self.rank).scale(trained.scale)
        self.bias_ = factors.bias(self.bias)
        self.scale_, self.validation_error_ = trained.scale, trained.error
        self.search_results_ = trained.history
        self.n_iter_ = max(trained.history[-1]["iteration"], 1)

    def _redrawn(self, train: TaskSet, batch: TaskBatch, stream: _Stream, number: int) -> TaskBatch:
        """The batch with other support rows in every pass: a task of n rows is many."""
        if batch.query is None or number == 0:
            return batch
        positions = range(stream.n_phi - len(train), stream.n_phi)
        support, query = search.split_rows(train, positions, self.support, (stream.seed, 4, number))
        return replace(
            batch, support=self._rows(support), query=self._rows(query), phis=self._features(support)
        )

    def _factored_start(
        self, train: TaskSet, batch: TaskBatch, objective: Objective, error: Any, rng: np.random.Generator
    ) -> _factored.State:
        given = self.initial_representation
        d = self.n_features_in_ + bool(self.fit_intercept)
        return _factored.start(
            train,
            batch,
            self.loss_,
            objective,
            Bias(self.bias, d, self.n_side_),
            C0=None if given is None else self._initial_representation(given),
            rank=0 if self.rank is None else self.rank,
            fit_intercept=bool(self.fit_intercept),
            calibrate=bool(self.calibrate),
            held_out=error,
            rng=rng,
        )

    # ------------------------------------------------------------------ parameters

    def _check_parameters(self) -> None:
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
        self._check_step_size()
        self._check_solver()
        for name in ("step_sizes", "step_ratios"):
            values = getattr(self, name)
            if values is not None:
                if len(values) == 0:
                    raise ValueError(f"{name}: give at least one value")
                for value in values:
                    check_nonnegative(name, value)

    def _check_solver(self) -> None:
        check_choice("solver", self.solver, _factored.SOLVERS)
        check_int("batch_size", self.batch_size)
        check_int("max_passes", self.max_passes)
        if self.solver == "projected":
            return
        if not (isinstance(self._steps_asked, str) and self._steps_asked == "search"):
            raise ValueError(
                f"step_size: solver={self.solver!r} finds its own steps and stops by held-out tasks; "
                f"use step_size='search', got {self.step_size!r}"
            )
        if self.inner != "exact":
            raise ValueError(
                f"inner: solver={self.solver!r} differentiates the exact solution; use inner='exact'"
            )
        if self._conditional and self.rank is None:
            raise ValueError(
                f"rank: solver={self.solver!r} works on a factor of H with so many columns; give a rank, for "
                "instance rank=32"
            )

    def _check_step_size(self) -> None:
        if isinstance(self._steps_asked, str):
            check_choice("step_size", self._steps_asked, ["search", "theory"])
        elif np.ndim(self._steps_asked) == 0:
            check_nonnegative("step_size", self._steps_asked)
        else:
            if len(self._steps_asked) != 2:
                raise ValueError(f"step_size: a pair is (step of C, step of H), got {self._steps_asked!r}")
            for value in self._steps_asked:
                check_nonnegative("step_size", value)
