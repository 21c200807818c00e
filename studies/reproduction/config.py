"""The configuration of an experiment: frozen records of plain values (`config_files` reads
them).
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from tailored._utils.validation import (
    check_choice,
    check_fraction,
    check_int,
    check_positive,
    is_integer,
)
from tailored.paper.feature_maps import FEATURE_MAPS

#: The experiments of the paper, in its order.
EXPERIMENTS = ("clusters-2", "clusters-6", "lenk", "movielens", "jester")

#: Methods and their labels, in the order of tables.
METHODS = {
    "independent": "independent",
    "unconditional": "unconditional",
    "conditional": "conditional",
    "conditional-scaled": "conditional, φ scaled",
    "mixed-model": "mixed model",
    "empirical-bayes": "`EmpiricalBayesLearner`",
    "bayes": "Bayes, clusters known",
}


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the file, the key and what is
    valid.
    """


@dataclass(frozen=True)
class Data:
    """A source of tasks and the options its loader is called with."""

    source: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Tasks:
    """How many tasks go where; ``order`` "random" draws them, "kept" takes them as they come."""

    train: int
    validation: int
    test: int
    order: str

    @property
    def total(self) -> int:
        return self.train + self.validation + self.test


@dataclass(frozen=True)
class RowSplit:
    """Rows of a task: ``support`` of them (a number or a share) to adapt on, the others to score.

    ``train`` says whether a training task shows its support rows only, or all of its rows;
    ``constant`` appends a column of ones to the inputs of the inner algorithm.
    """

    support: int | float
    split: str
    order: str
    train: str
    constant: bool


@dataclass(frozen=True)
class Features:
    """The feature map of the side information."""

    map: str


@dataclass(frozen=True)
class Learning:
    """``rank`` limits H; None (the word "exact" in a file) keeps every direction."""

    methods: tuple[str, ...]
    loss: str
    inner: str
    rank: int | None


@dataclass(frozen=True)
class Grid:
    """Seeds 0 .. seeds - 1 and log-spaced step sizes, both ends included."""

    seeds: int
    step_low: float
    step_high: float
    step_count: int

    @property
    def step_sizes(self) -> tuple[float, ...]:
        steps = np.logspace(np.log10(self.step_low), np.log10(self.step_high), self.step_count)
        # Ten digits: LAPACK-free, but pow() differs in the last bit between C libraries.
        return tuple(float(f"{step:.10g}") for step in steps)


