"""Long tables read batch by batch: the same tasks from every kind of table, and errors that name the place."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.sources import tables

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ds = pytest.importorskip("pyarrow.dataset")

COLUMNS = {"task": "user", "target": "y", "side_columns": ["age", "town"]}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(tables, "MIN_ROWS", 100)
    monkeypatch.setattr(tables, "MAX_ROWS", 100)


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


def relation(frame):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_df(frame)  # a connection of its own may end before the relation is read


KINDS = {
    "file": lambda frame, folder: next(in_files(frame, folder / "f", 1).iterdir()),
    "folder": lambda frame, folder: str(in_files(frame, folder / "f")),
    "files": lambda frame, folder: sorted(in_files(frame, folder / "f").iterdir()),
    "pandas": lambda frame, _: frame,
    "polars": lambda frame, _: pl.from_pandas(frame),
    "arrow": lambda frame, _: pa.Table.from_pandas(frame),
    "reader": lambda frame, _: pa.Table.from_pandas(frame).to_reader(max_chunksize=70),
    "dataset": lambda frame, folder: ds.dataset(in_files(frame, folder / "f")),
    "lazy frame": lambda frame, _: pl.from_pandas(frame).lazy(),
    "lazy files": lambda frame, folder: pl.scan_parquet(
        in_files(frame, folder / "f") / "*.parquet"
    ),
    "relation": lambda frame, _: relation(frame),
    "frames": lambda frame, _: [frame[:400], frame[400:]],
    "generator": lambda frame, _: (frame[i : i + 300] for i in range(0, 1_000, 300)),
    "batches": lambda frame, _: pa.Table.from_pandas(frame).to_batches(max_chunksize=300),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_is_the_same_tasks(kind, frame, tmp_path):
    scanned = scan(KINDS[kind](frame, tmp_path), **COLUMNS)
    pieces = [batch.tasks for batch in scanned.batches()]
    assert len(pieces) > 1
    expected = TaskSet.from_frame(frame, **COLUMNS)
    found = TaskSet.merge(pieces)
    found = found[found.index_of(expected.labels)]
    for name in ("X", "y", "offsets", "side_info", "feature_names"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.side_names == expected.side_names == ["age", "town"]
    assert (found.encoding.task, found.encoding.target) == ("user", "y")


@pytest.mark.parametrize("kind", ["folder", "lazy frame", "relation", "pandas"])
def test_a_table_is_read_twice_in_the_same_order(kind, frame, tmp_path):
    scanned = scan(KINDS[kind](frame, tmp_path), features=["x2"], **COLUMNS)
    first, second = (list(scanned.batches()) for _ in range(2))
    assert [batch.position for batch in first] == [batch.position for batch in second]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.tasks.y, other.tasks.y)


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
    with pytest.raises(ValueError, match="target names the column 'y', which is the task's label"):
        scan(frame, task="y", target="y")


def test_a_table_without_features(frame):
    batches = list(scan(frame[["user", "y"]], task="user", target="y").batches())
    assert {batch.tasks.n_features for batch in batches} == {0}
    assert sum(len(batch.tasks.y) for batch in batches) == len(frame)


def test_what_is_no_table(tmp_path):
    with pytest.raises(TypeError, match="data: expected a parquet file"):
        scan(7, task="user", target="y")
    with pytest.raises(FileNotFoundError, match=r"no\.parquet"):
        scan(tmp_path / "no.parquet", task="user", target="y")
    assert repr(scan(pd.DataFrame({"u": [1], "y": [1.0]}), task="u", target="y")).endswith(
        ", task='u', target='y')"
    )
    with pytest.raises(FileNotFoundError, match=r"does not contain a \*\.parquet"):
        scan(tmp_path, task="user", target="y")
    with pytest.raises(TypeError, match="item 1 of the iterable is a int"):
        list(
            scan(
                [pd.DataFrame({"u": [1], "y": [1.0], "x": [1.0]}), 3], task="u", target="y"
            ).batches()
        )


def test_a_file_that_ends_early_is_named(frame, tmp_path):
    folder = in_files(frame, tmp_path / "f")
    whole = (folder / "part-1.parquet").read_bytes()
    (folder / "part-1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"part-1\.parquet is not a complete parquet file"):
        scan(folder, **COLUMNS)
    frame.to_csv(tmp_path / "rows.csv")
    with pytest.raises(
        ValueError, match=r"rows\.csv is not .* If it is a CSV file, pass polars\.scan_csv"
    ):
        scan(tmp_path / "rows.csv", **COLUMNS)


def test_a_file_whose_rows_cannot_be_read_is_named(frame, tmp_path):
    folder = in_files(frame, tmp_path / "f")
    broken = bytearray((folder / "part-1.parquet").read_bytes())
    broken[4 : len(broken) // 2] = b"\xff" * (len(broken) // 2 - 4)
    (folder / "part-1.parquet").write_bytes(bytes(broken))
    with pytest.raises(ValueError, match=r"part-1\.parquet cannot be read beyond row 0"):
        list(scan(folder, **COLUMNS).batches())


def test_columns_that_change_half_way_are_named(frame, tmp_path):
    folder = in_files(frame, tmp_path / "f")
    pd.read_parquet(folder / "part-2.parquet").drop(columns="x2").to_parquet(
        folder / "part-2.parquet"
    )
    with pytest.raises(ValueError, match=r"part-2\.parquet has no column 'x2'"):
        scan(folder, **COLUMNS)
    with pytest.raises(ValueError, match=r"batch starting at row 500 has no column 'x2'"):
        list(scan([frame[:500], frame[500:].drop(columns="x2")], **COLUMNS).batches())
    more = frame[500:].assign(x3=1.0)
    with pytest.raises(ValueError, match=r"row 500 has the new column 'x3'"):
        list(scan([frame[:500], more], **COLUMNS).batches())
    # what was not asked for may come and go
    assert list(scan([frame[:500], more], features=["x1"], **COLUMNS).batches())


def test_types_that_change_half_way_are_named(frame):
    words = frame[500:].assign(x2="a")
    with pytest.raises(ValueError, match=r"row 500: Feature column 'x2' is not numeric"):
        list(scan([frame[:500], words], **COLUMNS).batches())
    labels = frame[500:].assign(user=frame["user"][500:].astype(str))
    with pytest.raises(
        ValueError, match="data, batch starting at row 500: the labels have another type"
    ):
        list(scan([frame[:500], labels], **COLUMNS).batches())


def test_a_missing_value_is_found(frame, tmp_path):
    bad = frame.copy()
    bad.loc[733, "x1"] = np.nan
    folder = in_files(bad, tmp_path / "f")
    place = rf"part-2\.parquet, batch starting at row 0: .*NaN: task {bad['user'][733]}, row 66, column 'x1'"
    with pytest.raises(ValueError, match=place):
        list(scan(folder, **COLUMNS).batches())


@pytest.mark.parametrize("label", [datetime.date(2026, 1, 31), Decimal("1.5"), b"raw"])
def test_labels_of_other_types_are_learned_from(frame, label):
    users = [label if i % 2 else user for i, user in enumerate(frame["user"])]
    rows, columns = frame[["x1", "y"]].assign(user=users), {"task": "user", "target": "y"}
    one, other = (
        EmpiricalBayesLearner().fit(read(rows, **columns)) for read in (scan, TaskSet.from_frame)
    )
    np.testing.assert_array_equal(one.prior_.mixture.means, other.prior_.mixture.means)
