"""Learners that get data frames do what they do with the task set of the same frame."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from folds import few_folds
from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.datasets import load_schools
from tailored.exceptions import SingleTaskWarning
from tailored.paper import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

N_TASKS, N_ROWS = 24, 6
rng = np.random.default_rng(0)
LABELS = np.array([f"S{t}" for t in range(N_TASKS)])
SCHOOLS = pd.DataFrame(
    {
        "school": LABELS,
        "kind": rng.choice(["church", "state"], N_TASKS),
        "size": rng.normal(size=N_TASKS),
    }
)
CODES = rng.permutation(np.repeat(np.arange(N_TASKS), N_ROWS))
PUPILS = pd.DataFrame(
    {"school": LABELS[CODES], "hours": rng.normal(size=len(CODES)), "age": rng.normal(size=144)}
)
PUPILS["score"] = (
    rng.normal(1.0, 0.5, N_TASKS)[CODES] * PUPILS.hours
    + 2.0 * SCHOOLS["size"].to_numpy()[CODES]
    + 0.3 * rng.normal(size=len(CODES))
)
PUPILS["passed"] = np.where(PUPILS.score + rng.normal(size=len(CODES)) > 0, "yes", "no")
PUPILS["weight"] = rng.uniform(0.5, 2.0, len(CODES))
IS_NEW = PUPILS.school.isin(LABELS[20:]).to_numpy()
OBSERVED = PUPILS[PUPILS.school == LABELS[20]].head(3)
NAMES = {"task": "school", "target": "score"}
ROWS = PUPILS[["school", "hours", "age", "score"]]
CLASSES = PUPILS[["school", "hours", "age", "passed"]]

LEARNERS = {
    "empirical Bayes": few_folds(),
    "conditional": ConditionalLearner(loss="squared", solver=ProjectedSGD(0.1)),
    "unconditional": UnconditionalLearner(loss="squared", solver=ProjectedSGD(0.1)),
    "independent": IndependentLearner(loss="squared"),
    "classifier": EmpiricalBayesClassifier(),
}
REGRESSORS = [name for name in LEARNERS if name != "classifier"]
PAPER = ["conditional", "unconditional", "independent"]
LIBRARIES = {"pandas": lambda frame: frame, "polars": pl.from_pandas}


def rows_of(name):
    return CLASSES if name == "classifier" else ROWS


def names_of(name):
    return NAMES | ({"target": "passed"} if name == "classifier" else {})


@cache
def fitted(name, calibrated=False):
    """A learner that was fitted to a frame of pandas."""
    some, schools = rows_of(name)[~IS_NEW], {"side_info": SCHOOLS}
    learner = clone(LEARNERS[name]).fit(some, **names_of(name), **schools)
    if calibrated and name != "empirical Bayes":
        held_out = TaskSet.from_frame(ROWS[IS_NEW], **NAMES, **schools)
        learner.calibrate_intervals(held_out)
    return learner


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_fit_reads_a_frame_as_from_frame_does(name, library):
    """The table of schools also has the new schools, and no warning is given for them."""
    convert, names = LIBRARIES[library], names_of(name)
    some, schools = convert(rows_of(name)[~IS_NEW]), convert(SCHOOLS)
    with warnings.catch_warnings():
        if name == "empirical Bayes":
            warnings.simplefilter("error")
        learner = clone(LEARNERS[name]).fit(some, **names, side_info=schools)
    tasks = TaskSet.from_frame(some, **names, side_info=schools)
    expected = clone(LEARNERS[name]).fit(tasks)
    assert learner.columns_in_ == expected.columns_in_
    assert learner.task_labels_.tolist() == expected.task_labels_.tolist()
    query, few = convert(rows_of(name)), convert(rows_of(name).loc[OBSERVED.index])
    found, same = (
        each.predict_tasks(query, few, side_info=schools) for each in (learner, expected)
    )
    assert isinstance(found, type(query))
    assert found.equals(same)


def test_weights_are_columns():
    columns = {"sample_weight": "weight", "frequency_weight": "often"}
    rows = ROWS.assign(weight=PUPILS.weight, often=1 + CODES % 2)
    learner = few_folds().fit(rows, **NAMES, **columns, side_info=SCHOOLS)
    tasks = TaskSet.from_frame(rows, **NAMES, **columns, side_info=SCHOOLS)
    np.testing.assert_array_equal(learner.task_weights_, few_folds().fit(tasks).task_weights_)
    expected = learner.predict_tasks(rows, side_info=SCHOOLS)
    interval = learner.predict_interval(rows, side_info=SCHOOLS)
    np.testing.assert_array_equal(interval, expected[["lower", "upper"]])
    unweighted = learner.predict_interval(ROWS, side_info=SCHOOLS)
    assert (np.ptp(unweighted, axis=1) < np.ptp(interval, axis=1))[PUPILS.weight < 1].all()


def test_exposures_are_columns():
    rng = np.random.default_rng(1)
    rows = ROWS.assign(area=rng.uniform(1, 3, len(CODES)))
    rows["score"] = rng.poisson(rows.area * np.exp(0.3 * rows.hours + 0.5))
    learner = few_folds(loss="poisson").fit(rows, **NAMES, exposure="area")
    tasks = TaskSet.from_frame(rows, **NAMES, exposure="area")
    expected = few_folds(loss="poisson").fit(tasks).predict_tasks(rows, coverage=0.7)
    np.testing.assert_array_equal(learner.predict(rows), expected["prediction"])
    found = learner.predict_interval(rows, coverage=0.7)
    np.testing.assert_array_equal(found, expected[["lower", "upper"]])
    renamed = rows.rename(columns={"area": "other"})
    np.testing.assert_array_equal(learner.predict(renamed, exposure="other"), expected.prediction)
    with pytest.raises(TypeError, match="exposure: for a dataframe, pass the name of a column"):
        learner.predict(rows, exposure=rows.area)


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("few", [None, OBSERVED])
def test_predictions_of_a_frame_are_those_of_predict_tasks(name, library, few):
    """Known and new tasks in any order of rows, with and without observed rows."""
    learner, convert = fitted(name, calibrated=True), LIBRARIES[library]
    query, side = convert(ROWS.drop(columns="score")), convert(SCHOOLS)
    support = None if few is None else convert(few[ROWS.columns])
    given = {"side_info": side, "support": support}
    expected = learner.predict_tasks(query, support, side_info=side, coverage=None)
    found = learner.predict(query, **given)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected["prediction"])
    with warnings.catch_warnings():
        # The learners of the paper store no covariances of training tasks.
        warnings.filterwarnings("ignore", "coverage: no intervals for 20 training tasks")
        expected = learner.predict_tasks(query, support, side_info=side, coverage=0.7)
        found = learner.predict_interval(query, **given, coverage=0.7)
    np.testing.assert_array_equal(found[:, 0], expected["lower"])
    np.testing.assert_array_equal(found[:, 1], expected["upper"])
    assert np.isfinite(found[IS_NEW if name in PAPER else slice(None)]).all()


@pytest.mark.parametrize("name", ["empirical Bayes", "conditional"])
def test_a_task_set_is_predicted_like_its_frame(name):
    learner = fitted(name)
    names = NAMES | {"side_info": SCHOOLS, "encoding": learner.encoding_}
    few = ROWS.loc[OBSERVED.index]
    query, support = (TaskSet.from_frame(rows, **names) for rows in (ROWS[IS_NEW], few))
    by_task = ROWS[IS_NEW].assign(place=lambda rows: pd.factorize(rows.school)[0])
    by_task = by_task.sort_values("place", kind="stable")
    expected = learner.predict(by_task, side_info=SCHOOLS, support=few)
    np.testing.assert_allclose(learner.predict(query, support=support), expected, rtol=1e-12)
    with pytest.raises(TypeError, match="groups: a TaskSet has its own groups; leave it out"):
        learner.predict(query, ROWS.school[IS_NEW])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("some", [False, True])
def test_classes_of_a_frame(library, some):
    learner, convert = fitted("classifier"), LIBRARIES[library]
    query, side = convert(CLASSES.drop(columns="passed")), convert(SCHOOLS)
    support = convert(CLASSES.loc[OBSERVED.index]) if some else None
    expected = learner.predict_tasks(query, support, side_info=side)["probability"]
    P = learner.predict_proba(query, side_info=side, support=support)
    np.testing.assert_array_equal(P[:, 1], expected)
    predicted = learner.predict(query, side_info=side, support=support)
    np.testing.assert_array_equal(predicted, np.where(P[:, 1] > 0.5, "yes", "no"))
    by_label, rows = SCHOOLS.set_index("school"), CLASSES[["hours", "age"]]
    known = learner.predict_proba(rows[~IS_NEW], CLASSES.school[~IS_NEW], by_label)
    np.testing.assert_allclose(known, P[~IS_NEW], rtol=1e-9)


def test_classes_have_no_intervals():
    learner = fitted("classifier")
    for each in (learner, learner.adapt(side_info=SCHOOLS.iloc[:1, 1:])):
        assert not hasattr(each, "predict_interval")


# ------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"task": "school"}, "target: missing; task= was given"),
        ({"target": "score"}, "task: missing; target= was given"),
        ({**NAMES, "y": PUPILS.score}, "y: with task and target, it is read from X; leave y out"),
        ({**NAMES, "groups": CODES}, "groups: with task .* leave groups out"),
        ({**NAMES, "X": ROWS[["hours"]].to_numpy()}, "X: .* got ndarray; pass a dataframe"),
        ({**NAMES, "X": TaskSet(np.eye(2), [0, 1])}, "X: .* got TaskSet; pass a dataframe"),
    ],
)
def test_arguments_that_contradict_each_other(name, given, error):
    with pytest.raises(TypeError, match=error):
        clone(LEARNERS[name]).fit(**{"X": ROWS, **given})


def test_arguments_that_are_not_columns():
    learner = EmpiricalBayesLearner()
    with pytest.raises(TypeError, match=r"sample_weight: for a dataframe, .* got Series"):
        learner.fit(ROWS, **NAMES, sample_weight=PUPILS.weight)
    with pytest.raises(ValueError, match="school_id"):
        learner.fit(ROWS, task="school_id", target="score")
    with pytest.raises(ValueError, match=r"use fit\(X, task=\.\.\., target=\.\.\.\)"):
        learner.fit(ROWS)


@pytest.mark.parametrize("name", LEARNERS)
def test_predictions_without_labels(name):
    learner, rows = fitted(name), ROWS[["hours", "age"]]
    with pytest.raises(ValueError, match="X: the frame has no column 'school'"):
        learner.predict(rows, side_info=SCHOOLS)
    few = rows_of(name).loc[OBSERVED.index]
    for given in ({"X": rows.to_numpy()}, {"X": rows_of(name), "groups": ROWS.school}):
        with pytest.raises(TypeError, match="support: X must be a TaskSet, or a dataframe with"):
            learner.predict(**given, support=few)


# -------------------------------------------------------------------------------- positional


@pytest.mark.parametrize("name", LEARNERS)
def test_groups_and_side_information_by_position(name):
    rows, y = ROWS[["hours", "age"]], rows_of(name).iloc[:, -1]
    data = rows, y, ROWS.school, SCHOOLS.set_index("school")
    learner = clone(LEARNERS[name])
    one = learner.fit(*data).predict(rows, ROWS.school)
    named = {"groups": data[2], "side_info": data[3]}
    np.testing.assert_array_equal(one, learner.fit(rows, y, **named).predict(rows, ROWS.school))
    assert learner.score(*data) == learner.score(rows, y, **named)
    if name == "classifier":
        return
    assert learner.effects(*data).equals(learner.effects(rows, y, **named))
    many = learner.adapt_many(*data).weights_
    np.testing.assert_array_equal(many, learner.adapt_many(rows, y, **named).weights_)
    learner.calibrate_intervals(*data)
    if "lipschitz" in learner.get_params():
        clone(learner).set_params(lipschitz=1.0).partial_fit(*data)


# ------------------------------------------------------------------------------ scikit-learn

X, Y, GROUPS = ROWS[["hours", "age"]].to_numpy(), ROWS.score.to_numpy(), ROWS.school.to_numpy()
CV = GroupKFold(2)


def scores_by_hand(learner, y):
    """The scores of each fold, with scaled columns."""
    scores = []
    for train, test in CV.split(X, y, GROUPS):
        scaler = StandardScaler().fit(X[train])
        model = clone(learner).fit(scaler.transform(X[train]), y[train], GROUPS[train])
        scores.append(model.score(scaler.transform(X[test]), y[test], GROUPS[test]))
    return scores


@pytest.mark.parametrize("name", LEARNERS)
def test_groups_reach_all_steps_of_scikit_learn(name):
    learner, y = LEARNERS[name], (PUPILS.passed if name == "classifier" else ROWS.score).to_numpy()
    expected = scores_by_hand(learner, y)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error", SingleTaskWarning)
        pipe = Pipeline([("scale", StandardScaler()), ("learner", clone(learner))])
        found = cross_val_score(pipe, X, y, params={"groups": GROUPS}, cv=CV)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        search = GridSearchCV(pipe, {"learner__fit_intercept": [True]}, cv=CV)
        search.fit(X, y, groups=GROUPS)
        np.testing.assert_allclose(search.best_score_, np.mean(expected), rtol=1e-9)
        pipe.fit(X, y, groups=GROUPS)
        scaled = pipe[:-1].transform(X)
        same = pipe[-1].predict(scaled, GROUPS)
        np.testing.assert_array_equal(pipe.predict(X, groups=GROUPS), same)
        found = pipe.score(X, y, groups=GROUPS)
        assert found == pipe[-1].score(scaled, y, GROUPS)


def test_weights_in_the_accuracy():
    learner, names = fitted("classifier"), names_of("classifier") | {"side_info": SCHOOLS}
    data = CLASSES[["hours", "age"]], CLASSES.passed, CLASSES.school, SCHOOLS.set_index("school")
    tasks = TaskSet.from_frame(
        CLASSES.assign(weight=PUPILS.weight), **names, sample_weight="weight"
    )
    parts = tasks.support_query(0.5, random_state=0)
    support, query = (part.replace(sample_weight=None) for part in parts)
    is_right = learner.predict_proba(query, support=support).argmax(axis=1) == query.y
    expected = np.average(is_right, weights=parts[1].sample_weight)
    assert learner.score(*data, sample_weight=PUPILS.weight) == pytest.approx(expected)
    assert learner.score(*data) == pytest.approx(is_right.mean())
    assert learner.score(*data) != pytest.approx(expected)
    with pytest.raises(TypeError, match="sample_weight: a TaskSet has its own"):
        learner.score(tasks, sample_weight=PUPILS.weight)


def test_without_routing_a_warning_says_what_to_do():
    learner = IndependentLearner(loss="squared")
    with pytest.warns(SingleTaskWarning) as seen:
        cross_val_score(learner, X, Y, groups=GROUPS, cv=CV)
    text = str(seen[0].message)
    for part in (
        "pass the label of each row's task, fit(X, y, groups)",
        "cross_val_score(..., groups=groups) gives them to the splitter only",
        "call sklearn.set_config(enable_metadata_routing=True), and pass params={'groups': groups}",
    ):
        assert part in text


def test_methods_that_read_targets_take_the_frame_of_fit():
    pupils, schools = load_schools()
    learner = EmpiricalBayesLearner(n_jobs=1)
    learner.fit(pupils, task="school", target="score", side_info=schools)
    tasks = TaskSet.from_frame(
        pupils, task="school", target="score", side_info=schools, encoding=learner.encoding_
    )
    assert learner.score(pupils, side_info=schools) == learner.score(tasks)
    assert learner.effects(pupils, side_info=schools).equals(learner.effects(tasks))
    with pytest.raises(ValueError, match="X: the frame has no column 'score'"):
        learner.score(pupils.drop(columns="score"), side_info=schools)
    with pytest.raises(TypeError, match=r"tasks must be a TaskSet; got DataFrame\. Make one with"):
        learner.task_errors(pupils)
