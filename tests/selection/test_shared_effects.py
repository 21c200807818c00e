"""Effects that all tasks share: curves, products and columns of many categories."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import tailored
from folds import few_folds
from studies.rivals.base import RidgePerTask
from tailored import ConditionalLearner, EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored.gaussian.responses import NegativeBinomial, Poisson
from tailored.paper import ProjectedSGD
from tailored.priors.shared import SharedEffects
from tailored.selection.steps import noise
from tailored.show.displays import effects_of

#: No side information.
NONE = np.zeros((0, 0))
ROLES = {"task": "school", "target": "y", "features": ["x", "item"]}


def table(n_tasks=40, n_rows=15, curve=1.0, seed=0, n_items=25):
    """Random intercepts and slopes, a quadratic curve, and an effect of each item."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(n_tasks), n_rows)
    x, item = rng.uniform(-2, 2, len(school)), rng.integers(0, n_items, len(school))
    effects = np.linspace(-2.0, 2.0, n_items)
    own = rng.normal(size=(n_tasks, 2)) * [1.0, 0.3]
    f = own[school, 0] + own[school, 1] * x + 0.5 * x + curve * x**2 + effects[item]
    y = f + 0.5 * rng.normal(size=len(x))
    frame = pd.DataFrame({"school": school, "x": x, "item": [f"i{i:02d}" for i in item], "y": y})
    return frame.assign(f=f), effects


@pytest.fixture(scope="module")
def fitted():
    return EmpiricalBayesLearner().fit(TaskSet.from_frame(table()[0], **ROLES))


def test_effects_are_found(fitted):
    shared = fitted.prior_.shared
    kinds = [type(effect).__name__ for effect in shared.effects]
    assert kinds == ["SharedLevels", "SharedCurve"]
    truth = table()[1]
    levels = shared.levels[0].effects
    assert np.abs(levels - levels.mean() - truth).max() < 0.5
    assert np.sqrt(shared.levels[0].variance) == pytest.approx(truth.std(), rel=0.35)
    new = table(seed=1)[0]
    new["school"] += 1000
    support = new.groupby("school").head(5)
    query = new.drop(support.index)
    predicted = fitted.predict_tasks(query, support=support)
    assert np.sqrt(np.mean((predicted["prediction"].to_numpy() - query["f"].to_numpy()) ** 2)) < 0.4
    linear = EmpiricalBayesLearner(covariance="full").fit(TaskSet.from_frame(table()[0], **ROLES))
    assert [type(effect).__name__ for effect in linear.prior_.shared.effects] == ["SharedLevels"]
    text = " ".join(str(fitted.summary()).split())
    assert "a curve of x" in text
    assert "25 values of item (std " in text
    # An effect of a value is not a coefficient, but figures keep the positions of the columns.
    support = TaskSet.from_frame(support.drop(columns="f"), encoding=fitted.encoding_, **ROLES)
    coefficients = fitted.effects(support)
    assert coefficients["column"].unique().tolist() == ["x", "(intercept)"]
    drawn = effects_of(fitted, support)[0]
    np.testing.assert_array_equal(drawn[:, [0, 2]].ravel(), coefficients["effect"])
    # The table has the differences between predictions of rows that differ in their item alone.
    effects = fitted.summary().to_frame("levels")
    assert effects["column"].unique().tolist() == ["item"]
    rows = new.head(1).loc[[new.index[0]] * len(effects)].assign(item=effects["value"].to_numpy())
    predicted = fitted.predict_tasks(rows)["prediction"].to_numpy()
    np.testing.assert_allclose(np.diff(effects["effect"]), np.diff(predicted), rtol=1e-9)
    assert (np.abs(effects["effect"] - levels) == 0).all()
    assert ((effects["std. error"] > 0) & (effects["std. error"] < truth.std())).all()


def dense_covariance(frame, learner):
    """Return V of all rows under the fitted variances: random intercepts, effects of items, and
    noise.
    """
    summary = learner.summary()
    own = summary.to_frame("effects").set_index("column")["random-effect std"]["(intercept)"]
    noise = summary.to_frame("noise").set_index("source")["standard deviation"]["noise"]
    same = {name: np.equal.outer(*[frame[name].to_numpy()] * 2) for name in ("school", "item")}
    variance = learner.prior_.shared.levels[0].variance
    return own**2 * same["school"] + variance * same["item"] + noise**2 * np.eye(len(frame))


