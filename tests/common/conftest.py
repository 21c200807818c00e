"""Tasks that share a curve, a tree, and what is learned from them."""

import pytest
from sklearn.tree import DecisionTreeRegressor

from common_samples import curved
from folds import short_fits
from tailored import EmpiricalBayesLearner


@pytest.fixture(scope="session")
def tasks():
    # fewer than 40: quick to learn from
    return curved(36, 12, 0)[0]


@pytest.fixture(scope="session")
def new():
    return curved(30, 16, 1)[0]


@pytest.fixture(scope="session")
def tree():
    """A regressor that is quick to fit and not linear."""
    return DecisionTreeRegressor(max_depth=6, min_samples_leaf=5, random_state=0)


@pytest.fixture(scope="session")
def learner(tasks, tree):
    with short_fits():
        return EmpiricalBayesLearner(common=tree).fit(tasks)
