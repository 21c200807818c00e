"""The conditional learner: the practical algorithm by default, the paper's one argument away."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from .._validation import check_fraction
from ..empirical_bayes.training import Settings, Trained, adapt_in_closed_form, train
from ..feature_maps import get_feature_map
from ..feature_maps.posterior import SideFeatures
from ..losses import _Binary, _BoxLoss, get_loss
from ..solvers.steps import PAPER_STEP_SIZES
from ..tasks import TaskSet
from ._streaming import _Stream, _StreamingLearner

#: Arguments that only Algorithm 1 reads.
ALGORITHM_1_ONLY = (
    "inner",
    "objective",
    "rank",
    "bias",
    "solver",
    "batch_size",
    "max_passes",
    "step_sizes",
    "step_ratios",
    "theory_constants",
    "initial_representation",
    "lipschitz",
    "scale_features",
    "support",
)


@dataclass
class _Seen:
    """The tasks that the practical algorithm was given so far; it starts over from all of them."""

    seed: int
    tasks: list[TaskSet] = field(default_factory=list)
    validation: list[TaskSet] = field(default_factory=list)


class ConditionalLearner(_StreamingLearner):
    """A representation for each task, inferred from the task's side information.

    Learns ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` and the prior mean ``b(s) = Bφ + b₀``, by one of two algorithms:

    - The practical one (``step_size=None``, the default) fits a mixture of linear mixed models to all
      tasks by EM and the conditional part of b(s) by the query risk; φ(s) holds the probabilities of the
      mixture's components given the task's rows, and a summary of its posterior
      (`tailored.posterior_map`).  It chooses on held-out tasks among its own simpler forms, down to one
      representation for all tasks and to every task alone, so that it need not lose to them.
    - The paper's Algorithm 1 (any other ``step_size``): projected SGD on the convex surrogate, one task
      per step, and the average of the iterates.  `ConditionalLearner.paper` has all its settings.
      An argument or a loss that only Algorithm 1 can honour (``inner``, ``objective``, ``rank``, ``bias``,
      ``step_sizes``, ..., logistic, hinge) implies ``step_size="search"``.  ``solver`` replaces its projected
      steps by direct optimisation of the same objective over factors of H and C (`tailored.factored`).

    Parameters
    ----------
    feature_map : str, callable, transformer, FeatureMap, meta-learner or list of these, default="auto"
        "mean", "ridge", "tuned ridge", "posterior mean", "second-order", "fourier estimate", "angle",
        "fourier", "posterior" read the task's own rows; "vector" reads its side information; a list joins
        several; a meta-learner stands for the weights that it gives the task (`tailored.feature_maps`).
        In the practical algorithm these features join those of the posterior in b(s), and
        "auto" is "vector" where there is side information and nothing otherwise; "posterior" ignores side
        information.  In Algorithm 1 they are φ, and "auto" is "vector" or "ridge".
    loss : str or Loss, default="absolute"
        What query rows and held-out tasks are judged by.  Algorithm 1 also fits tasks with it; the practical
        algorithm fits them with the squared loss, whose solution is the posterior mean.
    inner : {"exact", "online"}, default="exact"
        Within-task algorithm: certified minimiser, or the paper's one-pass variant.
    objective : {"surrogate", "query"}, default="surrogate"
        The paper's convex surrogate, or the risk of the support solution on held-out query rows.
    rank : int or None, default=32
        Directions of H that are kept; None keeps all of them (exact, slower).
    bias : {"none", "shared", "conditional"}, default="none"
        Prior mean of a task's weights in Algorithm 1: zero, a learned vector, or one linear in φ(s).
    fit_intercept : bool, default=False
        Append a constant column: the intercept is one more weight whose prior is learned.
    clip : None, "train" or pair (low, high), default=None
        Clip predictions to the known range of the target, or to that of the training targets.
    solver : {"projected", "lbfgs", "adam"}, default="projected"
        How Algorithm 1's objective is minimised.  "projected" is Algorithm 1.  The others need no step size:
        from the C and b₀ of a linear mixed model and a small random M, "lbfgs" (all tasks at once) and "adam"
        (mini-batches of tasks) move the factors of H = MMᵀ and C = FFᵀ and the prior mean, and keep the
        iterate that does best on the held-out tasks.  With ``objective="query"`` support rows are drawn anew
        for every pass of "adam".  Where this was tried (six clusters, Lenk, Jester; query risk) "adam" beat
        projected steps every time, but mostly lost to the practical algorithm; with the 140 and 350 tasks of
        the last two neither solver took more than 5 % off the error of its start.
    batch_size : int, default=32
        Tasks in a step of "adam".
    max_passes : int, default=50
        Passes of "adam" over the tasks, iterations of "lbfgs".
    step_size : None, "search", "theory", float or pair of floats, default=None
        None is the practical algorithm.  A pair is (step of C, step of H).  "search" chooses on held-out
        tasks, all candidates sharing one pass.  "theory" is the step of Thm. bound_estimated_feature.
    step_sizes : sequence of floats, optional
        Candidates of the search for C; by default 9 values from 1e-4 to 1e4 (the paper's 14 are
        `tailored.search.PAPER_STEP_SIZES`).
    step_ratios : sequence of floats, default=(0, 1, 10)
        Candidates for (step of H) / (step of C); 0, "H does not move", is always among them.
    theory_constants : dict, optional
        Stated constants for "theory": any of distance, K, L, R, n, T; the rest is estimated.
    initial_representation : float or array (d, d), optional
        C₀; the identity by default, and with another ``solver`` than "projected" that of a mixed model.
    lipschitz : float, optional
        L in the surrogate; the loss's own by default, and the root mean square of the targets for
        losses that have none (squared).
    scale_features : bool, default=True
        Act as if φ had unit root-mean-square norm over the training tasks.
    calibrate : bool, default=True
        Choose a scalar multiple of τ on the held-out tasks: the surrogate bounds the risk from above, and
        its own scale is cautious; EM's is that of Gaussian targets.
    validation_fraction : float, default=0.2
        Part of the tasks held out (at most 300 by the search, 1000 by the practical algorithm, which lets
        the parts take turns where there are fewer than 500 tasks).
    support : float, default=0.5
        Part of a task's rows to adapt on, in Algorithm 1's validation and query objective.
    tol, max_iter
        Of the within-task solver, see `TaskRegressor`.
    n_jobs : int, optional
        Parallel candidates or parts of the tasks (joblib); results do not depend on it.
    progress : bool, default=False
        Show a progress bar on a terminal.
    random_state : int, RandomState or None, default=0
        Draws the held-out tasks and rows, and the starts of mixtures and of M.

    Attributes
    ----------
    conditioning_ : Conditioning
        The learned (H, C), for the features as ``feature_map_`` gives them.
    bias_ : Bias
        The learned (B, b₀).
    scale_ : float
        The calibrated multiple that is part of ``conditioning_``.
    search_results_ : list of dict
        Error of every candidate on the held-out tasks, or of every iterate with the multiple of τ it was
        judged with.
    validation_error_ : float
        The least of them.
    n_components_, form_, side_penalty_, bias_penalty_
        Of the practical algorithm: components of the mixture, a description of the form that was chosen, the
        penalty on the part of b(s) that is linear in the side information (None: without it), and the one on
        the part learned on query rows (likewise).
    step_size_ : StepSizes
        Of Algorithm 1 (``solver="projected"``).
    """

    _conditional = True

    def __init__(
        self,
        feature_map: Any = "auto",
        *,
        loss: Any = "absolute",
        inner: str = "exact",
        objective: str = "surrogate",
        rank: int | None = 32,
        bias: str = "none",
        fit_intercept: bool = False,
        clip: Any = None,
        solver: str = "projected",
        batch_size: int = 32,
        max_passes: int = 50,
        step_size: Any = None,
        step_sizes: Any = None,
        step_ratios: Any = (0.0, 1.0, 10.0),
        theory_constants: dict[str, float] | None = None,
        initial_representation: Any = None,
        lipschitz: float | None = None,
        scale_features: bool = True,
        calibrate: bool = True,
        validation_fraction: float = 0.2,
        support: float = 0.5,
        tol: float = 1e-8,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        progress: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.feature_map = feature_map
        self.loss = loss
        self.inner = inner
        self.objective = objective
        self.rank = rank
        self.bias = bias
        self.fit_intercept = fit_intercept
        self.clip = clip
        self.solver = solver
        self.batch_size = batch_size
        self.max_passes = max_passes
        self.step_size = step_size
        self.step_sizes = step_sizes
        self.step_ratios = step_ratios
        self.theory_constants = theory_constants
        self.initial_representation = initial_representation
        self.lipschitz = lipschitz
        self.scale_features = scale_features
        self.calibrate = calibrate
        self.validation_fraction = validation_fraction
        self.support = support
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

    @classmethod
    def paper(cls, **overrides: Any) -> Self:
        """The paper's configuration: Algorithm 1 with mean embeddings and the one-pass inner algorithm.

        Steps are searched over the paper's 14 values, shared by C and H; τ is not rescaled.  Arguments
        given here replace these settings.
        """
        settings: dict[str, Any] = {
            "feature_map": "mean",
            "inner": "online",
            "step_size": "search",
            "step_sizes": PAPER_STEP_SIZES,
            "step_ratios": (1.0,),
            "calibrate": False,
        }
        return cls(**{**settings, **overrides})

    # ------------------------------------------------------------------ the practical algorithm

    @property
    def _steps_asked(self) -> Any:
        """``step_size``; None asks for the practical algorithm, unless only Algorithm 1 can do what is asked."""
        if self.step_size is None and (self._algorithm_1_arguments() or not self._has_practical_form()):
            return "search"
        return self.step_size

    def _algorithm_1_arguments(self) -> list[str]:
        """Arguments that differ from their defaults and that only Algorithm 1 reads."""
        defaults = signature(type(self)).parameters
        given = []
        for name in ALGORITHM_1_ONLY:
            value, default = getattr(self, name), defaults[name].default
            if value is not None if default is None else not np.array_equal(value, default):
                given.append(name)
        return given

    def _has_practical_form(self) -> bool:
        loss = get_loss(self.loss)
        return isinstance(loss, _BoxLoss) and not isinstance(loss, _Binary)

    def _check_step_size(self) -> None:
        if self._steps_asked is not None:
            super()._check_step_size()

    def _learn(
        self, X: Any, y: Any, groups: Any, side_info: Any, validation: TaskSet | None, *, reset: bool
    ) -> Self:
        practical = self._steps_asked is None
        kind = _Seen if practical else _Stream
        if not reset and not isinstance(self._stream, kind):
            raise ValueError(
                "step_size: it was changed between two calls of partial_fit from None (the practical "
                "algorithm) or to it; call fit to start over"
            )
        if reset:
            for stale in ("form_", "n_components_", "side_penalty_", "bias_penalty_", "step_size_"):
                self.__dict__.pop(stale, None)
        if not practical:
            return super()._learn(X, y, groups, side_info, validation, reset=reset)
        self._check_practical()
        tasks = self._tasks(X, y, groups, side_info, reset=reset)
        self._set_clip(tasks, reset=reset)
        before: Any = getattr(self, "_stream", None)
        if reset:
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            before = _Seen(seed)
        held_out = [] if validation is None else [self._tasks(validation, reset=False)]
        seen = _Seen(before.seed, [*before.tasks, tasks], [*before.validation, *held_out])
        trained = self._train(seen)
        # Only now: a piece that cannot be learned from is not part of the stream.
        self._stream = seen  # type: ignore[assignment]
        self._remember(tasks, adapt_in_closed_form(trained, tasks, bool(self.fit_intercept)))
        if trained.calibration is not None:
            self.calibration_ = trained.calibration
        return self

    def _check_practical(self) -> None:
        self._check_parameters()
        check_fraction("validation_fraction", self.validation_fraction)
        self.within_loss_ = get_loss("squared")
        self.size_exponent_ = 1

    def _train(self, seen: _Seen) -> Trained:
        """Learn from all tasks seen so far and store the result."""
        pieces = [*seen.tasks, *seen.validation]
        tasks = pieces[0] if len(pieces) == 1 else TaskSet.concat(pieces, relabel=True)
        settings = Settings(
            self.loss_,
            bool(self.fit_intercept),
            bool(self.calibrate),
            self.clip_,
            self.validation_fraction,
            seen.seed,
            self.n_jobs,
        )
        trained = train(
            tasks,
            settings,
            side=self._side_features(tasks),
            n_validation=sum(len(piece) for piece in seen.validation),
            progress=self.progress,
        )
        self.feature_map_ = trained.feature_map
        self.conditioning_, self.bias_ = trained.conditioning, trained.bias
        self.n_side_ = trained.conditioning.n_side
        self.form_, self.n_components_ = trained.form.describe(), trained.form.n_components
        self.scale_, self.side_penalty_, self.bias_penalty_ = (
            trained.scale,
            trained.side_penalty,
            trained.penalty,
        )
        self.search_results_, self.validation_error_ = trained.results, trained.validation_error
        self.n_tasks_seen_, self.n_iter_ = len(tasks), 1
        return trained

    def _side_features(self, tasks: TaskSet) -> SideFeatures | None:
        """The features that join those of the posterior."""
        has_side_info = tasks.side_info is not None
        nothing = ("posterior",) if has_side_info else ("posterior", "auto")
        if isinstance(self.feature_map, str) and self.feature_map in nothing:
            return None
        return SideFeatures.fit(get_feature_map(self.feature_map, has_side_info=has_side_info), tasks)
