"""Damaged results."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from studies.benchmark import run as benchmark_run
from studies.files import ResultsError
from studies.reproduction import runner
from studies.reproduction.config import load_config
from studies.reproduction.table import Results
from tiny import TINY

# ------------------------------------------------------------------------------------------ results


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments and their results."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("one", "two"):
        (folder / f"{name}.toml").write_bytes(TINY)
        reproduce(folder / f"{name}.toml", folder / "out")
    return folder


@pytest.fixture
def whole(computed: Path, tmp_path: Path) -> Path:
    shutil.copytree(computed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


def reproduce(config: Path, out: Path, *, resume: bool = False) -> runner.Summary:
    return runner.execute(runner.plan([load_config(config)], out, resume=resume), out, n_jobs=1)


@pytest.mark.parametrize("damage", ["truncated", "garbled", "other"])
def test_a_damaged_table_is_an_error_that_says_what_to_do(whole, damage):
    table = whole / "results.csv.gz"
    expected = table.read_bytes()
    middle = len(expected) // 2
    table.write_bytes(
        {
            "truncated": expected[:middle],
            "garbled": expected[:middle] + bytes(40) + expected[middle + 40 :],
            "other": gzip.compress(b"name,value\n1,2\n"),
        }[damage]
    )
    with pytest.raises(ResultsError, match=r"results\.csv\.gz"):
        Results.read(whole)
    # Without it, the finished cells give the table again; those of the other experiment are not read.
    table.unlink()
    assert reproduce(whole.parent / "one.toml", whole, resume=True).computed == 0
    assert Results.read(whole).experiments == ["one"]


def test_cells_garbled_anywhere_are_found_and_named(whole):
    store = runner.plan([load_config(whole.parent / "one.toml")], whole, resume=True)[0].store
    (cell,) = [
        c
        for c in runner.list_cells(load_config(whole.parent / "one.toml"))
        if str(c) == "seed-0_independent_step-none"
    ]
    path, rng = store.path(cell), random.Random(0)
    good = path.read_bytes()
    expected = store.load(cell)[0].test
    for _ in range(200):
        content = bytearray(good)
        content[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content))
        missing, messages = store.missing([cell])
        if missing:
            assert str(path) in messages[0]
        else:
            assert np.array_equal(store.load(cell)[0].test, expected)


GARBLED = [
    '{"error": 1.0, "sec',
    "[1, 2]",
    "3",
    '{"error": 1.0, "seconds": 2, "warm": 3}',
    "[" * 3000,
]


@pytest.mark.parametrize("text", GARBLED, ids=range(len(GARBLED)))
def test_a_garbled_trial_of_the_benchmark_is_named_and_missing(text, tmp_path, capsys):
    path = tmp_path / "trial.json"
    path.write_text(text)
    assert benchmark_run.read(path) is None
    assert f"{path} is damaged" in capsys.readouterr().err
