"""What each part of the protocol shows to whom."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io

import reference
from studies.reproduction.config import ConfigError, load_config, parse_config
from studies.reproduction.protocol import data_digest, load_real, prepare
from tiny import TINY

REAL = Path(
    os.environ.get("TAILORED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
)


def lenk_folder(folder: Path, people: int = 12) -> Path:
    """A survey of the published layout: 16 and 4 rows per person, a constant, 13 signs, a
    rating.
    """
    rng = np.random.default_rng(0)
    parts = {}
    for name, rows in (("Traindata", 16), ("Testdata", 4)):
        part = rng.choice([-1.0, 1.0], size=(people * rows, 15))
        part[:, 0], part[:, -1] = 1, rng.integers(0, 11, size=len(part))
        parts[name] = part
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, parts)
    (folder / "lenk_data.mat").write_bytes(buffer.getvalue())
    return folder


@pytest.fixture
def lenk(tmp_path):
    config = load_config("lenk")
    tasks = replace(config.tasks, train=6, validation=3, test=3)
    return replace(config, tasks=tasks), str(lenk_folder(tmp_path))


def test_lenk_keeps_people_and_shuffles_rows(lenk):
    config, data = lenk
    file = load_real("lenk", (), data).tasks
    seeds = [prepare(config, seed, data) for seed in (0, 1)]
    for prepared in seeds:
        for part, people in (
            (prepared.train, range(6)),
            (prepared.validation, range(6, 9)),
            (prepared.test, range(9, 12)),
        ):
            for t, person in enumerate(people):
                support = slice(*part.support.offsets[t : t + 2])
                rows = np.column_stack([part.support.X[support], part.support.y[support]])
                wanted = np.column_stack([file[person].X[:16], np.ones(16), file[person].y[:16]])
                np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(wanted, axis=0))
                assert not np.array_equal(rows, wanted)
                query = slice(*part.query.offsets[t : t + 2])
                np.testing.assert_array_equal(part.query.X[query, :13], file[person].X[16:])
    assert not np.array_equal(seeds[0].train.support.y, seeds[1].train.support.y)


def test_lenk_features(lenk):
    """X̂ is what the inner algorithm sees, d = 14 with the constant, and a column of ones: d + 1
    features.
    """
    config, data = lenk
    prepared = prepare(config, 0, data)
    part = prepared.train
    assert part.phis.shape == (6, 15)
    assert part.support.X.shape[1] == 14
    raw = [
        reference.tikhonov(part.support.X[s], part.support.y[s])
        for s in (slice(*part.support.offsets[t : t + 2]) for t in range(6))
    ]
    np.testing.assert_allclose(part.phis, raw, atol=1e-10)
    assert prepared.scale == pytest.approx(np.sqrt(np.mean(np.sum(np.square(raw), axis=1))))


def test_seeds_differ_and_repeat():
    config = parse_config(TINY, "tiny", "tiny.toml")
    first, other = prepare(config, 0), prepare(config, 1)
    assert not np.array_equal(first.train.support.X, other.train.support.X)
    prepare.cache_clear()
    again = prepare(config, 0)
    for part, repeated in zip(
        (first.train, first.validation, first.test),
        (again.train, again.validation, again.test),
        strict=True,
    ):
        for a, b in zip(
            (*part.support, *part.query), (*repeated.support, *repeated.query), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_unreadable_data_is_a_message(tmp_path):
    (tmp_path / "lenk_data.mat").write_bytes(b"no such thing")
    with pytest.raises(ConfigError, match="the data of 'lenk' cannot be used"):
        data_digest(load_config("lenk"), str(tmp_path))


def test_digest_follows_the_data(tmp_path):
    config = load_config("lenk")
    for name, people in (("a", 12), ("b", 13)):
        (tmp_path / name).mkdir()
        lenk_folder(tmp_path / name, people)
    a, b = (data_digest(config, str(tmp_path / name)) for name in "ab")
    assert a != b
    assert data_digest(load_config("clusters-2")) == "seeded"


@pytest.mark.parametrize(("name", "k", "total"), [("movielens", 40, 400), ("jester", 41, 450)])
def test_ratings(name, k, total):
    """A training user shows all ratings; a test user 75 % of them, and is scored on items never
    shown.
    """
    folder = {"movielens": "ml-100k", "jester": "jester"}[name]
    if not (REAL / folder).exists():
        pytest.skip(f"the real data is not in {REAL}")
    config = load_config(name)
    prepared = prepare(config, 0, str(REAL))
    assert sum(map(len, (prepared.train, prepared.validation, prepared.test))) == total
    assert prepared.train.phis.shape == (config.tasks.train, k)
    train_sizes = np.diff(prepared.train.support.offsets)
    assert train_sizes.min() >= 10
    support, query = (
        np.diff(rows.offsets) for rows in (prepared.test.support, prepared.test.query)
    )
    np.testing.assert_allclose(support / (support + query), 0.75, atol=0.05)
    low = 1.0
    high = {"movielens": 5.0, "jester": 21.0}[name]
    y = np.concatenate([prepared.train.support.y, prepared.test.query.y])
    assert low <= y.min()
    assert y.max() <= high
    for t in range(len(prepared.test)):
        s, q = (
            slice(*rows.offsets[t : t + 2]) for rows in (prepared.test.support, prepared.test.query)
        )
        shown, hidden = prepared.test.support.X[s].sum(axis=0), prepared.test.query.X[q].sum(axis=0)
        assert ((shown + hidden) <= 1).all()
    if name == "jester":
        np.testing.assert_array_equal(prepared.test.phis[:, -1], 1.0)
        raw = reference.angle_map(
            prepared.test.support.X[: support[0]], prepared.test.support.y[: support[0]], low, high
        )
        np.testing.assert_allclose(prepared.test.phis[0], raw, atol=1e-9)
