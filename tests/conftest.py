"""What several files of tests use."""

import signal

import pytest

from tailored.gaussian import structures
from tailored.gaussian.em import fit_mixed_model


@pytest.fixture
def few_steps(monkeypatch):
    """EM stops early in the recommended learner: for statements that do not hang on how far it went."""

    def short(statistics, **given):
        return fit_mixed_model(statistics, **{**given, "max_iter": 5})

    monkeypatch.setattr(structures, "fit_mixed_model", short)


@pytest.fixture
def no_waiting_for_ever():
    """A cluster that hangs fails the test instead."""

    def stop(number, frame):
        raise TimeoutError("the cluster has not answered for three minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(180)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
