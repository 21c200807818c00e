"""The learners: limits that must hold exactly, streams cut anywhere, adaptation, errors."""

import copy
import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import reference
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.datasets import make_clusters
from tailored.feature_maps import MeanEmbedding
from tailored.solvers import PAPER_STEP_SIZES, Adam, ProjectedSGD
from tailored.theory import estimate_quantities, theory_step


def random_tasks(seed, n_tasks=12, d=4, low=2, high=9, side=None):
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        n = int(rng.integers(low, high))
        X = rng.normal(size=(n, d))
        y = X @ rng.normal(size=d) + 0.1 * rng.normal(size=n)
        entries.append((X, y) if side is None else (X, y, rng.normal(size=side)))
    return TaskSet.from_tasks(entries)


@pytest.fixture(scope="module")
def clusters():
    return make_clusters(40, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


# ---------------------------------------------------------------- limits


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), step=st.floats(1e-3, 10.0))
def test_conditional_with_constant_features_and_frozen_C_is_unconditional(seed, step):
    """φ ≡ 1 turns H into C: with C frozen at 0 and H starting where C would, both run the same algorithm."""
    tasks = random_tasks(seed)
    conditional = ConditionalLearner(
        lambda task: np.ones(1), solver=ProjectedSGD((0.0, step)), initial_representation=0.0, rank=None
    ).fit(tasks)
    unconditional = UnconditionalLearner(solver=ProjectedSGD(step), initial_representation=0.0).fit(tasks)
    for task in tasks:
        np.testing.assert_allclose(
            conditional.representation(task.X, task.y),
            unconditional.representation(task.X, task.y),
            atol=1e-10 * max(1.0, step),
        )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_nothing_moves_is_independent(seed):
    tasks = random_tasks(seed)
    still = ConditionalLearner(solver=ProjectedSGD(0.0)).fit(tasks)
    independent = IndependentLearner().fit(tasks)
    np.testing.assert_allclose(still.adapt_many(tasks), independent.adapt_many(tasks), atol=1e-10)


def test_factored_at_full_rank_is_exact(clusters):
    exact = ConditionalLearner(rank=None, solver=ProjectedSGD(0.3)).fit(clusters)
    factored = ConditionalLearner(rank=6 * 7, solver=ProjectedSGD(0.3)).fit(clusters)
    for task in list(clusters)[:5]:
        np.testing.assert_allclose(
            exact.representation(task.X, task.y), factored.representation(task.X, task.y), atol=1e-9
        )


@pytest.mark.parametrize("inner", ["exact", "online"])
def test_fit_is_algorithm_1(inner):
    """The whole learner against the literal transcription of the paper."""
    tasks = random_tasks(3, n_tasks=10, d=3, low=4, high=7, side=2)
    step_C, step_H = 0.2, 0.7
    learner = ConditionalLearner(
        solver=ProjectedSGD((step_C, step_H)), inner=inner, rank=None, scale_features=False, tol=1e-12
    ).fit(tasks)
    run = reference.algorithm_1(
        [(task.X, task.y) for task in tasks],
        [task.side_info for task in tasks],
        step_C,
        step_H,
        np.eye(3),
        inner,
        reference.absolute(),
        1.0,
    )
    np.testing.assert_allclose(learner.conditioning_.dense_H(), run.mean_H, atol=1e-8)
    np.testing.assert_allclose(learner.conditioning_.C, run.mean_C, atol=1e-8)


def test_leaves_zero():
    """Started at C₀ = 0 the dual form of the gradient gets away; the θ†w form would stay there."""
    tasks = random_tasks(0, n_tasks=6)
    learner = UnconditionalLearner(solver=ProjectedSGD(1.0), initial_representation=0.0, tol=1e-12).fit(tasks)
    run = reference.algorithm_1(
        [(task.X, task.y) for task in tasks],
        np.zeros((6, 1)),
        1.0,
        0.0,
        np.zeros((4, 4)),
        "exact",
        reference.absolute(),
        1.0,
    )
    np.testing.assert_allclose(learner.conditioning_.C, run.mean_C, atol=1e-8)
    assert np.linalg.eigvalsh(run.mean_C)[-1] > 1e-2


