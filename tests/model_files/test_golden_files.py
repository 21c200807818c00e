"""Golden files: they are read, and their models predict as when they were written."""

import pytest

from forging import apart
from tailored import load


@pytest.mark.parametrize("name", ["joined", "described", "mixture", "many-columns", "task-adapted-rows"])
def test_a_model_that_was_read_is_written_to_the_same_bytes(name, saved, tmp_path):
    load(saved(name)).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved(name).read_bytes()
    assert apart(tmp_path / "again")[0]["value"]["object"][0] in (
        "TaskRegressor",
        type(load(saved(name))).__name__,
    )
