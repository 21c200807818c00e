"""A common part: what all tasks share beyond the linear prior mean, fitted out of fold."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.common import PARTS, CommonPart, fit_common
from tailored.empirical_bayes import Learned, common_part
from tailored.exceptions import UnhelpfulWarning
from tailored.mixed_models.forms import Form
from tailored.summaries import Account
from tailored.tasks.pieces import in_label_order

NOISE, SLOPES = 0.2, 0.3


def curved(n_tasks, n_rows, seed, *, words=False, described=True):
    """y = sin(2 x₁) x₂ + s² + the task's own slopes + noise; what is common to all tasks comes along, row by row."""
    rng = np.random.default_rng(seed)
    tasks, common = [], []
    for _ in range(n_tasks):
        X, s = rng.normal(size=(n_rows, 2)), rng.normal()
        shared = 3.0 * np.sin(2.0 * X[:, 0]) * X[:, 1] + described * s**2
        y = shared + X @ (SLOPES * rng.normal(size=2)) + NOISE * rng.normal(size=n_rows)
        side = {"size": s, "kind": "big" if s > 0 else "small"} if words else [s]
        tasks.append((X, y, side) if described else (X, y))
        common.append(shared)
    return TaskSet.from_tasks(tasks), np.concatenate(common)


def booster(**settings):
    return HistGradientBoostingRegressor(early_stopping=False, random_state=0, **settings)


@pytest.fixture(scope="module")
def tasks():
    # fewer than 40: quick to learn from
    return curved(36, 12, 0)[0]


@pytest.fixture(scope="module")
def new():
    return curved(30, 16, 1)[0]


@pytest.fixture(scope="module")
def tree():
    """A regressor that is quick to fit and not linear."""
    return DecisionTreeRegressor(max_depth=6, min_samples_leaf=5, random_state=0)


@pytest.fixture(scope="module")
def learner(tasks, tree):
    return EmpiricalBayesLearner(common=tree).fit(tasks)


# ---------------------------------------------------------------------- out of fold


class Recorder(RegressorMixin, BaseEstimator):
    """Remembers the rows that it was fitted to, and refuses to predict them."""

    def fit(self, X, y):
        self.seen_ = set(X[:, 0].tolist())
        return self

    def predict(self, X):
        return np.where([x in self.seen_ for x in X[:, 0]], 1000.0, 1.0)


def test_every_task_is_left_by_a_regressor_that_has_not_seen_it(tasks):
    part, left, *_ = fit_common(Recorder(), tasks, [0])
    # no row was recognised: a regressor that had seen it would say 1000
    np.testing.assert_array_equal(left.y, tasks.y - 1.0)
    assert (part.of(tasks) == 1000.0).all()


def test_what_is_left_does_not_depend_on_the_tasks_own_targets(tasks, tree):
    """Other targets for one task change what is left to others, and to itself by just these targets."""
    y = tasks.y.copy()
    rows = slice(tasks.offsets[7], tasks.offsets[8])
    y[rows] += 50.0
    moved = TaskSet.from_arrays(tasks.X, y, tasks.offsets, tasks.labels, tasks.side_info)
    before, after = (fit_common(tree, each, [0]).left.y for each in (tasks, moved))
    np.testing.assert_allclose(after[rows] - before[rows], 50.0)
    assert not np.allclose(np.delete(after, np.r_[rows]), np.delete(before, np.r_[rows]))


def test_out_of_fold_equals_a_loop(tasks, tree):
    left = fit_common(tree, tasks, [3, 1]).left
    order = np.random.default_rng([3, 1]).permutation(len(tasks))
    expected = np.empty(len(tasks.y))
    inputs = np.hstack([tasks.X, np.repeat(tasks.side_info, tasks.sizes, axis=0)])
    task_of = np.repeat(np.arange(len(tasks)), tasks.sizes)
    for part in range(PARTS):
        asked = np.isin(task_of, order[part::PARTS])
        fitted = clone(tree).fit(inputs[~asked], tasks.y[~asked])
        expected[asked] = tasks.y[asked] - fitted.predict(inputs[asked])
    np.testing.assert_array_equal(left.y, expected)