# ---------------------------------------------------------------- symmetries


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_permuting_features_permutes_the_representation(seed):
    tasks = random_tasks(seed)
    order = np.random.default_rng(seed).permutation(tasks.n_features)
    moved = TaskSet(tasks.X[:, order], tasks.y, np.repeat(tasks.labels, tasks.sizes))
    a = ConditionalLearner(solver=ProjectedSGD(0.5), rank=None).fit(tasks)
    b = ConditionalLearner(solver=ProjectedSGD(0.5), rank=None).fit(moved)
    task = tasks[0]
    expected = a.representation(task.X, task.y)[np.ix_(order, order)]
    np.testing.assert_allclose(b.representation(task.X[:, order], task.y), expected, atol=1e-8)


def test_relabelling_tasks_changes_nothing(clusters):
    groups = np.repeat(clusters.labels, clusters.sizes)
    a = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0))).fit(
        clusters.X, clusters.y, groups=groups
    )
    b = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0))).fit(
        clusters.X, clusters.y, groups=[f"task {97 - g}" for g in groups]
    )
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.conditioning_.dense_H(), b.conditioning_.dense_H())


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), c=st.floats(0.1, 10.0))
def test_rescaling_y(seed, c):
    """|·| is homogeneous: y → c y with C₀ → c C₀ and step → c step gives τ → c τ and w → c w."""
    tasks = random_tasks(seed)
    groups = np.repeat(tasks.labels, tasks.sizes)
    a = UnconditionalLearner(solver=ProjectedSGD(0.5)).fit(tasks)
    b = UnconditionalLearner(solver=ProjectedSGD(0.5 * c), initial_representation=c).fit(
        tasks.X, c * tasks.y, groups=groups
    )
    np.testing.assert_allclose(b.conditioning_.C, c * a.conditioning_.C, rtol=1e-7, atol=1e-9 * c)
    scaled = TaskSet(tasks.X, c * tasks.y, groups)
    np.testing.assert_allclose(b.adapt_many(scaled), c * a.adapt_many(tasks), rtol=1e-6, atol=1e-7 * c)


# ---------------------------------------------------------------- streams and jobs


def same_learner(one, other):
    """Bit for bit: all that was learned and chosen."""
    for name in ("step_size_", "validation_error_", "search_results_", "scale_", "n_tasks_seen_", "n_iter_"):
        assert getattr(one, name, None) == getattr(other, name, None)
    assert type(one.conditioning_) is type(other.conditioning_)
    np.testing.assert_array_equal(one.conditioning_.C, other.conditioning_.C)
    np.testing.assert_array_equal(one.conditioning_.dense_H(), other.conditioning_.dense_H())
    np.testing.assert_array_equal(one.bias_.constant, other.bias_.constant)
    np.testing.assert_array_equal(one.bias_.linear, other.bias_.linear)
    assert one.clip_ == other.clip_


def in_pieces(learner, tasks, cuts=(1, 2, 9, 10, 31)):
    for piece in np.split(np.arange(len(tasks)), cuts):
        learner.partial_fit(tasks[piece])
    return learner


STREAMS = [{}, {"objective": "query"}, {"bias": "conditional"}, {"loss": "squared"}, {"rank": None}]


@pytest.mark.parametrize("options", STREAMS)
@pytest.mark.parametrize("scale_features", [True, False])
def test_stream_in_pieces_is_the_same_bits(clusters, options, scale_features):
    """However the stream is cut; and `fit` is the same, where it has no scale of φ to know in advance."""
    settings_ = {
        "solver": ProjectedSGD(step_sizes=(0.03, 0.3)),
        "rank": 5,
        "clip": "train",
        "scale_features": scale_features,
        **options,
    }
    whole = ConditionalLearner(**settings_).partial_fit(clusters)
    same_learner(whole, in_pieces(ConditionalLearner(**settings_), clusters))
    at_once = ConditionalLearner(**settings_).fit(clusters)
    if scale_features:
        assert np.abs(at_once.conditioning_.dense_H() - whole.conditioning_.dense_H()).max() > 1e-9
    else:
        same_learner(whole, at_once)


