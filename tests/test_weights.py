"""Frequency weights: k is a row k times, in fit; other weights, and other learners, are refused with the reason."""

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_val_score

from folds import few_folds
from tailored import (
    ConditionalLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

T, N, D = 10, 6, 2
RNG = np.random.default_rng(0)
GROUPS = RNG.permutation(np.repeat(np.arange(T), N))
X = RNG.normal(size=(T * N, D))
Y = np.einsum("ij,ij->i", X, (1.0 + RNG.normal(size=(T, D)))[GROUPS]) + GROUPS + 0.3 * RNG.normal(size=T * N)
SIDE = RNG.normal(size=(T, 1))[GROUPS]
WEIGHTS = RNG.integers(0, 4, size=T * N)
WEIGHTS[GROUPS[1] == GROUPS] = 0
WEIGHTS[0] = 0


def learner():
    return few_folds()


def same(a, b):
    assert a.task_labels_.tolist() == b.task_labels_.tolist()
    np.testing.assert_array_equal(a.task_weights_, b.task_weights_)
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.adapt(X[:2], Y[:2]).coef_, b.adapt(X[:2], Y[:2]).coef_)
    assert a.structure_ == b.structure_


def test_a_weight_is_a_number_of_rows():
    rows = np.repeat(np.arange(len(Y)), WEIGHTS)
    repeated = learner().fit(X[rows], Y[rows], groups=GROUPS[rows])
    # the first row is gone, and with it the place of its task; so is a whole task
    assert repeated.task_labels_[0] != TaskSet(X, Y, GROUPS).labels[0]
    assert len(repeated.task_labels_) == T - 1
    for weights in (WEIGHTS, WEIGHTS.astype(float), WEIGHTS.tolist()):
        same(learner().fit(X, Y, groups=GROUPS, sample_weight=weights), repeated)
    plain = learner().fit(X, Y, groups=GROUPS)
    assert np.abs(plain.adapt(X[:2], Y[:2]).coef_ - repeated.adapt(X[:2], Y[:2]).coef_).max() > 1e-6
    same(learner().fit(X, Y, groups=GROUPS, sample_weight=np.ones(len(Y))), plain)


def test_described_tasks_of_a_set():
    tasks = TaskSet(X, Y, GROUPS, SIDE)
    weights = np.random.default_rng(1).integers(1, 3, size=len(tasks.y))
    entries = []
    for t, task in enumerate(tasks):
        own = weights[tasks.offsets[t] : tasks.offsets[t + 1]]
        entries.append((np.repeat(task.X, own, axis=0), np.repeat(task.y, own), task.side_info))
    expected = learner().fit(TaskSet.from_tasks(entries, labels=tasks.labels))
    found = learner().fit(tasks, sample_weight=weights)
    np.testing.assert_array_equal(found.task_weights_, expected.task_weights_)
    # a task all of whose rows have no weight is a task without rows
    weights[: tasks.sizes[0]] = 0
    assert learner().fit(tasks, sample_weight=weights).task_labels_.tolist() == tasks.labels.tolist()


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.full(T * N, 0.5), "row 0 has 0.5, but weights are frequencies"),
        (np.append(np.ones(T * N - 1), -1.0), "row 59 has -1"),
        (np.append(np.ones(T * N - 1), np.nan), "row 59 has nan"),
        (np.append(np.ones(T * N - 1), np.inf), "row 59 has inf"),
        (np.zeros(T * N), "all weights are zero"),
        (np.ones(3), "expected 60 weights, one per row"),
        (np.ones((T * N, 2)), "expected 60 weights, one per row"),
    ],
)
def test_others_are_refused(weights, words):
    one = learner()
    with pytest.raises(ValueError, match=f"sample_weight: .*{words}" if "row" in words[:3] else words):
        one.fit(X, Y, groups=GROUPS, sample_weight=weights)
    assert not hasattr(one, "prior_")


@pytest.mark.parametrize("kind", [ConditionalLearner, UnconditionalLearner, IndependentLearner])
def test_learners_without_weights_refuse_them(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weight'"):
        kind().fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)


def test_weights_in_cross_validation():
    params = {"groups": GROUPS, "sample_weight": WEIGHTS + 1}
    with sklearn.config_context(enable_metadata_routing=True):
        one = learner().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_val_score(one, X, Y, params=params, cv=GroupKFold(2))
    expected = []
    for train, test in GroupKFold(2).split(X, Y, GROUPS):
        model = learner().fit(X[train], Y[train], groups=GROUPS[train], sample_weight=WEIGHTS[train] + 1)
        expected.append(model.score(X[test], Y[test], groups=GROUPS[test], sample_weight=WEIGHTS[test] + 1))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
