"""A fit says which stage it is in."""

import logging
from contextlib import contextmanager

from folds import few_folds
from tailored._utils.progress import Stages
from tailored.datasets import make_clusters
from tailored.selection import learn as learn_module
from tailored.selection.steps import STEPS, mixtures


def test_the_log_has_a_line_for_every_stage(caplog):
    tasks = make_clusters(45, n_clusters=1, n_rows=6, n_features=2, rank=1, random_state=0)
    with caplog.at_level(logging.INFO, logger="tailored"):
        few_folds().fit(tasks)
    said = [record.getMessage() for record in caplog.records if record.name == "tailored"]
    expected = ("shared effects", "dispersion", "correlated noise", "side information")
    expected += ("covariance", "low rank", "mixture", "offset", "mean without rows")
    expected += ("fit to all tasks", "intervals")
    for line, stage in zip(said, expected, strict=True):
        assert line.startswith(f"Learning from tasks: {stage}")
        assert line.endswith(" s")


def test_the_bar_is_as_long_as_what_is_done(monkeypatch):
    ticks, totals = [], []

    @contextmanager
    def counted(name, total, *, enabled):
        totals.append(total)
        yield Stages(name, lambda advance=0, description="": ticks.append(advance))

    monkeypatch.setattr(learn_module, "progress_bar", counted)
    monkeypatch.setattr(mixtures, "COMPONENTS", (2,))
    tasks = make_clusters(60, n_clusters=2, n_rows=10, n_features=4, rank=1, random_state=0)
    learner = few_folds().fit(tasks)
    assert learner.n_components_ > 1
    # The steps of the selection, the fit to all tasks, and intervals.
    assert sum(ticks) == len(STEPS) + 2 == totals[0]
