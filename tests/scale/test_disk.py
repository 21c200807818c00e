"""Fits to scanned tables, whose statistics are on disk."""

from functools import partial

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.gaussian.em import em
from tailored.gaussian.moments import Moments
from tailored.scale import disk as disk_module
from tailored.scale.base import Reservoir

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

COLUMNS = {"task": "user", "target": "y"}


def long_frame(n_tasks=150, d=2, n_rows=8, seed=0, side=False):
    rng = np.random.default_rng(seed)
    age = rng.normal(size=n_tasks)
    W = 1.0 + rng.normal(size=(n_tasks, d)) + age[:, None]
    user = rng.permutation(np.repeat(np.arange(n_tasks), n_rows))
    X = 3.0 + rng.normal(size=(len(user), d))
    y = np.einsum("ij,ij->i", X, W[user]) + 0.5 * rng.normal(size=len(user))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)]).assign(y=y, user=user)
    return frame.assign(age=age[user]) if side else frame


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(disk_module, "Reservoir", partial(Reservoir, size=45))


def same_prior(one, other, **tolerance):
    for name in ("proportions", "means", "covariances", "noise"):
        mine, theirs = (getattr(each.prior_.mixture, name) for each in (one, other))
        np.testing.assert_allclose(mine, theirs, **tolerance)


@pytest.mark.usefixtures("few_steps")
def test_few_tasks_of_a_table_are_fitted_as_in_memory(tmp_path):
    frame = long_frame(20, side=True)
    frame.to_parquet(tmp_path / "f.parquet")
    scanned = scan(tmp_path / "f.parquet", side_columns=["age"], **COLUMNS)
    found = EmpiricalBayesLearner().fit(scanned)
    expected = EmpiricalBayesLearner().fit(
        TaskSet.from_frame(frame, side_columns=["age"], **COLUMNS)
    )
    same_prior(found, expected, rtol=0)
    np.testing.assert_array_equal(
        found.predict(frame[["x0", "x1"]], frame["user"]),
        expected.predict(frame[["x0", "x1"]], frame["user"]),
    )
    assert list(found.feature_names_in_) == ["x0", "x1"]
    assert found.columns_in_ == {"task": "user", "target": "y", "side_info": ["age"]}


def test_all_tasks_of_a_table_are_learned_from(small_sample, tmp_path):
    frame = long_frame(400, n_rows=5)
    frame.to_parquet(tmp_path / "f.parquet")
    # A draw that chooses a covariance that is free: one of few factors is not the likeliest, which
    # is asked below.
    found = EmpiricalBayesLearner(random_state=1).fit(scan(tmp_path / "f.parquet", **COLUMNS))
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    sample = Reservoir(45, seed=1).take(tasks).sample
    sampled = EmpiricalBayesLearner(random_state=1).fit(sample)
    assert found.training_summary_.n_tasks == 400
    assert len(sample) == 45
    assert found.structure_ == sampled.structure_
    everything = Moments.of(tasks, found.prior_.scaling)

    def evidence(mixture):
        return everything.sums(mixture).sums.log_evidence

    start = sampled.prior_.mixture
    best = evidence(em(everything, start, max_iter=300, tol=1e-10).mixture)
    assert best - evidence(found.prior_.mixture) < 0.05 * (best - evidence(start))
    with pytest.raises(ValueError, match="predict_tasks"):
        found.predict(frame[["x0", "x1"]], frame["user"])
    assert len(found.predict_tasks(frame[:20], support=frame[20:])) == 20


@pytest.mark.usefixtures("few_steps")
def test_two_descriptions_of_a_task_are_found_wherever_they_stand(small_sample, tmp_path):
    frame = long_frame(200, side=True)
    bad = frame.copy()
    row = len(bad) - 1
    bad.loc[row, "age"] += 1.0
    for part in (bad[:800], bad[800:]):
        part.to_parquet(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
    message = rf"column 'age' of task {bad['user'][row]} has the values"
    with pytest.raises(ValueError, match=message):
        EmpiricalBayesLearner().fit(scan(tmp_path, side_columns=["age"], **COLUMNS))
