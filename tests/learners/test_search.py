"""Options of the paper's learners: search over steps, what each honours and refuses, streams cut
anywhere, limits that must hold exactly, and symmetries.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.losses import Absolute
from tailored.paper import ProjectedSGD
from tailored.paper.step_size import PAPER_STEP_SIZES

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def random_tasks(seed, n_tasks=12, d=4, low=2, high=9, side=None):
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        n = int(rng.integers(low, high))
        X = rng.normal(size=(n, d))
        y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
        entries.append((X, y) if side is None else (X, y, rng.normal(size=side)))
    return TaskSet.from_tasks(entries)


def test_search_never_does_worse_than_the_unconditional_twin(clusters):
    grid = (0.01, 0.1, 1.0)
    conditional = ConditionalLearner(solver=ProjectedSGD(step_sizes=grid), fit_intercept=False).fit(
        clusters
    )
    unconditional = UnconditionalLearner(
        solver=ProjectedSGD(step_sizes=grid), fit_intercept=False
    ).fit(clusters)
    assert conditional.validation_error_ <= unconditional.validation_error_ + 1e-15
    still = [r["error"] for r in conditional.search_results_ if r["step_H"] == 0]
    np.testing.assert_allclose(
        still, [r["error"] for r in unconditional.search_results_], rtol=1e-12
    )


def test_the_surrogate_of_a_loss_without_a_lipschitz_constant(clusters):
    def learner(**options):
        solver = ProjectedSGD(0.1)
        return UnconditionalLearner(solver=solver, loss="squared", fit_intercept=False, **options)

    given = learner(lipschitz=np.sqrt(np.mean(clusters.y**2))).fit(clusters)
    np.testing.assert_allclose(
        learner().fit(clusters).conditioning_.C, given.conditioning_.C, rtol=1e-12
    )
    with pytest.raises(ValueError, match=r"lipschitz: the squared loss.*lipschitz="):
        learner().partial_fit(clusters)


def test_the_paper_s_configuration_to_the_last_setting():
    learner = ConditionalLearner.paper()
    solver = learner.solver
    assert learner.get_params(deep=False) == {
        "feature_map": "mean",
        "loss": "absolute",
        "inner": "online",
        "rank": None,
        "fit_intercept": False,
        "solver": solver,
        "initial_representation": None,
        "lipschitz": None,
        "scale_features": False,
        "tune_scale": False,
        "validation_fraction": 0.2,
        "support": 0.5,
        "tol": 1e-8,
        "max_iter": 1000,
        "n_jobs": None,
        "progress": False,
        "random_state": 0,
    }
    assert type(solver) is ProjectedSGD
    assert solver.get_params() == {
        "step": "search",
        "step_sizes": PAPER_STEP_SIZES,
        "step_ratios": (1.0,),
    }
    np.testing.assert_allclose(PAPER_STEP_SIZES, np.logspace(-5, 5, 14))
    other = ConditionalLearner.paper(feature_map="vector", n_jobs=2)
    changed = {
        name
        for name, value in other.get_params(deep=False).items()
        if value != getattr(learner, name)
    }
    assert changed == {"feature_map", "n_jobs", "solver"}  # solvers are objects of their own


OBJECTIVE_ARGUMENTS = {
    "inner": "online",
    "rank": None,
    "solver": ProjectedSGD(step_sizes=(0.01,)),
    "initial_representation": 2.0,
    "lipschitz": 0.5,
    "scale_features": False,
    "support": 0.3,
}
SOLVER_ARGUMENTS = {"step": 0.3, "step_sizes": (1.0,), "step_ratios": (1.0,)}


@pytest.mark.parametrize("name", OBJECTIVE_ARGUMENTS)
def test_arguments_of_the_objective_are_honoured(name, clusters):
    """Each of them reaches what is learned, and the algorithm stays the paper's."""
    clusters = clusters[:30]
    options = {"feature_map": "mean", "solver": ProjectedSGD(step_sizes=(0.3, 3.0))}
    if name == "rank":
        options["rank"] = 1
    given = options | {name: OBJECTIVE_ARGUMENTS[name]}
    plain, given = (
        ConditionalLearner(fit_intercept=False, **each).fit(clusters) for each in (options, given)
    )
    assert plain.prior_.loss == given.prior_.loss == Absolute()
    if name == "support":  # only what is judged on held-out tasks depends on it
        assert plain.search_results_ != given.search_results_
    else:
        assert not np.allclose(plain.task_weights_, given.task_weights_, atol=1e-6)


