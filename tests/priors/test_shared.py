"""A shared regressor: fitted out of fold, added to all predictions, selected where it pays, refused where it fails."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.priors.shared import FOLDS, SharedRegressor, fit_out_of_fold
from tailored.tasks.rows import in_content_order

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

NOISE, SLOPES = 0.2, 0.3


def curved(n_tasks, n_rows, seed, *, words=False, side=True):
    """Draw y = 3 sin(2 x₁) x₂ + s² + the task's own slopes + noise; also return the part that all tasks share."""
    rng = np.random.default_rng(seed)
    tasks, shared = [], []
    for _ in range(n_tasks):
        X, s = rng.normal(size=(n_rows, 2)), rng.normal()
        shared.append(3.0 * np.sin(2.0 * X[:, 0]) * X[:, 1] + side * s**2)
        y = shared[-1] + X @ (SLOPES * rng.normal(size=2)) + NOISE * rng.normal(size=n_rows)
        s = {"size": s, "kind": "big" if s > 0 else "small"} if words else [s]
        tasks.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(tasks), np.concatenate(shared)


def booster(**settings):
    return HistGradientBoostingRegressor(early_stopping=False, random_state=0, **settings)


def residual_targets(regressor, tasks, seed):
    """Return what regressors that were not fitted to a task leave of its targets."""
    shared, folds = fit_out_of_fold([regressor], tasks, seed)
    return shared.residual_tasks(tasks, folds).y


def with_prior(learner, **changes):
    """Copy a fitted learner and change fields of its prior."""
    other = clone(learner)
    other.__dict__.update(vars(learner))
    other.prior_ = replace(learner.prior_, **changes)
    return other


def adapt(learner, task):
    return learner.adapt(task.X, task.y, side_info=task.side_info)


def predictions(learner, support, query):
    """Predict the query rows of each task by a model of its own."""
    return np.concatenate([adapt(learner, s).predict(q.X) for s, q in zip(support, query, strict=True)])


@pytest.fixture(scope="module")
def tasks():
    return curved(36, 12, 0)[0]


@pytest.fixture(scope="module")
def new():
    return curved(30, 16, 1)[0]


@pytest.fixture(scope="module")
def tree():
    """A regressor that is quick to fit and not linear."""
    return DecisionTreeRegressor(max_depth=6, min_samples_leaf=5, random_state=0)


@pytest.fixture(scope="module")
def learner(short_fits_in_module, tasks, tree):
    return EmpiricalBayesLearner(common=tree).fit(tasks)


# ---------------------------------------------------------------------- out of fold


class Recorder(RegressorMixin, BaseEstimator):
    """Remember the rows of fit, and predict 1000 for them."""

    def fit(self, X, y):
        self.seen_ = set(X[:, 0].tolist())
        return self

    def predict(self, X):
        return np.where([x in self.seen_ for x in X[:, 0]], 1000.0, 1.0)


def test_residuals_of_a_task_come_from_a_regressor_that_has_not_seen_it(tasks):
    shared = fit_out_of_fold([Recorder()], tasks, [0]).weighted(np.ones(1), tasks)
    np.testing.assert_array_equal(shared.regressor.residual_tasks(tasks, shared.folds).y, tasks.y - 1.0)
    np.testing.assert_array_equal(shared.regressor.residual_tasks(tasks).y, tasks.y - 1000.0)


def test_out_of_fold_equals_a_loop(tasks, tree):
    left = residual_targets(tree, tasks, [3, 1])
    order = np.random.default_rng([3, 1]).permutation(len(tasks))
    expected = np.empty(len(tasks.y))
    inputs = np.hstack([tasks.X, np.repeat(tasks.side_info, tasks.sizes, axis=0)])
    task_of = np.repeat(np.arange(len(tasks)), tasks.sizes)
    for part in range(FOLDS):
        held_out = np.isin(task_of, order[part::FOLDS])
        fitted = clone(tree).fit(inputs[~held_out], tasks.y[~held_out])
        expected[held_out] = tasks.y[held_out] - fitted.predict(inputs[held_out])
    np.testing.assert_array_equal(left, expected)


def test_tasks_without_rows_and_a_single_task():
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in (0, 3, 0, 4, 0, 0, 0)]
    assert np.isfinite(residual_targets(Ridge(), TaskSet.from_tasks(rows), [0])).all()
    single = TaskSet.from_tasks(rows[:3])
    for fit in (
        lambda: fit_out_of_fold([Ridge()], single, [0]),
        lambda: EmpiricalBayesLearner(common=Ridge()).fit(single),
    ):
        with pytest.raises(
            ValueError, match="common: a shared regressor needs at least two tasks with rows, got 1"
        ):
            fit()
    assert EmpiricalBayesLearner(common="auto").fit(single).common_ is None


