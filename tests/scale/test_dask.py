"""EM on a Dask cluster: a scheduler and two worker processes on loopback, which may die."""

import itertools
from functools import partial

import numpy as np
import pytest

import dying
from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.exceptions import ShardError
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.scale import dask as dask_source
from tailored.scale.base import Blocks, Reader, Reservoir
from tailored.scale.dask import ClusterStatistics, DaskSource, fetch
from tailored.tasks.rows import Scaling

pd = pytest.importorskip("pandas", reason="Dask's frames are pandas'")
dask = pytest.importorskip("dask", reason="clusters need Dask")
dd = pytest.importorskip("dask.dataframe", reason="clusters need Dask")
distributed = pytest.importorskip("distributed", reason="clusters need Dask")
cloudpickle = pytest.importorskip("cloudpickle", reason="Dask comes with it")

# Dask's frames use what pandas will take away.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.usefixtures("no_waiting_for_ever"),
    pytest.mark.usefixtures("short_fits_in_module"),
]

FEATURES = ["x0", "x1", "x2"]


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a process; the third death on one task is an error."""
    cloudpickle.register_pickle_by_value(dying)
    settings = {
        "distributed.scheduler.allowed-failures": 2,
        "distributed.comm.timeouts.connect": "10s",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs="CRITICAL",
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, timeout=20) as client:
        client.wait_for_workers(2, timeout=20)
        yield client


def rows(n_tasks=60, seed=0):
    """A long frame of three kinds of people, whose rows are scattered over it."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 9, size=n_tasks)
    who = rng.permutation(np.repeat(np.arange(n_tasks), sizes))
    X = rng.normal(size=(len(who), 3)) + 5.0
    weights = (
        rng.normal(size=(n_tasks, 3)) * np.array([2.0, 0.5, 0.1])[rng.integers(0, 3, n_tasks), None]
    )
    y = np.einsum("ij,ij->i", X, weights[who]) + 0.3 * rng.normal(size=len(who)) + 7.0
    return pd.DataFrame(X, columns=FEATURES).assign(y=y, person=who)


def mixture(K, d, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, d, d)) / 2.0
    return Mixture(
        np.full(K, 1.0 / K), rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1), 0.4
    )


def same(one, other):
    """Whether two models are the same to the last bit."""
    names = ("proportions", "means", "covariances", "noise")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def shards():
    """Blocks of statistics, each of another size."""
    frame = rows(60)
    tasks = TaskSet.from_frame(frame, task="person", target="y")
    everything = Moments.of(tasks, Scaling.of(tasks, True, centre=True))
    return [everything.take(np.arange(a, b)) for a, b in itertools.pairwise((0, 12, 26, 42, 60))]


def on(client, parts):
    futures = [client.submit(lambda part=part: part, pure=False) for part in parts]
    return ClusterStatistics(client, futures, parts[0].n_features)


@pytest.mark.slow
def test_a_worker_that_dies_half_way_changes_nothing(client, tmp_path):
    parts = shards()
    start = mixture(3, 4)
    # The worker dies in a shard's fourth step, with responsibilities that only it has.
    deadly = dying.Deadly(**vars(parts[1]), folder=str(tmp_path), after=3)
    there = em(on(client, [parts[0], deadly, *parts[2:]]), start, max_iter=9, tol=0.0)
    assert (tmp_path / "death-0").exists()
    loads = [lambda part=part: part for part in parts]
    here = em(Blocks(loads, parts[0].n_features), start, max_iter=9, tol=0.0)
    assert same(there.mixture, here.mixture)
    assert there.log_evidence == here.log_evidence


@pytest.mark.slow
def test_a_shard_that_kills_three_workers_is_an_error(client, tmp_path):
    shards = [client.submit(dying.number, i, 2, str(tmp_path), pure=False) for i in range(5)]
    with pytest.raises(ShardError, match="all workers that processed one partition died"):
        fetch(client, shards)
    assert len(list(tmp_path.glob("death-*"))) >= 3


@pytest.fixture(autouse=True)
def _small_sample(monkeypatch):
    monkeypatch.setattr(dask_source, "Reservoir", partial(Reservoir, size=25))


def frame_of(n_partitions=5, **more):
    return dd.from_pandas(rows().assign(**more), npartitions=n_partitions, sort=False)


