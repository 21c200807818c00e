"""A call of fit or partial_fit succeeds whole or changes nothing, wherever it fails."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from functools import cache

import numpy as np
import pandas as pd
import pytest

import tailored.learners.base as base_module
import tailored.learners.empirical_bayes as empirical_bayes_module
import tailored.paper.learners as paper_module
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.datasets import make_clusters
from tailored.paper import ProjectedSGD
from tailored.paper.algorithm_1 import Surrogate, Trajectory
from tailored.paper.feature_maps import RidgeEstimate
from tailored.paper.prior import RepresentationPrior
from tailored.paper.stream import Stream

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

# What is learned does not matter here, and EM may stop early.

FIRST, MORE, BAD = slice(0, 12), slice(12, 22), slice(22, 30)


class Injected(Exception):
    """What the tests let go wrong."""


@cache
def make_tasks():
    return make_clusters(30, n_clusters=2, n_rows=8, n_features=4, rank=2, random_state=0)


@pytest.fixture(scope="module")
def tasks():
    return make_tasks()


@pytest.fixture(scope="module")
def other_columns():
    return make_clusters(12, n_clusters=2, n_rows=8, n_features=6, rank=2, random_state=1)


def searched():
    return ConditionalLearner(
        "ridge", solver=ProjectedSGD(step_sizes=(0.1, 1.0)), rank=4, fit_intercept=True
    )


LEARNERS = {
    "searched": searched,
    "fixed step": lambda: ConditionalLearner(
        "ridge",
        solver=ProjectedSGD(0.3),
        rank=None,
        loss="squared",
        lipschitz=1.0,
        fit_intercept=False,
    ),
    "unconditional": lambda: UnconditionalLearner(
        solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False
    ),
    "empirical Bayes": EmpiricalBayesLearner,
    "independent": lambda: IndependentLearner(fit_intercept=True),
}


def fail_at(monkeypatch, owner, name, call=1, after=False, error=Injected):
    """Let the ``call``-th call of ``owner.name`` fail, before it does anything or when all of it is
    done.
    """
    original, count = getattr(owner, name), [0]

    def failing(*args, **kwargs):
        count[0] += 1
        fails = count[0] == call
        if fails and not after:
            raise error(name)
        result = original(*args, **kwargs)
        if fails:
            raise error(name)
        return result

    monkeypatch.setattr(owner, name, failing)


#: Where code is made to fail: owner, name, number of the call, whether its work is done by then, and
#: the learners that reach it.
STREAMS = ("searched", "fixed step", "unconditional")
INJECTED = {
    "reading": (base_module.reading, "check_tasks", 1, True, (*LEARNERS,)),
    "held-out tasks": (Stream, "hold_out", 1, True, ("searched", "unconditional")),
    "second features": (RidgeEstimate, "transform", 2, False, ("searched", "fixed step")),
    "later task of the surrogate": (Surrogate, "__call__", 7, True, STREAMS),
    "second candidate": (Trajectory, "advance", 2, True, ("searched", "unconditional")),
    "later held-out error": (
        paper_module,
        "held_out_error",
        5,
        True,
        ("searched", "unconditional"),
    ),
    "solving at the end": (RepresentationPrior, "solve", 1, True, (*STREAMS, "independent")),
    "remembering": (base_module.MetaLearner, "_remember", 1, True, (*LEARNERS,)),
    # Only a call that starts over reaches these.
    "fit of the feature map": (RidgeEstimate, "fit", 1, True, ("searched", "fixed step")),
    "learning": (empirical_bayes_module, "learn", 1, True, ("empirical Bayes",)),
}
STARTING = ("fit of the feature map", "learning")
#: Names of learners, and the calls that will fail; "first" is the first call, where learners differ
#: in nothing else.
MODES = [
    (name, mode)
    for mode in ("partial_fit", "fit", "first")
    for name in LEARNERS
    if mode != "partial_fit" or hasattr(LEARNERS[name](), "partial_fit")
]
CASES = [
    (name, stage, mode)
    for name, mode in MODES
    for stage, (*_, reached_by) in INJECTED.items()
    if name in reached_by and (mode != "partial_fit" or stage not in STARTING)
    # A new learner stores nothing else on its way than a fitted one.
    if mode != "first" or stage in ("reading", "remembering")
]


def check_unchanged(learner, before, pickled):
    """The same attributes, the same objects, and nothing written into any of them."""
    assert vars(learner).keys() == before.keys()
    for name, value in before.items():
        assert vars(learner)[name] is value
    assert pickle.dumps(vars(learner)) == pickled


def same_bits(one, other, tasks):
    assert vars(one).keys() == vars(other).keys()
    for name in (
        "search_results_",
        "validation_error_",
        "scale_",
        "step_size_",
        "n_tasks_seen_",
        "n_iter_",
    ):
        assert getattr(one, name, None) == getattr(other, name, None)
    assert pickle.dumps(one.prior_) == pickle.dumps(other.prior_)
    np.testing.assert_array_equal(one.task_weights_, other.task_weights_)
    np.testing.assert_array_equal(one.adapt_many(tasks).weights_, other.adapt_many(tasks).weights_)


def call(learner, mode, *args, **kwargs):
    return (learner.fit if mode == "fit" else more_of(learner))(*args, **kwargs)


def more_of(learner):
    """The method that takes the next tasks: `partial_fit`, or `fit` of all tasks if there is
    none.
    """
    return getattr(learner, "partial_fit", learner.fit)


@cache
def pickled_in_its_stream(name):
    return pickle.dumps(more_of(LEARNERS[name]())(make_tasks()[FIRST]))


def prepared(name, mode):
    """A learner before the call that will fail: in the middle of its stream, or new."""
    return LEARNERS[name]() if mode == "first" else pickle.loads(pickled_in_its_stream(name))


@cache
def never_failed(name, fresh):
    return more_of(prepared(name, "first" if fresh else "fit"))(make_tasks()[MORE])


def expect(learner, error, match, mode, *args, **kwargs):
    """The call fails and changes nothing."""
    before, pickled = dict(vars(learner)), pickle.dumps(vars(learner))
    with pytest.raises(error, match=match):
        call(learner, mode, *args, **kwargs)
    check_unchanged(learner, before, pickled)


def goes_on(learner, name, mode):
    """The stream goes on as if the failed call had never been."""
    if not hasattr(learner, "partial_fit"):
        return  # it learns from all tasks anew, and that its attributes are as they were has been seen
    tasks = make_tasks()
    same_bits(learner.partial_fit(tasks[MORE]), never_failed(name, mode == "first"), tasks)


@pytest.mark.parametrize(("name", "stage", "mode"), CASES)
def test_a_failure_anywhere_changes_nothing(name, stage, mode, tasks, monkeypatch):
    learner = prepared(name, mode)
    owner, attribute, number, after, _ = INJECTED[stage]
    with monkeypatch.context() as patched:
        fail_at(patched, owner, attribute, number, after)
        expect(learner, Injected, attribute, mode, tasks[BAD])
    goes_on(learner, name, mode)


@pytest.mark.parametrize("mode", ["partial_fit", "fit", "first"])
def test_an_interrupt_changes_nothing(mode, tasks, monkeypatch):
    """Ctrl-C when everything is learned and stored but the last attribute."""
    learner = prepared("unconditional", mode)
    with monkeypatch.context() as patched:
        fail_at(patched, base_module.MetaLearner, "_remember", after=True, error=KeyboardInterrupt)
        expect(learner, KeyboardInterrupt, None, mode, tasks[BAD])
    goes_on(learner, "unconditional", mode)


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_bad_tasks_change_nothing(name, mode, tasks, other_columns):
    """Wrong columns and names, targets that are missing, and rows with NaN."""
    learner = prepared(name, mode)
    bad = tasks[BAD]
    groups = np.repeat(bad.labels, bad.sizes)
    wide = other_columns.X, other_columns.y
    calls = [((wide[0], wide[1][:-1]), {"groups": np.zeros(len(wide[1]))}, "inconsistent")]
    calls.append((wide, {"groups": np.zeros(3)}, "groups|features"))
    holes = bad.X.copy()
    holes[3, 1] = np.nan
    calls.append(((holes, bad.y), {"groups": groups}, "NaN"))
    calls.append(((bad, bad.y), {}, "TaskSet"))
    if mode == "partial_fit":
        calls.append(((other_columns,), {}, "features"))
        calls.append(
            (wide, {"groups": np.repeat(other_columns.labels, other_columns.sizes)}, "features")
        )
    else:
        # names that would have come with the rows
        frame = pd.DataFrame(holes, columns=list("abcd"))
        calls.append(((frame, bad.y), {"groups": groups}, "NaN"))
    for args, kwargs, match in calls:
        expect(learner, (ValueError, TypeError), match, mode, *args, **kwargs)
    goes_on(learner, name, mode)


@pytest.mark.parametrize(("name", "mode"), [pair for pair in MODES if pair[0] != "independent"])
def test_bad_held_out_tasks_change_nothing(name, mode, tasks, other_columns):
    learner = prepared(name, mode)
    if name == "fixed step":
        expect(learner, ValueError, "validation", mode, tasks[BAD], validation=tasks[MORE])
    else:
        expect(learner, ValueError, "features", mode, tasks[BAD], validation=other_columns)
        expect(learner, ValueError, "empty", mode, tasks[BAD], validation=tasks[:0])
    goes_on(learner, name, mode)


@pytest.mark.parametrize(
    "wrong", ["side information of another width", "values that are too large"]
)
def test_bad_tasks_in_the_middle_of_a_stream_change_nothing(wrong):
    rng = np.random.default_rng(0)

    def with_side_info(n_tasks, width=2, scale=1.0):
        rows = [(rng.normal(size=(6, 3)), rng.normal(size=6)) for _ in range(n_tasks)]
        return TaskSet.from_tasks([(scale * X, y, rng.normal(size=width)) for X, y in rows])

    def learner():
        return ConditionalLearner("vector", solver=ProjectedSGD(0.3), fit_intercept=False)

    first, more = with_side_info(12), with_side_info(8)
    bad = with_side_info(5, width=3) if wrong.startswith("side") else with_side_info(5, scale=1e200)
    found = learner().partial_fit(first)
    expect(found, ValueError, "side_info|has values too large", "partial_fit", bad)
    same_bits(found.partial_fit(more), learner().partial_fit(first).partial_fit(more), more)


SNAPSHOTS = [
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=5, fit_intercept=False),
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=None, fit_intercept=False),
    UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False),
    EmpiricalBayesLearner(),
]


def arrays_of(prior):
    """Return every array of the parameters of a prior."""
    return {
        (part, name): value
        for part in ("conditioning", "model")
        for name, value in vars(getattr(prior, part, None) or object.__new__(Empty)).items()
        if isinstance(value, np.ndarray)
    }


class Empty:
    """A part that a prior does not have."""


@pytest.mark.parametrize(
    "learner", SNAPSHOTS, ids=lambda e: f"{type(e).__name__}-{e.get_params().get('solver')}"
)
def test_what_a_user_holds_is_a_snapshot(clusters, learner):
    """Going on makes a new prior; the old one keeps every bit."""
    learner = copy.deepcopy(learner)
    more = getattr(learner, "partial_fit", learner.fit)
    more(clusters[:25])
    prior = learner.prior_
    before = {key: value.copy() for key, value in arrays_of(prior).items()}
    assert ("conditioning", "C") in before or ("model", "means") in before
    tau = learner.representation(clusters).copy()
    more(clusters[25:])
    for (part, name), value in arrays_of(prior).items():
        np.testing.assert_array_equal(value, before[part, name])
    assert learner.prior_ is not prior
    assert np.abs(learner.representation(clusters) - tau).max() > 1e-9
    with pytest.raises(FrozenInstanceError):
        prior.offset = 1.0
    with pytest.raises(AttributeError):
        learner.calibration_ = None
