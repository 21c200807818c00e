"""The page that compares the measured with the published numbers, and the table of README's first
screen.

Every number on it is filled in from the table; the sentences around them are in
``commentary.toml``, written for the paper's configurations and left out for any other.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import make_folder, write_text
from .as_published import published_section
from .config import EXPERIMENTS, METHODS, load_config
from .manifest import read_manifest
from .published import Published, read_published
from .table import Curves, Results, write_table

Array = NDArray[np.float64]

#: The ends of the curves, next to the figures; README's table is compared with it.
ENDS_FILE = "reproduction.csv"

#: Paired differences of the page: the first method minus the second.
PAIRS = (
    ("unconditional", "independent"),
    ("conditional", "independent"),
    ("conditional", "unconditional"),
    ("conditional-scaled", "unconditional"),
    ("conditional-scaled", "conditional"),
    ("empirical-bayes", "conditional"),
    ("empirical-bayes", "bayes"),
)


@dataclass(frozen=True)
class Numbers:
    """Errors of one method at the end of the curve, measured and published, ready to be put into
    sentences.
    """

    final: Array
    reference: Published | None

    @property
    def measured(self) -> str:
        return _short(float(self.final.mean()))

    @property
    def deviation(self) -> str:
        return _deviation(self.final)

    @property
    def published(self) -> str:
        return "–" if self.reference is None else _short(self.reference.mean)

    @property
    def published_deviation(self) -> str:
        return "" if self.reference is None else f" ({_short(self.reference.deviation, 2)})"

    @property
    def excess(self) -> str:
        """Signed, in percent of the published number."""
        if self.reference is None:
            return "–"
        return f"{100 * (float(self.final.mean()) / self.reference.mean - 1):+.1f} %"


@dataclass(frozen=True)
class Difference:
    """Paired differences of two methods over the seeds, at the end of the curve."""

    values: Array

    @property
    def mean(self) -> str:
        return f"{float(self.values.mean()):+.3g}"

    @property
    def deviation(self) -> str:
        return _deviation(self.values)

    @property
    def wins(self) -> str:
        return f"{int((self.values < 0).sum())} of {len(self.values)}"


def _short(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}"


def _deviation(values: Array) -> str:
    return _short(float(values.std(ddof=1)), 2) if len(values) > 1 else "–"


def write_report(
    results_folder: Path, out: Path, *, published: Path | None = None, figures: Path | None = None
) -> None:
    """Write the Markdown page ``out`` from a results folder.

    Parameters
    ----------
    published : Path, optional
        Published curves; the paper's end-of-curve numbers by default.
    figures : Path, optional
        Folder of figures to embed. The ends of the curves are written there, as a table.
    """
    results = Results.read(results_folder)
    manifest = read_manifest(results_folder)
    quoted = read_published(published)
    texts = tomllib.loads((resources.files(__package__) / "commentary.toml").read_text())
    lines = [texts["head"].strip(), ""]
    lines += ["## Published and measured", "", *_comparison(results, quoted)]
    lines += _paired(results)
    lines += _as_published(figures)
    for name in results.experiments:
        faithful = _is_paper(name, manifest)
        lines += _experiment(
            results, name, quoted.get(name, {}), texts.get(name) if faithful else None
        )
    lines += _figures(results, figures, out.parent)
    lines += ["## How the text was read", "", texts["readings"].strip(), ""]
    lines += _provenance(manifest)
    write_text(out, "\n".join(lines).rstrip() + "\n")
    if figures is not None:
        make_folder(figures)
        write_table(figures / ENDS_FILE, results.ends())


def first_screen(results: Results, published: Mapping[str, Mapping[str, Published]]) -> str:
    """Return the table of README's first screen: mean errors over the seeds, with three significant
    digits.
    """
    shorter = {
        "conditional": "conditional (Algorithm 1)",
        "conditional-scaled": "φ scaled",
        "bayes": "Bayes limit",
    }
    labels = METHODS | shorter

    def row(name: str) -> Iterator[str]:
        quoted = published.get(name, {}).get("conditional")
        yield name
        yield "—" if quoted is None else f"{quoted.mean:#.3g}"
        for method in labels:
            known = method in results.methods(name)
            yield f"{results.curves(name, method).final.mean():#.3g}" if known else "—"

    return "\n".join(
        _table(
            ["experiment", "published conditional", *labels.values()],
            ([*row(name)] for name in results.experiments),
        )
    )


def _numbers(results: Results, name: str, quoted: Mapping[str, Published]) -> dict[str, Numbers]:
    return {
        method: Numbers(results.curves(name, method).final, quoted.get(method))
        for method in results.methods(name)
    }


def _differences(results: Results, name: str) -> Iterator[tuple[str, str, Difference]]:
    for first, second in PAIRS:
        if {first, second} <= set(results.methods(name)):
            values = results.curves(name, first).final - results.curves(name, second).final
            yield first, second, Difference(values)


def _comparison(results: Results, quoted: Mapping[str, Mapping[str, Published]]) -> list[str]:
    lines = _table(
        ["experiment", "method", "published", "measured", "difference", "seeds"],
        (
            [
                name if k == 0 else "",
                METHODS[method],
                f"{n.published}{n.published_deviation}",
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
        "For each seed, all methods use the same tasks and rows. A negative difference favours the "
        "first method.",
        "",
    ]
    lines += _table(
        ["experiment", "difference", "mean (standard deviation)", "seeds in favour of the first"],
        (
            [
                name if k == 0 else "",
                f"{METHODS[a]} − {METHODS[b]}",
                f"{d.mean} ({d.deviation})",
                d.wins,
            ]
            for name in results.experiments
            for k, (a, b, d) in enumerate(_differences(results, name))
        ),
    )
    return [*lines, ""]


def _as_published(figures: Path | None) -> list[str]:
    """The section on the variants of the algorithm that give the published numbers."""
    if figures is None or not (figures / "as-published.csv").exists():
        return []
    return [published_section(figures / "as-published.csv").strip(), ""]


def _experiment(
    results: Results, name: str, quoted: Mapping[str, Published], text: str | None
) -> list[str]:
    title = load_config(name).title if name in EXPERIMENTS else name
    lines = [f"## {title}", ""]
    if text is None:
        lines += [
            "These results are not those of the paper's configuration, so there is no comment on "
            "them.",
            "",
        ]
    else:
        names: dict[str, Any] = dict(_numbers(results, name, quoted))
        names |= {f"{a}_{b}": d for a, b, d in _differences(results, name)}
        lines += [text.format(**names).strip(), ""]
    chosen = (
        f"{METHODS[method]}: {_chosen(results.curves(name, method))}"
        for method in results.methods(name)
        if len(results.curves(name, method).step_sizes)
    )
    return [
        *lines,
        f"Step sizes selected on the validation tasks, by seed: {'; '.join(chosen)}.",
        "",
    ]


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
        "curves": "Test error against the number of training tasks: mean and standard "
        "deviation over the seeds. "
        "Hollow marks at the right edge are the last points of the published curves. "
        "`EmpiricalBayesLearner` is fitted once, "
        "to all training and validation tasks.",
        "step-sizes": "Validation error at the end of training against the step size.",
    }
    captions |= {
        f"representation-{name}": f"{name}: Algorithm 1 on seed 0. Top: absolute values of the "
        "entries of the mean τ of each group of test tasks, and of the matrix C of the "
        "unconditional learner. A group is a cluster or, for real data, a third of the test tasks, "
        "sorted by mean target. Bottom: how far each entry of a group's mean τ lies above the "
        "average over all groups (zero where it lies below). Right: eigenvalues of the averages of "
        "H and C over the iterates."
        for name in results.experiments
    }
    for stem, caption in captions.items():
        path = figures / f"{stem}.png"
        if path.exists():
            lines += [
                f"![{stem}]({Path(os.path.relpath(path, page)).as_posix()})",
                "",
                f"*{caption}*",
                "",
            ]
    return lines


def _provenance(manifest: Mapping[str, Any]) -> list[str]:
    lines = ["## Time and versions", ""]
    sessions = [s for s in manifest["sessions"] if s.get("cells")]
    lines += _table(
        ["commit", "cells", "jobs", "wall time", "finished"],
        (
            [
                s.get("commit", "unknown"),
                str(s["cells"]),
                str(s["jobs"]),
                f"{s['wall_seconds']:.0f} s",
                "yes" if s["finished"] else "no",
            ]
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
