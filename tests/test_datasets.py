"""The loaders, on small files in the official layouts and on the real ones where they are; what is drawn."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import random
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import xlwt

from loopback import serve
from tailored.datasets import (
    CURVES,
    CircleTruth,
    ClusterTruth,
    _jester,
    _lenk,
    _movielens,
    fetch_jester,
    fetch_lenk,
    fetch_movielens,
    make_circle,
    make_clusters,
)
from tailored.tasks import TaskSet

FETCHERS: dict[str, Callable[..., Any]] = {
    "lenk": fetch_lenk,
    "movielens": fetch_movielens,
    "jester": fetch_jester,
}
MODULES = {"lenk": _lenk, "movielens": _movielens, "jester": _jester}

# Where the variable points before the fixture below hides it, or beside the project's own folder.
REAL = Path(os.environ.get("TAILORED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAILORED_DATA", "TAILORED_DATA_HOME", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def equal(a: TaskSet, b: TaskSet) -> bool:
    dense = [t.X.toarray() if sp.issparse(t.X) else t.X for t in (a, b)]
    return (
        np.array_equal(*dense)
        and np.array_equal(a.y, b.y)
        and np.array_equal(a.labels, b.labels)
        and np.array_equal(a.offsets, b.offsets)
        and np.array_equal(a.side_info, b.side_info)
    )


# ------------------------------------------------------------------- small files in the official layouts


def lenk_file(people: int = 3, **changes: Any) -> bytes:
    rng = np.random.default_rng(0)
    parts = {}
    for name, rows in (("Traindata", 16), ("Testdata", 4)):
        part = rng.choice([-1, 1], size=(people * rows, 15)).astype(np.int16)
        part[:, 0], part[:, -1] = 1, rng.integers(0, 11, size=len(part))
        parts[name] = part
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {k: v for k, v in (parts | changes).items() if v is not None})
    return buffer.getvalue()


# Movies 30 and 10 have three ratings, 20 two and 40 one; users 5 and 9 gave one rating each.
RATINGS = [
    (7, 30, 4), (2, 40, 1), (2, 10, 5), (7, 10, 3), (2, 30, 2), (5, 30, 1), (2, 20, 4), (7, 20, 5),
    (9, 10, 2),
]  # fmt: skip
USERS = {
    2: (53, "F", "other"),
    5: (33, "F", "writer"),
    7: (57, "M", "administrator"),
    9: (29, "M", "student"),
}
TITLES = {
    10: "Misérables, Les (1995)",
    20: "Kolya (1996)",
    30: "Chasing Amy (1997)",
    40: "Chasing Amy (1997)",
}


def movielens_files(ratings: list[tuple[int, int, int]] = RATINGS, newline: str = "\n") -> dict[str, bytes]:
    def text(lines: list[str]) -> bytes:
        return "".join(line + newline for line in lines).encode("latin-1")

    return {
        "u.data": text([f"{u}\t{i}\t{r}\t87{k}" for k, (u, i, r) in enumerate(ratings)]),
        "u.user": text([f"{u}|{age}|{sex}|{job}|T8H1N" for u, (age, sex, job) in USERS.items()]),
        "u.item": text([f"{i}|{title}|01-Jan-1995||http://x|0|1" for i, title in TITLES.items()]),
    }


def zipped(files: dict[str, bytes], folder: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(folder + name, content)
    return buffer.getvalue()


def jester_table(n_users: int = 6) -> list[list[float]]:
    """Joke j (from 1) is rated by the users whose number from 0 is at least (j * 7) % n_users."""
    draw = random.Random(0)
    rows = []
    for user in range(n_users):
        ratings = [
            round(draw.uniform(-10, 10), 2) if user >= (j * 7) % n_users else 99.0 for j in range(1, 101)
        ]
        rows.append([float(sum(r != 99 for r in ratings)), *ratings])
    return rows


def as_xls(rows: list[list[Any]]) -> bytes:
    book = xlwt.Workbook()
    sheet = book.add_sheet("jester-data-1-new")
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            sheet.write(i, j, value)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def as_csv(rows: list[list[Any]]) -> bytes:
    return "".join(",".join(f"{v:g}" if v != "" else "" for v in row) + "\n" for row in rows).encode()


OFFICIAL = {
    "lenk": lambda: lenk_file(),
    "movielens": lambda: zipped(movielens_files(), "ml-100k/"),
    "jester": lambda: zipped({"jester-data-1.xls": as_xls(jester_table())}),
}
SMALL: dict[str, dict[str, Any]] = {
    "lenk": {},
    "movielens": {"n_items": 3, "min_ratings": 2},
    "jester": {"n_items": 8, "min_ratings": 3},
}


@pytest.mark.parametrize("name", FETCHERS)
def test_download_from_loopback(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, module = OFFICIAL[name](), MODULES[name]
    with serve() as server:
        server.files[module.SOURCE.file] = content
        published = replace(
            module.SOURCE,
            url=server.url(module.SOURCE.file),
            mirrors=(),
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
        )
        monkeypatch.setattr(module, "SOURCE", published)
        data = FETCHERS[name](data_home=tmp_path, **SMALL[name])
        again = FETCHERS[name](data_home=tmp_path, download=False, **SMALL[name])
        assert len(server.asked) == 1
    assert [p.name for p in tmp_path.iterdir()] == [published.file]
    local = FETCHERS[name](path=tmp_path / published.file, **SMALL[name])
    assert equal(data.tasks, again.tasks)
    assert equal(data.tasks, local.tasks)
    assert data.origin == str(tmp_path / published.file)
    assert data.licence in data.DESCR
    assert module.SOURCE.citation in data.DESCR
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
        (b"not a mat file" * 20, "not a readable MATLAB file"),
        (lenk_file()[:-30], "not a readable MATLAB file"),
        (lenk_file(Testdata=None), "a variable Testdata with 4 rows per person and 15 columns, got none"),
        (lenk_file(Traindata=np.ones((17, 15))), r"Traindata.*got shape \(17, 15\)"),
        (lenk_file(Traindata=np.ones((32, 15))), "Traindata has 2 people, Testdata 3"),
        (lenk_file(Testdata=np.zeros((12, 15))), "first column should be the constant 1"),
    ],
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
        ("u.data", b"", "u.data.* is empty"),
        ("u.data", b"7\t30\t4\t87\n7\t10\n", "not a table of whole numbers"),
        ("u.data", b"7\t30\tfour\t87\n", "not a table of whole numbers.*row 0"),
        ("u.data", b"7\t30\t4\n", "should have 4 columns"),
        ("u.data", b"7\t30\t4\t1\n7\t10\t9\t1\n", "line 2 has the rating 9, outside 1 to 5"),
        ("u.data", b"7\t30\t4\t1\n7\t30\t5\t2\n", "user 7 rated item 30 more than once"),
        ("u.user", b"2|53|F|other|T8H1N\n", "u.user describes no user 5"),
        ("u.user", b"2|53|F|other|T8H1N\n3|old|F|x|1\n", r"line 2 is not id\|age"),
        ("u.item", b"10|Kolya\n20|Misty", "u.item describes no movie 30"),
        ("u.item", b"ten|Kolya\n", r"line 1 is not id\|title"),
        ("u.item", b"10\n", r"line 1 is not id\|title"),
    ],
)
def test_bad_movielens(name: str, content: bytes, message: str, movielens_folder: Path) -> None:
    (movielens_folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        fetch_movielens(path=movielens_folder, n_items=None, min_ratings=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_items": 5}, ValueError, "n_items=5, but .*u.data.* has ratings of 4 items only"),
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
        ("j.csv", as_csv(spoilt(2, 5, "")), "not a whole table of numbers"),
        ("j.csv", as_csv(jester_table())[:-20], "not a whole table of numbers"),
        ("j.csv", b" \n", "it is empty"),
        ("j.csv", b"1,2,3\n", r"101 columns.*shape is \(1, 3\)"),
        ("j.csv.gz", gzip.compress(as_csv(jester_table()))[:-100], "not a whole table of numbers"),
        ("j.xls", as_xls(spoilt(1, 3, "joke")), "row 2, column 4 holds 'joke'"),
        ("j.xls", as_xls(jester_table())[:3000], "not a readable Excel file"),
        ("j.xls", b"1,2,3", "not a readable Excel file"),
    ],
)
def test_bad_jester(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file}.*{message}"):
        fetch_jester(path=tmp_path / file)


def test_jester_without_xlrd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jester-data-1.xls").write_bytes(as_xls(jester_table()))
    monkeypatch.setitem(sys.modules, "xlrd", None)
    with pytest.raises(ImportError, match=r"tailored\[data\]"):
        fetch_jester(path=tmp_path)


@pytest.mark.parametrize("shift", ["11", np.nan, None])
def test_bad_shift(shift: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="shift must be"):
        fetch_jester(path=tmp_path, shift=shift)


# ---------------------------------------------------------------------------------------- the real files


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """The path of a real file; loaders find its folder through the variable, with no network behind it."""
    monkeypatch.setenv("TAILORED_DATA", str(REAL))

    def path(file: str) -> Path:
        if not (REAL / file).is_file():
            pytest.skip(f"no {file} in TAILORED_DATA or in ../shared/data beside the project")
        return REAL / file

    return path


def test_real_lenk(real: Callable[[str], Path]) -> None:
    raw = scipy.io.loadmat(real("lenk/lenk_data.mat"))
    data = fetch_lenk()
    assert data.tasks.n_tasks == 180
    assert set(data.tasks.sizes.tolist()) == {20}
    assert data.tasks.n_features == 13
    assert set(np.unique(data.tasks.X)) == {-1.0, 1.0}
    assert set(np.unique(data.tasks.y)) == set(range(11))
    for t in (0, 77, 179):
        assert np.array_equal(data.tasks[t].X[:16], raw["Traindata"][16 * t : 16 * t + 16, 1:14])
        assert np.array_equal(data.tasks[t].y[16:], raw["Testdata"][4 * t : 4 * t + 4, 14])
    # Dearer computers are bought less: the names are on the right columns at least at this end.
    slopes = np.linalg.lstsq(np.c_[data.tasks.X, np.ones(3600)], data.tasks.y, rcond=None)[0]
    assert data.feature_names[int(slopes[:13].argmin())] == "price"


def test_real_lenk_is_the_published_file(real: Callable[[str], Path]) -> None:
    content = real("lenk/lenk_data.mat").read_bytes()
    assert hashlib.sha256(content).hexdigest() == _lenk.SOURCE.sha256
    assert len(content) == _lenk.SOURCE.size


@pytest.mark.parametrize(("n_items", "least"), [(20, 10), (5, 3), (None, 10)])
def test_real_movielens(n_items: int | None, least: int, real: Callable[[str], Path]) -> None:
    triples = [
        tuple(map(int, line.split("\t")[:3])) for line in real("ml-100k/u.data").read_text().splitlines()
    ]
    counts = Counter(item for _, item, _ in triples)
    items = sorted(counts, key=lambda i: (-counts[i], i))[:n_items]
    kept = set(items)
    by_user: dict[int, dict[int, int]] = defaultdict(dict)
    for user, item, rating in triples:
        if item in kept:
            by_user[user][item] = rating
    by_user = {user: rated for user, rated in by_user.items() if len(rated) >= least}

    data = fetch_movielens(n_items=n_items, min_ratings=least)
    assert data.item_ids.tolist() == items
    assert data.tasks.labels.tolist() == sorted(by_user)
    assert sp.issparse(data.tasks.X) == (n_items is None)
    columns = sp.csr_array(data.tasks.X).indices
    rows = list(zip(np.repeat(data.tasks.labels, data.tasks.sizes), columns, data.tasks.y, strict=True))
    assert len(rows) == sum(map(len, by_user.values()))
    assert all(by_user[int(user)][items[column]] == rating for user, column, rating in rows)
    if n_items is None:
        assert (data.tasks.n_tasks, *data.tasks.X.shape) == (943, 100000, 1682)
        assert len(set(data.feature_names)) == 1682
    if n_items == 20:
        assert data.tasks.n_tasks == 445
        assert data.feature_names[0] == "Star Wars (1977)"


def test_real_movielens_side_information(real: Callable[[str], Path]) -> None:
    users = [line.split("|") for line in real("ml-100k/u.user").read_text(encoding="latin-1").splitlines()]
    expected = {int(u): [float(age), sex, job] for u, age, sex, job, _ in users}
    tasks = fetch_movielens().tasks
    assert tasks.side_info.tolist() == [expected[u] for u in tasks.labels.tolist()]


def test_real_jester(real: Callable[[str], Path]) -> None:
    with gzip.open(real("jester/jester-5k.csv.gz"), "rt", newline="") as file:
        rows = [[float(v) for v in row] for row in csv.reader(file)]
    counts = {j: sum(row[j] != 99 for row in rows) for j in range(1, 101)}
    jokes = sorted(counts, key=lambda j: (-counts[j], j))[:20]
    kept = {u: row for u, row in enumerate(rows) if sum(row[j] != 99 for j in jokes) >= 10}

    data = fetch_jester()
    assert data.item_ids.tolist() == jokes
    assert data.tasks.labels.tolist() == list(kept)
    assert len(data.tasks.y) == sum(row[j] != 99 for row in kept.values() for j in jokes)
    users, columns = np.repeat(data.tasks.labels, data.tasks.sizes), data.tasks.X.argmax(axis=1)
    read = [kept[u][jokes[c]] for u, c in zip(users.tolist(), columns.tolist(), strict=True)]
    assert data.tasks.y.tolist() == read


# --------------------------------------------------------------------------------------------- clusters


@pytest.fixture(scope="module")
def six() -> tuple[TaskSet, ClusterTruth]:
    return make_clusters(n_clusters=6, random_state=0, return_truth=True)


def test_clusters_shapes(six: tuple[TaskSet, ClusterTruth]) -> None:
    tasks, truth = six
    assert tasks.X.shape == (900 * 80, 20)
    assert set(tasks.sizes.tolist()) == {80}
    assert tasks.labels.tolist() == list(range(900))
    assert tasks.side_info is None
    assert truth.weights.shape == (900, 20)
    assert truth.bases.shape == (6, 20, 2)
    assert truth.centers is None
    with pytest.raises(FrozenInstanceError):
        truth.weights = None


@pytest.mark.parametrize(("m", "d", "rank"), [(2, 20, None), (6, 20, None), (3, 7, 2), (5, 5, 1), (1, 4, 4)])
def test_subspaces_are_orthogonal(m: int, d: int, rank: int | None) -> None:
    _, truth = make_clusters(40, n_clusters=m, n_features=d, rank=rank, random_state=1, return_truth=True)
    frame = np.concatenate(list(truth.bases), axis=1)
    assert frame.shape == (d, m * (rank or 2))
    np.testing.assert_allclose(frame.T @ frame, np.eye(frame.shape[1]), atol=1e-12)
    inside = np.linalg.norm(np.einsum("mdr,td->tmr", truth.bases, truth.weights), axis=2)
    np.testing.assert_allclose(inside, np.eye(m)[truth.clusters], atol=1e-12)


def test_distributions(six: tuple[TaskSet, ClusterTruth]) -> None:
    tasks, truth = six
    np.testing.assert_allclose(np.linalg.norm(tasks.X, axis=1), 1)
    np.testing.assert_allclose(tasks.X.T @ tasks.X / len(tasks.y), np.eye(20) / 20, atol=2e-3)
    noise = tasks.y - np.einsum("nd,nd->n", tasks.X, np.repeat(truth.weights, 80, axis=0))
    assert noise.std() == pytest.approx(0.1, rel=0.02)
    assert abs(noise.mean()) < 5 * 0.1 / np.sqrt(len(noise))
    # Gaussian, not merely of that spread: the fourth moment is three times the squared second.
    assert (noise**4).mean() / (noise**2).mean() ** 2 == pytest.approx(3, rel=0.05)
    # A uniform mixture: each count within 5 standard deviations of the binomial.
    counts = np.bincount(truth.clusters, minlength=6)
    assert np.abs(counts - 150).max() < 5 * np.sqrt(900 * 5 / 36)
    # Directions inside a cluster have no preference: their second moment is I / rank.
    inner = np.einsum("tdr,td->tr", truth.bases[truth.clusters], truth.weights)
    np.testing.assert_allclose(inner.T @ inner / 900, np.eye(2) / 2, atol=0.06)


def test_noise_free() -> None:
    tasks, truth = make_clusters(5, noise=0, random_state=0, return_truth=True)
    for task, w in zip(tasks, truth.weights, strict=True):
        np.testing.assert_allclose(task.y, task.X @ w, atol=1e-14)


def test_seeds() -> None:
    options: dict[str, Any] = {"n_tasks": 8, "n_rows": (2, 9), "side_info": "center"}
    first = make_clusters(random_state=3, **options)
    np.random.seed(0)  # noqa: NPY002
    state = np.random.get_state()  # noqa: NPY002
    assert equal(first, make_clusters(random_state=3, **options))
    assert equal(first, make_clusters(random_state=np.random.default_rng(3), **options))
    assert not equal(first, make_clusters(random_state=4, **options))
    legacy = [make_clusters(random_state=np.random.RandomState(5), **options) for _ in range(2)]
    assert equal(*legacy)
    assert not equal(make_clusters(**options), make_clusters(**options))
    assert all(np.array_equal(a, b) for a, b in zip(state, np.random.get_state(), strict=True))  # noqa: NPY002


def test_streams_are_apart() -> None:
    def weights(**options: Any) -> np.ndarray:
        return make_clusters(20, random_state=0, return_truth=True, **options)[1].weights

    for options in ({"n_rows": 3}, {"n_rows": (1, 5)}, {"noise": 0.0}, {"side_info": "index"}):
        assert np.array_equal(weights(), weights(**options))


def test_ragged() -> None:
    sizes = make_clusters(200, n_rows=(3, 6), random_state=0).sizes
    assert set(sizes.tolist()) == {3, 4, 5, 6}
    assert set(make_clusters(9, n_rows=1, random_state=0).sizes.tolist()) == {1}


def test_index_side_information() -> None:
    tasks, truth = make_clusters(
        900, n_rows=1, n_clusters=4, side_info="index", random_state=0, return_truth=True
    )
    assert tasks.side_info.shape == (900, 1)
    assert (tasks.side_info[:, 0] - truth.clusters).std() == pytest.approx(0.1, rel=0.1)
    exact, truth = make_clusters(
        50, n_rows=1, side_info="index", side_noise=0, random_state=0, return_truth=True
    )
    assert np.array_equal(exact.side_info[:, 0], truth.clusters)


@pytest.mark.parametrize(("m", "q"), [(1, 1), (2, 1), (5, 1), (2, 2), (6, 2), (9, 2), (4, 3), (10, 4)])
def test_center_side_information(m: int, q: int) -> None:
    tasks, truth = make_clusters(
        1000, n_clusters=m, n_rows=1, side_info="center", side_dim=q, random_state=0, return_truth=True
    )
    assert truth.centers.shape == (m, q)
    apart = np.linalg.norm(truth.centers[:, None] - truth.centers, axis=2) + 2 * np.eye(m)
    assert apart.min() >= 2
    radius = np.linalg.norm(tasks.side_info - truth.centers[truth.clusters], axis=1)
    assert radius.max() <= 0.5 + 1e-12
    # Uniform in the ball: the share of volume inside the radius is uniform on [0, 1].
    share = (radius / 0.5) ** q
    assert share.mean() == pytest.approx(0.5, abs=0.05)
    assert share.std() == pytest.approx(np.sqrt(1 / 12), abs=0.03)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_tasks": 0}, ValueError, "n_tasks must be an integer >= 1"),
        ({"n_tasks": 2.5}, TypeError, "n_tasks must be an integer"),
        ({"n_clusters": 11}, ValueError, "n_clusters=11 orthogonal subspaces of rank=2 need 22 dimensions"),
        ({"rank": 0}, ValueError, "rank must be an integer >= 1"),
        ({"rank": 11}, ValueError, "n_features=20: lower n_clusters or rank"),
        ({"noise": -1}, ValueError, "noise must be a finite number >= 0"),
        ({"noise": np.nan}, ValueError, "noise must be a finite number"),
        ({"n_rows": 0}, ValueError, "n_rows must be an integer >= 1"),
        ({"n_rows": (0, 3)}, ValueError, r"n_rows\[0\] must be an integer >= 1"),
        ({"n_rows": (4, 3)}, ValueError, r"n_rows\[1\] must be an integer >= 4"),
        ({"n_rows": (1, 2, 3)}, TypeError, r"n_rows must be an integer or a pair \(low, high\)"),
        ({"n_rows": "many"}, TypeError, "n_rows must be an integer or a pair"),
        ({"side_info": "centre"}, ValueError, "'dataset', 'index', 'center'.*Did you mean 'center'"),
        ({"side_noise": 0.1}, ValueError, "no meaning with side_info='dataset'"),
        ({"side_info": "index", "side_noise": -0.1}, ValueError, "side_noise must be a finite number >= 0"),
        ({"side_info": "center", "side_dim": 0}, ValueError, "side_dim must be an integer >= 1"),
        ({"hint": 1.5}, ValueError, r"hint must be a finite number in \[0, 1\]"),
        ({"hint": -0.1}, ValueError, "hint must be a finite number"),
        ({"hint": True}, TypeError, "hint must be a number"),
        ({"hint": 0.7, "side_info": "index"}, ValueError, "hint=0.7 and side_info='index' are both"),
        ({"hint": 0.7, "side_noise": 0.1}, ValueError, "no meaning with side_info='dataset'"),
    ],
)
def test_bad_clusters(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_clusters(**options)


# ------------------------------------------------------------------------------------------------ hints


def test_draws_are_those_of_before_there_were_hints() -> None:
    tasks, truth = make_clusters(
        30, n_clusters=3, n_rows=(2, 5), side_info="index", random_state=4, return_truth=True
    )
    _, for_tasks, for_rows, for_side = np.random.default_rng(4).spawn(4)
    assert np.array_equal(truth.clusters, for_tasks.integers(3, size=30))
    u = for_tasks.standard_normal((30, 2))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    assert np.array_equal(truth.weights, np.einsum("tdr,tr->td", truth.bases[truth.clusters], u))
    sizes = for_tasks.integers(2, 5, size=30, endpoint=True)
    assert np.array_equal(tasks.sizes, sizes)
    X = for_rows.standard_normal((sizes.sum(), 20))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    noise = 0.1 * for_rows.standard_normal(len(X))
    assert np.array_equal(tasks.X, X)
    assert np.array_equal(tasks.y, np.einsum("nd,nd->n", X, np.repeat(truth.weights, sizes, axis=0)) + noise)
    assert np.array_equal(tasks.side_info, truth.clusters[:, None] + 0.1 * for_side.standard_normal((30, 1)))
    assert truth.noise == 0.1
    assert truth.hint is None
    assert truth.hints is None


def test_hints_change_nothing_else() -> None:
    options: dict[str, Any] = {"n_tasks": 25, "n_clusters": 4, "n_rows": (1, 6), "random_state": 2}
    plain, truth = make_clusters(**options, return_truth=True)
    hinted, told = make_clusters(**options, hint=0.7, return_truth=True)
    assert np.array_equal(plain.X, hinted.X)
    assert np.array_equal(plain.y, hinted.y)
    assert np.array_equal(plain.offsets, hinted.offsets)
    assert np.array_equal(truth.weights, told.weights)
    assert told.hint == 0.7
    assert told.centers is None
    assert np.array_equal(hinted.side_info, np.eye(4)[told.hints])


@pytest.mark.parametrize(("hint", "m"), [(0.0, 3), (0.3, 2), (0.7, 6), (1.0, 6), (0.5, 1)])
def test_hints_are_right_as_often_as_said(hint: float, m: int) -> None:
    n = 4000
    _, truth = make_clusters(n, n_clusters=m, n_rows=1, hint=hint, random_state=0, return_truth=True)
    right = hint + (1 - hint) / m
    assert abs((truth.hints == truth.clusters).mean() - right) <= 5 * np.sqrt(right * (1 - right) / n)
    # Wrong ones have no preference.
    for j in range(m):
        wrong = truth.hints[(truth.clusters == j) & (truth.hints != j)]
        counts = np.delete(np.bincount(wrong, minlength=m), j)
        assert np.all(np.abs(counts - len(wrong) / max(m - 1, 1)) <= 5 * np.sqrt(len(wrong) + 1))


def test_a_surer_hint_stays_right() -> None:
    options: dict[str, Any] = {"n_clusters": 5, "n_rows": 1, "random_state": 1, "return_truth": True}
    right = [
        truth.hints == truth.clusters
        for truth in (make_clusters(200, hint=hint, **options)[1] for hint in (0.0, 0.4, 0.8, 1))
    ]
    assert all((less <= more).all() for less, more in pairwise(right))
    assert right[-1].all()


# --------------------------------------------------------------------------------------------- the circle


@pytest.fixture(scope="module")
def circle() -> tuple[TaskSet, CircleTruth]:
    return make_circle(2000, random_state=0, return_truth=True)


def test_circle_shapes(circle: tuple[TaskSet, CircleTruth]) -> None:
    tasks, truth = circle
    assert tasks.X.shape == (2000 * 20, 10)
    assert tasks.labels.tolist() == list(range(2000))
    assert tasks.side_names == ["s"]
    assert np.array_equal(tasks.side_info, truth.s[:, None])
    frame = np.stack([truth.u, truth.v])
    np.testing.assert_allclose(frame @ frame.T, np.eye(2), atol=1e-12)
    with pytest.raises(FrozenInstanceError):
        truth.weights = None


def test_circle_distributions(circle: tuple[TaskSet, CircleTruth]) -> None:
    tasks, truth = circle
    assert truth.s.mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 12 / 2000))
    assert (truth.s.min(), truth.s.max()) == pytest.approx((0, 1), abs=0.01)
    angle = 2 * np.pi * truth.s[:, None]
    around = truth.weights - 4 * (np.cos(angle) * truth.u + np.sin(angle) * truth.v)
    np.testing.assert_allclose(around.T @ around / 2000, 0.09 * np.eye(10), atol=0.015)
    np.testing.assert_allclose(tasks.X.T @ tasks.X / len(tasks.y), np.eye(10), atol=0.03)
    noise = tasks.y - np.einsum("nd,nd->n", tasks.X, np.repeat(truth.weights, 20, axis=0))
    assert noise.std() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("curve", CURVES)
def test_curves(curve: str) -> None:
    tasks, truth = make_circle(
        50, n_rows=(1, 4), radius=2.5, spread=0, noise=0, curve=curve, random_state=1, return_truth=True
    )
    c = 2 * truth.s - 1
    along, across = {
        "circle": (-np.cos(np.pi * c), -np.sin(np.pi * c)),
        "line": (c, 0 * c),
        "quadratic": (c, c**2),
    }[curve]
    expected = 2.5 * (along[:, None] * truth.u + across[:, None] * truth.v)
    np.testing.assert_allclose(truth.weights, expected, atol=1e-12)
    np.testing.assert_allclose(truth.mean(tasks.side_info), expected, atol=1e-12)
    np.testing.assert_allclose(truth.mean(truth.s), expected, atol=1e-12)
    assert set(tasks.sizes.tolist()) == {1, 2, 3, 4}
    np.testing.assert_allclose(
        tasks.y, np.einsum("nd,nd->n", tasks.X, np.repeat(expected, tasks.sizes, axis=0)), atol=1e-12
    )


def test_circle_seeds() -> None:
    assert equal(make_circle(5, random_state=3), make_circle(5, random_state=np.random.default_rng(3)))
    assert not equal(make_circle(5, random_state=3), make_circle(5, random_state=4))
    options: dict[str, Any] = {"random_state": 3, "return_truth": True}
    first = make_circle(5, **options)[1]
    for change in ({"n_rows": 2}, {"n_rows": (1, 4)}, {"noise": 0.1}):
        assert np.array_equal(first.weights, make_circle(5, **change, **options)[1].weights)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_tasks": 0}, ValueError, "n_tasks must be an integer >= 1"),
        ({"n_features": 1}, ValueError, "n_features must be an integer >= 2"),
        ({"n_rows": 0}, ValueError, "n_rows must be an integer >= 1"),
        ({"radius": -1}, ValueError, "radius must be a finite number >= 0"),
        ({"spread": np.inf}, ValueError, "spread must be a finite number"),
        ({"noise": "much"}, TypeError, "noise must be a number"),
        ({"curve": "circel"}, ValueError, "'circle', 'line', 'quadratic'.*Did you mean 'circle'"),
    ],
)
def test_bad_circles(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_circle(**options)
