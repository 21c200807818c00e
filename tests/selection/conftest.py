"""Fixtures of these tests."""

import pytest

from bayes_samples import skewed_tasks
from folds import few_folds
from tailored import EmpiricalBayesLearner
from tailored.datasets import make_clusters


@pytest.fixture(scope="session")
def clusters():
    return make_clusters(80, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


@pytest.fixture(scope="session")
def mixture(clusters):
    """A learner that found the clusters."""
    learner = EmpiricalBayesLearner().fit(clusters)
    assert learner.n_components_ == 3
    return learner


@pytest.fixture(scope="session")
def skewed():
    """A learner of one component that predicts medians of skewed noise."""
    tasks = skewed_tasks(2, n_tasks=65, scale=2.0)
    learner = EmpiricalBayesLearner(loss="absolute").fit(tasks)
    assert learner.n_components_ == 1
    assert learner.prior_.offset < 0.0
    return tasks, learner


@pytest.fixture(scope="session")
def with_side():
    tasks = skewed_tasks(0, n_tasks=70, d=3, side=True)
    return tasks, few_folds(n_folds=4).fit(tasks)
