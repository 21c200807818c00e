"""The paper's learners: a solver minimises an objective over all tasks at once, or over a stream of tasks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from .._utils.progress import progress_bar
from .._utils.records import restored_on_failure
from .._utils.validation import check_choice, check_fraction, check_int, check_positive, check_psd
from ..feature_maps import FeatureMap, get_feature_map
from ..feature_maps.maps import check_features
from ..priors.representation import RepresentationPrior
from ..representation.bias import BIASES, Bias
from ..representation.conditioning import Conditioning, Constant
from ..solvers import PAPER_STEP_SIZES, ProjectedSGD, Solver, get_solver
from ..solvers.base import HeldOutError, Problem, TaskBatch
from ..solvers.held_out import HeldOutPool
from ..solvers.objectives import OBJECTIVES, Objective, Query, Surrogate
from ..solvers.projected import StepSizes
from ..tasks.episodes import split_rows
from ..tasks.rows import Array, Rows, Scaling, clipped, mean_error, predictions
from ..tasks.task_set import TaskSet
from ..within import solving
from .base import MetaLearner

# Second entry of the seed for query rows, for the solver, and for redrawn query rows.
QUERY_ROWS, SOLVER, REDRAWN_ROWS = 2, 3, 4


@dataclass(kw_only=True, eq=False, repr=False)
class PaperLearner(MetaLearner):
    """Base of the paper's learners.  The fields are constructor arguments; see `ConditionalLearner`."""

    loss: Any = "absolute"
    inner: str = "exact"
    fit_intercept: bool = True
    clip: Any = None
    initial_representation: Any = None
    tol: float = 1e-8
    max_iter: int = 1000
    n_jobs: int | None = None
    random_state: Any = 0
    prior_: RepresentationPrior = field(init=False)

    @property
    def conditioning_(self) -> Conditioning:
        """(H, C) of ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``."""
        return self.prior_.conditioning

    @property
    def bias_(self) -> Bias:
        """(B, b₀) of the prior mean ``b(s) = Bφ + b₀``."""
        return self.prior_.bias

    @property
    def feature_map_(self) -> FeatureMap | None:
        """Φ; None if the prior does not depend on the task."""
        return self.prior_.feature_map

    def _check_within(self) -> None:
        """Check the arguments of the within-task algorithm."""
        self._check_loss()
        check_positive("tol", self.tol)
        check_int("max_iter", self.max_iter)
        check_choice("inner", self.inner, solving.WITHIN)

    def _start(
        self, clip: Any, bias: str = "none", feature_map: FeatureMap | None = None, n_side: int = 0
    ) -> RepresentationPrior:
        """Return the prior with H = 0, C = C₀ and b = 0."""
        d, C0 = self.n_features_in_ + bool(self.fit_intercept), self.initial_representation
        C0 = 1.0 if C0 is None else C0
        if np.ndim(C0) == 0 and not 0 <= C0 < np.inf:
            raise ValueError(f"initial_representation: a number must be finite and >= 0, got {C0!r}")
        C0 = check_psd(C0, "initial_representation", d) if np.ndim(C0) else float(C0) * np.eye(d)
        settings: Any = {"loss": self.loss_, "inner": self.inner, "tol": self.tol, "max_iter": self.max_iter}
        return RepresentationPrior(
            scaling=Scaling.raw(self.n_features_in_, self.fit_intercept),
            conditioning=Constant(C0, n_side),
            bias=Bias.zero(bias, d, n_side),
            feature_map=feature_map,
            clip=clip,
            **settings,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class IndependentLearner(PaperLearner):
    """Independent task learning, θ = I (ITL in the paper): a baseline that shares nothing between tasks.

    Parameters
    ----------
    initial_representation : float or array (d, d), optional
        θ of every task; a number means a multiple of the identity, which is the default.
    loss, inner, fit_intercept, clip, tol, max_iter, n_jobs
        See `ConditionalLearner`.
    random_state : int, RandomState or None, default=0
        Seed for the support and query rows of `score`.
    """

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None) -> Self:
        """Solve the given tasks independently; nothing is shared between tasks."""
        return self._learn(X, y, groups, side_info, reset=True)

    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None) -> Self:
        """Solve the given tasks as `fit` does; there is no state to continue."""
        return self._learn(X, y, groups, side_info, reset=not hasattr(self, "prior_"))

    def _learn(self, X: Any, y: Any, groups: Any, side_info: Any, *, reset: bool) -> Self:
        with self._all_or_nothing(reset=reset):
            self._check_within()
            tasks = self._read(X, y, groups, side_info, reset=reset)
            start, feature_range = self._start(self._clip(tasks.y)), self._feature_range(tasks.X)
            self.prior_, self.n_iter_ = replace(start, feature_range=feature_range), 1
            self._remember(tasks)
        return self


