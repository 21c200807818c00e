"""The paper's learners against the literal transcription, and what they show of the learned
function.
"""

import warnings

import numpy as np
import pytest

import reference
from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.exceptions import ConstantRepresentationWarning
from tailored.losses import Huber
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import SideVector
from tailored.paper.theory import surrogate

STEPS = (0.1, 2.0, 30.0)
ABSOLUTE = reference.absolute()


@pytest.fixture(scope="module")
def parts():
    """Training tasks, and support and query rows of validation and test tasks; s rotates the
    direction of w.
    """
    rng = np.random.default_rng(7)

    def draw(n_tasks):
        s = rng.uniform(size=n_tasks)
        W = rng.normal(size=n_tasks)[:, None] * np.column_stack(
            [np.cos(3 * s), np.sin(3 * s), 0.0 * s]
        )
        X = rng.normal(size=(n_tasks, 12, 3))
        y = np.einsum("tnd,td->tn", X, W) + 0.1 * rng.normal(size=(n_tasks, 12))
        side = {t: [1.0, np.cos(3 * s[t]), np.sin(3 * s[t])] for t in range(n_tasks)}
        tasks = TaskSet(
            X.reshape(-1, 3), y.ravel(), np.repeat(np.arange(n_tasks), 12), side_info=side
        )
        return tasks.support_query(8, shuffle=False)

    return draw(30)[0], draw(8), draw(9)


def literal(train, feature_map):
    """Tasks and features of the transcription."""
    features = {
        "mean": lambda t: reference.mean_embedding(t.X, t.y),
        "vector": lambda t: t.side_info,
    }
    return [(t.X, t.y) for t in train], [np.array(features[feature_map](t)) for t in train]


def literal_error(H, C, pair, feature_map):
    tasks = [(a.X, a.y, b.X, b.y) for a, b in zip(*pair, strict=True)]
    phis = literal(pair[0], feature_map)[1]
    return float(reference.evaluate(H, C, tasks, phis, "online", ABSOLUTE).mean())


def close(found, expected):
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max())
    )


@pytest.mark.parametrize("feature_map", ["mean", "vector"])
def test_conditional_learning_is_the_transcription(parts, feature_map):
    train, validation, _ = parts
    solver = ProjectedSGD(step_sizes=STEPS, step_ratios=(1.0,))
    learner = ConditionalLearner.paper(feature_map=feature_map, solver=solver)
    learner.fit(train, validation=validation)
    tasks, phis = literal(train, feature_map)
    runs = [
        reference.algorithm_1(tasks, phis, step, step, np.eye(3), "online", ABSOLUTE, 1.0)
        for step in STEPS
    ]
    errors = [literal_error(run.mean_H, run.mean_C, validation, feature_map) for run in runs]
    close([row["error"] for row in learner.search_results_], np.array(errors))
    best = int(np.argmin(errors))
    assert learner.step_size_.H == learner.step_size_.C == STEPS[best]
    close(learner.H_, runs[best].mean_H)
    close(learner.C_, runs[best].mean_C)
    for task, phi in zip(list(train)[:3], phis, strict=False):
        theta = learner.representation(task.X, task.y, side_info=task.side_info)
        close(theta, reference.tau(runs[best].mean_H, runs[best].mean_C, phi))


def test_unconditional_and_independent_learning_are_the_transcription(parts):
    train, validation, test = parts
    tasks, phis = literal(train, "vector")
    learner = UnconditionalLearner.paper(solver=ProjectedSGD(step_sizes=STEPS))
    learner.fit(train, validation=validation)
    runs = [
        reference.algorithm_1(tasks, phis, step, 0.0, np.eye(3), "online", ABSOLUTE, 1.0)
        for step in STEPS
    ]
    errors = [literal_error(run.mean_H, run.mean_C, validation, "vector") for run in runs]
    best = int(np.argmin(errors))
    close(learner.C_, runs[best].mean_C)
    assert learner.H_.size == 0
    close(learner.held_out_errors_["unconditional"], errors[best])

    alone = IndependentLearner.paper().fit(train)
    zero = np.zeros((9, 9))
    close(alone.task_errors(*test).mean(), literal_error(zero, np.eye(3), test, "vector"))
    close(
        learner.held_out_errors_["independent"],
        literal_error(zero, np.eye(3), validation, "vector"),
    )


