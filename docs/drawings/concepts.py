"""The pictures of concepts.md."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.datasets import make_circle, make_clusters
from tailored.displays import ComponentsDisplay, PriorPathDisplay, ShrinkageDisplay

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "0.45"


def save(figure, name):
    figure.savefig(FOLDER / f"concept-{name}.png", dpi=120)
    plt.close(figure)


def school_rows(n_schools=150, seed=1):
    """Scores of pupils: levels differ between schools, and what an hour is worth between kinds of them."""
    rng = np.random.default_rng(seed)
    kind = np.where(np.arange(n_schools) % 2, "church", "state")
    level = rng.normal(50, 6, n_schools)
    slope = np.where(kind == "church", 1.0, 3.5) + rng.normal(0, 0.5, n_schools)
    i = np.repeat(np.arange(n_schools), 10)
    hours = rng.uniform(0, 10, len(i))
    score = level[i] + slope[i] * hours + rng.normal(0, 5, len(i))
    rows = pd.DataFrame({"school": i, "hours": hours, "score": score})
    return rows, pd.DataFrame({"school": np.arange(n_schools), "kind": kind})


ROWS, SCHOOLS = school_rows()
TASKS = TaskSet.from_frame(ROWS, task="school", target="score", side_info=SCHOOLS)
META = EmpiricalBayesLearner().fit(TASKS[:-10])
GRID = np.linspace(0, 10, 60)[:, None]


def side_of(task):
    return {"kind": task.side_info[0]}


def draw_task():
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharex=True, sharey=True, layout="constrained")
    pooled = np.polyfit(ROWS.hours, ROWS.score, 1)
    for ax, place in zip(axes, (0, 3, 6), strict=True):
        one = TASKS[place]
        few = slice(0, 5)
        own = np.polyfit(one.X[few, 0], one.y[few], 1)
        model = META.adapt(one.X[few], one.y[few], side_info=side_of(one))
        ax.plot(one.X[few, 0], one.y[few], "o", color="black", label="five pupils")
        ax.plot(GRID[:, 0], np.polyval(pooled, GRID[:, 0]), ":", color=GREY, label="one line for all schools")
        ax.plot(GRID[:, 0], np.polyval(own, GRID[:, 0]), "--", color=ORANGE, label="its own rows alone")
        ax.plot(GRID[:, 0], model.predict(GRID), color=BLUE, label="tailored")
        ax.set(title=f"school {place} ({one.side_info[0]})", xlabel="hours")
    axes[0].set(ylabel="score", ylim=(20, 110))
    axes[0].legend(fontsize=8)
    save(figure, "task")


def draw_side_information():
    effects = META.effects(TASKS)
    slopes = effects[effects["column"] == "hours"].set_index("task")["effect"]
    figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
    bins = np.linspace(slopes.min() - 0.1, slopes.max() + 0.1, 32)
    for kind, color, hatch in (("church", ORANGE, "//"), ("state", BLUE, None)):
        own = slopes[SCHOOLS.kind.to_numpy()[slopes.index.to_numpy(dtype=int)] == kind]
        ax.hist(own, bins=bins, color=color, alpha=0.6, hatch=hatch, edgecolor="white", label=kind)
    ax.set(xlabel="points for an hour, tailored to each school", ylabel="schools")
    ax.legend(title="kind of school")
    save(figure, "side-information")


def draw_representation():
    display = ShrinkageDisplay.from_estimator(META, TASKS, ["hours", "(intercept)"])
    save(display.figure_, "representation")


def draw_prior_mean():
    circle = make_circle(300, n_features=3, n_rows=10, random_state=0)
    display = PriorPathDisplay.from_estimator(EmpiricalBayesLearner().fit(circle), circle, 0)
    save(display.figure_, "prior-mean")


def draw_intervals():
    one = TASKS[-3]
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharex=True, sharey=True, layout="constrained")
    for ax, n in zip(axes, (0, 2, 8), strict=True):
        rows = (one.X[:n], one.y[:n]) if n else ()
        model = META.adapt(*rows, side_info=side_of(one))
        low, high = model.predict_interval(GRID, coverage=0.9).T
        ax.fill_between(GRID[:, 0], low, high, color=BLUE, alpha=0.2, linewidth=0, label="90 % interval")
        ax.plot(GRID[:, 0], model.predict(GRID), color=BLUE, label="prediction")
        ax.plot(one.X[n:, 0], one.y[n:], "o", color="white", markeredgecolor=GREY, label="pupils to come")
        ax.plot(one.X[:n, 0], one.y[:n], "o", color="black", label="pupils known")
        ax.set(title=f"{n} pupils known" if n else "no pupil known", xlabel="hours")
    axes[0].set(ylabel="score")
    axes[1].legend(fontsize=8, loc="lower right")
    save(figure, "intervals")


def draw_components():
    tasks = make_clusters(90, n_clusters=3, n_features=5, rank=1, n_rows=12, random_state=0)
    display = ComponentsDisplay.from_estimator(EmpiricalBayesLearner().fit(tasks), tasks)
    save(display.figure_, "components")


if __name__ == "__main__":
    draw_task()
    draw_side_information()
    draw_representation()
    draw_prior_mean()
    draw_intervals()
    draw_components()
