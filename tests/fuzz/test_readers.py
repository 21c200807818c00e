"""A few seconds of `readers.py`, whose long run is a command (README.md in this folder)."""

from readers import run


def test_odd_tables_are_read_right_or_raise_an_error() -> None:
    found = run(1, range(300))
    assert found.failed == []
    # The inputs reach both outcomes.
    for outcome in ("read", "refused"):
        assert found.tried["outcome", outcome] > 20
