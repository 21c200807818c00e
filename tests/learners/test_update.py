"""`AdaptedTask.update`: further rows of an adapted task."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tailored import ConditionalLearner, EmpiricalBayesLearner, TaskSet
from tailored.losses import Pinball

D, Q = 3, 2


def environment(n_tasks=40, n_rows=10, seed=0):
    """Draw rows far from zero and in different units, and side information that shifts the
    weights.
    """
    rng = np.random.default_rng(seed)
    s = rng.normal(size=(n_tasks, Q))
    groups = np.repeat(np.arange(n_tasks), n_rows)
    X = rng.normal(size=(len(groups), D)) * [0.1, 1.0, 30.0] + [5.0, -2.0, 100.0]
    w = rng.normal(size=(n_tasks, D)) * [5.0, 1.0, 0.03] + s @ rng.normal(size=(Q, D))
    y = 40.0 + 2.0 * rng.normal(size=n_tasks)[groups] + np.sum(X * w[groups], axis=1)
    return X, y + 0.5 * rng.normal(size=len(y)), groups, s


ARGUMENTS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "side information": {},
    "quantile": {"loss": Pinball(0.8)},
}


@pytest.fixture(scope="module")
def learners(short_fits_in_module):
    X, y, groups, s = environment()
    made = {}
    for name, arguments in ARGUMENTS.items():
        learner = EmpiricalBayesLearner(**arguments)
        side = dict(enumerate(s)) if name == "side information" else None
        made[name] = learner.fit(X, y, groups=groups, side_info=side)
    return made


def same(model, other, x, *, intervals=True):
    scale = np.abs(other.predict(x)).max()
    np.testing.assert_allclose(
        model.coef_, other.coef_, rtol=1e-10, atol=1e-10 * np.abs(other.coef_).max()
    )
    np.testing.assert_allclose(model.intercept_, other.intercept_, rtol=1e-10, atol=1e-10 * scale)
    largest = np.abs(other.representation_).max()
    np.testing.assert_allclose(
        model.representation_, other.representation_, rtol=1e-9, atol=1e-10 * largest
    )
    np.testing.assert_allclose(model.bias_, other.bias_, rtol=1e-9, atol=1e-10 * scale)
    np.testing.assert_allclose(model.predict(x), other.predict(x), rtol=0, atol=1e-10 * scale)
    if intervals:
        np.testing.assert_allclose(
            model.predict_interval(x), other.predict_interval(x), rtol=0, atol=1e-10 * scale
        )
        np.testing.assert_allclose(model.predict_std(x), other.predict_std(x), rtol=1e-9)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_pieces_are_all_rows_at_once(name, learners):
    learner = learners[name]
    X, y, groups, s = environment(5, 70, seed=1)
    for t in range(3):
        x, z = X[groups == t], y[groups == t]
        side = {"side_info": s[t]} if learner.n_side_info_in_ else {}
        model = learner.adapt(x[:2], z[:2], **side)
        first = 2
        for stop in (3, 7, 30, 65):
            assert model.update(x[first:stop], z[first:stop]) is model
            same(model, learner.adapt(x[:stop], z[:stop], **side), x[65:])
            first = stop


def test_from_no_rows_at_all(learners):
    X, y, groups, s = environment(2, 12, seed=2)
    x, z = X[groups == 0], y[groups == 0]
    same(
        learners["plain"].adapt().update(x[:6], z[:6]), learners["plain"].adapt(x[:6], z[:6]), x[6:]
    )
    learner = learners["side information"]
    model = learner.adapt(side_info=s[0]).update(x[:6], z[:6])
    same(model, learner.adapt(x[:6], z[:6], side_info=s[0]), x[6:])


def test_frames_and_sparse_rows(learners):
    X, y, groups, _ = environment()
    frame = pd.DataFrame(X, columns=list("abc"))
    learner = EmpiricalBayesLearner().fit(TaskSet(frame, y, groups))
    model = learner.adapt(frame[:4], y[:4]).update(frame[4:8][["a", "b", "c"]], pd.Series(y[4:8]))
    same(model, learner.adapt(frame[:8], y[:8]), frame[8:10])
    model.update(frame[8:10][["b", "a", "c"]], y[8:10])  # columns are found by their names
    same(model, learner.adapt(frame[:10], y[:10]), frame[10:12])
    model = learners["plain"].adapt(X[:4], y[:4]).update(sparse.csr_array(X[4:8]), y[4:8])
    same(model, learners["plain"].adapt(X[:8], y[:8]), X[8:10])


@pytest.mark.parametrize(
    ("loss", "inner"), [("absolute", "exact"), ("absolute", "online"), ("squared", "exact")]
)
def test_the_papers_learners_keep_the_rows(loss, inner):
    X, y, groups, _ = environment(12, 8)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    learner = ConditionalLearner(loss=loss, inner=inner).fit(X, y, groups=groups)
    model = learner.adapt(X[:3], y[:3]).update(X[3:6], y[3:6])
    same(model, learner.adapt(X[:6], y[:6]), X[6:8], intervals=False)


BAD = {
    "columns": (lambda X, y: (X[:, :2], y), "2 features"),
    "NaN in X": (lambda X, y: (np.where(X[1, 1] == X, np.nan, X), y), "NaN"),
    "NaN in y": (lambda X, y: (X, np.where(y == y[1], np.nan, y)), "y contains NaN: row 1"),
    "lengths": (lambda X, y: (X, y[:2]), "inconsistent numbers of samples"),
    "no targets": (lambda X, y: (X, None), "target y is None"),
    "one row as a vector": (lambda X, y: (X[0], y[:1]), "2D array"),
    "words": (lambda X, y: (X, ["a"] * len(y)), "numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_leave_the_model_as_it_was(name, learners):
    spoil, words = BAD[name]
    X, y, _, _ = environment(1, 12, seed=6)
    model = learners["plain"].adapt(X[:5], y[:5])
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=words):
        model.update(*spoil(X[5:9], y[5:9]))
    assert pickle.dumps(model) == before
    model.update(X[:0], y[:0])  # no rows change nothing
    same(model.update(X[5:9], y[5:9]), learners["plain"].adapt(X[:9], y[:9]), X[9:])
