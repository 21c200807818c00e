"""The rule by which the model is selected: on fabricated scores, and on data where its parts
matter.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

from bayes_samples import selected
from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskSet
from tailored._utils.progress import Stages
from tailored.datasets import make_clusters
from tailored.gaussian.responses import Poisson
from tailored.gaussian.side import Effect, SideStructure
from tailored.losses import Squared
from tailored.priors.side_features import SideFeatures
from tailored.selection import rule
from tailored.selection.data import Settings, TrainingData
from tailored.selection.loop import Candidate, State, Table, search
from tailored.selection.rule import (
    RICHER,
    Score,
    is_as_good,
    is_better,
    known_mean,
    passes_guard,
    significant,
)
from tailored.selection.steps import STEPS, mixtures, shared_effects, side_information
from tailored.selection.steps.covariance import select_covariance
from tailored.selection.steps.mixtures import count_components
from tailored.selection.steps.noise import accept_dispersion
from tailored.selection.steps.shared_effects import accept_shared_effects

T = 40


def score(density, errors=1.0, prior_errors=1.0):
    return Score(
        *(np.broadcast_to(each, T).astype(float) for each in (density, errors, prior_errors))
    )


def gains(n_errors, seed=0):
    """Paired gains whose mean is so many standard errors."""
    noise = np.random.default_rng(seed).normal(size=T)
    noise -= noise.mean()
    return noise + n_errors * noise.std(ddof=1) / np.sqrt(T)


SINGLE = score(0.0)


def data_of(tasks, loss=None, **changes):
    return TrainingData(
        tasks, None, 0, replace(Settings(loss or Squared(), True, 0, None), **changes)
    )


# ---------------------------------------------------------------------------------------- the steps


def test_the_rule_lists_the_steps_in_their_order():
    listed = re.findall(r"^\((\d)\) ([\w ]+)", rule.__doc__, flags=re.MULTILINE)
    for number, (step, (label, text)) in enumerate(zip(STEPS, listed, strict=True), start=1):
        assert label == str(number)
        assert text.startswith(step.__name__.split("_", 1)[1].replace("_", " "))


# ------------------------------------------------------------------------------------ significance


def test_two_standard_errors():
    assert significant(gains(RICHER + 0.01))
    assert not significant(gains(RICHER - 0.01))
    assert not significant(-gains(RICHER + 1.0))
    # Tasks without query rows do not count.
    assert significant(np.append(gains(RICHER + 0.01), [np.nan] * 50))
    assert not significant(np.zeros(T))
    assert significant(np.ones(T))
    for few in ([], [np.nan], [3.0], [3.0, np.nan]):
        assert not significant(np.array(few))


def test_infinite_gains_decide():
    finite = np.full(6, 0.1)
    assert significant(np.append(finite, np.inf))
    assert not significant(np.append(finite, -np.inf))
    assert not significant(np.array([np.inf, -np.inf, 0.3]))
    assert not significant(np.array([np.inf, np.nan]))


def test_errors_of_tasks_without_query_rows_are_left_out():
    assert known_mean(np.array([1.0, np.nan, 3.0])) == 2.0
    assert known_mean(np.full(3, np.nan)) == 0.0


# ---------------------------------------------------------------------------------- richer models


def test_a_richer_model_needs_two_standard_errors_of_density():
    assert is_better(score(gains(RICHER + 0.01)), SINGLE, SINGLE)
    assert not is_better(score(gains(RICHER - 0.01)), SINGLE, SINGLE)
    assert not is_better(SINGLE, SINGLE, SINGLE)
    # It is compared with the model that was accepted last, and guarded by the single Gaussian.
    last = score(1.0, errors=0.5)
    assert is_better(score(1.0 + gains(RICHER + 0.01), errors=0.9), last, SINGLE)
    assert not is_better(score(gains(RICHER + 0.01), errors=0.9), last, SINGLE)


def test_a_density_that_is_not_a_number_is_the_lowest():
    density = np.full(T, 9.0)
    density[3] = np.nan
    assert score(density).mean_density == -np.inf
    assert not is_better(score(density), SINGLE, SINGLE)
    assert not is_as_good(score(density), SINGLE)


def test_an_infinitely_unlikely_task_rules_a_model_out():
    density = np.full(T, 9.0)
    density[3] = -np.inf
    assert not is_better(score(density), SINGLE, SINGLE)
    assert not is_as_good(score(density), SINGLE)
    # The simpler model cannot explain a task that the richer one explains.
    assert is_better(score(np.zeros(T)), score(density), SINGLE)


def test_the_guard_with_support_rows_has_no_tolerance():
    richer = score(gains(9.0))
    assert not is_better(replace(richer, errors=1.0 + 1e-6 + 0.0 * SINGLE.errors), SINGLE, SINGLE)
    assert is_better(replace(richer, errors=SINGLE.errors - 1e-6), SINGLE, SINGLE)
    # On average over the tasks.
    assert passes_guard(replace(richer, errors=1.0 + gains(-0.1)), SINGLE)
    assert not passes_guard(replace(richer, errors=1.0 + gains(0.1)), SINGLE)
    some = np.where(np.arange(T) % 2, 1.0, np.nan)
    assert passes_guard(replace(richer, errors=some), replace(SINGLE, errors=some))


def test_the_guard_without_support_rows_is_that_of_the_sum():
    richer = replace(score(gains(9.0)), errors=SINGLE.errors - 0.25)
    assert passes_guard(replace(richer, prior_errors=SINGLE.prior_errors + 0.25), SINGLE)
    assert not passes_guard(replace(richer, prior_errors=SINGLE.prior_errors + 0.26), SINGLE)
    # A gain without rows does not make up for a loss with rows.
    assert not passes_guard(score(0.0, errors=1.01, prior_errors=0.1), SINGLE)
    exploding = np.append(np.ones(T - 1), np.inf)
    assert not is_better(replace(richer, prior_errors=exploding), SINGLE, SINGLE)
    assert passes_guard(richer, replace(SINGLE, errors=exploding))
    assert not passes_guard(replace(richer, errors=exploding), SINGLE)


def test_a_proposal_is_accepted_unless_the_density_falls_by_two_standard_errors():
    assert is_as_good(SINGLE, SINGLE)
    assert is_as_good(score(gains(0.1 - RICHER)), SINGLE)
    assert not is_as_good(score(gains(-0.1 - RICHER)), SINGLE)
    # One outlying task does not outweigh eleven others.
    density, without = np.append(np.full(11, 2.0), -47.0), np.zeros(12)
    assert density.mean() < 0.0
    assert is_as_good(Score(density, without, without), Score(without, without, without))
    assert not is_as_good(Score(density - 7.0, without, without), Score(without, without, without))
    assert not is_as_good(score(np.append(gains(9.0)[1:], np.nan)), SINGLE)
    assert not is_as_good(score(np.append(gains(9.0)[1:], np.inf)), SINGLE)


def test_one_outlying_task_does_not_reject_a_large_effect_of_side_information():
    """16 rats of 3 diets, weighed 11 times, like `nlme::BodyWeight`; one rat of the second diet
    weighs much more.

    Diets raise the density of most rats by 2 nats, and lower that of this rat, and so the sum over
    all rats, by more.
    """
    rng = np.random.default_rng(4)
    diet = np.repeat(["1", "2", "3"], [8, 4, 4])
    start = np.repeat([250.0, 450.0, 505.0], [8, 4, 4]) + 10.0 * rng.normal(size=16)
    start[9] += 140.0
    time, rat = np.tile(np.linspace(1.0, 64.0, 11), 16), np.repeat(np.arange(16), 11)
    slope = np.repeat([0.35, 0.95, 0.5], [8, 4, 4]) + 0.2 * rng.normal(size=16)
    y = start[rat] + slope[rat] * time + 4.0 * rng.normal(size=176)
    data = data_of(TaskSet(time[:, None], y, rat, side_info=dict(enumerate(diet[:, None]))))
    data = replace(data, side=SideFeatures.fit(data.tasks))
    assert selected(data).side is not None


@pytest.mark.parametrize("name", ["errors", "prior_errors"])
def test_a_proposal_may_not_have_significantly_higher_errors(name):
    proposed = score(gains(9.0))
    assert is_as_good(replace(proposed, **{name: 1.0 + gains(RICHER - 0.01)}), SINGLE)
    assert not is_as_good(replace(proposed, **{name: 1.0 + gains(RICHER + 0.01)}), SINGLE)
    assert not is_as_good(replace(proposed, **{name: np.append(np.ones(T - 1), np.inf)}), SINGLE)
    # Tasks without query rows have no errors.
    assert is_as_good(replace(proposed, **{name: np.full(T, np.nan)}), SINGLE)


# ------------------------------------------------------------------------------------- covariances


def grouped(n_tasks, n_rows, d, slopes, seed, intercept=1.0):
    rng = np.random.default_rng(seed)
    X, groups = rng.normal(size=(n_tasks * n_rows, d)), np.repeat(np.arange(n_tasks), n_rows)
    w = 1.0 + slopes * rng.normal(size=(n_tasks, d))
    y = (X * w[groups]).sum(axis=1) + intercept * rng.normal(size=n_tasks)[groups]
    return TaskSet(X, y + rng.normal(size=len(y)), groups)


@pytest.mark.parametrize("lead", ["intercept", "diagonal", "full"])
def test_the_density_decides_between_covariances(lead):
    """Also if its lead is within its standard error; a total error above that of the random
    intercept excludes.
    """

    class Fabricated(Table):
        def compete(self, structure, folds):
            leads = structure.covariance == lead and not structure.pseudo_tasks
            density = np.linspace(-1.0, 1.0, T) * leads + 1e-3 * leads
            return Candidate(
                density, np.full(T, 1.0 + excess * leads), np.ones(T), structure, folds, [], []
            )

    state = State.of(data_of(grouped(15, 4, 2, 0.5, seed=1), n_folds=3))
    for excess in (0.0, 0.1):
        selected = select_covariance(state, Fabricated()).best.structure
        found = selected.covariance, selected.pseudo_tasks
        assert (found == (lead, 0.0)) == (excess == 0.0 or lead == "intercept")


@pytest.mark.parametrize("intercept", [30.0, 1000.0])
def test_intercepts_that_differ_much_do_not_hide_slopes(intercept):
    """The errors without rows are those of the intercepts, in every model."""
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=400), np.repeat(np.arange(40), 10)
    y = (intercept * rng.normal(size=40))[groups] + (2.0 + 0.5 * rng.normal(size=40))[groups] * x
    y += 0.01 * rng.normal(size=400)
    learner = EmpiricalBayesLearner().fit(x[:, None], y, groups=groups)
    assert learner.structure_.get("structure", "full") != "intercept"
    residuals = y - learner.predict(x[:, None], groups=groups)
    assert 0.005 < residuals.std() < 0.011


@pytest.mark.parametrize("n_tasks", [3, 12, 60])
@pytest.mark.parametrize("intercept", [0.0, 0.4, 1.5])
def test_without_columns_the_intercept_is_random(n_tasks, intercept):
    """y ~ 1 + (1 | g), also if its variance is zero: pooled regression and ridge regression are
    baselines.
    """
    tasks = grouped(n_tasks, 5, 0, 0.0, seed=n_tasks, intercept=intercept)
    learner = few_folds().fit(tasks)
    assert learner.structure_ == {
        "kind": "mixed model",
        "n_components": 1,
        "structure": "intercept",
    }


# ----------------------------------------------------------------------------------------- no leaks


def test_held_out_targets_do_not_change_the_fits_of_their_fold():
    """Targets are scaled by all tasks, which must only change the units of a fit."""
    tasks = grouped(30, 6, 2, 0.7, seed=2)
    data = data_of(tasks)
    first = data.splits[0]
    constant = np.where(np.isin(np.arange(len(tasks)), first.held_out), 50.0, 0.0)
    moved = data_of(tasks.replace(y=tasks.y + np.repeat(constant, tasks.sizes)))
    np.testing.assert_array_equal(moved.splits[0].held_out, first.held_out)

    def in_users_units(data, fit):
        unit = data.scaling.target
        W = data.scaling.raw_representation(fit.covariances[0].copy()) * unit**2
        return W, fit.noise * unit**2, data.scaling.raw_weights(fit.means.copy())

    changed = 0
    before, after = (search(each, [select_covariance], Stages(""))[1] for each in (data, moved))
    for one, other in zip(before, after, strict=True):
        assert one.structure == other.structure
        for a, b in zip(
            in_users_units(data, one.models[0]), in_users_units(moved, other.models[0]), strict=True
        ):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4)
        # In the other folds, these are training tasks.
        changed += in_users_units(moved, other.models[1])[0][-1, -1] > 100.0
    assert changed == len(before) - 1  # all but pooled regression


# ----------------------------------------------------------------------------------------- the
# guard


def test_a_mixture_that_wins_by_density_alone_is_not_selected(monkeypatch):
    """Some rows have 30 times the noise: a wide component makes them likely, and then believes
    them.
    """
    n_tasks, n_rows = 150, 6
    monkeypatch.setattr(mixtures, "COMPONENTS", (2,))
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        scale = np.where(rng.random((n_tasks, n_rows)) < 0.02, 6.0, 0.2)
        y = rng.normal(0.0, 0.3, (n_tasks, 1)) + scale * rng.normal(size=(n_tasks, n_rows))
        tasks = TaskSet(np.zeros((y.size, 0)), y.ravel(), np.repeat(np.arange(n_tasks), n_rows))
        data = data_of(tasks)
        found = search(data, [select_covariance], Stages(""))
        assert count_components(*found) == 1
        with monkeypatch.context() as patched:
            patched.setattr(rule, "passes_guard", lambda richer, single: True)
            assert count_components(*found) == 2


def test_clear_clusters_pass_the_guard():
    tasks = make_clusters(80, n_clusters=2, n_rows=15, n_features=4, rank=1, random_state=0)
    assert count_components(*search(data_of(tasks), [select_covariance], Stages(""))) >= 2


# ---------------------------------------------------------------------------------------- proposals


def curved(curve, seed, n_tasks=40, n_rows=8):
    rng = np.random.default_rng(seed)
    X, groups = (
        rng.uniform(-2, 2, size=(n_tasks * n_rows, 1)),
        np.repeat(np.arange(n_tasks), n_rows),
    )
    y = (
        X[:, 0]
        + curve * X[:, 0] ** 2
        + rng.normal(size=n_tasks)[groups]
        + 0.5 * rng.normal(size=len(X))
    )
    return data_of(TaskSet(X, y, groups))


def accepted_effects(data):
    return selected(data, [accept_shared_effects]).effects


def test_curves_are_accepted_on_held_out_tasks():
    assert len(accepted_effects(curved(0.5, 0)).effects.effects) == 1
    assert accepted_effects(curved(0.0, 0)) is None


def test_curves_that_are_noise_are_rejected(monkeypatch):
    """The curve of each fit is one of noise: it has evidence in the tasks it was fitted to, and in
    no others.
    """
    rng, original = np.random.default_rng(0), shared_effects.fit_effects
    data = curved(0.0, 1)

    def proposed(each, *, proposes=True, **options):
        if not proposes:
            return original(each, proposes=False, **options)
        noise = rng.normal() * 2.0 * each.tasks.X[:, 0] ** 2
        return original(replace(each, tasks=each.tasks.replace(y=each.tasks.y + noise)), **options)

    monkeypatch.setattr(shared_effects, "fit_effects", proposed)
    assert proposed(data) is not None
    assert accepted_effects(data) is None


def counts(dispersed, seed, n_tasks=60, n_rows=8):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_tasks), n_rows)
    rate = np.exp(1.0 + 0.5 * rng.normal(size=n_tasks)[groups])
    if dispersed:
        rate = rate * rng.gamma(1.0, size=len(rate))
    X = rng.normal(size=(len(rate), 1))
    return data_of(TaskSet(X, rng.poisson(rate).astype(float), groups), Poisson(), n_folds=3)


def test_dispersion_is_accepted_where_counts_are_dispersed():
    def response(data):
        return selected(data, [accept_dispersion]).data.response.name

    assert response(counts(True, 0)) == "negative_binomial"
    # Two standard errors are rarely exceeded by chance.
    found = [response(counts(False, seed)) for seed in range(4)]
    assert found.count("poisson") >= 3


def test_side_information_is_accepted_on_held_out_tasks(monkeypatch):
    """A proposal that is the noise of the side information of each task is rejected."""
    rng = np.random.default_rng(0)
    side = rng.normal(size=(60, 1))
    X, groups = rng.normal(size=(360, 1)), np.repeat(np.arange(60), 6)
    rest = X[:, 0] + 0.5 * rng.normal(size=60)[groups] + 0.5 * rng.normal(size=360)
    for effect in (1.0, 0.0):
        tasks = TaskSet(X, rest + effect * side[groups, 0], groups, side_info=dict(enumerate(side)))
        data = data_of(tasks, n_folds=3)
        data = replace(data, side=SideFeatures.fit(tasks))
        assert (selected(data).side is not None) == bool(effect)
    # 20 effects of noise lower the density by more than two standard errors.
    noise = rng.normal(size=(60, 20))
    data = data_of(TaskSet(X, rest, groups, side_info=dict(enumerate(noise))), n_folds=3)
    data = replace(data, side=SideFeatures.fit(data.tasks))
    proposal = SideStructure(
        tuple(Effect(j, intercept_only=True, relevance=1.0) for j in range(20))
    )
    monkeypatch.setattr(side_information, "select_side", lambda *_, **__: proposal)
    assert selected(data).side is None
