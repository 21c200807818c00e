"""`python -m studies demo`: the table, the figure, and the order of the errors."""

from __future__ import annotations

import numpy as np
from typer.testing import CliRunner

from studies import demo
from studies.__main__ import app
from studies.demo import ALGORITHM_1, BAYES, CURVES, INDEPENDENT, ORACLE, OURS, DemoResult, run_demo
from tailored import TaskSet


def test_demo_writes_a_table_and_a_figure(tmp_path, monkeypatch):
    errors = {
        OURS: np.array([0.1, 0.1]),
        INDEPENDENT: np.array([0.1, 0.3]),
        BAYES: np.array([0.08, 0.1]),
    }
    tasks = TaskSet(np.arange(36.0).reshape(18, 2), np.arange(18.0), np.repeat(np.arange(3), 6))
    pairs = [tasks[[i]].support_query(2) for i in range(3)]
    tau = dict.fromkeys(["learned", "oracle"], np.ones((3, 3, 3)))
    result = DemoResult(errors, pairs, dict.fromkeys(CURVES, np.ones((3, 3))), tau)
    monkeypatch.setattr(demo, "run_demo", lambda **options: result)
    folder = tmp_path / "[new]"
    text = (
        CliRunner()
        .invoke(app, ["demo", "--tasks", "20", "--seed", "4", "--out", str(folder)])
        .stdout
    )
    assert "20 training and 200 new tasks of 10 rows, seed 4" in text
    assert str(folder / "demo.png") in text  # brackets in a path are not markup
    lines = (folder / "demo.csv").read_text("utf-8").splitlines()
    rows = [
        f"{INDEPENDENT},0.200000,0.100000",
        f"{OURS},0.100000,0.000000",
        f"{BAYES},0.090000,0.010000",
    ]
    assert lines[1:] == rows
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_learns_the_direction_in_which_the_tasks_of_a_cluster_differ():
    result = run_demo(n_train=60, seed=7, n_jobs=1)
    means = {name: errors.mean() for name, errors in result.errors.items()}
    assert means[OURS] < 1.05 * means[BAYES]
    assert means[BAYES] < min(mean for name, mean in means.items() if name not in (BAYES, OURS))
    assert means[ORACLE] < means[ALGORITHM_1] < 0.9 * means["UnconditionalLearner"]
    # W(s) has rank one, n = 10 and L = 1, so the oracle is √10 / 2 times the standard deviation 2 in one entry.
    for i, (learned, oracle) in enumerate(zip(*result.representations.values(), strict=True)):
        np.testing.assert_allclose(oracle, np.sqrt(10.0) * np.diag(np.eye(3)[i]), atol=1e-12)
        assert np.argmax(np.abs(learned)) == 4 * i  # the i-th entry of the diagonal
    for i, (observed, predicted) in enumerate(result.tasks):
        assert list(observed.labels) == list(predicted.labels)
        assert observed.side_info[0, i] == 1.0
        assert np.argmax(np.abs(result.weights[OURS][i])) == i
