"""The studies run, say what they should, and draw themselves from their tables."""

import csv

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from studies.figures.theory import draw_study
from studies.theory.claims import STUDIES, write_study
from studies.theory.environment import Environment
from studies.theory.surrogate import MeanSurrogate

mpl.use("Agg")


@pytest.fixture(scope="module")
def studies():
    return {name: study(quick=True) for name, study in STUDIES.items()}


def test_advantage_of_the_bounds_is_exactly_the_square_root_of_m(studies):
    study = studies["advantage"]
    ratio = study.column("ratio", what="bound")
    np.testing.assert_allclose(ratio, np.sqrt(study.column("clusters", what="bound")), atol=1e-10)
    # measured at the oracles, conditioning gains at least as much on these environments
    measured = study.column("ratio", what="oracle")
    assert (measured >= ratio * (1 - 1e-9)).all()


def test_measured_excess_lies_under_the_bounds(studies):
    for row in studies["bounds"].rows:
        assert row["excess"] + 3 * row["standard_error"] <= row["bound"], row
    advantage = studies["advantage"]
    for side in ("conditional", "unconditional"):
        assert (advantage.column(side, what="oracle") < advantage.column(side, what="bound")).all()


def test_rates_are_positive_and_fall(studies):
    study = studies["rates"]
    assert 0 <= study.settings["gap"] < 1e-3 * study.settings["minimum"]
    for method in ("ours", "trace-constrained"):
        excess = study.column("excess", method=method)
        assert (excess > 0).all()
        assert excess[-1] < excess[0]
        assert study.column("slope", method=method)[0] < 0
    assert (study.column("excess", method="ours") < study.column("bound", method="ours")).all()


#: A line of each figure: on which axes, how its label starts, and the columns behind it.
DRAWN = {
    "advantage": (0, "unconditional, learned", "clusters", "unconditional", {"what": "learned"}),
    "rates": (1, "ours: slope -", "T", "bound", {"method": "ours"}),
    "bounds": (
        0,
        "conditional, measured",
        "value",
        "excess",
        {"against": "n", "function": "conditional"},
    ),
}


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_displays_draw_from_the_table(name, studies):
    figure = draw_study(studies[name])
    place, label, x, y, where = DRAWN[name]
    ax = figure.axes[place]
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    (found,) = (handle for text, handle in handles.items() if text.startswith(label))
    line = found[0] if hasattr(found, "lines") else found
    np.testing.assert_array_equal(line.get_xdata(), studies[name].column(x, **where))
    np.testing.assert_array_equal(line.get_ydata(), studies[name].column(y, **where))
    assert all(each.get_xlabel() for each in figure.axes)
    plt.close(figure)


def test_write_study_leaves_a_table_and_a_figure(tmp_path):
    study, table, figure = write_study("bounds", tmp_path / "figures", quick=True)
    assert (table.name, figure.name) == ("theory-bounds.csv", "theory-bounds.png")
    again = tmp_path / "again.png"
    redrawn = draw_study(study)
    redrawn.savefig(again, dpi=150)
    plt.close(redrawn)
    np.testing.assert_array_equal(plt.imread(figure), plt.imread(again))
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == len(study.rows)
    with pytest.raises(ValueError, match="advantage"):
        write_study("advantages", tmp_path)


def test_surrogate_minimum_is_certified():
    environment = Environment.clusters(1, d=3, rank=1, norm=3.0)
    surrogate = MeanSurrogate(environment.sample(40, 15, 0).tasks)
    best = surrogate.minimise(np.eye(3))
    assert 0 <= best.gap < 1e-4
    rng = np.random.default_rng(0)
    size = np.trace(best.representation)
    for _ in range(50):
        F = rng.standard_normal((3, 3))
        theta = best.representation + 0.3 * (
            size / np.trace(F @ F.T) * F @ F.T - best.representation
        )
        assert surrogate(theta) >= best.value - best.gap
