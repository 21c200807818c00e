"""Whole tasks through scikit-learn's model selection, and predictions of tasks that fit did not
see.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
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
from tailored.evaluation import task_scorer
from tailored.exceptions import SingleTaskWarning
from tailored.paper import ProjectedSGD

T, N, D = 12, 6, 2
ROUTED = {"enable_metadata_routing": True}
CV = GroupKFold(2)


def draw(seed=0, n_tasks=T, n=N):
    """Rows in any order, labels, and the description of each row's task, which moves its
    intercept.
    """
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(n_tasks), n)) + 100
    s = rng.normal(size=(n_tasks, 1))
    X = rng.normal(size=(n_tasks * n, D)) * [1.0, 30.0] + [0.0, 5.0]
    weights = rng.normal(size=(n_tasks, D)) * [0.5, 0.01] + [1.0, 0.1]
    of = groups - 100
    y = np.einsum("ij,ij->i", X, weights[of]) + 3.0 * s[of, 0] + 0.3 * rng.normal(size=len(of))
    return X, y, groups, s[of]


X, Y, GROUPS, SIDE = draw()


@cache
def fitted(side=False):
    given = {"side_info": SIDE} if side else {}
    return few_folds().fit(X, Y, groups=GROUPS, **given)


def by_hand(learner, how, scaler=False, side=False):
    """The scores of a loop over the folds, written out; ``how`` scores a learner on tasks."""
    out = []
    for train, test in CV.split(X, Y, GROUPS):
        a, b = X[train], X[test]
        if scaler:
            scaled = StandardScaler().fit(a)
            a, b = scaled.transform(a), scaled.transform(b)
        given = {"side_info": SIDE[train]} if side else {}
        model = clone(learner).fit(a, Y[train], groups=GROUPS[train], **given)
        out.append(how(model, TaskSet(b, Y[test], GROUPS[test], SIDE[test] if side else None)))
    return np.array(out)


def r_squared(model, tasks):
    support, query = tasks.support_query(0.5, random_state=model.random_state)
    return r2_score(query.y, np.concatenate(predicted_by_adapting(model, support, query)))


def absolute(n_support):
    def how(model, tasks):
        support, query = tasks.support_query(n_support, random_state=0)
        return -mean_absolute_error(
            query.y, np.concatenate(predicted_by_adapting(model, support, query))
        )

    return how


def predicted_by_adapting(model, support, query):
    out = []
    for given, asked in zip(support, query, strict=True):
        side = {} if given.side_info is None else {"side_info": given.side_info}
        one = model.adapt(given.X, given.y, **side) if len(given.y) else model.adapt(**side)
        out.append(one.predict(asked.X))
    return out


# --------------------------------------------------------------------------------- with routing


LEARNERS = {
    "empirical Bayes": few_folds(),
    "conditional": ConditionalLearner(loss="squared", solver=ProjectedSGD(0.1)),
    "unconditional": UnconditionalLearner(loss="squared", solver=ProjectedSGD(0.1)),
}


@pytest.mark.parametrize(
    ("name", "scaler", "side"),
    [
        ("empirical Bayes", True, False),
        ("empirical Bayes", False, True),
        ("conditional", True, True),
        ("unconditional", False, False),
    ],
)
def test_cross_validation_over_whole_tasks(name, scaler, side, few_steps):
    learner = LEARNERS[name]
    params = {"groups": GROUPS, **({"side_info": SIDE} if side else {})}
    scorer = task_scorer("neg_mean_absolute_error", n_support=2)
    with sklearn.config_context(**ROUTED):
        estimator = make_pipeline(StandardScaler(), clone(learner)) if scaler else clone(learner)
        plain = cross_val_score(estimator, X, Y, params=params, cv=CV)
        errors = cross_val_score(estimator, X, Y, params=params, cv=CV, scoring=scorer)
    expected = by_hand(
        learner, lambda *given: (r_squared(*given), absolute(2)(*given)), scaler, side
    )
    np.testing.assert_allclose(plain, expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(errors, expected[:, 1], rtol=1e-6)


@pytest.mark.parametrize(("labels", "words"), [((0, 1), False), (("no", "yes"), True)])
def test_cross_validation_of_classes(labels, words):
    """Rows of numbers and of words, labels of both kinds; the scores are those of `adapt` for each
    task.
    """
    rng = np.random.default_rng(0)
    groups, x, kind = (
        np.repeat(np.arange(24), 12),
        rng.normal(size=288),
        rng.choice(["a", "b"], 288),
    )
    own = rng.normal(size=24)[groups] + x + (kind == "b")
    y = np.array(labels)[(own + rng.logistic(size=288) > 0).astype(int)]
    frame = pd.DataFrame({"x": x, "kind": kind if words else 1.0 * (kind == "b")})
    scorers = {
        "accuracy": task_scorer("accuracy"),
        "log loss": task_scorer("neg_log_loss", n_support=0),
        "auc": task_scorer("roc_auc", n_support=0),
    }
    options = {"params": {"groups": groups}, "cv": CV}
    with sklearn.config_context(**ROUTED):
        found = cross_validate(EmpiricalBayesClassifier(), frame, y, scoring=scorers, **options)
    for k, (train, test) in enumerate(CV.split(frame, groups=groups)):
        learner = EmpiricalBayesClassifier().fit(frame.iloc[train], y[train], groups=groups[train])
        score = learner.score(frame.iloc[test], y[test], groups=groups[test])
        assert found["test_accuracy"][k] == pytest.approx(score)
        P = learner.adapt().predict_proba(frame.iloc[test])
        assert found["test_log loss"][k] == pytest.approx(-log_loss(y[test], P))
        assert found["test_auc"][k] == pytest.approx(roc_auc_score(y[test] == labels[1], P[:, 1]))


@pytest.mark.parametrize("scaler", [False, True])
@pytest.mark.parametrize("scored", [False, True])
def test_grid_search_over_whole_tasks(scaler, scored):
    learner, steps = LEARNERS["unconditional"], [1e-6, 1.0]
    scorer = task_scorer("neg_mean_absolute_error", n_support=3) if scored else None
    with sklearn.config_context(**ROUTED):
        estimator = clone(learner)
        if scaler:
            estimator = Pipeline([("scale", StandardScaler()), ("learn", estimator)])
        search = GridSearchCV(
            estimator,
            {"learn__solver__step" if scaler else "solver__step": steps},
            cv=CV,
            scoring=scorer,
        )
        search.fit(X, Y, groups=GROUPS)
    for number, step in enumerate(steps):
        one = clone(learner).set_params(solver__step=step)
        expected = by_hand(one, absolute(3) if scored else r_squared, scaler)
        found = [search.cv_results_[f"split{i}_test_score"][number] for i in range(2)]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.ptp(search.cv_results_["mean_test_score"]) > 1e-6
    best = search.best_estimator_[-1] if scaler else search.best_estimator_
    assert set(best.task_labels_.tolist()) == set(GROUPS.tolist())


@pytest.mark.parametrize("scaler", [False, True])
def test_scorers_by_name_never_give_a_number(scaler):
    """They call predict without saying which tasks: no score is better than that of some other
    task's weights.
    """
    learner = IndependentLearner(loss="squared")
    for scoring in ("neg_mean_absolute_error", "r2"):
        with sklearn.config_context(**ROUTED), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            estimator = (
                make_pipeline(StandardScaler(), clone(learner)) if scaler else clone(learner)
            )
            scores = cross_validate(
                estimator,
                X,
                Y,
                params={"groups": GROUPS},
                cv=CV,
                scoring=scoring,
                error_score=np.nan,
            )["test_score"]
        assert np.isnan(scores).all()
        assert any("groups: the learner was fitted to 6 tasks" in str(w.message) for w in seen)
        assert not any(issubclass(w.category, FitFailedWarning) for w in seen)


def test_the_scorer_says_what_it_needs():
    scorer = task_scorer("r2", n_support=2)
    assert repr(scorer) == "task_scorer(scoring='r2', n_support=2, random_state=0)"
    learner = IndependentLearner(loss="squared").fit(X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        scorer(learner, X, Y)
    tasks = TaskSet(X, Y, GROUPS)
    assert scorer(learner, tasks) == scorer(learner, X, Y, groups=GROUPS)
    support, query = tasks.support_query(2, random_state=0)
    assert scorer(learner, tasks) == pytest.approx(
        r2_score(query.y, learner.predict_tasks(query, support)["prediction"])
    )
    # a pipeline of one step has nothing before the learner
    alone = Pipeline([("learn", learner)])
    assert scorer(alone, X, Y, groups=GROUPS) == scorer(learner, X, Y, groups=GROUPS)
    # a frame keeps its names
    frame = pd.DataFrame(X, columns=["a", "b"])
    named = IndependentLearner(loss="squared").fit(frame, Y, groups=GROUPS)
    assert scorer(named, frame, Y, groups=GROUPS) == scorer(learner, tasks)


def test_scorers_refuse_what_they_cannot_score():
    with pytest.raises(ValueError, match="mae"):
        task_scorer("mae")
    X, y = np.eye(3), np.zeros(3)
    with pytest.raises(TypeError, match=r"estimator: task_scorer needs .* got Ridge"):
        task_scorer()(Ridge().fit(X, y), X, y, groups=[0, 1, 1])


# ------------------------------------------------------------------------------ without routing


def test_without_groups_a_warning_says_what_to_do(few_steps):
    with pytest.warns(
        SingleTaskWarning, match=r"enable_metadata_routing=True.*params=\{'groups'"
    ) as seen:
        EmpiricalBayesLearner().fit(X[:8], Y[:8])
    assert "all 8 rows are one task" in str(seen[0].message)
    assert seen[0].filename == __file__
    for learner in (IndependentLearner(), UnconditionalLearner(solver=ProjectedSGD(0.1))):
        with pytest.warns(SingleTaskWarning):
            learner.fit(X[:8], Y[:8])
    # as in a cross-validation that does not pass them on
    with pytest.warns(SingleTaskWarning):
        cross_val_score(IndependentLearner(loss="squared"), X, Y, groups=GROUPS, cv=CV)


def test_no_warning_where_nothing_was_forgotten():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = IndependentLearner(loss="squared").fit(X, Y, groups=GROUPS)
        learner.fit(TaskSet(X, Y))
        learner.adapt(X[:3], Y[:3])
        learner.fit(X[:1], Y[:1])


# ------------------------------------------------------------------------------------ predictions


@pytest.mark.filterwarnings("ignore:side_info. new tasks are predicted without")
def test_unseen_tasks_are_described():
    learner = fitted(side=True)
    assert learner.side_structure_ is not None
    groups = np.array([7, GROUPS[0], 8, 7, GROUPS[1]])
    described = {7: [2.0], 8: [-1.0]}
    expected = np.array(
        [
            learner.adapt(side_info=described[g]).predict(X[i : i + 1])[0]
            if g in described
            else learner.predict(X[i : i + 1], groups=[g])[0]
            for i, g in enumerate(groups)
        ]
    )
    per_row = np.array([[2.0], [99.0], [-1.0], [2.0], [99.0]])
    frame = pd.DataFrame({"s": [-1.0, 2.0]}, index=[8, 7])
    for side in (described, per_row, per_row.tolist(), frame, frame["s"]):
        np.testing.assert_allclose(
            learner.predict(X[:5], groups=groups, side_info=side), expected, rtol=1e-9
        )
    # a frame with as many tasks as there are rows is still searched by label, in any order
    labels = np.array([7, 8, 9])
    longer = pd.DataFrame({"s": [5.0, -1.0, 2.0]}, index=[9, 8, 7])
    mapping = {7: [2.0], 8: [-1.0], 9: [5.0]}
    np.testing.assert_allclose(
        learner.predict(X[:3], groups=labels, side_info=longer),
        learner.predict(X[:3], groups=labels, side_info=mapping),
        rtol=1e-12,
    )
    # a description that is not given is one of missing values
    unknown = learner.adapt(side_info=[np.nan]).predict(X[:1])
    np.testing.assert_allclose(learner.predict(X[:5], groups=groups)[:1], unknown, rtol=1e-9)


def test_weights_of_rows_in_the_score():
    learner = fitted()
    x, y, groups, _ = draw(seed=6, n_tasks=4)
    weights = np.random.default_rng(0).integers(1, 4, size=len(y))
    tasks = TaskSet(x, y, groups, sample_weight=weights)
    support, query = tasks.support_query(0.5, random_state=learner.random_state)
    parts = (part.replace(sample_weight=None) for part in (query, support))
    prediction = learner.predict_tasks(*parts, coverage=None)["prediction"]
    repeats = query.sample_weight.astype(int)
    expected = r2_score(np.repeat(query.y, repeats), np.repeat(prediction, repeats))
    found = learner.score(x, y, groups=groups, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-9)
    plain = learner.score(x, y, groups=groups)
    assert plain == pytest.approx(r2_score(query.y, prediction), rel=1e-9)
    with pytest.raises(TypeError, match="sample_weight: a TaskSet has its own"):
        learner.score(TaskSet(x, y, groups), sample_weight=weights)
