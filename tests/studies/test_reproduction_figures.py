"""Figures are redrawn from the results alone; the arrays behind them are right."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from studies.figures.curves import plot_curves
from studies.files import ResultsError
from studies.reproduction import runner
from studies.reproduction.config import EXPERIMENTS, METHODS, parse_config
from studies.reproduction.figures import draw_all, representation_display
from studies.reproduction.published import read_published
from studies.reproduction.report import ENDS_FILE, first_screen, write_report
from studies.reproduction.table import Results
from tiny import TINY

mpl.use("Agg")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    config = parse_config(TINY, "tiny", "tiny.toml")
    plans = runner.plan(
        [replace(config, learning=replace(config.learning, methods=tuple(METHODS)))], out
    )
    runner.execute(plans, out, n_jobs=1)
    return out


def digests(paths: list[Path]) -> dict[str, str]:
    """Checksums of the files; matplotlib draws the names of an SVG's clip paths at random."""
    named = re.compile(rb"p[0-9a-f]{10}")
    return {
        path.name: hashlib.sha256(named.sub(b"p", path.read_bytes())).hexdigest() for path in paths
    }


def test_redrawn_from_table_and_arrays_alone(folder, tmp_path):
    """Without cells, configuration and manifest: the same files, to the bit."""
    first = digests(draw_all(folder, tmp_path / "a"))
    bare = tmp_path / "bare"
    (bare / "tiny").mkdir(parents=True)
    for name in ("results.csv.gz", "tiny/representation.npz"):
        (bare / name).write_bytes((folder / name).read_bytes())
    assert digests(draw_all(bare, tmp_path / "b")) == first
    stems = ("curves", "step-sizes", "representation-tiny")
    assert set(first) == {f"{stem}{suffix}" for stem in stems for suffix in (".png", ".svg")}
    (bare / "tiny" / "representation.npz").unlink()
    assert len(draw_all(bare, tmp_path / "c")) == 4


def test_curves_are_means_over_the_seeds(folder):
    results = Results.read(folder)
    curves = {method: results.curves("tiny", method).test for method in results.methods("tiny")}
    _, ax = plt.subplots()
    plot_curves(ax, curves, "tiny", "error", {"conditional": 0.2})
    lines = {line.get_label(): line for line in ax.get_lines()}
    once = ("mixed-model", "empirical-bayes")  # fitted once: a mark at the end
    labels = [METHODS[method] for method in curves if method not in once]
    styles = [(lines[label].get_linestyle(), lines[label].get_marker()) for label in labels]
    assert len(set(styles)) == 5  # told apart without colour
    ends = {end.get_label(): end.lines[0].get_xydata().tolist() for end in ax.containers}
    assert ends == {METHODS[name].strip("`"): [[7, curves[name].mean()]] for name in once}
    test = curves["conditional"]
    np.testing.assert_allclose(lines["conditional"].get_ydata(), test.mean(axis=0))
    faces = [(c, *c.get_facecolor()) for c in ax.collections]
    (band,) = (c for c, *face in faces if face and face[0][:3] == pytest.approx(to_rgb("#12355b")))
    first = band.get_paths()[0].vertices[:, 1][band.get_paths()[0].vertices[:, 0] == 1]
    mean, deviation = test[:, 0].mean(), test[:, 0].std(ddof=1)
    np.testing.assert_allclose([first.min(), first.max()], [mean - deviation, mean + deviation])


def test_representation_display(folder, tmp_path):
    display = representation_display(folder, "tiny")
    stored = np.load(folder / "tiny" / "representation.npz")
    np.testing.assert_array_equal(display.taus, stored["conditional/taus"])
    np.testing.assert_array_equal(display.shared, stored["unconditional/taus"][0])
    axes = display.plot().axes
    # two rows of heat maps, one column per group and one for the shared τ, and the spectra
    n_columns = len(display.taus) + 1
    assert len(axes) == 2 * n_columns + 1
    shown = [np.asarray(ax.images[0].get_array()) for ax in axes[:n_columns]]
    np.testing.assert_array_equal(shown, np.abs([*display.taus, display.shared]))
    lines = {line.get_label(): line.get_ydata() for line in axes[-1].get_lines()}
    np.testing.assert_array_equal(lines["C, unconditional"], stored["unconditional/spectrum_C"])
    with pytest.raises(ResultsError, match="there is no"):
        representation_display(tmp_path, "tiny")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "representation.npz").write_bytes(b"x")
    with pytest.raises(ResultsError, match="is damaged"):
        representation_display(tmp_path, "tiny")


def test_report_writes_the_ends_of_the_curves(folder, tmp_path):
    write_report(folder, tmp_path / "page.md", figures=tmp_path)
    results, ends = Results.read(folder), Results.read(tmp_path / ENDS_FILE)
    for method in METHODS:
        np.testing.assert_array_equal(
            results.curves("tiny", method).final, ends.curves("tiny", method).final
        )
    assert first_screen(results, {}) == first_screen(ends, {})


def test_readme_has_the_measured_table():
    """README has the rows of ``python -m studies report RESULTS --first-screen``."""
    ends = Results.read(ROOT / "docs" / "figures" / ENDS_FILE)
    assert ends.experiments == list(EXPERIMENTS)
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    rows = first_screen(ends, read_published()).splitlines()[2:]
    assert len(rows) == len(EXPERIMENTS)
    assert set(rows) <= set(lines)


def test_published_numbers_are_the_ends_of_the_curves(tmp_path):
    curves = Path(__file__).resolve().parents[3] / "shared" / "published" / "curves.csv"
    if not curves.exists():
        pytest.skip(f"the published curves are not in {os.path.relpath(curves)}")
    assert read_published() == read_published(curves)
