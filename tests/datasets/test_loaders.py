"""Loaders against small files in the official layouts, served from loopback."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from loopback import serve
from same_tasks import equal
from small_files import (
    OFFICIAL,
    RATINGS,
    SMALL,
    as_csv,
    as_xls,
    jester_table,
    lenk_file,
    movielens_files,
    zipped,
)
from tailored.datasets import _ratings, fetch_jester, fetch_lenk, fetch_movielens
from tailored.exceptions import DamagedFileError

FETCHERS: dict[str, Callable[..., Any]] = {
    "lenk": fetch_lenk,
    "movielens": fetch_movielens,
    "jester": fetch_jester,
}
SOURCES = {"lenk": (_ratings, "LENK"), "movielens": (_ratings, "MOVIELENS"), "jester": (_ratings, "JESTER")}


def without_bytes(value: Any) -> str | None:
    """Names of cases: files that hold the time of their making are other names in every process."""
    return "content" if isinstance(value, bytes) else None


@pytest.mark.parametrize("name", FETCHERS)
def test_download_from_loopback(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, (module, record) = OFFICIAL[name](), SOURCES[name]
    source = getattr(module, record)
    with serve() as server:
        server.files[source.file] = content
        published = replace(
            source,
            url=server.url(source.file),
            mirrors=(),
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
        )
        monkeypatch.setattr(module, record, published)
        data = FETCHERS[name](data_home=tmp_path, **SMALL[name])
        again = FETCHERS[name](data_home=tmp_path, download=False, **SMALL[name])
        assert len(server.asked) == 1
    assert [p.name for p in tmp_path.iterdir()] == [published.file]
    local = FETCHERS[name](path=tmp_path / published.file, **SMALL[name])
    assert equal(data.tasks, again.tasks)
    assert equal(data.tasks, local.tasks)
    assert data.origin == str(tmp_path / published.file)
    assert data.licence in data.DESCR
    assert source.citation in data.DESCR
    assert len(data.feature_names) == data.tasks.n_features == len(set(data.feature_names))
    assert data.target_range[0] <= data.tasks.y.min() <= data.tasks.y.max() <= data.target_range[1]


def test_lenk(tmp_path: Path) -> None:
    (tmp_path / "lenk").mkdir()
    (tmp_path / "lenk" / "lenk_data.mat").write_bytes(lenk_file(people=5))
    data = fetch_lenk(path=tmp_path)
    raw = scipy.io.loadmat(io.BytesIO(lenk_file(people=5)))
    assert data.tasks.labels.tolist() == [0, 1, 2, 3, 4]
    assert data.n_train_rows == 16
    assert data.feature_names[-1] == "price"
    for t, task in enumerate(data.tasks):
        rows = [
            *raw["Traindata"][16 * t : 16 * t + 16].tolist(),
            *raw["Testdata"][4 * t : 4 * t + 4].tolist(),
        ]
        assert task.X.tolist() == [row[1:14] for row in rows]
        assert task.y.tolist() == [row[14] for row in rows]

    constant = fetch_lenk(path=tmp_path, add_constant=True)
    assert constant.feature_names == [*data.feature_names, "constant"]
    assert np.array_equal(constant.tasks.X, np.column_stack([data.tasks.X, np.ones(100)]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a mat file" * 20, "cannot be read"),
        (lenk_file()[:-30], "cannot be read"),
        (lenk_file(Testdata=None), "KeyError: 'Testdata'"),
        (lenk_file(Traindata=np.ones((17, 15))), "cannot reshape"),
        (lenk_file(Traindata=np.ones((32, 15))), "cannot be read.*dimension"),
        (lenk_file(Testdata=np.zeros((12, 15))), "first column should be the constant 1"),
    ],
    ids=without_bytes,
)
def test_bad_lenk(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "lenk_data.mat").write_bytes(content)
    with pytest.raises(ValueError, match=rf"lenk_data\.mat.*{message}|{message}.*lenk_data\.mat"):
        fetch_lenk(path=tmp_path)


@pytest.fixture
def movielens_folder(tmp_path: Path) -> Path:
    for name, content in movielens_files().items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_movielens(movielens_folder: Path) -> None:
    data = fetch_movielens(path=movielens_folder, n_items=3, min_ratings=2)
    # 10 and 30 tie, and the smaller id goes first.
    assert data.item_ids.tolist() == [10, 30, 20]
    assert data.feature_names == ["Misérables, Les (1995)", "Chasing Amy (1997) [30]", "Kolya (1996)"]
    assert data.tasks.labels.tolist() == [2, 7]
    assert [t.y.tolist() for t in data.tasks] == [[5, 4, 2], [3, 5, 4]]
    assert [t.X.argmax(axis=1).tolist() for t in data.tasks] == [[0, 2, 1], [0, 2, 1]]
    assert np.array_equal(data.tasks.X.sum(axis=1), np.ones(6))
    assert data.tasks.side_names == data.side_names == ["age", "sex", "occupation"]
    assert data.tasks.side_info.tolist() == [[53.0, "F", "other"], [57.0, "M", "administrator"]]


def test_movielens_ties_go_by_id(movielens_folder: Path) -> None:
    (movielens_folder / "u.data").write_bytes(movielens_files([*RATINGS, (5, 40, 3), (9, 30, 1)])["u.data"])
    data = fetch_movielens(path=movielens_folder, n_items=None, min_ratings=1)
    assert data.item_ids.tolist() == [30, 10, 20, 40]
    data = fetch_movielens(path=movielens_folder, n_items=3, min_ratings=1)
    assert data.item_ids.tolist() == [30, 10, 20]


def test_movielens_any_order_and_newline(movielens_folder: Path, tmp_path_factory: Any) -> None:
    data = fetch_movielens(path=movielens_folder, n_items=4, min_ratings=1)
    shuffled = random.Random(1).sample(RATINGS, len(RATINGS))
    archive = tmp_path_factory.mktemp("other") / "ml-100k.zip"
    archive.write_bytes(zipped(movielens_files(shuffled, newline="\r\n"), "ml-100k/"))
    assert equal(data.tasks, fetch_movielens(path=archive, n_items=4, min_ratings=1).tasks)


def test_movielens_sparse(movielens_folder: Path) -> None:
    options = {"path": movielens_folder, "n_items": None, "min_ratings": 1}
    dense, sparse = (fetch_movielens(sparse=sparse, **options).tasks for sparse in (None, True))
    assert not sp.issparse(dense.X)
    assert sp.issparse(sparse.X)
    assert equal(dense, sparse)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("u.data", b"", "u.data.*cannot be read"),
        ("u.data", b"7\t30\t4\t87\n7\t10\n", "u.data.*cannot be read.*row 2"),
        ("u.data", b"7\t30\tfour\t87\n", "u.data.*cannot be read.*row 0"),
        ("u.data", b"7\t30\t4\n", "u.data.*not enough values to unpack"),
        ("u.data", b"7\t30\t4\t1\n7\t10\t9\t1\n", "line 2 has the rating 9, outside 1 to 5"),
        ("u.data", b"7\t30\t4\t1\n7\t30\t5\t2\n", "user 7 rated item 30 more than once"),
        ("u.user", b"2|53|F|other|T8H1N\n", "u.user.*KeyError: 5"),
        ("u.user", b"2|53|F|other|T8H1N\n3|old|F|x|1\n", "u.user.*could not convert string to float: 'old'"),
        ("u.item", b"10|Kolya\n20|Misty", "u.item.*KeyError: 30"),
        ("u.item", b"ten|Kolya\n", "u.item.*invalid literal for int"),
        ("u.item", b"10\n", "u.item.*IndexError"),
    ],
    ids=without_bytes,
)
def test_bad_movielens(name: str, content: bytes, message: str, movielens_folder: Path) -> None:
    (movielens_folder / name).write_bytes(content)
    with pytest.raises(DamagedFileError, match=message):
        fetch_movielens(path=movielens_folder, n_items=None, min_ratings=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_items": 5}, ValueError, "n_items=5, but .* has ratings of 4 items only"),
        ({"n_items": 0}, ValueError, "n_items must be an integer >= 1"),
        ({"n_items": 2.0}, TypeError, "n_items must be an integer"),
        ({"n_items": 2, "min_ratings": 3}, ValueError, "no user .* min_ratings=3 of the 2 .* rated is 2"),
        ({"n_items": 2, "min_ratings": -1}, ValueError, "min_ratings must be an integer >= 1"),
    ],
)
def test_bad_selection(
    options: dict[str, Any], error: type[Exception], message: str, movielens_folder: Path
) -> None:
    with pytest.raises(error, match=message):
        fetch_movielens(path=movielens_folder, **options)


JESTER_FILES: dict[str, Callable[[list[list[Any]]], bytes]] = {
    "jester-data-1.xls": as_xls,
    "jester-data-1.csv": as_csv,
    "jester-data-1.csv.gz": lambda rows: gzip.compress(as_csv(rows)),
    "jester-5k.csv.gz": lambda rows: gzip.compress(as_csv(rows)),
    "jester_dataset_1_1.zip": lambda rows: zipped({"jester-data-1.xls": as_xls(rows)}),
}


@pytest.mark.parametrize("file", JESTER_FILES)
def test_jester(file: str, tmp_path: Path) -> None:
    rows = jester_table()
    (tmp_path / file).write_bytes(JESTER_FILES[file](rows))
    data = fetch_jester(path=tmp_path, n_items=8, min_ratings=3, shift=11)

    counts = {j: sum(row[j] != 99 for row in rows) for j in range(1, 101)}
    jokes = sorted(counts, key=lambda j: (-counts[j], j))[:8]
    expected = {
        user: [(j, row[j] + 11) for j in sorted(jokes) if row[j] != 99]
        for user, row in enumerate(rows)
        if sum(row[j] != 99 for j in jokes) >= 3
    }
    assert data.item_ids.tolist() == jokes
    assert data.feature_names[0] == f"joke {jokes[0]}"
    assert data.target_range == (1.0, 21.0)
    assert data.tasks.labels.tolist() == list(expected)
    for task in data.tasks:
        assert [jokes[column] for column in task.X.argmax(axis=1)] == [j for j, _ in expected[task.label]]
        assert task.y.tolist() == pytest.approx([y for _, y in expected[task.label]])
    assert equal(data.tasks, fetch_jester(path=tmp_path / file, n_items=8, min_ratings=3, shift=11).tasks)


def spoilt(row: int, column: int, value: Any) -> list[list[Any]]:
    rows: list[list[Any]] = jester_table()
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("j.csv", as_csv(spoilt(2, 5, 10.5)), r"row 3 rates joke 5 with 10\.5"),
        ("j.csv", as_csv(spoilt(2, 5, float("nan"))), "row 3 rates joke 5 with nan"),
        ("j.csv", as_csv(spoilt(2, 5, "")), "cannot be read"),
        ("j.csv", as_csv(jester_table())[:-20], "cannot be read"),
        ("j.csv", b" \n", "cannot be read"),
        ("j.csv", b"1,2,3\n", r"101 columns.*shape is \(1, 3\)"),
        ("j.csv.gz", gzip.compress(as_csv(jester_table()))[:-100], "cannot be read"),
        ("j.xls", as_xls(spoilt(1, 3, "joke")), "could not convert string to float: 'joke'"),
        ("j.xls", as_xls(jester_table())[:3000], "cannot be read"),
        ("j.xls", b"1,2,3", "cannot be read"),
    ],
    ids=without_bytes,
)
def test_bad_jester(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file}.*{message}"):
        fetch_jester(path=tmp_path / file)


def test_jester_without_xlrd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jester-data-1.xls").write_bytes(as_xls(jester_table()))
    monkeypatch.setitem(sys.modules, "xlrd", None)
    with pytest.raises(ImportError, match=r"'\.\[all\]'"):
        fetch_jester(path=tmp_path)


@pytest.mark.parametrize("shift", ["11", np.nan, None])
def test_bad_shift(shift: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="shift must be"):
        fetch_jester(path=tmp_path, shift=shift)
