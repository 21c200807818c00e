"""The learners of the paper (Secs. 2 and 5): independent, unconditional and conditional learning.

Independent learning (ITL) has θ = I for every task, unconditional learning θ = C (Eq. 5), and
conditional learning ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` (Eqs. 6 and 18).  The last two run Algorithm
1.

``paper()`` of each class returns a learner with the settings of the paper's experiments.  The
defaults differ where other settings predict better; `ConditionalLearner` lists these differences.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._utils.frames import RowsLike, SideInfoLike, ValuesLike
from .._utils.progress import progress_bar
from .._utils.tables import Table, plural
from .._utils.validation import (
    RandomState,
    check_fraction,
    check_int,
    check_nonnegative,
    check_positive,
    check_psd,
    warn,
)
from ..exceptions import ConstantRepresentationWarning, UnhelpfulWarning
from ..learners.base import MetaLearner, seed_of
from ..learners.reading import fit_arguments, read
from ..losses import Loss, error_name
from ..show.summary import Summary
from ..tasks.encoding import TaskColumns
from ..tasks.features import FeatureMap
from ..tasks.rows import Array, Rows, Scaling
from ..tasks.task_set import TaskSet
from .algorithm_1 import StepSizes, Surrogate, Trajectory, run
from .feature_maps import CallableMap
from .prior import RepresentationPrior
from .representation import RANK_TOLERANCE, Conditioning, Given
from .step_size import (
    PAPER_STEP_SIZES,
    SCALES,
    ProjectedSGD,
    held_out_error,
    select,
    try_runs,
)
from .stream import Pair, Stream
from .within_task import WithinTask

#: Arguments with rows: X, y, groups and side_info.
Data = tuple[RowsLike, ValuesLike, ValuesLike, SideInfoLike]


@dataclass(kw_only=True, eq=False, repr=False)
class PaperLearner(MetaLearner):
    """Base of the paper's learners.  The fields are constructor arguments; see
    `ConditionalLearner`.
    """

    loss: str | Loss = "absolute"
    inner: str = "exact"
    fit_intercept: bool = True
    tol: float = 1e-8
    max_iter: int = 1000
    n_jobs: int | None = None
    random_state: RandomState = 0
    prior_: RepresentationPrior = field(init=False)
    #: The settings of the paper's experiments that differ from the defaults.
    paper_settings: ClassVar[dict[str, Any]] = {"inner": "online", "fit_intercept": False}

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """Return a learner with the settings of the paper's experiments (Sec. 5).

        Absolute loss, the one-pass inner algorithm (Eq. 4), no intercept; for independent learning
        τ = I; for the others C₀ = I, H₀ = 0, mean embeddings, one step size for C and H, and no
        scaling of φ and τ.  Arguments replace these settings: ``feature_map="ridge"`` for Lenk,
        "angle" for Jester, and ``inner="exact"`` for Eq. 2.  Without an intercept, rows of zeros
        are predicted 0.
        """
        return cls(**deepcopy(cls.paper_settings) | overrides)

    @property
    def conditioning_(self) -> Conditioning:
        """(H, C) of ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``, in the form in which it is stored."""
        return self.prior_.conditioning

    @property
    def H_(self) -> Array:
        """H (dk, dk) of ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` for unscaled φ; entry (i k + h, j k + z)
        belongs to τ_ij and φ_h φ_z.
        """
        return np.array(self.conditioning_.H)

    @property
    def C_(self) -> Array:
        """C (d, d) of ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``."""
        if isinstance(self.conditioning_, Given):
            raise AttributeError("C_: a given function τ has no C; see representation()")
        return np.array(self.conditioning_.C)

    @property
    def _n_weights(self) -> int:
        return self.n_features_in_ + bool(self.fit_intercept)

    def _constant(self, theta: float | Array | None, name: str) -> Array:
        """Return the representation for a number (a multiple of the identity, 1 for None) or a (d,
        d) array.
        """
        theta, d = 1.0 if theta is None else theta, self._n_weights
        if np.ndim(theta) == 0:
            return check_nonnegative(name, theta) * np.eye(d)
        return check_psd(theta, name, d)

    def _prior(
        self, conditioning: Conditioning, feature_map: FeatureMap | None = None
    ) -> RepresentationPrior:
        """Return the prior with this conditioning function."""
        return RepresentationPrior(
            scaling=Scaling.raw(self.n_features_in_, self.fit_intercept),
            conditioning=conditioning,
            feature_map=feature_map,
            algorithm=WithinTask(self.loss_, self.inner, self.tol, self.max_iter),
        )

    def summary(self, *, details: bool = False) -> Summary:
        """Summarise the learned function: selected step sizes, rank and spectrum of τ, and errors
        on held-out tasks.  ``details`` changes nothing here.
        """
        check_is_fitted(self, "prior_")
        sentences, tables = list[str](), dict[str, Table]()
        if hasattr(self, "step_size_"):
            sentences.append(_describe_steps(self))
        if isinstance(self.conditioning_, Given):
            sentences.append("τ(s) is the function that the user passed.")
        else:
            moment = getattr(self, "feature_moment_", None)
            sentence, tables["spectrum"] = _describe_spectrum(self.conditioning_, moment)
            sentences.append(sentence)
        if errors := getattr(self, "held_out_errors_", {}):
            caption = (
                f"error: mean {error_name(self.loss_.name)} on query rows, over the tasks held out "
                "in fit, on which the step was selected. independent: θ = C₀; unconditional: "
                "H = 0, with its best step."
            )
            table = {"method": list(errors), "error": list(errors.values())}
            tables["errors"] = Table("Error on held-out tasks", table, caption)
        title = f"{type(self).__name__}: {plural(self.n_features_in_, 'feature')}"
        return Summary(title, tuple(sentences), tables)


def _describe_spectrum(tau: Conditioning, moment: Array | None) -> tuple[str, Table]:
    """Describe the mean of τ over tasks with mean φφᵀ = ``moment`` by a sentence and a table."""
    mean = tau.mean(moment) if tau.n_side and moment is not None else np.array(tau.C)
    values = np.linalg.eigvalsh(mean)[::-1]
    n, total = len(values), float(np.trace(mean)) or 1.0
    rank = int(np.count_nonzero(values > n * RANK_TOLERANCE * max(values[0], 0.0)))
    sentence = f"τ is the same for every task, with rank {rank} in {n} dimensions."
    if tau.depends_on_task:
        share = 100.0 * (1.0 - float(np.trace(tau.C)) / total)
        sentence = (
            f"τ(s) depends on φ(s) with k = {tau.n_side}; {share:.0f} % of its mean trace is due "
            f"to H. The mean of τ over the training tasks has rank {rank} in {n} dimensions."
        )
    columns = {
        "direction": [str(j + 1) for j in range(n)],
        "eigenvalue": values.tolist(),
        "share of trace": (values / total).tolist(),
    }
    caption = "eigenvalue: of the mean of τ over the training tasks, in decreasing order."
    return sentence, Table("Spectrum of τ", columns, caption, ["share of trace"])


def _describe_steps(learner: Any) -> str:
    """Describe the step sizes of Algorithm 1 in one sentence."""
    steps = learner.step_size_
    n_tried = len({(row["step_C"], row["step_H"]) for row in learner.search_results_})
    text = f"Algorithm 1 with step size {steps.C:.4g} for C"
    if learner.conditioning_.n_side:
        text += f" and {steps.H:.4g} for H"
    if n_tried:
        text += f", selected among {n_tried} on held-out tasks"
    if learner.scale_ != 1.0:
        text += f"; τ is multiplied by {learner.scale_:g}, selected with the step"
    return f"{text}."


@dataclass(kw_only=True, eq=False, repr=False)
class IndependentLearner(PaperLearner):
    """Learner that fits each task separately with a given representation; τ = I is independent task
    learning (ITL).

    Parameters
    ----------
    tau : float, array (d, d) or callable, optional
        The representation; a number is a multiple of the identity, by default 1. A callable gets
        the side information s of a task and returns τ(s), a positive semidefinite (d, d) array.
    loss, inner, fit_intercept, tol, max_iter, n_jobs
        See `ConditionalLearner`.
    random_state : int, RandomState or None, default=0
        Seed for the support and query rows of `score` and `task_errors`.
    """

    tau: Any = None

    def fit(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        task: TaskColumns | None = None,
        target: str | None = None,
    ) -> Self:
        """Fit a model to each of the tasks, independently of the other tasks.

        Arguments are those of `EmpiricalBayesLearner.fit`.
        """
        with self._all_or_nothing(reset=True):
            self._check_loss()
            data, _ = fit_arguments(X, y, groups, side_info, task, target)
            tasks = read(self, *data, reset=True)
            d = self._n_weights
            if callable(self.tau):
                given = CallableMap(self.tau, tasks.side_info is not None, d)
                prior = self._prior(Given.constant(np.zeros((d, d))), given)
            else:
                prior = self._prior(Conditioning.constant(self._constant(self.tau, "tau")))
            self.prior_ = replace(prior, feature_range=self._feature_range(tasks.X))
            self.n_iter_ = 1
            self._remember(tasks)
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class SurrogateLearner(PaperLearner):
    """Base of the learners that minimise the surrogate; without a feature map, H = 0."""

    solver: ProjectedSGD | None = None
    initial_representation: Any = None
    lipschitz: float | None = None
    tune_scale: bool = True
    validation_fraction: float = 0.2
    support: float = 0.5
    progress: bool = False
    step_size_: StepSizes = field(init=False)
    held_out_errors_: dict[str, float] = field(init=False)
    feature_moment_: Array = field(init=False)  # mean of φφᵀ over the training tasks, (k, k)
    n_tasks_seen_: int = field(init=False)
    _stream: Stream = field(init=False)
    paper_settings = PaperLearner.paper_settings | {
        "solver": ProjectedSGD(step_sizes=PAPER_STEP_SIZES, step_ratios=(1.0,)),
        "tune_scale": False,
    }
    unsaved = ("_stream",)  # model files do not contain it, because it has rows of held-out tasks

    def fit(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        task: TaskColumns | None = None,
        target: str | None = None,
        validation: TaskSet | Pair | None = None,
    ) -> Self:
        """Learn from many tasks, one step per task in the given order.

        Parameters
        ----------
        X : dataframe with ``task`` and ``target``, array (n, d) with ``y`` and ``groups``, or \
TaskSet
            The training tasks.
        y, groups, side_info, task, target
            See `EmpiricalBayesLearner.fit`.
        validation : TaskSet or pair of TaskSets, optional
            Tasks on which the step size is selected; by default some of the training tasks are held
            out.  A pair has the support rows and the query rows of the same tasks; otherwise they
            are drawn, see ``support``.
        """
        with self._all_or_nothing(reset=True):
            data, _ = fit_arguments(X, y, groups, side_info, task, target)
            self._learn(data, validation, whole=True)
            del self._stream
        return self

    def partial_fit(
        self,
        X: RowsLike,
        y: ValuesLike = None,
        groups: ValuesLike = None,
        side_info: SideInfoLike = None,
        *,
        validation: TaskSet | Pair | None = None,
    ) -> Self:
        """Continue with more tasks of a stream; a call that fails does not change the learner.

        The learned function does not depend on how the stream is split into calls, but feature maps
        are fitted to the tasks of the first call.
        """
        fresh = not hasattr(self, "_stream")
        if fresh and hasattr(self, "prior_"):
            raise ValueError(
                "partial_fit: continues earlier calls of partial_fit only, and this learner was "
                "fitted by fit or loaded from a file. Use partial_fit from the first task, and "
                "pickle the learner to continue later."
            )
        with self._all_or_nothing(reset=fresh):
            self._learn((X, y, groups, side_info), validation, whole=False)
        return self

    def set_params(self, **params: Any) -> Self:
        """Set arguments; ``solver__step`` sets an argument of the solver."""
        if self.solver is None and any(name.startswith("solver__") for name in params):
            self.solver = ProjectedSGD()
        return super().set_params(**params)

    def _learn(self, data: Data, validation: TaskSet | Pair | None, *, whole: bool) -> None:
        """Learn from the next tasks of a stream; ``whole`` if these are all of them."""
        solver = self._check_parameters()
        candidates = solver.candidates(conditional=self.feature_map is not None)
        is_new = not hasattr(self, "_stream")
        tasks = read(self, *data, reset=is_new)
        stream = Stream(seed_of(self.random_state)) if is_new else self._stream
        train = tasks
        if solver.searches:
            stream, train = self._hold_out(stream, tasks, validation)
        elif validation is not None:
            raise ValueError(
                "validation: with a given step, validation tasks are not used. Omit validation, or "
                "select the step on these tasks: solver=ProjectedSGD(step='search')"
            )
        stream, phis, factors = stream.features(
            train, self.feature_map, whole=whole, scaled=self.scale_features
        )
        C0 = self._constant(self.initial_representation, "initial_representation")
        k = phis.shape[1]
        # Unconditional runs are cheap; their errors are reported even if H = 0 is not a candidate.
        constant = [StepSizes(steps.C, 0.0) for steps in candidates if solver.searches]
        steps = dict.fromkeys([*candidates, *constant])
        runs = list(deepcopy(stream.runs)) or [Trajectory(s, C0, k, self.rank) for s in steps]
        start = self._prior(Conditioning.constant(C0, k), stream.feature_map)
        error_of = None
        if solver.searches:
            support, query = stream.validation()
            pair = Rows.of(support, self.fit_intercept), Rows.of(query, self.fit_intercept)
            error_of = partial(held_out_error, *pair, start.features(support))
        surrogate = Surrogate(start.algorithm, self._lipschitz(train, whole))
        with progress_bar("Learning from tasks", len(train), enabled=self.progress) as tick:
            rows = Rows.of(train, self.fit_intercept)
            run(runs, rows, phis, factors, surrogate, n_jobs=self.n_jobs, tick=tick)
        self._stream = replace(stream, runs=runs, n_tasks=stream.n_tasks + len(tasks))
        learned = self._select(candidates, start, error_of)
        self.prior_ = replace(learned, feature_range=self._feature_range(tasks.X))
        self.n_iter_ = max(stream.n_train, 1)
        self.n_tasks_seen_ = self._stream.n_tasks
        self.feature_moment_ = np.asarray(stream.phi_products / max(stream.n_train, 1))
        self._remember(tasks)
        if whole:
            self._warn(tasks)

    def _select(
        self,
        candidates: list[StepSizes],
        start: RepresentationPrior,
        error_of: Callable[[RepresentationPrior], float] | None,
    ) -> RepresentationPrior:
        """Return the prior of the best candidate; store its step, and the results of a search."""
        scales = SCALES if error_of is not None and self.tune_scale else (1.0,)
        tried = try_runs(self._stream.runs, start, error_of, scales, self.n_jobs)
        best = select(tried, candidates)
        self.step_size_ = best.run.steps
        self.scale_ = best.scale
        self.search_results_ = []
        self.validation_error_ = None
        self.held_out_errors_ = {}
        if error_of is not None:
            self.search_results_ = [each.row for each in tried if each.run.steps in candidates]
            self.validation_error_ = best.error
            constant = min(each.error for each in tried if each.run.steps.H == 0.0)
            self.held_out_errors_ = {"independent": error_of(start), "unconditional": constant}
            if start.conditioning.n_side:
                self.held_out_errors_["conditional"] = best.error
        return best.prior

    def _hold_out(
        self, stream: Stream, tasks: TaskSet, validation: TaskSet | Pair | None
    ) -> tuple[Stream, TaskSet]:
        """Return the stream with more held-out tasks, and the training tasks."""
        if validation is None:
            return stream.hold_out(tasks, self.validation_fraction, self.support)
        if isinstance(validation, TaskSet):
            held_out = self._read_held_out(validation)
            positions = stream.n_held_out + np.arange(len(held_out))
            pair = stream.split(held_out, positions, self.support)
        else:
            pair = self._read_pair(validation)
        return stream.with_held_out(pair), tasks

    def _read_pair(self, validation: Pair) -> Pair:
        """Read support and query rows that the user passed for validation."""
        is_pair = isinstance(validation, tuple | list) and len(validation) == 2
        if not (is_pair and all(isinstance(part, TaskSet) for part in validation)):
            raise TypeError("validation: expected a TaskSet or a pair of TaskSets (support, query)")
        support, query = map(self._read_held_out, validation)
        if not np.array_equal(support.labels, query.labels):
            raise ValueError(
                "validation: support and query must have the same tasks, in the same order"
            )
        return support, query

    def _warn(self, tasks: TaskSet) -> None:
        """Warn about side information that is not used, and about a poor result of the search."""
        error = self.validation_error_
        if error is not None and not self._stream.n_held_out:
            reason = "too few tasks to hold one out, so the step size is selected on training tasks"
            advice = "Pass more tasks, validation=, or solver=ProjectedSGD(step=0.1)"
            warn(f"fit: {reason}. {advice}")
        feature_map = self.prior_.feature_map
        if feature_map is not None and not self.conditioning_.depends_on_task:
            was_tried = any(row["step_H"] > 0 for row in self.search_results_)
            lowered = "no step size of H lowered the error on the held-out tasks"
            warn(
                "feature_map: the learned function is constant, τ(s) = C for every task "
                f"({lowered if was_tried else 'H = 0'}). The side information is not used: try "
                "other features, more tasks, or other step sizes",
                ConstantRepresentationWarning,
            )
        ignored = feature_map is not None and not feature_map.needs_side_info
        if ignored and tasks.side_info is not None:
            warn(
                f"fit: the side information is not used, because feature_map={self.feature_map!r} "
                "reads the rows of a task only. Use feature_map='vector', or a function of it"
            )
        tried = sorted({row["step_C"] for row in self.search_results_})
        if len(tried) > 2 and self.step_size_.C in (tried[0], tried[-1]):
            extreme = "smallest" if tried[0] == self.step_size_.C else "largest"
            warn(
                f"fit: the selected step size {self.step_size_.C:g} is the {extreme} that was "
                "tried. "
                "Scale the columns and the target to a standard deviation of about 1, or try other "
                "step_sizes in solver=ProjectedSGD(step_sizes=...)"
            )
        independent = self.held_out_errors_.get("independent", np.inf)
        if error is not None and independent < error:
            warn(
                f"fit: on the held-out tasks, independent learning (θ = C₀) has the error "
                f"{independent:.3g}, and this learner {error:.3g}. Scale the columns and "
                "the target to a standard deviation of about 1, or use EmpiricalBayesLearner",
                UnhelpfulWarning,
            )

    def _lipschitz(self, train: TaskSet, whole: bool) -> float:
        """Return L."""
        L = self.loss_.lipschitz if self.lipschitz is None else float(self.lipschitz)
        if not np.isfinite(L) and not whole:
            advice = "pass lipschitz=, e.g. the root mean square of the targets"
            raise ValueError(
                f"lipschitz: the {self.loss_.name} loss has no Lipschitz constant; {advice}"
            )
        # The dual solution of the squared loss has ‖α‖ ≤ ‖y‖, so this bounds the root mean square
        # of the slopes.
        return L if np.isfinite(L) else float(np.sqrt(train.y @ train.y / max(len(train.y), 1)))

    def _check_parameters(self) -> ProjectedSGD:
        self._check_loss()
        check_fraction("validation_fraction", self.validation_fraction)
        check_fraction("support", self.support)
        if self.rank is not None:
            check_int("rank", self.rank)
        if self.lipschitz is not None:
            check_positive("lipschitz", self.lipschitz)
        solver = ProjectedSGD() if self.solver is None else self.solver
        if not isinstance(solver, ProjectedSGD):
            raise TypeError(f"solver: expected None or a ProjectedSGD, got {type(solver).__name__}")
        return solver


@dataclass(eq=False, repr=False)
class ConditionalLearner(SurrogateLearner):
    """Algorithm 1 of the paper: learn a representation τ(s) of each task as a function of its side
    information s.

    It learns ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``, φ = Φ(s), by projected SGD on the paper's convex
    surrogate.  `ConditionalLearner.paper` has the settings of the paper's experiments.
    `EmpiricalBayesLearner` is recommended for prediction.

    Parameters
    ----------
    feature_map : str, callable or FeatureMap, default="auto"
        Φ. "mean", "ridge" and "angle" read the task's own rows, "vector" its side information;
        "auto" is "vector" if there is any, else "ridge". A callable gets the side information of a
        task, or the task itself if it has none, and returns φ (k,).
    loss : str or Loss, default="absolute"
        Loss of the within-task problem; "logistic" and "hinge" need targets -1 and +1.
    inner : {"exact", "online"}, default="exact"
        Within-task algorithm: the exact minimiser, or the paper's one-pass variant.
    rank : int or None, default=32
        Maximum number of directions of H that are kept; None keeps all of them.
    fit_intercept : bool, default=True
        Append a constant column, whose weight has a prior like the others.
    solver : ProjectedSGD, optional
        Step sizes of Algorithm 1; by default they are selected on held-out tasks.
    initial_representation : float or array (d, d), optional
        C₀; by default the identity.  H₀ is zero.
    lipschitz : float, optional
        L in the surrogate; by default the Lipschitz constant of the loss, or, for the squared loss,
        the root mean square of the targets; `partial_fit` then requires this argument.
    scale_features : bool, default=True
        Scale φ to unit root-mean-square norm over the training tasks (in a stream: over those so
        far).
    tune_scale : bool, default=True
        Select a multiple of τ on the held-out tasks, because the minimiser of the surrogate is too
        small.
    validation_fraction : float, default=0.2
        Fraction of the tasks that is held out, at most 300 tasks, unless the step is given.
    support : float, default=0.5
        Fraction of the rows of a held-out task that are support rows.
    tol, max_iter
        Tolerance and maximum number of iterations of the within-task solver; see `TaskRegressor`.
    n_jobs, progress
        See `EmpiricalBayesLearner`.
    random_state : int, RandomState or None, default=0
        Seed for the held-out tasks and rows.

    Attributes
    ----------
    H_, C_ : arrays (dk, dk) and (d, d)
        The learned parameters, for unscaled φ.
    scale_ : float
        The selected multiple of τ, already applied in ``H_`` and ``C_``.
    step_size_ : StepSizes
        The selected step sizes.
    search_results_ : list of dict
        Error on the held-out tasks of every candidate.
    validation_error_ : float or None
        The smallest error in ``search_results_``; None if the step was given.
    held_out_errors_ : dict
        Errors on the held-out tasks of "independent", "unconditional" and "conditional" learning.
    """

    feature_map: object = "auto"
    _: KW_ONLY
    rank: int | None = 32
    scale_features: bool = True

    paper_settings = SurrogateLearner.paper_settings | {
        "feature_map": "mean",
        "rank": None,
        "scale_features": False,
    }


@dataclass(kw_only=True, eq=False, repr=False)
class UnconditionalLearner(SurrogateLearner):
    """Unconditional meta-learning: one representation θ = C for all tasks, which is
    `ConditionalLearner` with H = 0.

    Parameters
    ----------
    loss, inner, fit_intercept, solver, initial_representation, lipschitz, tune_scale, \
validation_fraction, support, tol, max_iter, n_jobs, progress, random_state
        See `ConditionalLearner`.
    """