def test_a_regressor_that_remembers_rows_does_not_hide_a_seen_task():
    """It leaves nothing of the rows of its fit, so the level of their task would be lost."""
    rng = np.random.default_rng(0)
    level = 2.0 * rng.normal(size=30)
    groups = np.repeat(np.arange(30), 10)

    def draw():
        X = rng.normal(size=(300, 2))
        return X, 2.0 * np.sign(X[:, 0] * X[:, 1]) + level[groups] + 0.3 * rng.normal(size=300)

    X, y = draw()
    learner = EmpiricalBayesLearner(common=DecisionTreeRegressor(random_state=0)).fit(X, y, groups=groups)
    assert learner.common_[0][0] > 0.5
    further, target = draw()
    error = np.mean((learner.predict(further, groups=groups) - target) ** 2)
    assert error < 1.3 * learner.validation_error_


# ---------------------------------------------------------------------- predictions


class Remember(Ridge):
    """Record the targets of fit."""

    def fit(self, X, y):
        self.targets_ = y
        return super().fit(X, y)


def test_targets_are_what_the_coefficients_of_the_tasks_leave(tasks):
    learner, plain = (EmpiricalBayesLearner(common=common).fit(tasks) for common in (Remember(), None))
    left = np.concatenate([task.y - adapt(plain, task).predict(task.X) for task in tasks])
    np.testing.assert_allclose(np.sort(learner.common_[0][1].targets_), np.sort(left), atol=1e-8)
    assert plain.common_ is None
    assert plain.prior_.regressor is None


class Doubled(DecisionTreeRegressor):
    def predict(self, X):
        return 2.0 * super().predict(X)


def test_weights_undo_the_scale_of_a_regressor(tasks, new, tree, learner):
    doubled = EmpiricalBayesLearner(common=Doubled(**tree.get_params())).fit(tasks)
    assert 0.1 < learner.common_[0][0] < 2.0
    np.testing.assert_allclose(doubled.common_[0][0], 0.5 * learner.common_[0][0])
    support, query = new.support_query(6, random_state=0)
    ours, other = (each.predict_tasks(query, support)["prediction"] for each in (learner, doubled))
    np.testing.assert_allclose(other, ours, rtol=1e-6)


def test_equals_a_learner_of_the_residuals(new, learner):
    """By hand: subtract, adapt and add."""
    by_hand = with_prior(learner, regressor=None)
    ((weight, part),) = learner.common_
    for task in new[:3]:
        shared = weight * part.predict(np.hstack([task.X, np.tile(task.side_info, (len(task.y), 1))]))
        model = by_hand.adapt(task.X[:5], task.y[:5] - shared[:5], side_info=task.side_info)
        ours = learner.adapt(task.X[:5], task.y[:5], side_info=task.side_info)
        np.testing.assert_allclose(ours.coef_, model.coef_, rtol=1e-12)
        np.testing.assert_allclose(ours.predict(task.X), model.predict(task.X) + shared, rtol=1e-9)
        np.testing.assert_allclose(ours.representation_, model.representation_, rtol=1e-12)


def test_all_ways_to_predict_agree(new, learner):
    support, query = new.support_query(6, random_state=0)
    table = learner.predict_tasks(query, support)
    together = table["prediction"]
    np.testing.assert_allclose(together, predictions(learner, support, query), atol=1e-10)
    ends = adapt(learner, support[29]).predict_interval(query[29].X, 0.9)
    np.testing.assert_allclose(np.column_stack([table["lower"], table["upper"]])[-10:], ends, atol=1e-8)
    without = learner.predict_tasks(query, support, coverage=None)["prediction"]
    np.testing.assert_allclose(without, together, atol=1e-8)
    # Query rows need no side information.
    bare = TaskSet.from_arrays(query.X, query.y, query.offsets, query.labels)
    np.testing.assert_array_equal(learner.predict_tasks(bare, support)["prediction"], together)
    errors = learner.task_errors(support, query)
    np.testing.assert_allclose(errors.mean(), ((together - query.y) ** 2).mean(), rtol=1e-12)


