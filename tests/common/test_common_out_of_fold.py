"""A common part is fitted out of fold, and is added to all that is predicted of what it leaves."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from common_samples import curved, residual_targets
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.priors.shared_regressor import FOLDS, fit_out_of_fold
from tailored.tasks.rows import in_content_order

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

# ---------------------------------------------------------------------- out of fold


class Recorder(RegressorMixin, BaseEstimator):
    """Remembers the rows that it was fitted to, and refuses to predict them."""

    def fit(self, X, y):
        self.seen_ = set(X[:, 0].tolist())
        return self

    def predict(self, X):
        return np.where([x in self.seen_ for x in X[:, 0]], 1000.0, 1.0)


def test_every_task_is_left_by_a_regressor_that_has_not_seen_it(tasks):
    shared = fit_out_of_fold([Recorder()], tasks, [0]).weighted(np.ones(1), tasks)
    # no row was recognised: a regressor that had seen it would say 1000
    left = shared.regressor.residual_tasks(tasks, shared.folds)
    np.testing.assert_array_equal(left.y, tasks.y - 1.0)
    np.testing.assert_array_equal(shared.regressor.residual_tasks(tasks).y, tasks.y - 1000.0)


def test_what_is_left_does_not_depend_on_the_tasks_own_targets(tasks, tree):
    """Other targets for one task change what is left to others, and to itself by just these targets."""
    y = tasks.y.copy()
    rows = slice(tasks.offsets[7], tasks.offsets[8])
    y[rows] += 50.0
    moved = TaskSet.from_arrays(tasks.X, y, tasks.offsets, tasks.labels, tasks.side_info)
    before, after = (residual_targets(tree, each, [0]) for each in (tasks, moved))
    np.testing.assert_allclose(after[rows] - before[rows], 50.0)
    assert not np.allclose(np.delete(after, np.r_[rows]), np.delete(before, np.r_[rows]))


def test_out_of_fold_equals_a_loop(tasks, tree):
    left = residual_targets(tree, tasks, [3, 1])
    order = np.random.default_rng([3, 1]).permutation(len(tasks))
    expected = np.empty(len(tasks.y))
    inputs = np.hstack([tasks.X, np.repeat(tasks.side_info, tasks.sizes, axis=0)])
    task_of = np.repeat(np.arange(len(tasks)), tasks.sizes)
    for part in range(FOLDS):
        asked = np.isin(task_of, order[part::FOLDS])
        fitted = clone(tree).fit(inputs[~asked], tasks.y[~asked])
        expected[asked] = tasks.y[asked] - fitted.predict(inputs[asked])
    np.testing.assert_array_equal(left, expected)


def test_tasks_without_rows_and_few_tasks(tree):
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(n, 2)), rng.normal(size=n)) for n in (0, 3, 0, 4, 0, 0, 0)]
    assert np.isfinite(residual_targets(Ridge(), TaskSet.from_tasks(rows), [0])).all()
    with pytest.raises(
        ValueError, match="common: a shared regressor needs at least two tasks with rows, got 1"
    ):
        fit_out_of_fold([Ridge()], TaskSet.from_tasks(rows[:3]), [0])


# ---------------------------------------------------------------------- predictions add up


class Remember(Ridge):
    """Records the targets that it was fitted to."""

    def fit(self, X, y):
        self.targets_ = y
        return super().fit(X, y)


def test_targets_are_what_the_coefficients_of_the_tasks_leave(tasks):
    learner, plain = (EmpiricalBayesLearner(common=common).fit(tasks) for common in (Remember(), None))
    left = [t.y - plain.adapt(t.X, t.y, side_info=t.side_info).predict(t.X) for t in tasks]
    found = learner.common_[0][1].targets_
    np.testing.assert_allclose(np.sort(found), np.sort(np.concatenate(left)), atol=1e-8)


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


def test_equals_a_learner_of_what_is_left(tasks, new, learner):
    """By hand: subtract, adapt and add."""
    by_hand = clone(learner)
    by_hand.__dict__.update(vars(learner))
    by_hand.prior_ = replace(learner.prior_, regressor=None)
    ((weight, part),) = learner.common_
    for task in new[:3]:
        inputs = np.hstack([task.X, np.tile(task.side_info, (len(task.y), 1))])
        shared = weight * part.predict(inputs)
        model = by_hand.adapt(task.X[:5], task.y[:5] - shared[:5], side_info=task.side_info)
        ours = learner.adapt(task.X[:5], task.y[:5], side_info=task.side_info)
        np.testing.assert_allclose(ours.coef_, model.coef_, rtol=1e-12)
        np.testing.assert_allclose(ours.predict(task.X), model.predict(task.X) + shared, rtol=1e-9)
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
    np.testing.assert_allclose(errors.mean(), ((together - query.y) ** 2).mean(), rtol=1e-12)
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
    known = in_content_order(tasks, learner._stream.seed)
    folds = fit_out_of_fold([Ridge()], known, [learner._stream.seed, 7, 0]).folds
    part = learner.prior_.regressor
    shared = seen.y - part.residual_tasks(tasks[4:5], folds[known.index_of(seen.label)]).y
    alone = clone(learner)
    alone.__dict__.update(vars(learner))
    alone.prior_ = replace(learner.prior_, regressor=None)
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
