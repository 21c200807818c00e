"""Saving: whole or not at all, by several writers, through links, on a full disk, killed."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tailored import load
from tailored._utils.files import write_atomically

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

KILLS = Path(__file__).parents[1] / "fuzz" / "kill_saves.py"


@pytest.fixture(scope="module")
def models(saved):
    return [load(saved(name)) for name in ("independent", "conditional", "angle", "task-fitted")]


def test_file_and_folder_are_seen_on_the_disk_before_and_after_the_move(models, tmp_path, monkeypatch):
    seen = []
    fsync, replace = os.fsync, os.replace

    def watched(descriptor):
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def moved(source, target):
        seen.append("move")
        assert Path(source).parent == tmp_path
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(os, "replace", moved)
    models[0].save(tmp_path / "a")
    assert seen == ["file", "move", "folder"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(models, tmp_path, monkeypatch):
    models[0].save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, lambda *args: full(0))
            with pytest.raises(OSError, match="No space left"):
                models[1].save(tmp_path / "a")
            with pytest.raises(OSError, match="No space left"):
                models[1].save(tmp_path / "b")
        assert os.listdir(tmp_path) == ["a"]
        assert (tmp_path / "a").read_bytes() == before


def test_whoever_is_interrupted_leaves_nothing(tmp_path):
    def interrupted(file):
        file.write(b"some")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", interrupted)
    assert not list(tmp_path.iterdir())


def test_several_writers_leave_the_file_of_one_of_them(models, tmp_path):
    """And whoever reads in between reads a whole one."""
    path = tmp_path / "a"
    whole = []
    for model in models:
        model.save(path)
        whole.append(path.read_bytes())
    failures, done = [], threading.Event()

    def write(model):
        try:
            for _ in range(15):
                model.save(path)
        except Exception as error:
            failures.append(error)

    def read():
        while not done.is_set():
            if path.read_bytes() not in whole:
                failures.append("a broken file")

    writers = [threading.Thread(target=write, args=(model,)) for model in models]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert failures == []
    assert path.read_bytes() in whole
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_is_followed(models, tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "model", tmp_path / "link"
    for _ in range(2):  # a link to nothing yet, and to a file
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        models[0].save(link)
        assert link.is_symlink()
        assert not target.is_symlink()
        np.testing.assert_array_equal(load(link).task_weights_, models[0].task_weights_)
        assert os.listdir(tmp_path / "there") == ["model"]
    assert sorted(os.listdir(tmp_path)) == ["link", "there"]
    round_ = tmp_path / "round"
    round_.symlink_to(round_)
    with pytest.raises((ValueError, OSError), match="round"):
        models[0].save(round_)


def test_a_target_that_is_not_a_file(models, tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; give the name of a file"):
        models[0].save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist; create it first"):
        models[0].save(tmp_path / "nowhere" / "a")
    if Path("/dev/null").exists():
        with pytest.raises(ValueError, match="not a regular file"):
            models[0].save("/dev/null")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_permissions_are_the_users(models, tmp_path):
    before = os.umask(0o027)
    try:
        models[0].save(tmp_path / "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    (tmp_path / "a").chmod(0o600)
    models[1].save(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")
def test_a_killed_writer_leaves_the_whole_old_file():
    found = subprocess.run(
        [sys.executable, str(KILLS), "--count", "10", "--seed", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("10 kills inside the write")
    assert ": 0 broken files" in found.stdout
