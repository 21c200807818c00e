"""Fit to a table of a PostgreSQL server that the test starts, as "howto/database" does."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, scan

pa = pytest.importorskip("pyarrow")
adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="needs ADBC's PostgreSQL driver")


def binaries():
    """Return the folder of PostgreSQL's server programs; None without them."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))  # Debian's packages
    found = shutil.which("initdb") or next(iter(versions), None)
    return None if found is None else Path(found).parent


def connect(address, process):
    """Connect to a server as soon as it accepts connections."""
    for _ in range(300):
        assert process.poll() is None, "the server did not start"
        with suppress(adbc.Error):
            return adbc.connect(address)
        time.sleep(0.1)
    raise TimeoutError(address)


@contextmanager
def server():
    """Start a server on loopback with an empty database; yield a connection to it."""
    programs, is_root = binaries(), hasattr(os, "geteuid") and os.geteuid() == 0
    user = {"user": "nobody", "group": "nogroup"} if is_root else {}  # the server refuses root
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        if is_root:
            shutil.chown(folder, "nobody", "nogroup")
        options = {**user, "cwd": folder, "stdout": subprocess.DEVNULL}
        data = Path(folder, "data")
        init = [programs / "initdb", "-D", data, "-U", "tailored", "-A", "trust", "--no-sync"]
        subprocess.run(init, check=True, **options)
        command = [programs / "postgres", "-D", data, "-k", folder, "-h", "127.0.0.1", "-p", port]
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL, **options)
        try:
            yield connect(f"postgresql://tailored@127.0.0.1:{port}/postgres", process)
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.slow
@pytest.mark.skipif(binaries() is None, reason="needs PostgreSQL's server")
def test_a_table_of_a_database_is_the_table_in_memory():
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(60), 5))
    x, sector = rng.normal(size=300), rng.choice(["public", "private"], 300)
    y = group / 20 + x + (sector == "public") + 0.1 * rng.normal(size=300)
    table = pa.table({"group_id": group, "x": x, "sector": sector, "y": y})
    roles = {"task": "group_id", "target": "y"}
    tasks = TaskSet.from_frame(table, **roles)
    expected = EmpiricalBayesLearner(varying=[]).fit(tasks)
    query = "SELECT group_id, x, sector, y FROM visits ORDER BY visit_id"
    with server() as connection, connection, connection.cursor() as cursor:
        numbered = table.append_column("visit_id", pa.array(np.arange(300)))
        cursor.adbc_ingest("visits", numbered, mode="create")
        cursor.execute(query)
        with pytest.raises(ValueError, match=r"column 'sector' holds categories .* Pass encoding="):
            list(scan(cursor.fetch_record_batch(), **roles).batches())
        cursor.execute(query)
        rows = scan(cursor.fetch_record_batch(), encoding=tasks.encoding, **roles)
        found = EmpiricalBayesLearner(varying=[]).fit(rows)
        cursor.execute(f"{query} LIMIT 10")
        new = cursor.fetch_arrow_table()
    means = [learner.prior_.mixture.means for learner in (found, expected)]
    np.testing.assert_array_equal(*means)
    prediction = found.predict_tasks(new)["prediction"]
    assert np.abs(prediction - new["y"].to_numpy()).max() < 0.5
