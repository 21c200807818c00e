"""Several Gaussian components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...gaussian.em import (
    COMPONENT_SHRINKAGE,
    MStep,
    em,
    fit_mixture,
    step_of_mixture,
    truncate,
)
from ...gaussian.mixture import Mixture, Shrinkage
from ...gaussian.normality import non_normality
from ...gaussian.side import Group, best_gain, unit_root
from ...tasks.rows import Array
from ..data import Draw, Training, TrainingData
from ..loop import Candidate, State, Table
from ..rule import COMPONENTS, PATIENCE, RICHER, is_better, least_gain
from ..structures import MixedModel, Structure

#: Candidate thresholds, relative to the largest eigenvalue of W, below which eigenvalues are set to
#: zero.
TRUNCATIONS = (0.0, 0.01, 0.05)
#: Number of samples from a Gaussian with which the coefficients of classes and counts are compared.
SAMPLES = 9


@dataclass(frozen=True)
class MixtureModel(Structure):
    """Several Gaussians, whose mixing weights may depend on side information."""

    kind = "mixture"

    has_gates: bool = False  # whether side information has effects on the mixing weights
    truncation: float = 0.0  # smallest eigenvalue of W that is kept, relative to the largest

    @property
    def after(self) -> tuple[Structure, ...]:
        """The plain mixed model, the same mixture without truncation, or that without gates."""
        if self.has_gates:
            return (replace(self, has_gates=False),)
        return (replace(self, truncation=0.0) if self.truncation else MixedModel(),)

    def shrinkage(self, model: Mixture) -> Shrinkage | None:
        return Shrinkage(COMPONENT_SHRINKAGE, model.moments()[1])

    def names(self, d: int, has_intercept: bool) -> tuple[str, str]:
        return self.kind, f"mixture of {self.n_components}"

    def _fit(self, training: Training, *after: Mixture, start: Mixture | None) -> Mixture:
        (before,) = after
        if self.has_gates:
            return with_gates(training, before, max_iter=20)
        if self.truncation:
            # EM does not change the range of W, so it refits only the remaining directions.
            return em(training.tasks, truncate(before, self.truncation), max_iter=15).mixture
        tasks, seed = training.tasks, training.seed
        if start is not None:  # a fit to other tasks of the same population
            m_step = step_of_mixture(before)
            return em(tasks, start, max_iter=20, m_step=m_step, accelerate=True).mixture
        return fit_mixture(tasks, before, self.n_components, seed=seed)


@dataclass(frozen=True)
class RoughMixture(MixtureModel):
    """A short fit, to select the number of components."""

    is_final = False
    seed: tuple[int, ...] = field(default=())

    @property
    def after(self) -> tuple[Structure, ...]:
        return (MixedModel(),)

    def _fit(self, training: Training, *after: Mixture, start: Mixture | None) -> Mixture:
        K, seed = self.n_components, list(self.seed)
        mixture = fit_mixture(
            training.tasks, after[0], K, seed=seed, n_starts=2, short_iter=4, max_iter=10
        )
        return with_gates(training, mixture, max_iter=5) if self.has_gates else mixture


def accept_mixture(state: State, table: Table) -> State:
    """Accept the mixture with the highest density if it is better than the selected model."""
    data, single, settings = state.data, state.single, state.data.settings
    is_free = settings.varying is None and settings.covariance is None
    if single is None or data.is_wide or not is_free or not _may_be_mixture(data, single):
        return state
    n_components = count_components(state, table)
    if n_components == 1:
        return state
    mixture = MixtureModel(n_components=n_components)
    structures = [
        replace(mixture, has_gates=has_gates, truncation=threshold)
        for has_gates in ((False,) if data.side is None else (False, True))
        for threshold in TRUNCATIONS
    ]
    tried = [table.compete(each, state.folds) for each in structures]
    best = max(tried, key=lambda each: each.mean_density)
    assert state.best is not None
    return replace(state, best=best) if is_better(best, state.best, single) else state


def _may_be_mixture(data: TrainingData, single: Candidate) -> bool:
    """Return whether the coefficients of the held-out tasks are not Gaussian, by two standard
    errors.

    For classes and counts, posteriors are not Gaussian in any case, so the evidence has to be
    higher than in `SAMPLES` samples from the fitted model.
    """
    parts = [
        (fold.held_out, model) for fold, model in zip(single.folds, single.models, strict=True)
    ]
    found = non_normality(parts)
    if data.response.is_gaussian:
        return found > RICHER
    rng = np.random.default_rng(data.seed(Draw.NORMAL_SAMPLES))
    samples = ([(tasks.drawn(model, rng), model) for tasks, model in parts] for _ in range(SAMPLES))
    return all(found > non_normality(sample) for sample in samples)


def count_components(state: State, table: Table) -> int:
    """Select the number of components with short fits; each number is compared with the last
    that was accepted.
    """
    data, last, single, n_components, n_failures = state.data, state.best, state.single, 1, 0
    assert last is not None
    assert single is not None
    least_train = min(len(fold.training.tasks) for fold in state.folds)
    for K in COMPONENTS:
        # The variance of a component needs two tasks.
        if n_failures == PATIENCE or least_train < 2 * K:
            break
        seed = tuple(data.seed(Draw.COMPONENT_STARTS, K))
        rough = RoughMixture(n_components=K, has_gates=data.side is not None, seed=seed)
        result = table.compete(rough, state.folds)
        n_failures += 1
        if is_better(result, last, single):
            n_components, n_failures, last = K, 0, result
    return n_components


def with_gates(training: Training, start: Mixture, max_iter: int) -> Mixture:
    """Estimate mixing weights that depend on the relevant side information; return ``start`` if
    there is none.
    """
    shares = training.tasks.posterior(start).shares
    penalties = gate_penalties(training.tasks.side, training.groups, shares)
    if not np.isfinite(penalties).any():
        return start
    m_step = MStep(gate_penalty=penalties)
    return em(training.tasks, start, max_iter=max_iter, m_step=m_step).mixture


def gate_penalties(side: Array, groups: Sequence[Group], shares: Array) -> Array:
    """Return penalties (q,) on the coefficients of the mixing weights: infinite for features that
    fail the score test.

    The information about the logits is the covariance of the responsibilities ``shares`` (T, K);
    tasks whose component is uncertain contribute less (Louis, 1982).  v(s) is divided by the square
    root of the number of features; the penalties are scaled as if it were divided by that of the
    number of relevant features.
    """
    deviations = shares - shares.mean(axis=0)
    of_shares, directions = np.linalg.eigh(deviations.T @ deviations / len(shares))
    relevant: dict[bool, list[int]] = {False: [], True: []}
    for group in groups:
        values = side @ unit_root(side, group)
        values = values - values.mean(axis=0)
        of_values, rotation = np.linalg.eigh(values.T @ values)
        scores = rotation.T @ (values.T @ deviations) @ directions
        gain, _ = best_gain(np.outer(of_values, of_shares).ravel(), scores.ravel())
        if gain > least_gain(len(groups)):
            relevant[group.curved] += group.features.tolist()
    penalties = np.full(side.shape[1], np.inf)
    for curved, features in relevant.items():
        n = sum(len(group.features) for group in groups if group.curved == curved)
        penalties[features] = len(features) / max(n, 1)
    return penalties
