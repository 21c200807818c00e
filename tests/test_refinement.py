"""Refinement: a meta-learner as the feature map of another one."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import tailored
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.datasets import make_clusters
from tailored.feature_maps import AdaptedWeights, JoinedMaps, get_feature_map
from tailored.solvers import ProjectedSGD


def unconditional(step=0.5, **options):
    return UnconditionalLearner(solver=ProjectedSGD(step), **{"fit_intercept": False, **options})


def refined(first, step=0.1, **options):
    return ConditionalLearner(first, solver=ProjectedSGD(step), **{"fit_intercept": False, **options})


@pytest.fixture(scope="module")
def tasks():
    return make_clusters(30, n_clusters=2, n_rows=10, n_features=5, rank=2, random_state=0)


@pytest.fixture(scope="module")
def first(tasks):
    return unconditional(bias="shared", fit_intercept=True).fit(tasks)


def test_features_are_adapted_weights(first, tasks):
    norms = np.linalg.norm(first.adapt_many(tasks).weights_, axis=1)
    whole = np.sqrt(np.mean(norms**2))
    for options in ({}, {"constant": True}, {"unit_norm": True}, {"unit_norm": True, "constant": True}):
        feature_map = AdaptedWeights(first, **options).fit(tasks)
        assert feature_map.model is first
        phi = feature_map.transform(tasks)
        expected = first.adapt_many(tasks).weights_ / (norms[:, None] if "unit_norm" in options else whole)
        if "constant" in options:
            expected = np.column_stack([expected, np.ones(len(tasks))])
        np.testing.assert_allclose(phi, expected, rtol=1e-12)
        alone = np.concatenate([feature_map.transform(tasks[t : t + 1]) for t in range(len(tasks))])
        np.testing.assert_array_equal(alone, phi)
        assert feature_map.transform(tasks[:0]).shape == (0, phi.shape[1])


def test_tasks_without_rows_and_sparse_ones(first, tasks):
    feature_map = AdaptedWeights(first).fit(tasks)
    empty = TaskSet.from_tasks([(np.empty((0, 5)), np.empty(0))])
    prior = first.bias_.constant / feature_map.norm
    np.testing.assert_allclose(feature_map.transform(empty)[0], prior)
    unbiased = AdaptedWeights(unconditional(), unit_norm=True).fit(tasks)
    np.testing.assert_array_equal(unbiased.transform(empty), np.zeros((1, 5)))
    sparse = TaskSet.from_tasks([(sp.csr_array(t.X), t.y) for t in tasks])
    np.testing.assert_allclose(feature_map.transform(sparse), feature_map.transform(tasks), atol=1e-6)


def test_an_unfitted_learner_is_cloned_and_fitted(tasks):
    spec = unconditional()
    second = refined(spec).fit(tasks)
    assert not hasattr(spec, "prior_")
    expected = unconditional().fit(tasks).adapt_many(tasks).weights_
    phi = second.feature_map_.transform(tasks)
    np.testing.assert_allclose(phi * second.feature_map_.norm, expected, rtol=1e-12)
    # other tasks, another first model
    again = second.feature_map_.fit(tasks[:10])
    half = unconditional().fit(tasks[:10]).adapt_many(tasks).weights_
    np.testing.assert_allclose(again.transform(tasks) * again.norm, half, rtol=1e-12)
    with pytest.raises(ValueError, match="not fitted"):
        AdaptedWeights(UnconditionalLearner(fit_intercept=False)).transform(tasks)


FIRST = {
    "independent": IndependentLearner(fit_intercept=False),
    "unconditional": UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False),
    "conditional": refined("mean"),
    "empirical Bayes": EmpiricalBayesLearner(),
    "twice refined": refined(unconditional(0.1)),
    "map": AdaptedWeights(unconditional(0.1), unit_norm=True, constant=True),
}


@pytest.mark.parametrize("name", FIRST)
def test_search_and_saving(name, few_steps, tasks, tmp_path):
    second = ConditionalLearner(
        FIRST[name], solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False
    ).fit(tasks)
    # "H does not move" is among the default ratios
    assert {entry["step_H"] for entry in second.search_results_} == {0.0, 0.1, 1.0, 10.0}
    weights = second.adapt_many(tasks).weights_
    X, y = tasks[3].X, tasks[3].y
    np.testing.assert_allclose(second.adapt(X, y).coef_, weights[3], atol=1e-6)
    assert np.isfinite(second.adapt().coef_).all()
    second.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, weights)
    np.testing.assert_array_equal(again.adapt(X, y).coef_, second.adapt(X, y).coef_)
    assert type(again.feature_map) is type(FIRST[name])
    if name == "map":
        assert again.feature_map.learner.solver.step == 0.1
        assert again.feature_map.model is None
    else:  # a map is shown by its address
        assert repr(again) == repr(second)
    assert again.score(tasks) == second.score(tasks)
    groups = np.repeat(tasks.labels, tasks.sizes)
    np.testing.assert_array_equal(again.predict(tasks.X, groups), second.predict(tasks.X, groups))
    assert again.search_results_ == second.search_results_
    assert (again.step_size_, again.scale_) == (second.step_size_, second.scale_)
    np.testing.assert_array_equal(
        again.feature_map_.model.task_weights_, second.feature_map_.model.task_weights_
    )
    copied = pickle.loads(pickle.dumps(second))
    np.testing.assert_array_equal(copied.adapt_many(tasks).weights_, weights)


def test_without_H_it_is_the_unconditional_learner(tasks):
    """The refinement can be refused: ratio 0 is the first model again."""
    first = UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False).fit(tasks)
    still = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(0.0,))
    second = ConditionalLearner(first, solver=still, fit_intercept=False).fit(tasks)
    np.testing.assert_array_equal(second.conditioning_.C, first.conditioning_.C)
    np.testing.assert_allclose(second.adapt_many(tasks).weights_, first.adapt_many(tasks).weights_, atol=1e-8)
    searched = ConditionalLearner(first, solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False).fit(
        tasks
    )
    assert searched.validation_error_ <= first.validation_error_ + 1e-9


def test_ratios_are_those_that_were_asked_for(first, tasks):
    """Ratio 0 is a choice like the others, and is not added to a list without it."""
    solver = ProjectedSGD(step_sizes=(0.1, 1.0), step_ratios=(10.0, 3.0))
    second = ConditionalLearner(first, solver=solver, tune_scale=False, fit_intercept=False).fit(tasks)
    tried = [(entry["step_C"], entry["step_H"]) for entry in second.search_results_]
    np.testing.assert_allclose(tried, [(0.1, 0.3), (1.0, 3.0), (0.1, 1.0), (1.0, 10.0)])


def test_fitted_and_unfitted_learners_are_saved_as_arguments(first, tasks, tmp_path):
    second = refined([first, "mean", unconditional(0.2)]).fit(tasks)
    second.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    np.testing.assert_array_equal(
        again.feature_map[0].adapt_many(tasks).weights_, first.adapt_many(tasks).weights_
    )
    np.testing.assert_array_equal(again.feature_map[0].task_weights_, first.task_weights_)
    assert again.feature_map[2].solver.step == 0.2
    assert not hasattr(again.feature_map[2], "prior_")
    assert repr(again) == repr(second)
    assert isinstance(again.feature_map_, JoinedMaps)
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, second.adapt_many(tasks).weights_)


def test_in_empirical_bayes(few_steps, first, tasks):
    learner = EmpiricalBayesLearner(first).fit(tasks)
    assert np.isfinite(learner.adapt_many(tasks).weights_).all()
    side = learner.prior_.side
    assert not side.from_side_info
    raw = side(tasks) * side.deviation + side.mean
    np.testing.assert_allclose(raw, AdaptedWeights(first).fit(tasks).transform(tasks), atol=1e-12)


def test_cloning(first, tasks):
    """scikit-learn clones learners among the arguments; a map of a fitted one stays as it is."""
    for kind in (ConditionalLearner, EmpiricalBayesLearner):
        assert not hasattr(clone(kind(first)).feature_map, "prior_")
    kept = clone(refined(AdaptedWeights(first)))
    np.testing.assert_array_equal(kept.feature_map.model.conditioning_.C, first.conditioning_.C)
    kept.fit(tasks)
    np.testing.assert_array_equal(kept.feature_map_.model.conditioning_.C, first.conditioning_.C)
    nested = ConditionalLearner(UnconditionalLearner(fit_intercept=False), fit_intercept=False).set_params(
        feature_map__solver__step=0.7
    )
    assert nested.feature_map.solver.step == 0.7


def test_side_information_of_the_first_model():
    rng = np.random.default_rng(0)
    entries = [(rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=2)) for _ in range(12)]
    tasks = TaskSet.from_tasks(entries)
    first = refined("vector", bias="conditional").fit(tasks)
    second = refined(first).fit(tasks)
    X, y, s = entries[0]
    np.testing.assert_allclose(
        second.adapt(X, y, side_info=s).coef_, second.adapt_many(tasks).weights_[0], atol=1e-7
    )
    assert np.isfinite(second.adapt(side_info=s).coef_).all()
    with pytest.raises(ValueError, match="side_info"):
        second.adapt(X, y)


def test_messages(first):
    with pytest.raises(TypeError, match="meta-learner"):
        get_feature_map(3, has_side_info=False)
    other = make_clusters(4, n_clusters=2, n_rows=5, n_features=4, rank=1, random_state=0)
    with pytest.raises(ValueError, match="5 features"):
        refined(first).fit(other)