def test_tasks_without_rows_and_few_tasks(tree):
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in (0, 3, 0, 4, 0, 0, 0)]
    left = fit_common(Ridge(), TaskSet.from_tasks(rows), [0]).left
    assert np.isfinite(left.y).all()
    with pytest.raises(ValueError, match="common: 1 task with rows"):
        fit_common(Ridge(), TaskSet.from_tasks(rows[:3]), [0])


# ---------------------------------------------------------------------- predictions add up


def test_equals_a_learner_of_what_is_left(tasks, new, tree, learner):
    """By hand: subtract, learn, adapt and add; the learner's own folds and rows are those of the same seed."""
    seed = [learner._stream.seed, 7, 0]
    part, left, *_ = fit_common(tree, in_label_order(tasks, seed[0]), seed)
    by_hand = EmpiricalBayesLearner().fit(left)
    np.testing.assert_array_equal(by_hand.bias_.linear, learner.bias_.linear)
    np.testing.assert_array_equal(by_hand.calibration_.scores[0], learner.calibration_.scores[0])
    for task in new[:3]:
        inputs = np.hstack([task.X, np.tile(task.side_info, (len(task.y), 1))])
        shared = part.regressor.predict(inputs)
        model = by_hand.adapt(task.X[:5], task.y[:5] - shared[:5], side_info=task.side_info)
        ours = learner.adapt(task.X[:5], task.y[:5], side_info=task.side_info)
        np.testing.assert_allclose(ours.coef_, model.coef_, rtol=1e-12)
        np.testing.assert_allclose(ours.predict(task.X), model.predict(task.X) + shared, rtol=1e-12)
        np.testing.assert_allclose(
            ours.predict_interval(task.X), model.predict_interval(task.X) + shared[:, None], rtol=1e-12
        )
        np.testing.assert_allclose(ours.predict_std(task.X), model.predict_std(task.X), rtol=1e-12)
        np.testing.assert_allclose(ours.representation_, model.representation_, rtol=1e-12)


def test_all_ways_to_predict_agree(tasks, new, learner):
    support, query = new.support_query(6, random_state=0)
    table = learner.predict_tasks(query, support)
    together = table["prediction"]
    one_by_one = [
        learner.adapt(given.X, given.y, side_info=given.side_info).predict(asked.X)
        for given, asked in zip(support, query, strict=True)
    ]
    np.testing.assert_allclose(together, np.concatenate(one_by_one), atol=1e-10)
    model = learner.adapt(support[29].X, support[29].y, side_info=support[29].side_info)
    ends = model.predict_interval(query[29].X, 0.9)
    np.testing.assert_allclose(table["lower"][-10:], ends[:, 0], atol=1e-8)
    np.testing.assert_allclose(table["upper"][-10:], ends[:, 1], atol=1e-8)
    without = learner.predict_tasks(query, support, coverage=None)["prediction"]
    np.testing.assert_allclose(without, together, atol=1e-8)
    # the query of a task need not bring its description
    bare = TaskSet.from_arrays(query.X, query.y, query.offsets, query.labels)
    np.testing.assert_array_equal(learner.predict_tasks(bare, support)["prediction"], together)
    errors = learner.task_errors(support, query)
    np.testing.assert_allclose(errors.mean(), np.abs(together - query.y).reshape(30, -1).mean(), rtol=1e-12)
    with_half = new.support_query(0.5, random_state=0)
    residual = with_half[1].y - learner.predict_tasks(with_half[1], with_half[0])["prediction"]
    expected = 1.0 - residual @ residual / np.sum((with_half[1].y - with_half[1].y.mean()) ** 2)
    np.testing.assert_allclose(learner.score(new), expected, rtol=1e-12)


def test_predict_serves_tasks_seen_and_unseen(tasks, new, learner):
    seen, other = tasks[4], new[0]
    X = np.vstack([seen.X, other.X])
    groups = [seen.label] * len(seen.y) + ["new"] * len(other.y)
    found = learner.predict(X, groups=groups, side_info={"new": other.side_info})
    # by a regressor that has not seen it, which leaves what the tasks were learned from
    known = in_label_order(tasks, learner._stream.seed)
    apart = fit_common(learner.common, known, [learner._stream.seed, 7, 0])
    other_part = apart.others[apart.part_of[known.index_of(seen.label)[0]]]
    shared = other_part.of(tasks[4:5])
    alone = EmpiricalBayesLearner().fit(apart.left)
    own = alone.adapt(seen.X, seen.y - shared, side_info=seen.side_info).predict(seen.X) + shared
    prior = learner.adapt(side_info=other.side_info).predict(other.X)
    np.testing.assert_allclose(found, np.concatenate([own, prior]), atol=1e-10)


