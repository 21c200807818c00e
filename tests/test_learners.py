"""The learners: limits that must hold exactly, streams cut anywhere, adaptation, errors."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.datasets import make_clusters
from tailored.feature_maps import MeanEmbedding


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
        lambda task: np.ones(1), step_size=(0.0, step), initial_representation=0.0, rank=None
    ).fit(tasks)
    unconditional = UnconditionalLearner(step_size=step, initial_representation=0.0).fit(tasks)
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
    still = ConditionalLearner(step_size=0.0).fit(tasks)
    independent = IndependentLearner().fit(tasks)
    np.testing.assert_allclose(still.adapt_many(tasks), independent.adapt_many(tasks), atol=1e-10)


def test_factored_at_full_rank_is_exact(clusters):
    exact = ConditionalLearner(rank=None, step_size=0.3).fit(clusters)
    factored = ConditionalLearner(rank=6 * 7, step_size=0.3).fit(clusters)
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
        step_size=(step_C, step_H), inner=inner, rank=None, scale_features=False, tol=1e-12
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
    learner = UnconditionalLearner(step_size=1.0, initial_representation=0.0).fit(tasks)
    assert np.trace(learner.conditioning_.C) > 1e-3


# ---------------------------------------------------------------- symmetries


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_permuting_features_permutes_the_representation(seed):
    tasks = random_tasks(seed)
    order = np.random.default_rng(seed).permutation(tasks.n_features)
    moved = TaskSet(tasks.X[:, order], tasks.y, np.repeat(tasks.labels, tasks.sizes))
    a = ConditionalLearner(step_size=0.5, rank=None).fit(tasks)
    b = ConditionalLearner(step_size=0.5, rank=None).fit(moved)
    task = tasks[0]
    expected = a.representation(task.X, task.y)[np.ix_(order, order)]
    np.testing.assert_allclose(b.representation(task.X[:, order], task.y), expected, atol=1e-8)


def test_relabelling_tasks_changes_nothing(clusters):
    groups = np.repeat(clusters.labels, clusters.sizes)
    a = ConditionalLearner(step_size="search", step_sizes=(0.1, 1.0)).fit(
        clusters.X, clusters.y, groups=groups
    )
    b = ConditionalLearner(step_size="search", step_sizes=(0.1, 1.0)).fit(
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
    a = UnconditionalLearner(step_size=0.5).fit(tasks)
    b = UnconditionalLearner(step_size=0.5 * c, initial_representation=c).fit(
        tasks.X, c * tasks.y, groups=groups
    )
    np.testing.assert_allclose(b.conditioning_.C, c * a.conditioning_.C, rtol=1e-7, atol=1e-9 * c)
    scaled = TaskSet(tasks.X, c * tasks.y, groups)
    np.testing.assert_allclose(b.adapt_many(scaled), c * a.adapt_many(tasks), rtol=1e-6, atol=1e-7 * c)


# ---------------------------------------------------------------- streams and jobs


@pytest.mark.parametrize(
    "options", [{}, {"objective": "query"}, {"bias": "conditional"}, {"loss": "squared"}]
)
def test_stream_in_pieces_is_the_same_bits(clusters, options):
    settings_ = {"step_size": "search", "step_sizes": (0.03, 0.3), "rank": 5, **options}
    whole = ConditionalLearner(**settings_).fit(clusters)
    pieces = ConditionalLearner(**settings_)
    for cut in np.split(np.arange(len(clusters)), [1, 2, 9, 10, 31]):
        pieces.partial_fit(clusters[cut])
    assert whole.step_size_ == pieces.step_size_
    assert whole.validation_error_ == pieces.validation_error_
    np.testing.assert_array_equal(whole.conditioning_.C, pieces.conditioning_.C)
    np.testing.assert_array_equal(whole.conditioning_.tensor(), pieces.conditioning_.tensor())
    np.testing.assert_array_equal(whole.bias_.constant, pieces.bias_.constant)
    np.testing.assert_array_equal(whole.bias_.linear, pieces.bias_.linear)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_jobs_do_not_change_a_bit(clusters, n_jobs):
    one = ConditionalLearner(step_size="search", step_sizes=(0.03, 0.3, 3.0), n_jobs=1).fit(clusters)
    many = ConditionalLearner(step_size="search", step_sizes=(0.03, 0.3, 3.0), n_jobs=n_jobs).fit(clusters)
    np.testing.assert_array_equal(one.conditioning_.tensor(), many.conditioning_.tensor())
    np.testing.assert_array_equal(one.adapt_many(clusters), many.adapt_many(clusters))
    assert one.search_results_ == many.search_results_


def test_processes_do_not_change_a_bit(clusters):
    import joblib

    one = ConditionalLearner(step_size="search", step_sizes=(0.03, 0.3)).fit(clusters)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        many = ConditionalLearner(step_size="search", step_sizes=(0.03, 0.3)).fit(clusters)
    np.testing.assert_array_equal(one.conditioning_.tensor(), many.conditioning_.tensor())


# ---------------------------------------------------------------- search and theory


def test_search_never_does_worse_than_the_unconditional_twin(clusters):
    grid = (0.01, 0.1, 1.0)
    conditional = ConditionalLearner(step_size="search", step_sizes=grid).fit(clusters)
    unconditional = UnconditionalLearner(step_sizes=grid).fit(clusters)
    assert conditional.validation_error_ <= unconditional.validation_error_ + 1e-15
    still = [r["error"] for r in conditional.search_results_ if r["step_H"] == 0]
    np.testing.assert_allclose(still, [r["error"] for r in unconditional.search_results_], rtol=1e-12)


def test_validation_tasks_can_be_given(clusters):
    train, held_out = clusters[:30], clusters[30:]
    learner = ConditionalLearner(step_size="search", step_sizes=(0.01, 1.0)).fit(train, validation=held_out)
    fixed = ConditionalLearner(step_size=(learner.step_size_.C, learner.step_size_.H)).fit(train)
    np.testing.assert_array_equal(learner.conditioning_.C, learner.scale_ * fixed.conditioning_.C)


def test_calibration_is_the_best_multiple_on_held_out_tasks(clusters):
    learner = UnconditionalLearner(step_sizes=(1e-12,)).fit(clusters)  # τ = I: only the scale is learned
    plain = UnconditionalLearner(step_sizes=(1e-12,), calibrate=False).fit(clusters)
    np.testing.assert_array_equal(learner.conditioning_.C, learner.scale_ * plain.conditioning_.C)
    errors = {r["scale"]: r["error"] for r in learner.search_results_}
    assert errors[1.0] == plain.validation_error_
    assert errors[learner.scale_] == min(errors.values()) < errors[1.0]


def test_theory_step_uses_stated_constants(clusters):
    stated = {"distance": 2.0, "K": 1.0, "L": 1.0, "R": 1.0, "n": 20, "T": 100}
    learner = ConditionalLearner(step_size="theory", theory_constants=stated).fit(clusters)
    # Thm. bound_estimated_feature by hand: 2 / (2 · 1) · 1 / (1/2 + 1/10) / 10
    assert pytest.approx(1.0 / 0.6 / 10) == learner.step_size_.C
    estimated = UnconditionalLearner(step_size="theory").fit(clusters)
    assert estimated.theory_constants_["R"] == pytest.approx(1.0)  # inputs on the unit sphere
    assert estimated.theory_constants_["n"] == 20
    assert estimated.step_size_.C > 0


# ---------------------------------------------------------------- adapting


@pytest.mark.parametrize("bias", ["none", "shared", "conditional"])
@pytest.mark.parametrize("inner", ["exact", "online"])
def test_adapt_many_is_adapt_for_each(clusters, inner, bias):
    learner = ConditionalLearner("ridge", step_size=0.3, inner=inner, bias=bias).fit(clusters)
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
    settings_ = {"step_size": 0.5, "inner": inner, "bias": bias, "fit_intercept": True, "rank": 6}
    a, b = ConditionalLearner(**settings_).fit(dense), ConditionalLearner(**settings_).fit(sparse)
    np.testing.assert_allclose(a.adapt_many(dense), b.adapt_many(sparse), atol=1e-9)
    np.testing.assert_allclose(a.conditioning_.C, b.conditioning_.C, atol=1e-9)
    one = sparse[0]
    np.testing.assert_allclose(a.adapt(*entries[0]).coef_, b.adapt(one.X, one.y).coef_, atol=1e-9)


def test_adapt_from_side_information_alone():
    tasks = random_tasks(0, side=3)
    learner = ConditionalLearner(step_size=0.3, bias="conditional").fit(tasks)
    s = tasks[2].side_info
    model = learner.adapt(side_info=s)
    np.testing.assert_allclose(model.coef_, learner.bias_(s))
    np.testing.assert_allclose(learner.representation(side_info=s), learner.conditioning_(s))
    plain = ConditionalLearner(step_size=0.3).fit(tasks)
    np.testing.assert_array_equal(plain.adapt(side_info=s).predict(tasks.X), 0.0)


def test_prior_of_a_data_set_map_without_rows(clusters):
    learner = UnconditionalLearner(step_size=0.3, bias="shared").fit(clusters)
    np.testing.assert_allclose(learner.adapt().coef_, learner.bias_.constant)


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_and_odd_tasks(n):
    rng = np.random.default_rng(n)
    X = np.vstack([rng.normal(size=(n, 30)), np.ones((2, 30))])  # d ≫ n, duplicated rows
    X[:, 3] = 2.0  # constant column
    y = rng.normal(size=len(X))
    tasks = TaskSet.from_tasks([(X[:1], y[:1])] * 3 + [(X, y)] * 3)
    learner = ConditionalLearner(step_size="search", step_sizes=(0.1,)).fit(tasks)
    assert np.isfinite(learner.adapt_many(tasks)).all()


def test_predict_serves_the_tasks_of_fit(clusters):
    learner = ConditionalLearner(step_size=0.3).fit(clusters)
    groups = np.repeat(clusters.labels, clusters.sizes)
    weights = learner.adapt_many(clusters)
    expected = np.einsum("ij,ij->i", clusters.X, np.repeat(weights, clusters.sizes, axis=0))
    np.testing.assert_allclose(learner.predict(clusters.X, groups=groups), expected)


def test_score_is_r2_on_rows_not_adapted_on(clusters):
    learner = ConditionalLearner(step_size=0.3).fit(clusters)
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
    options = {"step_size": "search", "step_sizes": (10.0, 100.0)}
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
    return ConditionalLearner(step_size="search", initial_representation=C0)


def theory_with(constants):
    return ConditionalLearner(step_size="theory", theory_constants=constants)


def test_messages(clusters):
    X, y = clusters.X, clusters.y
    groups = np.repeat(clusters.labels, clusters.sizes)
    fitted = ConditionalLearner(step_size=0.1).fit(clusters)
    cases = [
        (
            lambda: ConditionalLearner("meen", step_size="search").fit(clusters),
            ValueError,
            "feature_map.*'mean'",
        ),
        (
            lambda: ConditionalLearner(loss="abs", step_size="search").fit(clusters),
            ValueError,
            "loss.*absolute",
        ),
        (
            lambda: ConditionalLearner(inner="exakt", step_size="search").fit(clusters),
            ValueError,
            "inner.*exact",
        ),
        (lambda: ConditionalLearner(step_size=-1.0).fit(clusters), ValueError, "step_size"),
        (lambda: ConditionalLearner(step_size="best").fit(clusters), ValueError, "step_size.*search"),
        (lambda: ConditionalLearner(rank=0, step_size="search").fit(clusters), ValueError, "rank"),
        (
            lambda: ConditionalLearner(bias="some", step_size="search").fit(clusters),
            ValueError,
            "bias.*shared",
        ),
        (lambda: UnconditionalLearner(bias="conditional").fit(clusters), ValueError, "bias"),
        (lambda: ConditionalLearner("vector", step_size="search").fit(clusters), ValueError, "side_info"),
        (lambda: ConditionalLearner(loss="logistic", step_size="search").fit(clusters), ValueError, "task 0"),
        (
            lambda: ConditionalLearner(initial_representation=-np.eye(6), step_size="search").fit(clusters),
            ValueError,
            "semidefinite",
        ),
        (
            lambda: ConditionalLearner(
                initial_representation=np.triu(np.ones((6, 6))), step_size="search"
            ).fit(clusters),
            ValueError,
            "symmetric",
        ),
        (lambda: ConditionalLearner().fit(X, y, groups=groups[:-1]), ValueError, "groups"),
        (lambda: ConditionalLearner().fit(clusters[:0]), ValueError, "0 sample|empty"),
        (lambda: fitted.adapt(X[:3, :5], y[:3]), ValueError, "features"),
        (lambda: fitted.adapt(np.where(X[:3] > 0, np.nan, X[:3]), y[:3]), ValueError, "NaN"),
        (lambda: fitted.adapt(side_info=[1.0]), ValueError, "side_info"),
        (lambda: fitted.predict(X), ValueError, "groups"),
        (lambda: fitted.predict(X[:1], groups=["new"]), ValueError, "'new'.*adapt"),
        (lambda: fitted.fit(clusters, y), TypeError, "TaskSet"),
        (
            lambda: ConditionalLearner(step_size="theory", theory_constants={"Q": 1}).fit(clusters),
            ValueError,
            "'Q'",
        ),
    ]
    for call, kind, pattern in cases:
        with pytest.raises(kind, match=pattern):
            call()


def test_nan_in_training_names_the_task(clusters):
    X = clusters.X.copy()
    X[45, 2] = np.nan
    with pytest.raises(ValueError, match=r"X.*NaN.*task 2"):
        ConditionalLearner().fit(X, clusters.y, groups=np.repeat(clusters.labels, clusters.sizes))


def test_overflow_names_the_step(clusters):
    clusters = TaskSet(1e3 * clusters.X, clusters.y, np.repeat(clusters.labels, clusters.sizes))
    with pytest.raises(ValueError, match=r"step_size.*1e\+308"):
        UnconditionalLearner(step_size=1e308).fit(clusters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = UnconditionalLearner(step_sizes=(0.1, 1e308)).fit(clusters)
    assert learner.step_size_.C == 0.1
    assert all(np.isinf(r["error"]) for r in learner.search_results_ if r["step_C"] > 1)


def test_a_map_that_learns_does_not_see_the_held_out_tasks():
    class Spy(MeanEmbedding):
        seen = 0

        def fit(self, tasks):
            type(self).seen = len(tasks)
            return super().fit(tasks)

    tasks = make_clusters(40, n_clusters=2, n_features=6, rank=2, n_rows=12, random_state=0)
    ConditionalLearner(Spy(), step_size="search", step_sizes=(0.1,), validation_fraction=0.25).fit(tasks)
    assert Spy.seen == 30
    ConditionalLearner(Spy(), step_size=0.1).fit(tasks)
    assert Spy.seen == 40