def collection(frame):
    return DaskSource(scan(frame, task="person", target="y"), seed=0)


def learned(frame, units):
    """A sample of a Dask frame's tasks, and the model of all of them."""
    tasks = collection(frame)
    source = tasks.statistics(Reader(units))
    return (
        tasks.reservoir.sample,
        em(source, mixture(2, 4), max_iter=8, tol=0.0, accelerate=True).mixture,
        source,
    )


@pytest.mark.slow
def test_a_frame_has_the_same_sample_and_the_same_bits_on_the_cluster(cluster):
    frame = frame_of()
    units = Scaling.of(TaskSet.from_frame(rows(), task="person", target="y"), True, centre=True)
    sample, expected, here = learned(frame, units)
    with distributed.Client(cluster, timeout=20):
        sample_there, found, there = learned(frame, units)
    assert isinstance(here, Blocks)
    assert isinstance(there, ClusterStatistics)
    assert np.array_equal(sample.X, sample_there.X)
    assert same(found, expected)
    # and as the rows in memory, up to the order of sums
    statistics = Moments.of(TaskSet.from_frame(rows(), task="person", target="y"), units)
    plain = em(statistics, mixture(2, 4), max_iter=8, tol=0.0, accelerate=True).mixture
    np.testing.assert_allclose(found.covariances, plain.covariances, rtol=1e-7)


@pytest.mark.slow
def test_the_learner_fitted_on_the_cluster_is_the_one_fitted_here(cluster):
    frame = frame_of(age=lambda rows: rows.person % 7)
    table = scan(frame, task="person", target="y", side_columns=["age"])
    here = EmpiricalBayesLearner().fit(table)
    with distributed.Client(cluster, timeout=20):
        there = EmpiricalBayesLearner().fit(table)
    assert here.training_summary_.n_tasks == there.training_summary_.n_tasks == 60
    few = rows(5, seed=1).assign(age=3)
    prediction = [
        model.predict_tasks(few, task="person", support=few, target="y")["prediction"].to_numpy()
        for model in (here, there)
    ]
    assert np.array_equal(*prediction)


def test_a_dask_frame_is_taken_where_a_frame_is():
    here, there = (
        TaskSet.from_frame(frame, task="person", target="y") for frame in (rows(), frame_of())
    )
    assert np.array_equal(here.X, there.X)
    assert here.labels.tolist() == there.labels.tolist()


def test_more_partitions_than_tasks_leave_shards_empty():
    few = rows().query("person < 3")
    source = collection(dd.from_pandas(few, npartitions=7, sort=False)).statistics(
        Reader(Scaling.raw(3))
    )
    assert source.totals().n_tasks == 3
    assert np.isfinite(source.sums(mixture(2, 3)).sums.second).all()


@pytest.mark.slow
def test_a_partition_that_cannot_be_read_is_an_error(client, tmp_path):
    pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
    frame_of(4).to_parquet(tmp_path / "rows")
    tasks = collection(dd.read_parquet(tmp_path / "rows"))
    assert len(tasks.reservoir.sample) == 25
    files = sorted((tmp_path / "rows").glob("*.parquet"))
    whole = files[2].read_bytes()
    files[2].write_bytes(b"PAR1" + bytes(len(whole) - 8) + b"PAR1")
    with pytest.raises(ShardError, match="a partition failed"):
        tasks.statistics(Reader(Scaling.raw(3)))


def test_a_target_that_is_missing_is_named_with_its_partition():
    frame = rows()
    frame.loc[frame.index[-1], "y"] = np.nan
    tasks = collection(dd.from_pandas(frame, npartitions=4, sort=False))
    with pytest.raises(ShardError, match=r"data: partition 3: .* y .*NaN"):
        tasks.reservoir.sample  # noqa: B018


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_named():
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs="CRITICAL",
        ) as brief,
        distributed.Client(brief.scheduler_address, timeout=2) as client,
    ):
        source = on(client, shards())
        source.sums(mixture(2, 4))
        address = brief.scheduler_address
        brief.close(timeout=10)
        with pytest.raises(ConnectionError, match=f"the connection of .*{address}.* was lost"):
            source.sums(mixture(2, 4))
