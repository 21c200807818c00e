"""Learners of tables with words, categories and dates: every method reads frames as `fit` did."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet, load
from tailored.exceptions import UnknownCategoryWarning

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

SIZES = ["small", "middle", "large"]


def tables(n_tasks=24, rows=9, seed=0):
    """Rows of schools, and what describes these."""
    rng = np.random.default_rng(seed)
    n = n_tasks * rows
    school = np.repeat(np.arange(n_tasks), rows)
    frame = pd.DataFrame(
        {
            "school": [f"s{i}" for i in school],
            "ses": rng.standard_normal(n),
            "sex": rng.choice(["female", "male"], n),
            "day": pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 50, n), "D"),
        }
    )
    kind = rng.choice(["Catholic", "Public"], n_tasks)
    schools = pd.DataFrame(
        {
            "school": [f"s{i}" for i in range(n_tasks)],
            "kind": kind,
            "size": pd.Categorical(rng.choice(SIZES, n_tasks), categories=SIZES, ordered=True),
        }
    )
    level = 2.0 * (kind == "Public") + schools["size"].cat.codes.to_numpy()
    frame["score"] = level[school] + frame["ses"] * (1 + 0.5 * rng.standard_normal(n_tasks))[school]
    frame["score"] += 0.7 * (frame["sex"] == "male") + 0.3 * rng.standard_normal(n)
    return frame, schools


FRAME, SCHOOLS = tables()
ROLES = {"task": "school", "target": "score"}


@pytest.fixture(scope="module")
def tasks():
    return TaskSet.from_frame(FRAME, side_info=SCHOOLS, **ROLES)


@pytest.fixture(scope="module")
def learner(tasks):
    return EmpiricalBayesLearner().fit(tasks)


def test_names_are_kept(learner):
    assert learner.feature_names_in_.tolist() == ["ses", "sex=male", "day"]
    assert learner.n_features_in_ == 3
    assert learner.columns_in_ == {
        "task": "school",
        "target": "score",
        "side_info": ["kind", "size"],
    }
    assert learner.encoding_.feature_names.tolist() == ["ses", "sex=male", "day"]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_adapting_and_predicting_from_frames(learner, tasks, library):
    t = tasks.index_of("s3")[0]
    rows = FRAME[FRAME["school"] == "s3"]
    make = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[
        library
    ]
    named = {"size": "large", "kind": "Public"}
    own = np.array(["Public", 2.0], dtype=object)
    expected = learner.adapt(tasks[t].X, tasks[t].y, side_info=own)
    # in another order, and with the columns of the task and the target, which are known to be no
    # inputs
    for frame in (rows[["day", "sex", "ses"]], rows):
        model = learner.adapt(
            make(frame.reset_index(drop=True)), rows["score"].to_numpy(), side_info=named
        )
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        assert model.feature_names_in_.tolist() == ["ses", "sex=male", "day"]
        given = make(frame.reset_index(drop=True))
        np.testing.assert_array_equal(model.predict(given), expected.predict(tasks[t].X))
        np.testing.assert_array_equal(
            model.predict_interval(given), expected.predict_interval(tasks[t].X)
        )
        np.testing.assert_array_equal(model.predict_std(given), expected.predict_std(tasks[t].X))
        found = learner.predict(given, rows["school"].to_numpy())
        np.testing.assert_allclose(found, learner.predict(tasks[t].X, ["s3"] * len(rows)))
    twice = learner.adapt(make(rows[:4]), rows["score"][:4], side_info=named)
    twice.update(make(rows[4:]), rows["score"][4:].to_numpy())
    np.testing.assert_allclose(twice.coef_, expected.coef_, rtol=1e-6)
    assert learner.adapt(side_info=named).intercept_ == learner.adapt(side_info=own).intercept_


def test_tables_that_were_read_otherwise_are_refused(learner):
    new, described = tables(6, seed=1)
    late = TaskSet.from_frame(
        new.assign(day=new["day"] + pd.Timedelta(days=9)), side_info=described, **ROLES
    )
    words = r"column 'day' was read as days since 2024-03-01 .* encoding=learner\.encoding_\)"
    with pytest.raises(ValueError, match=words):
        learner.score(late)
    one_sex = TaskSet.from_frame(new.assign(sex="male"), side_info=described, **ROLES)
    with pytest.raises(
        ValueError,
        match=r"column 'sex' was read as sex=male \(reference: female\) and is now always male",
    ):
        learner.adapt_many(one_sex)


@pytest.mark.parametrize("by_name", [True, False])
def test_columns_that_were_not_in_fit_are_ignored(by_name):
    """In all methods, for tables and for frames of numbers; scikit-learn's order is checked without
    such columns.
    """
    columns = ["ses", "day", "sex"] if by_name else ["ses"]
    frame = FRAME[columns]
    learner = EmpiricalBayesLearner(varying=[]).fit(frame, FRAME["score"], groups=FRAME["school"])
    rows, y, groups = FRAME[:6], FRAME["score"][:6], FRAME["school"][:6]
    more = rows.assign(height=1.0)[["height", *rows.columns[::-1]]]
    model = learner.adapt(rows[columns], y)
    for found, expected in (
        (learner.predict(more, groups), learner.predict(rows[columns], groups)),
        (learner.adapt(more, y).coef_, model.coef_),
        (model.predict(more), model.predict(rows[columns])),
        (
            learner.adapt(rows[columns], y).update(more, y).coef_,
            model.update(rows[columns], y).coef_,
        ),
        (
            learner.adapt_many(more, y, groups=groups).coef_,
            learner.adapt_many(rows[columns], y, groups=groups).coef_,
        ),
        (
            learner.predict_tasks(more, task="school")["prediction"],
            learner.predict_tasks(rows[["school", *columns]], task="school")["prediction"],
        ),
    ):
        np.testing.assert_array_equal(found, expected)


def test_mistakes_name_the_column(learner):
    rows = FRAME[:3]
    message = "X: the frame has no column 'sex'; it has 'school', 'ses', 'day'"
    with pytest.raises(ValueError, match=message):
        learner.predict(rows.drop(columns="sex"), rows["school"])
    with pytest.raises(ValueError, match=r"X: the frame has no column .*; it has no columns\."):
        learner.predict(rows[[]], rows["school"])
    with pytest.raises(ValueError, match=r"NaN: row 1, column 'sex'"):
        learner.predict(rows.assign(sex=["male", None, "male"]), rows["school"])
    with pytest.raises(ValueError, match="query: the frame has no column 'day'"):
        learner.predict_tasks(rows.drop(columns="day"), side_info=SCHOOLS)


@pytest.mark.parametrize("kind", [EmpiricalBayesLearner, IndependentLearner])
def test_a_frame_of_features_is_encoded_in_fit(kind, tmp_path):
    X, groups = FRAME[["ses", "sex", "day"]], FRAME["school"]
    found = kind().fit(X, FRAME["score"], groups=groups)
    expected = kind().fit(TaskSet.from_frame(FRAME, **ROLES)).predict(X, groups)
    np.testing.assert_array_equal(found.predict(X, groups), expected)
    found.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X, groups), expected)


def test_unknown_words_are_said(learner):
    rows = FRAME[FRAME["school"] == "s3"]
    side = {"kind": "Public", "size": "middle"}
    with pytest.warns(
        UnknownCategoryWarning,
        match="column 'sex': 'unknown' did not .* an average category",
    ):
        model = learner.adapt(rows.assign(sex="unknown"), rows["score"], side_info=side)
    with pytest.warns(UnknownCategoryWarning, match="column 'sex': 'unknown'") as seen:
        found = model.predict(rows.assign(sex="unknown"))
    assert seen[0].filename == __file__
    share = (FRAME["sex"] == "male").mean()
    known = [model.predict(rows.assign(sex=sex)) for sex in ("female", "male")]
    np.testing.assert_allclose(found, (1 - share) * known[0] + share * known[1])
    message = "column 'kind': 'Private' .* 'Catholic', 'Public'"
    with pytest.warns(UnknownCategoryWarning, match=message):
        learner.adapt(side_info={"kind": "Private", "size": "middle"})
    message = "column 'size': 'vast' .* an average category"
    with pytest.warns(UnknownCategoryWarning, match=message):
        learner.adapt(side_info={"kind": "Public", "size": "vast"})


def test_files_and_several_columns_of_labels(learner, tasks, tmp_path):
    learner.save(tmp_path / "learner")
    again = load(tmp_path / "learner")
    assert again.encoding_ == learner.encoding_
    assert again.encoding_.features[1].counts == learner.encoding_.features[1].counts
    rows = FRAME[FRAME["school"].isin(["s1", "s2"])]
    np.testing.assert_array_equal(
        again.predict(rows, rows["school"]), learner.predict(rows, rows["school"])
    )
    pairs = FRAME.assign(year=np.arange(len(FRAME)) % 2)
    both = TaskSet.from_frame(pairs, task=["school", "year"], target="score")
    second = IndependentLearner(loss="squared").fit(both)
    with pytest.warns(UserWarning, match="support: 48 training tasks have fewer rows"):
        found = second.predict_tasks(pairs[::3].drop(columns="score"), pairs[1::3])
    assert list(found.columns[:3]) == ["school", "year", "prediction"]
    second.save(tmp_path / "second")
    assert load(tmp_path / "second").task_labels_.tolist() == both.labels.tolist()
