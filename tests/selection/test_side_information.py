"""Side information of EmpiricalBayesLearner: linear or curved effects on the prior mean, on all
weights or the intercept, and proportions of a mixture that depend on it.
"""

import numpy as np
import pytest

from bayes_samples import selected
from folds import few_folds
from studies.curves import make_circle
from studies.theory.bayes import CurveOracle
from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.rows import statistics_of
from tailored.gaussian.side import Group
from tailored.losses import Absolute
from tailored.priors.side_features import SideFeatures
from tailored.selection.data import Settings, TrainingData
from tailored.selection.steps import mixtures
from tailored.selection.steps.mixtures import gate_penalties
from tailored.selection.steps.side_information import select_side
from tailored.tasks.rows import Scaling


def test_the_circle_is_found(monkeypatch):
    monkeypatch.setattr(mixtures, "COMPONENTS", (2,))
    both, truth = make_circle(500, n_features=4, n_rows=10, random_state=0, return_truth=True)
    train, test = both[:200], both[200:]
    learner = few_folds(loss="absolute").fit(train)
    assert learner.side_structure_["curved"] == [0]
    assert learner.side_structure_["effect on"] == "all weights"
    support, query = test.support_query(3, random_state=0)
    oracle = CurveOracle(truth.mean, truth.spread, truth.noise).task_errors(support, query).mean()
    assert learner.task_errors(support, query).mean() < 1.05 * oracle
    near = learner.adapt(side_info=[0.25]).coef_
    np.testing.assert_allclose(near, truth.mean([0.25])[0], atol=0.6)


