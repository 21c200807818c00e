"""Runs that are killed, interrupted, short of disk or pointed at the wrong folder."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from studies.__main__ import app
from studies.files import ResultsError
from studies.reproduction import runner, store
from studies.reproduction.cells import Cell
from studies.reproduction.config import load_config
from studies.reproduction.manifest import read_manifest
from studies.reproduction.table import COLUMNS, Results, read_rows, write_table
from tiny import TINY

#: Many cells of a few hundredths of a second: long enough to be met in the middle.
SLOW = (
    TINY.replace(b"train = 7", b"train = 60")
    .replace(b"n_features = 4", b"n_features = 10")
    .replace(b"seeds = 2", b"seeds = 4")
    .replace(b"step_count = 2", b"step_count = 6")
    .replace(b'rank = "exact"', b"rank = 12")
)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_bytes(TINY)
    return path


def run(config: Path, out: Path, **options) -> runner.Summary:
    plans = runner.plan([load_config(config)], out, resume=options.pop("resume", False))
    return runner.execute(plans, out, n_jobs=options.pop("n_jobs", 1), **options)


def start(config: Path, out: Path, *extra: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "studies",
        "reproduce",
        str(config),
        "--out",
        str(out),
        "--no-figures",
    ]
    return subprocess.Popen(
        [*command, *extra],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
        # A shell's background jobs, and all that they start, ignore Ctrl-C; the run under test must
        # not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_cells(process: subprocess.Popen[str], folder: Path, n: int) -> int:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        found = len(list(folder.glob("*/cells/*.npz")))
        if found >= n:
            return found
        if process.poll() is not None:
            raise AssertionError(process.communicate())
        time.sleep(0.005)
    raise AssertionError("no cell was finished within three minutes")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    config = folder / "slow.toml"
    config.write_bytes(SLOW)
    run(config, folder / "out")
    return config, (folder / "out" / "results.csv.gz").read_bytes()


@pytest.mark.parametrize(
    ("sign", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)]
)
def test_a_stopped_run_continues_to_the_same_bits(uninterrupted, tmp_path, sign, code):
    config, expected = uninterrupted
    out = tmp_path / "out"
    process = start(config, out, "--jobs", "2")
    wait_for_cells(process, out, 3)
    # As a terminal does with Ctrl-C: the workers of the pool get the signal too.
    os.killpg(process.pid, sign)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    total = 4 * (6 + 6 + 1)
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("*/cells/*.npz")}
    assert 3 <= len(kept) < total
    assert not (out / "results.csv.gz").exists()
    if sign == signal.SIGINT:
        assert "interrupted" in errors
        assert (
            f"python -m studies reproduce {config} --out {out} --no-figures --jobs 2 --resume"
            in errors
        )
        assert "Traceback" not in errors

    again = CliRunner().invoke(
        app,
        ["reproduce", str(config), "--jobs", "1", "--out", str(out), "--no-figures", "--resume"],
    )
    assert again.exit_code == 0, again.output
    assert f"{total - len(kept)} cells to compute, {len(kept)} kept" in again.stderr
    assert (out / "results.csv.gz").read_bytes() == expected
    for name, when in kept.items():
        assert next(out.glob(f"*/cells/{name}")).stat().st_mtime_ns == when


@pytest.mark.parametrize("damage", ["flip", "swap", "empty"])
def test_a_damaged_cell_is_named_and_computed_again(tiny, tmp_path, damage):
    out = tmp_path / "out"
    run(tiny, out)
    expected = (out / "results.csv.gz").read_bytes()
    cell = out / "tiny" / "cells" / "seed-1_conditional_step-01.npz"
    flipped = bytearray(cell.read_bytes())
    # Inside the numbers of a member: only its checksum differs.
    flipped[flipped.find(b"test.npy") + 150] ^= 1
    other = (cell.parent / "seed-0_conditional_step-01.npz").read_bytes()
    cell.write_bytes({"flip": flipped, "swap": other, "empty": b""}[damage])
    (out / "results.csv.gz").unlink()
    again = CliRunner().invoke(
        app, ["reproduce", str(tiny), "--jobs", "1", "--out", str(out), "--no-figures", "--resume"]
    )
    assert again.exit_code == 0, again.output
    assert f"warning: {cell} is damaged" in again.stderr
    assert "it is computed again" in again.stderr
    assert "1 cells to compute, 9 kept" in again.stderr
    assert (out / "results.csv.gz").read_bytes() == expected


def test_another_configuration_is_refused_with_the_difference(tiny, tmp_path):
    out = tmp_path / "out"
    run(tiny, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    tiny.write_bytes(
        TINY.replace(b"noise = 0.1", b"noise = 0.2").replace(b"step_count = 2", b"step_count = 3")
    )
    with pytest.raises(ResultsError) as caught:
        run(tiny, out, resume=True)
    assert "data.noise: 0.1 there, 0.2 now" in str(caught.value)
    assert "grid.step_count: 2 there, 3 now" in str(caught.value)
    assert "tasks" not in str(caught.value)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_run_continues_with_more_seeds(tiny, tmp_path):
    out = tmp_path / "out"
    run(tiny, out)
    with pytest.raises(ResultsError, match=r"already holds 10 finished cells.*add --resume"):
        run(tiny, out)
    tiny.write_bytes(TINY.replace(b"seeds = 2", b"seeds = 3"))
    summary = run(tiny, out, resume=True)
    assert (summary.computed, summary.kept) == (5, 10)
    assert Results.read(out).curves("tiny", "conditional").seeds == [0, 1, 2]
    run(tiny, tmp_path / "whole")
    assert (out / "results.csv.gz").read_bytes() == (
        tmp_path / "whole" / "results.csv.gz"
    ).read_bytes()
    assert read_manifest(out)["experiments"]["tiny"]["seeds"] == 3


def test_full_disk_keeps_what_is_finished(tiny, tmp_path, monkeypatch):
    """The disk fills up with the fourth cell, while it is being written."""
    real_sync, written = os.fsync, []

    def fill_up(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 8:  # a file and its folder, of the configuration and of three cells
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_sync(descriptor)

    out = tmp_path / "out"
    monkeypatch.setattr(os, "fsync", fill_up)
    arguments = ["reproduce", str(tiny), "--jobs", "1", "--out", str(out), "--no-figures"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "error: cannot write" in result.stderr
    assert "No space left on device" in result.stderr
    assert "--resume" in result.stderr
    files = sorted(path.name for path in (out / "tiny" / "cells").iterdir())
    assert len(files) == 3
    assert all(name.endswith(".npz") for name in files)
    monkeypatch.setattr(os, "fsync", real_sync)
    again = CliRunner().invoke(app, [*arguments, "--resume"])
    assert again.exit_code == 0
    assert "7 cells to compute, 3 kept" in again.stderr


def test_table(tiny, tmp_path):
    out = tmp_path / "out"
    run(tiny, out)
    rows = read_rows(out / "results.csv.gz")
    assert rows[0]._fields == COLUMNS
    assert len(rows) == 2 * (2 + 2 + 1) * (7 + 1)
    assert len({row[:6] for row in rows}) == len(rows)
    results = Results.read(out)
    assert results.methods("tiny") == ["independent", "unconditional", "conditional"]
    curves = results.curves("tiny", "conditional")
    assert curves.test.shape == (2, 7)
    assert curves.validation.shape == (2, 2)
    stored = store.ExperimentStore(
        out / "tiny", load_config(tiny).identity() | {"data_sha256": "seeded"}
    )
    best = int(curves.chosen[1])
    kept, _ = stored.load(Cell("tiny", 1, "conditional", best))
    # Seventeen digits: what is read is what was computed.
    np.testing.assert_array_equal(curves.test[1], kept.test)
    assert curves.validation[1, best] == curves.validation[1].min() == kept.validation
    with pytest.raises(ValueError, match="experiment must be one of 'tiny'"):
        results.curves("tinny", "conditional")
    write_table(out / "results.csv.gz", rows[:-1])
    with pytest.raises(ResultsError, match="incomplete for tiny"):
        Results.read(out)


@pytest.mark.parametrize("damage", ["truncated", "garbled", "other"])
def test_a_damaged_table_is_an_error_that_says_what_to_do(tiny, tmp_path, damage):
    out = tmp_path / "out"
    for config in (tiny, tmp_path / "other.toml"):
        config.write_bytes(TINY)
        run(config, out)
    table = out / "results.csv.gz"
    whole = table.read_bytes()
    half = len(whole) // 2
    damaged = {"truncated": whole[:half], "garbled": whole[:half] + bytes(40) + whole[half + 40 :]}
    table.write_bytes(damaged.get(damage, gzip.compress(b"name,value\n1,2\n")))
    with pytest.raises(ResultsError, match=r"results\.csv\.gz"):
        Results.read(out)
    # Without it, the finished cells give the table again; those of the other experiment are not
    # read.
    table.unlink()
    assert run(tiny, out, resume=True).computed == 0
    assert Results.read(out).experiments == ["tiny"]
