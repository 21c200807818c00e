"""Read experiments from small TOML files; every mistake is named with its file, its key and what is valid."""

from __future__ import annotations

import dataclasses
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from tailored._utils.validation import check_choice, check_fraction, check_int, check_positive, is_integer
from tailored.feature_maps import FEATURE_MAPS

from .config import (
    EXPERIMENTS,
    METHODS,
    PRESETS,
    ConfigError,
    Data,
    ExperimentConfig,
    Features,
    Grid,
    Learning,
    RowSplit,
    Tasks,
    read_rank,
)

#: What each source of data may be told, with the type of each option.
DATA_OPTIONS: dict[str, dict[str, type]] = {
    "clusters": {"n_clusters": int, "n_features": int, "n_rows": int, "noise": float},
    "lenk": {},
    "movielens": {"n_items": int, "min_ratings": int},
    "jester": {"n_items": int, "min_ratings": int, "shift": float},
}

#: Where only some words are valid.
CHOICES: dict[str, tuple[str, ...]] = {
    "data.source": tuple(DATA_OPTIONS),
    "tasks.order": ("kept", "random"),
    "rows.split": ("first", "random"),
    "rows.order": ("kept", "shuffled"),
    "rows.train": ("support", "all"),
    # Maps of the task's own rows: the experiments give no other side information.
    "features.map": tuple(name for name in FEATURE_MAPS if name != "vector"),
    "learning.loss": ("absolute",),
    "learning.inner": ("online", "exact"),
}

#: How a value of a type is taken from the file, where it is not taken as it is.
RANK = int | None
READERS: dict[Any, Callable[[str, Any], Any]] = {
    float: lambda where, value: float(value),
    tuple[str, ...]: lambda where, value: tuple(value),
    RANK: read_rank,
}


def select_configs(
    names: Sequence[str | Path], *, preset: str = "paper", quick: bool = False, **overrides: Any
) -> list[ExperimentConfig]:
    """The experiments that a command line names, each once; "all" stands for all of the paper's."""
    wanted = [each for name in names for each in (EXPERIMENTS if name == "all" else [name])]
    configs = [load_config(name, preset) for name in dict.fromkeys(wanted)]
    taken: set[str] = set()
    for config in configs:
        if config.name in taken:
            raise ConfigError(f"two experiments are named {config.name!r}: rename one of the files")
        taken.add(config.name)
    return [(config.quick() if quick else config).override(**overrides) for config in configs]


def load_config(name: str | Path, preset: str = "paper") -> ExperimentConfig:
    """Read an experiment: one of `EXPERIMENTS` by name, or any ``.toml`` file by its path."""
    try:
        check_choice("preset", preset, PRESETS)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return dataclasses.replace(_read_config(name), preset=preset)


def _read_config(name: str | Path) -> ExperimentConfig:
    if str(name).endswith(".toml"):
        path = Path(name)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        return parse_config(content, path.stem, str(path))
    try:
        check_choice("experiment", str(name), EXPERIMENTS)
    except ValueError as error:
        raise ConfigError(f"{error} ('all' and the path of a .toml file are taken as well.)") from error
    content = (resources.files(__package__) / "configs" / f"{name}.toml").read_bytes()
    return parse_config(content, str(name), f"{name}.toml")


def parse_config(content: bytes, name: str, origin: str) -> ExperimentConfig:
    """Validate the text of a configuration; ``origin`` names it in messages."""
    try:
        table = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{origin} is not a TOML file: {error}") from error
    sections: dict[str, type[Any]] = {
        "tasks": Tasks,
        "rows": RowSplit,
        "features": Features,
        "learning": Learning,
        "grid": Grid,
    }
    known = ["title", "target", "data", *sections]
    _check_keys(origin, "", table, known, known)
    for key in ("title", "target"):
        _check_type(origin, key, table[key], str)
    values: dict[str, Any] = {"title": table["title"], "target": table["target"]}
    values["data"] = _read_data(origin, table["data"])
    for key, record in sections.items():
        values[key] = _read_section(origin, key, table[key], record)
    config = ExperimentConfig(name=name, **values)
    _check_values(origin, config)
    return config


def _read_data(origin: str, table: Any) -> Data:
    _check_type(origin, "data", table, dict)
    if "source" not in table:
        raise ConfigError(
            f"{origin}: data.source is missing; valid sources: {', '.join(map(repr, DATA_OPTIONS))}"
        )
    source = _check_word(origin, "data.source", table["source"])
    types = DATA_OPTIONS[source]
    given = {key: value for key, value in table.items() if key != "source"}
    _check_keys(origin, "data.", given, list(types), [])
    for key, value in given.items():
        _check_type(origin, f"data.{key}", value, types[key])
    return Data(source, tuple(sorted((key, types[key](value)) for key, value in given.items())))


def _read_section(origin: str, section: str, table: Any, record: type[Any]) -> Any:
    _check_type(origin, section, table, dict)
    hints = get_type_hints(record)
    names = [field.name for field in dataclasses.fields(record)]
    _check_keys(origin, f"{section}.", table, names, names)
    values = {}
    for key in names:
        value = table[key]
        if hints[key] != RANK:
            _check_type(origin, f"{section}.{key}", value, hints[key])
        if f"{section}.{key}" in CHOICES:
            _check_word(origin, f"{section}.{key}", value)
        values[key] = READERS.get(hints[key], lambda where, value: value)(f"{origin}: {section}.{key}", value)
    return record(**values)


def _check_keys(
    origin: str, prefix: str, table: Mapping[str, Any], known: list[str], needed: list[str]
) -> None:
    for key in table:
        if key not in known:
            valid = ", ".join(prefix + name for name in known) or "none"
            raise ConfigError(f"{origin}: unknown key {prefix + key!r}; valid here: {valid}")
    for key in needed:
        if key not in table:
            raise ConfigError(f"{origin}: the key {prefix + key!r} is missing")


def _check_type(origin: str, key: str, value: Any, hint: Any) -> None:
    wanted = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if not any(_is_a(value, kind) for kind in wanted):
        words = {int: "an integer", float: "a number", str: "a text", bool: "true or false", dict: "a table"}
        expected = " or ".join(
            words.get(kind, "a list of texts") for kind in wanted if kind is not type(None)
        )
        raise ConfigError(f"{origin}: {key} must be {expected}; got {value!r}")


def _is_a(value: Any, kind: Any) -> bool:
    if kind is int:
        return is_integer(value)
    if kind is float:
        return is_integer(value) or isinstance(value, float)
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, kind)


def _check_word(origin: str, key: str, value: Any) -> str:
    try:
        return check_choice(key, value, CHOICES[key])
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _check_values(origin: str, config: ExperimentConfig) -> None:
    """Ranges, once names and types are right."""
    tasks, grid, learning, support = config.tasks, config.grid, config.learning, config.rows.support
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
    try:
        for check, key, value in checks:
            check(key, value)
        for method in learning.methods:
            check_choice("learning.methods", method, METHODS)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{origin}: {error}") from error
    if grid.step_high < grid.step_low:
        raise ConfigError(f"{origin}: grid.step_high must not be below grid.step_low; got {grid.step_high:g}")
    if not learning.methods or len(set(learning.methods)) < len(learning.methods):
        raise ConfigError(
            f"{origin}: learning.methods must name each method once; valid: {', '.join(METHODS)}"
        )
