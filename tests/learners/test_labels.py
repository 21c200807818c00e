"""Labels of any hashable kind from fit to a file and back, and columns that keep their names."""

import datetime
import pickle

import numpy as np
import pandas as pd
import pytest

from folds import few_folds
from tailored import IndependentLearner, TaskSet
from tailored.tasks.task_set import Task

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

RNG = np.random.default_rng(0)
CODES = RNG.permutation(np.repeat(np.arange(6), 4))
X, Y = RNG.normal(size=(24, 2)), RNG.normal(size=24)

MIXED = [("school", 3), "b", 7, 2.5, ("school", ("a", None)), b"raw"]
KINDS = {
    "tuples": [("school", t) for t in range(6)],
    "mixed": MIXED,
    "numpy scalars": [np.int64(4), np.str_("a"), np.float64(0.5), 9, "b", np.int32(2)],
    "dates": [datetime.date(2024, 5, t + 1) for t in range(6)],
    "frozen sets": [frozenset([t, "a"]) for t in range(6)],
    "booleans and words": [True, False, "a", "b", "x", ""],
}
FORMS = {
    "list": list,
    "tuple": tuple,
    "objects": lambda labels: np.fromiter(labels, dtype=object, count=len(labels)),
    "pandas": lambda labels: pd.Series(labels, dtype=object, index=range(100, 100 + len(labels))),
}


def fit(labels, **given):
    return IndependentLearner(loss="squared").fit(X, Y, groups=labels, **given)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_hashable_label(kind, form):
    names = KINDS[kind]
    labels = FORMS[form]([names[c] for c in CODES])
    learner, plain = fit(labels), fit(CODES)
    tasks, numbered = TaskSet(X, Y, labels), TaskSet(X, Y, CODES)
    assert tasks.labels.tolist() == [names[c] for c in numbered.labels]
    np.testing.assert_array_equal(tasks.X, numbered.X)
    np.testing.assert_array_equal(learner.predict(X, groups=labels), plain.predict(X, groups=CODES))
    # some that fit did not see
    groups = FORMS[form]([("nobody", 1), *(names[c] for c in CODES[1:])])
    np.testing.assert_array_equal(
        learner.predict(X, groups=groups), plain.predict(X, groups=np.append(99, CODES[1:]))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_sets_of_tasks_keep_them(kind):
    names = KINDS[kind]
    tasks = TaskSet(
        X, Y, [names[c] for c in CODES], {name: [float(t)] for t, name in enumerate(names)}
    )
    np.testing.assert_array_equal(tasks.side_info[:, 0], [names.index(t.label) for t in tasks])
    for t, task in enumerate(tasks):
        assert tasks.index_of(task.label).tolist() == tasks.index_of([task.label]).tolist() == [t]
    halves = tasks.split([0.5, 0.5], random_state=0)
    assert TaskSet.concat(halves).labels.tolist() == [
        *halves[0].labels.tolist(),
        *halves[1].labels.tolist(),
    ]
    for part in (*tasks.support_query(2, random_state=0), TaskSet.from_tasks(list(tasks))):
        assert part.labels.tolist() == tasks.labels.tolist()
    assert pickle.loads(pickle.dumps(tasks)).labels.tolist() == tasks.labels.tolist()
    support, query = tasks.support_query(2, random_state=0)
    learner = fit([names[c] for c in CODES])
    table = learner.predict_tasks(query, support[::-1])
    assert table["task"].tolist() == [
        label
        for label, n in zip(query.labels.tolist(), query.sizes, strict=False)
        for _ in range(n)
    ]
    np.testing.assert_array_equal(
        table["prediction"], learner.predict_tasks(query, support)["prediction"]
    )


@pytest.mark.parametrize("label", [None, float("nan"), pd.NaT])
def test_a_missing_label_is_no_task(label):
    labels = [*CODES[:-1].tolist(), label]
    with pytest.raises(ValueError, match="groups has a missing label in row 23"):
        fit(labels)
    with pytest.raises(ValueError, match="missing label"):
        fit(CODES).predict(X, groups=labels)
    with pytest.raises(ValueError, match="missing label"):
        TaskSet.from_tasks([(X, Y)], labels=[label])


# --------------------------------------------------------------------------------- names of columns

FRAME = pd.DataFrame(
    {
        "user": CODES,
        "dose": X[:, 0],
        "weight": X[:, 1],
        "y": Y,
        "age": CODES + 0.5,
        "size": CODES * 2.0,
    }
)


def described():
    return TaskSet.from_frame(FRAME, task="user", target="y", side_columns=["age", "size"])


def parts_of(tasks):
    yield from (tasks[1:3], tasks[[2, 0]], tasks[::2], *tasks.split([2, 2], random_state=0))
    yield from tasks.support_query(0.5, random_state=0)
    yield TaskSet.concat([tasks[:2], tasks[2:]])
    yield TaskSet.concat([tasks[:2], tasks[1:]], relabel=True)
    yield pickle.loads(pickle.dumps(tasks))


def test_names_stay_with_the_tasks():
    tasks = described()
    for part in parts_of(tasks):
        assert part.feature_names.tolist() == ["dose", "weight"]
        assert part.side_names == ["age", "size"]
        assert part.encoding == tasks.encoding
    assert (tasks.encoding.task, tasks.encoding.target) == ("user", "y")
    one = tasks[0]
    assert isinstance(one, Task)
    rows, targets, side, label = one
    assert rows is one.X
    assert (targets is one.y, side is one.side_info, label) == (True, True, one.label)
    # sets that came from different columns came from none
    other = TaskSet.from_frame(
        FRAME.assign(user=FRAME["user"] + 10).rename(columns={"y": "z"}),
        task="user",
        target="z",
        side_columns=["age", "size"],
    )
    assert TaskSet.concat([tasks, other]).encoding is None


def test_descriptions_are_read_by_their_names():
    learner = few_folds().fit(described())
    task = described()[2]
    ages = {"age": 1.5, "size": 2.0}
    turned = {"size": 2.0, "age": 1.5}
    for rows in ((), (task.X, task.y)):
        expected = learner.adapt(*rows, side_info=np.array([1.5, 2.0])).coef_
        for side in (
            ages,
            turned,
            pd.Series(turned),
            pd.DataFrame([turned]),
            {"height": 0.0, **turned},
        ):
            np.testing.assert_array_equal(learner.adapt(*rows, side_info=side).coef_, expected)
        for wrong, words in (
            (
                {"age": 1.5, "height": 2.0},
                "'age', 'height', but not 'size'; in fit it had 'age', 'size'",
            ),
            ({"age": 1.5}, "'age', but not 'size'"),
        ):
            with pytest.raises(ValueError, match=f"side_info: it has .*{words}"):
                learner.adapt(*rows, side_info=wrong)
    asked = FRAME[["dose", "weight"]][:2], ["new", "new"]
    np.testing.assert_array_equal(
        learner.predict(*asked, side_info={"new": turned}),
        learner.predict(*asked, side_info={"new": ages}),
    )
    turned_set = TaskSet.from_frame(FRAME, task="user", target="y", side_columns=["size", "age"])
    np.testing.assert_array_equal(
        learner.adapt_many(turned_set).weights_, learner.adapt_many(described()).weights_
    )
