"""Rates: the mean of a count is exposure times rate."""

import numpy as np
import pandas as pd
import pytest

from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    TaskSet,
    load,
)
from tailored.evaluation import task_scorer
from tailored.tasks.rows import overall_mean, support_means

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

T, N = 30, 6
RNG = np.random.default_rng(0)
GROUPS = np.repeat(np.arange(T), N)
EXPOSURE = RNG.uniform(0.2, 5.0, T * N)
X = RNG.normal(size=(T * N, 1))
RATES = np.exp(0.5 + 0.3 * X[:, 0] + RNG.normal(0.0, 0.7, T)[GROUPS])
Y = RNG.poisson(EXPOSURE * RATES).astype(float)
FRAME = pd.DataFrame({"g": GROUPS, "x": X[:, 0], "time": EXPOSURE, "y": Y})


@pytest.fixture(scope="module", params=["poisson", "negative_binomial"])
def learner(request, short_fits_in_module):
    one = EmpiricalBayesLearner(loss=request.param, varying=[])
    return one.fit(TaskSet.from_frame(FRAME, task="g", target="y", exposure="time"))


def test_tables_use_the_column_of_fit(learner, tmp_path):
    learner.save(tmp_path / "model")
    learner = load(tmp_path / "model")
    new = FRAME.assign(g=FRAME["g"] + 100)
    support, query = new[new.index % N < 2], new[new.index % N >= 2]
    found = learner.predict_tasks(query, support)
    columns = {"task": "g", "target": "y", "exposure": "time", "encoding": learner.encoding_}
    sets = [TaskSet.from_frame(part, **columns) for part in (query, support)]
    np.testing.assert_allclose(found["prediction"], learner.predict_tasks(*sets)["prediction"])
    ones = learner.predict_tasks(
        query.assign(one=1.0), support.assign(one=support["time"]), exposure="one"
    )
    rates = found["prediction"] / query["time"]
    np.testing.assert_allclose(ones["prediction"], rates)
    # Frames with the column need no argument.
    first = support[support["g"] == 100]
    model, rows = learner.adapt(first, first["y"]), query[query["g"] == 100]
    np.testing.assert_allclose(model.predict(rows), found["prediction"][:4])
    np.testing.assert_allclose(model.predict(rows[["x"]].to_numpy()), rates[:4])
    np.testing.assert_allclose(model.predict(rows[["x"]], rows["time"]), found["prediction"][:4])
    training = learner.predict_tasks(FRAME, coverage=None)["prediction"]
    np.testing.assert_allclose(learner.predict(FRAME, GROUPS), training)


def test_updates_take_exposures(learner):
    at_once = learner.adapt(X[:5], Y[:5], exposure=EXPOSURE[:5])
    model = learner.adapt(X[:2], Y[:2], exposure=EXPOSURE[:2])
    model.update(X[2:5], Y[2:5], exposure=EXPOSURE[2:5])
    np.testing.assert_allclose(model.coef_, at_once.coef_, rtol=1e-10)
    first_one = learner.adapt(X[:2], Y[:2], exposure=np.ones(2)).update(
        X[2:5], Y[2:5], exposure=EXPOSURE[2:5]
    )
    exposure = np.append([1.0, 1.0], EXPOSURE[2:5])
    np.testing.assert_allclose(
        first_one.coef_, learner.adapt(X[:5], Y[:5], exposure=exposure).coef_
    )


def test_scores_and_task_means_use_exposures(learner):
    tasks = TaskSet(X, Y, GROUPS, exposure=EXPOSURE)
    score = learner.score(FRAME[["x"]], Y, groups=GROUPS, exposure=EXPOSURE)
    assert (
        score == learner.score(tasks) > learner.score(tasks.replace(exposure=np.ones(T * N))) + 0.1
    )
    support, query = tasks.support_query(3, random_state=learner.random_state)
    rate = (support.y.reshape(T, 3).sum(1) + query.exposure.mean() * Y.sum() / EXPOSURE.sum()) / (
        support.exposure.reshape(T, 3).sum(1) + query.exposure.mean()
    )
    means = support_means(support, query, overall_mean(tasks), smooth=True)
    np.testing.assert_allclose(means, np.repeat(rate, 3) * query.exposure)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_exposures_must_be_positive(learner, bad):
    values = EXPOSURE.copy()
    values[3] = bad
    with pytest.raises(ValueError, match=f"exposure: row 3 has {bad:g}; all must be positive"):
        EmpiricalBayesLearner(loss="poisson").fit(X, Y, groups=GROUPS, exposure=values)
    with pytest.raises(ValueError, match="exposure: row 3"):
        learner.predict(FRAME[["x"]], GROUPS, exposure=values)
    with pytest.raises(ValueError, match="exposure: row 3"):
        learner.predict_tasks(FRAME.assign(time=values))


