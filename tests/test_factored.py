"""Learning on factors of H and C: gradients, coordinates, both training loops, and the learners' side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import reference as ref
import tailored
from tailored import ConditionalLearner, TaskSet, UnconditionalLearner, adapting, losses
from tailored.datasets import make_clusters
from tailored.objectives import Query, Surrogate
from tailored.prior import Prior
from tailored.representation import Bias, Constant
from tailored.solvers import LBFGS, SOLVERS, Adam, Problem, ProjectedSGD, TaskBatch
from tailored.solvers import adam as adam_module
from tailored.solvers import factors as factors_module
from tailored.solvers.batch import concatenated
from tailored.solvers.best import SCALE_RANGE, best_scale
from tailored.solvers.factored import FactoredSolver
from tailored.solvers.factors import FactoredObjective, Factors, transformed
from tailored.solvers.start import Coordinates, State
from tailored.tasks import Rows, Units

L = 0.4
FACTORED = [name for name, kind in SOLVERS.items() if issubclass(kind, FactoredSolver)]
every_solver = pytest.mark.parametrize("solver", FACTORED)
LOSSES = {
    "squared": (losses.LOSSES["squared"](), ref.squared()),
    "absolute": (losses.LOSSES["absolute"](), ref.absolute()),
}


def solver_of(name, max_passes, batch_size=32):
    return Adam(batch_size, max_passes) if name == "adam" else SOLVERS[name](max_passes)


def random_rows(rng, sizes, d):
    X = rng.normal(size=(sum(sizes), d)) / np.sqrt(d)
    y = X @ rng.normal(size=d) + rng.normal(size=len(X))
    return Rows(X, y, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def random_batch(rng, d=3, k=2, support=(6, 1, 9, 4), query=(4, 3, 5, 2)):
    T = len(support)
    phis = rng.normal(size=(T, k))
    return TaskBatch(random_rows(rng, support, d), random_rows(rng, query, d), phis, np.ones(T))


def random_factors(rng, d=3, k=2, r=2, bias="conditional"):
    prior = Bias.zero(bias, d, k)
    start = Factors.of(np.eye(d), k, r, prior)
    return start.unpack(0.6 * rng.normal(size=start.pack().size))


def objective_of(kind, loss, tol=1e-13):
    return Query(loss, tol) if kind == "query" else Surrogate(loss, L, tol=tol)


def same(a, b):
    np.testing.assert_array_equal(a.conditioning_.C, b.conditioning_.C)
    np.testing.assert_array_equal(a.conditioning_.tensor(), b.conditioning_.tensor())
    np.testing.assert_array_equal(a.bias_.constant, b.bias_.constant)
    np.testing.assert_array_equal(a.bias_.linear, b.bias_.linear)
    assert a.search_results_ == b.search_results_


# --- the objective over factors -----------------------------------------------------------------------------


@pytest.mark.parametrize("bias", ["none", "shared", "conditional"])
@pytest.mark.parametrize("kind", ["surrogate", "query"])
@pytest.mark.parametrize("name", LOSSES)
def test_value_is_the_mean_over_the_tasks_and_the_gradient_its_difference(name, kind, bias):
    loss, reference = LOSSES[name]
    rng = np.random.default_rng(3)
    batch, factors, unit = random_batch(rng), random_factors(rng, bias=bias), 1.7
    objective = FactoredObjective(objective_of(kind, loss), unit)
    value, gradient = objective(factors, batch)

    H = factors.M.reshape(6, 2) @ factors.M.reshape(6, 2).T
    expected = []
    for t, phi in enumerate(batch.phis):
        (X, y), (Xq, yq) = (
            (r.X[r.offsets[t] : r.offsets[t + 1]], r.y[r.offsets[t] : r.offsets[t + 1]])
            for r in (batch.support, batch.query)
        )
        theta = ref.tau(H, factors.F @ factors.F.T, phi)
        b = np.zeros(3)
        if bias != "none":
            b = unit * (factors.b0 + (factors.B @ phi if bias == "conditional" else 0.0))
        if kind == "query":
            expected.append(ref.query_risk(theta, X, y, Xq, yq, reference, b))
        else:
            expected.append(ref.surrogate(theta, X, y, reference, L, X @ b))
    assert value == pytest.approx(np.mean(expected), rel=1e-8)

    # every coordinate by itself: a wrong sign in one part cannot hide behind another
    vector, slopes = factors.pack(), gradient.pack()
    assert slopes.shape == vector.shape
    for j in range(len(vector)):
        e = 1e-5 * (np.arange(len(vector)) == j)
        ends = [objective(factors.unpack(vector + sign * e), batch)[0] for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slopes[j], rel=1e-5, abs=1e-7)
    assert np.abs(gradient.M).max() > 1e-3
    assert np.abs(gradient.F).max() > 1e-3


def test_no_H_at_all():
    """k = 0 is the unconditional learner's case: only F moves."""
    rng = np.random.default_rng(4)
    batch = random_batch(rng, k=0)
    factors = random_factors(rng, k=0, r=0, bias="none")
    objective = FactoredObjective(objective_of("query", LOSSES["squared"][0]))
    _, gradient = objective(factors, batch)
    E = rng.normal(size=(3, 3))
    ends = [objective(replace(factors, F=factors.F + h * E), batch)[0] for h in (1e-5, -1e-5)]
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(np.sum(gradient.F * E), rel=1e-5)
    assert gradient.M.size == gradient.b0.size == 0


