"""Formulas: columns, groups and fits as by hand, and refusals that say what to do instead."""

import sys

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize

import tailored
from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored.exceptions import UnknownCategoryWarning
from tailored.tasks.encoding import ColumnEncoding, Encoding
from tailored.tasks.formula import Formula, evaluate

N_GROUPS, SIZE = 12, 6


@pytest.fixture(scope="module")
def frame():
    """A table with the columns of the data sets in the documentation of lme4 and statsmodels."""
    rng, n = np.random.default_rng(5), N_GROUPS * SIZE
    group = np.repeat(np.arange(N_GROUPS), SIZE)
    table = pd.DataFrame(
        {"Subject": [f"s{i:02d}" for i in group], "Days": np.tile(np.arange(SIZE), N_GROUPS)}
    )
    table["ses"] = rng.normal(size=n) + rng.normal(size=N_GROUPS)[group]
    table["sector"] = np.where(group % 3 == 0, "Catholic", "Public")
    table["recipe"] = np.array(list("ABC"))[np.arange(n) % 3]
    table["Evit"] = table["E.vit"] = rng.choice([1, 2, 10], n)
    intercept, slope = 20.0 * rng.normal(size=N_GROUPS), 4.0 * rng.normal(size=N_GROUPS)
    noise = 5.0 * rng.normal(size=n)
    table["Reaction"] = (
        250.0 + 10.0 * table["Days"] + intercept[group] + slope[group] * table["Days"] + noise
    )
    return table.sample(frac=1.0, random_state=0, ignore_index=True)


def public(t):
    return (t["sector"] == "Public").astype(float)


def recipe(t, *names):
    return {f"recipe={name}": (t["recipe"] == name).astype(float) for name in names}


#: A formula, its columns by hand, the columns that vary, and other parameters of the learner.
BY_HAND = {
    # ?lmer, the sleep study
    "Reaction ~ Days + (Days | Subject)": (lambda t: {"Days": t["Days"]}, ["Days"], {}),
    "Reaction ~ Days + (Days || Subject)": (
        lambda t: {"Days": t["Days"]},
        ["Days"],
        {"covariance": "diagonal"},
    ),
    "Reaction ~ Days + (1 | Subject) + (0 + Days | Subject)": (
        lambda t: {"Days": t["Days"]},
        ["Days"],
        {"covariance": "diagonal"},
    ),
    # Dyestuff
    "Reaction ~ 1 + (1 | Subject)": (lambda t: {}, [], {}),
    # cake
    "Reaction ~ recipe * Days + (1 | Subject:sector)": (
        lambda t: {
            "recipe=B": recipe(t, "B")["recipe=B"],
            "recipe=C": recipe(t, "C")["recipe=C"],
            "Days": t["Days"],
            "recipe=B:Days": recipe(t, "B")["recipe=B"] * t["Days"],
            "recipe=C:Days": recipe(t, "C")["recipe=C"] * t["Days"],
        },
        [],
        {},
    ),
    # Hsb82 of mlmRev: a cross-level interaction
    "Reaction ~ ses * sector + (ses | Subject)": (
        lambda t: {
            "ses": t["ses"],
            "sector=Public": public(t),
            "ses:sector=Public": t["ses"] * public(t),
        },
        ["ses"],
        {},
    ),
    # lme4: no intercept
    "Reaction ~ 0 + recipe + (0 + recipe | Subject)": (
        lambda t: recipe(t, "A", "B", "C"),
        ["recipe=A", "recipe=B", "recipe=C"],
        {"fit_intercept": False},
    ),
    # statsmodels: mixedlm("Weight ~ Time", groups="Pig", re_formula="~Time"), with a category and a
    # curve
    "Reaction ~ Days * C(Evit) + (1 | Subject)": (
        lambda t: (
            {"Days": t["Days"]}
            | {f"Evit={k}": (t["Evit"] == k).astype(float) for k in (2, 10)}
            | {f"Days:Evit={k}": t["Days"] * (t["Evit"] == k) for k in (2, 10)}
        ),
        [],
        {},
    ),
    "Reaction ~ Days + I(Days**2) + (Days | Subject)": (
        lambda t: {"Days": t["Days"], "I(Days ** 2)": t["Days"] ** 2},
        ["Days"],
        {},
    ),
    "Reaction ~ np.log(Days + 1) * exp(-E.vit) + (1 | Subject)": (
        lambda t: {
            "np.log(Days + 1)": np.log1p(t["Days"]),
            "exp(-E.vit)": np.exp(-t["E.vit"]),
            "np.log(Days + 1):exp(-E.vit)": np.log1p(t["Days"]) * np.exp(-t["E.vit"]),
        },
        [],
        {},
    ),
    # R's operators: (a + b)^2, a / b and -
    "Reaction ~ (Days + ses + sector)**2 - Days:sector - sector + (Days + ses | Subject)": (
        lambda t: {
            "Days": t["Days"],
            "ses": t["ses"],
            "Days:ses": t["Days"] * t["ses"],
            "ses:sector=Public": t["ses"] * public(t),
        },
        ["Days", "ses"],
        {},
    ),
}


