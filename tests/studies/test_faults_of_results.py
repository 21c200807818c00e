"""Damaged results, and a run that is killed."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from studies.benchmark import run as benchmark_run
from studies.reproduction import runner
from studies.reproduction.config_files import load_config
from studies.reproduction.table import Results, read_rows
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
def test_a_damaged_table_is_rebuilt_from_the_cells(whole, damage, capsys):
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
    assert Results.read(whole).experiments == ["one", "two"]
    assert "results.csv.gz" in capsys.readouterr().err
    assert table.read_bytes() == expected
    # A run that goes on does the same, and computes nothing.
    table.write_bytes(expected[:middle])
    assert reproduce(whole.parent / "one.toml", whole, resume=True).computed == 0
    assert table.read_bytes() == expected


def test_seeds_with_a_damaged_cell_are_left_out_of_a_rebuilt_table(whole):
    table = whole / "results.csv.gz"
    expected = read_rows(table)
    table.write_bytes(b"")
    cell = sorted((whole / "one" / "cells").glob("seed-1_*.npz"))[0]
    cell.write_bytes(cell.read_bytes()[:-30])
    assert Results.read(whole).curves("one", "conditional").seeds == [0]
    assert reproduce(whole.parent / "one.toml", whole, resume=True).computed == 1
    assert read_rows(table) == expected


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
    '{"error": "1.0", "seconds": 2}',
    "[1, 2]",
    "3",
    '{"error": 1.0, "seconds": 2, "cold": 3}',
    "[" * 3000,
]


@pytest.mark.parametrize("text", GARBLED, ids=range(len(GARBLED)))
def test_a_garbled_trial_of_the_benchmark_is_named_and_missing(text, tmp_path, capsys):
    path = tmp_path / "trial.json"
    path.write_text(text)
    assert benchmark_run.read(path) is None
    assert f"{path} is damaged" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ killed


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_workers_end_soon_when_their_parent_is_killed(tmp_path):
    config = tmp_path / "long.toml"
    config.write_bytes(TINY.replace(b"train = 7", b"train = 40000").replace(b"seeds = 2", b"seeds = 4"))
    command = [sys.executable, "-m", "studies", "reproduce", str(config), "--out", str(tmp_path / "out")]
    parent = subprocess.Popen(
        [*command, "--no-figures", "--jobs", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        known, deadline = psutil.Process(parent.pid), time.monotonic() + 120
        workers: list[psutil.Process] = []
        while len(workers) < 2 and time.monotonic() < deadline:
            workers = [
                child for child in known.children() if any("LokyProcess" in word for word in child.cmdline())
            ]
            time.sleep(0.05)
        assert len(workers) == 2
        everybody = known.children(recursive=True)
        # Past the start of an interpreter, before or in the first cell.
        while min(child.cpu_times().user for child in workers) < 1.0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert parent.poll() is None
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(10)
        _, alive = psutil.wait_procs(everybody, timeout=10)
        assert alive == []
    finally:
        for child in [parent, *workers]:
            if child.poll() is None if isinstance(child, subprocess.Popen) else child.is_running():
                child.kill()
