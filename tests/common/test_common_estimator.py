"""What a common part reads, how it behaves as a part of an estimator, and its errors."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import LinearRegression, Ridge

from common_samples import booster, curved, residual_targets
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.priors.shared_regressor import fit_out_of_fold

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

# ---------------------------------------------------------------------- what is read


def test_descriptions_of_words_are_read(tree):
    tasks, _ = curved(30, 6, 0, words=True)
    learner = EmpiricalBayesLearner(common=LinearRegression()).fit(tasks)
    assert learner.common_[0][1].n_features_in_ == 2 + 1 + 2
    side = {"size": 0.3, "kind": "big"}
    assert np.isfinite(learner.adapt(side_info=side).predict(tasks.X[:3])).all()
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(tasks.X[:3], tasks.y[:3])


def test_without_a_description_the_columns_are_read(tasks, tree):
    bare = TaskSet.from_arrays(tasks.X, tasks.y, tasks.offsets, tasks.labels)
    assert EmpiricalBayesLearner(common=tree).fit(bare).common_[0][1].n_features_in_ == 2
    # a learner that is told to ignore descriptions has a common part that does
    learner = EmpiricalBayesLearner("posterior", common=tree).fit(tasks)
    assert learner.common_[0][1].n_features_in_ == 2
    assert np.isfinite(learner.adapt().predict(tasks.X[:2])).all()


def test_sparse_rows(tasks, tree):
    from scipy.sparse import csr_array

    thin = TaskSet.from_arrays(csr_array(tasks.X), tasks.y, tasks.offsets, tasks.labels, tasks.side_info)
    for regressor in (Ridge(), booster(max_iter=5)):
        dense, sparse = (residual_targets(regressor, each, [0]) for each in (tasks, thin))
        np.testing.assert_allclose(sparse, dense, atol=1e-6)


def test_sparse_rows_that_cannot_be_filled_up(tasks):
    from scipy.sparse import csr_array

    wide = csr_array((np.ones(3), ([0, 50, 90], [0, 1, 2])), shape=(100, 4_000_000))
    huge = TaskSet.from_arrays(wide, np.zeros(100), np.array([0, 50, 100]), np.arange(2))
    with pytest.raises(ValueError, match="common: HistGradientBoostingRegressor does not take sparse rows"):
        fit_out_of_fold([booster()], huge, [0])


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
    assert learner.common_[0][1] is not tree
    assert learner.get_params()["common__max_depth"] == 6
    other = clone(learner).set_params(common__max_depth=2)
    assert other.common.max_depth == 2
    assert tree.max_depth == 6


def test_off_by_default(tasks):
    learner = EmpiricalBayesLearner().fit(tasks[:5])
    assert learner.common is None
    assert learner.common_ is None
    assert learner.prior_.regressor is None


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
    with pytest.raises(ValueError, match=r"common: .* at least two tasks with rows, got 1"):
        EmpiricalBayesLearner(common=Ridge()).fit(X, y, groups=np.zeros(6))
    assert EmpiricalBayesLearner(common="auto").fit(X, y, groups=np.zeros(6)).common_ is None