def test_other_targets_have_no_exposure(learner):
    tasks = TaskSet(X, (Y > 1).astype(float), GROUPS, exposure=EXPOSURE)
    for other in (EmpiricalBayesLearner(), EmpiricalBayesClassifier(), ConditionalLearner()):
        with pytest.raises(
            ValueError,
            match=r"exposure: .* cannot use it; .* EmpiricalBayesLearner\(loss='poisson'\)",
        ):
            other.fit(tasks)
    squared = EmpiricalBayesLearner(varying=[]).fit(X, Y, groups=GROUPS)
    for call in (
        squared.adapt(X[:3], Y[:3]).predict,
        lambda rows, exposure: squared.predict(rows, GROUPS[:3], None, exposure),
    ):
        with pytest.raises(ValueError, match="exposure: only counts have one"):
            call(X[:3], exposure=EXPOSURE[:3])
    with pytest.raises(ValueError, match="exposure: could not convert string to float"):
        EmpiricalBayesLearner(loss="poisson").fit(X, Y, groups=GROUPS, exposure=["long"] * len(Y))
    message = "calibrate_intervals: intervals of counts are those of the model"
    with pytest.raises(ValueError, match=message):
        learner.calibrate_intervals(TaskSet(X, Y, GROUPS))
    with pytest.raises(ValueError, match=r"exposure.*'time'"):
        learner.predict_tasks(FRAME.drop(columns="time"))


def test_rows_with_targets_need_the_exposures_of_fit(learner, tmp_path):
    learner.save(tmp_path / "model")
    learner, rows = load(tmp_path / "model"), FRAME[["x"]][:4]
    model = learner.adapt(X[:4], Y[:4], exposure=EXPOSURE[:4])
    calls = [
        *(lambda x=x: learner.adapt(x, Y[:4]) for x in (X[:4], rows)),
        lambda: learner.adapt_many(rows, Y[:4], groups=GROUPS[:4]),
        lambda: learner.adapt_many(TaskSet(X[:4], Y[:4], GROUPS[:4])),
        *(lambda x=x: model.update(x, Y[:4]) for x in (X[:4], rows)),
        *(lambda f=f: f(rows) for f in (model.predict, model.predict_interval, model.predict_std)),
        lambda: learner.predict(rows, GROUPS[:4]),
        lambda: learner.score(TaskSet(X, Y, GROUPS)),
        lambda: learner.predict_tasks(TaskSet(X, Y, GROUPS + 100), TaskSet(X, Y, GROUPS + 100)),
    ]
    message = r"exposure: fit had exposures, and these rows have none\. Pass .* the column 'time'\. Ones mean"
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()
    prior = learner.adapt(), learner.adapt(X[:0], Y[:0]), learner.adapt(rows[:0], Y[:0])
    assert len({one.intercept_ for one in prior}) == 1
    np.testing.assert_allclose(learner.adapt(FRAME[["x", "time"]][:4], Y[:4]).coef_, model.coef_)


def test_arrays_with_targets_need_exposures_too(short_fits_in_module):
    learner = EmpiricalBayesLearner(loss="poisson", varying=[])
    learner.fit(X, Y, groups=GROUPS, exposure=EXPOSURE)
    for rows in (X[:4], FRAME[["x"]][:4].rename(columns={"x": "x0"})):
        message = r"exposure: fit had exposures, and .* each row\. Ones mean"
        with pytest.raises(ValueError, match=message):
            learner.adapt(rows, Y[:4])
    learner.fit(X, Y, groups=GROUPS).adapt(X[:4], Y[:4])


def test_a_scorer_reads_the_exposure_column(learner):
    score = task_scorer("neg_mean_squared_error", n_support=2)
    tasks = TaskSet.from_frame(
        FRAME, encoding=learner.encoding_, task="g", target="y", exposure="time"
    )
    found = score(learner, FRAME[["x", "time"]], FRAME["y"], groups=FRAME["g"])
    assert found == pytest.approx(score(learner, tasks))