@pytest.mark.parametrize("name", SOLVER_ARGUMENTS)
def test_arguments_of_solvers_are_honoured(name, clusters):
    clusters, value = clusters[:30], SOLVER_ARGUMENTS[name]
    learners = [
        ConditionalLearner("mean", solver=ProjectedSGD(), fit_intercept=False),
        ConditionalLearner("mean", solver=ProjectedSGD(**{name: value}), fit_intercept=False),
        ConditionalLearner("mean", fit_intercept=False).set_params(**{f"solver__{name}": value}),
    ]
    plain, given, again = (learner.fit(clusters) for learner in learners)
    if name.startswith("step_"):
        assert len(given.search_results_) < len(plain.search_results_)
    else:
        assert not np.allclose(plain.task_weights_, given.task_weights_, atol=1e-6)
    np.testing.assert_array_equal(again.task_weights_, given.task_weights_)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_losses_that_empirical_bayes_cannot_honour(loss, clusters):
    signs = TaskSet(clusters.X, np.sign(clusters.y), np.repeat(clusters.labels, clusters.sizes))
    with pytest.raises(ValueError, match=rf"loss: .*{loss}.*ConditionalLearner"):
        EmpiricalBayesLearner(loss=loss).fit(signs)
    learner = ConditionalLearner(
        loss=loss, solver=ProjectedSGD(step_sizes=(1.0,)), fit_intercept=False
    ).fit(signs)
    assert learner.prior_.loss == learner.loss_
    assert learner.loss_.name == loss
    agreement = np.sign(learner.predict(signs.X, np.repeat(signs.labels, signs.sizes))) == signs.y
    assert agreement.mean() > 0.8


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_other_losses(loss, few_steps, clusters):
    learner = EmpiricalBayesLearner(loss=loss).fit(clusters[:20])
    assert learner.score(clusters) > 0.5


def same_learner(one, other):
    """Bit for bit: all that was learned and chosen."""
    for name in (
        "step_size_",
        "validation_error_",
        "search_results_",
        "scale_",
        "n_tasks_seen_",
        "n_iter_",
    ):
        assert getattr(one, name, None) == getattr(other, name, None)
    assert type(one.conditioning_) is type(other.conditioning_)
    np.testing.assert_array_equal(one.conditioning_.C, other.conditioning_.C)
    np.testing.assert_array_equal(one.conditioning_.H, other.conditioning_.H)


def in_pieces(learner, tasks, cuts=(1, 2, 9, 10, 31)):
    for piece in np.split(np.arange(len(tasks)), cuts):
        learner.partial_fit(tasks[piece])
    return learner


STREAMS = [
    ({}, True),
    ({}, False),
    ({"loss": "squared", "lipschitz": 0.3}, True),
    ({"rank": None}, False),
]


@pytest.mark.parametrize(("options", "scale_features"), STREAMS)
def test_stream_in_pieces_is_the_same_bits(clusters, options, scale_features):
    """However the stream is cut; and `fit` is the same, where it has no scale of φ to know in
    advance.
    """
    settings_ = {
        "solver": ProjectedSGD(step_sizes=(0.03, 0.3)),
        "rank": 5,
        "scale_features": scale_features,
        **options,
    }
    whole = ConditionalLearner(**{"fit_intercept": False, **settings_}).partial_fit(clusters)
    same_learner(
        whole, in_pieces(ConditionalLearner(**{"fit_intercept": False, **settings_}), clusters)
    )
    at_once = ConditionalLearner(**{"fit_intercept": False, **settings_}).fit(clusters)
    if scale_features:
        assert np.abs(at_once.conditioning_.H - whole.conditioning_.H).max() > 1e-9
    else:
        same_learner(whole, at_once)


