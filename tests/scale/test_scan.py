"""Long tables read batch by batch: the same tasks from every kind of table, and errors."""

import datetime
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.scale import scan as scan_module

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
duckdb = pytest.importorskip("duckdb")

COLUMNS = {"task": "user", "target": "y", "side_columns": ["age", "town"]}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(scan_module, "BATCH_NUMBERS", 600)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    user = rng.integers(0, 60, size=1_000)
    return pd.DataFrame(
        {
            "user": user,
            "x1": rng.normal(size=1_000),
            "y": rng.normal(size=1_000),
            "x2": rng.integers(0, 5, size=1_000),
            "age": user * 1.5,
            "town": [f"t{u % 3}" for u in user],
        }
    )


def in_files(frame, folder, n_files=3):
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[part].to_parquet(folder / f"part-{i}.parquet", index=False)
    return folder


def in_csv(frame, folder):
    frame.to_csv(folder / "rows.csv", index=False)
    return duckdb.read_csv(folder / "rows.csv")


KINDS = {
    "file": lambda frame, folder: next(in_files(frame, folder / "f", 1).iterdir()),
    "folder": lambda frame, folder: str(in_files(frame, folder / "f")),
    "files": lambda frame, folder: sorted(in_files(frame, folder / "f").iterdir()),
    "pandas": lambda frame, _: frame,
    "polars": lambda frame, _: pl.from_pandas(frame),
    "polars categories": lambda frame, _: pl.from_pandas(frame.astype({"town": "category"})),
    "arrow": lambda frame, _: pa.Table.from_pandas(frame),
    "reader": lambda frame, _: pa.Table.from_pandas(frame).to_reader(max_chunksize=70),
    "dataset": lambda frame, folder: (
        ds.dataset(in_files(frame, folder / "f")).scanner().to_reader()
    ),
    "relation": lambda frame, _: duckdb.from_df(frame),
    "CSV": in_csv,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_the_same_tasks(kind, frame, tmp_path):
    scanned = scan(KINDS[kind](frame, tmp_path), **COLUMNS)
    batches = list(scanned.batches())
    assert len(batches) > 1
    expected = TaskSet.from_frame(frame, **COLUMNS)
    found = TaskSet.merge(tasks for tasks, _ in batches)
    found = found[found.index_of(expected.labels)]
    for name in ("X", "y", "offsets", "side_info", "feature_names"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    if kind in ("reader", "dataset"):
        return
    again = list(scanned.batches())
    for (one, here), (other, there) in zip(batches, again, strict=True):
        assert here == there
        np.testing.assert_array_equal(one.y, other.y)


def test_a_reader_is_read_once(frame):
    reader = pa.Table.from_pandas(frame).to_reader()
    scanned = scan(reader, **COLUMNS)
    EmpiricalBayesLearner(varying=[]).fit(scanned)
    with pytest.raises(ValueError, match="RecordBatchReader has no rows, or can be read only once"):
        EmpiricalBayesLearner(varying=[]).fit(scanned)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("lazy frame", r"call \.collect\(\), or write a parquet file with \.sink_parquet"),
        ("dataset", r"pass dataset\.scanner\(batch_readahead=1\)\.to_reader\(\)"),
        ("frames", r"expected a parquet file, .* a DuckDB relation"),
        ("number", r"expected a parquet file"),
    ],
)
def test_what_is_no_table(kind, advice, frame):
    data = {
        "lazy frame": pl.from_pandas(frame).lazy(),
        "dataset": ds.dataset(pa.Table.from_pandas(frame)),
        "frames": [frame, frame],
        "number": 7,
    }[kind]
    with pytest.raises(TypeError, match=f"data: a .* is not a table that scan reads; {advice}"):
        scan(data, task="user", target="y")


def test_streams_that_are_no_tables(frame):
    mixed = frame.assign(user=[b"raw" if i % 2 else i for i in range(len(frame))])
    for data in (frame["y"], mixed):
        with pytest.raises(ValueError, match=r"data: \w+ cannot be read as an Arrow table"):
            scan(data, **COLUMNS)
    twice = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["user", "y", "y"])
    with pytest.raises(ValueError, match="data: Expected unique column names"):
        scan(twice.to_reader(), task="user", target="y")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*no\.parquet"):
        scan(tmp_path / "no.parquet", task="user", target="y")
    with pytest.raises(FileNotFoundError, match=r"does not contain a \*\.parquet"):
        scan(tmp_path, task="user", target="y")


def test_columns_that_are_not_there(frame):
    with pytest.raises(ValueError, match=r"target must be one of .*'y'"):
        scan(frame, task="user", target="rating")
    with pytest.raises(ValueError, match="features must be one of"):
        scan(frame, task="user", target="y", features=["x3"])
    with pytest.raises(ValueError, match="features names the column 'y'"):
        scan(frame, task="user", target="y", features=["y"])
    with pytest.raises(TypeError, match="task must be the name of one column"):
        scan(frame, task=["user", "x1"], target="y")
    with pytest.raises(TypeError, match=r"Write \['x1'\]"):
        scan(frame, task="user", target="y", features="x1")
    with pytest.raises(ValueError, match="target names the column 'y', as another argument does"):
        scan(frame, task="y", target="y")