@pytest.mark.parametrize("inner", ["exact", "online"])
def test_a_given_representation_is_used_as_it_is(parts, inner):
    train, _, (support, query) = parts

    def oracle(s):
        direction = np.array([s[1], s[2], 0.0])
        return 20.0 * np.outer(direction, direction)

    learner = IndependentLearner(tau=oracle, inner=inner, fit_intercept=False, tol=1e-13).fit(train)
    errors = learner.task_errors(support, query)
    for t, (a, b) in enumerate(zip(support, query, strict=True)):
        w = reference.solve(a.X, a.y, oracle(a.side_info), inner, ABSOLUTE).w
        assert errors[t] == pytest.approx(np.abs(b.X @ w - b.y).mean(), abs=1e-8)
    np.testing.assert_array_equal(
        learner.representation(side_info=[1.0, 0.6, 0.8]), oracle([1.0, 0.6, 0.8])
    )
    assert "function that the user passed" in str(learner.summary())
    with pytest.raises(AttributeError, match="representation"):
        _ = learner.H_
    message = r"^tau: .*oracle cannot be saved.* a number or an array can"
    with pytest.raises(TypeError, match=message):
        learner.save("nowhere")
    # one matrix for all tasks is the same as a function that returns it
    theta = oracle([1.0, 0.6, 0.8])
    constant = IndependentLearner(tau=theta, inner=inner, fit_intercept=False).fit(train)
    function = IndependentLearner(tau=lambda s: theta, inner=inner, fit_intercept=False).fit(train)
    assert not hasattr(function, "C_")
    np.testing.assert_array_equal(
        constant.task_errors(support, query), function.task_errors(support, query)
    )


def test_errors_of_given_representations(parts):
    train = parts[0]
    message = r"tau of task 0 must be a \(3, 3\) matrix; got shape \(2, 2\)"
    with pytest.raises(ValueError, match=message):
        IndependentLearner(tau=lambda s: np.eye(2), fit_intercept=False).fit(train)
    with pytest.raises(ValueError, match="tau of task 0 must be positive semidefinite"):
        IndependentLearner(tau=lambda s: -np.eye(3), fit_intercept=False).fit(train)
    bare = TaskSet(train.X, train.y, np.repeat(train.labels, train.sizes))
    learner = IndependentLearner(tau=lambda s: s[0] * np.eye(3), fit_intercept=False).fit(train)
    with pytest.raises(ValueError, match="side_info: this feature map needs side information"):
        learner.adapt_many(bare)
    # the rows are the side information of tasks without any
    rows = IndependentLearner(tau=lambda task: len(task.y) * np.eye(3), fit_intercept=False).fit(
        bare
    )
    np.testing.assert_array_equal(rows.representation(bare)[0], len(bare[0].y) * np.eye(3))
    with pytest.raises(ValueError, match="Expected 2D array, got scalar array"):
        IndependentLearner(tau=lambda s: 2.0, fit_intercept=False).fit(train)
    with pytest.raises((TypeError, ValueError), match="tau"):
        IndependentLearner(tau="identity", fit_intercept=False).fit(train)


