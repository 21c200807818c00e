"""Loaders of real data sets: small files in the published layouts, and the real files where they
are present.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import os
import random
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import xlwt
from scipy import sparse

from studies.benchmark.suites import SUITES
from studies.data import (
    JESTER,
    LENK,
    MULTILEVEL,
    load_jester,
    load_lenk,
    load_movielens,
    load_multilevel,
    locate,
)

#: The folder of the real files; its default is next to the project's own folder.
REAL = Path(
    os.environ.get("TAILORED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
)


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    for name in ("TAILORED_DATA", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


# --- finding and downloading


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve a folder on the loopback interface; return it and its address.  Downloads are cached in
    tmp_path/cache.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def test_download(server, tmp_path):
    folder, address = server
    source = replace(
        LENK, urls=(f"{address}a", f"{address}b"), sha256=hashlib.sha256(b"survey").hexdigest()
    )
    message = r"lenk_data\.mat could not be downloaded.*404.*TAILORED_DATA"
    with pytest.raises(OSError, match=message):
        locate(source)
    (folder / "a").write_bytes(b"this domain is for sale")
    with pytest.raises(OSError, match="does not match the known hash"):
        locate(source)
    assert [path.name for path in tmp_path.rglob("lenk*")] == []
    (folder / "b").write_bytes(b"survey")  # the mirror has the right file
    file = locate(source)
    assert file.read_bytes() == b"survey"
    (folder / "b").unlink()
    assert locate(source) == file  # from the cache


# --- ratings


def test_lenk(tmp_path):
    rng = np.random.default_rng(0)
    parts = {
        name: rng.integers(-1, 2, (5 * n, 15)) for name, n in (("Traindata", 16), ("Testdata", 4))
    }
    scipy.io.savemat(tmp_path / "lenk_data.mat", parts)
    tasks, names, _ = load_lenk(str(tmp_path))
    assert tasks.labels.tolist() == [0, 1, 2, 3, 4]
    assert (len(names), names[-1]) == (13, "price")
    for t, task in enumerate(tasks):
        rows = np.vstack(
            [parts["Traindata"][16 * t : 16 * t + 16], parts["Testdata"][4 * t : 4 * t + 4]]
        )
        np.testing.assert_array_equal(task.X, rows[:, 1:14])
        np.testing.assert_array_equal(task.y, rows[:, 14])


# Movies 30 and 10 have three ratings, 20 two and 40 one; users 5 and 9 gave one rating each.
RATINGS = [
    (7, 30, 4),
    (2, 40, 1),
    (2, 10, 5),
    (7, 10, 3),
    (2, 30, 2),
    (5, 30, 1),
    (2, 20, 4),
    (7, 20, 5),
]
RATINGS += [(9, 10, 2)]
USERS = {2: "53|F|other", 5: "33|F|writer", 7: "57|M|administrator", 9: "29|M|student"}
TITLES = {
    10: "Misérables, Les (1995)",
    20: "Kolya (1996)",
    30: "Chasing Amy (1997)",
    40: "Other (1990)",
}


def movielens_files(ratings=RATINGS):
    tables = {
        "u.data": [f"{u}\t{i}\t{r}\t87{k}" for k, (u, i, r) in enumerate(ratings)],
        "u.user": [f"{user}|{about}|T8H1N" for user, about in USERS.items()],
        "u.item": [f"{item}|{title}|01-Jan-1995||http://x|0|1" for item, title in TITLES.items()],
    }
    return {name: "\n".join(lines).encode("latin-1") for name, lines in tables.items()}


def test_movielens(tmp_path):
    for name, content in movielens_files().items():
        (tmp_path / name).write_bytes(content)
    tasks, names, _ = load_movielens(str(tmp_path), n_items=3, min_ratings=2)
    # 10 and 30 have equally many ratings, and the smaller number is first.
    assert names == ["Misérables, Les (1995)", "Chasing Amy (1997)", "Kolya (1996)"]
    assert tasks.labels.tolist() == [2, 7]
    assert [task.y.tolist() for task in tasks] == [[5, 4, 2], [3, 5, 4]]
    np.testing.assert_array_equal(tasks.X, np.eye(3)[[0, 2, 1, 0, 2, 1]])
    assert tasks.side_names == ["age", "sex", "occupation"]
    assert tasks.side_info.tolist() == [[53.0, "F", "other"], [57.0, "M", "administrator"]]
    everything = load_movielens(str(tmp_path), n_items=None, min_ratings=1).tasks
    assert sparse.issparse(everything.X)
    assert everything.X.shape == (9, 4)
    message = "min_ratings=4: no user rated as many of the 3 most rated"
    with pytest.raises(ValueError, match=message):
        load_movielens(str(tmp_path), n_items=3, min_ratings=4)
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        for name, content in movielens_files(
            random.Random(1).sample(RATINGS, len(RATINGS))
        ).items():
            archive.writestr(f"ml-100k/{name}", content)
    again = load_movielens(str(tmp_path), n_items=3, min_ratings=2).tasks
    np.testing.assert_array_equal(again.X, tasks.X)
    np.testing.assert_array_equal(again.y, tasks.y)


def jester_table(n_users=6):
    """Joke j (from 1) is rated by the users whose number from 0 is at least (j * 7) % n_users."""
    draw = random.Random(0)
    return [
        [
            7,
            *(
                round(draw.uniform(-10, 10), 2) if user >= (j * 7) % n_users else 99.0
                for j in range(1, 101)
            ),
        ]
        for user in range(n_users)
    ]


def as_csv(rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows).encode()


def as_xls(rows):
    book, buffer = xlwt.Workbook(), io.BytesIO()
    sheet = book.add_sheet("jester-data-1-new")
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            sheet.write(i, j, value)
    book.save(buffer)
    return buffer.getvalue()


def as_zip(rows):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("jester-data-1.xls", as_xls(rows))
    return buffer.getvalue()


JESTER_FILES = {
    ".xls": as_xls,
    ".csv": as_csv,
    ".gz": lambda rows: gzip.compress(as_csv(rows)),
    ".zip": as_zip,
}


@pytest.mark.parametrize("file", JESTER.files)
def test_jester(file, tmp_path):
    rows = jester_table()
    (tmp_path / file).write_bytes(JESTER_FILES[Path(file).suffix](rows))
    tasks, names, target_range = load_jester(str(tmp_path), n_items=8, min_ratings=3, shift=11.0)
    counts = {j: sum(row[j] != 99 for row in rows) for j in range(1, 101)}
    jokes = sorted(counts, key=lambda j: (-counts[j], j))[:8]
    expected = {
        user: [(j, row[j] + 11) for j in sorted(jokes) if row[j] != 99]
        for user, row in enumerate(rows)
        if sum(row[j] != 99 for j in jokes) >= 3
    }
    assert names == [f"joke {j}" for j in jokes]
    assert target_range == (1.0, 21.0)
    assert tasks.labels.tolist() == list(expected)
    for task in tasks:
        assert [jokes[column] for column in task.X.argmax(axis=1)] == [
            j for j, _ in expected[task.label]
        ]
        assert task.y.tolist() == pytest.approx([y for _, y in expected[task.label]])


@pytest.mark.parametrize(
    ("load", "file", "n_tasks", "n_rows", "first_name"),
    [
        (load_lenk, "lenk/lenk_data.mat", 180, 3600, "telephone hot line"),
        (load_movielens, "ml-100k/u.data", 445, 6089, "Star Wars (1977)"),
        (load_jester, "jester/jester-5k.csv.gz", 5000, 99938, "joke 5"),
    ],
)
def test_real_ratings(load, file, n_tasks, n_rows, first_name):
    if not (REAL / file).is_file():
        pytest.skip(f"no {file} in TAILORED_DATA or in ../shared/data beside the project")
    tasks, names, (low, high) = load(str(REAL))
    assert (len(tasks), len(tasks.y), names[0]) == (n_tasks, n_rows, first_name)
    assert low <= tasks.y.min() < tasks.y.max() <= high


# --- multilevel tables

BDF = """\
"schoolNR","pupilNR","IQ.verb","sex","langPRET","langPOST","ses","denomina","schoolSES"
"7","1",15,"0",36,46,23,"1",11
"7","2",14.5,"1",NA,45,10,"1",11
"12","3",9.5,"1",29,33,15,"3",20
"7","4",11,"0",19,46,-2.5,"1",11
"12","5",8,"0",22,20,1e1,"3",20
"31","6",13,"1",20,NA,10,"2",18
"31","7",13,"1",20,41,10,"2",18
"""


def test_coded_categories_missing_values_and_order(tmp_path):
    (tmp_path / "bdf.csv").write_text(BDF)
    tasks = load_multilevel("bdf", str(tmp_path))
    assert tasks.labels.tolist() == ["7", "12", "31"]
    # "0" and "1" are numbers; the codes of denominations are categories.
    assert tasks.feature_names.tolist() == ["IQ.verb", "sex", "ses", "langPRET"]
    assert tasks.side_names == ["schoolSES", "denomina=2", "denomina=3"]
    np.testing.assert_array_equal(tasks[0].X, [[15, 0, 23, 36], [11, 0, -2.5, 19]])
    np.testing.assert_array_equal(tasks.y, [46, 46, 33, 20, 41])
    np.testing.assert_array_equal(tasks.side_info, [[11, 0, 0], [20, 0, 1], [18, 1, 0]])


def test_names_and_folders(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"Hsb82\.csv.*TAILORED_DATA, which is not set.*export_multilevel\.R",
    ):
        load_multilevel("hsb82")
    with pytest.raises(ValueError, match="sleepstudy"):
        load_multilevel("sleep", str(tmp_path))


def write_sleep(folder, n_people, n_days=6):
    lines = [f'{100 * s + t},{t},"{s}"' for s in range(n_people) for t in range(n_days)]
    (folder / "sleepstudy.csv").write_text(
        "\n".join(['"Reaction","Days","Subject"', *lines]) + "\n"
    )


def test_splits(tmp_path):
    """A quarter of the groups, at least five; four rows of each are given, at random or the first
    ones.
    """
    for n_people, n_new in ((12, 5), (40, 10)):
        write_sleep(tmp_path, n_people)
        split = SUITES["sleepstudy"].load(3, str(tmp_path))
        assert split.train.side_info is None
        assert (len(split.train), len(split.support)) == (n_people - n_new, n_new)
        assert set(split.support.sizes) == {4}
        assert set(split.query.sizes) == {2}
        assert not set(split.train.labels) & set(split.support.labels)
        for given, asked in zip(split.support, split.query, strict=True):
            assert given.label == asked.label
            assert sorted([*given.y, *asked.y]) == [100 * int(given.label) + t for t in range(6)]
    assert (split.support.X[:4, 0] != [0, 1, 2, 3]).any() or (
        split.support.X[4:8, 0] != [0, 1, 2, 3]
    ).any()
    later = SUITES["sleepstudy-time"].load(3, str(tmp_path))
    np.testing.assert_array_equal(later.support.X.reshape(-1, 4), [[0, 1, 2, 3]] * 10)
    np.testing.assert_array_equal(later.query.X.reshape(-1, 2), [[4, 5]] * 10)
    again = SUITES["sleepstudy"].load(3, str(tmp_path))
    np.testing.assert_array_equal(again.query.y, split.query.y)


@pytest.mark.parametrize("name", MULTILEVEL)
def test_real_multilevel_tables(name):
    if not (REAL / "multilevel" / MULTILEVEL[name].file).is_file():
        pytest.skip(
            f"no {MULTILEVEL[name].file} in TAILORED_DATA or in ../shared/data beside the project"
        )
    suite = SUITES[name]
    assert suite.missing(str(REAL)) is None
    assert len(suite.load(0, str(REAL)).train) == suite.n_train
