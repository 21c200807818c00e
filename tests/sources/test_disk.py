"""Fits to scanned tables, with statistics on disk."""

from functools import partial

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from tailored import EmpiricalBayesLearner, TaskSet, scan
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.priors.shared import fit_out_of_fold
from tailored.sources import disk as disk_module
from tailored.sources.base import Blocks, LazyBlock
from tailored.sources.disk import read_block, write_block
from tailored.sources.reservoir import Reservoir
from tailored.tasks.reading import positions_of
from tailored.tasks.rows import Scaling

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

COLUMNS = {"task": "user", "target": "y"}


def long_frame(n_tasks=150, d=2, n_rows=8, seed=0, side=False):
    rng = np.random.default_rng(seed)
    age = rng.normal(size=n_tasks)
    W = 1.0 + rng.normal(size=(n_tasks, d)) + age[:, None]
    user = rng.permutation(np.repeat(np.arange(n_tasks), n_rows))
    X = 3.0 + rng.normal(size=(len(user), d))
    y = np.einsum("ij,ij->i", X, W[user]) + 0.5 * rng.normal(size=len(user))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)]).assign(y=y, user=user)
    return frame.assign(age=age[user]) if side else frame


def blocks_of(tasks, units, folder, n_blocks=4):
    blocks = []
    for i, part in enumerate(np.array_split(np.arange(len(tasks)), n_blocks)):
        path = folder / f"{i}.block"
        write_block(path, Moments.of(tasks[part], units, np.ones((len(part), 1))))
        blocks.append(LazyBlock(partial(read_block, path), len(units.columns)))
    return blocks


@pytest.fixture
def disk(tmp_path):
    tasks = TaskSet.from_frame(long_frame(), **COLUMNS)
    units = Scaling.of(tasks, True, centre=True)
    return Moments.of(tasks, units), Blocks(blocks_of(tasks, units, tmp_path))


def mixture(K, d=3):
    rng = np.random.default_rng(K)
    roots = rng.normal(size=(K, d, d))
    return Mixture(np.full(K, 1.0 / K), rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1), 0.3)


def same_moments(one, other, **tolerance):
    for name, value in vars(one).items():
        np.testing.assert_allclose(value, getattr(other, name), **tolerance)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_do_not_change_a_bit(disk, n_threads):
    _, there = disk
    many = Blocks(there.blocks, n_threads)
    same_moments(there.sums(mixture(3)).sums, many.sums(mixture(3)).sums, rtol=0)


# --- the learner


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(disk_module, "Reservoir", partial(Reservoir, size=45))


def same_prior(one, other, **tolerance):
    for name in ("proportions", "means", "covariances", "noise"):
        mine, theirs = (getattr(each.prior_.mixture, name) for each in (one, other))
        np.testing.assert_allclose(mine, theirs, **tolerance)


@pytest.mark.usefixtures("few_steps")
def test_few_tasks_of_a_table_are_fitted_as_in_memory(tmp_path):
    frame = long_frame(20, side=True)
    frame.to_parquet(tmp_path / "f.parquet")
    scanned = scan(tmp_path / "f.parquet", side_columns=["age"], **COLUMNS)
    found = EmpiricalBayesLearner().fit(scanned)
    expected = EmpiricalBayesLearner().fit(TaskSet.from_frame(frame, side_columns=["age"], **COLUMNS))
    same_prior(found, expected, rtol=0)
    np.testing.assert_array_equal(
        found.predict(frame[["x0", "x1"]], frame["user"]),
        expected.predict(frame[["x0", "x1"]], frame["user"]),
    )
    assert list(found.feature_names_in_) == ["x0", "x1"]
    assert found.columns_in_ == {"task": "user", "target": "y", "side_info": ["age"]}


def test_all_tasks_of_a_table_are_learned_from(small_sample, tmp_path):
    frame = long_frame(400, n_rows=5)
    frame.to_parquet(tmp_path / "f.parquet")
    # A draw that chooses a covariance that is free: one of few factors is not the likeliest, which is asked below.
    settings = {"clip": "train", "random_state": 1}
    found = EmpiricalBayesLearner(**settings).fit(scan(tmp_path / "f.parquet", **COLUMNS))
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    sample = found._stream.sample.sample
    sampled = EmpiricalBayesLearner(**settings).fit(sample)
    assert found.n_tasks_seen_ == 400
    assert len(sample) == 45
    assert found.structure_ == sampled.structure_
    assert found.clip_ == (frame["y"].min(), frame["y"].max())
    everything = Moments.of(tasks, found.prior_.scaling)

    def evidence(mixture):
        return everything.sums(mixture).sums.log_evidence

    start = sampled.prior_.mixture
    best = evidence(em(everything, start, max_iter=300, tol=1e-10).mixture)
    assert best - evidence(found.prior_.mixture) < 0.05 * (best - evidence(start))
    with pytest.raises(ValueError, match="predict_tasks"):
        found.predict(frame[["x0", "x1"]], frame["user"])
    assert len(found.predict_tasks(frame[:20], support=frame[20:])) == 20


@pytest.mark.usefixtures("few_steps")
def test_a_table_beside_a_common_part(small_sample):
    """Tasks are tailored on what it leaves: of those in the sample, by a regressor that has not seen them."""
    frame = long_frame(60, n_rows=4)
    learner = EmpiricalBayesLearner(common=DecisionTreeRegressor(max_depth=2)).fit(scan(frame, **COLUMNS))
    assert (learner.n_tasks_seen_, learner.prior_.regressor is not None) == (60, True)
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    learned, others = tasks[:40], tasks[35:]
    shared = fit_out_of_fold([DecisionTreeRegressor(max_depth=2)], learned, [0]).weighted(np.ones(1), learned)
    left = shared.regressor.residual_tasks(
        others, shared.folds_of(positions_of(others.labels, learned.labels))
    )
    known = shared.regressor.residual_tasks(learned, shared.folds)
    np.testing.assert_array_equal(left[:5].y, known[35:].y)
    np.testing.assert_array_equal(left[5:].y, shared.regressor.residual_tasks(tasks[40:]).y)


@pytest.mark.usefixtures("few_steps")
def test_what_does_not_go_with_a_scan():
    frame = long_frame(5)
    learner = EmpiricalBayesLearner()
    with pytest.raises(TypeError, match="groups: a scan has its own columns"):
        learner.fit(scan(frame, **COLUMNS), groups=frame["user"])
    with pytest.raises(ValueError, match="has no rows"):
        learner.fit(scan(frame[:0], **COLUMNS))
    assert not hasattr(learner, "prior_")


@pytest.mark.usefixtures("few_steps")
def test_two_descriptions_of_a_task_are_found_wherever_they_stand(small_sample, tmp_path):
    frame = long_frame(200, side=True)
    bad = frame.copy()
    row = len(bad) - 1
    bad.loc[row, "age"] += 1.0
    for part in (bad[:800], bad[800:]):
        part.to_parquet(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
    with pytest.raises(ValueError, match=rf"column 'age' of task {bad['user'][row]} has the values"):
        EmpiricalBayesLearner().fit(scan(tmp_path, side_columns=["age"], **COLUMNS))
