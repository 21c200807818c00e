"""A fit says which stage it is in."""

import logging

from tailored import EmpiricalBayesLearner
from tailored._utils.progress import Stages
from tailored.datasets import make_clusters


def test_the_log_has_a_line_for_every_stage(caplog):
    tasks = make_clusters(45, n_clusters=1, n_rows=6, n_features=2, rank=1, random_state=0)
    with caplog.at_level(logging.INFO, logger="tailored"):
        EmpiricalBayesLearner().fit(tasks)
    said = [record.getMessage() for record in caplog.records if record.name == "tailored"]
    expected = [
        "side information",
        "structures",
        "number of components",
        "fit to all tasks",
        "prior mean",
        "intervals",
    ]
    assert len(said) == len(expected)
    for line, stage in zip(said, expected, strict=True):
        assert line.startswith(f"Learning from tasks: {stage}")
        assert line.endswith(" s")


def test_a_bar_is_named_and_advanced():
    seen = []
    stages = Stages("Learning", lambda **changes: seen.append(changes))
    stages.begin("forms")
    stages(2)
    stages.begin("")
    assert seen == [{"description": "Learning: forms"}, {"advance": 2}]