@pytest.fixture(scope="module")
def fitted(frame, short_fits_in_module):
    return EmpiricalBayesLearner().fit(
        TaskSet.from_formula("Reaction ~ Days * recipe + (Days | Subject)", frame)
    )


@pytest.mark.parametrize("formula", BY_HAND)
def test_columns_groups_and_fit_are_those_by_hand(formula, frame, short_fits_in_module):
    columns, varying, options = BY_HAND[formula]
    groups = frame["Subject"].tolist()
    if ":sector)" in formula:
        groups = list(zip(groups, frame["sector"], strict=True))
    values = pd.DataFrame(columns(frame), index=frame.index).astype(float)
    by_hand, tasks = (
        TaskSet(values, frame["Reaction"], groups),
        TaskSet.from_formula(formula, frame),
    )
    assert list(tasks.feature_names) == list(values.columns)
    assert tasks.labels.tolist() == by_hand.labels.tolist()
    np.testing.assert_allclose(tasks.X, by_hand.X, rtol=1e-14)
    np.testing.assert_array_equal(tasks.y, by_hand.y)
    has_intercept = options.get("fit_intercept", True)
    learner = EmpiricalBayesLearner(fit_intercept=has_intercept).fit(tasks)
    options = {"covariance": "full", "varying": varying} | options
    other = EmpiricalBayesLearner(**options).fit(by_hand)
    assert learner.structure_ == other.structure_
    np.testing.assert_allclose(learner.task_weights_, other.task_weights_, rtol=1e-6, atol=1e-8)
    assert f"Formula: {formula}." in learner.summary().text
    assert "selected on the same tasks" not in learner.summary().tables["errors"].caption


def test_slopes_without_a_random_intercept(frame):
    """The intercept does not vary where Days is zero, and the variances are those of the restricted
    likelihood.
    """
    tasks = TaskSet.from_formula("Reaction ~ Days + (0 + Days | Subject)", frame)
    learner = EmpiricalBayesLearner().fit(tasks)
    X = np.column_stack([np.ones(len(tasks.y)), tasks.X])

    def minus_likelihood(logs):
        slope, noise = np.exp(logs)
        V = noise * np.eye(len(X))
        for start, stop in zip(tasks.offsets[:-1], tasks.offsets[1:], strict=True):
            V[start:stop, start:stop] += slope * np.outer(X[start:stop, 1], X[start:stop, 1])
        inverse = np.linalg.inv(V)
        information = X.T @ inverse @ X
        rest = tasks.y - X @ np.linalg.solve(information, X.T @ inverse @ tasks.y)
        return rest @ inverse @ rest + np.linalg.slogdet(V)[1] + np.linalg.slogdet(information)[1]

    slope, noise = np.exp(
        minimize(minus_likelihood, [2.0, 5.0], method="Nelder-Mead", options={"xatol": 1e-6}).x
    )
    summary = learner.summary()
    effects, noises = summary.to_frame("effects").set_index("column"), summary.to_frame("noise")
    np.testing.assert_allclose(
        effects["random-effect std"][["Days", "(intercept)"]], [np.sqrt(slope), 0.0], rtol=1e-3
    )
    np.testing.assert_allclose(noises["standard deviation"][0], np.sqrt(noise), rtol=1e-3)


