"""Configuration files: what is wrong is named with its file, its key and what is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies.reproduction.config import (
    EXPERIMENTS,
    ConfigError,
    load_config,
    parse_config,
    select_configs,
)
from tiny import TINY

#: The paper: tasks train/validation/test, support, feature map.
PROTOCOL = {
    "clusters-2": ((500, 300, 100), 40, "mean"),
    "clusters-6": ((500, 300, 100), 40, "mean"),
    "lenk": ((100, 40, 30), 16, "ridge"),
    "movielens": ((200, 100, 100), 0.75, "mean"),
    "jester": ((250, 100, 100), 0.75, "angle"),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_paper_s_protocol(name):
    config = load_config(name)
    tasks = config.tasks
    found = (tasks.train, tasks.validation, tasks.test), config.rows.support, config.features.map
    assert found == PROTOCOL[name]
    known = () if name in ("lenk", "movielens", "jester") else ("bayes",)
    learned = (
        "independent",
        "unconditional",
        "conditional",
        "conditional-scaled",
        "mixed-model",
        "empirical-bayes",
    )
    assert config.learning.methods == learned + known
    assert (config.learning.loss, config.learning.inner) == ("absolute", "online")
    assert config.grid.seeds == 5
    steps = config.grid.step_sizes
    assert (len(steps), steps[0], steps[-1]) == (14, 1e-5, 1e5)
    assert config.rows.constant == (name == "lenk")
    assert config.rows.train == ("all" if name in ("movielens", "jester") else "support")
    assert dict(config.data.options).get("shift") == (11.0 if name == "jester" else None)


def edit(old: str, new: str) -> bytes:
    text = TINY.decode()
    assert old in text
    return text.replace(old, new).encode()


LENK = re.sub(rb'source = "clusters".*noise = 0.1', b'source = "lenk"', TINY, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (edit("noise = 0.1", "noize = 0.1"), "my.toml: option of data must be one of 'n_clusters'"),
        (edit("[grid]", "[grit]"), "my.toml: the key 'grid' is missing"),
        (edit("train = 7", ""), "my.toml: .*missing 1 required positional argument: 'train'"),
        (edit("train = 7", "train = 7.5"), "my.toml: tasks.train must be an integer"),
        (edit("train = 7", "train = 0"), "my.toml: tasks.train must be an integer >= 1; got 0"),
        (
            edit("support = 8", "support = 1.5"),
            r"my.toml: rows.support must be a finite number in \(0, 1\)",
        ),
        (edit('"shuffled"', '"sorted"'), "my.toml: rows.order must be one of 'kept', 'shuffled'"),
        (
            edit('map = "mean"', 'map = "meen"'),
            "my.toml: features.map must be one of .* Did you mean 'mean'",
        ),
        (edit('"clusters"', '"cluster"'), "my.toml: data.source must be one of 'clusters', 'lenk'"),
        (
            edit('rank = "exact"', "rank = 0"),
            "learning.rank must be an integer >= 1 or 'exact'; got 0",
        ),
        (edit('rank = "exact"', 'rank = "full"'), "must be an integer >= 1 or 'exact'; got 'full'"),
        (
            edit('"conditional"]', '"condicional"]'),
            "my.toml: learning.methods must be one of 'independent'",
        ),
        (
            edit('"conditional"]', '"independent"]'),
            "my.toml: learning.methods must name each method once",
        ),
        (
            LENK.replace(b'"conditional"]', b'"bayes"]'),
            "my.toml: learning.methods: 'bayes' needs data.source",
        ),
        (
            edit("step_high = 30", "step_high = 0.1"),
            "grid.step_high must not be below grid.step_low",
        ),
        (
            edit("step_low = 0.3", "step_low = nan"),
            "grid.step_low must be a finite number > 0; got nan",
        ),
        (edit('source = "clusters"', ""), "my.toml: the key 'source' is missing"),
        (b"title = ", "my.toml: "),
        (b"\xff\xfe", "my.toml: "),
    ],
)
def test_mistakes_are_named(content, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(content, "my", "my.toml")


def test_unknown_names():
    message = r"experiment must be one of 'clusters-2'.*Did you mean 'lenk'"
    with pytest.raises(ConfigError, match=message):
        load_config("lenc")
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load_config("nowhere.toml")
    with pytest.raises(ConfigError, match="lenk: method must be one of 'independent'"):
        select_configs(["lenk"], methods=["bayes"])
    with pytest.raises(ConfigError, match="rank must be an integer >= 1 or 'exact'; got 'low'"):
        select_configs(["lenk"], rank="low")


def test_selection(tmp_path: Path):
    assert [c.name for c in select_configs(["lenk", "all"])] == [
        "lenk",
        *(n for n in EXPERIMENTS if n != "lenk"),
    ]
    quick = select_configs(["clusters-2"], quick=True, seeds=3, methods=["conditional"], rank="8")[
        0
    ]
    assert (quick.tasks.train, quick.grid.seeds, quick.grid.step_count) == (50, 3, 5)
    assert quick.learning.methods == ("conditional",)
    assert quick.learning.rank == 8
    (tmp_path / "lenk.toml").write_bytes(TINY)
    with pytest.raises(ConfigError, match="two experiments are named 'lenk'"):
        select_configs(["lenk", str(tmp_path / "lenk.toml")])
