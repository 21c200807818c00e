"""The practical algorithm behind ConditionalLearner(): its form, its promises, its limits."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tailored
from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner, within
from tailored.baselines import MixedModel, RidgePerTask
from tailored.datasets import make_clusters
from tailored.feature_maps.posterior import Level, PosteriorMap, hats
from tailored.learners._conditional import ALGORITHM_1_ONLY
from tailored.mixed_models import TaskStatistics, adapt
from tailored.representation import Constant, Factored
from tailored.solvers.steps import PAPER_STEP_SIZES


def skewed_tasks(seed, n_tasks=60, d=4, n_rows=12, side=False):
    """Weights around a mean, and noise whose median is not its mean: a conditional bias pays."""
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        X = rng.normal(size=(n_rows, d))
        s = rng.normal(size=2)
        w = np.ones(d) + rng.normal(size=d) * np.linspace(1.0, 0.1, d)
        if side:
            w[:2] += 3.0 * s
        y = X @ w + 0.5 * (rng.exponential(size=n_rows) - 1.0)
        entries.append((X, y, s) if side else (X, y))
    return TaskSet.from_tasks(entries)


@pytest.fixture(scope="module")
def clusters():
    return make_clusters(80, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


@pytest.fixture(scope="module")
def mixture(clusters):
    """A learner that found the clusters."""
    learner = ConditionalLearner().fit(clusters)
    assert learner.n_components_ == 3
    return learner


@pytest.fixture(scope="module")
def with_side():
    tasks = skewed_tasks(0, side=True)
    return tasks, ConditionalLearner().fit(tasks)


# ---------------------------------------------------------------- the paper's form


def test_representation_is_the_mixtures_second_moment(clusters, mixture):
    """τ(s) = (I ⊗ φᵀ) H (I ⊗ φ), with an explicit Kronecker product, is Σ r_k W_k / σ²."""
    feature_map, conditioning = mixture.feature_map_, mixture.conditioning_
    assert isinstance(conditioning, Factored)
    model, units = feature_map.mixture, feature_map.units
    H = conditioning.dense_H()
    for t in range(3):
        task = clusters[t]
        one = TaskSet.from_tasks([(task.X, task.y)])
        phi = feature_map.transform(one)[0]
        r = model.expect(TaskStatistics.of(one, False, units)).responsibilities[0]
        np.testing.assert_allclose(phi[:3] ** 2, r, atol=1e-12)
        np.testing.assert_allclose(phi[3:6], r, atol=1e-12)
        expected = mixture.scale_ * np.tensordot(r, model.covariances / model.noise, 1)
        expected /= np.outer(units.columns, units.columns)
        kronecker = np.kron(np.eye(6), phi[None]) @ H @ np.kron(np.eye(6), phi[:, None])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(kronecker, expected, atol=1e-10 * scale)
        np.testing.assert_allclose(conditioning(phi), expected, atol=1e-10 * scale)
        np.testing.assert_allclose(mixture.representation(task.X, task.y), 20 * expected, atol=1e-8 * scale)


def test_adapted_weights_are_posterior_means(clusters, mixture):
    phis = mixture.feature_map_.transform(clusters)
    statistics = TaskStatistics.of(clusters)
    expected = adapt(mixture.conditioning_.evaluate(phis), mixture.bias_.evaluate(phis), statistics)
    np.testing.assert_allclose(mixture.adapt_many(clusters), expected, atol=1e-7)


@pytest.mark.parametrize("which", ["clusters", "skewed"])
def test_adapt_many_is_adapt_for_each(which, clusters):
    tasks = clusters if which == "clusters" else skewed_tasks(1)
    learner = ConditionalLearner().fit(tasks)
    many = learner.adapt_many(tasks)
    for row, task in zip(many, tasks, strict=True):
        model = learner.adapt(task.X, task.y)
        np.testing.assert_allclose(model.coef_, row, atol=1e-8)
        assert model.loss == "squared"
        assert 0 <= model.dual_gap_ <= 1e-8 * 0.5 * np.mean((task.y - task.X @ model.bias) ** 2) + 1e-15
        solution = within.solve(
            task.X, task.y, model.representation_, learner.within_loss_, offset=task.X @ model.bias
        )
        np.testing.assert_allclose(solution.coef + model.bias, row, atol=1e-8)


def test_one_component_is_a_constant():
    tasks = make_clusters(60, n_clusters=1, n_rows=20, n_features=5, rank=2, random_state=0)
    learner = ConditionalLearner().fit(tasks)
    assert learner.n_components_ == 1
    assert isinstance(learner.conditioning_, Constant)


# ---------------------------------------------------------------- sizes


def test_sizes_rule():
    """θ = n τ(s) for the practical algorithm, θ = τ(s) for the paper's."""
    tasks = skewed_tasks(2)
    practical = ConditionalLearner().fit(tasks)
    assert practical.size_exponent_ == 1
    assert practical.n_components_ == 1  # so that τ does not depend on the rows
    paper = UnconditionalLearner(step_size=0.5).fit(tasks)
    assert paper.size_exponent_ == 0
    X, y = tasks[0].X, tasks[0].y
    C = practical.conditioning_.C
    for n in (1, 2, 12):
        np.testing.assert_allclose(practical.representation(X[:n], y[:n]), n * C)
        np.testing.assert_allclose(paper.representation(X[:n], y[:n]), paper.conditioning_.C)
        one = TaskSet.from_tasks([(X[:n], y[:n])])
        np.testing.assert_allclose(
            practical.adapt_many(one)[0], practical.adapt(X[:n], y[:n]).coef_, atol=1e-9
        )
    np.testing.assert_allclose(practical.representation(), C)


