"""A few runs of the fuzzers; the long runs are commands (README.md beside this folder)."""

import pytest

import machines
import readers
from machines import CALLED, MACHINES, EmpiricalBayesMachine

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


@pytest.mark.parametrize("machine", MACHINES)
def test_any_order_of_calls_keeps_answers_and_files(machine):
    CALLED.clear()
    machines.run(machine, 6 if machine is EmpiricalBayesMachine else 8, 12)
    outcomes = {outcome for _, outcome in CALLED}
    assert {"a result", "refused"} <= outcomes


def test_odd_tables_are_read_right_or_raise_an_error() -> None:
    found = readers.run(1, range(300))
    assert found.failed == []
    # The inputs reach both outcomes.
    for outcome in ("read", "refused"):
        assert found.tried["outcome", outcome] > 20
