"""The practical training routine: a Gaussian model of all tasks by EM, its form chosen on held-out tasks.

1. Fit the forms of `tailored.mixed_models.forms`, from "every task alone" to a mixture of mixed models, to
   some of the tasks; choose the one, and a multiple of its τ, that predicts the other tasks best.
2. Fit that form to all tasks: this is τ(s) and the mean part of b(s).
3. Learn the conditional part of b(s) on the query risk, with the penalty chosen on the same held-out
   tasks; leave it out where it does not pay.  Its features are the weights that a task is given without it:
   a refinement of the first model by a second one.
4. Count how far the predictions of held-out tasks miss, for intervals.

The result is of the paper's form, ``τ(s) = (I ⊗ φᵀ) H (I ⊗ φ) + C`` and ``b(s) = Bφ + b₀`` for the features
of `tailored.posterior_map`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._threads import single_threaded_blas
from ..calibration import AdaptTasks, calibrate_on
from ..feature_maps.posterior import Level, PosteriorMap, SideFeatures
from ..intervals import Calibration
from ..mixed_models import TaskStatistics, Units, adapt
from ..mixed_models.forms import Form, FormFitter, chains
from ..progress import progress_bar
from ..representation.bias import Bias
from ..representation.conditioning import RANK_TOLERANCE, Conditioning, Constant, Factored
from ..tasks import TaskSet
from ..tasks.rows import batches
from .environment import FORM_STARTS, INTERVAL_ROWS, Model, Settings, TrainingTasks
from .prior_mean import LearnedBias, LevelBias, learn_bias
from .query_risk import PENALTIES
from .selection import choose

Array = NDArray[np.float64]

#: Each step of EM costs about T d³ operations, and there are several hundred of them.
LARGEST_WORK = 4e9


@dataclass(frozen=True)
class Trained:
    """What training ends in, and what was tried on the way."""

    feature_map: PosteriorMap
    conditioning: Conditioning
    bias: Bias
    calibration: Calibration | None
    form: Form
    scale: float
    side_penalty: float | None
    penalty: float | None
    validation_error: float
    results: list[dict[str, Any]]


def train(
    tasks: TaskSet,
    settings: Settings,
    *,
    side: SideFeatures | None = None,
    n_validation: int = 0,
    progress: bool = False,
) -> Trained:
    """Run the routine of the module's text; see `TrainingTasks` for the parameters."""
    T, d = len(tasks), tasks.n_features + settings.fit_intercept
    if T * d**3 > LARGEST_WORK:
        raise ValueError(
            f"X: learning from {T} tasks with {d} columns by the practical algorithm would take hours; "
            "give step_size='search' and a rank, for instance rank=32"
        )
    at_hand = TrainingTasks(tasks, side, n_validation, settings)
    steps = len(at_hand.folds) * len(chains(2, True)) + 3 * len(PENALTIES)
    with progress_bar("Learning from tasks", steps, enabled=progress) as tick:
        return _train(at_hand, tick)


def _train(at_hand: TrainingTasks, tick: Callable[[int], None] | None) -> Trained:
    choice = choose(at_hand, tick)
    best, results = choice.best, choice.results
    with single_threaded_blas():
        fitter = FormFitter.of(at_hand.statistics, at_hand.seed(FORM_STARTS), choice.side_penalty)
        model = Model(fitter.fit(best.form), best.scale)
    fits = [Model(mixture, best.scale) for mixture in best.fits]
    # A single task has nobody to be held out from.
    learned = learn_bias(at_hand, model, fits, tick) if len(at_hand) > 1 else LearnedBias([], [], [])
    biases = learned.levels
    assembled = assemble(at_hand, model, biases)
    calibration = _calibrate(at_hand, fits, learned.folds, assembled) if learned.folds else None
    return Trained(
        *assembled,
        calibration,
        best.form,
        best.scale,
        choice.side_penalty,
        biases[-1].penalty if biases else None,
        biases[-1].error if biases else best.error,
        results + learned.results,
    )


class Assembled(NamedTuple):
    """The result in the paper's form."""

    feature_map: PosteriorMap
    conditioning: Conditioning
    bias: Bias


