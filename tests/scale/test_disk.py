"""Fits to scanned tables: statistics on disk, checkpoints of other data, interrupted fits."""

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet, load, scan
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.scale import disk as disk_module
from tailored.scale import scan as scan_module
from tailored.scale.base import Blocks, Reader, Reservoir
from tailored.scale.disk import DiskSource, read_block, write_block
from tailored.tasks.rows import Scaling

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

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
    loads = []
    for i, part in enumerate(np.array_split(np.arange(len(tasks)), n_blocks)):
        path = folder / f"{i}.block"
        write_block(path, Moments.of(tasks[part], units, np.ones((len(part), 1))))
        loads.append(partial(read_block, path))
    return Blocks(loads, len(units.columns))


@pytest.fixture
def disk(tmp_path):
    tasks = TaskSet.from_frame(long_frame(), **COLUMNS)
    units = Scaling.of(tasks, True, centre=True)
    return Moments.of(tasks, units), blocks_of(tasks, units, tmp_path)


def mixture(K, d=3):
    rng = np.random.default_rng(K)
    roots = rng.normal(size=(K, d, d))
    return Mixture(
        np.full(K, 1.0 / K), rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1), 0.3
    )


def same_moments(one, other, **tolerance):
    for name, value in vars(one).items():
        np.testing.assert_allclose(value, getattr(other, name), **tolerance)


def test_a_block_is_itself_again_and_a_broken_one_is_named(disk, tmp_path):
    _, there = disk
    block = read_block(tmp_path / "0.block")
    np.testing.assert_array_equal(block.gram, block.gram.transpose(0, 2, 1))
    path = tmp_path / "1.block"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"1\.block cannot be read .*\. Delete the folder "):
        there.sums(mixture(1))


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
    expected = EmpiricalBayesLearner().fit(
        TaskSet.from_frame(frame, side_columns=["age"], **COLUMNS)
    )
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
    # A draw that chooses a covariance that is free: one of few factors is not the likeliest, which
    # is asked below.
    found = EmpiricalBayesLearner(random_state=1).fit(scan(tmp_path / "f.parquet", **COLUMNS))
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    sample = Reservoir(45, seed=1).take(tasks).sample
    sampled = EmpiricalBayesLearner(random_state=1).fit(sample)
    assert found.training_summary_.n_tasks == 400
    assert len(sample) == 45
    assert found.structure_ == sampled.structure_
    everything = Moments.of(tasks, found.prior_.scaling)

    def evidence(mixture):
        return everything.sums(mixture).sums.log_evidence

    start = sampled.prior_.mixture
    best = evidence(em(everything, start, max_iter=300, tol=1e-10).mixture)
    assert best - evidence(found.prior_.mixture) < 0.05 * (best - evidence(start))
    with pytest.raises(ValueError, match="predict_tasks"):
        found.predict(frame[["x0", "x1"]], frame["user"])
    assert len(found.predict_tasks(frame[:20], support=frame[20:])) == 20


def test_checkpoint_of_other_settings_is_refused(small_sample, tmp_path):
    frame = long_frame()
    tasks = TaskSet.from_frame(frame, **COLUMNS)
    fit = EmpiricalBayesLearner(varying=[]).fit(scan(frame, **COLUMNS), checkpoint=tmp_path)
    for changes, features, validation, difference in (
        ({"reml": False}, None, None, "reml = True, and this fit has False"),
        ({}, ["x1"], None, r"columns \(features\) = \['x0', 'x1'\], and this fit has \['x1'\]"),
        ({}, None, tasks[:3], "validation = "),
    ):
        table = scan(frame, features=features, **COLUMNS)
        with pytest.raises(ValueError, match=f"checkpoint: .* was written with {difference}"):
            fit.set_params(**{"reml": True, **changes}).fit(
                table, validation=validation, checkpoint=tmp_path
            )