def test_without_rows_the_prior_mean_predicts():
    tasks = skewed_tasks(3)
    learner = ConditionalLearner().fit(tasks)
    empty = TaskSet.from_tasks([(np.empty((0, 4)), np.empty(0))])
    phi = learner.feature_map_.transform(empty)[0]
    np.testing.assert_allclose(learner.adapt().coef_, learner.bias_(phi))
    np.testing.assert_allclose(learner.adapt_many(empty)[0], learner.bias_(phi))
    np.testing.assert_allclose(learner.adapt().coef_, np.ones(4), atol=0.6)


def test_levels_hand_over():
    levels = [Level(0.0, None), Level(3.0, None), Level(15.0, None)]
    found = hats(levels, np.array([0, 3, 15, 400, 1, 7]))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_allclose(found[:, :4].T, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(found[:, 4], [0.5, 0.5, 0.0])  # log 2 is half of log 4
    np.testing.assert_allclose(found[:, 5], [0.0, 0.5, 0.5])  # log 8 is between log 4 and log 16


# ---------------------------------------------------------------- invariances


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_order_of_rows_does_not_matter(seed, mixture, clusters):
    order = np.random.default_rng(seed).permutation(20)
    task = clusters[seed % 80]
    np.testing.assert_allclose(
        mixture.adapt(task.X[order], task.y[order]).coef_, mixture.adapt(task.X, task.y).coef_, atol=1e-8
    )


def test_units_do_not_matter():
    tasks = skewed_tasks(4)
    columns, target = np.array([1e-3, 1.0, 50.0, 1e4]), 1e3
    groups = np.repeat(tasks.labels, tasks.sizes)
    a = ConditionalLearner().fit(tasks)
    b = ConditionalLearner().fit(tasks.X * columns, target * tasks.y, groups=groups)
    assert a.form_ == b.form_
    np.testing.assert_allclose(b.validation_error_, target * a.validation_error_, rtol=1e-6)
    np.testing.assert_allclose(b.task_weights_ * columns / target, a.task_weights_, atol=1e-5)


def test_no_row_of_another_task_leaks(clusters, mixture):
    """Predictions for a query row depend on its task's support rows and on nothing else."""
    support, query = clusters.support_query(0.5, random_state=0)
    before = mixture._predict_rows(support, query)
    own = slice(query.offsets[7], query.offsets[8])
    y = query.y + 100.0
    y[own] = query.y[own]
    X = -3.0 * query.X
    X[own] = query.X[own]
    other = TaskSet.from_arrays(X, y, query.offsets, query.labels)
    np.testing.assert_array_equal(mixture._predict_rows(support, other)[own], before[own])
    alone = mixture.adapt(support[7].X, support[7].y).predict(query[7].X)
    np.testing.assert_allclose(alone, before[own], atol=1e-9)


def test_held_out_tasks_do_not_teach():
    """A fold's candidates see none of the tasks they are judged on."""
    from tailored.empirical_bayes.environment import Settings, TrainingTasks
    from tailored.losses import Absolute

    for n_tasks, n_validation in ((11, 0), (600, 0), (30, 7)):
        tasks = skewed_tasks(0, n_tasks=n_tasks, n_rows=3)
        options = Settings(Absolute(), False, True, None, 0.2, 0, None)
        folds = TrainingTasks(tasks, None, n_validation, options).folds
        assert len(folds) == (5 if n_tasks == 11 else 1)
        for fold in folds:
            assert not set(fold.train) & set(fold.held_out)
        if n_tasks == 11:
            assert sorted(np.concatenate([fold.held_out for fold in folds])) == list(range(11))
        if n_validation:
            np.testing.assert_array_equal(folds[0].held_out, np.arange(23, 30))


def test_stream_in_pieces_is_the_same_bits(clusters):
    whole = ConditionalLearner().fit(clusters)
    pieces = ConditionalLearner()
    for cut in (slice(0, 30), slice(30, 80)):
        pieces.partial_fit(clusters[cut])
    np.testing.assert_array_equal(whole.conditioning_.tensor(), pieces.conditioning_.tensor())
    np.testing.assert_array_equal(whole.adapt_many(clusters), pieces.adapt_many(clusters))
    assert whole.search_results_ == pieces.search_results_
    assert pieces.n_tasks_seen_ == 80
    np.testing.assert_array_equal(pieces.task_labels_, clusters.labels[30:])


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_jobs_do_not_change_a_bit(backend):
    import joblib

    tasks = skewed_tasks(5, n_tasks=30)
    one = ConditionalLearner().fit(tasks)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        many = ConditionalLearner(n_jobs=2).fit(tasks)
    assert one.search_results_ == many.search_results_
    np.testing.assert_array_equal(one.adapt_many(tasks), many.adapt_many(tasks))


def test_sparse_is_dense():
    rng = np.random.default_rng(6)
    entries = []
    for _ in range(40):
        items = rng.choice(8, size=6, replace=False)
        entries.append((np.eye(8)[items], rng.normal(size=6) + np.arange(8)[items]))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    for options in ({}, {"fit_intercept": True}):
        a, b = ConditionalLearner(**options).fit(dense), ConditionalLearner(**options).fit(sparse)
        assert a.form_ == b.form_
        np.testing.assert_allclose(a.adapt_many(dense), b.adapt_many(sparse), atol=1e-7)
        one = sparse[0]
        np.testing.assert_allclose(a.adapt(*entries[0]).coef_, b.adapt(one.X, one.y).coef_, atol=1e-7)


def test_constant_column_is_the_intercept():
    tasks = skewed_tasks(7, n_tasks=30)
    groups = np.repeat(tasks.labels, tasks.sizes)
    shifted = TaskSet(tasks.X, tasks.y + 5.0, groups)
    ones = TaskSet(np.hstack([shifted.X, np.ones((len(shifted.y), 1))]), shifted.y, groups)
    a = ConditionalLearner(fit_intercept=True).fit(shifted)
    b = ConditionalLearner().fit(ones)
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.adapt_many(shifted), b.adapt_many(ones))
    model = a.adapt(shifted[0].X, shifted[0].y)
    assert model.intercept_ == pytest.approx(5.0, abs=0.5)


