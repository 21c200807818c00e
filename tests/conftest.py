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


@pytest.fixture
def few_steps():
    """Shorten the fits in a test."""
    from folds import short_fits

    with short_fits():
        yield


@pytest.fixture(scope="module")
def short_fits_in_module():
    """Shorten the fits of all tests of a module and of its fixtures."""
    from folds import short_fits

    with short_fits():
        yield


@pytest.fixture
def no_curves():
    """Fit without proposed shared effects."""
    from folds import no_curves

    with no_curves():
        yield


@pytest.fixture(scope="module")
def no_curves_in_module():
    """Fit without proposed shared effects in all tests of a module and in its fixtures."""
    from folds import no_curves

    with no_curves():
        yield


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
