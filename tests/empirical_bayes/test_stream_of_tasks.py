"""`partial_fit` of the recommended learner: bounded memory, tasks in several pieces, a stream that is killed."""

import os
import pickle
import signal
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest

from bayes_samples import same_numbers
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.empirical_bayes import streaming
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.stepwise import Stepwise, blend
from tailored.gaussian.structures import MixedModel
from tailored.sources.reservoir import Reservoir
from tailored.tasks.rows import Scaling


def tasks_of(seed, n_tasks, n_rows=6, d=2, first=0):
    rng = np.random.default_rng([seed, first])
    task = np.repeat(np.arange(n_tasks), n_rows)
    W = np.array([1.0, -1.0])[:d] + rng.normal(size=(n_tasks, d)) * np.array([1.0, 0.3])[:d]
    X = 2.0 + rng.normal(size=(len(task), d))
    return TaskSet(X, np.einsum("ij,ij->i", X, W[task]) + 0.5 * rng.normal(size=len(task)), first + task)


def test_blend_has_the_moments_of_both():
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, 2, 3, 3))
    one, other = (
        Mixture(p, rng.normal(size=(2, 3)), root @ root.transpose(0, 2, 1), noise)
        for p, root, noise in zip(np.array([[0.3, 0.7], [0.6, 0.4]]), roots, (1.0, 3.0), strict=True)
    )
    found = blend(one, other, 0.25)
    mean, covariance = found.moments()
    means, covariances = zip(*(model.moments() for model in (one, other)), strict=True)
    np.testing.assert_allclose(mean, 0.75 * means[0] + 0.25 * means[1])
    seconds = [C + np.outer(m, m) for m, C in zip(means, covariances, strict=True)]
    np.testing.assert_allclose(covariance + np.outer(mean, mean), 0.75 * seconds[0] + 0.25 * seconds[1])
    np.testing.assert_allclose(found.proportions, [0.375, 0.625])
    assert found.noise == pytest.approx(1.5)


def test_stepwise_em_ends_near_em_on_all_tasks():
    """From a model of few tasks, a single pass over many gets most of the way to what EM finds in many passes."""
    tasks = tasks_of(0, 4000, n_rows=4)
    units = Scaling.of(tasks, True, centre=True)
    everything, form = Moments.of(tasks, units), MixedModel()
    few = everything.take(np.arange(60))
    wide = Mixture(np.ones(1), np.zeros((1, 3)), np.eye(3)[None], 1.0)
    start = em(few, wide, max_iter=300, tol=1e-10).mixture
    best = em(everything, start, max_iter=300, tol=1e-10).mixture
    stream = Stepwise(form, start, start)
    for first in range(60, 4000, 60):
        stream = stream.advance(everything.take(np.arange(first, min(first + 60, 4000))), first)

    def lost(model):
        return everything.sums(best).sums.log_evidence - everything.sums(model).sums.log_evidence

    assert 0 < lost(stream.average) < 0.25 * lost(start)


def test_tasks_of_one_stream_are_counted_once_and_hold_all_their_rows():
    tasks = tasks_of(1, 30)
    support, query = tasks.support_query(0.5, random_state=0)
    stream, current = streaming.Stream.begin(0).take(support)
    assert current is support
    stream, current = stream.take(query[np.arange(10, 20)])
    assert stream.n_tasks == 30
    np.testing.assert_array_equal(current.labels, tasks.labels[10:20])
    assert (current.sizes == 6).all()
    assert stream.sample.sample.sizes.tolist() == [3] * 10 + [6] * 10 + [3] * 10


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(streaming, "Reservoir", partial(Reservoir, 45))


def stream_in_pieces(learner, n_pieces, size=12, validation=None):
    for i in range(n_pieces):
        learner.partial_fit(tasks_of(2, size, first=i * size), validation=validation)
    return learner