@pytest.mark.parametrize("options", [{}, {"objective": "query"}, {"bias": "shared"}, {"loss": "squared"}])
def test_unconditional_stream_in_pieces_is_fit(clusters, options):
    settings_ = {"solver": ProjectedSGD(step_sizes=(0.03, 0.3)), **options}
    whole = UnconditionalLearner(**settings_).fit(clusters)
    same_learner(whole, in_pieces(UnconditionalLearner(**settings_), clusters))
    same_learner(whole, UnconditionalLearner(**settings_).partial_fit(clusters))


@pytest.mark.parametrize("rank", [None, 5])
def test_fit_measures_features_by_the_root_mean_square_over_its_training_tasks(rank):
    """One number for all tasks: the run on φ divided by it, whichever units φ had."""
    tasks = random_tasks(4, n_tasks=15, d=3, side=2)
    scale = np.sqrt(np.mean(np.sum(tasks.side_info**2, axis=1)))

    def with_side_info_times(factor):
        return TaskSet.from_tasks([(task.X, task.y, factor * task.side_info) for task in tasks])

    divided, moved = with_side_info_times(1 / scale), with_side_info_times(1e3)
    options = {"solver": ProjectedSGD((0.1, 0.5)), "rank": rank, "bias": "conditional"}
    learner = ConditionalLearner(**options).fit(tasks)
    plain = ConditionalLearner(scale_features=False, **options).fit(divided)
    np.testing.assert_allclose(learner.representations(tasks), plain.representations(divided), atol=1e-9)
    np.testing.assert_allclose(learner.adapt_many(tasks), plain.adapt_many(divided), atol=1e-7)
    far = ConditionalLearner(**options).fit(moved)
    np.testing.assert_allclose(learner.representations(tasks), far.representations(moved), atol=1e-9)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_jobs_do_not_change_a_bit(clusters, n_jobs):
    one = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.03, 0.3, 3.0)), n_jobs=1).fit(clusters)
    many = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.03, 0.3, 3.0)), n_jobs=n_jobs).fit(clusters)
    np.testing.assert_array_equal(one.conditioning_.tensor(), many.conditioning_.tensor())
    np.testing.assert_array_equal(one.adapt_many(clusters), many.adapt_many(clusters))
    assert one.search_results_ == many.search_results_


def test_processes_do_not_change_a_bit(clusters):
    import joblib

    one = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.03, 0.3))).fit(clusters)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        many = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.03, 0.3))).fit(clusters)
    np.testing.assert_array_equal(one.conditioning_.tensor(), many.conditioning_.tensor())


# ---------------------------------------------------------------- search and theory


def test_search_never_does_worse_than_the_unconditional_twin(clusters):
    grid = (0.01, 0.1, 1.0)
    conditional = ConditionalLearner(solver=ProjectedSGD(step_sizes=grid)).fit(clusters)
    unconditional = UnconditionalLearner(solver=ProjectedSGD(step_sizes=grid)).fit(clusters)
    assert conditional.validation_error_ <= unconditional.validation_error_ + 1e-15
    still = [r["error"] for r in conditional.search_results_ if r["step_H"] == 0]
    np.testing.assert_allclose(still, [r["error"] for r in unconditional.search_results_], rtol=1e-12)


def test_validation_tasks_can_be_given(clusters):
    train, held_out = clusters[:30], clusters[30:]
    learner = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.01, 1.0))).fit(train, validation=held_out)
    fixed = ConditionalLearner(solver=ProjectedSGD((learner.step_size_.C, learner.step_size_.H))).fit(train)
    np.testing.assert_array_equal(learner.conditioning_.C, learner.scale_ * fixed.conditioning_.C)


