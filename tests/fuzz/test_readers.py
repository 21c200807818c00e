"""A few seconds of `readers.py`, whose long run is a command (README.md beside this file)."""

from readers import run


def test_odd_tables_and_damaged_files_are_read_right_or_refused() -> None:
    found = run(1, range(600))
    assert found.failed == []
    # that the drawing reached results and refusals alike
    for kind in ("table", "file"):
        for outcome in ("read", "refused"):
            assert found.tried[f"outcome of a {kind}", outcome] > 20
