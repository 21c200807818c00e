"""Prediction intervals: the spread against Bayes' rule, the ends against a count, the coverage
against draws.
"""

import numpy as np
import pytest
import scipy.stats

import tailored
from folds import few_folds
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters
from tailored.paper import ProjectedSGD
from tailored.priors.intervals import Calibration, Errors, calibration_of


def _count(scores, n_tasks, miss):
    """Ends by counting: tasks have one row each, and half of one more could lie beyond either
    end.
    """
    scores = np.sort(scores)
    needed = int(np.ceil((1.0 - miss) * (n_tasks + 0.5) - 1e-9))
    if needed > n_tasks:
        return -np.inf, np.inf
    return scores[n_tasks - needed], scores[needed - 1]


@pytest.mark.parametrize("n_tasks", [5, 19, 20, 39, 200])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_ends_are_order_statistics_when_tasks_have_one_row(n_tasks, coverage):
    rng = np.random.default_rng(n_tasks)
    scores = np.sort(rng.standard_cauchy(n_tasks))
    weights = np.full(n_tasks, 1.0 / (n_tasks + 0.5))
    calibration = Calibration(np.array([3.0]), [scores], [weights], 1.0)
    assert calibration.interval(7, coverage) == _count(scores, n_tasks, 0.5 * (1.0 - coverage))


def test_every_task_has_the_same_say():
    """A task with a thousand rows far out moves the ends no more than one with a single row
    there.
    """

    def reach(far_rows):
        counts = np.array([2] * 40 + [far_rows])
        values = np.append(np.arange(40.0), 100.0)
        task = np.repeat(np.arange(41), counts)
        none = np.zeros(41, dtype=np.int64)
        found = calibration_of(
            [(0, Errors(values[task], np.zeros(len(task)), task, 0.0 * values, none))]
        )
        low, high = found.interval(0, 0.8)
        return low * np.sqrt(found.noise), high * np.sqrt(found.noise)

    np.testing.assert_allclose(reach(1), reach(1000))


def test_reach_is_interpolated_between_numbers_of_rows_and_constant_beyond():
    score = np.linspace(-1.0, 1.0, 101)
    weights = np.full(101, 1.0 / 102)
    calibration = Calibration(np.array([0.0, 9.0]), [score, 3.0 * score], [weights, weights], 1.0)
    low, high = calibration.interval(0, 0.9)
    assert calibration.interval(9, 0.9) == (3 * low, 3 * high) == calibration.interval(1000, 0.9)
    # log(1 + n) is half way at √10 − 1; the nearest whole number is 2.
    share = np.log(3.0) / np.log(10.0)
    np.testing.assert_allclose(calibration.interval(2, 0.9)[1], (1 + 2 * share) * high)


def _skewed_tasks(n_tasks, rng):
    """Targets with skewed, heavy noise of a level that differs from task to task, and tasks of
    different sizes.
    """
    tasks = []
    for _ in range(n_tasks):
        n = int(rng.integers(6, 16))
        X = rng.normal(size=(n, 3))
        y = X @ rng.normal(size=3) + rng.lognormal(sigma=1.0) * (rng.exponential(size=n) ** 1.5)
        tasks.append((X, y))
    return TaskSet.from_tasks(tasks)


@pytest.mark.filterwarnings("ignore:X. column")
@pytest.mark.parametrize("n_rows", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 5))])
def test_coverage_holds_for_a_learner_that_knows_nothing(n_rows):
    """Mean coverage over many draws of calibration and test tasks; the model is wrong in every
    respect.
    """
    covered = []
    for repeat in range(20):
        rng = np.random.default_rng([repeat, n_rows])
        learner = IndependentLearner(fit_intercept=False).fit(_skewed_tasks(2, rng))
        learner.calibrate_intervals(_skewed_tasks(60, rng))
        for task in _skewed_tasks(20, rng):
            given = (task.X[:n_rows], task.y[:n_rows]) if n_rows else ()
            low, high = learner.adapt(*given).predict_interval(task.X[5:], 0.8).T
            covered.append(np.mean((low <= task.y[5:]) & (task.y[5:] <= high)))
    # 400 tasks that share 20 calibrations: the standard error is about 0.012; 0.8 is the guarantee
    # at the numbers of rows of the calibration (0 and about 2 and 7) and an interpolation in
    # between.
    assert 0.77 < np.mean(covered) < 0.87