def test_calibration_is_the_best_multiple_on_held_out_tasks(clusters):
    learner = UnconditionalLearner(solver=ProjectedSGD(step_sizes=(1e-12,))).fit(
        clusters
    )  # τ = I: only the scale is learned
    plain = UnconditionalLearner(solver=ProjectedSGD(step_sizes=(1e-12,)), calibrate=False).fit(clusters)
    np.testing.assert_array_equal(learner.conditioning_.C, learner.scale_ * plain.conditioning_.C)
    errors = {r["scale"]: r["error"] for r in learner.search_results_}
    assert errors[1.0] == plain.validation_error_
    assert errors[learner.scale_] == min(errors.values()) < errors[1.0]


def test_theory_step_uses_stated_constants(clusters):
    stated = {"distance": 2.0, "K": 1.0, "L": 1.0, "R": 1.0, "n": 20, "T": 100}
    learner = ConditionalLearner(solver=ProjectedSGD("theory", theory_constants=stated)).fit(clusters)
    # Thm. bound_estimated_feature by hand: 2 / (2 · 1) · 1 / (1/2 + 1/10) / 10
    assert pytest.approx(1.0 / 0.6 / 10) == learner.step_size_.C
    estimated = UnconditionalLearner(solver=ProjectedSGD("theory")).fit(clusters)
    assert estimated.theory_constants_["R"] == pytest.approx(1.0)  # inputs on the unit sphere
    assert estimated.theory_constants_["n"] == 20
    quantities = estimate_quantities(clusters)
    for name, value in estimated.theory_constants_.items():
        assert value == getattr(quantities, name)
    assert theory_step(**estimated.theory_constants_) == estimated.step_size_.C


def test_stated_constants_are_not_estimated():
    """Rows that are all zero have no R, and need none where it is stated."""
    nothing = TaskSet.from_tasks([(np.zeros((3, 2)), np.ones(3))] * 6, labels=range(6))
    stated = {"distance": 2.0, "K": 1.0, "L": 1.0, "R": 1.0, "n": 20, "T": 100}
    learner = UnconditionalLearner(solver=ProjectedSGD("theory", theory_constants=stated)).fit(nothing)
    assert learner.theory_constants_ == stated
    assert theory_step(**stated) == learner.step_size_.C


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_theory_constants_are_those_that_are_estimated_for_the_bounds(fit_intercept):
    """Of the rows with their constant column, the start that was given and the features as they act."""
    tasks = random_tasks(8, n_tasks=14, d=3, side=2)
    groups = np.repeat(tasks.labels, tasks.sizes)
    norms = np.linalg.norm(tasks.side_info, axis=1)
    X = np.hstack([tasks.X, np.ones((len(tasks.y), 1))]) if fit_intercept else tasks.X
    for scaled in (True, False):
        learner = ConditionalLearner(
            solver=ProjectedSGD("theory"),
            initial_representation=0.5,
            scale_features=scaled,
            fit_intercept=fit_intercept,
        ).fit(tasks)
        K = norms.max() / (np.sqrt(np.mean(norms**2)) if scaled else 1.0)
        quantities = estimate_quantities(TaskSet(X, tasks.y, groups), K=K, initial=0.5 * np.eye(X.shape[1]))
        for name, value in learner.theory_constants_.items():
            assert value == pytest.approx(getattr(quantities, name), rel=1e-12)
        assert learner.theory_constants_.keys() == {"distance", "K", "L", "R", "n", "T"}
        assert learner.step_size_.C == learner.step_size_.H == theory_step(**learner.theory_constants_)
    half = ConditionalLearner(solver=ProjectedSGD("theory", theory_constants={"R": 7.0, "L": 2.0})).fit(tasks)
    assert (half.theory_constants_["R"], half.theory_constants_["L"]) == (7.0, 2.0)
    assert half.theory_constants_["n"] == np.mean(tasks.sizes)