# ---------------------------------------------------------------- choosing


def test_conditioning_helps_where_it_should():
    tasks = make_clusters(220, n_clusters=4, n_rows=60, n_features=12, random_state=0)
    support, query = tasks.support_query(25, random_state=0)
    train, new, asked = support[:160], support[160:], query[160:]
    learner = ConditionalLearner().fit(train)
    error = learner.task_errors(new, asked).mean()
    assert learner.n_components_ == 4
    assert error < 0.97 * MixedModel().fit(train).task_errors(new, asked).mean()
    assert error < 0.9 * RidgePerTask().fit(train).task_errors(new, asked).mean()


def test_it_degrades_to_its_simpler_forms():
    one = make_clusters(200, n_clusters=1, n_rows=40, n_features=10, rank=2, random_state=3)
    support, query = one.support_query(20, random_state=0)
    error = ConditionalLearner().fit(support[:120]).task_errors(support[120:], query[120:]).mean()
    assert error < 1.01 * MixedModel().fit(support[:120]).task_errors(support[120:], query[120:]).mean()
    # nothing in common: isotropic weights, so that every task alone is the best one can do
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(150):
        X = rng.normal(size=(40, 6))
        entries.append((X, X @ rng.normal(size=6) + 0.3 * rng.normal(size=40)))
    support, query = TaskSet.from_tasks(entries).support_query(15, random_state=0)
    error = ConditionalLearner().fit(support[:30]).task_errors(support[30:], query[30:]).mean()
    assert error < 1.02 * RidgePerTask().fit(support[:30]).task_errors(support[30:], query[30:]).mean()