def test_stream_outgrows_its_sample(small_sample, few_steps):
    learner = stream_in_pieces(EmpiricalBayesLearner(clip="train"), 4)
    assert learner.n_tasks_seen_ == 48
    assert learner._stream.is_settled
    assert not learner._stream.sample.is_whole
    running = learner._stream.running
    for i in range(4, 12):
        learner.partial_fit(tasks_of(2, 12, first=i * 12))
    stream = learner._stream
    assert len(stream.sample) == 45
    assert (stream.n_tasks, stream.n_selected) == (144, 96)
    # the same form was chosen again, in the same units, and its model went on
    assert stream.running.scaling is running.scaling
    assert stream.running.model is not running.model
    assert learner.predict(np.ones((2, 2)), [143, 0]).shape == (2,)
    np.testing.assert_array_equal(learner.task_labels_, np.arange(132, 144))
    errors = learner.task_errors(tasks_of(9, 200), n_support=3)
    whole = EmpiricalBayesLearner(clip="train").fit(
        TaskSet.concat([tasks_of(2, 12, first=i * 12) for i in range(12)])
    )
    assert errors.mean() < 1.05 * whole.task_errors(tasks_of(9, 200), n_support=3).mean()


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


def test_two_descriptions_of_a_task_change_nothing(few_steps):
    tasks = tasks_of(5, 8)
    described = [
        TaskSet(tasks.X, tasks.y, np.repeat(tasks.labels, 6), {t: [s * t] for t in range(8)})
        for s in (1.0, 2.0)
    ]
    learner = EmpiricalBayesLearner().partial_fit(described[0])
    before = learner._stream
    with pytest.raises(ValueError, match=r"column 0 of task 1 has the values 1\.0 and 2\.0"):
        learner.partial_fit(described[1])
    assert learner._stream is before


# --- files


@pytest.mark.parametrize("described", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_stream_continues_from_its_pickle_to_the_same_bits(small_sample, few_steps, described):
    def piece(i):
        tasks = tasks_of(2, 20, first=i * 20)
        side = {t: {"a": np.sin(t), "town": "ab"[t % 2]} for t in tasks.labels.tolist()}
        return TaskSet(tasks.X, tasks.y, np.repeat(tasks.labels, 6), side) if described else tasks

    straight = EmpiricalBayesLearner()
    paused = EmpiricalBayesLearner()
    for i in range(4):
        straight.partial_fit(piece(i))
        paused.partial_fit(piece(i))
        paused = pickle.loads(pickle.dumps(paused))
    same_numbers(straight.prior_, paused.prior_)
    assert straight.search_results_ == paused.search_results_
    same_numbers(straight._stream.running.model, paused._stream.running.model)
    assert paused._stream.sample.limit == straight._stream.sample.limit


KILLED = """
import os, pickle, sys
import numpy as np
from tailored._utils.files import write_atomically
from tailored import EmpiricalBayesLearner, TaskSet
path, n_pieces = sys.argv[1], int(sys.argv[2])
learner = EmpiricalBayesLearner()
if os.path.exists(path):
    with open(path, "rb") as file:
        learner = pickle.load(file)
done = 0 if not hasattr(learner, "prior_") else learner.n_tasks_seen_ // 10
for i in range(done, n_pieces):
    rng = np.random.default_rng(i)
    X = rng.normal(size=(50, 2))
    y = X @ [1.0, 2.0] + np.repeat(rng.normal(size=10), 5) + 0.1 * rng.normal(size=50)
    learner.partial_fit(TaskSet(X, y, np.repeat(np.arange(10 * i, 10 * i + 10), 5)))
    write_atomically(path, pickle.dumps(learner))
    print(i, flush=True)
"""


@pytest.mark.slow
def test_a_killed_stream_resumes_to_the_same_bits(tmp_path):
    """Killed as soon as some pieces are in, wherever it is then: what was saved is whole, and goes on."""
    command = [sys.executable, "-c", KILLED]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, str(tmp_path / "a"), "7"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        for line in process.stdout:
            if int(line) == 3:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    for name in "ab":
        subprocess.run(
            [*command, str(tmp_path / name), "7"], check=True, env=environment, capture_output=True
        )
    one, other = (pickle.loads((tmp_path / name).read_bytes()) for name in "ab")
    assert one.n_tasks_seen_ == other.n_tasks_seen_ == 70
    same_numbers(one.prior_, other.prior_)
    same_numbers(one._stream.running.model, other._stream.running.model)