def test_the_paper_s_configuration_to_the_last_setting():
    learner = ConditionalLearner.paper()
    solver = learner.solver
    assert learner.get_params(deep=False) == {
        "feature_map": "mean",
        "loss": "absolute",
        "inner": "online",
        "objective": "surrogate",
        "rank": None,
        "bias": "none",
        "fit_intercept": False,
        "clip": None,
        "solver": solver,
        "initial_representation": None,
        "lipschitz": None,
        "scale_features": True,
        "calibrate": False,
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
        "theory_constants": None,
    }
    np.testing.assert_allclose(PAPER_STEP_SIZES, np.logspace(-5, 5, 14))
    other = ConditionalLearner.paper(feature_map="vector", n_jobs=2)
    changed = {
        name for name, value in other.get_params(deep=False).items() if value != getattr(learner, name)
    }
    assert changed == {"feature_map", "n_jobs", "solver"}  # solvers are objects of their own


def test_the_paper_s_learner_runs_its_algorithm(clusters):
    """Steps shared by C and H, no multiple of τ, every direction of H."""
    solver = ProjectedSGD(step_sizes=(0.03, 0.3), step_ratios=(1.0,))
    learner = ConditionalLearner.paper(solver=solver).fit(clusters)
    assert [(row["step_C"], row["step_H"], row["scale"]) for row in learner.search_results_] == [
        (0.03, 0.03, 1.0),
        (0.3, 0.3, 1.0),
    ]
    assert learner.scale_ == 1.0
    assert learner.conditioning_.dense_H().shape == (6 * 12, 6 * 12)


# ---------------------------------------------------------------- snapshots


SNAPSHOTS = [
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), bias="conditional", rank=5),
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=None),
    ConditionalLearner("ridge", solver=Adam(max_passes=2), bias="conditional", rank=3),
    UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), bias="shared"),
    EmpiricalBayesLearner(),
]


def arrays_of(prior):
    """Every array of the conditioning function and the prior mean."""
    return {
        (part, name): value
        for part in ("conditioning", "bias")
        for name, value in vars(getattr(prior, part)).items()
        if isinstance(value, np.ndarray)
    }


@pytest.mark.parametrize(
    "learner", SNAPSHOTS, ids=lambda e: f"{type(e).__name__}-{e.get_params().get('solver')}"
)
def test_what_a_user_holds_is_a_snapshot(few_steps, clusters, learner):
    """Going on makes a new prior; the old one keeps every bit, and cannot be written to."""
    learner = copy.deepcopy(learner).partial_fit(clusters[:25])
    prior, conditioning, bias = learner.prior_, learner.conditioning_, learner.bias_
    assert conditioning is prior.conditioning
    assert bias is prior.bias
    before = {key: value.copy() for key, value in arrays_of(prior).items()}
    assert {("conditioning", "C"), ("bias", "constant"), ("bias", "linear")} <= before.keys()
    tau = learner.representations(clusters).copy()
    learner.partial_fit(clusters[25:])
    for key, value in arrays_of(prior).items():
        np.testing.assert_array_equal(value, before[key])
        assert not value.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0.0
    assert learner.prior_ is not prior
    assert np.abs(learner.representations(clusters) - tau).max() > 1e-9
    for value in arrays_of(learner.prior_).values():
        assert not value.flags.writeable
    with pytest.raises(FrozenInstanceError):
        prior.clip = (0.0, 1.0)
    for name in ("conditioning_", "bias_", "feature_map_", "clip_", "calibration_"):
        with pytest.raises(AttributeError):
            setattr(learner, name, None)


# ---------------------------------------------------------------- adapting


@pytest.mark.parametrize("bias", ["none", "shared", "conditional"])
@pytest.mark.parametrize("inner", ["exact", "online"])
def test_adapt_many_is_adapt_for_each(clusters, inner, bias):
    learner = ConditionalLearner("ridge", solver=ProjectedSGD(0.3), inner=inner, bias=bias).fit(clusters)
    many = learner.adapt_many(clusters)
    for row, task in zip(many, clusters, strict=True):
        model = learner.adapt(task.X, task.y)
        np.testing.assert_allclose(model.coef_, row, atol=1e-9)
        assert model.dual_gap_ >= 0
    if inner == "exact":
        objective_at_zero = np.abs(task.y).mean()
        assert model.dual_gap_ <= max(1e-8 * objective_at_zero, 1e-12)