@pytest.fixture(scope="module")
def learned():
    tasks = make_clusters(150, n_clusters=2, random_state=3)
    return few_folds().fit(tasks[:90]), tasks[90:]


def test_empirical_bayes_is_calibrated_by_fit(learned):
    learner, new = learned
    covered, widths = [], []
    for task in new:
        model = learner.adapt(task.X[:20], task.y[:20])
        interval = model.predict_interval(task.X[40:], 0.9)
        assert interval.shape == (40, 2)
        prediction = model.predict(task.X[40:])
        assert ((interval[:, 0] < prediction) & (prediction < interval[:, 1])).all()
        covered.append(np.mean((interval[:, 0] <= task.y[40:]) & (task.y[40:] <= interval[:, 1])))
        widths.append(np.mean(interval[:, 1] - interval[:, 0]))
    assert 0.85 < np.mean(covered) < 0.96
    # Noise of 0.1 alone needs ± 0.16 for 90 %; an interval as wide as the targets would be no use.
    assert np.mean(widths) < 0.6


def test_too_few_tasks_for_a_coverage_give_the_models_own_ends(learned):
    """Finite, said in a warning, and no narrower than a Gaussian's of the same deviation."""
    learner, new = learned
    model = learner.adapt(new[0].X[:5], new[0].y[:5])
    with pytest.warns(UserWarning, match=r"coverage: too few tasks .* 99\.9 % intervals"):
        ends = model.predict_interval(new[0].X, 0.999)
    assert np.isfinite(ends).all()
    centre, spread = model.predict(new[0].X), model.predict_std(new[0].X)
    assert (ends[:, 0] <= centre - 3.29 * spread).all()
    assert (ends[:, 1] >= centre + 3.29 * spread).all()


def test_intervals_grow_with_coverage_beyond_what_few_tasks_can_calibrate():
    """Six tasks of one row calibrate up to 2 · 6 / 6.5 − 1 = 84.6 %; from there, the bounds have
    Gaussian tails.
    """
    scores = np.array([-4.0, -0.5, -0.2, 0.1, 0.3, 0.6])
    calibration = Calibration(np.array([0.0]), [scores], [np.full(6, 1 / 6.5)], 1.0)
    coverages = [0.5, 0.8, 0.84, 0.86, 0.9, 0.95, 0.99]
    ends = np.array([calibration.multiples(0, coverage, None)[0][:2] for coverage in coverages])
    assert [calibration.multiples(0, coverage, None)[1] for coverage in coverages] == [True] * 3 + [
        False
    ] * 4
    assert (np.diff(ends[2:, 0]) < 0).all()
    assert (np.diff(ends[2:, 1]) > 0).all()
    rms, z = np.sqrt(np.mean(scores**2)), scipy.stats.norm.ppf
    np.testing.assert_allclose(ends[-1, 0], -4.0 - (z(0.995) - z(6 / 6.5)) * rms)
    np.testing.assert_allclose(ends[-1, 1], z(0.995) * rms)


def test_intervals_with_fewer_rows_than_columns_and_little_noise():
    """The noise is then poorly estimated and differs between folds; intervals once covered 30 to 60
    %.
    """
    rng = np.random.default_rng(2)

    def tasks(n_tasks, n, first):
        X, w = rng.normal(size=(n_tasks, n, 12)), 0.3 * rng.normal(size=(n_tasks, 12))
        y = (
            np.einsum("tij,tj->ti", X, w)
            + rng.normal(size=(n_tasks, 1))
            + 0.1 * rng.normal(size=(n_tasks, n))
        )
        return TaskSet(X.reshape(-1, 12), y.ravel(), np.repeat(np.arange(n_tasks) + first, n))

    learner, new = EmpiricalBayesLearner().fit(tasks(60, 5, 0)), tasks(300, 6, 1000)
    for n_support in (0, 3):
        support, query = new.support_query(n_support, random_state=0)
        found = learner.predict_tasks(query, support, coverage=0.9)
        inside = (found["lower"] <= query.y) & (query.y <= found["upper"])
        assert 0.85 < inside.mean() < 0.95


