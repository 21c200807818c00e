"""Rows that stay in their engine: the sums that come back are those of the rows."""

from functools import partial

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.gaussian import TaskStatistics
from tailored.shards import Reservoir, engine
from tailored.shards.disk import read_block
from tailored.tasks import Units

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

COLUMNS = {"task": "user", "target": "y", "side_columns": ["age"]}


def relation(frame):
    return pytest.importorskip("duckdb").from_df(frame)


ENGINES = {
    "polars": lambda frame: pl.from_pandas(frame).lazy(),
    "duckdb": relation,
    "pandas": lambda frame: frame,
}


def long_frame(n_tasks=80, words=False):
    rng = np.random.default_rng(0)
    user = rng.permutation(np.repeat(np.arange(n_tasks), rng.integers(2, 7, size=n_tasks)))
    X = 1e4 + rng.normal(size=(len(user), 2))
    frame = pd.DataFrame(X, columns=["x0", "x1"]).assign(y=1e5 + X.sum(axis=1) + rng.normal(size=len(user)))
    return frame.assign(user=[f"u{u}" for u in user] if words else user, age=user / 7.0)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(engine, "Reservoir", partial(Reservoir, 45))
    monkeypatch.setattr(engine, "ANSWER_NUMBERS", 300)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("name", ENGINES)
def test_sums_made_there_are_those_made_here(name, words, small, tmp_path):
    frame = long_frame(words=words)
    scanned = scan(ENGINES[name](frame), in_engine=True, **COLUMNS)
    found = engine.EngineCollection(scanned, tmp_path, seed=3)
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    expected = Reservoir(45, seed=3).take(tasks)
    assert found.reservoir.limit == expected.limit
    assert not found.reservoir.is_whole
    assert set(found.reservoir.sample.labels.tolist()) == set(expected.tasks.labels.tolist())
    assert found.target_range == (frame["y"].min(), frame["y"].max())
    units = Units.of(expected.tasks, True, centre=True)
    there = found.source(units, lambda some: some.side_info, name="alone")
    assert len(there.blocks) > 1
    here = TaskStatistics.of(tasks, units).totals()
    for part, value in vars(there.totals()).items():
        np.testing.assert_allclose(value, getattr(here, part), rtol=1e-8, atol=1e-8)
    ages = np.concatenate([read_block(path).side[:, 0] for path in there.blocks])
    np.testing.assert_array_equal(np.sort(ages), np.sort(tasks.side_info[:, 0]))


def test_two_descriptions_are_found(small):
    frame = long_frame()
    frame.loc[0, "age"] += 1.0
    scanned = scan(pl.from_pandas(frame).lazy(), in_engine=True, **COLUMNS)
    with pytest.raises(ValueError, match=f"column 'age' of task {frame['user'][0]} is"):
        EmpiricalBayesLearner().fit(scanned)


def test_a_learner_is_fitted_in_an_engine(small):
    frame = long_frame()
    learner = EmpiricalBayesLearner().fit(scan(pl.from_pandas(frame).lazy(), in_engine=True, **COLUMNS))
    assert learner.n_tasks_seen_ == 80
    with pytest.raises(ValueError, match="in_engine: a lazy frame"):
        scan([frame], in_engine=True, **COLUMNS)
    with pytest.raises(ValueError, match="checkpoint: rows stay"):
        learner.fit(scan(frame, in_engine=True, **COLUMNS), checkpoint="c")