@pytest.mark.parametrize("nested", [False, True])
def test_fixed_effects_and_their_standard_errors_with_categories(nested):
    """Against generalised least squares with one covariance matrix of all rows."""
    frame = table(curve=0.0, n_tasks=75)[0]
    rng = np.random.default_rng(5)
    if nested:
        frame["item"] = [f"i{school // 3:02d}" for school in frame["school"]]
    items = dict(zip(sorted(set(frame["item"])), rng.normal(size=25), strict=True))
    own = rng.normal(size=75)[frame["school"]]
    if not nested:
        frame["x"] += 2.0 * own  # the slope of pooled rows is far from that within schools
    frame["y"] = frame["item"].map(items) + own - 0.5 * frame["x"] + rng.normal(size=len(frame))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the item is constant within tasks
        learner = EmpiricalBayesLearner(varying=[], covariance="full").fit(
            TaskSet.from_frame(frame, **ROLES)
        )
    X = np.column_stack([frame["x"], np.ones(len(frame))])
    inverse = np.linalg.inv(dense_covariance(frame, learner))
    covariance = np.linalg.inv(X.T @ inverse @ X)
    expected = np.sqrt(np.diag(covariance))
    effects = learner.summary().to_frame("effects").set_index("column")
    difference = (
        effects.loc[["x", "(intercept)"], "fixed effect"] - covariance @ X.T @ inverse @ frame["y"]
    )
    assert (np.abs(difference) < 0.05 * expected).all()
    np.testing.assert_allclose(effects.loc[["x", "(intercept)"], "std. error"], expected, rtol=0.03)
    # lme4: 0.598 for the crossed items (ML).
    std = effects["random-effect std"]["(intercept)"]
    assert std == pytest.approx(1.0, abs=0.2) if nested else std == pytest.approx(0.598, rel=0.05)


def test_the_noise_is_not_lowered_by_many_effects_of_categories():
    found = []
    for seed in range(3):
        frame = table(n_tasks=30, n_rows=10, curve=0.0, seed=seed, n_items=100)[0]
        learner = EmpiricalBayesLearner(covariance="full").fit(TaskSet.from_frame(frame, **ROLES))
        noise = learner.summary().to_frame("noise").set_index("source")["standard deviation"]
        found.append(noise["noise"])
    assert np.mean(found) == pytest.approx(0.5, rel=0.06)


def test_the_dispersion_is_not_explained_by_many_effects_of_categories():
    """100 categories of about 5 rows each, and counts with mean m and variance m + 0.3 m²."""
    groups, std, found = np.repeat(np.arange(60), 8), 0.3, []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        items, x = rng.integers(100, size=480), rng.normal(size=480)
        rates = np.exp(3.0 + rng.normal(0.0, 0.4, 60)[groups] + rng.normal(0.0, std, 100)[items])
        y = rng.poisson(rates * rng.gamma(1 / 0.3, 0.3, 480))
        frame = pd.DataFrame({"group": groups, "item": [f"i{i}" for i in items], "x": x, "y": y})
        learner = few_folds(loss="poisson", varying=[])
        prior = learner.fit(TaskSet.from_frame(frame, task="group", target="y")).prior_
        assert prior.response.has_dispersion
        found.append([prior.mixture.noise, np.sqrt(prior.shared.levels[0].variance)])
    dispersion, deviation = np.mean(found, axis=0)
    assert dispersion == pytest.approx(0.3, rel=0.1)  # the standard error of the mean is 4 %
    assert deviation == pytest.approx(std, abs=0.07)


@pytest.mark.parametrize(
    ("response", "tolerance"), [(Poisson(), 5e-3), (NegativeBinomial(), 0.015)]
)
def test_effects_of_categories_do_not_bias_means_of_counts(response, tolerance, monkeypatch):
    """The log-likelihood of a Poisson model with an intercept is largest where the means add up to
    the counts.
    """

    # The dispersion is given.
    monkeypatch.setattr(noise, "significant", lambda _: response.has_dispersion)
    rng = np.random.default_rng(0)
    groups, items = np.repeat(np.arange(40), 8), rng.integers(60, size=320)
    rates = np.exp(0.5 + rng.normal(0.0, 0.4, 40)[groups] + rng.normal(0.0, 0.5, 60)[items])
    frame = pd.DataFrame(
        {"group": groups, "item": [f"i{i}" for i in items], "x": rng.normal(size=320)}
    )
    counted = frame.assign(y=rng.poisson(rates))
    learner = few_folds(loss="poisson", varying=[])
    learner.fit(TaskSet.from_frame(counted, task="group", target="y"))
    found = learner.predict_tasks(frame, support=counted)["prediction"]
    assert np.mean(found) == pytest.approx(counted["y"].mean(), rel=tolerance)