def with_words(seed, T=30, n=4):
    """Side information of a number, a word and a flag; the word shifts the intercept."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(T * n, 2)), rng.normal(size=T * n)
    groups, words = np.repeat(np.arange(T), n), rng.choice(["red", "green", "blue"], size=T)
    y += 4.0 * (words == "red")[groups]
    ages = rng.uniform(20, 60, size=T)
    side = [
        {"age": a, "colour": str(w), "old": bool(a > 40)} for a, w in zip(ages, words, strict=True)
    ]
    return TaskSet(X, y, groups, dict(enumerate(side)))


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnknownCategoryWarning")
def test_a_word_that_shifts_the_intercept():
    tasks, new = with_words(3), with_words(4)
    learner = few_folds().fit(tasks)
    assert learner.side_structure_["effect on"] == "intercept"
    assert not learner.side_structure_["curved"]
    assert not learner.prior_.mixture.side[:-1].any()
    red, green, violet = (
        learner.adapt(side_info={"age": 40.0, "colour": word, "old": False})
        for word in ("red", "green", "violet")
    )
    np.testing.assert_allclose(red.coef_, green.coef_)
    assert 2.5 < red.intercept_ - green.intercept_ < 4.5
    assert green.intercept_ - 0.5 < violet.intercept_ < red.intercept_
    without = few_folds().fit(tasks.replace(side_info=None))
    assert without.side_structure_ is None
    errors = without.task_errors(new.replace(side_info=None), n_support=0)
    assert learner.task_errors(new, n_support=0).mean() < 0.8 * errors.mean()


def test_noise_as_side_information_has_no_effect(no_curves):
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(180, 2)), np.repeat(np.arange(30), 6)
    y = X @ [1.0, -1.0] + rng.normal(size=30)[groups] + 0.5 * rng.normal(size=180)
    side = dict(enumerate(rng.normal(size=(30, 1))))
    learner = few_folds().fit(X, y, groups=groups, side_info=side)
    assert learner.side_structure_ is None
    plain = few_folds().fit(X, y, groups=groups)
    np.testing.assert_allclose(
        learner.predict(X, groups=groups), plain.predict(X, groups=groups), atol=1e-9
    )
    # It is required all the same.
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(X[:2], y[:2])


def test_a_weak_effect_on_the_intercept_is_kept():
    """Two standard errors of density would reject it; a proposal only must not lower the
    density.
    """
    kept = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        side = rng.normal(size=(45, 1))
        X, groups = rng.normal(size=(45 * 6, 1)), np.repeat(np.arange(45), 6)
        y = (X[:, 0] + (0.5 * side[:, 0] + rng.normal(size=45))[groups]) + rng.normal(size=len(X))
        tasks = TaskSet(X, y, groups, side_info=dict(enumerate(side)))
        data = TrainingData(
            tasks, SideFeatures.fit(tasks), 0, Settings(Absolute(), True, 0, None, n_folds=2)
        )
        kept += selected(data).side is not None
    assert kept >= 3


def circle_with_noise(n_noise=4, units=1.0, permuted=False):
    """Return statistics and groups of tasks on a circle whose side information has columns of noise
    first.
    """
    tasks = make_circle(120, n_features=3, n_rows=8, random_state=0)
    rng = np.random.default_rng(0)
    place = tasks.side_info.astype(float)
    if permuted:
        place = place[rng.permutation(len(place))]
    side = np.hstack([rng.normal(size=(120, n_noise)), place])
    side = side * units ** np.arange(1 + n_noise) + units
    tasks = TaskSet.from_arrays(tasks.X * units, tasks.y, tasks.offsets, tasks.labels, side)
    features = SideFeatures.fit(tasks)
    v = features(tasks)
    return statistics_of(tasks, Scaling.of(tasks, True, centre=True), v), features.groups(v)


def test_noise_is_dropped_and_the_place_on_the_circle_kept():
    found = select_side(*circle_with_noise(), has_intercept=True)
    assert found.describe() == {"columns": [4], "curved": [4], "effect on": "all weights"}
    assert select_side(*circle_with_noise(permuted=True), has_intercept=True) is None


def test_the_learner_gates_where_it_pays(monkeypatch):
    monkeypatch.setattr(mixtures, "COMPONENTS", (2,))
    untold, found = None, []
    for hint in (0.9, 0.0):
        options = {"n_clusters": 2, "n_features": 6, "rank": 2, "n_rows": 12, "noise": 0.1}
        both = make_clusters(200, hint=hint, random_state=2, **options)
        train, test = both[:100], both[100:]
        told = few_folds().fit(train)
        # the rows are the same whatever the hint
        untold = untold or few_folds().fit(train.replace(side_info=None))
        both = (told, test), (untold, test.replace(side_info=None))
        pairs = [[m.task_errors(new, n_support=n).mean() for m, new in both] for n in (1, 2, 3)]
        found.append(np.divide(*np.transpose(pairs)))
        if hint:
            assert told.structure_["kind"] == "mixture"
            assert told.structure_["has_gates"]
            # the hint alone says which subspace
            first, second = (told.representation(side_info=side)[:6, :6] for side in np.eye(2))
            assert np.sum(first * second) < 0.7 * np.linalg.norm(first) * np.linalg.norm(second)
    assert found[0].max() < 0.95
    assert found[1].max() < 1.025


def test_relevant_features_of_mixing_weights():
    rng = np.random.default_rng(0)
    component = rng.integers(3, size=90)
    hint = np.where(rng.random(90) < 0.7, component, rng.integers(3, size=90))
    side = np.hstack([rng.normal(size=(90, 5)), np.eye(3)[hint]])
    groups = [Group(j, False, np.array([j]), np.eye(1)) for j in range(5)]
    groups.append(Group(5, False, np.arange(5, 8), np.eye(3)))
    shares = 0.1 / 3 + 0.9 * np.eye(3)[component]
    penalties = gate_penalties(side, groups, shares)
    # as if the three relevant features were all
    np.testing.assert_allclose(penalties, [np.inf] * 5 + [3 / 8] * 3)
    assert np.isinf(gate_penalties(side, groups, shares[rng.permutation(90)])).all()
