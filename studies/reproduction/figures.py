"""All figures of a results folder, as PNG and SVG, drawn from the table and the stored arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tailored.show.displays import RC, pyplot

from ..figures.curves import plot_curves, plot_step_sizes
from ..figures.representation import RepresentationDisplay
from ..figures.style import panels
from ..files import ResultsError, save_figure
from .config import EXPERIMENTS, load_config
from .published import Published
from .store import REPRESENTATION_FILE
from .table import Results

#: Figures with some experiments only: file name and what has to be there.
GROUPS = {"curves-clusters": ("clusters-2", "clusters-6")}


def draw_all(
    results_folder: Path,
    out: Path,
    *,
    published: Mapping[str, Mapping[str, Published]] | None = None,
) -> list[Path]:
    """Draw everything that the table and the stored representations show; returns the files
    written.
    """
    results = Results.read(results_folder)
    written: list[Path] = []
    with pyplot().rc_context(RC):
        for name, figure in _figures(results, results_folder, published or {}):
            paths = [out / f"{name}{suffix}" for suffix in (".png", ".svg")]
            save_figure(figure, *paths)
            written += paths
    return written


def representation_display(folder: Path, experiment: str) -> RepresentationDisplay:
    """What a run stored in ``folder``: τ of the first seed of ``experiment`` with its chosen step
    size.
    """
    path = folder / experiment / REPRESENTATION_FILE
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except FileNotFoundError as error:
        raise ResultsError(
            f"there is no {path}: `python -m studies reproduce` writes it with the table"
        ) from error
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ResultsError(f"{path} is damaged ({error})") from error
    if "conditional/taus" not in arrays:
        raise ResultsError(f"{path} holds no conditional learner to show")
    spectra = {"H": "conditional/spectrum_H", "C, conditional": "conditional/spectrum_C"}
    spectra["C, unconditional"] = "unconditional/spectrum_C"
    return RepresentationDisplay(
        title=_words(experiment)[0],
        taus=arrays["conditional/taus"],
        shared=arrays["unconditional/taus"][0] if "unconditional/taus" in arrays else None,
        group_names=[str(name) for name in arrays["conditional/group_names"]],
        axis_names=[str(name) for name in arrays["conditional/axis_names"]],
        spectra={name: arrays[key] for name, key in spectra.items() if key in arrays},
    )


def _figures(
    results: Results, folder: Path, published: Mapping[str, Mapping[str, Published]]
) -> Iterator[tuple[str, Any]]:
    names = results.experiments
    found = {
        name: {method: results.curves(name, method) for method in results.methods(name)}
        for name in names
    }

    def curves(group: Iterable[str]) -> Any:
        return panels(
            [
                partial(
                    plot_curves,
                    curves={method: curve.test for method, curve in found[name].items()},
                    title=_words(name)[0],
                    target=_words(name)[1],
                    published={
                        method: quoted.mean for method, quoted in published.get(name, {}).items()
                    },
                )
                for name in group
            ]
        )

    yield "curves", curves(names)
    for file, group in GROUPS.items():
        if set(group) < set(names):
            yield file, curves(group)
    stepped = [
        name for name in names if any(len(curve.step_sizes) for curve in found[name].values())
    ]
    if stepped:
        steps = (
            partial(plot_step_sizes, curves=found[name], title=_words(name)[0]) for name in stepped
        )
        yield "step-sizes", panels([*steps])
    for name in names:
        if (
            "conditional" in results.methods(name)
            and (folder / name / REPRESENTATION_FILE).exists()
        ):
            yield f"representation-{name}", representation_display(folder, name).plot()


def _words(name: str) -> tuple[str, str]:
    """Headline and vertical axis of an experiment; its name when it is nobody's we know."""
    if name in EXPERIMENTS:
        config = load_config(name)
        return config.title, config.target
    return name, "mean absolute error"
