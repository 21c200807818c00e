"""The paper's learner: a representation for each task, by Algorithm 1."""

from __future__ import annotations

from typing import Any, Self

from ..solvers import PAPER_STEP_SIZES, ProjectedSGD
from ._objective import ObjectiveLearner


class ConditionalLearner(ObjectiveLearner):
    """A representation for each task, inferred from the task's side information by the paper's objectives.

    Learns ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C``, φ = Φ(s), and where asked the prior mean ``b(s) = Bφ + b₀``: by
    default with Algorithm 1, projected SGD on the convex surrogate, one task per step, and the average of the
    iterates.  `ConditionalLearner.paper` has all settings of the paper.  `EmpiricalBayesLearner` learns the same
    function in another way, and is the one that we recommend.

    Parameters
    ----------
    feature_map : str, callable, transformer, FeatureMap, meta-learner or list of these, default="auto"
        Φ.  "mean", "ridge", "tuned ridge", "posterior mean", "angle",
        "fourier", "posterior" read the task's own rows; "vector" reads its side information; a list joins
        several; a meta-learner stands for the weights that it gives the task (`tailored.feature_maps`).
        "auto" is "vector" where there is side information and "ridge" otherwise.
    loss : str or Loss, default="absolute"
        What tasks are fitted with, and query rows and held-out tasks judged by.
    inner : {"exact", "online"}, default="exact"
        Within-task algorithm: certified minimiser, or the paper's one-pass variant.
    objective : {"surrogate", "query"}, default="surrogate"
        The paper's convex surrogate, or the risk of the support solution on held-out query rows.
    rank : int or None, default=32
        Directions of H that are kept; None keeps all of them (exact, slower).
    bias : {"none", "shared", "conditional"}, default="none"
        Prior mean of a task's weights: zero, a learned vector, or one linear in φ(s).
    fit_intercept : bool, default=True
        Append a constant column: the intercept is one more weight whose prior is learned.
    clip : None, "train" or pair (low, high), default=None
        Clip predictions to the known range of the target, or to that of the training targets.
    solver : {"projected", "lbfgs"} or Solver, default="projected"
        How the objective is minimised: `ProjectedSGD` is Algorithm 1; `LBFGS` moves factors of H and C,
        needs no step size, and keeps the iterate that does best on the held-out tasks.  An object brings its
        settings, as ``ProjectedSGD(step=0.1)``.
    initial_representation : float or array (d, d), optional
        C₀; the identity by default, and with `LBFGS` that of a mixed model.
    lipschitz : float, optional
        L in the surrogate; the loss's own by default, and the root mean square of the targets for
        losses that have none (squared).
    scale_features : bool, default=True
        Act as if φ had unit root-mean-square norm over the training tasks (in a stream: over those so far).
    calibrate : bool, default=True
        Choose a scalar multiple of τ on the held-out tasks, where there are any: the surrogate bounds the risk
        from above, and its own scale is cautious.
    validation_fraction : float, default=0.2
        Part of the tasks held out, at most 300 of them.
    support : float, default=0.5
        Part of a task's rows to adapt on, in validation and in the query objective.
    tol, max_iter
        Of the within-task solver, see `TaskRegressor`.
    n_jobs : int, optional
        Parallel candidates or parts of the tasks (joblib); results do not depend on it.
    progress : bool, default=False
        Show a progress bar on a terminal.
    random_state : int, RandomState or None, default=0
        Draws the held-out tasks and rows, and the solver's own start.

    Attributes
    ----------
    prior_ : Prior
        All that was learned, for the features as ``feature_map_`` gives them; ``conditioning_`` (H, C), ``bias_``
        (B, b₀), ``feature_map_``, ``clip_`` and ``calibration_`` are views of it.
    scale_ : float
        The calibrated multiple that is part of ``conditioning_``.
    search_results_ : list of dict
        Error of every candidate on the held-out tasks, or of every iterate with the multiple of τ it was
        judged with.
    validation_error_ : float or None
        The least of them.
    step_size_ : StepSizes
        Of `ProjectedSGD`.
    """

    def __init__(
        self,
        feature_map: Any = "auto",
        *,
        loss: Any = "absolute",
        inner: str = "exact",
        objective: str = "surrogate",
        rank: int | None = 32,
        bias: str = "none",
        fit_intercept: bool = True,
        clip: Any = None,
        solver: Any = "projected",
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

        Steps are searched over the paper's 14 values, shared by C and H; H keeps every direction, τ is not rescaled, and
        there is no intercept.  Arguments given here replace these settings.
        """
        settings: dict[str, Any] = {
            "feature_map": "mean",
            "inner": "online",
            "rank": None,
            "solver": ProjectedSGD(step_sizes=PAPER_STEP_SIZES, step_ratios=(1.0,)),
            "calibrate": False,
            "fit_intercept": False,
        }
        return cls(**{**settings, **overrides})