def test_calibrate_intervals_counts_whole_predictions(new, learner):
    again = clone(learner)
    again.__dict__.update(vars(learner))
    again.calibrate_intervals(new)
    assert again.calibration_ is not learner.calibration_
    task = curved(1, 8, 5)[0][0]
    ends = again.adapt(task.X, task.y, side_info=task.side_info).predict_interval(task.X, 0.8)
    # of the order of what is left, not of the targets with their common part
    before = learner.adapt(task.X, task.y, side_info=task.side_info).predict_interval(task.X, 0.8)
    assert 0.5 < np.diff(ends).mean() / np.diff(before).mean() < 2.0


def test_clip_is_of_the_whole(tasks, tree, learner):
    clipped = EmpiricalBayesLearner(common=tree, clip=(0.0, 1.0)).fit(tasks)
    assert clipped.clip_ == (0.0, 1.0)
    task = tasks[0]
    model, free = (each.adapt(task.X, task.y, side_info=task.side_info) for each in (clipped, learner))
    np.testing.assert_allclose(model.predict(task.X), np.clip(free.predict(task.X), 0.0, 1.0))
    np.testing.assert_allclose(
        model.predict_interval(task.X), np.clip(free.predict_interval(task.X), 0.0, 1.0)
    )


def test_a_model_that_is_fitted_anew_is_an_ordinary_one(tasks, learner):
    task = tasks[0]
    model = learner.adapt(task.X, task.y, side_info=task.side_info).fit(task.X, task.y)
    np.testing.assert_allclose(model.predict(task.X), task.X @ model.coef_ + model.intercept_)


# ---------------------------------------------------------------------- what is read


def test_descriptions_of_words_are_read(tree):
    tasks, _ = curved(30, 6, 0, words=True)
    learner = EmpiricalBayesLearner(common=LinearRegression()).fit(tasks)
    assert learner.common_.n_features_in_ == 2 + 1 + 2
    side = {"size": 0.3, "kind": "big"}
    assert np.isfinite(learner.adapt(side_info=side).predict(tasks.X[:3])).all()
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(tasks.X[:3], tasks.y[:3])


def test_without_a_description_the_columns_are_read(tasks, tree):
    bare = TaskSet.from_arrays(tasks.X, tasks.y, tasks.offsets, tasks.labels)
    assert EmpiricalBayesLearner(common=tree).fit(bare).common_.n_features_in_ == 2
    # a learner that is told to ignore descriptions has a common part that does
    learner = EmpiricalBayesLearner("posterior", common=tree).fit(tasks)
    assert learner.common_.n_features_in_ == 2
    assert np.isfinite(learner.adapt().predict(tasks.X[:2])).all()


def test_sparse_rows(tasks, tree):
    from scipy.sparse import csr_array

    thin = TaskSet.from_arrays(csr_array(tasks.X), tasks.y, tasks.offsets, tasks.labels, tasks.side_info)
    for regressor in (Ridge(), booster(max_iter=5)):
        dense, sparse = (fit_common(regressor, each, [0]).left.y for each in (tasks, thin))
        np.testing.assert_allclose(sparse, dense, atol=1e-6)


def test_sparse_rows_that_cannot_be_filled_up(tasks):
    from scipy.sparse import csr_array

    wide = csr_array((np.ones(3), ([0, 50, 90], [0, 1, 2])), shape=(100, 2_000_000))
    huge = TaskSet.from_arrays(wide, np.zeros(100), np.array([0, 50, 100]), np.arange(2))
    with pytest.raises(ValueError, match="common: HistGradientBoostingRegressor takes no sparse rows"):
        fit_common(booster(), huge, [0])


def test_frames_keep_their_names(tree):
    import pandas as pd

    tasks, _ = curved(30, 6, 0)
    frame = pd.DataFrame(tasks.X, columns=["a", "b"])
    groups = np.repeat(tasks.labels, tasks.sizes)
    learner = EmpiricalBayesLearner(common=tree).fit(frame, tasks.y, groups=groups)
    assert list(learner.feature_names_in_) == ["a", "b"]
    model = learner.adapt(frame[:4], tasks.y[:4])
    np.testing.assert_array_equal(
        model.predict(frame[4:8]), learner.adapt(frame[:4], tasks.y[:4]).predict(frame[4:8])
    )
    np.testing.assert_allclose(
        learner.predict(frame, groups=groups)[:2], learner.predict(frame[:2], groups=[0, 0])
    )


