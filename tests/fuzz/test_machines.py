"""A few runs of the state machines; the long run is a command (README.md beside this file)."""

import pytest

from machines import CALLED, MACHINES, EmpiricalBayesMachine, run

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


@pytest.mark.parametrize("machine", MACHINES)
def test_any_order_of_calls_keeps_answers_and_files(machine):
    CALLED.clear()
    run(machine, 6 if machine is EmpiricalBayesMachine else 8, 12)
    outcomes = {outcome for _, outcome in CALLED}
    assert {"a result", "refused"} <= outcomes
