"""The page that holds the measured numbers against the published ones.

Every number on it is filled in from the table; the sentences around them are in ``commentary.toml``, written
for the paper's configurations and left out for any other.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import write_text
from .config import EXPERIMENTS, METHODS, load_config
from .manifest import read_manifest
from .published import Published, read_published
from .table import Curves, Results

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Numbers:
    """Errors of one method at the end of the curve, measured and published, ready to be put into sentences."""

    final: Array
    reference: Published | None

    @property
    def measured(self) -> str:
        return _short(float(self.final.mean()))

    @property
    def deviation(self) -> str:
        return _short(_deviation(self.final), 2)

    @property
    def published(self) -> str:
        return "–" if self.reference is None else _short(self.reference.mean)

    @property
    def published_deviation(self) -> str:
        return "–" if self.reference is None else _short(self.reference.deviation, 2)

    @property
    def ratio(self) -> float:
        return np.nan if self.reference is None else float(self.final.mean()) / self.reference.mean

    @property
    def excess(self) -> str:
        """Signed, in percent of the published number."""
        return "–" if self.reference is None else f"{100 * (self.ratio - 1):+.1f} %"


@dataclass(frozen=True)
class Difference:
    """Paired differences of two methods over the seeds, at the end of the curve."""

    values: Array

    @property
    def mean(self) -> str:
        return f"{float(self.values.mean()):+.3g}"

    @property
    def deviation(self) -> str:
        return _short(_deviation(self.values), 2)

    @property
    def wins(self) -> str:
        return f"{int((self.values < 0).sum())} of {len(self.values)}"


def _short(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}"


def _deviation(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def write_report(
    results_folder: Path, out: Path, *, published: Path | None = None, figures: Path | None = None
) -> None:
    """Write the Markdown page ``out`` from a results folder.

    Parameters
    ----------
    published : Path, optional
        Published curves; the paper's end-of-curve numbers by default.
    figures : Path, optional
        Folder of figures to embed.
    """
    results = Results.read(results_folder)
    manifest = read_manifest(results_folder)
    quoted = read_published(published)
    texts = tomllib.loads((resources.files(__package__) / "commentary.toml").read_text())
    lines = [texts["head"].strip(), ""]
    lines += ["## Published and measured", "", *_comparison(results, quoted)]
    lines += _paired(results)
    for name in results.experiments:
        faithful = _is_paper(name, manifest)
        lines += _experiment(results, name, quoted.get(name, {}), texts.get(name) if faithful else None)
    lines += _figures(results, figures, out.parent)
    lines += ["## How the text was read", "", texts["readings"].strip(), ""]
    lines += _provenance(manifest)
    write_text(out, "\n".join(lines).rstrip() + "\n")


def _numbers(results: Results, name: str, quoted: Mapping[str, Published]) -> dict[str, Numbers]:
    return {
        method: Numbers(results.curves(name, method).final, quoted.get(method))
        for method in results.methods(name)
    }


def _differences(results: Results, name: str) -> Iterator[tuple[str, str, Difference]]:
    """The better idea minus the simpler one, for each pair of methods."""
    for simple, better in combinations([m for m in METHODS if m in results.methods(name)], 2):
        values = results.curves(name, better).final - results.curves(name, simple).final
        yield better, simple, Difference(values)


def _comparison(results: Results, quoted: Mapping[str, Mapping[str, Published]]) -> list[str]:
    lines = _table(
        ["experiment", "method", "published", "measured", "difference", "seeds"],
        (
            [
                name if k == 0 else "",
                method,
                f"{n.published} ({n.published_deviation})",
                f"{n.measured} ({n.deviation})",
                n.excess,
                str(len(n.final)),
            ]
            for name in results.experiments
            for k, (method, n) in enumerate(_numbers(results, name, quoted.get(name, {})).items())
        ),
    )
    return [*lines, ""]


def _paired(results: Results) -> list[str]:
    lines = [
        "## Paired differences",
        "",
        "All methods of a seed have the same tasks and rows. A negative difference favours the first method.",
        "",
    ]
    lines += _table(
        ["experiment", "difference", "mean (standard deviation)", "seeds in favour of the first"],
        (
            [name if k == 0 else "", f"{better} − {simple}", f"{d.mean} ({d.deviation})", d.wins]
            for name in results.experiments
            for k, (better, simple, d) in enumerate(_differences(results, name))
        ),
    )
    return [*lines, ""]


def _experiment(results: Results, name: str, quoted: Mapping[str, Published], text: str | None) -> list[str]:
    title = load_config(name).title if name in EXPERIMENTS else name
    lines = [f"## {title}", ""]
    if text is None:
        lines += ["These results are not of the paper's configuration, and get no comment.", ""]
    else:
        names: dict[str, Any] = dict(_numbers(results, name, quoted))
        names |= {f"{a}_{b}": d for a, b, d in _differences(results, name)}
        lines += [text.format(**names).strip(), ""]
    chosen = (
        f"{method} {_chosen(results.curves(name, method))}"
        for method in results.methods(name)
        if len(results.curves(name, method).step_sizes)
    )
    return [*lines, f"Step sizes selected on the validation tasks, for each seed: {'; '.join(chosen)}.", ""]


def _chosen(curves: Curves) -> str:
    return ", ".join(f"{curves.step_sizes[place]:.3g}" for place in curves.chosen)


def _is_paper(name: str, manifest: Mapping[str, Any]) -> bool:
    if name not in EXPERIMENTS or name not in manifest["experiments"]:
        return False
    ours = load_config(name).identity()
    return all(manifest["experiments"][name].get(key) == value for key, value in ours.items())


def _figures(results: Results, figures: Path | None, page: Path) -> list[str]:
    if figures is None:
        return []
    lines = ["## Figures", ""]
    captions = {
        "curves": "Test error against the number of training tasks: mean and standard deviation over the seeds; "
        "hollow marks at the right edge are the ends of the published curves.",
        "step-sizes": "Validation error at the end of training against the step size.",
    }
    captions |= {
        f"representation-{name}": f"{name}: results of seed 0. Heat maps show |τ|, averaged over groups of test "
        "tasks, each on its own scale. The other panels show the spectra of the averaged H and C."
        for name in results.experiments
    }
    for stem, caption in captions.items():
        path = figures / f"{stem}.png"
        if path.exists():
            lines += [f"![{stem}]({Path(os.path.relpath(path, page)).as_posix()})", "", f"*{caption}*", ""]
    return lines


def _provenance(manifest: Mapping[str, Any]) -> list[str]:
    lines = ["## Time and versions", ""]
    sessions = [s for s in manifest["sessions"] if s.get("cells")]
    lines += _table(
        ["cells", "jobs", "wall time", "finished"],
        (
            [str(s["cells"]), str(s["jobs"]), f"{s['wall_seconds']:.0f} s", "yes" if s["finished"] else "no"]
            for s in sessions
        ),
    )
    if sessions:
        versions = ", ".join(f"{name} {value}" for name, value in sessions[-1]["versions"].items())
        lines += ["", f"Versions: {versions}."]
    return [*lines, ""]


def _table(head: list[str], rows: Any) -> list[str]:
    cells = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]
