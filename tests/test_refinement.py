"""Refinement: a meta-learner as the feature map of another one."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import tailored
from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters
from tailored.feature_maps import AdaptedWeights, JoinedMaps, get_feature_map


@pytest.fixture(scope="module")
def tasks():
    return make_clusters(30, n_clusters=2, n_rows=10, n_features=5, rank=2, random_state=0)


@pytest.fixture(scope="module")
def first(tasks):
    return UnconditionalLearner(step_size=0.5, bias="shared", fit_intercept=True).fit(tasks)


def test_features_are_adapted_weights(first, tasks):
    norms = np.linalg.norm(first.adapt_many(tasks), axis=1)
    whole = np.sqrt(np.mean(norms**2))
    for options in ({}, {"constant": True}, {"unit_norm": True}, {"unit_norm": True, "constant": True}):
        feature_map = AdaptedWeights(first, **options).fit(tasks)
        assert feature_map.model is first
        phi = feature_map.transform(tasks)
        expected = first.adapt_many(tasks) / (norms[:, None] if "unit_norm" in options else whole)
        if "constant" in options:
            expected = np.column_stack([expected, np.ones(len(tasks))])
        np.testing.assert_allclose(phi, expected, rtol=1e-12)
        alone = np.concatenate([feature_map.transform(tasks[t : t + 1]) for t in range(len(tasks))])
        np.testing.assert_array_equal(alone, phi)
        one = np.concatenate([feature_map.transform_one(tasks[t : t + 1]) for t in range(len(tasks))])
        np.testing.assert_allclose(one, phi, atol=1e-7)
        assert feature_map.transform(tasks[:0]).shape == (0, phi.shape[1])


def test_tasks_without_rows_and_sparse_ones(first, tasks):
    feature_map = AdaptedWeights(first).fit(tasks)
    empty = TaskSet.from_tasks([(np.empty((0, 5)), np.empty(0))])
    prior = first.bias_.constant / feature_map.norm
    np.testing.assert_allclose(feature_map.transform_one(empty)[0], prior)
    unbiased = AdaptedWeights(UnconditionalLearner(step_size=0.5), unit_norm=True).fit(tasks)
    np.testing.assert_array_equal(unbiased.transform(empty), np.zeros((1, 5)))
    sparse = TaskSet.from_tasks([(sp.csr_array(t.X), t.y) for t in tasks])
    np.testing.assert_allclose(feature_map.transform(sparse), feature_map.transform(tasks), atol=1e-6)


def test_an_unfitted_learner_is_cloned_and_fitted(tasks):
    spec = UnconditionalLearner(step_size=0.5)
    second = ConditionalLearner(spec, step_size=0.1).fit(tasks)
    assert not hasattr(spec, "conditioning_")
    expected = UnconditionalLearner(step_size=0.5).fit(tasks).adapt_many(tasks)
    phi = second.feature_map_.transform(tasks)
    np.testing.assert_allclose(phi * second.feature_map_.norm, expected, rtol=1e-12)
    # other tasks, another first model
    again = second.feature_map_.fit(tasks[:10])
    half = UnconditionalLearner(step_size=0.5).fit(tasks[:10]).adapt_many(tasks)
    np.testing.assert_allclose(again.transform(tasks) * again.norm, half, rtol=1e-12)
    with pytest.raises(ValueError, match="not fitted"):
        AdaptedWeights(UnconditionalLearner()).transform(tasks)


FIRST = {
    "independent": IndependentLearner(),
    "unconditional": UnconditionalLearner(step_sizes=(0.1, 1.0)),
    "conditional": ConditionalLearner("mean", step_size=0.1),
    "practical": ConditionalLearner(),
    "twice refined": ConditionalLearner(UnconditionalLearner(step_size=0.1), step_size=0.1),
    "map": AdaptedWeights(UnconditionalLearner(step_size=0.1), unit_norm=True, constant=True),
}


@pytest.mark.parametrize("name", FIRST)
def test_search_and_saving(name, tasks, tmp_path):
    second = ConditionalLearner(FIRST[name], step_size="search", step_sizes=(0.1, 1.0)).fit(tasks)
    # "H does not move" is always asked
    assert {entry["step_H"] for entry in second.search_results_} >= {0.0, 0.1, 10.0}
    weights = second.adapt_many(tasks)
    X, y = tasks[3].X, tasks[3].y
    np.testing.assert_allclose(second.adapt(X, y).coef_, weights[3], atol=1e-6)
    assert np.isfinite(second.adapt().coef_).all()
    second.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(again.adapt_many(tasks), weights)
    np.testing.assert_array_equal(again.adapt(X, y).coef_, second.adapt(X, y).coef_)
    assert type(again.feature_map) is type(FIRST[name])
    if name == "map":
        assert again.feature_map.learner.step_size == 0.1
        assert again.feature_map.model is None
    assert again.score(tasks) == second.score(tasks)
    copied = pickle.loads(pickle.dumps(second))
    np.testing.assert_array_equal(copied.adapt_many(tasks), weights)


def test_without_H_it_is_the_unconditional_learner(tasks):
    """The refinement can be refused: ratio 0 is the first model again."""
    steps = {"step_sizes": (0.1, 1.0)}
    first = UnconditionalLearner(**steps).fit(tasks)
    second = ConditionalLearner(first, step_size="search", step_ratios=(0.0,), **steps).fit(tasks)
    np.testing.assert_array_equal(second.conditioning_.C, first.conditioning_.C)
    np.testing.assert_allclose(second.adapt_many(tasks), first.adapt_many(tasks), atol=1e-8)
    searched = ConditionalLearner(first, step_size="search", **steps).fit(tasks)
    assert searched.validation_error_ <= first.validation_error_ + 1e-9


def test_fitted_and_unfitted_learners_are_saved_as_arguments(first, tasks, tmp_path):
    second = ConditionalLearner([first, "mean", UnconditionalLearner(step_size=0.2)], step_size=0.1).fit(
        tasks
    )
    second.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(again.feature_map[0].adapt_many(tasks), first.adapt_many(tasks))
    assert again.feature_map[2].step_size == 0.2
    assert not hasattr(again.feature_map[2], "conditioning_")
    assert isinstance(again.feature_map_, JoinedMaps)
    np.testing.assert_array_equal(again.adapt_many(tasks), second.adapt_many(tasks))


def test_in_the_practical_algorithm(first, tasks):
    learner = ConditionalLearner(first).fit(tasks)
    assert np.isfinite(learner.adapt_many(tasks)).all()
    assert not learner.feature_map_.side.from_description


def test_cloning(first, tasks):
    """scikit-learn clones learners among the arguments; a map of a fitted one stays as it is."""
    assert not hasattr(clone(ConditionalLearner(first)).feature_map, "conditioning_")
    kept = clone(ConditionalLearner(AdaptedWeights(first), step_size=0.1))
    np.testing.assert_array_equal(kept.feature_map.model.conditioning_.C, first.conditioning_.C)
    kept.fit(tasks)
    np.testing.assert_array_equal(kept.feature_map_.model.conditioning_.C, first.conditioning_.C)
    nested = ConditionalLearner(UnconditionalLearner()).set_params(feature_map__step_size=0.7)
    assert nested.feature_map.step_size == 0.7


def test_side_information_of_the_first_model():
    rng = np.random.default_rng(0)
    entries = [(rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=2)) for _ in range(12)]
    tasks = TaskSet.from_tasks(entries)
    first = ConditionalLearner("vector", step_size=0.1, bias="conditional").fit(tasks)
    second = ConditionalLearner(first, step_size=0.1).fit(tasks)
    X, y, s = entries[0]
    np.testing.assert_allclose(second.adapt(X, y, side_info=s).coef_, second.adapt_many(tasks)[0], atol=1e-7)
    assert np.isfinite(second.adapt(side_info=s).coef_).all()
    with pytest.raises(ValueError, match="side_info"):
        second.adapt(X, y)


def test_messages(first):
    with pytest.raises(TypeError, match="meta-learner"):
        get_feature_map(3, has_side_info=False)
    other = make_clusters(4, n_clusters=2, n_rows=5, n_features=4, rank=1, random_state=0)
    with pytest.raises(ValueError, match="5 features"):
        ConditionalLearner(first, step_size=0.1).fit(other)