@dataclass(frozen=True)
class Stream:
    """State of a stream of tasks, from which `partial_fit` continues."""

    seed: int
    pool: HeldOutPool | None
    feature_map: FeatureMap | None = None  # fitted to the tasks of the first call
    state: Any = None  # state of the solver
    n_tasks: int = 0
    n_train: int = 0
    squared_phi: float = 0.0  # running sum for the scale of φ


@dataclass(kw_only=True, eq=False, repr=False)
class ObjectiveLearner(PaperLearner):
    """Base of the learners that minimise an objective with a solver; subclasses without a feature map have H = 0."""

    objective: str = "surrogate"
    bias: str = "none"
    solver: Any = "projected"
    lipschitz: float | None = None
    tune_scale: bool = True
    validation_fraction: float = 0.2
    support: float = 0.5
    progress: bool = False
    step_size_: StepSizes = field(init=False)
    _stream: Stream = field(init=False)

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None, validation: Any = None
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : TaskSet, or array (n, d) with ``y`` and ``groups``
            The training tasks.  Their order only affects `ProjectedSGD`, which visits them in this order.
        y, groups, side_info
            See `TaskSet`; without ``groups`` all rows are one task.
        validation : TaskSet, optional
            Tasks for model selection; by default some of the training tasks are held out.
        """
        with self._all_or_nothing(reset=True):
            self._learn(X, y, groups, side_info, validation, reset=True, whole=True)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None, validation: Any = None
    ) -> Self:
        """Continue with more tasks of a stream; a call that fails does not change the learner.

        The result is bitwise independent of how the stream is split into calls, except that feature maps with fitted
        parameters are fitted to the tasks of the first call.  It differs from `fit` in the scale of φ: `fit` uses the root
        mean square over all tasks, and `partial_fit` the root mean square over the tasks so far.
        """
        fresh = self._is_new_stream()
        with self._all_or_nothing(reset=fresh):
            self._learn(X, y, groups, side_info, validation, reset=fresh, whole=False)
            self._goes_on = True
        return self

    def set_params(self, **params: Any) -> Self:
        """Set arguments; ``solver__step`` sets an argument of the solver.  A solver given by name becomes an object."""
        with restored_on_failure(self):
            if any(name.startswith("solver__") for name in params):
                # Use a copy, so that an invalid name does not change the solver.
                self.solver = params["solver"] = clone(get_solver(params.get("solver", self.solver)))
            super().set_params(**params)
        return self

    def _learn(
        self, X: Any, y: Any, groups: Any, side_info: Any, validation: Any, *, reset: bool, whole: bool
    ) -> None:
        solver = self._check_parameters()
        if not whole and not solver.streams:
            name = type(solver).__name__
            raise ValueError(f"partial_fit: {name} needs all tasks at once; use fit, or solver='projected'")
        tasks = self._read(X, y, groups, side_info, reset=reset)
        if reset:
            seed = self._seed()
            pool = HeldOutPool(self.validation_fraction, self.support, seed)
            stream = Stream(seed, pool if solver.needs_held_out else None)
        else:
            stream = self._stream
        held_out = None if validation is None else self._read_held_out(validation)
        ordered = tasks if solver.streams else tasks.in_label_order(stream.seed)
        if held_out is not None and not solver.streams:
            held_out = held_out.in_label_order(stream.seed)
        stream, train = self._hold_out(stream, ordered, held_out)
        if stream.feature_map is None and self.feature_map is not None:
            # Fit on the training tasks only, because the map must not use the held-out tasks.
            feature_map = get_feature_map(self.feature_map, has_side_info=train.side_info is not None)
            stream = replace(stream, feature_map=feature_map.fit(train))
        stream, batch = self._batch(stream, train, whole)
        stream = replace(stream, n_tasks=stream.n_tasks + len(tasks))
        start = self._start(self._clip(tasks.y), self.bias, stream.feature_map, batch.phis.shape[1])
        with progress_bar("Learning from tasks", solver.n_ticks(len(batch)), enabled=self.progress) as tick:
            problem = Problem(
                start,
                self._objective(train, whole),
                train,
                batch,
                lambda number: self._redrawn(stream, train, batch, number),
                self._held_out_error(stream, start),
                has_start=self.initial_representation is not None,
                rank=self.rank,
                tune_scale=bool(self.tune_scale),
                seed=[stream.seed, SOLVER, stream.n_train],
                n_jobs=self.n_jobs,
                tick=tick,
            )
            solution = solver.solve(problem, stream.state)
        self._stream = replace(stream, state=solution.state)
        self.prior_ = replace(solution.prior, feature_range=self._feature_range(tasks.X))
        self.search_results_, self.validation_error_ = solution.history, solution.error
        self.scale_, self.n_iter_ = solution.scale, solution.n_iter
        self.n_tasks_seen_ = stream.n_tasks
        for name, value in solution.details.items():
            setattr(self, name, value)
        self._remember(tasks)

    def _hold_out(self, stream: Stream, tasks: TaskSet, validation: TaskSet | None) -> tuple[Stream, TaskSet]:
        """Hold out tasks; return the stream that contains them, and the training tasks."""
        if validation is not None:
            if stream.pool is None:
                advice = "Omit validation, or use a solver that does, such as ProjectedSGD(step='search')"
                raise ValueError(f"validation: this solver does not use validation tasks. {advice}")
            return replace(stream, pool=stream.pool.add(validation)), tasks
        if stream.pool is None:
            return stream, tasks
        pool, mask = stream.pool.partition(tasks, stream.n_tasks)
        return replace(stream, pool=pool), tasks[np.flatnonzero(mask)]

    def _features(self, feature_map: FeatureMap | None, tasks: TaskSet) -> Array:
        if feature_map is None:
            return np.zeros((len(tasks), 0))
        n_side = self.conditioning_.n_side if hasattr(self, "prior_") else None
        return check_features(feature_map.transform(tasks), tasks, n_side)

    def _batch(self, stream: Stream, train: TaskSet, whole: bool) -> tuple[Stream, TaskBatch]:
        """Return the stream after the training tasks, and these tasks in the form that solvers use."""
        support, query = train, None
        if OBJECTIVES[self.objective].needs_query:
            # Positions count only training tasks, because the rows of held-out tasks are drawn separately.
            positions = range(stream.n_train, stream.n_train + len(train))
            support, query = split_rows(train, positions, self.support, (stream.seed, QUERY_ROWS))
        phis = self._features(stream.feature_map, support)
        # cumsum adds the terms one by one, so that the sums do not depend on how the stream is split
        sums = np.cumsum(np.concatenate([[stream.squared_phi], np.einsum("ij,ij->i", phis, phis)]))
        squared_scale = sums[1:] / (stream.n_train + np.arange(1, len(phis) + 1))
        stream = replace(stream, squared_phi=float(sums[-1]), n_train=stream.n_train + len(phis))
        if not self.scale_features:
            squared_scale = np.ones(len(train))
        elif whole and len(train):
            squared_scale = np.full(len(train), squared_scale[-1])
        query_rows = None if query is None else self._rows(query)
        # Include the columns of query rows: a query rating may be for an item without support rows.
        columns = self._rows(train).columns() if train.is_sparse else None
        return stream, TaskBatch(self._rows(support), query_rows, phis, squared_scale, columns)

    def _redrawn(self, stream: Stream, train: TaskSet, batch: TaskBatch, number: int) -> TaskBatch:
        """Return the batch with its ``number``-th split into support and query rows."""
        if batch.query is None or number == 0:
            return batch
        positions = range(stream.n_train - len(train), stream.n_train)
        support, query = split_rows(train, positions, self.support, (stream.seed, REDRAWN_ROWS, number))
        phis = self._features(stream.feature_map, support)
        return replace(batch, support=self._rows(support), query=self._rows(query), phis=phis)

    def _held_out_error(self, stream: Stream, start: RepresentationPrior) -> HeldOutError | None:
        """Return a function that computes the error on the held-out tasks, or None if there are none."""
        if stream.pool is None:
            return None
        support, query = stream.pool.tasks()
        phis = self._features(stream.feature_map, support)
        support_rows, query_rows = self._rows(support), self._rows(query)

        def held_out_error(conditioning: Conditioning, bias: Bias) -> float:
            prior = replace(start, conditioning=conditioning, bias=bias)
            prediction = predictions(query_rows, prior.solve(support_rows, phis, self.n_jobs))
            losses = self.loss_.error(clipped(prediction, prior.clip), query.y)
            return mean_error(losses, query.offsets)

        return held_out_error

    def _rows(self, tasks: TaskSet) -> Rows:
        return Rows.of(tasks, bool(self.fit_intercept))

    def _objective(self, train: TaskSet, whole: bool) -> Objective:
        if self.objective == "query":
            return Query(self.loss_, self.tol, self.max_iter)
        lipschitz = self.loss_.lipschitz if self.lipschitz is None else float(self.lipschitz)
        if not np.isfinite(lipschitz):
            if not whole:
                advice = "pass lipschitz=, e.g. the root mean square of the targets, or objective='query'"
                raise ValueError(f"lipschitz: the {self.loss_.name} loss has no Lipschitz constant; {advice}")
            # The dual solution of the squared loss has ‖α‖ ≤ ‖y‖, so this bounds the root mean square of the slopes.
            lipschitz = float(np.sqrt(train.y @ train.y / max(len(train.y), 1)))
        return Surrogate(self.loss_, lipschitz, self.inner, self.tol, self.max_iter)

    def _check_parameters(self) -> Solver:
        self._check_within()
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("bias", self.bias, BIASES)
        check_fraction("validation_fraction", self.validation_fraction)
        check_fraction("support", self.support)
        if self.rank is not None:
            check_int("rank", self.rank)
        if self.lipschitz is not None:
            check_positive("lipschitz", self.lipschitz)
        if self.objective == "query" and self.inner != "exact":
            raise ValueError("inner: the query objective needs the exact solution; use inner='exact'")
        if self.bias == "conditional" and self.feature_map is None:
            raise ValueError("bias: 'conditional' needs a feature map; use ConditionalLearner or 'shared'")
        solver = get_solver(self.solver)
        solver.check(inner=self.inner, rank=self.rank, conditional=self.feature_map is not None)
        return solver


@dataclass(eq=False, repr=False)
class ConditionalLearner(ObjectiveLearner):
    """Conditional meta-learning of a representation for each task from its side information, as in the paper.

    It learns ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``, φ = Φ(s), and optionally the prior mean ``b(s) = Bφ + b₀``.  The default
    is Algorithm 1: projected SGD on the convex surrogate, one task per step, and the average of the iterates.
    `ConditionalLearner.paper` has all settings of the paper.  `EmpiricalBayesLearner` is recommended instead;
    it learns the same kind of function by another method.

    Parameters
    ----------
    feature_map : str, callable, transformer or FeatureMap, default="auto"
        Φ.  "mean", "ridge" and "angle" read the task's own rows.  "vector" reads its side information.  "auto" is
        "vector" if there is side information and "ridge" otherwise.
    loss : str or Loss, default="absolute"
        Loss of the within-task problem and of the errors on query rows and held-out tasks.  "logistic" and "hinge" take
        any two labels; predictions are decision values.  For probabilities, use `EmpiricalBayesClassifier`.
    inner : {"exact", "online"}, default="exact"
        Within-task algorithm: the exact minimiser with a duality-gap certificate, or the paper's one-pass variant.
    objective : {"surrogate", "query"}, default="surrogate"
        The paper's convex surrogate, or the risk of the support solution on query rows.
    rank : int or None, default=32
        Number of directions of H that are kept; None keeps all of them (exact, slower).
    bias : {"none", "shared", "conditional"}, default="none"
        Prior mean of a task's weights: zero, a learned vector, or a linear function of φ(s).
    fit_intercept : bool, default=True
        Append a constant column, so that the prior of the intercept is learned like that of the weights.
    solver : {"projected", "lbfgs"} or Solver, default="projected"
        `ProjectedSGD` is Algorithm 1.  `LBFGS` optimises factors of H and C, needs no step size, and keeps the iterate with
        the smallest error on the held-out tasks.  Pass an object to change the settings, e.g. ``ProjectedSGD(step=0.1)``.
    initial_representation : float or array (d, d), optional
        C₀; by default the identity, or an estimate by a mixed model with `LBFGS`.
    lipschitz : float, optional
        L in the surrogate; by default the Lipschitz constant of the loss.  For the squared loss, which has none, `fit` uses
        the root mean square of the targets, and `partial_fit` requires this argument.
    scale_features : bool, default=True
        Scale φ to unit root-mean-square norm over the training tasks (in a stream: over the tasks so far).
    tune_scale : bool, default=True
        Select a scalar multiple of τ on the held-out tasks, if there are any.  The surrogate is an upper bound on the
        risk, and the scale of τ that minimises it is too small.
    validation_fraction : float, default=0.2
        Fraction of the tasks that is held out, at most 300 tasks.
    support : float, default=0.5
        Fraction of a task's rows that are support rows, in validation and in the query objective.
    tol, max_iter
        Tolerance and maximum number of iterations of the within-task solver; see `TaskRegressor`.
    clip, n_jobs, progress
        See `EmpiricalBayesLearner`.
    random_state : int, RandomState or None, default=0
        Seed for the held-out tasks and rows, and for the initial value of the solver.

    Attributes
    ----------
    prior_ : RepresentationPrior
        The learned prior.  ``conditioning_`` (H, C), ``bias_`` (B, b₀), ``feature_map_``, ``clip_`` and ``calibration_``
        are views of it.
    scale_ : float
        The selected multiple of τ, already applied in ``conditioning_``.
    search_results_ : list of dict
        Error on the held-out tasks of every candidate, or of every iterate with its multiple of τ.
    validation_error_ : float or None
        The smallest error in ``search_results_``.
    step_size_ : StepSizes
        Step sizes that `ProjectedSGD` selected.
    """

    feature_map: Any = "auto"
    _: KW_ONLY
    rank: int | None = 32
    scale_features: bool = True

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """Return a learner with the paper's settings: Algorithm 1, mean embeddings, the one-pass inner algorithm.

        The step size is searched over the paper's 14 values and shared by C and H.  H keeps every direction, τ is not
        rescaled, and there is no intercept.  Arguments of this method replace these settings.
        """
        settings: dict[str, Any] = {
            "feature_map": "mean",
            "inner": "online",
            "rank": None,
            "solver": ProjectedSGD(step_sizes=PAPER_STEP_SIZES, step_ratios=(1.0,)),
            "tune_scale": False,
            "fit_intercept": False,
        }
        return cls(**{**settings, **overrides})


@dataclass(kw_only=True, eq=False, repr=False)
class UnconditionalLearner(ObjectiveLearner):
    """One representation θ = C for all tasks: the objectives of `ConditionalLearner` with H = 0.

    Parameters
    ----------
    loss, inner, objective, bias, fit_intercept, clip, solver, initial_representation, lipschitz, tune_scale, \
validation_fraction, support, tol, max_iter, n_jobs, progress, random_state
        See `ConditionalLearner`; ``bias`` is "none" or "shared".
    """