def test_learners_read_new_tables_with_the_formula(fitted, frame, tmp_path):
    new = frame.head(4)[["Subject", "recipe", "Days"]]
    expected = fitted.predict(
        fitted.encoding_.encode_features(nw.from_native(new)), groups=new["Subject"]
    )
    np.testing.assert_allclose(fitted.predict(new, groups=new["Subject"]), expected)
    np.testing.assert_allclose(
        fitted.predict_tasks(pl.from_pandas(new))["prediction"].to_numpy(), expected
    )
    support = frame.tail(3).assign(Subject="new")
    np.testing.assert_allclose(
        fitted.predict_tasks(support, support)["prediction"],
        fitted.adapt(support, support["Reaction"]).predict(support),
    )
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(
        tailored.load(tmp_path / "model").predict(new, groups=new["Subject"]), expected
    )
    assert (
        TaskSet.from_frame(
            frame, task="Subject", target="Reaction", encoding=fitted.encoding_
        ).n_features
        == 5
    )


def test_a_saved_formula_is_read_without_formulaic(fitted, frame, monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic", None)
    assert fitted.adapt().predict(frame.head(2)).shape == (2,)
    with pytest.raises(ImportError, match=r"formulaic is not installed. .*\[formula\]"):
        TaskSet.from_formula("Reaction ~ Days + (Days | Subject)", frame)


def test_unknown_categories_are_replaced_by_means(fitted, frame):
    share = (frame["recipe"] == "B").mean()
    with pytest.warns(UnknownCategoryWarning, match="'Z' did not appear in training"):
        rows = fitted.encoding_.encode_features(
            nw.from_native(frame.head(1).assign(recipe="Z", Days=2))
        )
    np.testing.assert_allclose(rows[0, [0, 1, 3]], [2.0, share, 2.0 * share])


def test_roles_of_other_columns(frame):
    some = frame.assign(w=1.5).replace({"Days": {3: np.nan}})
    with pytest.raises(
        ValueError,
        match=rf"\({N_GROUPS} such rows in all\). Drop those rows, for example with "
        r"missing='drop'",
    ):
        TaskSet.from_formula("Reaction ~ Days + I(Days**2) + (1 | Subject)", some)
    tasks = TaskSet.from_formula(
        "Reaction ~ Days + (1 | Subject)",
        some,
        side_columns=["sector"],
        sample_weight="w",
        missing="drop",
    )
    assert tasks.side_names == ["sector"]
    assert tasks.encoding.dropped == (("no 'Days'", N_GROUPS),)
    np.testing.assert_array_equal(tasks.sample_weight, np.full(len(tasks.y), 1.5))
    assert "constant within every task" not in str(
        TaskSet.from_formula("ses ~ sector + (1 | Subject)", frame).describe()
    )


def test_many_categories_are_fixed_effects_and_classes_are_targets(short_fits_in_module):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"g": np.arange(300) % 10, "item": [f"i{j % 23:02d}" for j in range(300)]})
    table["bought"] = np.where(rng.random(300) < 0.4, "yes", "no")
    tasks = TaskSet.from_formula("bought ~ item + (1 | g)", table)
    assert tasks.n_features == 22
    learner = EmpiricalBayesClassifier().fit(TaskSet.from_formula("bought ~ 1 + (1 | g)", table))
    assert learner.structure_["varying"] == (0,)


def test_the_formula_gives_way_to_varying(fitted, frame, short_fits_in_module):
    tasks = TaskSet.from_formula("Reaction ~ Days * recipe + (Days | Subject)", frame)
    assert fitted.structure_["varying"] == (0, 5)
    assert EmpiricalBayesLearner(varying=["Days:recipe=B"]).fit(tasks).structure_["varying"] == (
        3,
        5,
    )
    message = "fit_intercept: the formula has an intercept; pass fit_intercept=True"
    with pytest.raises(ValueError, match=message):
        EmpiricalBayesLearner(fit_intercept=False).fit(tasks)