# ---------------------------------------------------------------------- an ordinary estimator


def test_the_users_regressor_is_cloned_and_its_settings_are_nested(tree, learner):
    assert not hasattr(tree, "tree_")
    assert learner.common is tree
    assert learner.common_ is not tree
    assert learner.get_params()["common__max_depth"] == 6
    other = clone(learner).set_params(common__max_depth=2)
    assert other.common.max_depth == 2
    assert tree.max_depth == 6


def test_off_by_default(tasks):
    learner = EmpiricalBayesLearner().fit(tasks[:5])
    assert learner.common is None
    assert learner.common_ is None
    assert learner.prior_.common is None


def test_partial_fit_starts_over(tasks, tree, learner):
    pieces = EmpiricalBayesLearner(common=tree).partial_fit(tasks[:5]).partial_fit(tasks[5:])
    task = tasks[0]
    models = [each.adapt(task.X, task.y, side_info=task.side_info) for each in (pieces, learner)]
    np.testing.assert_allclose(models[0].predict(task.X), models[1].predict(task.X), rtol=1e-12)


def test_pickle_carries_it(tasks, learner):
    task = tasks[0]
    again = pickle.loads(pickle.dumps(learner))
    model = learner.adapt(task.X, task.y, side_info=task.side_info)
    reread = pickle.loads(pickle.dumps(model))
    expected = model.predict(task.X)
    np.testing.assert_array_equal(reread.predict(task.X), expected)
    np.testing.assert_array_equal(
        again.adapt(task.X, task.y, side_info=task.side_info).predict(task.X), expected
    )


# ---------------------------------------------------------------------- errors


class Broken(RegressorMixin, BaseEstimator):
    """Fails as it is told to."""

    def __init__(self, how="fit"):
        self.how = how

    def fit(self, X, y):
        if self.how == "fit":
            raise RuntimeError("no luck")
        return self

    def predict(self, X):
        return {"nan": np.full(len(X), np.nan), "shape": np.zeros((len(X), 2))}[self.how]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fit", "common: Broken cannot be fitted: no luck"),
        ("nan", "common: Broken predicts NaN or infinity"),
        ("shape", r"common: Broken predicts shape \(\d+, 2\) for \d+ rows"),
        ("predict", "common: Broken cannot predict"),
    ],
)
def test_a_regressor_that_fails_is_named_and_changes_nothing(tasks, learner, how, message):
    ours = clone(learner)
    ours.__dict__.update(vars(learner))
    before = dict(vars(ours))
    ours.common = Broken(how)
    with pytest.raises(ValueError, match=message):
        ours.fit(tasks)
    assert {k: v for k, v in vars(ours).items() if k != "common"} == {
        k: v for k, v in before.items() if k != "common"
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("boost", "common must be one of 'auto'"),
        (Ridge, r"common: got the class Ridge; pass .* Ridge\(\)"),
        (3, "common: expected None"),
    ],
)
def test_what_is_no_regressor_is_refused(tasks, value, message):
    with pytest.raises((ValueError, TypeError), match=message):
        EmpiricalBayesLearner(common=value).fit(tasks)


def test_a_single_task_shares_nothing():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    with pytest.raises(ValueError, match="common: 1 task with rows"):
        EmpiricalBayesLearner(common=Ridge()).fit(X, y, groups=np.zeros(6))
    assert EmpiricalBayesLearner(common="auto").fit(X, y, groups=np.zeros(6)).common_ is None


# ---------------------------------------------------------------------- what it is for


def test_a_common_part_without_descriptions_is_of_the_columns_alone():
    part = CommonPart(LinearRegression().fit(np.eye(2), [1.0, 2.0]))
    task = TaskSet.from_tasks([(np.eye(2), np.zeros(2), [5.0])])
    np.testing.assert_allclose(part.of(task), [1.0, 2.0])
    np.testing.assert_allclose(part.leave(task).y, [-1.0, -2.0])
    np.testing.assert_allclose(part.predict(np.eye(2), part.describe(task)[[0, 0]]), [1.0, 2.0])


