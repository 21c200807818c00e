"""Tasks that were seen in fit are predicted by what was learned of them; tasks, supports and tables
without rows.
"""

import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest

from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

NUMBERS = ["prediction", "lower", "upper", "std"]


def table(n_tasks=24, n_rows=9, seed=0):
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(n_tasks), n_rows)
    x = rng.normal(size=(len(which), 2))
    weights = np.array([1.0, -1.0]) + rng.normal(size=(n_tasks, 2))
    age = rng.normal(size=n_tasks)
    y = (x * weights[which]).sum(axis=1) + 2.0 * age[which] + 0.3 * rng.normal(size=len(which))
    labels = np.array([f"t{i:02d}" for i in range(n_tasks)])[which]
    return pd.DataFrame({"task": labels, "a": x[:, 0], "b": x[:, 1], "age": age[which], "y": y})


ROWS = table()
KNOWN, NEW = ROWS[ROWS["task"] < "t20"], ROWS[ROWS["task"] >= "t20"]


def fitted(**options):
    tasks = TaskSet.from_frame(KNOWN, task="task", target="y", side_columns=["age"])
    return EmpiricalBayesLearner(**options).fit(tasks)


@pytest.fixture(scope="module")
def learner():
    return fitted()


def test_known_and_new_tasks_in_one_table(learner):
    query = pd.concat([NEW.iloc[5:12], KNOWN.iloc[:6], NEW.iloc[:2]])
    found = learner.predict_tasks(query, coverage=0.8)
    known = query["task"] < "t20"
    apart = learner.predict_tasks(query[known], coverage=0.8)
    pd.testing.assert_frame_equal(found[known], apart)
    pd.testing.assert_frame_equal(found[~known], learner.predict_tasks(query[~known], coverage=0.8))
    # Support rows of a known task take the place of what was learned of it.
    with pytest.warns(UserWarning, match="support: 1 training task has fewer rows than in fit"):
        given = learner.predict_tasks(query, KNOWN.iloc[:2], coverage=0.8)
    alone = learner.adapt(KNOWN[["a", "b"]].iloc[:2].to_numpy(), KNOWN["y"].iloc[:2].to_numpy(), side_info=KNOWN["age"].iloc[:1].to_numpy())  # fmt: skip
    rows = query[["a", "b"]][known].to_numpy()
    np.testing.assert_allclose(given["prediction"][known], alone.predict(rows), rtol=1e-7)
    pd.testing.assert_frame_equal(given[~known], found[~known])


def test_intervals_that_were_not_kept_are_said_to_be_missing(learner, monkeypatch):
    plain = KNOWN.drop(columns="age")
    alone = IndependentLearner(loss="squared").fit(
        TaskSet.from_frame(plain, task="task", target="y")
    )
    assert alone.predict_tasks(plain.iloc[:2])["lower"].isna().all()
    monkeypatch.setattr("tailored.learners.base.MAX_COVARIANCES", 10)
    learner = deepcopy(learner)
    learner._remember(TaskSet.from_frame(KNOWN, task="task", target="y", side_columns=["age"]))
    with pytest.warns(UserWarning, match="Pass their rows as support"):
        found = learner.predict_tasks(KNOWN.iloc[:2])
    assert found["lower"].isna().all()
    assert found["prediction"].notna().all()


def test_predictions_of_counts_keep_their_covariances(monkeypatch):
    """The mean of a count depends on the variance of its log rate."""
    monkeypatch.setattr("tailored.learners.base.MAX_COVARIANCES", 10)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(120, 1)), np.repeat(np.arange(30), 4)
    y = rng.poisson(np.exp(rng.normal(size=30)[groups]))
    learner = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(X, y, groups=groups)
    expected = learner.adapt(X[:4], y[:4]).predict(X[:4])
    np.testing.assert_allclose(learner.predict(X[:4], groups=groups[:4]), expected, rtol=1e-6)


def test_no_rows_are_the_prior(learner):
    rows, side = KNOWN[["a", "b"]].iloc[:4], KNOWN["age"].iloc[:1].to_numpy()
    expected = learner.adapt(side_info=side).predict(rows)
    for none in (rows[:0], rows[:0].to_numpy(), []):
        found = learner.adapt(none, KNOWN["y"].to_numpy()[:0], side_info=side)
        np.testing.assert_array_equal(found.predict(rows), expected)
    with pytest.raises(ValueError, match=r"X: Found array with 0 sample"):
        learner.adapt(rows[:0], [1.0, 2.0], side_info=side)
    query = NEW.iloc[:3]
    pd.testing.assert_frame_equal(
        learner.predict_tasks(query, KNOWN[:0]), learner.predict_tasks(query)
    )


def test_nothing_is_asked(learner):
    rows = KNOWN[["a", "b"]][:0]
    model = learner.adapt(side_info=KNOWN["age"].iloc[:1].to_numpy())
    before = model.coef_.copy()
    assert model.predict(rows).shape == model.predict_std(rows).shape == (0,)
    assert model.predict_interval(rows).shape == (0, 2)
    np.testing.assert_array_equal(model.update(rows, KNOWN["y"][:0]).coef_, before)
    assert learner.predict(rows, groups=KNOWN["task"][:0]).shape == (0,)
    table = learner.predict_tasks(KNOWN[:0])
    assert list(table.columns) == ["task", *NUMBERS]
    assert len(table) == 0
    with pytest.raises(ValueError, match="query: the frame has no column 'b'"):
        learner.predict_tasks(KNOWN.drop(columns="b")[:0])
    with pytest.raises(ValueError, match="frame has no rows"):
        TaskSet.from_frame(KNOWN[:0], task="task", target="y")


def test_numbers_are_no_names():
    """Tasks without labels are numbered: new ones must not be taken silently for the first ones of
    fit.
    """
    tasks = TaskSet.from_frame(ROWS, task="task", target="y", features=["a", "b"])
    parts = [(task.X, task.y) for task in tasks]
    learner = IndependentLearner(loss="squared").fit(TaskSet.from_tasks(parts[:20]))
    with pytest.warns(UserWarning, match="labels 0 to 3 also occur in the training data"):
        learner.predict_tasks(TaskSet.from_tasks(parts[20:]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.predict_tasks(TaskSet.from_tasks(parts[:20]))
        learner.predict_tasks(tasks[20:])
        learner.predict_tasks(TaskSet.from_tasks(parts[20:]), TaskSet.from_tasks(parts[20:]))
