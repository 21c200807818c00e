"""Draw README's figures: a new school after four pupils, and the registered tables."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.datasets import load_schools

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "0.45"
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
#: Standard deviation of the noise with which the scores were simulated.
NOISE = 5.0
SCHOOL, N_OBSERVED = "S115", 4


def draw_school():
    pupils, schools = load_schools()
    is_new = pupils.school >= "S100"
    tasks = TaskSet.from_frame(
        pupils[~is_new], task="school", target="score", side_info=schools[schools.school < "S100"]
    )
    learner = EmpiricalBayesLearner().fit(tasks)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")

    rows = pupils[pupils.school == SCHOOL]
    observed, later = rows[:N_OBSERVED], rows[N_OBSERVED:]
    grid = pd.DataFrame({"school": SCHOOL, "hours": np.linspace(0, 10, 41)})
    grid = grid.assign(track="basic", repeats=False, tested=pd.Timestamp("2026-05-15"))
    for support, colour, label in (
        (observed[:0], GREY, "before the first pupil"),
        (observed, BLUE, "after four pupils"),
    ):
        found = learner.predict_tasks(grid, support, side_info=schools, coverage=0.9)
        left.plot(grid.hours, found["prediction"], color=colour, label=label)
        left.fill_between(
            grid.hours, found["lower"], found["upper"], color=colour, alpha=0.15, lw=0
        )
    left.plot(observed.hours, observed.score, "o", color="black", label="observed pupils")
    left.plot(later.hours, later.score, "o", color="black", mfc="white", label="pupils to come")
    left.set(
        title="A new school: predictions with 90 % intervals", xlabel="hours of study per week"
    )
    left.set_ylabel("score")
    left.legend(fontsize=8, loc="upper left")

    new, number = pupils[is_new], pupils[is_new].groupby("school").cumcount()
    query, widths = new[number >= 7], []
    for k in range(8):
        found = learner.predict_tasks(query, new[number < k], side_info=schools, coverage=0.9)
        widths.append(np.mean(found["upper"] - found["lower"]))
    right.plot(range(8), widths, "o-", color=BLUE)
    limit = 2 * 1.645 * NOISE
    right.axhline(limit, color=GREY, linestyle="--", linewidth=1)
    right.text(
        7, limit - 0.3, "noise of a single pupil", color=GREY, ha="right", va="top", fontsize=8
    )
    right.set(title="20 new schools: the interval narrows", xlabel="observed pupils of the school")
    right.set(ylabel="mean width of the interval (points)", ylim=(0, None))
    figure.savefig(FOLDER / "readme-school.png", dpi=130)


def draw_tables():
    """Draw the error relative to a mixed model, one dot per registered table; triangles are tables
    beyond the axis.
    """
    scores = pd.read_csv(Path(__file__).parents[1] / "benchmark" / "registered.csv")
    titles = {0: "no row", 1: "one row", 2: "two or three rows"}
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, layout="constrained")
    kinds = {"gauss": BLUE, "binary": ORANGE, "count": "#009E73"}
    words = {"gauss": "numbers", "binary": "classes", "count": "counts"}
    low, high = 0.4, 1.8
    for ax, (rows, title) in zip(axes, titles.items(), strict=True):
        part = scores[scores["rows"] == rows].sort_values("ratio", ascending=False)
        for kind, colour in kinds.items():
            x = part["ratio"].where(part["kind"] == kind).clip(low, high).to_numpy()
            at = np.arange(len(x))
            for marker, here in (("<", x == low), (">", x == high), ("o", (low < x) & (x < high))):
                label = words[kind] if marker == "o" else None
                ax.plot(x[here], at[here], marker, ms=4, color=colour, label=label)
        ax.axvline(1.0, color=GREY, linewidth=1)
        median = 100 * (part["ratio"].median() - 1)
        ax.set(title=f"{title}: median {median:+.1f} %", yticks=[], xscale="log")
        ax.set_xlim(0.95 * low, 1.05 * high)
        ax.set_xticks([0.5, 0.7, 1.0, 1.4], ["0.5", "0.7", "1", "1.4"], minor=False)
        ax.minorticks_off()
    axes[0].legend(fontsize=8, loc="lower left")
    axes[1].set_xlabel("error relative to a mixed model of lme4 or glmmTMB (1 = equal)")
    figure.savefig(FOLDER / "readme-tables.png", dpi=130)


if __name__ == "__main__":
    with plt.rc_context(STYLE):
        draw_school()
        if (Path(__file__).parents[1] / "benchmark" / "registered.csv").exists():
            draw_tables()