def test_search_results_hold_the_choice(mixture):
    forms = [entry for entry in mixture.search_results_ if entry["kind"] != "conditional bias"]
    assert {entry["kind"] for entry in forms} == {"independent", "mixed model", "mixture"}
    chosen = [
        entry
        for entry in forms
        if {**entry, "scale": 0, "error": 0} == {**mixture.form_, "scale": 0, "error": 0}
    ]
    errors = {entry["scale"]: entry["error"] for entry in chosen}
    # a rescaling has to earn a tenth of a percent
    assert errors[mixture.scale_] <= min(entry["error"] for entry in forms) * 1.001
    biases = [entry for entry in mixture.search_results_ if entry["kind"] == "conditional bias"]
    rows = sorted({entry["rows"] for entry in biases})
    assert rows == [0, 4, 11]  # 15 rows to adapt on in a rotation: none, a quarter, three quarters
    last = {entry["penalty"]: entry["error"] for entry in biases if entry["rows"] == 11}
    assert mixture.validation_error_ == last[mixture.bias_penalty_] <= last[None]
    assert last[None] == pytest.approx(errors[mixture.scale_], rel=1e-9)


def test_calibration_can_be_turned_off(clusters):
    learner = ConditionalLearner(calibrate=False).fit(clusters)
    assert learner.scale_ == 1.0
    assert {entry["scale"] for entry in learner.search_results_ if "scale" in entry} == {1.0}


def test_validation_tasks_can_be_given(clusters):
    """They choose, and then they teach as all others do."""
    learner = ConditionalLearner().fit(clusters[:60], validation=clusters[60:])
    assert learner.n_tasks_seen_ == 80
    assert len(learner.task_labels_) == 60


def test_quantiles():
    tasks = skewed_tasks(8, n_tasks=160, n_rows=30)
    support, query = tasks.support_query(15, random_state=0)
    for quantile in (0.1, 0.9):
        learner = ConditionalLearner(loss=("pinball", {"quantile": quantile}), fit_intercept=True)
        learner.fit(tasks[:120])
        below = query.y[query.offsets[120] :] <= learner._predict_rows(support[120:], query[120:])
        assert below.mean() == pytest.approx(quantile, abs=0.1)


def test_skewed_noise_asks_for_the_median():
    """The conditional bias: the absolute loss wants the median where the Gaussian model gives the mean."""
    rng = np.random.default_rng(9)
    entries = []
    for _ in range(300):
        y = rng.normal() + rng.exponential(size=8) ** 2
        entries.append((np.ones((8, 1)), y))
    tasks = TaskSet.from_tasks(entries)
    support, query = tasks.support_query(4, random_state=0)
    learner = ConditionalLearner().fit(tasks[:200])
    assert learner.bias_penalty_ is not None
    error = learner.task_errors(support[200:], query[200:]).mean()
    assert error < 0.95 * MixedModel().fit(tasks[:200]).task_errors(support[200:], query[200:]).mean()
    prior = learner.adapt().predict(np.ones((1, 1)))[0]
    assert prior < 1.4  # the mean of the targets is 2, their median about 1


# ---------------------------------------------------------------- side information


def test_side_information_serves_the_cold_start(with_side):
    tasks, learner = with_side
    fresh = skewed_tasks(1, side=True)
    blind = ConditionalLearner("posterior").fit(tasks)
    informed, uninformed = [], []
    for task in fresh:
        informed.append(np.abs(learner.adapt(side_info=task.side_info).predict(task.X) - task.y).mean())
        uninformed.append(np.abs(blind.adapt().predict(task.X) - task.y).mean())
    assert np.mean(informed) < 0.6 * np.mean(uninformed)
    support, query = fresh.support_query(2, random_state=0)
    assert learner.task_errors(support, query).mean() < 0.85 * blind.task_errors(support, query).mean()


def test_side_information_is_asked_for(with_side):
    tasks, learner = with_side
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(tasks[0].X, tasks[0].y)
    plain = ConditionalLearner().fit(skewed_tasks(2, n_tasks=20))
    with pytest.raises(ValueError, match="side_info"):
        plain.adapt(side_info=[1.0, 2.0])


