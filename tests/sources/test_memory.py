"""More tasks in memory than their statistics would fit beside them: learned from as a table is."""

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner
from tailored.datasets import make_clusters
from tailored.gaussian.moments import Moments
from tailored.learners import empirical_bayes as empirical_bayes
from tailored.sources import base
from tailored.sources.base import MemorySource, Reader
from tailored.sources.reservoir import Reservoir
from tailored.tasks.rows import Scaling
from tests.gaussian.test_moments import draw

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_blocks_of_rows_have_the_sums_of_all_statistics(monkeypatch):
    tasks, _, mixture = draw(50, d=4)
    units = Scaling.of(tasks, False, centre=True)
    monkeypatch.setattr(base, "BLOCK_FLOATS", 16 * 7)
    source = MemorySource(tasks, 0).statistics(Reader(units))
    whole = Moments.of(tasks, units)
    np.testing.assert_allclose(source.totals().gram, whole.totals().gram, rtol=1e-12)
    found, expected = source.sums(mixture), whole.sums(mixture).sums
    np.testing.assert_allclose(found.sums.second, expected.second, rtol=1e-10, atol=1e-12)
    again = source.sums(mixture, found.shares).sums
    np.testing.assert_allclose(again.first, expected.first, rtol=1e-5, atol=1e-6)


def test_a_fit_of_a_sample_refined_on_all_tasks(monkeypatch):
    tasks = make_clusters(n_tasks=260, n_clusters=1, n_features=6, n_rows=12, rank=2, random_state=0)
    train, test = tasks[:200], tasks[200:]
    all_at_once = EmpiricalBayesLearner(loss="absolute").fit(train)
    monkeypatch.setattr(empirical_bayes, "LARGEST_STATISTICS", 0)
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (80, *Reservoir.__init__.__defaults__[1:]))
    monkeypatch.setattr(base, "BLOCK_FLOATS", 49 * 30)
    sampled = EmpiricalBayesLearner(loss="absolute").fit(train)
    assert sampled.n_tasks_seen_ == 200
    assert not hasattr(sampled, "task_weights_")
    errors = [np.mean(learner.task_errors(test, n_support=0.5)) for learner in (all_at_once, sampled)]
    assert errors[1] == pytest.approx(errors[0], rel=0.05)