def test_quantiles_are_those_of_the_sum(new, learner):
    """All ways to predict a quantile agree, and that share of the targets of new tasks lies below."""
    ours = with_prior(learner, quantile=0.9)
    support, query = new.support_query(6, random_state=0)
    together = ours.predict_tasks(query, support)["prediction"]
    np.testing.assert_allclose(together, predictions(ours, support, query), atol=1e-8)
    assert 0.85 < np.mean(query.y <= together) < 0.97


def test_predict_takes_tasks_seen_and_unseen(tasks, new, learner):
    seen, other = tasks[4], new[0]
    X = np.vstack([seen.X, other.X])
    groups = [seen.label] * len(seen.y) + ["new"] * len(other.y)
    found = learner.predict(X, groups=groups, side_info={"new": other.side_info})
    # A seen task has the residuals of a regressor that has not seen it.
    known = in_content_order(tasks, learner._stream.seed)
    folds = fit_out_of_fold([Ridge()], known, [learner._stream.seed, 7, 0]).folds
    part = learner.prior_.regressor
    shared = seen.y - part.residual_tasks(tasks[4:5], folds[known.index_of(seen.label)]).y
    alone = with_prior(learner, regressor=None)
    own = alone.adapt(seen.X, seen.y - shared, side_info=seen.side_info).predict(seen.X) + shared
    prior = learner.adapt(side_info=other.side_info).predict(other.X)
    np.testing.assert_allclose(found, np.concatenate([own, prior]), atol=1e-10)


def test_the_sum_is_clipped(tasks, tree, learner):
    clipped = EmpiricalBayesLearner(common=tree, clip=(0.0, 1.0)).fit(tasks)
    model, free = (adapt(each, tasks[0]) for each in (clipped, learner))
    for name in ("predict", "predict_interval"):
        found, expected = (getattr(each, name)(tasks[0].X) for each in (model, free))
        np.testing.assert_allclose(found, np.clip(expected, 0.0, 1.0))


def test_a_regressor_of_the_columns_alone():
    shared = SharedRegressor((1.0,), (LinearRegression().fit(np.eye(2), [1.0, 2.0]),))
    task = TaskSet.from_tasks([(np.eye(2), np.zeros(2), [5.0])])
    np.testing.assert_allclose(shared.residual_tasks(task).y, [-1.0, -2.0])
    np.testing.assert_allclose(shared.predict(np.eye(2), shared.encode(task)[[0, 0]]), [1.0, 2.0])


# ---------------------------------------------------------------------- what it is for


@pytest.fixture(scope="module")
def many():
    return curved(150, 12, 2, side=False)[0]


@pytest.fixture(scope="module")
def boosted(short_fits_in_module, many):
    return EmpiricalBayesLearner(common=booster()).fit(many)


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnhelpfulWarning")
def test_a_shared_curve_is_learned(many, boosted):
    """Against the oracle that knows the shared part and the variances: ridge on its residuals."""
    new, shared = curved(200, 18, 3, side=False)
    support, query = new.support_query(8, random_state=0)
    plain = EmpiricalBayesLearner(common="linear").fit(many).task_errors(support, query).mean()
    ours = boosted.task_errors(support, query).mean()
    known = TaskSet.from_arrays(new.X, shared, new.offsets, new.labels).support_query(8, random_state=0)
    oracle = []
    for s, q, *common in zip(support, query, *known, strict=True):
        gram = s.X.T @ s.X + np.eye(2) * (NOISE / SLOPES) ** 2
        weights = np.linalg.solve(gram, s.X.T @ (s.y - common[0].y))
        oracle.append(np.mean((q.y - common[1].y - q.X @ weights) ** 2))
    assert ours < 0.25 * plain
    assert np.mean(oracle) < ours < 14.0 * np.mean(oracle)
    table = boosted.predict_tasks(query, support, coverage=0.9)
    inside = (table["lower"] <= query.y) & (query.y <= table["upper"])
    assert 0.86 < np.mean(inside) < 0.94


def test_auto_keeps_what_pays():
    learner = EmpiricalBayesLearner(common="auto").fit(curved(60, 12, 0)[0])
    used = {type(part).__name__: weight for weight, part in learner.common_}
    tried = [entry for entry in learner.search_results_ if entry["kind"] == "common part"]
    assert used == {name: weight for name, weight in tried[1]["common"].items() if weight > 0}
    assert tried[0]["common"] is None
    assert max(tried[1]["error"], learner.validation_error_) < 0.7 * tried[0]["error"]


def test_auto_leaves_out_what_does_not_pay():
    """Linear tasks: the learner is the one without a regressor, bit for bit."""
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


# ---------------------------------------------------------------------- inputs