def test_a_table_without_features(frame):
    batches = list(scan(frame[["user", "y"]], task="user", target="y").batches())
    assert {tasks.n_features for tasks, _ in batches} == {0}
    assert sum(len(tasks.y) for tasks, _ in batches) == len(frame)


def test_a_file_that_ends_early_is_named(frame, tmp_path):
    folder = in_files(frame, tmp_path / "f")
    whole = (folder / "part-1.parquet").read_bytes()
    (folder / "part-1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"part-1\.parquet is not a complete parquet file"):
        scan(folder, **COLUMNS)
    frame.to_csv(tmp_path / "rows.csv")
    message = r"rows\.csv is not .* If it is a CSV file, pass duckdb\.read_csv"
    with pytest.raises(ValueError, match=message):
        scan(tmp_path / "rows.csv", **COLUMNS)


def test_a_file_whose_rows_cannot_be_read_is_named(frame, tmp_path):
    folder = in_files(frame, tmp_path / "f")
    broken = bytearray((folder / "part-1.parquet").read_bytes())
    broken[4 : len(broken) // 2] = b"\xff" * (len(broken) // 2 - 4)
    (folder / "part-1.parquet").write_bytes(bytes(broken))
    with pytest.raises(ValueError, match=r"part-1\.parquet cannot be read beyond row 0"):
        list(scan(folder, **COLUMNS).batches())


def test_files_that_differ_are_named(frame, tmp_path):
    folder = in_files(frame, tmp_path / "f")
    last = folder / "part-2.parquet"
    part = pd.read_parquet(last)
    part.assign(x3=1.0).to_parquet(last)  # a column that the first file does not have is ignored
    tasks, _ = next(scan(folder, **COLUMNS).batches())
    assert list(tasks.feature_names) == ["x1", "x2"]
    part.drop(columns="x2").to_parquet(last)
    with pytest.raises(ValueError, match=r"part-2\.parquet has no column 'x2'"):
        scan(folder, **COLUMNS)
    part.assign(x2="a").to_parquet(last)
    with pytest.raises(ValueError, match=r"part-2\.parquet, batch .* row 0: .*'x2' is not numeric"):
        list(scan(folder, **COLUMNS).batches())
    part.assign(user=part["user"].astype(str)).to_parquet(last)
    message = r"part-2\.parquet, .* row 0: the labels have another type"
    with pytest.raises(ValueError, match=message):
        list(scan(folder, **COLUMNS).batches())


def test_a_missing_value_is_found(frame, tmp_path):
    bad = frame.copy()
    bad.loc[733, "x1"] = np.nan
    folder = in_files(bad, tmp_path / "f")
    task = bad["user"][733]
    place = rf"part-2\.parquet, batch starting at row 0: .*NaN: task {task}, row 66, column 'x1'"
    with pytest.raises(ValueError, match=place):
        list(scan(folder, **COLUMNS).batches())


@pytest.mark.parametrize("label", [datetime.date(2026, 1, 31), Decimal("1.5"), b"raw"])
def test_labels_of_other_types_are_learned_from(frame, label):
    users = [type(label)(label) if type(label) is not datetime.date else label] * 10
    users += [
        datetime.date.fromordinal(int(u) + 9)
        if isinstance(label, datetime.date)
        else type(label)(int(u))
        for u in frame["user"][10:]
    ]
    rows, columns = frame[["x1", "y"]].assign(user=users), {"task": "user", "target": "y"}
    one, other = (
        EmpiricalBayesLearner().fit(read(rows, **columns)) for read in (scan, TaskSet.from_frame)
    )
    np.testing.assert_array_equal(one.prior_.mixture.means, other.prior_.mixture.means)


PEAK = """
import resource, sys
from pathlib import Path
import duckdb
from tailored import scan
from tailored.scale.disk import DiskSource

def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

path, folder = map(Path, sys.argv[1:])
columns = {"task": "g", "target": "y"}
for name in ("first", "second"):
    (folder / name).mkdir()
DiskSource(scan(duckdb.read_csv(path).limit(500_000), **columns), folder / "first", 0)
before = megabytes()
DiskSource(scan(duckdb.read_csv(path), **columns), folder / "second", 0)
print(megabytes() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured as on Linux")
def test_a_csv_file_is_not_read_into_memory(tmp_path):
    """3,000,000 rows of six columns are 144 MB of numbers; a sixth of them is read before."""
    columns = ", ".join(f"round(random(), 4) AS x{j}" for j in range(4))
    rows = f"SELECT i % 100000 AS g, {columns}, random() AS y FROM range(3000000) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path / 'rows.csv'}' (HEADER)")
    command = [sys.executable, "-c", PEAK, str(tmp_path / "rows.csv"), str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(found.stdout.split()[-1]) < 60


def test_small_batches_of_a_stream_are_joined():
    # In few rows, 30 categories look like identifiers.
    values = np.tile([f"k{i:02d}" for i in range(30)], 20)
    frame = pd.DataFrame({"user": np.arange(600) // 6, "y": np.arange(600.0), "c": values})
    batches = pa.Table.from_pandas(frame).to_batches(max_chunksize=40)
    tasks = scan(pa.Table.from_batches(batches), task="user", target="y").encoding
    expected = TaskSet.from_frame(frame, task="user", target="y").encoding
    assert tasks.features == expected.features
    assert tasks.features[0].counts == expected.features[0].counts