@pytest.mark.parametrize("inner", ["exact", "online"])
@pytest.mark.parametrize("bias", ["none", "conditional"])
def test_sparse_is_dense(inner, bias):
    rng = np.random.default_rng(5)
    entries = []
    for _ in range(12):
        items = rng.choice(9, size=5, replace=False)
        X = np.zeros((5, 9))
        X[np.arange(5), items] = 1.0
        entries.append((X, rng.normal(size=5)))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    assert sparse.is_sparse
    settings_ = {"solver": ProjectedSGD(0.5), "inner": inner, "bias": bias, "fit_intercept": True, "rank": 6}
    a, b = ConditionalLearner(**settings_).fit(dense), ConditionalLearner(**settings_).fit(sparse)
    np.testing.assert_allclose(a.adapt_many(dense), b.adapt_many(sparse), atol=1e-9)
    np.testing.assert_allclose(a.conditioning_.C, b.conditioning_.C, atol=1e-9)
    one = sparse[0]
    np.testing.assert_allclose(a.adapt(*entries[0]).coef_, b.adapt(one.X, one.y).coef_, atol=1e-9)


def test_adapt_from_side_information_alone():
    tasks = random_tasks(0, side=3)
    learner = ConditionalLearner(solver=ProjectedSGD(0.3), bias="conditional").fit(tasks)
    s = tasks[2].side_info
    model = learner.adapt(side_info=s)
    np.testing.assert_allclose(model.coef_, learner.bias_(s))
    np.testing.assert_allclose(learner.representation(side_info=s), learner.conditioning_(s))
    plain = ConditionalLearner(solver=ProjectedSGD(0.3)).fit(tasks)
    np.testing.assert_array_equal(plain.adapt(side_info=s).predict(tasks.X), 0.0)


def test_prior_of_a_data_set_map_without_rows(clusters):
    learner = UnconditionalLearner(solver=ProjectedSGD(0.3), bias="shared").fit(clusters)
    np.testing.assert_allclose(learner.adapt().coef_, learner.bias_.constant)


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_and_odd_tasks(n):
    rng = np.random.default_rng(n)
    X = np.vstack([rng.normal(size=(n, 30)), np.ones((2, 30))])  # d ≫ n, duplicated rows
    X[:, 3] = 2.0  # constant column
    y = rng.normal(size=len(X))
    tasks = TaskSet.from_tasks([(X[:1], y[:1])] * 3 + [(X, y)] * 3)
    learner = ConditionalLearner(solver=ProjectedSGD(step_sizes=(0.1,))).fit(tasks)
    assert np.isfinite(learner.adapt_many(tasks)).all()


@pytest.fixture(scope="module")
def hard():
    """Tasks of labels under a loose prior, which one sweep does not solve."""
    rng = np.random.default_rng(7)
    entries = []
    for _ in range(3):
        X = rng.normal(size=(12, 4))
        entries.append((X, np.where(X @ rng.normal(size=4) + rng.normal(size=12) > 0, 1.0, -1.0)))
    return TaskSet.from_tasks(entries, labels=["spoon", "fork", "knife"])


HARD = {"loss": "logistic", "initial_representation": 1e4}


def test_convergence_warnings_name_tasks_by_their_labels(hard):
    """Through adapt_many, and through fit, which adapts the tasks that it was given."""
    hasty = IndependentLearner(max_iter=1, **HARD)
    with pytest.warns(ConvergenceWarning, match=r"3 of 3 tasks \(spoon, fork, knife\)"):
        hasty.fit(hard)
    with pytest.warns(ConvergenceWarning, match=r"2 of 2 tasks \(fork, knife\)"):
        hasty.adapt_many(hard[1:])
    strict = IndependentLearner(tol=1e-300, max_iter=3, **HARD)
    with pytest.warns(ConvergenceWarning, match=r"tasks \(spoon, fork, knife\)"):
        strict.fit(hard)
    IndependentLearner(**HARD).fit(hard).adapt_many(hard)  # no warning, which would be an error here


