"""All figures of a results folder, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..studies.reproduction.config import EXPERIMENTS
from ..studies.reproduction.config_files import load_config
from ..studies.reproduction.store import REPRESENTATION_FILE, make_folder
from ..studies.reproduction.table import Results
from ._style import RC
from .curves import CurvesDisplay
from .representation import RepresentationDisplay
from .step_sizes import StepSizeDisplay

Panel = CurvesDisplay | StepSizeDisplay

#: Figures with some experiments only: file name and what has to be there.
GROUPS = {"curves-clusters": ("clusters-2", "clusters-6")}


def draw_all(
    results_folder: Path, out: Path, *, published: Mapping[str, Mapping[str, float]] | None = None
) -> list[Path]:
    """Draw everything that the table and the stored representations show; returns the files written."""
    import matplotlib as mpl

    results = Results.read(results_folder)
    make_folder(out)
    written: list[Path] = []
    with mpl.rc_context(RC):  # type: ignore[arg-type]
        for name, figure in _figures(results, results_folder, published or {}):
            written += _save(figure, out / name)
    return written


def _figures(
    results: Results, folder: Path, published: Mapping[str, Mapping[str, float]]
) -> Iterable[tuple[str, Any]]:
    names = results.experiments
    curves = {
        name: CurvesDisplay.from_results(
            results, name, title=_words(name)[0], target=_words(name)[1], published=published.get(name)
        )
        for name in names
    }
    yield "curves", panels(list(curves.values()))
    for file, group in GROUPS.items():
        if set(group) <= set(names) and set(group) != set(names):
            yield file, panels([curves[name] for name in group])
    steps = [StepSizeDisplay.from_results(results, name, title=_words(name)[0]) for name in names]
    steps = [display for display in steps if display.validation]
    if steps:
        yield "step-sizes", panels(steps)
    for name in names:
        if "conditional" in results.methods(name) and (folder / name / REPRESENTATION_FILE).exists():
            yield (
                f"representation-{name}",
                RepresentationDisplay.from_folder(folder, name, title=_words(name)[0]).plot(),
            )


def panels(displays: Sequence[Panel]) -> Any:
    """One figure with a panel per display and one legend for all."""
    import matplotlib.pyplot as plt

    n_columns = min(len(displays), 3 if len(displays) != 4 else 2)
    n_rows = -(-len(displays) // n_columns)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=(3.7 * n_columns, 3.0 * n_rows), layout="constrained", squeeze=False
    )
    flat = axes.ravel()
    for ax, display in zip(flat, displays, strict=False):
        display.plot(ax, legend=False)
    handles, labels = flat[0].get_legend_handles_labels()
    spare = flat[len(displays) :]
    for ax in spare:
        ax.set_axis_off()
    if len(spare):
        spare[0].legend(handles, labels, loc="center", fontsize=10)
    else:
        flat[0].legend(handles, labels)
    return figure


def _words(name: str) -> tuple[str, str]:
    """Headline and vertical axis of an experiment; its name when it is nobody's we know."""
    if name in EXPERIMENTS:
        config = load_config(name)
        return config.title, config.target
    return name, "mean absolute error"


def _save(figure: Any, stem: Path) -> list[Path]:
    import matplotlib.pyplot as plt

    from ..studies.reproduction.store import WriteError

    options: dict[str, dict[str, Any]] = {
        # No date inside: the same table gives the same bytes.
        ".png": {"dpi": 150, "metadata": {"Software": None}},
        ".svg": {"metadata": {"Date": None, "Creator": None}},
    }
    written = []
    for suffix, extra in options.items():
        path = stem.with_name(stem.name + suffix)
        try:
            figure.savefig(path, **extra)
        except OSError as error:
            raise WriteError(f"cannot write {path}: {error.strerror or error}") from error
        written.append(path)
    plt.close(figure)
    return written
