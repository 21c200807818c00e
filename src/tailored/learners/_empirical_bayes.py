"""The recommended learner: empirical Bayes with a mixture of linear mixed models."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

from .._utils.validation import check_choice, check_fraction, outside
from ..empirical_bayes.data import Settings, TrainingData
from ..empirical_bayes.learn import Learned, learn
from ..empirical_bayes.shared_regressor import learn_with_regressor
from ..exceptions import UnhelpfulWarning
from ..feature_maps import SideFeatures, get_feature_map
from ..gaussian.moments import COMPILED_COLUMNS, LARGEST_STATISTICS
from ..losses import LOSSES, Absolute, BoxLoss, MarginLoss, Pinball
from ..priors.intervals import Calibration
from ..priors.shared_regressor import check_regressor, default_regressor
from ..sources.base import TaskSource
from ..sources.cuda.moments import DeviceSource
from ..sources.cuda.tensors import TensorTasks, check_device, is_tensor
from ..sources.memory import MemorySource
from ..sources.reservoir import SAMPLE_TASKS
from ..sources.scan import TaskScan
from ..tasks import TaskSet
from ..tasks.episodes import SupportSampling
from ._on_device import check_no_weights, read_tensors
from ._reading import label_unnamed, repeat_rows
from ._scanning import check_no_columns
from ._task_stream import StreamLearner
from ._varying import varying_weights


class EmpiricalBayesLearner(StreamLearner):
    """A representation and a prior mean for each task, by empirical Bayes: the learner to start with.

    Fits a mixture of linear mixed models to all tasks by EM, and the conditional part of the prior mean by the
    query risk.  The result is of the paper's form, ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` and ``b(s) = Bφ + b₀``: φ(s)
    holds the probabilities of the mixture's components given the task's rows, and a summary of its posterior
    (`PosteriorMap`).  Where X has too many columns for a matrix of them, hundreds or thousands, the form is that of
    factors plus a diagonal, ``τ = FFᵀ + D``, for one-hot items or other sparse rows.  The learner chooses on held-out tasks among its own simpler forms, down to one
    representation for all tasks and to every task alone, so that it need not lose to them.

    Parameters
    ----------
    feature_map : str, callable, transformer, FeatureMap, meta-learner or list of these, default="auto"
        Features that join those of the posterior in b(s) (see `ConditionalLearner` for what there is).  "auto" is
        "vector" where there is side information and nothing otherwise; "posterior" ignores side information.
    loss : str or Loss, default="absolute"
        What query rows and held-out tasks are judged by; not logistic or hinge, for which `ConditionalLearner`
        is there.  Tasks are fitted with the squared loss, whose solution is the posterior mean.  Under
        ``Pinball(q)`` predictions are q-quantiles: what is learned for the absolute loss, plus so many spreads as
        held-out tasks needed (`TaskRegressor.predict`).
    common : None, "auto" or regressor, default=None
        What all tasks share beyond the linear prior mean: any scikit-learn regressor, of the columns of X and, after
        them, the numbers of the task's description (words as indicators).  Clones of it are fitted to whole tasks out
        of fold, tasks are tailored on what it leaves, and predictions and intervals add up; ``coef_`` of an adapted
        model is that of the tailored part.  "auto" tries a booster (`tailored.priors.shared_regressor.default_regressor`) and keeps it
        where held-out tasks are predicted better by a standard error; fitting takes about twice as long then.
    varying : None or list of str or int, default=None
        Columns whose weights may differ between tasks, by name or position; a name of a table's column of words stands for
        all of its indicators.  The weights of the others are the same in every task, and the intercept always varies: [] is
        a random intercept alone.  The prior is then one mixed model.  By default the learner chooses.
    fit_intercept : bool, default=True
        Append a constant column: the intercept is one more weight whose prior is learned.  Columns and targets are
        centred and scaled then, so that neither their level nor their units matter.
    clip : None, "train" or pair (low, high), default=None
        Clip predictions to the known range of the target, or to that of the training targets.
    support : int, float, pair of these or None, default=None
        How many rows of a new task are given before others are asked for: a number, a fraction in (0, 1), or a range
        (low, high).  The form of the prior, its mean and the intervals are then those for such tasks, which `score`
        and `task_errors` also take as their default.  None is anything from no rows to most of them.
    order : {"random", "given"}, default="random"
        Which rows these are: random ones, or the first ones, where rows stand in the order in which they come.
    calibrate : bool, default=True
        Choose a scalar multiple of τ on the held-out tasks: EM's is that of Gaussian targets.
    validation_fraction : float, default=0.2
        Part of the tasks held out, at most 1000; the parts take turns where there are fewer than 500 tasks.
    tol, max_iter
        Of the within-task solver, see `TaskRegressor`.
    n_jobs : int, optional
        Parallel candidates or parts of the tasks (joblib); results do not depend on it.
    device : None or "cuda", default=None
        Where the sums of EM over many tasks and the weights of `adapt_many` are computed, in double precision; on a GPU
        tensors of torch are taken as they are (float32 or float64) and give tensors.  The form is chosen on the CPU, from
        at most 5,000 tasks; where there are more, weights of the tasks are not kept.  With thousands of columns EM runs
        on the device and adapting on the CPU.
    progress : bool, default=False
        Show a progress bar on a terminal.
    random_state : int, RandomState or None, default=0
        Draws the held-out tasks and rows, and the starts of mixtures.  Tasks are drawn by their labels: the order in
        which they come changes nothing.

    Attributes
    ----------
    prior_ : Prior
        All that was learned; ``conditioning_`` (H, C), ``bias_`` (B, b₀), ``feature_map_``, ``clip_`` and
        ``calibration_`` are views of it.
    form_ : dict
        The form that was chosen.
    n_components_ : int
        Components of the mixture.
    scale_ : float
        The multiple of τ that is part of ``conditioning_``.
    side_form_ : dict or None
        What the side information moves in b(s): the intercept or all weights, curved or not, and the penalty;
        None where it moves nothing.  Gates, through which it shapes τ(s), are part of ``form_``.
    bias_penalty_ : float or None
        Penalty on the part of b(s) that is learned on query rows; None where it is left out.
    common_ : regressor or None
        The common part, fitted to the rows of all tasks; None where there is none.
    search_results_ : list of dict
        Error of every candidate on the held-out tasks.
    validation_error_ : float
        That of the model that was chosen.
    training_summary_ : TrainingSummary
        What `summary` and `effects` need of the training tasks: a few small arrays and no rows.
    """

    form_: dict[str, Any]
    n_components_: int
    side_form_: dict[str, Any] | None
    bias_penalty_: float | None
    _in_user_units = False
    _min_features = 0

    def __init__(
        self,
        feature_map: Any = "auto",
        *,
        loss: Any = "absolute",
        common: Any = None,
        varying: Any = None,
        fit_intercept: bool = True,
        clip: Any = None,
        support: Any = None,
        order: str = "random",
        calibrate: bool = True,
        validation_fraction: float = 0.2,
        tol: float = 1e-8,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        device: Any = None,
        progress: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.feature_map = feature_map
        self.loss = loss
        self.common = common
        self.varying = varying
        self.fit_intercept = fit_intercept
        self.clip = clip
        self.support = support
        self.order = order
        self.calibrate = calibrate
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        validation: TaskSet | None = None,
        sample_weight: Any = None,
        checkpoint: Any = None,
    ) -> Self:
        """Learn from many tasks.

        Parameters
        ----------
        X : TaskSet, TaskScan, or array (n, d) with ``y`` and ``groups``
            Or tensors of torch, see ``device``.  Of a `tailored.scan` memory does not grow with the table.  The form and
            all else that needs rows is learned from a random sample of 5,000 whole tasks, and the form is then fitted to
            all of them by EM.  Where there are more tasks than that, their weights are not kept: `predict_tasks` serves
            them from their rows.
        y, groups, side_info
            See `TaskSet`; without ``groups`` all rows are one task.
        validation : TaskSet, optional
            Tasks to choose on; by default some of the training tasks are held out.
        sample_weight : array (n,) of whole numbers, optional
            Frequencies: k is a row k times, and zero leaves it out.
        checkpoint : path, optional
            With a scan: folder for the partitioned rows and the statistics, about as large as the numbers of the table.
            The same call with the same folder resumes an interrupted fit, with bitwise the same result.  Other data or
            settings raise ValueError.  By default a temporary folder.
        """
        if isinstance(X, TaskScan):
            check_no_columns(y=y, groups=groups, side_info=side_info, sample_weight=sample_weight)
            return self._fit_scan(X, validation, checkpoint)
        if checkpoint is not None:
            raise ValueError("checkpoint: tasks in memory are not written down; pass X=tailored.scan(...)")
        with self._all_or_nothing(reset=True):
            self._check_parameters()
            if is_tensor(X):
                check_no_weights(sample_weight)
                tensors, seed = read_tensors(self, X, y, groups, side_info, reset=True), self._seed()
                self._fit_source(DeviceSource(tensors, seed), seed, validation)
                return self
            tasks = self._read(X, y, groups, side_info, reset=True)
            if sample_weight is not None:
                from_rows = not isinstance(X, TaskSet)
                tasks = repeat_rows(tasks, sample_weight, groups, from_rows=from_rows)
            self._fit_in_memory(tasks, validation)
        return self

    def _fit_in_memory(self, tasks: TaskSet, validation: TaskSet | None) -> None:
        """All at once, or from a sample where statistics of all tasks are the device's or do not fit into memory."""
        d = tasks.n_features + bool(self.fit_intercept)
        source: TaskSource
        if d <= COMPILED_COLUMNS and self.device is not None and len(tasks) > SAMPLE_TASKS:
            tensors, seed = TensorTasks.from_tasks(tasks, check_device(self.device)), self._seed()
            source = DeviceSource(tensors, seed, tasks)
        elif d <= COMPILED_COLUMNS and len(tasks) * d * d > LARGEST_STATISTICS:
            seed = self._seed()
            source = MemorySource(tasks, seed)
        else:
            self._fit_tasks(tasks, validation)
            return
        self._fit_source(source, seed, validation)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        side_info: Any = None,
        validation: TaskSet | None = None,
    ) -> Self:
        """Go on learning from a stream of tasks; a call succeeds whole or changes nothing.

        Memory and time of a call do not grow with the stream.  Whenever the number of tasks has doubled, the form and all
        else is learned anew from a random sample of whole tasks, all of them up to 5,000; in between each call moves
        the model by one step of EM.  Labels name tasks: rows under a label that came before are further rows of that task
        where the sample holds it, and else those of another task.

        Parameters
        ----------
        X, y, groups, side_info, validation
            See `fit`; without ``groups`` the rows of a call are one new task.
        """
        fresh = not hasattr(self, "_stream")
        if fresh and hasattr(self, "prior_"):
            raise ValueError(
                "partial_fit: a loaded learner cannot continue a stream. Pickle it instead, or fit a new one."
            )
        with self._all_or_nothing(reset=fresh):
            self._check_parameters()
            tasks = self._read(X, y, groups, side_info, reset=fresh)
            if groups is None and not isinstance(X, TaskSet):
                tasks = label_unnamed(tasks, 0 if fresh else self._stream.n_tasks)
            if fresh:
                self._fit_tasks(tasks, validation)
            else:
                self._go_on(tasks, None if validation is None else self._read_held_out(validation))
            self._goes_on = True
        return self

    def _train(
        self,
        tasks: TaskSet,
        n_validation: int,
        clip: tuple[float, float] | None,
        *,
        going_on: bool = False,
        source_in: Any = None,
    ) -> Learned:
        """Learn from tasks, the last of which are to choose on, and store the result.

        ``going_on`` keeps the units and features of what is running; ``source_in`` is that of `learn`.
        """
        # A quantile is the median plus so many spreads, which are counted on held-out tasks.
        quantile = self.loss_.quantile if isinstance(self.loss_, Pinball) else None
        settings = Settings(
            self.loss_ if quantile is None else Absolute(),
            bool(self.fit_intercept),
            bool(self.calibrate),
            clip,
            self.validation_fraction,
            self._stream.seed,
            self.n_jobs,
            self._arrival(),
            self.device,
            varying_weights(self, tasks),
        )
        running = self._stream.running if going_on else None
        side = self._side_features(tasks) if running is None else running.side
        data = TrainingData(tasks, side, n_validation, settings, None if running is None else running.scaling)
        options: dict[str, Any] = {"progress": self.progress, "source_in": source_in}
        learned = learn(data, **options) if self.common is None else self._learn_with_regressor(data, options)
        if learned.warning is not None:
            warnings.warn(learned.warning, UnhelpfulWarning, stacklevel=outside())
        if quantile is not None:
            self._check_quantile(quantile, learned.prior.calibration, len(tasks))
        self.prior_ = replace(learned.prior, quantile=quantile)
        self.form_, self.n_components_ = learned.structure.describe(), learned.structure.n_components
        self.scale_ = learned.scale
        self.side_form_ = None if learned.side is None else learned.side.describe()
        self.bias_penalty_ = learned.penalty
        self.search_results_, self.validation_error_ = learned.results, learned.validation_error
        self.training_summary_ = learned.training_summary
        self.n_iter_ = 1
        return learned

    @staticmethod
    def _check_quantile(quantile: float, calibration: Calibration | None, n_tasks: int) -> None:
        """Quantiles are counted: refuse or warn where there is nothing, or too little, to count."""
        if calibration is None:
            raise ValueError(
                "loss: quantiles are counted on tasks that take turns in being held out, which takes at least two "
                "tasks with rows; give more tasks, or use ConditionalLearner or TaskRegressor with this loss"
            )
        if not calibration.supports_quantile(quantile):
            warnings.warn(
                f"loss: {n_tasks} tasks are too few to count {100.0 * quantile:g} % quantiles; these are the farthest "
                "that held-out tasks needed",
                UserWarning,
                stacklevel=outside(),
            )

    def _arrival(self) -> SupportSampling:
        return SupportSampling.of(self.support, self.order)

    def _learn_with_regressor(self, data: TrainingData, options: dict[str, Any]) -> Learned:
        automatic = isinstance(self.common, str)
        return learn_with_regressor(
            data,
            default_regressor() if automatic else self.common,
            reads_side_info=data.side is not None,
            automatic=automatic,
            **options,
        )

    @property
    def common_(self) -> Any:
        """The common part's regressor, fitted to the rows of all tasks; None where there is none."""
        shared = self.prior_.regressor
        return None if shared is None else shared.regressor

    def _side_features(self, tasks: TaskSet) -> SideFeatures | None:
        """The features that join those of the posterior."""
        has_side_info = tasks.side_info is not None
        nothing = ("posterior",) if has_side_info else ("posterior", "auto")
        if isinstance(self.feature_map, str) and self.feature_map in nothing:
            return None
        return SideFeatures.fit(get_feature_map(self.feature_map, has_side_info=has_side_info), tasks)

    def _check_parameters(self) -> None:
        self._check_common()
        if self.device is not None:
            check_device(self.device)
            if self.common is not None:
                raise ValueError("device: the common part of tasks is computed on the CPU; use device=None")
        check_fraction("validation_fraction", self.validation_fraction)
        self._arrival()
        if isinstance(self.common, str):
            check_choice("common", self.common, ("auto",))
        elif self.common is not None:
            check_regressor(self.common)
        if not isinstance(self.loss_, BoxLoss) or isinstance(self.loss_, MarginLoss):
            valid = [
                name
                for name, kind in LOSSES.items()
                if issubclass(kind, BoxLoss) and not issubclass(kind, MarginLoss)
            ]
            raise ValueError(
                f"loss: EmpiricalBayesLearner cannot honour the {self.loss_.name} loss, its model of the targets "
                f"is Gaussian; use ConditionalLearner(loss={self.loss_.name!r}), or one of {', '.join(valid)}"
            )