def assemble(at_hand: TrainingTasks, model: Model, biases: list[LevelBias]) -> Assembled:
    """φ, (H, C) and (B, b₀) of a fitted model."""
    learned = any(level.B is not None for level in biases)
    feature_map = PosteriorMap.of_model(
        at_hand.units,
        model.mixture,
        model.scale,
        fit_intercept=at_hand.settings.fit_intercept,
        levels=[Level(level.rows, level.summary) for level in biases] if learned else [],
        side=at_hand.side,
    )
    return Assembled(feature_map, *_in_raw_units(model, at_hand.units, biases))


def _calibrate(
    at_hand: TrainingTasks, fits: list[Model], biases: list[list[LevelBias]], final: Assembled
) -> Calibration | None:
    """For intervals: each fold's model is asked about the tasks that it was not fitted to."""
    fit_intercept = at_hand.settings.fit_intercept
    held_out = (
        (at_hand.tasks[fold.held_out], _adapter(assemble(at_hand, fit, bias), fit_intercept))
        for fold, fit, bias in zip(at_hand.folds, fits, biases, strict=True)
    )
    with single_threaded_blas():
        in_use = _adapter(final, fit_intercept)
        return calibrate_on(held_out, fit_intercept, at_hand.seed(INTERVAL_ROWS), in_use)


def adapt_in_closed_form(trained: Trained, tasks: TaskSet, fit_intercept: bool) -> Array:
    """Weights (T, d) of the tasks; what `MetaLearner.adapt_many` gives, without waiting for its compiler."""
    model = Assembled(trained.feature_map, trained.conditioning, trained.bias)
    adapt_tasks = _adapter(model, fit_intercept)
    with single_threaded_blas():
        return np.concatenate([adapt_tasks(batch)[0] for batch in batches(tasks)])


def _adapter(model: Assembled, fit_intercept: bool) -> AdaptTasks:
    """Weights and representations of tasks under the model, in raw units and closed form."""

    def adapt_tasks(tasks: TaskSet) -> tuple[Array, Array]:
        phis = model.feature_map.transform(tasks)
        taus = model.conditioning.evaluate(phis)
        weights = adapt(taus, model.bias.evaluate(phis), TaskStatistics.of(tasks, fit_intercept))
        return weights, taus * np.maximum(tasks.sizes, 1)[:, None, None]

    return adapt_tasks


def _in_raw_units(model: Model, units: Units, biases: list[LevelBias]) -> tuple[Conditioning, Bias]:
    """(H, C) and (B, b₀) in raw units, for the features of `PosteriorMap`.

    H is block diagonal over the √r features, ``H = Σ_k e_k e_kᵀ ⊗ W_k / σ²``, and B acts on the others.
    A single component needs no H: C is its W / σ².
    """
    mixture = model.mixture
    K, d = mixture.means.shape
    blocks = [np.zeros((d, K)), mixture.means.T]
    blocks += [] if mixture.side is None else [mixture.side]
    blocks += [level.B for level in biases if level.B is not None]
    linear = np.hstack(blocks) * units.weights[:, None]
    n_side = linear.shape[1]
    taus = model.scale * mixture.covariances / mixture.noise / np.outer(units.columns, units.columns)
    conditioning = Constant(taus[0], n_side) if K == 1 else _block_diagonal(taus, n_side)
    if n_side == 2 and mixture.means.any():
        # One component and nothing else: its mean is shared by all tasks.
        bias = Bias("shared", d, n_side)
        bias.constant[:] = linear[:, 1]
    else:
        bias = Bias("conditional" if linear.any() else "none", d, n_side)
        bias.linear[:] = linear[:, : bias.linear.shape[1]]
    return conditioning, bias


def _block_diagonal(taus: Array, n_side: int) -> Factored:
    """The eigenbasis of H, straight from those of its blocks."""
    K, d, _ = taus.shape
    values, vectors = np.linalg.eigh(taus)
    basis = np.zeros((d, n_side, K, d))
    for k in range(K):
        basis[:, k, k] = vectors[k]
    flat = values.ravel()
    order = np.argsort(flat, kind="stable")
    order = order[flat[order] > RANK_TOLERANCE * flat.max()]
    return Factored(basis.reshape(d * n_side, K * d)[:, order], flat[order], np.zeros((d, d)), n_side)