@pytest.mark.parametrize(
    ("formula", "message"),
    {
        "Reaction ~ Days": r"must be in parentheses, as in \(1 \| g\)",
        "Reaction ~ Days | Subject": "must be in parentheses",
        "Reaction ~ Days * (1 | Subject)": r"must be added with \+",
        "Reaction ~ Days + (1 | sector/Subject)": r"Write sector \+ \(1 \| sector:Subject\)",
        "Reaction ~ Days + (1 | Subject) + (1 | recipe)": r"more than one group.*from_frame\(\.\.\., task='Subject'\)",
        "Reaction ~ Days + (Days | Subject) + (0 + ses | Subject)": r"one term \(x \| Subject\)",
        "Reaction ~ offset(log(Days)) + (1 | Subject)": "pass exposure= instead of an offset",
        "Reaction ~ poly(Days, 2) + (1 | Subject)": r"'poly\(Days, 2\)' is not supported.*Make anything else a column",
        "Reaction ~ I(Days^2) + (1 | Subject)": r"'Days \^ 2' is not supported.*I\(x\*\*2\) for powers",
        "Reaction ~ factor(Days) + (1 | Subject)": r"Write C\(x\) for categories",
        "Reaction ~ __import__('os') + (1 | Subject)": "is not supported",
        "Reaction ~ np.log(recipe) + (1 | Subject)": "'recipe' is not supported. Allowed are numeric columns",
        "Reaction ~ np.log(Days) + (1 | Subject)": r"np.log\(Days\) is not a finite number in row \d+",
        "Reaction ~ Evit + C(Evit) + (1 | Subject)": r"with and without C\(\): 'Evit'",
        "Reaction ~ 3:Days + (1 | Subject)": "'3:Days' contains a number",
        "Reaction ~ Days + + * ses + (1 | Subject)": "it cannot be read .Operator",
        "Reaction ~ as.factor(Days) + (1 | Subject)": r"it cannot be read .*Write C\(x\) for categories",
        "Reaction ~ log(`a b`) + (1 | Subject)": r"'log\(`a b`\)' cannot be read. Make it a column",
        "Reaction ~ 0 + Days + (1 | Subject)": "a random intercept needs a fixed one",
        "Reaction ~ 1 + (Days | Subject)": "the fixed effects lack columns that vary: 'Days'",
        "Reaction ~ recipe + (0 + recipe | Subject)": "lack columns that vary: 'recipe=A'",
        "Reaction ~ Days + (0 | Subject)": r"or \(1 \| Subject\)",
        "log(Reaction) ~ Days + (1 | Subject)": r"'log\(Reaction\)' is not a column",
        "cbind(Days, ses) ~ (1 | Subject)": "use two rows with frequency_weight",
        "Reaction ~ Hours + (1 | Subject)": "formula: the frame has no column 'Hours'",
        "Days ~ ses ~ recipe": "expected a string such as",
    }.items(),
)
def test_refusals_say_what_to_do(formula, message, frame):
    with pytest.raises(ValueError, match=message) as error:
        TaskSet.from_formula(formula, frame)
    assert str(error.value).startswith("formula: ")


@pytest.mark.parametrize(
    "factor",
    ["__import__('os').getcwd()", "x.__class__", "(lambda: 1)()", "[1][0]", "x if x else 1"],
)
def test_a_factor_of_a_file_executes_no_code(factor):
    with pytest.raises(ValueError, match=r"is not supported. Allowed are numeric columns"):
        evaluate(factor, {"x": np.ones(1)})
    formula = Formula("y ~ x + (1 | g)", ((factor,),), (), "full", True, True)
    with pytest.raises(ValueError, match=r"is not supported. Allowed are numeric columns"):
        Encoding("g", "y", (ColumnEncoding("x"),), formula=formula).design(np.ones((1, 1)))


def test_powers_of_numbers_are_computed_as_floats():
    assert evaluate("9**9**9**9 + 2", {}) == np.inf
