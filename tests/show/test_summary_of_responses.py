"""Summaries and effects of binary targets and counts, compared with lme4 and glmmTMB."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet

# Without curves, as the other software.
pytestmark = pytest.mark.usefixtures("no_curves_in_module")

T, N = 150, 8
#: glmer(b ~ x + (1 | g), nAGQ = 25), the same of counts with offset(log(e)), and glmmTMB(family =
#: nbinom2): estimates and standard errors of the slope and the intercept, random-effect std, and
#: dispersion.
EXPECTED = {
    "bernoulli": ((0.7710860, -0.4009472), (0.08075086, 0.10598408), 0.99478, None),
    "poisson": ((0.8216510, -0.4096133), (0.02160778, 0.09371520), 1.0735, None),
    "negative_binomial": ((0.8062684, -0.3188438), (0.03668480, 0.09290931), 1.0276, 0.4013175),
}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    g, x = np.repeat(np.arange(T), N), rng.normal(size=T * N).round(3)
    u, e = rng.normal(0.0, 1.0, T)[g], rng.uniform(0.5, 3.0, T * N).round(2)
    f = -0.4 + 0.8 * x + u
    return pd.DataFrame(
        {
            "g": g, "x": x, "e": e,
            "bernoulli": np.where(rng.random(T * N) < expit(f), "yes", "no"),
            "poisson": rng.poisson(e * np.exp(f)),
            "negative_binomial": rng.poisson(e * np.exp(f) * rng.gamma(2.0, 0.5, T * N)),
        }
    )  # fmt: skip


@pytest.fixture(scope="module", params=EXPECTED)
def fitted(request, frame):
    is_binary = request.param == "bernoulli"
    columns = {
        "task": "g",
        "target": request.param,
        "features": ["x"],
        "exposure": None if is_binary else "e",
    }
    tasks = TaskSet.from_frame(frame, **columns)
    learner = EmpiricalBayesClassifier if is_binary else EmpiricalBayesLearner
    options = {"varying": []} | ({} if is_binary else {"loss": request.param})
    return request.param, tasks, learner(**options).fit(tasks)


def test_estimates_are_those_of_other_software(fitted):
    name, _, learner = fitted
    effects, errors, std, dispersion = EXPECTED[name]
    summary = learner.summary()
    table = summary.tables["effects"].columns
    assert "std. error: observed information of all parameters" in summary.tables["effects"].caption
    np.testing.assert_allclose(table["fixed effect"], effects, atol=0.01)
    np.testing.assert_allclose(table["std. error"], errors, rtol=0.06)
    np.testing.assert_allclose(table["random-effect std"], [0.0, std], rtol=0.015)
    ratio = "odds ratio" if name == "bernoulli" else "rate ratio"
    ratios = summary.tables["ratios"].columns
    for column, sign in ((ratio, 0.0), ("lower", -1.0), ("upper", 1.0)):
        np.testing.assert_allclose(
            ratios[column], np.exp(np.array(effects) + sign * 1.96 * np.array(errors)), rtol=0.02
        )
    noise = summary.tables["noise"].columns
    assert noise["source"] == ["dispersion"] * (dispersion is not None) + ["between tasks"]
    # Only the intercept varies, so its standard deviation is that of the linear predictor.
    np.testing.assert_allclose(list(noise.values())[1][-1], std, rtol=0.015)
    if dispersion is not None:
        np.testing.assert_allclose(noise["value"][0], dispersion, rtol=0.02)


@pytest.mark.filterwarnings("ignore:fit. constant in all rows")
def test_a_constant_column_does_not_change_the_standard_errors(frame):
    rows, errors = frame[frame["g"] < 20].assign(one=1.0), []
    for features in (["x"], ["x", "one"]):
        tasks = TaskSet.from_frame(rows, task="g", target="bernoulli", features=features)
        learner = EmpiricalBayesClassifier(varying=[]).fit(tasks)
        errors.append(learner.summary().tables["effects"].columns["std. error"])
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-6)


def test_sentences_name_the_model_and_the_scale(fitted):
    name, _, learner = fitted
    text, scale = (
        str(learner.summary(details=True)),
        "log odds" if name == "bernoulli" else "log rates",
    )
    assert text.startswith(type(learner).__name__)
    assert f"Largest effects ({scale}), per standard deviation of the column: x +0." in " ".join(
        text.split()
    )
    kind = {
        "bernoulli": "Logistic",
        "poisson": "Poisson",
        "negative_binomial": "Negative binomial",
    }[name]
    assert f"{kind} mixed model" in text
    assert f"All coefficients are {scale}." in text
    assert ("Predictions are probabilities of 'yes'." in text) == (name == "bernoulli")
    assert "noise" not in text
    # The standard errors agree with glmer and glmmTMB because the variances are estimated, too.
    assert "std. error: observed information of all parameters (generalised" in " ".join(
        text.split()
    )


def test_effects_are_posterior_means_of_the_coefficients(fitted, frame):
    name, tasks, learner = fitted
    table = learner.summary().tables["effects"].columns
    (slope, b), (_, error), std = (
        table["fixed effect"],
        table["std. error"],
        table["random-effect std"][1],
    )
    found = learner.effects(tasks[:5])
    found = found[found["column"] == "(intercept)"]
    u = np.linspace(-6.0, 6.0, 4001) * std
    for t, effect, deviation in zip(range(5), found["effect"], found["std"], strict=True):
        rows = frame[frame["g"] == t]
        f = b + slope * rows["x"].to_numpy()[:, None] + u
        if name == "bernoulli":
            sign = np.where(rows["bernoulli"] == "yes", 1.0, -1.0)[:, None]
            density = -np.logaddexp(0.0, -sign * f).sum(axis=0)
        else:
            y, mean = rows[name].to_numpy()[:, None], rows["e"].to_numpy()[:, None] * np.exp(f)
            density = (y * np.log(mean) - mean).sum(axis=0)
            if name == "negative_binomial":
                r = 1.0 / learner.summary().tables["noise"].columns["value"][0]
                density = (y * np.log(mean) - (y + r) * np.log(r + mean)).sum(axis=0)
        density = np.exp(density - density.max() - 0.5 * (u / std) ** 2)
        density /= density.sum()
        mean = density @ u
        variance = density @ u**2 - mean**2
        np.testing.assert_allclose(effect, b + mean, atol=2e-3)
        # The error of the prior mean counts as far as the rows do not determine the coefficient.
        np.testing.assert_allclose(
            deviation, np.sqrt(variance + (variance / std**2 * error) ** 2), rtol=0.02
        )


def test_standard_errors_with_side_information_are_those_with_a_column():
    """Events are rare, so the mean and the variance of the intercepts are estimated with correlated
    errors.
    """
    rng = np.random.default_rng(0)
    z, u = rng.integers(0, 2, 300), rng.normal(0.0, 2.0, 300)
    events = rng.random((300, 4)) < expit(-3.0 + z + u)[:, None]
    rows = pd.DataFrame({"g": np.repeat(np.arange(300), 4), "z": np.repeat(z - z.mean(), 4)})
    rows["y"] = events.ravel().astype(int)
    found = []
    for columns in ({"features": ["z"]}, {"features": [], "side_columns": ["z"]}):
        tasks = TaskSet.from_frame(rows, task="g", target="y", **columns)
        summary = EmpiricalBayesClassifier(varying=[]).fit(tasks).summary()
        found.append(summary.tables["effects"].columns["std. error"][-1])
    assert "side_effects" in summary.tables
    np.testing.assert_allclose(found[1], found[0], rtol=0.05)


def test_ratios_that_overflow_are_empty(frame):
    """With x - 870, the intercept is near 700, the logarithm of the largest number, and its std.
    error near 30.
    """
    learner = EmpiricalBayesLearner(varying=[], loss="poisson")
    summary = learner.fit(frame[["x"]] - 870.0, frame["poisson"], groups=frame["g"]).summary()
    table, ratios = summary.tables["effects"].columns, summary.tables["ratios"]
    assert np.isnan(ratios.columns["upper"][-1])
    lower = np.exp(table["fixed effect"][-1] - 1.959964 * table["std. error"][-1])
    np.testing.assert_allclose(ratios.columns["lower"][-1], lower, rtol=1e-4)
    assert "inf" not in str(ratios)
    assert "Empty: too large for a number" in ratios.caption


def test_ratios_of_columns_in_large_units(frame):
    """Those of a unit near the standard deviation: the ratio of 1 would be printed as 1."""
    incomes = frame[["x"]].assign(income=3e4 * frame["e"])
    learner = EmpiricalBayesLearner(varying=[], loss="poisson")
    summary = learner.fit(incomes, frame["poisson"], groups=frame["g"]).summary()
    effect, ratios = summary.to_frame()["fixed effect"], summary.to_frame("ratios")
    assert ratios["unit"].tolist() == [1.0, 1e4, 1.0]
    np.testing.assert_allclose(ratios["rate ratio"], np.exp(effect * [1.0, 1e4, 1.0]))
    assert ratios["rate ratio"][1] > 1.1
    assert "rate ratio: exp(fixed effect times unit)" in summary.tables["ratios"].caption


def test_integer_classes_of_a_table_are_integers(frame, few_steps):
    table = frame[["g", "x"]].assign(y=(frame["bernoulli"] == "yes").astype(int))
    learner = EmpiricalBayesClassifier(varying=[]).fit(
        TaskSet.from_frame(table, task="g", target="y")
    )
    assert learner.summary().verdict[1] == "Predictions are probabilities of 1."
    assert learner.classes_.tolist() == [0, 1]
    assert learner.classes_.dtype.kind == "i"
