"""The real files, where they are."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from tailored.datasets import _ratings, fetch_jester, fetch_lenk, fetch_movielens

# Where the variable points before the fixture below hides it, or beside the project's own folder.
REAL = Path(os.environ.get("TAILORED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


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
    assert hashlib.sha256(content).hexdigest() == _ratings.LENK.sha256
    assert len(content) == _ratings.LENK.size


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
