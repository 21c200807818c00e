"""What a common part is for: curves that are learned, intervals that cover, and a choice that keeps what pays."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from common_samples import NOISE, SLOPES, booster, curved
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.priors.shared_regressor import SharedRegressor

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_a_common_part_without_descriptions_is_of_the_columns_alone():
    shared = SharedRegressor((1.0,), (LinearRegression().fit(np.eye(2), [1.0, 2.0]),))
    task = TaskSet.from_tasks([(np.eye(2), np.zeros(2), [5.0])])
    np.testing.assert_allclose(shared.residual_tasks(task).y, [-1.0, -2.0])
    np.testing.assert_allclose(shared.predict(np.eye(2), shared.encode(task)[[0, 0]]), [1.0, 2.0])


@pytest.fixture(scope="module")
def many():
    return curved(150, 12, 2, described=False)[0]


@pytest.fixture(scope="module")
def boosted(many):
    return EmpiricalBayesLearner(common=booster()).fit(many)


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnhelpfulWarning")
def test_a_curved_common_part_is_learned(many, boosted):
    """Against the oracle that knows the common part and the variances: ridge on what it leaves."""
    new, shared = curved(200, 18, 3, described=False)
    support, query = new.support_query(8, random_state=0)
    plain = EmpiricalBayesLearner(common="linear").fit(many).task_errors(support, query).mean()
    ours = boosted.task_errors(support, query).mean()
    known = TaskSet.from_arrays(new.X, shared, new.offsets, new.labels).support_query(8, random_state=0)
    oracle = []
    for given, asked, *common in zip(support, query, *known, strict=True):
        gram = given.X.T @ given.X + np.eye(2) * (NOISE / SLOPES) ** 2
        weights = np.linalg.solve(gram, given.X.T @ (given.y - common[0].y))
        oracle.append(np.mean((asked.y - common[1].y - asked.X @ weights) ** 2))
    assert ours < 0.25 * plain
    assert np.mean(oracle) < ours < 14.0 * np.mean(oracle)


def test_intervals_cover_new_tasks(boosted):
    new, _ = curved(200, 18, 4, described=False)
    support, query = new.support_query(8, random_state=0)
    table = boosted.predict_tasks(query, support, coverage=0.9)
    inside = (table["lower"] <= query.y) & (query.y <= table["upper"])
    assert 0.86 < np.mean(inside) < 0.94


def test_auto_keeps_what_pays_and_says_so():
    learner = EmpiricalBayesLearner(common="auto").fit(curved(60, 12, 0)[0])
    used = {type(part).__name__: weight for weight, part in learner.common_}
    tried = [entry for entry in learner.search_results_ if entry["kind"] == "common part"]
    assert used == {name: weight for name, weight in tried[1]["common"].items() if weight > 0}
    assert tried[0]["common"] is None
    assert tried[1]["error"] < 0.7 * tried[0]["error"]
    assert learner.validation_error_ < 0.7 * tried[0]["error"]


def test_auto_leaves_out_what_does_not_pay():
    """Linear tasks: the learner is the one without, bit for bit."""
    # Both weights are zero with this seed; by chance a small weight is kept with about a quarter of them.
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(40):
        X = rng.normal(size=(12, 3))
        rows.append((X, X @ ([1.0, 2.0, 3.0] + 0.5 * rng.normal(size=3)) + 0.3 * rng.normal(size=12)))
    tasks = TaskSet.from_tasks(rows)
    auto, plain = (EmpiricalBayesLearner(common=common).fit(tasks) for common in ("auto", None))
    assert auto.common_ is None
    np.testing.assert_array_equal(auto.task_weights_, plain.task_weights_)
    tried = [entry for entry in auto.search_results_ if entry["kind"] == "common part"]
    assert [entry["common"] is None for entry in tried] == [True, False]


def test_quantiles_stand_on_the_whole_prediction(new, learner):
    """All ways to predict a quantile agree, and so many targets of new tasks lie below."""
    ours = clone(learner)
    ours.__dict__.update(vars(learner))
    ours.prior_ = replace(learner.prior_, quantile=0.9)
    support, query = new.support_query(6, random_state=0)
    together = ours.predict_tasks(query, support)["prediction"]
    fast = ours.predict_tasks(query, support, coverage=None)["prediction"]
    one_by_one = [
        ours.adapt(given.X, given.y, side_info=given.side_info).predict(asked.X)
        for given, asked in zip(support, query, strict=True)
    ]
    np.testing.assert_allclose(together, np.concatenate(one_by_one), atol=1e-8)
    np.testing.assert_allclose(fast, together, atol=1e-8)
    assert 0.85 < np.mean(query.y <= together) < 0.97


def test_a_regressor_that_remembers_rows_does_not_hide_a_seen_task():
    """What it leaves of rows that it was fitted to is nothing: the level of their task would be lost."""
    rng = np.random.default_rng(0)
    level = 2.0 * rng.normal(size=30)
    groups = np.repeat(np.arange(30), 10)

    def draw():
        X = rng.normal(size=(300, 2))
        return X, 2.0 * np.sign(X[:, 0] * X[:, 1]) + level[groups] + 0.3 * rng.normal(size=300)

    X, y = draw()
    learner = EmpiricalBayesLearner(common=DecisionTreeRegressor(random_state=0))
    learner.fit(X, y, groups=groups)
    assert learner.common_[0][0] > 0.5
    further, target = draw()
    error = np.mean((learner.predict(further, groups=groups) - target) ** 2)
    assert error < 1.3 * learner.validation_error_
