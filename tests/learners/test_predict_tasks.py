"""Many new tasks in, one table of predictions with intervals out: frames of three libraries, and
task sets.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from folds import few_folds
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet, load

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
COLUMNS = ["prediction", "lower", "upper", "std"]


def draw(seed, n_tasks, n, prefix="u", d=2):
    """Rows of all tasks in any order, with a level that the description says half of."""
    rng = np.random.default_rng(seed)
    of = rng.permutation(np.repeat(np.arange(n_tasks), n))
    age = rng.normal(size=n_tasks)
    X = rng.normal(size=(len(of), d))
    weights = 1.0 + 0.5 * rng.normal(size=(n_tasks, d))
    level = age + rng.normal(size=n_tasks)
    y = np.einsum("ij,ij->i", X, weights[of]) + level[of] + 0.3 * rng.normal(size=len(of))
    table = {"user": [f"{prefix}{t}" for t in of], "age": age[of]}
    table |= {f"x{j}": X[:, j] for j in range(d)}
    return pd.DataFrame({**table, "rating": y})


TRAIN = draw(0, 40, 8)
NEW = draw(1, 6, 7, "new")


@cache
def fitted(side=True):
    tasks = TaskSet.from_frame(
        TRAIN if side else TRAIN.drop(columns="age"),
        task="user",
        target="rating",
        side_columns=["age"] if side else None,
    )
    return few_folds().fit(tasks)


def halves():
    """Query and support rows: "new0" has no support, "new5" is asked nothing, the order is
    mixed.
    """
    place = NEW.groupby("user").cumcount()
    support = NEW[(place < 3) & (NEW["user"] != "new0")].sample(frac=1, random_state=0)
    query = NEW[(place >= 3) & (NEW["user"] != "new5")]
    return query.drop(columns="rating"), support


def one_by_one(learner, query, support, coverage, side=True):
    """The same by `adapt`, row by row."""
    out = []
    for _, row in query.iterrows():
        own = support[support["user"] == row["user"]]
        described = {"side_info": {"age": row["age"]}} if side else {}
        rows = [own[["x0", "x1"]], own["rating"]] if len(own) else []
        model = learner.adapt(*rows, **described)
        x = query.loc[[row.name], ["x0", "x1"]]
        ends = model.predict_interval(x, coverage=coverage)[0]
        out.append([model.predict(x)[0], *ends, model.predict_std(x)[0]])
    return np.array(out)


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("side", [False, True])
def test_frames_in_a_labelled_frame_out(library, side):
    query, support = halves()
    learner = fitted(side)
    expected = one_by_one(learner, query, support, 0.8, side)
    make = FRAMES[library]
    asked, given = (
        make({name: part[name].to_numpy() for name in part}) for part in (query, support)
    )
    found = learner.predict_tasks(asked, given, coverage=0.8)
    assert type(found) is type(asked)
    table = found.to_pandas() if library != "pandas" else found
    assert list(table.columns) == ["user", *COLUMNS]
    assert table["user"].tolist() == query["user"].tolist()
    np.testing.assert_allclose(table[COLUMNS].to_numpy(), expected, rtol=1e-6, atol=1e-8)
    assert {"new0"} < set(query["user"])
    assert "new5" in set(support["user"])
    assert not {"new5"} & set(query["user"])


def test_the_pandas_index_stays():
    query, support = halves()
    found = fitted().predict_tasks(query, support, coverage=0.8)
    pd.testing.assert_index_equal(found.index, query.index)
    assert not query.index.equals(pd.RangeIndex(len(query)))
    # the order of either frame, and of the tasks in it, says nothing
    mixed = query.sample(frac=1, random_state=1)
    again = fitted().predict_tasks(mixed, support.sort_values("user"), coverage=0.8)
    pd.testing.assert_frame_equal(again.loc[query.index], found, rtol=1e-9)
    # columns that fit did not have, the target among them, are left aside
    wide = NEW.loc[query.index, ::-1].assign(date="today")
    pd.testing.assert_frame_equal(fitted().predict_tasks(wide, support, coverage=0.8), found)


def test_columns_of_side_information_are_found_in_tables_of_rows(tmp_path):
    with pytest.warns(UserWarning, match="read as side information: 'age'"):
        tasks = TaskSet.from_frame(TRAIN, task="user", target="rating")
    learner = few_folds().fit(tasks)
    reference, (query, support) = fitted(), halves()
    expected = reference.predict_tasks(query, support)
    pd.testing.assert_frame_equal(learner.predict_tasks(query, support), expected)
    # Rows of one task, and of many: the column is side information there as well.
    for label, rows in support.groupby("user"):
        asked = query[query["user"] == label]
        model = learner.adapt(rows.drop(columns=["user", "rating"]), rows["rating"])
        assert model.predict(asked) == pytest.approx(expected["prediction"][asked.index], abs=1e-9)
    X, y, groups = support.drop(columns=["user", "rating"]), support["rating"], support["user"]
    many = learner.adapt_many(X, y, groups=groups)
    age = groups.map(NEW.groupby("user")["age"].first()).to_numpy()[:, None]
    also = reference.adapt_many(X[["x0", "x1"]], y, groups=groups, side_info=age)
    np.testing.assert_allclose(many.coef_, also.coef_, atol=1e-9)
    alone = learner.predict_tasks(query)["prediction"]
    np.testing.assert_allclose(learner.predict(query, groups=query["user"]), alone, atol=1e-9)
    with pytest.warns(UserWarning, match="new tasks are predicted without side information"):
        assert not np.allclose(
            learner.predict(query.drop(columns="age"), groups=query["user"]), alone
        )
    learner.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict_tasks(query, support), expected)
    with pytest.raises(ValueError, match=r"side information \(columns 'age'\)"):
        learner.predict_tasks(query.drop(columns="age"))


def test_descriptions_from_a_table_of_their_own():
    query, support = halves()
    expected = fitted().predict_tasks(query, support, coverage=0.8)
    people = query.drop_duplicates("user")[["user", "age"]].sort_values("age")
    bare = [part.drop(columns="age") for part in (query, support)]
    for side in (
        people,
        people.set_index("user"),
        dict(zip(people["user"], people["age"], strict=True)),
    ):
        found = fitted().predict_tasks(*bare, coverage=0.8, side_info=side)
        pd.testing.assert_frame_equal(found, expected)
    # the support's own columns will do, where every task has some
    known = query[query["user"] != "new0"].drop(columns="age")
    pd.testing.assert_frame_equal(
        fitted().predict_tasks(known, support, coverage=0.8), expected.loc[known.index]
    )
    message = "'new0' of query has no support rows, and so no side information"
    with pytest.raises(ValueError, match=message):
        fitted().predict_tasks(bare[0], support)
    message = r"side_info: the learner was fitted with .*columns 'age'.; pass"
    with pytest.raises(ValueError, match=message):
        fitted().predict_tasks(*bare)
    with pytest.raises(ValueError, match="fitted without side information"):
        fitted(side=False).predict_tasks(*bare, side_info=people)


def test_task_sets_in_a_structured_array_out():
    query, support = halves()
    kinds = {"task": "user", "side_columns": ["age"]}
    asked = TaskSet.from_frame(query, target=None, **kinds)
    given = TaskSet.from_frame(support, target="rating", **kinds)
    found = fitted().predict_tasks(asked, given, coverage=0.8)
    assert found.dtype.names == ("task", *COLUMNS)
    assert found["task"].tolist() == np.repeat(asked.labels, asked.sizes).tolist()
    frame = fitted().predict_tasks(query, support, coverage=0.8)
    ordered = frame.sort_values(
        "user", key=lambda u: u.map(asked.labels.tolist().index), kind="stable"
    )
    np.testing.assert_array_equal(pd.DataFrame(found)[COLUMNS], ordered[COLUMNS])
    # either may be a frame
    np.testing.assert_array_equal(fitted().predict_tasks(asked, support, coverage=0.8), found)
    pd.testing.assert_frame_equal(fitted().predict_tasks(query, given, coverage=0.8), frame)
    # matched by label: an order of tasks that is not the query's
    turned = given[np.arange(len(given))[::-1]]
    np.testing.assert_array_equal(fitted().predict_tasks(asked, turned, coverage=0.8), found)
    # no rows at all: the prior's
    alone = fitted().predict_tasks(asked, coverage=0.8)
    expected = one_by_one(fitted(), query, support.iloc[:0], 0.8)
    np.testing.assert_allclose(np.sort(alone["prediction"]), np.sort(expected[:, 0]), rtol=1e-6)
    with pytest.raises(TypeError, match="a TaskSet has its own side_info"):
        fitted().predict_tasks(asked, given, side_info={})


def test_predictions_alone():
    query, support = halves()
    found = fitted().predict_tasks(query, support, coverage=None)
    np.testing.assert_array_equal(
        found["prediction"], fitted().predict_tasks(query, support, coverage=0.8)["prediction"]
    )
    assert found[["lower", "upper", "std"]].isna().all(axis=None)
    # as for a learner that was never calibrated
    tasks = TaskSet.from_frame(TRAIN, task="user", target="rating", features=["age", "x0", "x1"])
    table = IndependentLearner(loss="squared").fit(tasks).predict_tasks(query, support)
    assert table["prediction"].notna().all()
    assert table[["lower", "upper", "std"]].isna().all(axis=None)
    with pytest.raises(ValueError, match="coverage"):
        fitted().predict_tasks(query, support, coverage=1.5)


def test_a_learner_of_arrays_is_told_the_columns():
    learner = few_folds().fit(
        TRAIN[["x0", "x1"]].to_numpy(), TRAIN["rating"].to_numpy(), groups=TRAIN["user"].tolist()
    )
    query, support = (part.drop(columns="age") for part in halves())
    expected = fitted(side=False).predict_tasks(query, support, coverage=0.8)
    found = learner.predict_tasks(query, support, coverage=0.8, task="user", target="rating")
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"task: .* name the label column of query"):
        learner.predict_tasks(query, support)
    with pytest.raises(ValueError, match=r"target: .* name the column of support"):
        learner.predict_tasks(query, support, task="user")
    message = "query: expected 2 feature columns as in fit, got 3: 'age'"
    with pytest.raises(ValueError, match=message):
        learner.predict_tasks(*halves(), task="user", target="rating")


def test_errors_name_the_columns():
    query, support = halves()
    message = "query: the frame has no column 'x1'; it has 'user', 'age', 'x0'"
    with pytest.raises(ValueError, match=message):
        fitted().predict_tasks(query.drop(columns="x1"), support)
    with pytest.raises(ValueError, match="support: the frame has no column 'rating'"):
        fitted().predict_tasks(query, support.drop(columns="rating"))
    with pytest.raises(ValueError, match="query: the frame has no column 'nobody'"):
        fitted().predict_tasks(query, support, task="nobody")
    with pytest.raises(ValueError, match="task: the column 'std' has the name"):
        fitted().predict_tasks(
            *(part.rename(columns={"user": "std"}) for part in (query, support)), task="std"
        )
    with pytest.raises(TypeError, match="query must be a dataframe"):
        fitted().predict_tasks([1.0, 2.0], support)
    holes = query.copy()
    holes.iloc[0, holes.columns.get_loc("x0")] = np.nan
    with pytest.raises(ValueError, match=r"NaN: task 'new\d', row 0, column 'x0'"):
        fitted().predict_tasks(holes, support)


def test_few_tasks_warn_here():
    learner = EmpiricalBayesLearner().fit(
        TaskSet.from_frame(
            TRAIN[TRAIN["user"].isin(["u0", "u1", "u2", "u3"])], task="user", target="rating"
        )
    )
    query, support = halves()
    with (
        pytest.warns(UserWarning, match="too few tasks were held out to calibrate 90 %") as seen,
        pytest.warns(UserWarning, match="more than one training range outside"),
    ):
        found = learner.predict_tasks(query, support)
    assert {warning.filename for warning in seen} == {__file__}
    model = learner.adapt(support[["age", "x0", "x1"]].iloc[:3], support["rating"].iloc[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.predict_interval(query[["age", "x0", "x1"]])).all()
    assert np.isfinite(found[COLUMNS]).all(axis=None)