def test_M_equal_to_zero_is_a_saddle():
    """Why no start is there: the gradient in M vanishes though H would help."""
    rng = np.random.default_rng(5)
    batch, factors = random_batch(rng), random_factors(rng)
    at_zero = replace(factors, M=np.zeros_like(factors.M))
    _, gradient = FactoredObjective(objective_of("query", LOSSES["squared"][0]))(at_zero, batch)
    assert not gradient.M.any()


@pytest.mark.parametrize("kind", ["surrogate", "query"])
def test_sparse_tasks_pieces_and_jobs(kind, monkeypatch):
    rng = np.random.default_rng(6)
    batch, factors = random_batch(rng, d=5, k=3), random_factors(rng, d=5, k=3, r=4)
    for rows in (batch.support, batch.query):
        rows.X[rng.uniform(size=rows.X.shape) < 0.6] = 0.0
    objective = FactoredObjective(objective_of(kind, LOSSES["absolute"][0]))
    value, gradient = objective(factors, batch)

    columns = []
    for t in range(len(batch)):
        one = batch.slice(t, t + 1)
        columns.append(np.flatnonzero(np.vstack([one.support.X, one.query.X]).any(axis=0)))
    assert any(len(own) < 5 for own in columns)
    support, query = (r._replace(X=sp.csr_array(r.X)) for r in (batch.support, batch.query))
    thin = replace(batch, support=support, query=query, columns=columns)
    sparse_value, sparse_gradient = objective(factors, thin)
    assert sparse_value == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(sparse_gradient.pack(), gradient.pack(), atol=1e-8)

    monkeypatch.setattr(factors_module, "PIECE_TASKS", 1)
    one_job = objective(factors, batch)
    two_jobs = replace(objective, n_jobs=2)(factors, batch)
    np.testing.assert_allclose(one_job[1].pack(), gradient.pack(), atol=1e-12)
    assert one_job[0] == two_jobs[0]
    np.testing.assert_array_equal(one_job[1].pack(), two_jobs[1].pack())


@pytest.mark.parametrize("is_sparse", [False, True])
def test_coordinates_change_nothing_but_the_numbers(is_sparse):
    rng = np.random.default_rng(7)
    batch, factors = random_batch(rng), random_factors(rng)
    transform = np.diag([0.5, 2.0, 3.0]) if is_sparse else rng.normal(size=(3, 3))
    if is_sparse:
        support, query = (r._replace(X=sp.csr_array(r.X)) for r in (batch.support, batch.query))
        batch = replace(batch, support=support, query=query, columns=[np.arange(3)] * 4)
    objective = objective_of("query", LOSSES["squared"][0])
    inside, _ = FactoredObjective(objective, 0.3)(factors, transformed(batch, transform, 1.9))
    raw = factors.mapped(transform, 1.9, 0.3)
    assert FactoredObjective(objective)(raw, batch)[0] == pytest.approx(inside, rel=1e-9)
    conditioning, bias = raw.conditioning(rank=2), raw.bias("conditional")
    np.testing.assert_allclose(conditioning.basis.T @ conditioning.basis, np.eye(2), atol=1e-12)
    for phi in batch.phis:
        V = raw.slices(phi[None])[0]
        np.testing.assert_allclose(conditioning(phi), V @ V.T + raw.F @ raw.F.T, atol=1e-10)
        np.testing.assert_allclose(bias(phi), raw.means(phi[None])[0], atol=1e-12)


