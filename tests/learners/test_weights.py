"""Weights of rows: precisions and frequencies, against the rows that they stand for."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_val_score
from typer.testing import CliRunner

from folds import few_folds
from tailored import ConditionalLearner, EmpiricalBayesClassifier, TaskSet
from tailored.cli import app
from tailored.exceptions import UnhelpfulWarning
from tailored.losses import Pinball

pytestmark = pytest.mark.usefixtures("short_fits_in_module", "no_curves_in_module")

T, N, D = 12, 6, 2
RNG = np.random.default_rng(0)
GROUPS = RNG.permutation(np.repeat(np.arange(T), N))
X = RNG.normal(size=(T * N, D))
Y = (
    np.einsum("ij,ij->i", X, (1.0 + RNG.normal(size=(T, D)))[GROUPS])
    + GROUPS
    + 0.3 * RNG.normal(size=T * N)
)
WEIGHTS = RNG.integers(1, 4, size=T * N)
#: Every row, as often as its weight says.
REPEATED = np.repeat(np.arange(T * N), WEIGHTS)


@pytest.fixture(scope="module")
def fitted():
    return few_folds().fit(X, Y, groups=GROUPS)


def test_weights_follow_their_rows():
    frame = pd.DataFrame(
        {"a": X[:, 0], "b": X[:, 1], "y": Y, "task": GROUPS, "v": WEIGHTS, "f": WEIGHTS + 1}
    )
    roles = {"task": "task", "target": "y", "sample_weight": "v", "frequency_weight": "f"}
    tasks = TaskSet.from_frame(frame, **roles)
    assert tasks.n_features == 2
    support, query = tasks[::-1].support_query(2, random_state=0)
    joined = TaskSet.merge([support, query])
    for each in (tasks, tasks[::-1], tasks[3:5]):
        assert (each.frequency_weight == each.sample_weight + 1).all()
    for y, f in zip(Y, WEIGHTS + 1, strict=True):
        assert joined.frequency_weight[joined.y == y].sum() == f
    pairs = {(y, v) for y, v in zip(joined.y, joined.sample_weight, strict=True)}
    assert pairs == set(zip(Y, WEIGHTS, strict=True))


@pytest.mark.parametrize("name", ["sample_weight", "frequency_weight"])
def test_support_frames_have_the_weights_of_fit(name, tmp_path):
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "task": GROUPS, "n": WEIGHTS})
    learner = few_folds().fit(TaskSet.from_frame(frame, task="task", target="y", **{name: "n"}))
    new = frame[frame["task"] == 3].assign(task=100)
    support, query = new.head(3), new.tail(3).drop(columns=["y", "n"])
    given = {name: support["n"].to_numpy()}
    model = learner.adapt(support[["a", "b"]].to_numpy(), support["y"], **given)
    expected = model.predict(query[["a", "b"]].to_numpy())
    found = learner.predict_tasks(query, support)["prediction"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    model = learner.adapt(support, support["y"])
    np.testing.assert_allclose(model.predict(query), expected, rtol=1e-6)
    tasks = learner.adapt_many(support, support["y"], groups=support["task"])
    np.testing.assert_allclose(tasks.coef_[0], model.coef_, rtol=1e-10)
    message = f"support: {name} must be one of 'a', 'b', 'y', 'task'; got 'n'"
    with pytest.raises(ValueError, match=message):
        learner.predict_tasks(query, support.drop(columns="n"))
    with pytest.raises(ValueError, match="update takes no weights"):
        model.update(support, support["y"])
    learner.save(tmp_path / "model")
    support.to_csv(tmp_path / "support.csv", index=False)
    query.to_csv(tmp_path / "query.csv", index=False)
    files = [str(tmp_path / each) for each in ("model", "query.csv", "support.csv", "out.csv")]
    options = [*files[:2], "--support", files[2], "--out", files[3]]
    done = CliRunner().invoke(app, ["predict", *options])
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["prediction"], expected, atol=1e-3)


def _weighted(seed, n_tasks, n_rows=8):
    """Return rows with a random intercept; the noise of a row of weight w has the variance 1/w."""
    rng, n = np.random.default_rng(seed), n_tasks * n_rows
    g, w, x = np.repeat(np.arange(n_tasks), n_rows), rng.choice([0.04, 25.0], n), rng.normal(size=n)
    y = 2.0 * rng.normal(size=n_tasks)[g] + x + rng.normal(size=n) / np.sqrt(w)
    return pd.DataFrame({"g": g + 1000 * seed, "x": x, "y": y, "w": w})


@pytest.fixture(scope="module")
def weighted():
    tasks = TaskSet.from_frame(_weighted(0, 100), task="g", target="y", sample_weight="w")
    return few_folds().set_params(varying=[]).fit(tasks)


def test_intervals_depend_on_the_weights_of_query_rows(weighted):
    new = _weighted(1, 500)
    place = new.groupby("g").cumcount()
    support, query = new[place < 3], new[place >= 3].drop(columns="y")
    y = new[place >= 3]["y"]
    table = weighted.predict_tasks(query, support)
    inside = (table["lower"] <= y) & (y <= table["upper"])
    for w in (0.04, 25.0):
        assert 0.87 < inside[query["w"] == w].mean() < 0.94
    totals = weighted.predict_totals(query, support, by="g")
    true = y.groupby(query["g"]).sum()[totals["g"]].to_numpy()
    assert 0.86 < ((totals["lower"] <= true) & (true <= totals["upper"])).mean() < 0.94
    one = support["g"] == 1000
    model = weighted.adapt(support[one], support["y"][one])
    rows, expected = query[query["g"] == 1000], table[query["g"] == 1000]
    for arguments in ((rows,), (rows[["x"]].to_numpy(), 0.9, None, rows["w"])):
        found = model.predict_interval(*arguments)
        np.testing.assert_allclose(found, expected[["lower", "upper"]], rtol=1e-10)
    # Without the column of weights, a row has weight 1.
    plain = weighted.predict_tasks(query.drop(columns="w"), support)
    ones = weighted.predict_tasks(query.assign(w=1.0), support)
    pd.testing.assert_frame_equal(plain, ones)


def test_draws_and_totals_have_the_noise_of_their_weights(weighted):
    learner = copy.deepcopy(weighted)
    learner.prior_ = replace(learner.prior_, calibration=None)
    learner.training_summary_ = replace(learner.training_summary_, mean=None)
    model, scaling = learner.prior_.model, learner.prior_.scaling
    new = _weighted(2, 1)
    X, noise = scaling.dense(new[["x"]].to_numpy()), model.noise / new["w"].to_numpy()
    V = scaling.target**2 * (X @ model.covariances[0] @ X.T + np.diag(noise))
    expected = V[3:, 3:] - V[3:, :3] @ np.linalg.solve(V[:3, :3], V[:3, 3:])
    query, support = new[3:].drop(columns="y"), new[:3]
    total = learner.predict_totals(query, support)
    assert total["std"][0] == pytest.approx(np.sqrt(expected.sum()), rel=1e-8)
    draws = learner.sample(query, support, n_draws=20_000, random_state=0)
    np.testing.assert_allclose(draws.var(axis=0), expected.diagonal(), rtol=0.05)


@pytest.mark.parametrize("loss", ["squared", Pinball(0.8)])
def test_frequencies_of_support_rows_are_numbers_of_rows_in_all_methods(loss):
    learner = few_folds().set_params(loss=loss).fit(X, Y, groups=GROUPS)
    support = TaskSet(X[:8], Y[:8], [100] * 8, frequency_weight=WEIGHTS[:8])
    rows = REPEATED[REPEATED < 8]
    repeated = TaskSet(X[rows], Y[rows], [100] * len(rows))
    query = TaskSet(X[8:14], np.zeros(6), [100] * 6)
    expected = learner.predict_tasks(query, repeated)
    found = learner.predict_tasks(query, support)
    model = learner.adapt(X[:8], Y[:8], frequency_weight=WEIGHTS[:8])
    for name in ("prediction", "lower", "upper", "std"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8)
    ends = np.column_stack([expected["lower"], expected["upper"]])
    np.testing.assert_allclose(model.predict_interval(X[8:14]), ends, rtol=1e-8)
    np.testing.assert_allclose(model.predict(X[8:14]), expected["prediction"], rtol=1e-8)
    theta = learner.representation(repeated)
    np.testing.assert_allclose(learner.representation(support), theta, rtol=1e-8)
    np.testing.assert_allclose(model.representation_, theta[0], rtol=1e-8)


def test_splits_divide_frequencies():
    tasks = TaskSet(X, Y, GROUPS, sample_weight=Y**2 + 1.0, frequency_weight=WEIGHTS)
    single = tasks.single_rows()
    for t, label in enumerate(tasks.labels):
        np.testing.assert_array_equal(single[t].y, Y[REPEATED][GROUPS[REPEATED] == label])
    np.testing.assert_array_equal(single.sample_weight, single.y**2 + 1.0)
    assert (single.frequency_weight == 1.0).all()
    support, query = tasks.support_query(0.5, random_state=0)
    np.testing.assert_array_equal(support.sizes + query.sizes, tasks.n_observed)
    often = np.array([1.0, 2.5, 4e5, 1e6 + 1])
    parts = TaskSet(X[:4], Y[:4], [0, 1, 0, 1], frequency_weight=often).single_rows()
    np.testing.assert_array_equal(
        [parts.frequency_weight[parts.y == y].sum() for y in Y[:4]], often
    )
    assert parts.sizes.tolist() == [25_001, 25_001]


def test_held_out_errors_are_those_of_repeated_rows():
    tasks, repeated = (
        TaskSet(X, Y, GROUPS, frequency_weight=WEIGHTS),
        TaskSet(X[REPEATED], Y[REPEATED], GROUPS[REPEATED]),
    )
    repeated = repeated[repeated.index_of(tasks.labels)]
    few, many = few_folds().fit(tasks), few_folds().fit(repeated)
    # Scales of columns differ, so steps of EM do.
    assert few.validation_error_ == pytest.approx(many.validation_error_, rel=0.01)
    errors = [np.sort(one.training_summary_.errors["task mean"]) for one in (few, many)]
    np.testing.assert_allclose(*errors, rtol=1e-9)
    for options in ({}, {"n_support": 3}, {"n_support": ("first", 0.5)}):
        np.testing.assert_allclose(
            many.task_errors(tasks, **options), many.task_errors(repeated, **options)
        )
        assert many.score(tasks, **options) == pytest.approx(
            many.score(repeated, **options), rel=1e-9
        )
    # Rows that are not divided count with their frequency.
    support, query = (
        TaskSet(X[:8], Y[:8], [0] * 8, frequency_weight=WEIGHTS[:8])[[0]] for _ in range(2)
    )
    squares = (Y[:8] - many.predict_tasks(query, support)["prediction"]) ** 2
    assert many.task_errors(support, query) == pytest.approx(
        np.average(squares, weights=WEIGHTS[:8])
    )


def test_frequencies_of_successes_and_failures():
    """Numbers of cases and others in 15 herds at 4 times, as in lme4's cbpp: whole rows would be
    held out.
    """
    rng = np.random.default_rng(1)
    herd, time = np.repeat(np.arange(15), 4), np.tile(np.arange(4), 15)
    p = 1.0 / (1.0 + np.exp(1.0 + 0.5 * time - rng.normal(0, 0.7, 15)[herd]))
    cases = rng.binomial(15, p)
    parts = [
        {"herd": herd, "time": time, "sick": s, "n": n}
        for s, n in (("yes", cases), ("no", 15 - cases))
    ]
    frame = pd.concat(map(pd.DataFrame, parts)).query("n > 0")
    roles = {"task": "herd", "target": "sick", "features": ["time"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnhelpfulWarning)
        few = EmpiricalBayesClassifier(varying=[]).fit(
            TaskSet.from_frame(frame, frequency_weight="n", **roles)
        )
    rows = frame.iloc[np.repeat(np.arange(len(frame)), frame["n"])]
    repeated = TaskSet.from_frame(rows, **roles)
    many = EmpiricalBayesClassifier(varying=[]).fit(repeated)
    errors = [one.summary().to_frame("errors").set_index("method")["error"] for one in (few, many)]
    assert errors[0]["this learner"] == pytest.approx(errors[1]["this learner"], rel=0.02)
    assert errors[0]["task mean"] == pytest.approx(errors[1]["task mean"], rel=1e-9)
    tasks = TaskSet.from_frame(frame, frequency_weight="n", **roles)
    assert few.score(tasks) == pytest.approx(few.score(repeated[repeated.index_of(tasks.labels)]))


@pytest.mark.parametrize("name", ["sample_weight", "frequency_weight"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.append(np.ones(T * N - 1), -1.0), "row 71 has -1"),
        (np.append(np.ones(T * N - 1), np.nan), "row 71 has nan"),
        (np.ones(3), "expected an array of shape .72., got .3,."),
    ],
)
def test_other_weights_are_refused(name, values, words):
    one = few_folds()
    with pytest.raises(ValueError, match=f"{name}: .*{words}"):
        one.fit(X, Y, groups=GROUPS, **{name: values})
    assert not hasattr(one, "prior_")
    message = r"sample_weight: row 0 has 0|X: none of the tasks has a row"
    with pytest.raises(ValueError, match=message):
        one.fit(X, Y, groups=GROUPS, **{name: np.zeros(T * N)})


def test_learners_without_weights_refuse_them():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sample_weight'"):
        ConditionalLearner().fit(X, Y, groups=GROUPS, sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match=r"frequency_weight: ConditionalLearner.* cannot use it"):
        ConditionalLearner().fit(TaskSet(X, Y, GROUPS, frequency_weight=WEIGHTS))
    with pytest.raises(ValueError, match=r"exposure: .* cannot use it"):
        few_folds().fit(X, Y, groups=GROUPS, exposure=WEIGHTS)


def test_weights_of_tensors_are_refused(fitted, monkeypatch):
    monkeypatch.setattr("tailored.learners.base.is_tensor", lambda data: True)
    with pytest.raises(TypeError, match="exposure: not supported for tensors; pass arrays"):
        fitted.adapt_many(X, Y, groups=GROUPS, exposure=WEIGHTS)


def test_weights_in_cross_validation():
    params = {"groups": GROUPS, "sample_weight": WEIGHTS}
    with sklearn.config_context(enable_metadata_routing=True):
        one = few_folds().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_val_score(one, X, Y, params=params, cv=GroupKFold(2))
    expected = []
    for train, test in GroupKFold(2).split(X, Y, GROUPS):
        model = few_folds().fit(
            X[train], Y[train], groups=GROUPS[train], sample_weight=WEIGHTS[train]
        )
        expected.append(
            model.score(X[test], Y[test], groups=GROUPS[test], sample_weight=WEIGHTS[test])
        )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