def test_other_features_join():
    tasks = skewed_tasks(3, n_tasks=25)
    learner = ConditionalLearner(lambda task: [float(len(task.y))]).fit(tasks)
    assert np.isfinite(learner.adapt_many(tasks)).all()
    assert np.isfinite(ConditionalLearner("mean").fit(tasks).adapt_many(tasks)).all()


def test_a_callable_may_read_the_description(with_side):
    tasks, _ = with_side
    learner = ConditionalLearner(lambda task: task.side_info).fit(tasks[:20])
    assert np.isfinite(learner.adapt(side_info=tasks[0].side_info).coef_).all()


def test_posterior_map_serves_algorithm_1(clusters):
    learner = ConditionalLearner("posterior", step_size=0.3).fit(clusters)
    assert learner.n_side_ == 2 + 1 + 6 + 2
    with pytest.raises(ValueError, match="not fitted"):
        PosteriorMap().transform(clusters)
    phi = PosteriorMap(n_components=3).fit(clusters).transform(clusters)
    np.testing.assert_allclose(phi[:, 3:6].sum(axis=1), 1.0)


# ---------------------------------------------------------------- saving and clipping


def test_round_trip(with_side, mixture, clusters, tmp_path):
    tasks, learner = with_side
    for learner_, tasks_ in ((learner, tasks), (mixture, clusters)):
        learner_.save(tmp_path / "a")
        again = tailored.load(tmp_path / "a")
        np.testing.assert_array_equal(again.adapt_many(tasks_), learner_.adapt_many(tasks_))
        assert again.score(tasks_) == learner_.score(tasks_)
        assert again.form_ == learner_.form_
        one = tasks_[1]
        np.testing.assert_array_equal(
            again.adapt(one.X, one.y, side_info=one.side_info).coef_,
            learner_.adapt(one.X, one.y, side_info=one.side_info).coef_,
        )
        with pytest.raises(ValueError, match="partial_fit"):
            again.partial_fit(tasks_)


