"""One BLAS thread while anybody computes, and as many as before when the last is done."""

import multiprocessing
import os
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tailored._threads import single_threaded_blas

BEFORE = 3


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several_threads():
    """Whatever the machine has, there are several to come back to."""
    with threadpool_limits(BEFORE, user_api="blas"):
        if blas_threads() != {BEFORE}:
            pytest.skip("this BLAS has one thread")
        yield


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

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == [{1}]  # the one that is left is still alone
    assert blas_threads() == {BEFORE}


def test_many_threads_in_any_order_and_contexts_in_contexts():
    seen = set()

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            with single_threaded_blas():
                if rng.random() < 0.5:
                    with single_threaded_blas():
                        seen.update(blas_threads())
                threading.Event().wait(rng.random() / 1000)
                seen.update(blas_threads())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {1}
    assert blas_threads() == {BEFORE}


def test_an_exception_lifts_the_limit():
    with pytest.raises(ZeroDivisionError), single_threaded_blas(), single_threaded_blas():
        assert blas_threads() == {1}
        raise ZeroDivisionError
    assert blas_threads() == {BEFORE}


def _in_child(results):
    inside = blas_threads()
    with single_threaded_blas():
        limited = blas_threads()
    results.put((inside, limited, blas_threads(), float(np.ones((300, 300)).dot(np.ones((300, 300))).sum())))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_holds_the_limit_is_not_limited():
    context = multiprocessing.get_context("fork")
    results, inside, leave = context.Queue(), threading.Event(), threading.Event()

    def hold():
        with single_threaded_blas():
            inside.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(10)
    child = context.Process(target=_in_child, args=(results,))
    child.start()
    found = results.get(timeout=60)
    child.join(60)
    leave.set()
    holder.join(10)
    assert found == ({BEFORE}, {1}, {BEFORE}, 300.0**3)
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