@pytest.fixture(scope="module")
def many():
    return curved(150, 12, 2, described=False)[0]


@pytest.fixture(scope="module")
def boosted(many):
    return EmpiricalBayesLearner(common=booster()).fit(many)


def test_a_curved_common_part_is_learned(many, boosted):
    """Against the oracle that knows the common part and the variances: ridge on what it leaves."""
    new, shared = curved(200, 18, 3, described=False)
    support, query = new.support_query(8, random_state=0)
    plain = EmpiricalBayesLearner().fit(many).task_errors(support, query).mean()
    ours = boosted.task_errors(support, query).mean()
    known = TaskSet.from_arrays(new.X, shared, new.offsets, new.labels).support_query(8, random_state=0)
    oracle = []
    for given, asked, *common in zip(support, query, *known, strict=True):
        gram = given.X.T @ given.X + np.eye(2) * (NOISE / SLOPES) ** 2
        weights = np.linalg.solve(gram, given.X.T @ (given.y - common[0].y))
        oracle.append(np.abs(asked.y - common[1].y - asked.X @ weights).mean())
    assert ours < 0.5 * plain
    assert np.mean(oracle) < ours < 3.0 * np.mean(oracle)


def test_intervals_cover_new_tasks(boosted):
    new, _ = curved(200, 18, 4, described=False)
    support, query = new.support_query(8, random_state=0)
    inside = []
    for given, asked in zip(support, query, strict=True):
        ends = boosted.adapt(given.X, given.y, side_info=given.side_info).predict_interval(asked.X, 0.9)
        inside.append(((ends[:, 0] <= asked.y) & (asked.y <= ends[:, 1])).mean())
    assert 0.88 < np.mean(inside) < 0.94


def test_auto_keeps_what_pays_and_says_so(tasks):
    learner = EmpiricalBayesLearner(common="auto").fit(tasks)
    assert isinstance(learner.common_, HistGradientBoostingRegressor)
    tried = [entry for entry in learner.search_results_ if entry["kind"] == "common part"]
    assert [entry["common"] for entry in tried] == [None, "HistGradientBoostingRegressor"]
    assert tried[1]["error"] == learner.validation_error_ < tried[0]["error"]


def test_auto_leaves_out_what_does_not_pay():
    """Linear tasks: the learner is the one without, bit for bit."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(8):
        X = rng.normal(size=(8, 3))
        rows.append((X, X @ ([1.0, 2.0, 3.0] + 0.5 * rng.normal(size=3)) + 0.3 * rng.normal(size=8)))
    tasks = TaskSet.from_tasks(rows)
    auto, plain = (EmpiricalBayesLearner(common=common).fit(tasks) for common in ("auto", None))
    assert auto.common_ is None
    np.testing.assert_array_equal(auto.task_weights_, plain.task_weights_)
    tried = [entry for entry in auto.search_results_ if entry["kind"] == "common part"]
    assert tried[0]["error"] == auto.validation_error_ < tried[1]["error"]


@pytest.mark.parametrize("pays", [True, False])
def test_only_what_is_kept_warns_and_at_the_users_line(monkeypatch, tasks, tree, learner, pays):
    """The one that is left out may complain as it likes."""

    def learn(data, **options):
        with_it = not np.isin(data.tasks.y, tasks.y).all()
        errors, complaint = np.arange(36.0) + (with_it != pays), "with" if with_it else "without"
        found = errors, errors.mean(), [], None, (), Account(36, 288, 0.0, "absolute")
        return Learned(learner.prior_, Form("mixed model"), 1.0, None, None, *found, complaint=complaint)

    monkeypatch.setattr(common_part, "learn", learn)
    with pytest.warns(UnhelpfulWarning, match="^with$" if pays else "^without$") as heard:
        EmpiricalBayesLearner(common="auto").fit(tasks)
    assert [warning.filename for warning in heard] == [__file__]


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
        return X, np.sin(2.0 * X[:, 0]) + level[groups] + 0.3 * rng.normal(size=300)

    X, y = draw()
    learner = EmpiricalBayesLearner(common=DecisionTreeRegressor(random_state=0))
    learner.fit(X, y, groups=groups)
    further, target = draw()
    error = np.abs(learner.predict(further, groups=groups) - target).mean()
    assert error < 1.3 * learner.validation_error_
