"""`CalibrationDisplay`: bins compared with scikit-learn, error bars with the closed form of cluster sampling."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from tailored import EmpiricalBayesClassifier, IndependentLearner, TaskSet
from tailored.displays import CalibrationDisplay
from tailored.evaluation import evaluate

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def predictions(n_tasks=400, n_rows=20):
    """Return probabilities, outcomes that differ between tasks more than they say, and tasks."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(n_tasks), n_rows)
    p = rng.beta(2, 3, len(task))
    shifted = 1 / (1 + np.exp(-np.log(p / (1 - p)) - rng.normal(size=n_tasks)[task]))
    return (rng.random(len(task)) < shifted).astype(int), p, task


def test_bins_and_error_bars():
    y, p, task = predictions()
    found = CalibrationDisplay.from_predictions(y, p, groups=task)
    expected = calibration_curve(y, p, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([found.prob_true, found.prob_pred], expected)
    assert set(found.counts) == {800}
    # The variance of a ratio of sums over tasks is that of the sums of residuals (linearisation).
    bins = np.searchsorted(np.quantile(p, np.arange(1, 10) / 10), p)
    sums = np.zeros((400, 10))
    np.add.at(sums, (task, bins), y - found.prob_true[bins])
    np.testing.assert_allclose(
        found.standard_errors, np.sqrt((sums**2).sum(axis=0)) / 800, rtol=0.12
    )
    rows_alone = CalibrationDisplay.from_predictions(y, p)
    assert (found.standard_errors > 1.05 * rows_alone.standard_errors).mean() > 0.7


def test_equal_probabilities_are_in_one_bin():
    found = CalibrationDisplay.from_predictions([0, 1, 1, 0, 1], [0.6] * 5)
    np.testing.assert_allclose([found.prob_true, found.prob_pred], [[0.6], [0.6]])
    np.testing.assert_array_equal(found.counts, [5])
    # Ten equal targets and two of each kind: a frequency of 2/14, with 14 rows.
    equal = CalibrationDisplay.from_predictions([0] * 10, [0.2] * 10)
    np.testing.assert_allclose(equal.standard_errors, np.sqrt(2 / 14 * 12 / 14 / 14))


@pytest.mark.parametrize(
    ("y", "p"), [([0, 2], [0.1, 0.2]), ([0, 1], [0.5]), ([], []), ([0, 1], [0.2, 1.5])]
)
def test_targets_must_be_binary(y, p):
    with pytest.raises(
        ValueError, match="y_true, y_prob: expected targets 0 and 1, and a probability for each"
    ):
        CalibrationDisplay.from_predictions(y, p)
    with pytest.raises(TypeError, match="learner: expected a classifier, got IndependentLearner"):
        CalibrationDisplay.from_estimator(IndependentLearner(), None)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_of_a_classifier_and_of_an_evaluation(n_classes):
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(240, 1)), np.repeat(np.arange(30), 8)
    noise = rng.gumbel(size=(240, n_classes)) + np.outer(
        X[:, 0] + rng.normal(size=30)[groups], range(n_classes)
    )
    tasks = TaskSet(X, 2.0 + noise.argmax(axis=1), groups)
    classifier = EmpiricalBayesClassifier().fit(tasks)
    _, ax = plt.subplots()
    found = CalibrationDisplay.from_estimator(classifier, tasks, 3, ax=ax)
    assert found.ax_ is ax
    support, query = tasks.support_query(3, random_state=0)
    table = classifier.predict_tasks(query, support)
    if n_classes == 2:
        expected = calibration_curve(
            query.y == 3.0, table["probability"], n_bins=10, strategy="quantile"
        )
    else:
        P = np.column_stack([table[f"probability_{label}"] for label in classifier.classes_])
        observed = query.y[:, None] == classifier.classes_
        expected = calibration_curve(observed.ravel(), P.ravel(), n_bins=10, strategy="quantile")
    np.testing.assert_allclose([found.prob_true, found.prob_pred], expected)
    assert ax.get_xlabel() == f"predicted probability of {'3' if n_classes == 2 else 'each class'}"
    assert found.counts.sum() == len(query.y) * (1 if n_classes == 2 else 3)
    evaluation = evaluate(tasks, {"tailored": classifier}, supports=[2], n_folds=2)
    drawn = CalibrationDisplay.from_evaluation(evaluation, n_bins=5)
    assert drawn.counts.sum() == evaluation.n_query * (1 if n_classes == 2 else 3)
    drawn.figure_.canvas.draw()
