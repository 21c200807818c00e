"""Cells of the studies and of a search on the workers of a Dask cluster: the results of one machine."""

import json
import socket

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold
from typer.testing import CliRunner

from studies.__main__ import app
from studies.files import ResultsError, WorkerError
from studies.parallel import connect, in_any_order, on_scheduler
from studies.reproduction.table import TABLE_FILE, read_rows
from tailored import EmpiricalBayesLearner
from tailored.datasets import make_clusters
from tiny import TINY

dask = pytest.importorskip("dask", reason="clusters need Dask")
distributed = pytest.importorskip("distributed", reason="clusters need Dask")


@pytest.fixture(scope="module")
def address():
    settings = {"distributed.scheduler.allowed-failures": 0}
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
        yield cluster.scheduler_address


pytestmark = pytest.mark.usefixtures("no_waiting_for_ever")


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_reproduction(address, tmp_path):
    config = tmp_path / "tiny.toml"
    config.write_bytes(TINY)
    here = invoke("reproduce", config, "--out", tmp_path / "here", "--jobs", 1, "--no-figures")
    assert here.exit_code == 0, here.output
    there = invoke("reproduce", config, "--out", tmp_path / "there", "--scheduler", address, "--no-figures")
    assert there.exit_code == 0, there.output
    tables = [list(read_rows(tmp_path / place / TABLE_FILE)) for place in ("here", "there")]
    assert tables[0]
    assert tables[0] == tables[1]


def test_benchmark(address, tmp_path):
    common = ("benchmark", "clusters-2", "--method", "task mean", "--method", "mixed model", "--seeds", 1)
    common = (*common, "--first-seed", 0)
    results = []
    for place, where in (("here", ("--jobs", 1)), ("there", ("--scheduler", address))):
        done = invoke(*common, "--out", tmp_path / place, *where)
        assert done.exit_code == 0, done.output
        cells = sorted((tmp_path / place / "cells").glob("*.json"))
        results.append({cell.name: json.loads(cell.read_text())["error"] for cell in cells})
    assert len(results[0]) == 2
    assert results[0] == results[1]


def test_a_search(address):
    tasks = make_clusters(10, n_clusters=1, n_rows=5, n_features=2, rank=1, random_state=0)
    groups = np.repeat(tasks.labels, tasks.sizes)

    def searched():
        with sklearn.config_context(enable_metadata_routing=True):
            learner = EmpiricalBayesLearner().set_score_request(groups=True)
            search = GridSearchCV(learner, {"calibrate": [True, False]}, cv=GroupKFold(2), refit=False)
            return search.fit(tasks.X, tasks.y, groups=groups).cv_results_["mean_test_score"]

    here = searched()
    with (
        distributed.Client(address, timeout=20) as client,
        joblib.parallel_config(backend="dask", client=client),
    ):
        there = searched()
    assert np.array_equal(here, there)


def end(cell):
    """Work that ends its process."""
    import os

    os._exit(1)


def test_a_cell_that_ends_its_workers(address):
    import cloudpickle

    import test_cells_on_a_cluster as here

    cloudpickle.register_pickle_by_value(here)
    with pytest.raises(WorkerError, match="a cell ends every worker that takes it"), on_scheduler(address):
        list(in_any_order(end, [(1,)], -1))


def test_a_folder_that_workers_do_not_see(address, tmp_path):
    with pytest.raises(ResultsError, match="does not see the folder"), on_scheduler(address, tmp_path / "no"):
        pass


def test_a_scheduler_that_is_not_there_and_jobs_that_it_cannot_honour(monkeypatch, tmp_path):
    monkeypatch.setattr("studies.parallel.TIMEOUT", 1.0)
    config = tmp_path / "tiny.toml"
    config.write_bytes(TINY)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    options = ("reproduce", config, "--out", tmp_path / "out", "--scheduler", address)
    done = invoke(*options)
    assert done.exit_code == 1
    assert f"no Dask scheduler answers at {address}" in " ".join(done.output.split())
    assert invoke(*options, "--jobs", 3).exit_code == 2


def test_a_cluster_without_workers_is_named():
    with distributed.LocalCluster(
        n_workers=0, protocol="tcp", host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as empty:
        address = empty.scheduler_address
        with pytest.raises(ConnectionError, match=f"{address} has no workers after 0.5 s"):
            connect(address, timeout=0.5)