@pytest.mark.parametrize(
    ("options", "formula", "has_curve"),
    [
        ({}, None, True),
        ({"varying": []}, None, True),
        ({"covariance": "full"}, None, False),
        ({"covariance": "diagonal", "varying": ["x"]}, None, False),
        ({}, "y ~ x + (1 | school)", False),
        ({"varying": ["x"]}, "y ~ x + (1 | school)", False),
    ],
)
def test_a_formula_or_a_covariance_turns_curves_off(options, formula, has_curve, few_steps):
    frame = table()[0].drop(columns=["item", "f"])
    tasks = TaskSet.from_frame(frame, task="school", target="y")
    tasks = tasks if formula is None else TaskSet.from_formula(formula, frame)
    learner = EmpiricalBayesLearner(**options).fit(tasks)
    assert (learner.prior_.shared is not None) == has_curve


def test_straight_lines_have_no_curve():
    """A proposal has to be better by its evidence, and not to be worse on held-out tasks: few of
    noise pass, and these are small.
    """
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, task = rng.normal(size=(600, 3)), np.repeat(np.arange(40), 15)
        y = X @ [1.0, -1.0, 0.5] + rng.normal(size=40)[task] + rng.normal(size=600)
        shared = few_folds(5).fit(X, y, groups=task).prior_.shared
        found += [] if shared is None else [shared.predict(X, NONE).std()]
    assert len(found) <= 2
    assert max(found, default=0.0) < 0.15


@pytest.mark.parametrize(("curve", "found"), [(1.0, True), (0.0, False)])
def test_a_clear_curve_is_found_with_few_tasks(curve, found):
    frame = table(n_tasks=8, n_rows=8, curve=curve, seed=6)[0]
    shared = (
        EmpiricalBayesLearner().fit(frame[["x"]], frame["f"], groups=frame["school"]).prior_.shared
    )
    assert (shared is not None) == found


def test_a_product_is_found():
    rng = np.random.default_rng(4)
    X, task = rng.normal(size=(600, 2)), np.repeat(np.arange(40), 15)
    y = X.sum(axis=1) + X.prod(axis=1) + rng.normal(size=40)[task] + rng.normal(size=600)
    learner = EmpiricalBayesLearner().fit(X, y, groups=task)
    shared = learner.prior_.shared
    assert [effect.columns for effect in shared.effects] == [(0, 1)]
    assert shared.effects[0].coef == pytest.approx(1.0, abs=0.15)
    found = re.search(
        r"the product of x0 and x1 \(centred, coefficient (.*)\)\.",
        " ".join(learner.summary().text),
    )
    assert float(found[1]) == pytest.approx(shared.effects[0].coef, abs=0.01)