def test_batches_are_taken_and_joined_by_task():
    batch = random_batch(np.random.default_rng(8))
    index = np.array([2, 0, 3, 1])
    joined = concatenated([batch.slice(t, t + 1) for t in index])
    taken = batch.take(index)
    for a, b in ((joined, taken), (batch, taken.take(np.argsort(index)))):
        for rows, others in ((a.support, b.support), (a.query, b.query)):
            for one, other in zip(rows, others, strict=True):
                np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(a.phis, b.phis)


# --- training loops -----------------------------------------------------------------------------------------


def problem_of(batch, objective, judge, *, rank, d):
    """A problem whose tasks are nothing but the batch, and whose held-out tasks are the judge."""
    k = batch.phis.shape[1]
    prior = Prior(Constant(np.eye(d), k), Bias.zero("none", d, k), Units.raw(d))
    tasks = TaskSet.from_arrays(*batch.support, np.arange(len(batch)))
    return Problem(prior, objective, tasks, batch, lambda i: batch, judge, rank=rank, seed=[0])


def identity_state(start):
    """Coordinates that change nothing."""
    return State(start, Coordinates(np.eye(len(start.F)), 1.0, 1.0))


def test_lbfgs_goes_below_projected_steps():
    """The same surrogate, the same tasks: the minimum over factors of full rank is the convex one."""
    tasks = make_clusters(30, n_clusters=2, n_rows=12, n_features=4, rank=2, random_state=0)
    projected = ConditionalLearner(
        "ridge", solver=ProjectedSGD(1.0), rank=None, scale_features=False, fit_intercept=False
    ).fit(tasks)
    phis, rows = adapting.features(projected.prior_, tasks), Rows.of(tasks)
    batch = TaskBatch(rows, None, phis, np.ones(30))
    objective = Surrogate(losses.LOSSES["absolute"](), 1.0)

    def value(conditioning, bias):
        return float(objective(rows, None, conditioning.evaluate(phis), None).value.mean())

    start = Factors.of(np.eye(4), phis.shape[1], 8, Bias.zero("none", 4, phis.shape[1]))
    start = replace(start, M=0.1 * np.random.default_rng(0).normal(size=start.M.shape))
    problem = problem_of(batch, objective, value, rank=8, d=4)
    solution = LBFGS(max_passes=60).solve(problem, identity_state(start))
    values = [step["error"] for step in solution.history]
    assert len(values) > 10
    assert np.all(np.diff(values) < 1e-12)
    assert values[-1] < 0.95 * values[0]
    assert solution.error == values[-1] < value(projected.conditioning_, projected.bias_)
    assert value(solution.prior.conditioning, solution.prior.bias) == solution.error


@every_solver
def test_loops_return_the_best_iterate_and_stop_without_gain(solver, monkeypatch):
    """Held-out tasks that like nothing but the start, or only the second iterate, get just that."""
    monkeypatch.setattr(adam_module, "STEPS_BETWEEN", 1)
    rng = np.random.default_rng(9)
    batch, start = random_batch(rng), random_factors(rng, bias="none")
    objective = objective_of("surrogate", LOSSES["squared"][0])
    made, state = solver_of(solver, 40, batch_size=2), identity_state(start)

    errors = iter(range(1000))
    problem = problem_of(batch, objective, lambda tau, b: float(next(errors)), rank=2, d=3)
    solution = made.solve(problem, state)
    np.testing.assert_array_equal(solution.state.factors.pack(), start.pack())
    assert len(solution.history) == 1 + made.patience
    assert (solution.error, solution.n_iter) == (0.0, made.patience)
    seen = []

    def third(conditioning, bias):
        seen.append(conditioning)
        return 0.0 if len(seen) == 3 else 1.0

    solution = made.solve(replace(problem, judge=third), state)
    np.testing.assert_array_equal(solution.prior.conditioning.tensor(), seen[2].tensor())
    np.testing.assert_array_equal(solution.prior.conditioning.C, seen[2].C)
    assert np.abs(seen[2].C - start.F @ start.F.T).max() > 1e-4
    assert len(solution.history) == 3 + made.patience
    # the state that was given is left as it was
    np.testing.assert_array_equal(state.factors.pack(), start.pack())


