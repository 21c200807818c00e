"""All task sources give the same sample, the same range of targets and the same sums."""

from functools import partial

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.gaussian import moments, rows
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.scale import base, disk
from tailored.scale import dask as dask_source
from tailored.scale.base import MemorySource, Reader, Reservoir
from tailored.scale.dask import DaskSource
from tailored.scale.disk import DiskSource
from tailored.selection import data
from tailored.selection.steps import low_rank
from tailored.tasks.rows import Scaling

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

pd = pytest.importorskip("pandas")

COLUMNS = {"task": "user", "target": "y", "side_columns": ["age"]}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    user = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 8, size=60)))
    X = 5.0 + rng.normal(size=(len(user), 2))
    return pd.DataFrame(X, columns=["x0", "x1"]).assign(
        y=X.sum(axis=1) + user / 9 + rng.normal(size=len(user)), user=user, age=np.sin(user)
    )


def from_memory(frame, folder):
    return MemorySource(TaskSet.from_frame(frame, **COLUMNS), seed=3)


def from_disk(frame, folder):
    return DiskSource(scan(frame, **COLUMNS), folder, seed=3)


def from_dask(frame, folder):
    dd = pytest.importorskip("dask.dataframe", reason="needs Dask")
    return DaskSource(scan(dd.from_pandas(frame, npartitions=4, sort=False), **COLUMNS), seed=3)


def residuals(tasks):
    return tasks.replace(y=tasks.y - tasks.X[:, 0])


def side(tasks):
    return tasks.side_info.astype(float)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # Dask uses deprecated functions of pandas
@pytest.mark.parametrize("subtract", [None, residuals])
@pytest.mark.parametrize("make", [from_memory, from_disk, from_dask])
def test_sources_agree(make, subtract, frame, monkeypatch, tmp_path):
    monkeypatch.setattr(base, "BLOCK_FLOATS", 9 * 7)
    for module in (base, disk, dask_source):
        monkeypatch.setattr(module, "Reservoir", partial(Reservoir, size=25))
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    scaling = Scaling.of(tasks, True, centre=True)
    expected = Moments.of(tasks if subtract is None else subtract(tasks), scaling, side(tasks))
    rng = np.random.default_rng(1)
    model = Mixture(
        np.array([0.4, 0.6]),
        rng.normal(size=(2, 3)),
        np.array([np.eye(3), np.diag([2.0, 1.0, 0.5])]),
        0.7,
        rng.normal(size=(3, 1)),
    )

    source = make(frame, tmp_path)
    assert len(source.reservoir.sample) == 25
    assert set(source.reservoir.sample.labels) == set(
        Reservoir(25, seed=3).take(tasks).sample.labels
    )
    statistics = source.statistics(Reader(scaling, side, subtract))
    assert statistics.n_features == 3
    first = statistics.sums(model)
    second = statistics.sums(model, first.shares)
    for found, value in (
        (statistics.totals(), expected.totals()),
        (first.sums, expected.sums(model).sums),
    ):
        for name in vars(value):
            np.testing.assert_allclose(
                getattr(found, name), getattr(value, name), rtol=1e-9, atol=1e-9
            )
    # Negligible shares are left out of the second sums.
    np.testing.assert_allclose(second.sums.counts, first.sums.counts, atol=1e-3)


def low_rank_frame(n_tasks, n_features=7, n_rows=6, seed=0):
    """Return rows whose coefficients have two directions and follow one of two side columns."""
    rng = np.random.default_rng(seed)
    B = np.linalg.qr(rng.standard_normal((n_features, 2)))[0]
    user, age = np.repeat(np.arange(n_tasks), n_rows), rng.standard_normal((n_tasks, 2))
    w = (2.0 * rng.standard_normal((n_tasks, 2)) + 2.0 * age[:, :1] * [1.0, -1.0]) @ B.T
    X = rng.standard_normal((len(user), n_features))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(n_features)])
    y = np.sum(X * w[user], axis=1) + 0.3 * rng.standard_normal(len(user))
    return frame.assign(y=y, user=user, age=age[user, 0], other=age[user, 1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("size", "compiled"), [(5000, True), (60, False)])
def test_low_rank_and_relevance_are_the_same_from_all_sources(size, compiled, monkeypatch):
    """With fewer tasks than a sample contains, and with more; from moments, and from rows."""
    dd = pytest.importorskip("dask.dataframe", reason="needs Dask")
    monkeypatch.setattr(data, "WIDE", 7)
    monkeypatch.setattr(low_rank, "LOW_RANK", 7)
    monkeypatch.setattr(low_rank, "MOST_FACTORS", 2)
    monkeypatch.setattr(EmpiricalBayesLearner, "_n_folds", 2)
    monkeypatch.setattr(
        Reservoir.__init__, "__defaults__", (size, *Reservoir.__init__.__defaults__[1:])
    )
    for module in (rows, moments):
        monkeypatch.setattr(module, "COMPILED_COLUMNS", 64 if compiled else 6)
    monkeypatch.setattr(rows, "ROWS_PER_COLUMN", 0.5 if compiled else 2.0)
    frame, columns = low_rank_frame(90, seed=1), {**COLUMNS, "side_columns": ["age", "other"]}
    tasks = TaskSet.from_frame(frame, **columns)
    expected = EmpiricalBayesLearner(loss="squared").fit(tasks)
    assert expected.structure_["kind"] == "low rank"
    assert expected.side_structure_["columns"] == [0]
    assert expected.predict(frame[list(tasks.feature_names)], groups=frame["user"]).shape == (
        len(frame),
    )
    dask_frame = dd.from_pandas(frame, npartitions=3, sort=False)
    for table in (frame, dask_frame):
        other = EmpiricalBayesLearner(loss="squared").fit(scan(table, **columns))
        assert other.structure_ == expected.structure_
        assert other.training_summary_.n_tasks == 90
        for name in ("means", "covariances", "side", "noise"):
            found, value = (getattr(learner.prior_.model, name) for learner in (other, expected))
            np.testing.assert_allclose(found, value, atol=1e-8)


def curved_frame():
    """Return rows with random intercepts and a curve."""
    rng = np.random.default_rng(2)
    user, x = np.repeat(np.arange(50), 12), rng.uniform(-2.0, 2.0, 600)
    y = rng.normal(size=50)[user] + x**2 + 0.5 * rng.normal(size=600)
    return pd.DataFrame({"x": x, "y": y, "user": user})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("size", [5000, 40])
def test_shared_effects_are_the_same_from_all_sources(size, monkeypatch):
    """With fewer tasks than a sample contains, and with more."""
    dd = pytest.importorskip("dask.dataframe", reason="needs Dask")
    frame, columns = curved_frame(), {"task": "user", "target": "y"}
    for module in (base, disk, dask_source):
        monkeypatch.setattr(module, "Reservoir", partial(Reservoir, size=size))
    tasks = TaskSet.from_frame(frame, **columns)
    expected = EmpiricalBayesLearner().fit(tasks)
    assert expected.prior_.shared is not None
    value = expected.predict_tasks(tasks, tasks)["prediction"]
    parts = scan(dd.from_pandas(frame, npartitions=3), **columns)
    for table in (scan(frame, **columns), parts):
        found = EmpiricalBayesLearner().fit(table).predict_tasks(tasks, tasks)["prediction"]
        np.testing.assert_allclose(found, value, rtol=1e-8, atol=1e-8)