def growth(loss="squared", seed=3):
    """Repeated measures at three ages; the curve of the treated falls later than that of the
    others.
    """
    rng = np.random.default_rng(seed)
    child = np.repeat(np.arange(120), 3)
    age, treated = np.tile([1.0, 1.5, 2.0], 120), child % 2
    f = np.where(treated, [11.0, 10.5, 9.0] * 120, [11.0, 9.0, 8.0] * 120)
    f = f + 0.7 * rng.normal(size=120)[child]
    y = rng.poisson(np.exp(f - 8.0)) if loss == "poisson" else f + 0.4 * rng.normal(size=len(f))
    return pd.DataFrame(
        {"child": child, "age": age, "treated": np.where(treated, "yes", "no"), "y": y}
    )


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_curves_that_differ_by_side_information(loss, tmp_path):
    roles = {"task": "child", "target": "y", "side_columns": ["treated"]}
    learner = few_folds(loss=loss).fit(TaskSet.from_frame(growth(loss), **roles))
    effects = learner.prior_.shared.effects
    assert any(effect.by >= 0 for effect in effects)
    assert "a curve of age that differs by treated" in " ".join(str(learner.summary()).split())
    # Differences between the means of the treated and of the others, at each age.
    ages = pd.DataFrame({"age": [1.0, 1.5, 2.0]})
    yes, no = (learner.adapt(side_info=[value]).predict(ages) for value in ("yes", "no"))
    difference = np.log(yes / no) if loss == "poisson" else yes - no
    np.testing.assert_allclose(difference, [0.0, 1.5, 1.0], atol=0.35)
    # Rows of one task give the same model at once, in two steps, and from a file.
    one = growth(loss).head(3)
    adapted = learner.adapt(one[["age"]], one["y"], side_info=["no"])
    grown = learner.adapt(one[["age"]].head(1), one["y"].head(1), side_info=["no"])
    grown.update(one[["age"]].tail(2), one["y"].tail(2))
    np.testing.assert_allclose(grown.predict(ages), adapted.predict(ages), rtol=1e-6)
    learner.save(tmp_path / "model")
    many = tailored.load(tmp_path / "model").predict_tasks(growth(loss), support=growth(loss))
    np.testing.assert_allclose(many["prediction"][:3], adapted.predict(one[["age"]]), rtol=1e-9)


def test_new_values_have_wider_intervals_and_no_effect(fitted):
    given = table(seed=2)[0].head(6)
    adapted = fitted.adapt(given[["x", "item"]], given["y"])
    rows = given[["x", "item"]]
    with pytest.warns(tailored.exceptions.UnknownCategoryWarning, match="by an average category"):
        unknown = adapted.predict_interval(rows.assign(item="other"))
    known = adapted.predict_interval(rows)
    assert (np.diff(unknown) > 1.5 * np.diff(known)).all()
    with pytest.warns(tailored.exceptions.UnknownCategoryWarning):
        difference = adapted.predict(rows) - adapted.predict(rows.assign(item="other"))
    levels = fitted.prior_.shared.levels[0]
    names = list(fitted.encoding_.features[1].categories)
    np.testing.assert_allclose(difference, levels.effects[[names.index(i) for i in rows["item"]]])
    # Different new values have different effects: the six rows of a total share one error, or each
    # has its own.
    one, each = (
        rows.assign(school="new", item=item) for item in ("other", [f"other {i}" for i in range(6)])
    )
    with pytest.warns(tailored.exceptions.UnknownCategoryWarning):
        std = [fitted.predict_totals(query)["std"][0] for query in (one, each)]
    np.testing.assert_allclose(std[0] ** 2 - std[1] ** 2, (6 * 6 - 6) * levels.variance, rtol=1e-9)


def test_other_learners_get_indicators(fitted):
    tasks = TaskSet.from_frame(table()[0], **ROLES)
    assert tasks.X.shape[1] == 2
    learner = ConditionalLearner("mean", solver=ProjectedSGD(0.1), max_iter=2).fit(tasks)
    assert learner.n_features_in_ == 25
    assert RidgePerTask().fit(tasks).n_features_in_ == 25
    one = table()[0].head(15)
    assert np.isfinite(
        learner.adapt(one[["x", "item"]], one["y"]).predict(one[["x", "item"]])
    ).all()


