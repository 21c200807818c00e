"""Growth of 27 children (Potthoff and Roy, 1964; Orthodont of R's nlme) next to lme4 1.1."""

import numpy as np
import pandas as pd
import pytest

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored.exceptions import SingleTaskWarning, UnhelpfulWarning

#: Distances in mm at the ages 8, 10, 12 and 14: 11 girls, then 16 boys.
DISTANCES = """21 20 21.5 23 21 21.5 24 25.5 20.5 24 24.5 26 23.5 24.5 25 26.5 21.5 23 22.5 23.5 20 21 21 22.5 21.5 22.5 23 25
23 23 23.5 24 20 21 22 21.5 16.5 19 19 19.5 24.5 25 28 28 26 25 29 31 21.5 22.5 23 26.5 23 22.5 24 27.5 25.5 27.5 26.5 27
20 23.5 22.5 26 24.5 25.5 27 28.5 22 22 24.5 26.5 24 21.5 24.5 25.5 23 20.5 31 26 27.5 28 31 31.5 23 23 23.5 25
21.5 23.5 24 28 17 24.5 26 29.5 22.5 25.5 25.5 26 23 24.5 26 30 22 21.5 23.5 25"""
CHILD = np.repeat(np.arange(27), 4)
FRAME = pd.DataFrame(
    {
        "child": [f"c{i:02d}" for i in CHILD],
        "age": np.tile([8, 10, 12, 14], 27),
        "sex": np.where(CHILD < 11, "girl", "boy"),
        "distance": np.array(DISTANCES.split(), dtype=float),
    }
)
ROLES = {"task": "child", "target": "distance"}
#: fixef and standard errors of lmer(distance ~ age * sex + (1 + age | child), REML = FALSE), with
#: boys as reference.
LMER = {"(intercept)": (1.032102, 1.5354896), "age": (-0.304830, 0.1296487)}


@pytest.fixture(scope="module")
def learner():
    return EmpiricalBayesLearner(varying=["age"]).fit(
        TaskSet.from_frame(FRAME, side_columns=["sex"], **ROLES)
    )


def side_effects(learner):
    table = learner.summary().to_frame("side_effects")
    return table.set_index(["side information", "coefficient"])[["effect", "std. error"]]


def test_effects_of_a_category_next_to_lmer(learner):
    found = side_effects(learner).loc["sex=girl"]
    for name, (effect, error) in LMER.items():
        # They are shrunk towards zero.
        assert 0.0 < found.loc[name, "effect"] / effect < 1.0
        assert abs(found.loc[name, "effect"] - effect) < 0.75 * error
        assert 0.7 * error < found.loc[name, "std. error"] < error
    # Differences of predictions are those of the table.
    ages = np.array([8.0, 14.0])
    girl, boy = (
        learner.adapt(side_info={"sex": sex}).predict(pd.DataFrame({"age": ages}))
        for sex in ("girl", "boy")
    )
    np.testing.assert_allclose(
        girl - boy, found.loc["(intercept)", "effect"] + ages * found.loc["age", "effect"]
    )


def test_units_of_numbers_next_to_categories():
    size = (CHILD * 7 % 5) * 20.0 + 100.0
    frame = FRAME.assign(size=size, distance=FRAME["distance"] + 0.2 * size)
    one = EmpiricalBayesLearner(varying=[]).fit(
        TaskSet.from_frame(frame, side_columns=["sex", "size"], **ROLES)
    )
    effects = side_effects(one)
    low, high = (
        one.adapt(side_info={"sex": "boy", "size": s}).predict(pd.DataFrame({"age": [8.0, 9.0]}))
        for s in (120.0, 130.0)
    )
    found = [
        effects.loc[("size", "(intercept)"), "effect"],
        effects["effect"].get(("size", "age"), 0.0),
    ]
    np.testing.assert_allclose((high - low) / 10.0, found[0] + found[1] * np.array([8.0, 9.0]))
    assert found[0] + 11 * found[1] == pytest.approx(0.2, abs=0.04)
    assert set(effects.index.get_level_values(0)) <= {"sex=girl", "size"}