@pytest.mark.parametrize("rank", [None, 5])
def test_fit_measures_features_by_the_root_mean_square_over_its_training_tasks(rank):
    """One number for all tasks: the run on φ divided by it, whichever units φ had."""
    tasks = random_tasks(4, n_tasks=15, d=3, side=2)
    scale = np.sqrt(np.mean(np.sum(tasks.side_info**2, axis=1)))

    def with_side_info_times(factor):
        return TaskSet.from_tasks([(task.X, task.y, factor * task.side_info) for task in tasks])

    divided, moved = with_side_info_times(1 / scale), with_side_info_times(1e3)
    options = {"solver": ProjectedSGD((0.1, 0.5)), "rank": rank}
    learner = ConditionalLearner(**{"fit_intercept": False, **options}).fit(tasks)
    plain = ConditionalLearner(scale_features=False, **{"fit_intercept": False, **options}).fit(
        divided
    )
    np.testing.assert_allclose(
        learner.representation(tasks), plain.representation(divided), atol=1e-9
    )
    np.testing.assert_allclose(
        learner.adapt_many(tasks).weights_, plain.adapt_many(divided).weights_, atol=1e-7
    )
    far = ConditionalLearner(**{"fit_intercept": False, **options}).fit(moved)
    np.testing.assert_allclose(learner.representation(tasks), far.representation(moved), atol=1e-9)


# ---------------------------------------------------------------- limits


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), step=st.floats(1e-3, 10.0))
def test_conditional_with_constant_features_and_frozen_C_is_unconditional(seed, step):
    """φ ≡ 1 turns H into C: with C frozen at 0 and H starting where C would, both run the same
    algorithm.
    """
    tasks = random_tasks(seed)
    conditional = ConditionalLearner(
        lambda task: np.ones(1),
        solver=ProjectedSGD((0.0, step)),
        initial_representation=0.0,
        rank=None,
        fit_intercept=False,
    ).fit(tasks)
    unconditional = UnconditionalLearner(
        solver=ProjectedSGD(step), initial_representation=0.0, fit_intercept=False
    ).fit(tasks)
    for task in tasks:
        np.testing.assert_allclose(
            conditional.representation(task.X, task.y),
            unconditional.representation(task.X, task.y),
            atol=1e-7 * max(1.0, step),  # large steps amplify rounding errors
        )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_nothing_moves_is_independent(seed):
    tasks = random_tasks(seed)
    still = ConditionalLearner(solver=ProjectedSGD(0.0), fit_intercept=False).fit(tasks)
    independent = IndependentLearner(fit_intercept=False).fit(tasks)
    np.testing.assert_allclose(
        still.adapt_many(tasks).weights_, independent.adapt_many(tasks).weights_, atol=1e-10
    )


# ---------------------------------------------------------------- symmetries


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), c=st.floats(0.1, 10.0))
def test_rescaling_y(seed, c):
    """|·| is homogeneous: y → c y with C₀ → c C₀ and step → c step gives τ → c τ and w → c w."""
    tasks = random_tasks(seed)
    groups = np.repeat(tasks.labels, tasks.sizes)
    a = UnconditionalLearner(solver=ProjectedSGD(0.5), fit_intercept=False).fit(tasks)
    b = UnconditionalLearner(
        solver=ProjectedSGD(0.5 * c), initial_representation=c, fit_intercept=False
    ).fit(tasks.X, c * tasks.y, groups=groups)
    np.testing.assert_allclose(b.conditioning_.C, c * a.conditioning_.C, rtol=1e-7, atol=1e-9 * c)
    scaled = TaskSet(tasks.X, c * tasks.y, groups)
    np.testing.assert_allclose(
        b.adapt_many(scaled).weights_, c * a.adapt_many(tasks).weights_, rtol=1e-6, atol=1e-7 * c
    )


def test_targets_whose_squares_underflow_are_predicted_as_almost_zero():
    rng = np.random.default_rng(0)
    usual, tiny, subnormal = (
        TaskSet.from_tasks([(np.zeros((4, 1)), size * rng.normal(size=4)) for _ in range(6)])
        for size in (1.0, 1e-155, 1e-320)
    )
    bayes = EmpiricalBayesLearner().fit(tiny, validation=tiny)
    paper = UnconditionalLearner(solver=ProjectedSGD(0.1)).fit(usual)
    for learner, tasks in ((bayes, tiny), (paper, subnormal)):
        assert np.abs(learner.adapt_many(tasks).weights_).max() < 1e-100