@pytest.mark.parametrize("loss", ["bernoulli", "poisson"])
def test_classes_and_counts_have_them_too(loss, monkeypatch):
    monkeypatch.setattr(EmpiricalBayesLearner, "_n_folds", 2)
    frame, truth = table(n_tasks=60, n_rows=30, curve=0.5)
    f = frame["f"].to_numpy() - 1.0
    rng = np.random.default_rng(99)
    is_class = loss == "bernoulli"
    y = (
        rng.uniform(size=len(f)) < 1 / (1 + np.exp(-f))
        if is_class
        else rng.poisson(np.exp(0.5 * f))
    )
    frame = frame.assign(y=y)
    tasks = TaskSet.from_frame(frame, **ROLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = EmpiricalBayesClassifier() if is_class else EmpiricalBayesLearner(loss="poisson")
        learner.fit(tasks)
    prior = learner.learners_[0].prior_ if is_class else learner.prior_
    kinds = [type(effect).__name__ for effect in prior.shared.effects]
    assert kinds == ["SharedLevels", "SharedCurve"]
    levels = prior.shared.levels[0].effects
    slope = np.polyfit(truth, levels, 1)[0]
    assert slope == pytest.approx(1.0 if is_class else 0.5, rel=0.2)
    predicted = learner.predict_tasks(frame)
    expected = 1 / (1 + np.exp(-f)) if is_class else np.exp(0.5 * f)
    ours = predicted["probability" if is_class else "prediction"].to_numpy()
    assert np.corrcoef(ours, expected)[0, 1] > 0.9


# ---------------------------------------------------------------- effects of the values of numeric
# columns


def shocks(seed=0, n_groups=40, n_years=15, numbered=0):
    """A panel with a shock in each year, as large as the noise; return the frame and the shocks."""
    rng = np.random.default_rng(seed)
    year, group = (
        np.tile(np.arange(2000.0, 2000.0 + n_years), n_groups),
        np.repeat(np.arange(n_groups), n_years),
    )
    shock, x = np.random.default_rng(99).normal(size=n_years), rng.normal(size=len(year))
    y = (
        rng.normal(size=n_groups)[group]
        + 0.5 * x
        + np.tile(shock, n_groups)
        + rng.normal(size=len(year))
    )
    return pd.DataFrame({"group": group + numbered, "year": year, "x": x, "y": y}), shock


@pytest.fixture(scope="module")
def of_years():
    return EmpiricalBayesLearner().fit(TaskSet.from_frame(shocks()[0], task="group", target="y"))


def test_effects_of_years_are_recovered(of_years):
    (levels,), truth = of_years.prior_.shared.levels, shocks()[1]
    assert levels.column == 0
    np.testing.assert_array_equal(levels.values, np.arange(2000.0, 2015.0))
    year = np.arange(15.0)
    truth = truth - np.polyval(np.polyfit(year, truth, 1), year)  # a line is a fixed effect
    found = levels.effects - np.polyval(np.polyfit(year, levels.effects, 1), year)
    assert np.corrcoef(found, truth)[0, 1] > 0.95
    assert np.abs(found - truth).max() < 4.0 / np.sqrt(40.0)
    summary = of_years.summary()
    assert "effects of 15 values of year" in " ".join(str(summary).split())
    table = summary.to_frame("levels")
    assert table["column"].unique().tolist() == ["year"]
    np.testing.assert_array_equal(
        table[["value", "effect"]], np.column_stack([levels.values, levels.effects])
    )
    new = shocks(seed=1, numbered=1000)[0]
    support = new.groupby("group").head(5)
    query = new.drop(support.index)
    plain = EmpiricalBayesLearner(covariance="full").fit(
        TaskSet.from_frame(shocks()[0], task="group", target="y")
    )
    errors = [
        np.mean((one.predict_tasks(query, support)["prediction"] - query["y"]) ** 2)
        for one in (of_years, plain)
    ]
    assert errors[0] < 0.75 * errors[1]  # the noise is half of the variance within groups


def test_an_unseen_year_has_no_effect_and_an_error_that_groups_share(of_years):
    (levels,) = of_years.prior_.shared.levels
    between = np.array([[2007.5, 0.0], [2007.0, 0.0]])
    np.testing.assert_array_equal(levels(between, NONE), [0.0, levels.effects[7]])
    variances = SharedEffects((levels,)).error_variances(between)
    np.testing.assert_array_equal(variances, [levels.variance, levels.variances[7]])
    assert levels.variances.max() < 0.1 * levels.variance
    one = shocks()[0].head(5)
    adapted = of_years.adapt(one[["year", "x"]], one["y"])
    unseen, seen = np.diff(adapted.predict_interval(between))[:, 0]
    assert unseen > 1.2 * seen
    # Totals over 40 groups: all have the error of the same year, or each that of a year of its own.
    rows = pd.DataFrame({"group": [f"new {i}" for i in range(40)], "x": np.zeros(40)})
    same, own = (
        of_years.predict_totals(rows.assign(year=2007.5 + step * np.arange(40)))
        for step in (0.0, 1e-9)
    )
    difference = same["std"][0] ** 2 - own["std"][0] ** 2
    assert difference == pytest.approx((40**2 - 40) * levels.variance, rel=1e-6)
    assert same["std"][0] > 2.0 * own["std"][0]