@pytest.mark.parametrize("loss", ["absolute", "huber"])
def test_the_surrogate_at_a_given_representation(parts, loss):
    task, rng = parts[0][0], np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    theta, phi = root @ root.T + 0.1 * np.eye(3), rng.normal(size=2)
    given = {"absolute": "absolute", "huber": Huber(delta=0.6)}[loss]
    value, gradient = surrogate(theta, task.X, task.y, loss=given)
    literal_loss = {"absolute": reference.absolute(), "huber": reference.huber(0.6)}[loss]
    assert value == pytest.approx(
        reference.surrogate(theta, task.X, task.y, literal_loss, literal_loss.lipschitz), abs=1e-9
    )
    alpha = reference.exact(task.X, task.y, theta, literal_loss).alpha
    np.testing.assert_allclose(
        gradient, reference.surrogate_gradient(task.X, alpha, literal_loss.lipschitz), atol=1e-7
    )
    # the gradient in H of the docstring is that of Prop. 4
    lifted = reference.lift(3, phi)
    expected = lifted @ gradient @ lifted.T
    np.testing.assert_allclose(np.kron(gradient, np.outer(phi, phi)), expected, atol=1e-14)
    with pytest.raises(ValueError, match="lipschitz must be a finite number"):
        surrogate(theta, task.X, task.y, loss="squared")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        surrogate(theta, task.X, task.y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        surrogate(theta, np.nan * task.X, task.y)
    with pytest.raises(ValueError, match="logistic"):
        surrogate(theta, task.X, task.y, loss="logistic")


def test_a_constant_function_warns(parts):
    train = parts[0]
    with pytest.warns(ConstantRepresentationWarning, match=r"τ\(s\) = C for every task"):
        learner = ConditionalLearner(solver=ProjectedSGD((0.1, 0.0))).fit(train)
    assert not learner.H_.any()
    assert "τ is the same for every task" in str(learner.summary())
    for rank in (32, None):  # the mean of the first iterate alone is H = 0
        with pytest.warns(ConstantRepresentationWarning, match=r"\(H = 0\)"):
            ConditionalLearner("vector", rank=rank, solver=ProjectedSGD(0.1)).fit(train[:1])
    noise = {t: np.random.default_rng(t).normal(size=40) for t in range(30)}
    useless = TaskSet(train.X, train.y, np.repeat(train.labels, train.sizes), side_info=noise)
    with pytest.warns(ConstantRepresentationWarning, match="no step size of H lowered the error"):
        ConditionalLearner(
            SideVector(), solver=ProjectedSGD(step_sizes=(1.0,), step_ratios=(0.0, 1e6))
        ).fit(useless)


def test_the_summary_shows_step_spectrum_and_errors(parts):
    train, validation, _ = parts
    learner = ConditionalLearner(
        "vector", solver=ProjectedSGD(step_sizes=STEPS), fit_intercept=False
    )
    learner.fit(train, validation=validation)
    summary = learner.summary()
    assert f"step size {learner.step_size_.C:.4g} for C" in summary.text[0]
    errors = summary.to_frame("errors")
    assert dict(zip(errors["method"], errors["error"], strict=True)) == learner.held_out_errors_
    assert learner.held_out_errors_["conditional"] == learner.validation_error_
    # all training tasks, because validation tasks were passed
    mean = learner.representation(train).mean(axis=0)
    np.testing.assert_allclose(
        summary.to_frame("spectrum")["eigenvalue"], np.linalg.eigvalsh(mean)[::-1], atol=1e-9
    )


def test_errors_of_validation_pairs(parts):
    train, validation, _ = parts
    learner = ConditionalLearner("vector", fit_intercept=False)
    with pytest.raises(TypeError, match="validation: expected a TaskSet or a pair"):
        learner.fit(train, validation=(*validation, train))
    for query in (validation[1][:-1], validation[1][::-1]):
        with pytest.raises(ValueError, match="validation: support and query must have the same"):
            learner.fit(train, validation=[validation[0], query])
    with pytest.raises(ValueError, match="validation: none of its tasks has a row"):
        learner.fit(train, validation=validation[0].without_rows())
    with pytest.raises(TypeError, match="solver: expected None or a ProjectedSGD, got str"):
        ConditionalLearner(solver="projected").fit(train)


def test_warnings_of_a_search_that_went_wrong(parts):
    """Large columns make every step but the smallest diverge, and independent learning is
    better.
    """
    train = parts[0]
    large = TaskSet(1e4 * train.X, train.y, np.repeat(train.labels, train.sizes))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner = ConditionalLearner.paper().fit(large)
    found = [str(one.message) for one in caught]
    assert learner.held_out_errors_["independent"] < learner.validation_error_
    assert any("step size 1e-05 is the smallest that was tried" in text for text in found)
    assert any("independent learning" in text and "EmpiricalBayesLearner" in text for text in found)
    assert not any("side information" in text for text in found)


def test_side_information_that_is_not_read_is_a_warning(parts):
    train, message = parts[0], "side information is not used, because feature_map='mean'"
    solver = ProjectedSGD(30.0)
    with pytest.warns(UserWarning, match=message):
        ConditionalLearner.paper(solver=solver).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConditionalLearner.paper(feature_map="vector", solver=solver).fit(train)
        bare = TaskSet(train.X, train.y, np.repeat(train.labels, train.sizes))
        ConditionalLearner.paper(solver=solver).fit(bare)