@dataclass(frozen=True)
class ExperimentConfig:
    """One experiment: data, protocol, methods and the grid of cells."""

    name: str
    title: str
    target: str
    data: Data
    tasks: Tasks
    rows: RowSplit
    features: Features
    learning: Learning
    grid: Grid

    def identity(self) -> dict[str, Any]:
        """What the numbers of a cell depend on, as plain values.

        Two runs may share a folder when it is equal. The number of seeds is no part of it: the
        cells of one seed know nothing of the others, so that a run can be continued with more of
        them.
        """
        values = dataclasses.asdict(self)
        del values["title"], values["target"]
        values["data"] = {"source": self.data.source, **dict(self.data.options)}
        values["learning"]["methods"] = list(self.learning.methods)
        del values["grid"]["seeds"]
        values["grid"]["step_sizes"] = list(self.grid.step_sizes)
        return values

    def quick(self) -> ExperimentConfig:
        """A smoke run: a tenth of the tasks, two seeds, five step sizes."""
        tasks = {
            name: max(getattr(self.tasks, name) // 10, 4)
            for name in ("train", "validation", "test")
        }
        return replace(
            self,
            tasks=replace(self.tasks, **tasks),
            grid=replace(
                self.grid, seeds=min(2, self.grid.seeds), step_count=min(5, self.grid.step_count)
            ),
        )

    def override(
        self,
        *,
        seeds: int | None = None,
        step_sizes: int | None = None,
        methods: Sequence[str] | None = None,
        rank: int | str | None = None,
    ) -> ExperimentConfig:
        """The same experiment with another grid (``step_sizes`` is their number), methods or rank
        limit.
        """
        grid, learning = self.grid, self.learning
        if seeds is not None:
            grid = replace(grid, seeds=check_int("seeds", seeds))
        if step_sizes is not None:
            grid = replace(grid, step_count=check_int("step_sizes", step_sizes))
        if rank is not None:
            learning = replace(learning, rank=read_rank("rank", rank))
        if methods:
            try:
                chosen = {check_choice("method", name, learning.methods) for name in methods}
            except ValueError as error:
                raise ConfigError(f"{self.name}: {error}") from error
            learning = replace(learning, methods=tuple(name for name in METHODS if name in chosen))
        return replace(self, grid=grid, learning=learning)


def read_rank(name: str, value: Any) -> int | None:
    """A rank limit as files and the command line write it: a number, or "exact" for none."""
    if value == "exact":
        return None
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    try:
        return check_int(name, value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be an integer >= 1 or 'exact'; got {value!r}") from error


#: Options of each source of data.
DATA_OPTIONS: dict[str, tuple[str, ...]] = {
    "clusters": ("n_clusters", "n_features", "n_rows", "noise"),
    "lenk": (),
    "movielens": ("n_items", "min_ratings"),
    "jester": ("n_items", "min_ratings", "shift"),
}

#: Keys that accept only some words.
CHOICES: dict[str, tuple[str, ...]] = {
    "data.source": tuple(DATA_OPTIONS),
    "tasks.order": ("kept", "random"),
    "rows.split": ("first", "random"),
    "rows.order": ("kept", "shuffled"),
    "rows.train": ("support", "all"),
    # Maps of the task's own rows: the experiments have no other side information.
    "features.map": tuple(name for name in FEATURE_MAPS if name != "vector"),
    "learning.loss": ("absolute",),
    "learning.inner": ("online", "exact"),
}


def select_configs(
    names: Sequence[str | Path], *, quick: bool = False, **overrides: Any
) -> list[ExperimentConfig]:
    """Return the experiments that a command line names, each once; "all" means all of the
    paper's.
    """
    wanted = [each for name in names for each in (EXPERIMENTS if name == "all" else [name])]
    configs = [load_config(name) for name in dict.fromkeys(wanted)]
    taken: set[str] = set()
    for config in configs:
        if config.name in taken:
            raise ConfigError(f"two experiments are named {config.name!r}: rename one of the files")
        taken.add(config.name)
    return [(config.quick() if quick else config).override(**overrides) for config in configs]


def load_config(name: str | Path) -> ExperimentConfig:
    """Read an experiment: one of `EXPERIMENTS` by name, or any ``.toml`` file by its path."""
    try:
        if str(name).endswith(".toml"):
            content = Path(name).read_bytes()
        else:
            check_choice("experiment", str(name), EXPERIMENTS)
            content = (resources.files(__package__) / "configs" / f"{name}.toml").read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return parse_config(content, Path(name).stem, str(name))


def parse_config(content: bytes, name: str, origin: str) -> ExperimentConfig:
    """Parse and check the text of a configuration; ``origin`` names it in messages."""
    try:
        table = tomllib.loads(content.decode())
        data, learning = dict(table["data"]), dict(table["learning"])
        learning["rank"] = read_rank("learning.rank", learning["rank"])
        learning["methods"] = tuple(learning["methods"])
        config = ExperimentConfig(
            name,
            table["title"],
            table["target"],
            Data(data.pop("source"), tuple(sorted(data.items()))),
            Tasks(**table["tasks"]),
            RowSplit(**table["rows"]),
            Features(**table["features"]),
            Learning(**learning),
            Grid(**table["grid"]),
        )
        _check_values(config)
    except KeyError as error:
        raise ConfigError(f"{origin}: the key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{origin}: {error}") from error
    return config


def _check_values(config: ExperimentConfig) -> None:
    """Raise ValueError or TypeError for values that are not allowed."""
    for key, allowed in CHOICES.items():
        section, field = key.split(".")
        check_choice(key, getattr(getattr(config, section), field), allowed)
    for option, _ in config.data.options:
        check_choice("option of data", option, DATA_OPTIONS[config.data.source])
    tasks, grid, support = config.tasks, config.grid, config.rows.support
    checks: list[tuple[Callable[[str, Any], Any], str, Any]] = [
        (check_int, "tasks.train", tasks.train),
        (check_int, "tasks.validation", tasks.validation),
        (check_int, "tasks.test", tasks.test),
        (check_int if is_integer(support) else check_fraction, "rows.support", support),
        (check_int, "grid.seeds", grid.seeds),
        (check_int, "grid.step_count", grid.step_count),
        (check_positive, "grid.step_low", grid.step_low),
        (check_positive, "grid.step_high", grid.step_high),
    ]
    for check, key, value in checks:
        check(key, value)
    if grid.step_high < grid.step_low:
        raise ValueError(f"grid.step_high must not be below grid.step_low; got {grid.step_high:g}")
    methods = config.learning.methods
    for method in methods:
        check_choice("learning.methods", method, METHODS)
    if not methods or len(set(methods)) < len(methods):
        raise ValueError(
            f"learning.methods must name each method once; valid: {', '.join(METHODS)}"
        )
    if "bayes" in methods and config.data.source != "clusters":
        raise ValueError(
            "learning.methods: 'bayes' needs data.source = 'clusters', whose mixture is known"
        )
