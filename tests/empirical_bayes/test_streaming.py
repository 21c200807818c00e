"""`partial_fit` of the recommended learner: bounded memory, tasks in several pieces, a stream that continues from its pickle."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest

from bayes_samples import learned, same_numbers
from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.empirical_bayes import learn
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.structures import MixedModel, Stepwise
from tailored.sources.reservoir import Reservoir
from tailored.tasks.rows import Scaling


def tasks_of(seed, n_tasks, n_rows=6, d=2, first=0):
    rng = np.random.default_rng([seed, first])
    task = np.repeat(np.arange(n_tasks), n_rows)
    W = np.array([1.0, -1.0])[:d] + rng.normal(size=(n_tasks, d)) * np.array([1.0, 0.3])[:d]
    X = 2.0 + rng.normal(size=(len(task), d))
    return TaskSet(X, np.einsum("ij,ij->i", X, W[task]) + 0.5 * rng.normal(size=len(task)), first + task)


def test_stepwise_em_ends_near_em_on_all_tasks():
    """From a model of few tasks, a single pass over many gets most of the way to what EM finds in many passes."""
    tasks = tasks_of(0, 4000, n_rows=4)
    units = Scaling.of(tasks, True, centre=True)
    everything = Moments.of(tasks, units)
    few = everything.take(np.arange(60))
    wide = Mixture(np.ones(1), np.zeros((1, 3)), np.eye(3)[None], 1.0)
    start = em(few, wide, max_iter=300, tol=1e-10).mixture
    best = em(everything, start, max_iter=300, tol=1e-10).mixture
    stream = Stepwise(MixedModel(), start, start)
    for first in range(60, 4000, 60):
        stream = stream.advance(everything.take(np.arange(first, min(first + 60, 4000))), first)

    def lost(model):
        return everything.sums(best).sums.log_evidence - everything.sums(model).sums.log_evidence

    assert 0 < lost(stream.average) < 0.25 * lost(start)


def test_tasks_of_one_stream_are_counted_once_and_hold_all_their_rows():
    tasks = tasks_of(1, 30)
    support, query = tasks.support_query(0.5, random_state=0)
    stream, current = learn.TaskStream.begin(0).take(support)
    assert current is support
    stream, current = stream.take(query[np.arange(10, 20)])
    assert stream.n_tasks == 30
    np.testing.assert_array_equal(current.labels, tasks.labels[10:20])
    assert (current.sizes == 6).all()
    assert stream.sample.sample.sizes.tolist() == [3] * 10 + [6] * 10 + [3] * 10


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(learn, "Reservoir", partial(Reservoir, 45))


def test_stream_outgrows_its_sample(small_sample, few_steps):
    pieces = [tasks_of(2, 12, first=i * 12) for i in range(12)]
    learner = EmpiricalBayesLearner(clip="train")
    for piece in pieces[:4]:
        learner.partial_fit(piece)
    assert learner.n_tasks_seen_ == 48
    assert learner._stream.is_settled
    assert not learner._stream.sample.is_whole
    running = learner._stream.running
    for piece in pieces[4:]:
        learner.partial_fit(piece)
    stream = learner._stream
    assert len(stream.sample) == 45
    assert (stream.n_tasks, stream.n_selected) == (144, 96)
    since = "Since the last selection, on 45 tasks, EM has updated only the variances and the means of"
    assert f"The stream has 144 tasks so far. {since}" in learner.summary().text[-1]
    # the same structure is selected again, in the same units, and its model goes on
    assert stream.running.prior.scaling is running.prior.scaling
    assert stream.running.model is not running.model
    assert learner.predict(np.ones((2, 2)), [143, 0]).shape == (2,)
    np.testing.assert_array_equal(learner.task_labels_, np.arange(132, 144))
    whole = EmpiricalBayesLearner(clip="train").fit(TaskSet.concat(pieces))
    errors, expected = (each.task_errors(tasks_of(9, 200), n_support=3).mean() for each in (learner, whole))
    assert errors < 1.05 * expected


def test_numbers_from_zero_again_and_again_are_warned_of(few_steps):
    learner = EmpiricalBayesLearner().partial_fit(tasks_of(3, 5))
    with pytest.warns(UserWarning, match="partial_fit: tasks 0 to 4 occurred before") as heard:
        learner.partial_fit(tasks_of(4, 5))
    assert heard[0].filename == __file__
    assert learner.n_tasks_seen_ == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.partial_fit(tasks_of(4, 5, first=3))
    assert learner.n_tasks_seen_ == 8


def test_rows_without_groups_are_a_new_task_each_time(few_steps):
    learner = EmpiricalBayesLearner().partial_fit(tasks_of(3, 5))
    for _ in range(2):
        learner.partial_fit(np.ones((3, 2)), np.arange(3.0))
    assert learner.n_tasks_seen_ == 7


def test_a_stream_continues_from_its_pickle_to_the_same_bits(small_sample, few_steps):
    def piece(i):
        tasks = tasks_of(2, 20, first=i * 20)
        side = {t: {"a": np.sin(t), "town": "ab"[t % 2]} for t in tasks.labels.tolist()}
        return TaskSet(tasks.X, tasks.y, np.repeat(tasks.labels, 6), side)

    straight, paused = EmpiricalBayesLearner(), EmpiricalBayesLearner()
    for i in range(3):
        straight.partial_fit(piece(i))
        paused.partial_fit(piece(i))
        paused = pickle.loads(pickle.dumps(paused))
    same_numbers(straight.prior_, paused.prior_)
    assert straight.search_results_ == paused.search_results_
    same_numbers(straight._stream.running.model, paused._stream.running.model)
    assert paused._stream.sample.limit == straight._stream.sample.limit


def test_stream_in_pieces_is_the_same_bits(few_steps, clusters):
    some = clusters[:44]  # enough for mixtures to be tried
    whole, pieces = (few_folds() for _ in range(2))
    whole.fit(some)
    for first, last in ((0, 1), (1, 20), (20, 44)):
        pieces.partial_fit(some[first:last])
    same_numbers(whole.prior_, pieces.prior_)
    np.testing.assert_array_equal(whole.adapt_many(clusters).weights_, pieces.adapt_many(clusters).weights_)
    assert whole.search_results_ == pieces.search_results_
    assert "mixed model" in {entry["kind"] for entry in whole.search_results_}
    assert pieces.n_tasks_seen_ == 44
    np.testing.assert_array_equal(pieces.task_labels_, clusters.labels[20:44])
    # and a call that starts over forgets all of it
    same_numbers(learned(whole), learned(pieces.fit(some)))


def test_pieces_bring_side_information_and_validation_tasks(few_steps, with_side):
    tasks, _ = with_side
    options = {"clip": "train", "random_state": 3}
    whole = EmpiricalBayesLearner(**options).fit(tasks[:25], validation=tasks[25:35])
    pieces = EmpiricalBayesLearner(**options)
    pieces.partial_fit(tasks[:10], validation=tasks[25:28]).partial_fit(tasks[10:25], validation=tasks[28:35])
    same_numbers(whole.prior_, pieces.prior_)
    assert whole.search_results_ == pieces.search_results_
    assert whole.n_tasks_seen_ == pieces.n_tasks_seen_ == 35
