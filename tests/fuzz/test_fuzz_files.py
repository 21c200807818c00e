"""Run the fuzzer of model files briefly; the long run is a command (see CONTRIBUTING.md)."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded as Linux does it")
def test_damaged_and_crafted_files_are_refused_or_are_models():
    command = [sys.executable, str(Path(__file__).parent / "fuzz_files.py"), "--count", "1000", "--seed", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "; 0 failures" in found.stdout
    # all classes were there, and some forged files are models
    for name in (
        "bytes: flip",
        "containers",
        "fields, right checksum",
        "arrays, old checksum",
        "a model",
    ):
        assert name in found.stdout
