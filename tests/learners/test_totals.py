"""`sample` and `predict_totals`: tables of three libraries and task sets, weights, classes and
counts, and errors.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit

from folds import few_folds
from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, IndependentLearner, TaskSet

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
COLUMNS = ["prediction", "lower", "upper", "std"]


def draw(seed, n_tasks, n, prefix="u"):
    """Return rows of all tasks in any order, with targets of three kinds, regions, and numbers of
    people.
    """
    rng = np.random.default_rng(seed)
    of = rng.permutation(np.repeat(np.arange(n_tasks), n))
    x, age = rng.normal(size=len(of)), rng.normal(size=n_tasks)
    f = (0.3 + 0.3 * rng.normal(size=n_tasks))[of] * x + (
        0.5 * age + 0.5 * rng.normal(size=n_tasks)
    )[of]
    return pd.DataFrame({
        "user": [f"{prefix}{t}" for t in of],
        "region": np.array(["north", "south", "west"])[of % 3],
        "people": rng.integers(1, 50, len(of)),
        "age": age[of],
        "x": x,
        "rating": f + 0.5 * rng.normal(size=len(of)),
        "count": rng.poisson(np.exp(f)),
        "bought": np.where(rng.random(len(of)) < expit(f), "yes", "no"),
    })  # fmt: skip


TRAIN, NEW = draw(0, 40, 8), draw(1, 6, 7, "new")
PLACE = NEW.groupby("user").cumcount()
SUPPORT, QUERY = NEW[PLACE < 3], NEW[PLACE >= 3].drop(columns=["rating", "count", "bought"])


def tasks_of(table, target="rating"):
    return TaskSet.from_frame(
        table, task="user", target=target, features=["x"], side_columns=["age"]
    )


@cache
def fitted(target="rating"):
    if target == "bought":
        return EmpiricalBayesClassifier().fit(tasks_of(TRAIN, target))
    learner = few_folds().set_params(loss="poisson" if target == "count" else "squared")
    return learner.fit(tasks_of(TRAIN, target))


@pytest.mark.parametrize("library", FRAMES)
def test_totals_of_a_column(library):
    learner, query = fitted(), FRAMES[library](QUERY.to_dict("list"))
    found = learner.predict_totals(query, SUPPORT, by="region")
    assert type(found) is type(query)
    table = pd.DataFrame(found.to_pandas() if library != "pandas" else found)
    assert list(table.columns) == ["region", *COLUMNS]
    assert table["region"].tolist() == QUERY["region"].drop_duplicates().tolist()
    rows = learner.predict_tasks(QUERY, SUPPORT)["prediction"].groupby(QUERY["region"]).sum()
    np.testing.assert_allclose(table["prediction"], rows[table["region"]])
    np.testing.assert_allclose(table["upper"] - table["prediction"], 1.6448536 * table["std"])
    np.testing.assert_allclose(table["prediction"] - table["lower"], 1.6448536 * table["std"])


@pytest.mark.parametrize("target", ["rating", "count", "bought"])
def test_weights_are_numbers_of_units(target):
    # A row that stands for two units has the total of two equal rows.
    learner, twice = fitted(target), pd.concat([QUERY, QUERY], ignore_index=True)
    options = {"n_draws": 4000, "by": "user"}
    expected = learner.predict_totals(twice, SUPPORT, **options)
    found = learner.predict_totals(QUERY.assign(two=2), SUPPORT, weights="two", **options)
    exact = {"rtol": 1e-9}
    np.testing.assert_allclose(found["prediction"], expected["prediction"], **exact)
    np.testing.assert_allclose(
        found["std"], expected["std"], **exact if target == "rating" else {"rtol": 0.07}
    )
    mean = learner.predict_totals(
        QUERY, SUPPORT, weights=np.full(len(QUERY), 2.0), statistic="mean", **options
    )
    n_units = 2.0 * QUERY.groupby("user").size()[found["user"]].to_numpy()
    for name in COLUMNS:
        np.testing.assert_allclose(mean[name] * n_units, found[name], **exact)
    # The noise of many units averages out, the coefficients of a task do not.
    narrow, many = (
        learner.predict_totals(
            QUERY, SUPPORT, weights=np.full(len(QUERY), w), statistic="mean", **options
        )["std"]
        for w in (1e8, 1e9)
    )
    assert (narrow < 0.9 * mean["std"]).all()
    np.testing.assert_allclose(narrow, many, rtol=1e-6 if target == "rating" else 0.07)


def test_task_sets_have_structured_arrays():
    query, support = tasks_of(QUERY.assign(rating=0.0)), tasks_of(SUPPORT)
    found = fitted().predict_totals(query, support, by="task")
    expected = fitted().predict_totals(QUERY, SUPPORT, by="user")
    assert found.dtype.names == ("task", *COLUMNS)
    assert found["task"].tolist() == expected["user"].tolist()
    np.testing.assert_allclose(found["std"], expected["std"])
    everything = fitted().predict_totals(query, support)
    assert everything.dtype.names == tuple(COLUMNS)
    np.testing.assert_allclose(everything["prediction"], found["prediction"].sum())
    # All tasks share the errors of the fixed effects.
    assert everything["std"][0] > np.sqrt((found["std"] ** 2).sum())
    for name, column in (("by", "region"), ("weights", "people")):
        message = f"{name}: a TaskSet has no column '{column}'; pass an array"
        with pytest.raises(ValueError, match=message):
            fitted().predict_totals(query, support, **{name: column})


def test_totals_of_a_mixture_cover():
    """The means of two distant components are known well, although their common mean is not."""

    def draw(seed, n_tasks, n):
        rng = np.random.default_rng(seed)
        g, x = np.repeat(np.arange(n_tasks), n), rng.normal(size=n_tasks * n)
        c = rng.choice([-6.0, 6.0], n_tasks)
        slope, level = (c + 0.3 * rng.normal(size=n_tasks) for _ in range(2))
        return x[:, None], level[g] + slope[g] * x + 0.4 * rng.normal(size=len(x)), g + 1000 * seed

    X, y, g = draw(0, 60, 8)
    learner = EmpiricalBayesLearner().fit(X, y, groups=g)
    assert learner.n_components_ == 2
    X, y, g = draw(1, 400, 6)
    first = np.arange(len(y)) % 6 < 2
    support, query = (TaskSet(X[rows], y[rows], g[rows]) for rows in (first, ~first))
    totals = learner.predict_totals(query, support, by="task", n_draws=400)
    true = np.add.reduceat(query.y, query.offsets[:-1])
    assert 0.85 < np.mean((totals["lower"] <= true) & (true <= totals["upper"])) < 0.94


def test_totals_have_the_noise_of_their_task():
    """A total of one row has the interval of this row, also if tasks differ in their noise."""
    rng = np.random.default_rng(0)
    g, x = np.repeat(np.arange(90), 12), rng.normal(size=1080)
    y = rng.normal(size=90)[g] + x + (np.exp(rng.normal(0.0, 0.7, 90))[g] * rng.normal(size=1080))
    table = pd.DataFrame({"g": g, "x": x, "y": y})
    learner = EmpiricalBayesLearner(varying=[], covariance="full")
    learner.fit(table[g < 80], task="g", target="y")
    new = table[g >= 80].groupby("g")
    rows, support = new.tail(1), new.head(11)
    single = learner.predict_tasks(rows, support)["std"].to_numpy()
    assert single.max() > 2.0 * single.min()
    total = learner.predict_totals(rows, support, by="g")["std"].to_numpy()
    np.testing.assert_allclose(total, single, rtol=0.02)  # totals have errors of fixed effects


def test_training_tasks_need_their_rows():
    learner, query = fitted(), TRAIN[::5]
    with pytest.raises(
        ValueError,
        match=r"support: sample needs the rows of training tasks, but there are none for 'u",
    ):
        learner.sample(query)
    found = learner.predict_totals(query, TRAIN, by="user", statistic="mean")
    rows = learner.predict_tasks(query)["prediction"].groupby(query["user"]).mean()
    np.testing.assert_allclose(found["prediction"], rows[found["user"]], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "land"}, "by: the frame has no column 'land'"),
        ({"by": np.zeros(3)}, "by: expected 24 labels, got 3"),
        ({"by": "std"}, "by: 'std' is also the name of a column of the result"),
        ({"weights": "persons"}, "weights: the frame has no column 'persons'"),
        ({"weights": np.full(24, -1.0)}, "weights: row 0 has -1"),
        ({"weights": "region"}, "weights: could not convert string to float"),
        ({"weights": np.zeros(24), "statistic": "mean"}, "weights: all are zero"),
        ({"statistic": "median"}, "statistic"),
        ({"coverage": 90}, "coverage"),
        ({"n_draws": 1}, "n_draws"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fitted().predict_totals(QUERY.assign(std=1.0), SUPPORT, **options)


def with_prior(**changes):
    """Return the fitted learner with another prior."""
    learner = EmpiricalBayesLearner()
    learner.__dict__.update(fitted().__dict__)
    learner.prior_ = replace(learner.prior_, **changes)
    return learner


def test_learners_without_a_joint_distribution():
    tasks = TaskSet(
        *(np.random.default_rng(0).normal(size=s) for s in ((40, 2), 40)),
        np.repeat(np.arange(8), 5),
    )
    query = tasks.replace(labels=np.arange(8) + 100)
    message = "sample: not supported for the RepresentationPrior of Independent"
    with pytest.raises(ValueError, match=message):
        IndependentLearner().fit(tasks).sample(query)
    with pytest.raises(ValueError, match=r"predict_totals: the model predicts the 0\.9 quantile"):
        with_prior(quantile=0.9).predict_totals(QUERY, SUPPORT)
    with pytest.raises(ValueError, match="query: it has no rows"):
        fitted().sample(QUERY[:0], SUPPORT)
