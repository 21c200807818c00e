"""`EmpiricalBayesLearner` for binary targets and counts: fit, adapt, predict, intervals, files and
errors.
"""

import numpy as np
import pyarrow
import pytest
import scipy.special
import scipy.stats

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet, scan
from tailored.gaussian.responses import RESPONSES, Predictors
from tailored.scale.base import Reservoir

pytestmark = pytest.mark.usefixtures("short_fits_in_module", "no_curves_in_module")


def tasks_of(name, T, n, seed=0):
    """Return tasks with random intercepts and slopes on the scale of the linear predictor."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(3.0, 2.0, size=(T * n, 1)), rng.normal([0.3, 0.2], [0.1, 0.8], size=(T, 2))
    f = ((X - 3.0) * np.repeat(w[:, :1], n, axis=0))[:, 0] + np.repeat(w[:, 1], n)
    if name == "bernoulli":
        y = rng.random(len(f)) < scipy.special.expit(f)
    else:
        y = rng.poisson(np.exp(f) * (1.0 if name == "poisson" else rng.gamma(2.0, 0.5, len(f))))
    return TaskSet.from_tasks(list(zip(np.split(X, T), np.split(y.astype(float), T), strict=True)))


@pytest.fixture(scope="module", params=RESPONSES)
def fitted(request, short_fits_in_module, no_curves_in_module):
    learner = EmpiricalBayesLearner(loss=RESPONSES[request.param]())
    return request.param, learner.fit(tasks_of(request.param, 60, 10))


def test_intervals_are_the_shortest_with_the_coverage(fitted):
    name, learner = fitted
    task = tasks_of(name, 1, 6, seed=5)
    model = learner.adapt(task.X, task.y)
    if name == "bernoulli":
        with pytest.raises(ValueError, match="probabilities, not intervals"):
            model.predict_interval(task.X)
        return
    response, noise = learner.loss_, learner.prior_.model.noise
    f, variance = np.array([0.0, 2.0, 4.0, 3.0]), np.array([0.5, 0.1, 0.01, 1.0])
    normals = Predictors(np.ones((4, 1)), f[:, None], variance[:, None])
    lower, upper = response.interval(normals, noise, 0.9)
    z, counts = np.linspace(-8.0, 8.0, 801), np.arange(1000)
    density = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for i in range(4):
        rates = np.exp(f[i] + np.sqrt(variance[i]) * z)[:, None]
        pmf = scipy.stats.poisson.pmf(counts, rates)
        if name == "negative_binomial":
            pmf = scipy.stats.nbinom.pmf(counts, 1.0 / noise, 1.0 / (1.0 + noise * rates))
        below = np.append(0.0, np.cumsum(density @ pmf))
        lengths = [np.searchsorted(below, below[a] + 0.9) - a for a in counts if below[a] <= 0.1]
        assert upper[i] - lower[i] + 1 == min(lengths)
        assert below[int(upper[i]) + 1] - below[int(lower[i])] >= 0.9 - 1e-6
    # Coverage of new rows, with counts at the ends included.
    test = tasks_of(name, 60, 10, seed=6)
    support, query = test.support_query(5, random_state=0)
    found = learner.predict_tasks(query, support=support)
    assert ((query.y >= found["lower"]) & (query.y <= found["upper"])).mean() > 0.85


def test_more_tasks_than_a_sample_are_fitted_together(monkeypatch):
    tasks = tasks_of("poisson", 90, 5)
    whole = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(tasks)
    monkeypatch.setattr(
        Reservoir.__init__, "__defaults__", (45, *Reservoir.__init__.__defaults__[1:])
    )
    sampled = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(tasks)
    assert sampled.training_summary_.n_tasks == 90
    # The sources of a scan do not keep all rows.
    table = pyarrow.table({"g": np.repeat(tasks.labels, 5), "y": tasks.y, "x": tasks.X[:, 0]})
    uneven = EmpiricalBayesLearner(varying=[]).fit(scan(table.slice(3), task="g", target="y"))
    assert uneven.training_summary_.n_rows == 447
    message = "X: the poisson loss was fitted to a random sample of 45 tasks"
    with pytest.warns(UserWarning, match=message):
        scanned = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(
            scan(table, task="g", target="y")
        )
    few = EmpiricalBayesLearner(loss="poisson", varying=[]).fit(
        TaskSet.from_frame(table, task="g", target="y")[tasks.index_of(scanned.task_labels_)]
    )
    np.testing.assert_allclose(scanned.prior_.model.covariances, few.prior_.model.covariances)
    query = tasks.replace(labels=tasks.labels + 1000)
    np.testing.assert_allclose(
        scanned.predict_tasks(query)["lower"], few.predict_tasks(query)["lower"]
    )
    np.testing.assert_allclose(
        sampled.prior_.model.covariances[0, 1, 1], whole.prior_.model.covariances[0, 1, 1], rtol=0.1
    )


def test_shared_effects_of_more_counts_than_a_sample_are_offsets(monkeypatch):
    monkeypatch.setattr(
        Reservoir.__init__, "__defaults__", (45, *Reservoir.__init__.__defaults__[1:])
    )
    rng, items = np.random.default_rng(0), np.tile(np.arange(30), 18)
    y = rng.poisson(np.exp(3.0 + rng.normal(0.0, 1.0, 30)[items]))
    table = pyarrow.table(
        {"g": np.repeat(np.arange(60), 9), "y": y, "item": [f"i{i}" for i in items]}
    )
    tasks = TaskSet.from_frame(table, task="g", target="y")
    learner = EmpiricalBayesLearner(loss="poisson").fit(tasks)
    assert learner.prior_.shared is not None
    assert learner.predict_tasks(tasks)["prediction"].mean() == pytest.approx(y.mean(), rel=0.02)


def test_side_information_shifts_the_linear_predictor():
    rng = np.random.default_rng(0)
    side = rng.normal(size=(80, 1))
    f = np.repeat(side[:, 0] + 0.3 * rng.normal(size=80), 8)
    tasks = tasks_of("poisson", 80, 8).replace(
        y=rng.poisson(np.exp(f)).astype(float), side_info=side
    )
    learner = EmpiricalBayesLearner(loss="poisson").fit(tasks)
    assert learner.side_structure_["columns"] == [0]
    low, high = (learner.adapt(side_info=[s]).predict([[3.0]])[0] for s in (-1.0, 1.0))
    assert high / low == pytest.approx(np.exp(2.0), rel=0.3)


def test_unsupported_combinations_are_errors():
    tasks = tasks_of("poisson", 6, 4)
    with pytest.raises(ValueError, match="device: must be None for the poisson loss"):
        EmpiricalBayesLearner(loss="poisson", device="cuda").fit(tasks)
    with pytest.raises(ValueError, match="y: the poisson loss needs counts"):
        EmpiricalBayesLearner(loss="poisson").fit(tasks.replace(y=tasks.y - 1.0))
    for bad in (-1.0, 0.5):
        table = pyarrow.table({"g": [1, 1, 2], "y": [1.0, bad, 0.0], "x": [2.0, 3.0, 1.0]})
        message = (
            f"counts 0, 1, 2, .. up to 1,000,000,000, but y contains {bad:g}. For .* exposure="
        )
        with pytest.raises(ValueError, match=message):
            EmpiricalBayesLearner(loss="poisson").fit(scan(table, task="g", target="y"))
    with pytest.raises(TypeError, match="X: a classifier does not take a scan; pass a TaskSet"):
        EmpiricalBayesClassifier().fit(scan(table, task="g", target="y"))


@pytest.mark.parametrize("loss", ["poisson", "negative_binomial"])
def test_counts_that_are_all_zero_are_refused(loss):
    """The likelihood increases as the intercept decreases to minus infinity."""
    X = np.random.default_rng(0).normal(size=(4, 5))
    with pytest.raises(ValueError, match="y: all counts are zero, so rates cannot be estimated"):
        EmpiricalBayesLearner(loss=loss).fit(X, np.zeros(4), groups=np.arange(4))


def test_one_event_is_predicted_to_be_rare():
    tasks = tasks_of("poisson", 45, 6)
    learner = EmpiricalBayesLearner(loss="poisson").fit(
        tasks.replace(y=(np.arange(270) == 7) * 1.0)
    )
    assert (learner.adapt(tasks.X[-6:], tasks.y[-6:] * 0.0).predict(tasks.X[-6:]) < 0.1).all()


@pytest.mark.parametrize(("seed", "slope", "std"), [(1, 10.0, 1.0), (8, 10.0, 1.0), (11, 4.0, 5.0)])
@pytest.mark.filterwarnings("ignore:X. :UserWarning")
def test_extreme_counts_raise_no_numpy_warnings(seed, slope, std):
    """Warnings are errors here.  Rates and exposures differ by many decades."""
    rng, groups = np.random.default_rng(seed), np.arange(30)
    X, exposure = rng.normal(size=(30, 2)), 10.0 ** rng.uniform(-6.0, 6.0, 30)
    logs = slope * X[:, 0] ** (seed % 3 + 1) + std * rng.normal(size=30)
    y = rng.poisson(np.minimum(exposure * np.exp(np.minimum(logs, 21.0)), 9e8))
    learner = EmpiricalBayesLearner(loss="poisson").fit(X, y, groups=groups, exposure=exposure)
    task = learner.adapt(X[:4], y[:4], exposure=exposure[:4])
    assert np.isfinite(task.predict_interval(300.0 * X[:9], exposure=exposure[:9])).all()