@pytest.mark.parametrize("kind", [UnconditionalLearner, ConditionalLearner])
def test_convergence_warnings_of_a_fit_name_the_tasks_it_adapts(hard, kind):
    learner = kind(solver=ProjectedSGD(0.0), max_iter=1, **HARD)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(hard)
    messages = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert any("(spoon, fork, knife)" in message for message in messages)


def test_predict_serves_the_tasks_of_fit(clusters):
    learner = ConditionalLearner(solver=ProjectedSGD(0.3)).fit(clusters)
    groups = np.repeat(clusters.labels, clusters.sizes)
    weights = learner.adapt_many(clusters)
    expected = np.einsum("ij,ij->i", clusters.X, np.repeat(weights, clusters.sizes, axis=0))
    np.testing.assert_allclose(learner.predict(clusters.X, groups=groups), expected)


def test_score_is_r2_on_rows_not_adapted_on(clusters):
    learner = ConditionalLearner(solver=ProjectedSGD(0.3)).fit(clusters)
    support, query = clusters.support_query(0.5, random_state=0)
    weights = learner.adapt_many(support)
    prediction = np.einsum("ij,ij->i", query.X, np.repeat(weights, query.sizes, axis=0))
    residual = ((query.y - prediction) ** 2).sum()
    expected = 1 - residual / ((query.y - query.y.mean()) ** 2).sum()
    assert learner.score(clusters) == pytest.approx(expected)
    errors = learner.task_errors(support, query)
    assert errors.shape == (40,)
    assert np.average(errors) == pytest.approx(np.abs(query.y - prediction).mean())


def test_conditioning_helps_where_it_should():
    """On clusters with orthogonal supports: conditional, then unconditional, then θ = I, on new tasks."""
    tasks = make_clusters(260, n_clusters=4, n_rows=80, random_state=0)
    train, test = tasks[:200], tasks[200:]
    options = {"solver": ProjectedSGD(step_sizes=(10.0, 100.0))}
    errors = {
        kind.__name__: kind(**kw).fit(train).task_errors(test).mean()
        for kind, kw in [
            (IndependentLearner, {}),
            (UnconditionalLearner, options),
            (ConditionalLearner, options),
        ]
    }
    assert errors["ConditionalLearner"] < errors["UnconditionalLearner"] < errors["IndependentLearner"]


# ---------------------------------------------------------------- errors


def start_at(C0):
    return ConditionalLearner(initial_representation=C0)


def theory_with(constants):
    return ConditionalLearner(solver=ProjectedSGD("theory", theory_constants=constants))