CHANGES = {
    "value": (lambda frame: frame.assign(y=frame["y"].where(frame.index != 700, 0.25)), "hash"),
    "feature": (lambda frame: frame.assign(x1=frame["x1"].where(frame.index != 3, 0.25)), "hash"),
    "order": (lambda frame: frame[::-1].reset_index(drop=True), "hash"),
    "fewer rows": (lambda frame: frame[:-1], "number of rows"),
    "type": (lambda frame: frame.assign(user=frame["user"] + 0.0), "column types"),
    "nothing": (lambda frame: frame.copy(), None),
}


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_folder_of_other_data_is_refused(change, is_file, monkeypatch, tmp_path):
    monkeypatch.setattr(scan_module, "BATCH_NUMBERS", 400)
    frame, path, folder = long_frame(125), tmp_path / "f.parquet", tmp_path / "c"
    reader = Reader(Scaling.raw(2))
    model = mixture(2, 2)

    def opened(frame):
        frame.to_parquet(path)
        table = path if is_file else pa.Table.from_pandas(frame).to_reader(max_chunksize=130)
        return DiskSource(scan(table, **COLUMNS), folder, 0, {})

    first, (changed, difference) = opened(frame), CHANGES[change]
    expected = first.statistics(reader).sums(model)
    first.close()
    if difference is not None:
        message = rf"checkpoint: .*was written with {difference} \(table\) = "
        with pytest.raises(ValueError, match=message):
            opened(changed(frame))
        return
    again = opened(changed(frame))
    np.testing.assert_array_equal(again.reservoir.sample.y, first.reservoir.sample.y)
    assert not any((folder / "tailored-rows").iterdir())
    same_moments(again.statistics(reader).sums(model).sums, expected.sums, rtol=0)


@pytest.mark.usefixtures("few_steps")
def test_two_descriptions_of_a_task_are_found_wherever_they_stand(small_sample, tmp_path):
    frame = long_frame(200, side=True)
    bad = frame.copy()
    row = len(bad) - 1
    bad.loc[row, "age"] += 1.0
    for part in (bad[:800], bad[800:]):
        part.to_parquet(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet")
    message = rf"column 'age' of task {bad['user'][row]} has the values"
    with pytest.raises(ValueError, match=message):
        EmpiricalBayesLearner().fit(scan(tmp_path, side_columns=["age"], **COLUMNS))


KILLED = """
import os, signal, sys
from functools import partial
from tailored import EmpiricalBayesLearner, scan
from tailored.scale import base, disk

table, folder, stage, out = sys.argv[1:]
disk.Reservoir = partial(base.Reservoir, size=45)
write, add = disk.write_atomically, disk.PartitionedRows.add

def write_atomically(path, content):
    write(path, content)
    if stage == path.name:
        os.kill(os.getpid(), signal.SIGKILL)

def append(rows, batch):
    add(rows, batch)
    if stage == "rows":
        os.kill(os.getpid(), signal.SIGKILL)
    assert stage != "EM", "a complete checkpoint has no rows"

disk.write_atomically, disk.PartitionedRows.add = write_atomically, append
learner = EmpiricalBayesLearner(random_state=1)
learner.fit(scan(table, task="user", target="y"), checkpoint=None if folder == "-" else folder)
learner.save(out)
"""


def run_killed(*arguments):
    """Fit in a process of its own, and return whether it was killed."""
    found = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode in (0, -signal.SIGKILL), found.stderr
    return found.returncode != 0


@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(tmp_path):
    """Killed while rows are read, while blocks are written, and after the last block."""
    frame, table = long_frame(300, n_rows=5), tmp_path / "f.parquet"
    frame.to_parquet(table)
    folder, out = tmp_path / "c", tmp_path / "learner"
    for stage in ("rows", "5.block", "checkpoint.json"):
        assert run_killed(table, folder, stage, out)
    assert not out.exists()
    assert not run_killed(table, folder, "EM", out)
    assert not (folder / "tailored-rows").exists()
    # The lower triangle of XᵀX, Xᵀy, yᵀy and the number of rows: 11 numbers for each of 300 tasks.
    blocks = sum(path.stat().st_size for path in folder.glob("*.block"))
    assert 300 * 11 * 8 < blocks < 300 * 11 * 8 + 64 * 5 * 128 + 1
    assert not run_killed(table, "-", "", tmp_path / "straight")
    one, other = load(out), load(tmp_path / "straight")
    same_prior(one, other, rtol=0)
    assert one.search_results_ == other.search_results_
    assert one.training_summary_.n_tasks == 300
