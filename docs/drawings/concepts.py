"""Draw the figures of concepts.md."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.patches import Ellipse
from scipy import stats

from studies.curves import make_circle
from tailored import EmpiricalBayesLearner, PriorPathDisplay, ShrinkageDisplay, TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.mixture import Want

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "0.45"


def save(figure, name):
    figure.savefig(FOLDER / f"concept-{name}.png", dpi=120)
    plt.close(figure)


def school_rows(n_schools=150, n_pupils=10, seed=1):
    """Simulate scores of pupils: intercepts differ between schools, and slopes between kinds of
    schools.
    """
    rng = np.random.default_rng(seed)
    kind = np.where(np.arange(n_schools) % 2, "church", "state")
    level = rng.normal(50, 6, n_schools)
    slope = np.where(kind == "church", 1.0, 3.5) + rng.normal(0, 0.5, n_schools)
    i = np.repeat(np.arange(n_schools), n_pupils)
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
    figure, axes = plt.subplots(
        1, 3, figsize=(9, 3), sharex=True, sharey=True, layout="constrained"
    )
    pooled = np.polyfit(ROWS.hours, ROWS.score, 1)
    for ax, place in zip(axes, (0, 3, 6), strict=True):
        one = TASKS[place]
        few = slice(0, 5)
        own = np.polyfit(one.X[few, 0], one.y[few], 1)
        model = META.adapt(one.X[few], one.y[few], side_info=side_of(one))
        ax.plot(one.X[few, 0], one.y[few], "o", color="black", label="five pupils")
        ax.plot(
            GRID[:, 0],
            np.polyval(pooled, GRID[:, 0]),
            ":",
            color=GREY,
            label="one line for all schools",
        )
        ax.plot(
            GRID[:, 0], np.polyval(own, GRID[:, 0]), "--", color=ORANGE, label="its own rows alone"
        )
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
    """Draw arrows from the own to the tailored fits of 20 schools, and the prior of each kind of
    school.
    """
    some = TASKS[:20]
    display = ShrinkageDisplay.from_estimator(META, some, ["hours", "(intercept)"])
    plt.close(display.figure_)
    prior = META.prior_
    covariance = (
        prior.scaling.target**2 * prior.scaling.raw_representation(prior.mixture.covariances)[0]
    )
    values, vectors = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
    figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    for kind, color, marker in (("church", ORANGE, "s"), ("state", BLUE, "o")):
        chosen = np.array([side[0] == kind for side in some.side_info])
        own, tailored = display.own[chosen], display.tailored[chosen]
        model = META.adapt(side_info={"kind": kind})
        mean = (model.coef_[0], model.intercept_)
        # The ellipse contains 90 % of a kind: squared distances are chi-squared with two degrees of
        # freedom.
        width, height = 2 * np.sqrt(-2 * np.log(0.1) * values)
        ax.add_patch(
            Ellipse(mean, width, height, angle=angle, color=color, alpha=0.13, linewidth=0)
        )
        for start, end in zip(own, tailored, strict=True):
            arrow = {
                "arrowstyle": "->",
                "color": color,
                "shrinkA": 2,
                "shrinkB": 0,
                "linewidth": 1.1,
            }
            ax.annotate("", end, start, arrowprops=arrow)
        ax.plot(
            *own.T,
            marker,
            color="white",
            markeredgecolor=color,
            markersize=5,
            label=f"{kind}: own fit",
        )
        ax.plot(
            *mean,
            "X",
            color=color,
            markeredgecolor="white",
            markersize=12,
            label=f"{kind}: prior mean",
        )
    ax.plot(
        [],
        [],
        color=GREY,
        marker=r"$\rightarrow$",
        linestyle="none",
        markersize=11,
        label="to the tailored fit",
    )
    ax.set(xlabel="points for an hour (slope)", ylabel="points without homework (intercept)")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    ax.set_title("20 schools of 10 pupils; ellipses contain 90 % of the prior", fontsize=10)
    save(figure, "representation")


def draw_prior_mean():
    circle = make_circle(300, n_features=3, n_rows=10, random_state=0)
    learner = EmpiricalBayesLearner().fit(circle)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for ax, name in zip(axes, ("x0", "x1"), strict=True):
        PriorPathDisplay.from_estimator(learner, circle, 0, coefficient=name, ax=ax)
    save(figure, "prior-mean")


def own_width(hours, score, x):
    """Return the width of the 90 % prediction interval of ordinary least squares at x."""
    A, new, dof = np.column_stack([hours, np.ones(len(hours))]), np.array([x, 1.0]), len(hours) - 2
    variance = np.linalg.lstsq(A, score, rcond=None)[1][0] / dof
    std = np.sqrt(variance * (1 + new @ np.linalg.solve(A.T @ A, new)))
    return 2 * stats.t.ppf(0.95, dof) * std


def draw_intervals():
    """Draw one school after four pupils, and interval widths against the number of observed
    pupils.
    """
    x, counts, n_new, noise = 5.0, (0, 1, 2, 4, 8, 16), 100, 5.0
    rows, schools = school_rows(n_new, n_pupils=24, seed=2)
    new = TaskSet.from_frame(rows, task="school", target="score", side_info=schools)
    at_x, grid = (pd.DataFrame({"hours": each}) for each in ([x], GRID[:, 0]))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    one = new[0]
    model = META.adapt(pd.DataFrame({"hours": one.X[:4, 0]}), one.y[:4], side_info=side_of(one))
    low, high = model.predict_interval(grid, coverage=0.9).T
    left.fill_between(
        GRID[:, 0], low, high, color=BLUE, alpha=0.2, linewidth=0, label="90 % interval"
    )
    left.plot(GRID[:, 0], model.predict(grid), color=BLUE, label="prediction")
    left.plot(
        one.X[4:, 0], one.y[4:], "o", color="white", markeredgecolor=GREY, label="not yet observed"
    )
    left.plot(one.X[:4, 0], one.y[:4], "o", color="black", label="observed")
    left.set(title="one new school after 4 pupils", xlabel="hours", ylabel="score")
    left.legend(fontsize=8, loc="lower right")
    widths, own = np.empty((len(counts), n_new)), np.full((len(counts), n_new), np.nan)
    for i, n in enumerate(counts):
        for t, task in enumerate(new):
            observed = (pd.DataFrame({"hours": task.X[:n, 0]}), task.y[:n]) if n else ()
            model = META.adapt(*observed, side_info=side_of(task))
            widths[i, t] = np.diff(model.predict_interval(at_x, coverage=0.9)[0])[0]
            own[i, t] = own_width(task.X[:n, 0], task.y[:n], x) if n > 2 else np.nan
    styles = (("tailored", widths, BLUE, "o-"), ("own rows alone", own, ORANGE, "s:"))
    for label, values, color, style in styles:
        error = 2 * values.std(axis=1, ddof=1) / np.sqrt(n_new)
        kind = {"color": color, "capsize": 3, "label": label}
        right.errorbar(range(len(counts)), values.mean(axis=1), error, fmt=style, **kind)
    limit = 2 * stats.norm.ppf(0.95) * noise
    right.axhline(
        limit, color="black", linestyle="--", linewidth=1, label="limit: the true line is known"
    )
    right.set_xticks(range(len(counts)), counts)
    right.set(
        xlabel="observed pupils of a new school", ylabel="width of the 90 % interval at 5 hours"
    )
    right.set(title=f"mean over {n_new} new schools", ylim=(0, None))
    right.legend(fontsize=8, loc="lower left")
    save(figure, "intervals")


def draw_components():
    """Draw the coefficients of two columns, coloured by the most likely component, with an ellipse
    for each.
    """
    tasks = make_clusters(90, n_clusters=3, n_features=5, rank=1, n_rows=12, random_state=0)
    prior = EmpiricalBayesLearner(fit_intercept=False).fit(tasks).prior_
    statistics, scaling = prior.statistics(tasks), prior.scaling
    posterior = statistics.posterior(prior.mixture, Want(means=True))
    w = scaling.raw_weights(posterior.mean)
    pair = np.argsort(-w.std(axis=0))[:2]
    covariances = scaling.target**2 * scaling.raw_representation(prior.mixture.covariances)
    means = scaling.raw_weights(prior.mixture.means)
    figure, ax = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
    for k, marker in zip(range(len(means)), "o^sDvPX", strict=False):
        (line,) = ax.plot(*w[posterior.shares.argmax(axis=1) == k][:, pair].T, marker, ms=4.5)
        values, vectors = np.linalg.eigh(covariances[k][np.ix_(pair, pair)])
        width, height = 4.0 * np.sqrt(np.maximum(values, 0.0))
        angle = np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
        style = {"edgecolor": line.get_color(), "facecolor": "none", "linewidth": 1.6}
        ax.add_patch(Ellipse(means[k][pair], width, height, angle=angle, **style))
        line.set_label(f"{k + 1}: {100 * prior.mixture.proportions[k]:.0f} %")
    ax.set(xlabel=f"coefficient of x{pair[0]}", ylabel=f"coefficient of x{pair[1]}")
    ax.legend(title="component")
    save(figure, "components")


if __name__ == "__main__":
    draw_task()
    draw_side_information()
    draw_representation()
    draw_prior_mean()
    draw_intervals()
    draw_components()