def test_messages(clusters):
    X, y = clusters.X, clusters.y
    groups = np.repeat(clusters.labels, clusters.sizes)
    fitted = ConditionalLearner(solver=ProjectedSGD(0.1)).fit(clusters)
    cases = [
        (
            lambda: ConditionalLearner("meen").fit(clusters),
            ValueError,
            "feature_map.*'mean'",
        ),
        (
            lambda: ConditionalLearner(loss="abs").fit(clusters),
            ValueError,
            "loss.*absolute",
        ),
        (
            lambda: ConditionalLearner(inner="exakt").fit(clusters),
            ValueError,
            "inner.*exact",
        ),
        (lambda: ConditionalLearner(solver=ProjectedSGD(-1.0)).fit(clusters), ValueError, "^step must be"),
        (
            lambda: ConditionalLearner(solver=ProjectedSGD("best")).fit(clusters),
            ValueError,
            "^step must be.*search",
        ),
        (lambda: ConditionalLearner(rank=0).fit(clusters), ValueError, "rank"),
        (
            lambda: ConditionalLearner(bias="some").fit(clusters),
            ValueError,
            "bias.*shared",
        ),
        (lambda: UnconditionalLearner(bias="conditional").fit(clusters), ValueError, "bias"),
        (lambda: ConditionalLearner("vector").fit(clusters), ValueError, "side_info"),
        (lambda: ConditionalLearner(loss="logistic").fit(clusters), ValueError, "task 0"),
        (
            lambda: ConditionalLearner(initial_representation=-np.eye(6)).fit(clusters),
            ValueError,
            "semidefinite",
        ),
        (
            lambda: ConditionalLearner(initial_representation=np.triu(np.ones((6, 6)))).fit(clusters),
            ValueError,
            "symmetric",
        ),
        (lambda: ConditionalLearner().fit(X, y, groups=groups[:-1]), ValueError, "groups"),
        (lambda: ConditionalLearner().fit(clusters[:0]), ValueError, "0 sample|empty"),
        (lambda: fitted.adapt(X[:3, :5], y[:3]), ValueError, "features"),
        (lambda: fitted.adapt(np.where(X[:3] > 0, np.nan, X[:3]), y[:3]), ValueError, "NaN"),
        (lambda: fitted.adapt(side_info=[1.0]), ValueError, "side_info"),
        (lambda: fitted.predict(X), ValueError, "groups"),
        (lambda: fitted.predict(X, groups=groups[:-1]), ValueError, "groups: expected"),
        (lambda: fitted.fit(clusters, y), TypeError, "TaskSet"),
        (
            lambda: ConditionalLearner(solver=ProjectedSGD("theory", theory_constants={"Q": 1})).fit(
                clusters
            ),
            ValueError,
            "'Q'",
        ),
    ]
    for call, kind, pattern in cases:
        with pytest.raises(kind, match=pattern):
            call()


@pytest.mark.parametrize(
    "learner",
    [
        ConditionalLearner(solver=ProjectedSGD(0.1), bias="shared"),
        UnconditionalLearner(solver=ProjectedSGD(0.1), bias="shared", fit_intercept=True),
        IndependentLearner(),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_a_task_that_was_not_seen_is_predicted_by_the_prior(learner, clusters):
    learner.fit(clusters)
    rows, known = clusters.X[:4], clusters.labels[1]
    found = learner.predict(rows, groups=[-1, known, -2, -1])
    expected = learner.adapt().predict(rows)
    expected[1] = learner.predict(rows[1:2], groups=[known])[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_nan_in_training_names_the_task(clusters):
    X = clusters.X.copy()
    X[45, 2] = np.nan
    with pytest.raises(ValueError, match=r"X.*NaN.*task 2"):
        ConditionalLearner().fit(X, clusters.y, groups=np.repeat(clusters.labels, clusters.sizes))


def test_overflow_names_the_step(clusters):
    clusters = TaskSet(1e3 * clusters.X, clusters.y, np.repeat(clusters.labels, clusters.sizes))
    with pytest.raises(ValueError, match=r"^step:.*1e\+308"):
        UnconditionalLearner(solver=ProjectedSGD(1e308)).fit(clusters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1e308))).fit(clusters)
    assert learner.step_size_.C == 0.1
    assert all(np.isinf(r["error"]) for r in learner.search_results_ if r["step_C"] > 1)


def test_a_map_that_learns_does_not_see_the_held_out_tasks():
    class Spy(MeanEmbedding):
        seen = 0

        def fit(self, tasks):
            type(self).seen = len(tasks)
            return super().fit(tasks)

    tasks = make_clusters(40, n_clusters=2, n_features=6, rank=2, n_rows=12, random_state=0)
    ConditionalLearner(Spy(), solver=ProjectedSGD(step_sizes=(0.1,)), validation_fraction=0.25).fit(tasks)
    assert Spy.seen == 30
    ConditionalLearner(Spy(), solver=ProjectedSGD(0.1)).fit(tasks)
    assert Spy.seen == 40
