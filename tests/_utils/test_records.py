"""Properties that are computed once."""

import os
import signal
import threading

import pytest

from tailored._utils.records import cached_property


class Slow:
    """``answer`` waits until it may be given."""

    def __init__(self, may):
        self.may = may
        self.started = threading.Event()
        self.computed = 0

    @cached_property
    def answer(self):
        """Of everything."""
        self.started.set()
        assert self.may.wait(30)
        self.computed += 1
        return 42


def test_is_computed_once_and_kept():
    may = threading.Event()
    may.set()
    slow = Slow(may)
    assert (slow.answer, slow.answer, slow.computed) == (42, 42, 1)
    assert vars(slow)["answer"] == 42
    assert Slow.answer.__doc__ == "Of everything."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_computes_does_not_wait_for_it():
    slow = Slow(threading.Event())
    thread = threading.Thread(target=lambda: slow.answer)
    thread.start()
    assert slow.started.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        may = threading.Event()
        may.set()
        os._exit(0 if Slow(may).answer == 42 else 1)
    slow.may.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