def test_sentences(learner):
    text = " ".join(learner.summary().text)
    sentences = {
        "diagonal": "uncorrelated (at the centre of the features) random effects on every",
        "full": " correlated random effects on every coefficient",
    }
    assert sentences[learner.structure_.get("structure", "full")] in text
    assert "The model was selected by" in learner.summary().tables["errors"].caption
    plain = TaskSet.from_frame(FRAME.drop(columns="sex"), **ROLES)
    intercept = EmpiricalBayesLearner(varying=[], covariance="full").fit(plain).summary()
    methods = intercept.to_frame("errors")["method"].tolist()
    assert "mixed model" not in methods  # it is this learner
    assert intercept.text[0] == "Linear mixed model with a random intercept."
    assert "selected" not in intercept.tables["errors"].caption  # there was one candidate
    # Without a covariance, effects of the four ages could replace the intercept.
    options = {"varying": ["age"], "covariance": "full", "fit_intercept": False}
    with pytest.warns(UnhelpfulWarning, match="whether the model should have an intercept"):
        slope = EmpiricalBayesLearner(**options).fit(plain).summary().text[0]
    assert slope.startswith("Linear mixed model with a random effect on age")
    tasks = TaskSet.from_frame(FRAME, side_columns=["sex"], **ROLES)
    with_side = EmpiricalBayesLearner(varying=[], covariance="full").fit(tasks).summary()
    assert "in which effects of side information are shrunk, so lme4's" in with_side.further[0]


def test_messages_of_fit_and_tables():
    for learner in (EmpiricalBayesLearner, EmpiricalBayesClassifier):
        with pytest.raises(ValueError, match=r"requires y .*use fit\(X, task=\.\.\., target="):
            learner().fit(FRAME)
    with pytest.raises(
        ValueError, match=r"for proportions, pass two rows each, .* frequency_weight"
    ):
        EmpiricalBayesClassifier().fit(FRAME[["age"]], FRAME["distance"] / 40, groups=CHILD)
    holes = FRAME.assign(age=FRAME["age"].where(FRAME.index != 3))
    message = (
        "'c00', row 3, column 'age'. Drop those rows, .*missing='drop'.* impute .*missing='impute'"
    )
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(holes, side_columns=["sex"], **ROLES)
    for columns in (["age"], ["sex", "age"]):
        with pytest.raises(ValueError, match=message.replace("'c00', ", "")):
            EmpiricalBayesLearner().fit(holes[columns], FRAME["distance"], groups=CHILD)
    distance = FRAME["distance"]
    for learner, y in (
        (EmpiricalBayesLearner, distance),
        (EmpiricalBayesClassifier, distance > 24.0),
    ):
        with pytest.warns(SingleTaskWarning, match="groups is None, so all 108 rows are one task"):
            learner().fit(FRAME[["age", "sex"]], y)


def test_the_variance_between_tasks_does_not_depend_on_the_unit_of_the_weights():
    formula, found = "distance ~ age + (age | child)", []
    for weight in (1.0, 4.0):
        tasks = TaskSet.from_formula(formula, FRAME.assign(w=weight), sample_weight="w")
        found.append(
            EmpiricalBayesLearner().fit(tasks).summary().to_frame("noise")["standard deviation"]
        )
    np.testing.assert_allclose(found[1], found[0] * [2.0, 1.0], rtol=1e-4)


def test_rows_that_were_not_observed_are_dropped():
    n = np.arange(len(FRAME)) % 3
    tasks = TaskSet.from_frame(
        FRAME.assign(n=n), frequency_weight="n", side_columns=["sex"], **ROLES
    )
    kept = TaskSet.from_frame(
        FRAME.assign(n=n)[n > 0], frequency_weight="n", side_columns=["sex"], **ROLES
    )
    for name in ("X", "y", "offsets", "frequency_weight"):
        np.testing.assert_array_equal(getattr(tasks, name), getattr(kept, name))
    assert f"dropped: {(n == 0).sum()} rows with frequency_weight 0" in str(tasks.describe())
    assert "dropped: nothing" in str(kept.describe())
    empty = TaskSet(FRAME[["age"]], FRAME["distance"], CHILD, frequency_weight=(CHILD != 3) * 2)
    assert empty.sizes[3] == 0
    assert empty.sizes.sum() == 104


def test_correlation_of_random_effects_next_to_lme():
    """Of lme(distance ~ age, random = ~ age | Subject) in Pinheiro and Bates (2000)."""
    tasks = TaskSet.from_frame(FRAME.drop(columns="sex"), **ROLES)
    learner = EmpiricalBayesLearner(varying=["age"], covariance="full").fit(tasks)
    effects = learner.summary().to_frame().set_index("column")["random-effect std"]
    assert effects[["(intercept)", "age"]].to_list() == pytest.approx([2.3270, 0.2264], rel=0.01)
    correlations = learner.summary().to_frame("correlations").set_index("column")
    assert correlations.loc["age", "(intercept)"] == pytest.approx(-0.609, abs=0.01)
    np.testing.assert_array_equal(np.diagonal(correlations), 1.0)