def test_side_information_of_words(tree):
    tasks, _ = curved(30, 6, 0, words=True)
    learner = EmpiricalBayesLearner(common=LinearRegression()).fit(tasks)
    assert learner.common_[0][1].n_features_in_ == 2 + 1 + 2
    side = {"size": 0.3, "kind": "big"}
    assert np.isfinite(learner.adapt(side_info=side).predict(tasks.X[:3])).all()
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(tasks.X[:3], tasks.y[:3])


def test_without_side_information_the_columns_are_read(tasks, tree):
    frame = pd.DataFrame(tasks.X, columns=["a", "b"])
    groups = np.repeat(tasks.labels, tasks.sizes)
    learner = EmpiricalBayesLearner(common=tree).fit(frame, tasks.y, groups=groups)
    assert learner.common_[0][1].n_features_in_ == 2
    assert list(learner.feature_names_in_) == ["a", "b"]
    np.testing.assert_allclose(
        learner.predict(frame, groups=groups)[:2], learner.predict(frame[:2], groups=groups[:2])
    )
    # A learner that ignores the side information has a regressor that does.
    learner = EmpiricalBayesLearner("posterior", common=tree).fit(tasks)
    assert learner.common_[0][1].n_features_in_ == 2
    assert np.isfinite(learner.adapt().predict(tasks.X[:2])).all()


def test_sparse_rows(tasks):
    thin = TaskSet.from_arrays(csr_array(tasks.X), tasks.y, tasks.offsets, tasks.labels, tasks.side_info)
    for regressor in (Ridge(), booster(max_iter=5)):
        dense, sparse = (residual_targets(regressor, each, [0]) for each in (tasks, thin))
        np.testing.assert_allclose(sparse, dense, atol=1e-6)
    wide = csr_array((np.ones(3), ([0, 50, 90], [0, 1, 2])), shape=(100, 4_000_000))
    huge = TaskSet.from_arrays(wide, np.zeros(100), np.array([0, 50, 100]), np.arange(2))
    with pytest.raises(ValueError, match="common: HistGradientBoostingRegressor does not take sparse rows"):
        fit_out_of_fold([booster()], huge, [0])


def test_the_users_regressor_is_cloned_and_its_settings_are_nested(tree, learner):
    assert not hasattr(tree, "tree_")
    assert learner.common is tree
    assert learner.common_[0][1] is not tree
    assert learner.get_params()["common__max_depth"] == 6
    assert clone(learner).set_params(common__max_depth=2).common.max_depth == 2
    assert tree.max_depth == 6


def test_streams_and_pickles_give_the_same_predictions(tasks, tree, learner):
    model = adapt(learner, tasks[0])
    expected = model.predict(tasks[0].X)
    pieces = EmpiricalBayesLearner(common=tree).partial_fit(tasks[:5]).partial_fit(tasks[5:])
    np.testing.assert_allclose(adapt(pieces, tasks[0]).predict(tasks[0].X), expected, rtol=1e-12)
    for again in (pickle.loads(pickle.dumps(model)), adapt(pickle.loads(pickle.dumps(learner)), tasks[0])):
        np.testing.assert_array_equal(again.predict(tasks[0].X), expected)


# ---------------------------------------------------------------------- errors


class Broken(RegressorMixin, BaseEstimator):
    """Fail in the way that ``how`` names."""

    def __init__(self, how="fit"):
        self.how = how

    def fit(self, X, y):
        if self.how == "fit":
            raise RuntimeError("no luck")
        return self

    def predict(self, X):
        return {"nan": np.full(len(X), np.nan), "shape": np.zeros((len(X), 2))}[self.how]


@pytest.mark.parametrize(
    ("common", "message"),
    [
        (Broken("fit"), "common: Broken cannot be fitted: no luck"),
        (Broken("nan"), "common: Broken predicts NaN or infinity"),
        (Broken("shape"), r"common: Broken predicts shape \(\d+, 2\) for \d+ rows"),
        (Broken("predict"), "common: Broken cannot predict"),
        ("boost", "common must be one of 'auto', 'linear', or None or a regressor; got"),
        (Ridge, r"common: got the class Ridge; pass .* Ridge\(\)"),
        (3, "common: 3 is not a regressor"),
    ],
)
def test_a_regressor_that_fails_is_named_and_changes_nothing(tasks, learner, common, message):
    ours = with_prior(learner)
    before = dict(vars(ours), common=common)
    ours.common = common
    with pytest.raises((ValueError, TypeError), match=message):
        ours.fit(tasks)
    assert vars(ours) == before