def test_multiples_are_walked_to_the_nearest_valley():
    assert best_scale(lambda c: abs(np.log2(c) - 3), 1.0) == (8.0, 0.0)
    assert best_scale(lambda c: abs(np.log2(c) + 2), 1.0) == (0.25, 0.0)
    assert best_scale(lambda c: -c, 1.0)[0] == SCALE_RANGE[1]


@every_solver
def test_there_are_no_iterates_to_show(solver):
    batch = random_batch(np.random.default_rng(10))
    problem = problem_of(batch, objective_of("query", LOSSES["squared"][0]), lambda tau, b: 0.0, rank=2, d=3)
    with pytest.raises(ValueError, match=r"callback.*ProjectedSGD"):
        solver_of(solver, 1).solve(problem, callback=print)


# --- learners -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clusters():
    return make_clusters(60, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


@every_solver
@pytest.mark.parametrize("objective", ["surrogate", "query"])
def test_conditioning_is_found(solver, objective):
    """Tasks of four orthogonal planes, and side information that says which: new tasks are easier with it."""
    rng = np.random.default_rng(0)
    # Of 100 tasks Adam gets away from its start for one draw of held-out ones in three, in whichever order they come.
    n_tasks = 100 if solver == "lbfgs" else 300
    entries = []
    for t in range(n_tasks + 50):
        w, s = np.zeros(8), np.eye(4)[t % 4]
        w[2 * (t % 4) : 2 * (t % 4) + 2] = rng.normal(size=2)
        X = rng.normal(size=(12, 8))
        entries.append((X, X @ w + 0.3 * rng.normal(size=12), s))
    tasks = TaskSet.from_tasks(entries)
    options = {"loss": "squared", "objective": objective, "solver": solver_of(solver, 12, batch_size=8)}
    unconditional = UnconditionalLearner(**{"fit_intercept": False, **options}).fit(tasks[:n_tasks])
    conditional = ConditionalLearner(rank=8, **{"fit_intercept": False, **options}).fit(tasks[:n_tasks])
    assert conditional.validation_error_ < 0.8 * conditional.search_results_[0]["error"]
    errors = [meta.task_errors(tasks[n_tasks:]).mean() for meta in (conditional, unconditional)]
    assert errors[0] < 0.8 * errors[1]


@every_solver
@pytest.mark.parametrize("objective", ["surrogate", "query"])
def test_where_there_is_nothing_to_condition_on_it_keeps_to_its_start(solver, objective):
    tasks = make_clusters(40, n_clusters=1, n_rows=10, n_features=6, rank=6, random_state=2)
    learner = ConditionalLearner(
        "ridge", solver=solver_of(solver, 8), objective=objective, fit_intercept=False
    ).fit(tasks)
    errors = [step["error"] for step in learner.search_results_]
    assert learner.validation_error_ == min(errors) <= errors[0]
    # and that is the error of what was returned, not of something that was met on the way
    support, query = learner._stream.pool.tasks()
    assert learner.task_errors(support, query).mean() == pytest.approx(learner.validation_error_, rel=1e-9)
    assert learner.prior_.size_exponent == 0


@every_solver
def test_results_follow_from_random_state_alone(solver, clusters, monkeypatch):
    options = {"solver": solver_of(solver, 2), "objective": "query", "bias": "conditional", "rank": 4}
    tasks = clusters[:30]
    monkeypatch.setattr(factors_module, "PIECE_TASKS", 16)
    one = ConditionalLearner("ridge", **{"fit_intercept": False, **options}).fit(tasks)
    same(one, ConditionalLearner("ridge", n_jobs=1, **{"fit_intercept": False, **options}).fit(tasks))
    same(one, ConditionalLearner("ridge", n_jobs=2, **{"fit_intercept": False, **options}).fit(tasks))
    other = ConditionalLearner("ridge", random_state=1, **{"fit_intercept": False, **options}).fit(tasks)
    assert not np.array_equal(one.conditioning_.C, other.conditioning_.C)


@every_solver
def test_units_of_the_data_do_not_matter(solver):
    """Squared loss: other units of the columns and of the target give the same predictions in them."""
    rng = np.random.default_rng(11)
    entries = []
    for _ in range(40):
        X, s = rng.normal(size=(4, 5)), rng.normal(size=2)
        entries.append((X, X[:, :2] @ s + 0.3 * rng.normal(size=4), s))
    units = np.array([100.0, 0.01, 1.0, 10.0, 2.0])
    moved = TaskSet.from_tasks([(X * units, 50.0 * y, s) for X, y, s in entries])
    tasks = TaskSet.from_tasks(entries)
    options = {"loss": "squared", "objective": "query", "bias": "conditional"}
    a = ConditionalLearner(
        solver=solver_of(solver, 4, batch_size=4), **{"fit_intercept": False, **options}
    ).fit(tasks)
    b = ConditionalLearner(
        solver=solver_of(solver, 4, batch_size=4), **{"fit_intercept": False, **options}
    ).fit(moved)
    assert a.validation_error_ < a.search_results_[0]["error"]
    np.testing.assert_allclose(b.adapt_many(moved) * units, 50.0 * a.adapt_many(tasks), rtol=2e-4, atol=1e-3)


@every_solver
@pytest.mark.parametrize("bias", ["none", "conditional"])
def test_sparse_rows_give_a_model_as_well(solver, bias):
    """Ratings of items: query rows are of items that the support rows do not touch."""
    rng = np.random.default_rng(5)
    entries = []
    for _ in range(20):
        items = rng.choice(9, size=6, replace=False)
        X = np.zeros((6, 9))
        X[np.arange(6), items] = 1.0
        entries.append((X, rng.normal() + 0.1 * rng.normal(size=6)))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    options = {"solver": solver_of(solver, 3), "objective": "query", "bias": bias, "rank": 3}
    # One draw in five ends in a covariance that is nearly singular, and rounding then parts the two by up to 1e-2.
    options["random_state"] = 5
    meta = ConditionalLearner("ridge", loss="squared", **{"fit_intercept": False, **options}).fit(sparse)
    np.testing.assert_allclose(meta.adapt_many(sparse), meta.adapt_many(dense), atol=1e-9)
    # a rank-one covariance is the truth; an item is predicted from the others
    assert meta.task_errors(sparse).mean() < 0.5 * np.mean(dense.y**2) / 2


def test_query_steps_on_sparse_rows_are_those_on_dense_rows():
    """Algorithm 1 too: the columns of a task are those of its support and its query rows."""
    rng = np.random.default_rng(6)
    entries = []
    for _ in range(10):
        X = np.zeros((6, 9))
        X[np.arange(6), rng.choice(9, size=6, replace=False)] = 1.0
        entries.append((X, rng.normal() + 0.1 * rng.normal(size=6)))
    dense = TaskSet.from_tasks(entries)
    sparse = TaskSet.from_tasks([(sp.csr_array(X), y) for X, y in entries])
    options = {"solver": ProjectedSGD(0.5), "objective": "query", "rank": 6, "bias": "shared"}
    a, b = (
        ConditionalLearner("ridge", **{"fit_intercept": False, **options}).fit(dense),
        ConditionalLearner("ridge", **{"fit_intercept": False, **options}).fit(sparse),
    )
    assert np.abs(a.conditioning_.C - np.eye(9)).max() > 1e-3
    np.testing.assert_allclose(a.conditioning_.C, b.conditioning_.C, atol=1e-9)
    np.testing.assert_allclose(a.bias_.constant, b.bias_.constant, atol=1e-9)


@pytest.mark.parametrize("loss", ["huber", "pinball", "epsilon_insensitive", "logistic", "hinge"])
@every_solver
def test_every_loss_has_a_start(loss, solver, clusters):
    tasks = clusters
    if loss in ("logistic", "hinge"):
        groups = np.repeat(clusters.labels, clusters.sizes)
        tasks = TaskSet(clusters.X, np.where(clusters.y > 0, 1.0, -1.0), groups)
    learner = ConditionalLearner("ridge", loss=loss, solver=solver_of(solver, 2), rank=3, fit_intercept=False)
    learner.fit(tasks)
    zero = learner.loss_.value(np.zeros(len(tasks.y)), tasks.y).mean()
    assert learner.validation_error_ < 0.9 * zero


def held_out_targets(learner):
    return learner._stream.pool.tasks()[1].y


def test_initial_representation_is_the_start(clusters):
    """Taken as it is, whatever its rank; C = 0 is moved off the saddle."""
    options = {"solver": Adam(max_passes=30), "objective": "query", "rank": 3, "calibrate": False}
    far = ConditionalLearner("ridge", initial_representation=1e-6, **{"fit_intercept": False, **options}).fit(
        clusters
    )
    near = ConditionalLearner("ridge", initial_representation=5.0, **{"fit_intercept": False, **options}).fit(
        clusters
    )
    assert near.search_results_[0]["error"] < 0.7 * far.search_results_[0]["error"]
    zero = ConditionalLearner("ridge", initial_representation=0.0, **{"fit_intercept": False, **options}).fit(
        clusters
    )
    # where it starts is small, and it gets away from there
    np.testing.assert_allclose(
        zero.search_results_[0]["error"], np.abs(held_out_targets(zero)).mean(), rtol=0.1
    )
    assert zero.validation_error_ < 0.999 * zero.search_results_[0]["error"]


def test_adam_goes_on_with_more_tasks():
    # Tasks of which the first 30 say much less than all: what is best moves far.
    clusters = make_clusters(60, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=2)
    learner = ConditionalLearner(
        "ridge", solver=Adam(max_passes=20), objective="query", rank=4, fit_intercept=False
    )
    learner.partial_fit(clusters[:30])
    before = learner.prior_
    learner.partial_fit(clusters[30:])
    assert learner.n_tasks_seen_ == 60
    support, query = learner._stream.pool.tasks()
    after = learner.task_errors(support, query).mean()
    assert after == pytest.approx(learner.validation_error_, rel=1e-9)
    assert np.abs(learner.conditioning_.C - before.conditioning.C).max() > 1e-6
    learner.prior_ = before
    assert after <= learner.task_errors(support, query).mean() * (1 + 1e-9)


def test_persistence_clone_and_parameters(clusters, tmp_path):
    for learner in (
        ConditionalLearner(
            "ridge", solver=Adam(batch_size=7, max_passes=2), bias="conditional", fit_intercept=False
        ),
        UnconditionalLearner(solver=LBFGS(max_passes=3), bias="shared", fit_intercept=False),
    ):
        copy = clone(learner)
        assert copy.solver is not learner.solver
        assert copy.solver.get_params() == learner.solver.get_params()
        learner.fit(clusters).save(tmp_path / "learner")
        again = tailored.load(tmp_path / "learner")
        np.testing.assert_array_equal(again.adapt_many(clusters), learner.adapt_many(clusters))
        assert type(again.solver) is type(learner.solver)
        assert again.solver.get_params() == learner.solver.get_params()
        same(copy.fit(clusters), learner)


@pytest.mark.filterwarnings("ignore::tailored.exceptions.SingleTaskWarning")
@parametrize_with_checks(
    [
        UnconditionalLearner(solver=LBFGS(max_passes=3), fit_intercept=False),
        ConditionalLearner(
            "ridge", solver=Adam(max_passes=2), objective="query", bias="shared", rank=4, fit_intercept=False
        ),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_errors_name_the_argument_and_the_fix(clusters):
    cases = [
        ({"solver": "lbgfs"}, ValueError, "solver.*'lbfgs'"),
        ({"solver": Adam(batch_size=0)}, ValueError, "batch_size"),
        ({"solver": LBFGS(max_passes=2.5)}, TypeError, "max_passes"),
        ({"solver": "adam", "rank": None}, ValueError, "rank.*rank=32"),
        ({"solver": "lbfgs", "inner": "online"}, ValueError, "inner.*'exact'"),
        ({"solver": Adam}, TypeError, "solver.*'adam'.*tailored.solvers"),
        ({"solver": 0.1}, TypeError, "solver.*'adam'.*float"),
    ]
    for options, kind, pattern in cases:
        with pytest.raises(kind, match=pattern):
            ConditionalLearner(**{"fit_intercept": False, **options}).fit(clusters)
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        UnconditionalLearner(solver="lbfgs", fit_intercept=False).partial_fit(clusters)
    assert "all tasks at once; use solver='projected' or 'adam'" in str(caught.value.__cause__)
    assert not hasattr(UnconditionalLearner(solver=LBFGS(), fit_intercept=False), "partial_fit")
    assert [name for name, kind in SOLVERS.items() if not kind.streams] == ["lbfgs"]
    learner = ConditionalLearner(solver=Adam(max_passes=1), fit_intercept=False).partial_fit(clusters[:20])
    learner.set_params(solver="projected")
    with pytest.raises(ValueError, match=r"solver.*call fit"):
        learner.partial_fit(clusters[20:])


def test_solvers_leave_no_attribute_of_each_other(clusters):
    learner = UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1,)), fit_intercept=False).fit(clusters)
    assert learner.step_size_.C == 0.1
    learner.set_params(solver=LBFGS(max_passes=2)).fit(clusters)
    assert not hasattr(learner, "step_size_")