def test_calibrating_changes_the_intervals_alone(tmp_path):
    """It makes a new prior of the old parts; the one before, and what is predicted, stay as they
    were.
    """
    tasks = make_clusters(40, n_clusters=1, n_rows=12, n_features=4, rank=2, random_state=0)
    learner = UnconditionalLearner(solver=ProjectedSGD(0.5), fit_intercept=False).fit(tasks[:15])
    assert learner.calibration_ is None
    before, weights = learner.prior_, learner.adapt_many(tasks).weights_
    learner.save(tmp_path / "a")
    assert tailored.load(tmp_path / "a").calibration_ is None
    learner.calibrate_intervals(tasks[15:])
    assert before.calibration is None
    assert learner.prior_.conditioning is before.conditioning
    np.testing.assert_array_equal(learner.adapt_many(tasks).weights_, weights)
    # tasks of 12 rows: none, doubling, and all of the nine that a task is adapted on
    np.testing.assert_array_equal(learner.calibration_.rows, [0.0, 1.0, 2.0, 4.0, 9.0])
    for share in learner.calibration_.weights:
        assert share.sum() == pytest.approx(25 / 25.5)
    learner.save(tmp_path / "b")
    X, y = tasks[0].X, tasks[0].y
    np.testing.assert_array_equal(
        tailored.load(tmp_path / "b").adapt(X[:5], y[:5]).predict_interval(X),
        learner.adapt(X[:5], y[:5]).predict_interval(X),
    )


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnhelpfulWarning")  # two tasks
def test_a_single_task_gives_no_intervals(few_steps):
    """There is nobody to be held out from: the way out is named."""
    tasks = make_clusters(2, n_clusters=1, n_rows=12, n_features=3, rank=1, random_state=0)
    alone = EmpiricalBayesLearner().fit(tasks[:1])
    assert alone.calibration_ is None
    with pytest.raises(ValueError, match="calibrate_intervals"):
        alone.adapt(tasks[0].X, tasks[0].y).predict_interval(tasks[0].X)
    assert EmpiricalBayesLearner().fit(tasks).calibration_.rows[0] == 0.0


def test_standard_deviations_are_those_of_the_errors(learned):
    """Mean squares of errors over deviations are about one at every number of rows, in any unit of
    the targets.
    """
    learner, new = learned
    for n_rows in (0, 2, 10, 40):
        support, query = new.support_query(n_rows, random_state=0)
        table = learner.predict_tasks(query, support)
        squares = ((query.y - table["prediction"]) / table["std"]) ** 2
        # 60 tasks of 40 or more rows: the standard error is about 0.1 at most
        assert 0.75 < squares.mean() < 1.35
        model = learner.adapt(support[0].X, support[0].y) if n_rows else learner.adapt()
        np.testing.assert_allclose(model.predict_std(query[0].X), table["std"][: query.sizes[0]])


@pytest.mark.parametrize(("spread", "weights"), [(0.0, (1e6, 80.0)), (0.7, (1.5, 5.0))])
def test_the_noise_of_a_task_is_estimated_from_its_rows_only_if_tasks_differ(spread, weights):
    """Draw errors with the same noise in all tasks, or with noise that differs, and 6 support
    residuals each.
    """
    rng = np.random.default_rng(0)
    noise = np.exp(spread * rng.normal(size=300))
    task = np.repeat(np.arange(300), 4)
    squares = np.sum((noise[:, None] * rng.normal(size=(300, 6))) ** 2, axis=1)
    errors = Errors(
        noise[task] * rng.normal(size=len(task)),
        np.zeros(len(task)),
        task,
        squares,
        np.full(300, 6),
    )
    assert calibration_of([(6, errors)]).noise_rows in weights
