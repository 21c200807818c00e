"""What several files of tests use."""

import os
import signal

import pytest


def pytest_configure(config):
    """Give each process one thread, and fill Numba's cache before workers start: a kernel is
    compiled once.

    Workers and the processes that tests start share the cores. Nothing has imported NumPy yet.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from compiling import compile_kernels

        compile_kernels()


def _within(name, scope):
    """Return a fixture that runs tests, and fixtures of its scope, in a context of `folds`."""

    @pytest.fixture(scope=scope)
    def inside():
        import folds

        with getattr(folds, name)():
            yield

    return inside


few_steps, short_fits_in_module = (_within("short_fits", each) for each in ("function", "module"))
no_curves, no_curves_in_module = (_within("no_curves", each) for each in ("function", "module"))


@pytest.fixture
def no_waiting_for_ever():
    """A cluster that does not answer fails the test."""

    def stop(number, frame):
        raise TimeoutError("the cluster has not answered for three minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(180)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
