"""One BLAS thread while any fit runs, and as many as before afterwards."""

import os
import threading
import warnings
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tailored import EmpiricalBayesLearner, TaskSet
from tailored._utils.threads import single_threaded_blas
from tailored.learners import empirical_bayes

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

BEFORE = 3


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def several_threads():
    with threadpool_limits(BEFORE, user_api="blas"):
        if blas_threads() != {BEFORE}:
            pytest.skip("this BLAS has one thread")
        yield


def run_together(*functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_threads_that_overlap_leave_the_limit_as_it_was():
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def first():
        with single_threaded_blas():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with single_threaded_blas():
            second_in.set()
            first_out.wait(10)
            seen.append(blas_threads())

    run_together(first, second)
    assert seen == [{1}]  # the first thread has left
    assert blas_threads() == {BEFORE}


def test_an_exception_lifts_the_limit():
    with pytest.raises(ZeroDivisionError), single_threaded_blas(), single_threaded_blas():
        1 / 0  # noqa: B018
    assert blas_threads() == {BEFORE}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_inside_a_context_stays_in_it_until_it_leaves():
    reading, writing = os.pipe()
    with single_threaded_blas():
        pid = os.fork()
        inside = blas_threads()
    if pid == 0:
        os.write(writing, b"1" if (inside, blas_threads()) == ({1}, {BEFORE}) else b"0")
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    os.waitpid(pid, 0)
    assert (inside, blas_threads()) == ({1}, {BEFORE})


def warning_filters():
    """Return the filters; a module imported meanwhile may compile their patterns."""
    return [tuple(getattr(part, "pattern", part) for part in each) for each in warnings.filters]


def test_fits_that_overlap_leave_the_filters_of_warnings_as_they_were(monkeypatch):
    """They belong to the process: a fit must not change them."""
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(40, 2)), rng.normal(size=40), np.repeat(np.arange(10), 4)
    arrived, learn = [threading.Event() for _ in range(2)], empirical_bayes.learn

    def in_turn(*arguments, **options):
        # The first fit waits for the second to begin, and the second for the first to end.
        me = threads.index(threading.current_thread())
        arrived[me].set()
        arrived[1].wait(60)
        if me:
            threads[0].join(60)
        return learn(*arguments, **options)

    monkeypatch.setattr(empirical_bayes, "learn", in_turn)
    before = warning_filters()
    fits = [partial(EmpiricalBayesLearner().fit, X, y, groups=groups) for _ in range(2)]
    threads = [threading.Thread(target=fit) for fit in fits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert warning_filters() == before


def test_large_tasks_have_the_same_digits_whatever_others_do():
    """Products that BLAS divides among threads have other last digits."""
    rng = np.random.default_rng(0)
    tasks = TaskSet(rng.normal(size=(60, 3)), rng.normal(size=60), np.repeat(np.arange(12), 5))
    learner = EmpiricalBayesLearner().fit(tasks)
    X, y = rng.normal(size=(50_000, 3)), rng.normal(size=50_000)

    def answers():
        model = learner.adapt(X, y)
        return np.concatenate(
            [model.coef_, model.predict(X), model.predict_interval(X[:20_000]).ravel()]
        )

    alone = answers()
    with single_threaded_blas():
        assert np.array_equal(answers(), alone)