@pytest.mark.parametrize(
    "learner",
    [
        ConditionalLearner(clip=(-0.5, 0.25)),
        ConditionalLearner(clip=(-0.5, 0.25), step_size=0.3),
        UnconditionalLearner(clip=(-0.5, 0.25), step_sizes=(0.1, 1.0)),
        IndependentLearner(clip=(-0.5, 0.25)),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_clip(learner, clusters, tmp_path):
    learner.fit(clusters)
    groups = np.repeat(clusters.labels, clusters.sizes)
    X = 10.0 * clusters.X
    prediction = learner.predict(X, groups=groups)
    assert prediction.min() == -0.5
    assert prediction.max() == 0.25
    model = learner.adapt(clusters[0].X, clusters[0].y)
    assert set(model.predict(100.0 * clusters.X)) >= {-0.5, 0.25}
    far = TaskSet(clusters.X, np.full(len(groups), 9.0), groups)
    np.testing.assert_allclose(learner.task_errors(clusters, far, loss="absolute").min(), 8.75, atol=0.3)
    assert (learner.task_errors(clusters, far, loss="absolute") >= 8.75).all()
    learner.save(tmp_path / "a")
    assert tailored.load(tmp_path / "a").predict is not None
    assert tailored.load(tmp_path / "a").clip_ == (-0.5, 0.25)


def test_clip_to_the_training_targets(clusters):
    learner = ConditionalLearner(clip="train").partial_fit(clusters[:40])
    assert learner.clip_ == (clusters[:40].y.min(), clusters[:40].y.max())
    learner.partial_fit(clusters[40:])
    assert learner.clip_ == (clusters.y.min(), clusters.y.max())
    for clip in ("test", (1.0, 0.0), (0.0,), 3.0, (0.0, np.nan)):
        with pytest.raises((ValueError, TypeError), match="clip"):
            ConditionalLearner(clip=clip).fit(clusters)


# ---------------------------------------------------------------- arguments


def test_the_paper_is_one_call_away(clusters):
    learner = ConditionalLearner.paper(step_sizes=(0.1, 1.0)).fit(clusters)
    assert learner.size_exponent_ == 0
    assert learner.within_loss_ == learner.loss_
    params = ConditionalLearner.paper().get_params()
    assert params["step_sizes"] == PAPER_STEP_SIZES
    assert (params["feature_map"], params["inner"], params["step_size"]) == ("mean", "online", "search")
    assert ConditionalLearner.paper(inner="exact").inner == "exact"


GIVEN = {
    "inner": "online",
    "objective": "query",
    "rank": None,
    "bias": "shared",
    "solver": "lbfgs",
    "batch_size": 8,
    "max_passes": 3,
    "step_sizes": (1.0,),
    "step_ratios": (1.0,),
    "theory_constants": {"L": 1.0},
    "initial_representation": np.eye(6),
    "lipschitz": 1.0,
    "scale_features": False,
    "support": 0.3,
}


@pytest.mark.parametrize("name", ALGORITHM_1_ONLY)
def test_arguments_of_algorithm_1_ask_for_it(name, clusters):
    """They are never ignored: with step_size=None each of them means step_size="search"."""
    fast = {} if name == "step_sizes" else {"step_sizes": (1.0,)}
    implied = ConditionalLearner(**{name: GIVEN[name]}, **fast).fit(clusters)
    assert implied.size_exponent_ == 0
    asked = ConditionalLearner(**{name: GIVEN[name]}, **fast, step_size="search").fit(clusters)
    np.testing.assert_array_equal(implied.conditioning_.C, asked.conditioning_.C)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_losses_without_a_practical_form(loss, clusters):
    signs = TaskSet(clusters.X, np.sign(clusters.y), np.repeat(clusters.labels, clusters.sizes))
    assert ConditionalLearner(loss=loss, step_sizes=(1.0,)).fit(signs).size_exponent_ == 0
    assert not ConditionalLearner(loss=loss)._has_practical_form()


@pytest.mark.parametrize("loss", ["squared", "huber", "epsilon_insensitive"])
def test_other_losses(loss, clusters):
    learner = ConditionalLearner(loss=loss).fit(clusters)
    assert learner.score(clusters) > 0.5


def test_algorithms_do_not_mix(clusters):
    learner = ConditionalLearner().partial_fit(clusters[:20])
    learner.set_params(step_size="search")
    with pytest.raises(ValueError, match="step_size"):
        learner.partial_fit(clusters[20:])
    learner.fit(clusters)
    assert learner.size_exponent_ == 0
    assert not hasattr(learner, "form_")


def test_wide_rows_are_refused():
    rng = np.random.default_rng(0)
    X = sp.random_array((60, 3000), density=0.001, rng=rng, format="csr")
    with pytest.raises(ValueError, match=r"step_size='search'.*rank"):
        ConditionalLearner().fit(X, rng.normal(size=60), groups=np.repeat(np.arange(20), 3))


# ---------------------------------------------------------------- tiny and odd data


def odd_tasks():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 5)), rng.normal(size=6)
    constant = X.copy()
    constant[:, 2] = 3.0
    constant[:, 4] = 0.0
    return {
        "one row": [(X[:1], y[:1])],
        "one task": [(X, y)],
        "one row in each task": [(X[i : i + 1], y[i : i + 1]) for i in range(6)],
        "two tasks": [(X[:3], y[:3]), (X[3:], y[3:])],
        "more columns than rows": [(rng.normal(size=(2, 30)), rng.normal(size=2)) for _ in range(4)],
        "constant columns": [(constant, y), (constant[:4], y[:4]), (constant[2:], y[2:])],
        "duplicated rows": [(np.repeat(X[:1], 5, axis=0), np.repeat(y[:1], 5))] * 3,
        "duplicated tasks": [(X, y)] * 12,
        "targets all zero": [(X, np.zeros(6))] * 4,
        "targets all equal": [(X, np.full(6, 7.0))] * 4,
        "rows all zero": [(np.zeros((4, 5)), y[:4])] * 3,
        "a task without rows": [(X, y), (X[:0], y[:0]), (X[:2], y[:2])],
        "huge": [(1e8 * X, 1e10 * y)] * 4,
        "tiny": [(1e-8 * X, 1e-10 * y)] * 4,
        "no noise": [(rng.normal(size=(8, 5)), np.zeros(8)) for _ in range(10)],
    }


@pytest.mark.parametrize("name", odd_tasks())
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_tiny_and_odd_data(name, fit_intercept):
    tasks = TaskSet.from_tasks(odd_tasks()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = ConditionalLearner(fit_intercept=fit_intercept).fit(tasks)
        assert np.isfinite(learner.adapt_many(tasks)).all()
        assert np.isfinite(learner.validation_error_)
        model = learner.adapt(tasks[0].X, tasks[0].y)
        assert np.isfinite(model.predict(tasks.X)).all()
        assert np.isfinite(learner.adapt().coef_).all()
