"""What a description moves in the prior mean: linear, curved, all weights or the intercept alone."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import tailored
from folds import few_folds
from studies.theory.bayes import CurveOracle
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.datasets import make_circle
from tailored.empirical_bayes import selection
from tailored.empirical_bayes.data import significant
from tailored.empirical_bayes.selection import Candidate, decide
from tailored.feature_maps import MeanEmbedding, SideVector
from tailored.feature_maps.side_features import DEGREE, KNOTS, LEAST_VALUES, Curve, SideFeatures
from tailored.gaussian.em import fit_mixed_model
from tailored.gaussian.moments import Moments
from tailored.gaussian.side import (
    SIDE_PENALTIES,
    SideFit,
    SideStructure,
    _intercepts,
    fit_side,
    fit_side_path,
    side_structures,
)
from tailored.gaussian.structures import Structure, StructureFitter
from tailored.tasks.rows import Scaling

D, Q = 3, 2


def tiny(seed=0, T=25, n=4, level=0.0, intercept_only=False):
    """Rows whose last column is constant, and features whose mean over the tasks is ``level``."""
    rng = np.random.default_rng(seed)
    Gamma = rng.normal(size=(D, Q))
    if intercept_only:
        Gamma[:-1] = 0.0
    L = np.array([[0.5, 0, 0], [0.2, 0.3, 0], [0.3, -0.1, 0.4]])
    v = rng.normal(size=(T, Q))
    v += level - v.mean(axis=0)
    rows = []
    for s in v:
        X = np.column_stack([rng.normal(size=(n, D - 1)), np.ones(n)])
        y = X @ (np.arange(D) + Gamma @ s + L @ rng.normal(size=D)) + 0.4 * rng.normal(size=n)
        rows.append((X, y, s))
    statistics = Moments.of(TaskSet.from_tasks(rows), Scaling.raw(D), v)
    return statistics, rows, Gamma


def by_least_squares(rows, W, noise, penalty, used, intercept_only):
    """b and Γ that minimise Σ (y − X(b + Γv))ᵀ (XWXᵀ + σ²I)⁻¹ (..) + penalty tr ΓᵀW⁻¹Γ, by one large system."""
    d = len(W)
    A, right = np.zeros((d * (1 + used),) * 2), np.zeros(d * (1 + used))
    for X, y, s in rows:
        Z = np.hstack([X, *(X * value for value in s[:used])])
        V = np.linalg.inv(X @ W @ X.T + noise * np.eye(len(y)))
        A += Z.T @ V @ Z
        right += Z.T @ V @ y
    A[d:, d:] += penalty * np.kron(np.eye(used), np.linalg.inv(W))
    free = np.ones(len(A), dtype=bool)
    if intercept_only:
        free[d:] = np.tile(np.arange(d) == d - 1, used)
    out = np.zeros(len(A))
    out[free] = np.linalg.solve(A[np.ix_(free, free)], right[free])
    return out[:d], out[d:].reshape(used, d).T


def log_likelihood(rows, b, Gamma, W, noise):
    return sum(
        multivariate_normal.logpdf(y, X @ (b + Gamma @ s), X @ W @ X.T + noise * np.eye(len(y)))
        for X, y, s in rows
    )


# ------------------------------------------------------------------------------------------- Γ by EM


@pytest.mark.parametrize("level", [0.0, 0.7])
@pytest.mark.parametrize("penalty", [1.0, 30.0])
@pytest.mark.parametrize("intercept_only", [False, True])
def test_where_em_ends_is_generalised_least_squares(intercept_only, penalty, level):
    """Given W and σ², Γ and b are those of the penalised likelihood; features need not be centred for it."""
    statistics, rows, _ = tiny(level=level, intercept_only=intercept_only)
    fit = fit_side(statistics, SideStructure(penalty, intercept_only), Q, max_iter=5000, tol=1e-9)
    W, noise = fit.rest.covariances[0], fit.rest.noise
    pull = penalty * np.mean(statistics.side**2)
    b, Gamma = by_least_squares(rows, W, noise, pull, Q, intercept_only)
    np.testing.assert_allclose(fit.Gamma, Gamma, atol=1e-6)
    np.testing.assert_allclose(fit.rest.means[0], b, atol=1e-6)
    if intercept_only:
        assert not fit.Gamma[:-1].any()
    # the same by direct minimisation, to be sure of the one large system
    precision, covariances = np.linalg.inv(W), [X @ W @ X.T + noise * np.eye(len(y)) for X, y, _ in rows]
    inverses = [np.linalg.inv(V) for V in covariances]

    def objective(flat):
        b, moved = flat[:D], np.zeros((D, Q))
        moved[-1 if intercept_only else slice(None)] = flat[D:].reshape(-1, Q)
        left = [y - X @ (b + moved @ s) for X, y, s in rows]
        return sum(e @ P @ e for e, P in zip(left, inverses, strict=True)) + pull * np.trace(
            moved.T @ precision @ moved
        )

    start = np.zeros(D + (1 if intercept_only else D) * Q)
    found = minimize(objective, start, method="BFGS", options={"gtol": 1e-5}).x
    np.testing.assert_allclose(found[D:].reshape(-1, Q), Gamma[-1:] if intercept_only else Gamma, atol=1e-4)


def test_where_em_ends_the_variances_are_most_likely():
    """W and σ² are those of the likelihood given Γ: the penalty on Γ has no say in them."""
    statistics, rows, _ = tiny(T=40)
    fit = fit_side(statistics, SideStructure(5.0), Q, max_iter=5000, tol=1e-9)
    b, W, noise = fit.rest.means[0], fit.rest.covariances[0], fit.rest.noise
    best = log_likelihood(rows, b, fit.Gamma, W, noise)
    rng = np.random.default_rng(0)
    for _ in range(6):
        E = rng.normal(size=(D, D))
        E = 1e-3 * (E + E.T) * np.trace(W) / D
        up, down = (log_likelihood(rows, b, fit.Gamma, W + sign * E, noise) for sign in (1, -1))
        # a difference of second order in both directions: a maximum
        assert abs(up - down) / 2 < 2e-3
        assert max(up, down) < best + 2e-3
    assert log_likelihood(rows, b, fit.Gamma, W, 1.02 * noise) < best
    assert log_likelihood(rows, b, fit.Gamma, W, 0.98 * noise) < best


def test_model_of_a_fit_explains_the_tasks_as_they_are():
    statistics, rows, _ = tiny()
    fit = fit_side(statistics, SideStructure(1.0), Q)
    expected = log_likelihood(rows, fit.rest.means[0], fit.Gamma, fit.rest.covariances[0], fit.rest.noise)
    assert statistics.posterior(fit.model).log_evidence.sum() == pytest.approx(expected, rel=1e-8)
    plain = fit_mixed_model(statistics)
    assert expected > statistics.posterior(plain).log_evidence.sum() + 5.0


def test_intercepts_are_regressed_given_the_other_weights():
    """argmin over γ of Σ (δ − eγᵀv)ᵀ W⁻¹ (δ − eγᵀv) is a regression of δ_e − W_eo W_oo⁻¹ δ_o on v."""
    rng = np.random.default_rng(0)
    L = rng.normal(size=(4, 4))
    W, deviations, v = L @ L.T + 0.1 * np.eye(4), rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    P = np.linalg.inv(W)
    np.testing.assert_allclose(
        _intercepts(deviations, W), deviations @ P[:, -1] / P[-1, -1], rtol=1e-5, atol=1e-6
    )

    def objective(gamma):
        left = deviations.copy()
        left[:, -1] -= v @ gamma
        return np.einsum("ti,ij,tj->", left, P, left)

    found = minimize(objective, np.zeros(2), options={"gtol": 1e-8}).x
    expected = np.linalg.lstsq(v, _intercepts(deviations, W), rcond=None)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # an intercept alone has nothing to be regressed on; weights that do not vary say nothing
    np.testing.assert_array_equal(_intercepts(deviations[:, -1:], np.eye(1)), deviations[:, -1])
    alone = np.diag([0.0, 0.0, 0.0, 2.0])
    np.testing.assert_allclose(_intercepts(deviations, alone), deviations[:, -1])


def test_a_penalty_shrinks_and_another_start_changes_nothing():
    statistics, _, Gamma = tiny(T=60, n=8)
    options = {"max_iter": 3000, "tol": 1e-8}
    sizes, fit = [], None
    for penalty in (1e-3, 1.0, 100.0, 1e6):
        fit = fit_side(statistics, SideStructure(penalty), Q, fit, **options)
        cold = fit_side(statistics, SideStructure(penalty), Q, **options)
        np.testing.assert_allclose(fit.Gamma, cold.Gamma, atol=1e-4)
        sizes.append(np.linalg.norm(fit.Gamma))
        if penalty == 1e-3:
            np.testing.assert_allclose(fit.Gamma, Gamma, atol=0.5)
    assert (np.diff(sizes) < 0).all()
    assert sizes[-1] < 1e-3


def test_linear_forms_leave_the_curved_features_alone():
    statistics, _, _ = tiny()
    assert not fit_side(statistics, SideStructure(1.0), 1).Gamma[:, 1:].any()
    curved = fit_side(statistics, SideStructure(1.0, curved=True), 1)
    assert curved.Gamma[:, 1:].any()
    # from a fit of another form: what this one may not move is put back
    again = fit_side(
        statistics, SideStructure(1.0, intercept_only=True), 1, SideFit(curved.Gamma, curved.rest)
    )
    assert not again.Gamma[:, 1:].any()
    assert not again.Gamma[:-1].any()


def test_forms_come_simplest_first():
    forms = side_structures(True, True)
    n = len(SIDE_PENALTIES)
    assert [(f.curved, f.intercept_only) for f in forms[::n]] == [
        (False, True),
        (False, False),
        (True, True),
        (True, False),
    ]
    assert {f.penalty for f in forms[:n]} == set(SIDE_PENALTIES)
    assert all(not f.intercept_only for f in side_structures(False, True))
    assert all(not f.curved for f in side_structures(True, False))
    assert len(side_structures(False, False)) == n


# ----------------------------------------------------------------------------------------- features


def test_a_curve_is_a_partition_of_unity():
    rng = np.random.default_rng(0)
    values = rng.exponential(size=200)
    curve = Curve.fit(values, 1)
    assert curve.column == 1
    assert len(curve.knots) == KNOTS + 2 * DEGREE
    x = np.linspace(values.min(), values.max(), 101)
    basis = curve(np.column_stack([np.full(101, 99.0), x]))
    assert basis.shape == (101, KNOTS + DEGREE - 2)
    assert basis.min() >= 0.0
    # the first one was left out: it is what is missing, and gone beyond the first inner knot
    first, second = curve.knots[DEGREE : DEGREE + 2]
    missing = np.clip((second - x) / (second - first), 0.0, None) ** DEGREE
    np.testing.assert_allclose(1.0 - basis.sum(axis=1), missing, atol=1e-12)


def test_a_curve_can_bend_and_be_straight():
    x = np.sort(np.random.default_rng(0).uniform(size=150))
    basis = np.column_stack([np.ones(150), Curve.fit(x, 0)(x[:, None])])
    for target, close in ((x, 1e-10), (x**3, 1e-10), (np.cos(2 * np.pi * x), 0.02)):
        left = target - basis @ np.linalg.lstsq(basis, target, rcond=None)[0]
        assert np.abs(left).max() < close


def test_beyond_the_knots_a_curve_stays():
    values = np.linspace(2.0, 5.0, 40)
    curve = Curve.fit(values, 0)
    low, high, inside = curve(np.array([[-100.0], [1e9], [3.0]]))
    np.testing.assert_array_equal(low, curve(np.array([[2.0]]))[0])
    np.testing.assert_array_equal(high, curve(np.array([[5.0]]))[0])
    assert not low.any()
    assert high[-1] == 1.0
    assert (inside >= 0).all()


@pytest.mark.parametrize(
    ("values", "curved"),
    [
        (np.arange(LEAST_VALUES - 1.0), False),
        (np.arange(float(LEAST_VALUES)), True),
        (np.repeat(3.0, 50), False),
        (np.append(np.zeros(95), np.arange(1.0, 10.0)), False),  # most are equal: hardly any quantiles
    ],
)
def test_a_number_with_few_values_is_not_curved(values, curved):
    assert (Curve.fit(values, 0) is not None) == curved


def described(seed=0, T=30, n=4):
    """Tasks described by a number, a word and a flag; the word moves the intercept."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(T * n, 2)), rng.normal(size=T * n)
    groups, words = np.repeat(np.arange(T), n), rng.choice(["red", "green", "blue"], size=T)
    y += 4.0 * (words == "red")[groups]
    side = {
        t: {"age": float(age), "colour": str(word), "old": bool(age > 40)}
        for t, (age, word) in enumerate(zip(rng.uniform(20, 60, size=T), words, strict=True))
    }
    return TaskSet(X, y, groups, side)


def test_features_are_centred_and_of_comparable_size():
    tasks = described()
    features = SideFeatures.fit(SideVector(), tasks)
    assert features.from_side_info
    assert features.n_linear == 5  # age, three words, the flag
    assert [curve.column for curve in features.curves] == [0]
    v = features(tasks)
    assert v.shape == (30, 5 + KNOTS + DEGREE - 2)
    np.testing.assert_allclose(v.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(v[:, 0].std(), 1.0 / np.sqrt(5))
    np.testing.assert_allclose(v[:, 5:].std(axis=0), 1.0 / np.sqrt(KNOTS + DEGREE - 2))
    # indicators have two values, one half range apart from the middle
    for column in v[:, 1:5].T:
        assert len(np.unique(column.round(9))) == 2
        assert np.ptp(column) == pytest.approx(2.0 / np.sqrt(5))
    assert np.linalg.norm(v[:, :5], axis=1).max() < 4.0


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnknownCategoryWarning")
def test_an_unseen_word_is_none_of_the_known_ones():
    tasks = described()
    features = SideFeatures.fit(SideVector(), tasks)

    def of(age, word):
        one = TaskSet.from_tasks(
            [(np.zeros((0, 2)), np.zeros(0), {"age": age, "colour": word, "old": False})]
        )
        return features(one)[0]

    unseen, known = of(30.0, "violet"), of(30.0, "red")
    assert np.isfinite(unseen).all()
    np.testing.assert_allclose(unseen[1:4], (0.0 - features.mean[1:4]) / features.deviation[1:4])
    assert (unseen != known).sum() == 1
    # a number beyond those of fit: the line goes on, the curve stays
    far, end = of(1e3, "red"), of(60.0, "red")
    assert far[0] > 10 * end[0]
    assert np.abs(far[5:]).max() < 10.0


def test_constant_descriptions_and_rows_are_no_curves():
    tasks = described()
    same = TaskSet.from_arrays(tasks.X, tasks.y, tasks.offsets, tasks.labels, np.full((30, 2), 7.0))
    features = SideFeatures.fit(SideVector(), same)
    assert features.curves == ()
    assert not features(same).any()
    of_rows = SideFeatures.fit(MeanEmbedding(), tasks)
    assert not of_rows.from_side_info
    assert of_rows.curves == ()
    assert of_rows.n_linear == len(of_rows.mean)


# --------------------------------------------------------------------------------------- the learner


def test_the_circle_is_found(monkeypatch):
    monkeypatch.setattr(selection, "COMPONENTS", (2,))
    both, truth = make_circle(500, n_features=4, n_rows=10, random_state=0, return_truth=True)
    train, test = both[:200], both[200:]
    learner = few_folds().fit(train)
    assert learner.side_structure_["curved"]
    assert learner.side_structure_["effect on"] == "all weights"
    support, query = test.support_query(3, random_state=0)
    oracle = CurveOracle(truth.mean, truth.spread, truth.noise).task_errors(support, query).mean()
    assert learner.task_errors(support, query).mean() < 1.05 * oracle
    # without rows the curve alone speaks; beyond its ends it stays
    near = learner.adapt(side_info=[0.25]).coef_
    np.testing.assert_allclose(near, truth.mean([0.25])[0], atol=0.6)


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnknownCategoryWarning")
def test_a_description_of_the_intercept_is_taken_as_such(tmp_path):
    tasks = described(seed=3)
    learner = EmpiricalBayesLearner().fit(tasks)
    assert learner.side_structure_["effect on"] == "intercept"
    assert not learner.side_structure_["curved"]
    Gamma = learner.prior_.mixture.side
    assert not Gamma[:-1].any()
    red, green, violet = (
        learner.adapt(side_info={"age": 40.0, "colour": word, "old": False})
        for word in ("red", "green", "violet")
    )
    np.testing.assert_allclose(red.coef_, green.coef_)
    assert 2.5 < red.intercept_ - green.intercept_ < 4.5
    assert green.intercept_ - 0.5 < violet.intercept_ < red.intercept_
    # without the word the rows have to say it
    without = EmpiricalBayesLearner("posterior").fit(tasks)
    new = described(seed=4)
    assert without.side_structure_ is None
    assert learner.task_errors(new, n_support=0).mean() < 0.8 * without.task_errors(new, n_support=0).mean()
    # and a file keeps all of it
    learner.save(tmp_path / "learner")
    again = tailored.load(tmp_path / "learner")
    np.testing.assert_array_equal(again.adapt_many(new).weights_, learner.adapt_many(new).weights_)
    assert again.prior_.side.curves[0].column == 0
    for word in ("red", "violet"):
        side = {"age": 99.0, "colour": word, "old": True}
        np.testing.assert_array_equal(
            again.adapt(side_info=side).predict(new.X), learner.adapt(side_info=side).predict(new.X)
        )


def test_a_description_without_meaning_moves_nothing():
    rng = np.random.default_rng(1)
    X, groups = rng.normal(size=(180, 2)), np.repeat(np.arange(30), 6)
    y = X @ [1.0, -1.0] + rng.normal(size=30)[groups] + 0.5 * rng.normal(size=180)
    side = dict(enumerate(rng.normal(size=(30, 1))))
    learner = few_folds().fit(X, y, groups=groups, side_info=side)
    assert learner.side_structure_ is None
    plain = few_folds().fit(X, y, groups=groups)
    np.testing.assert_allclose(learner.predict(X, groups=groups), plain.predict(X, groups=groups), atol=1e-9)
    # the same description must be given, although it was of no use
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(X[:2], y[:2])


def test_a_fitter_takes_the_description_off_first():
    statistics, rows, _ = tiny(T=40)
    fitter = StructureFitter.of(statistics, [0], SideStructure(1.0), Q)
    model = fitter.most_likely(Structure("mixed model", learn_mean=True))
    np.testing.assert_array_equal(model.side, fit_side_path(statistics, SideStructure(1.0), Q).Gamma)
    expected = log_likelihood(rows, model.means[0], model.side, model.covariances[0], model.noise)
    assert statistics.posterior(model).log_evidence.sum() == pytest.approx(expected, rel=1e-8)
    # tasks that share nothing have no description to share
    assert fitter.fit(Structure("independent", ridge=1.0)).side is None


# --------------------------------------------------------------------------------------- what is chosen


def candidate(name, errors, evidence, scale=1.0):
    return Candidate(
        Structure(name), scale, [], np.asarray(errors, dtype=float), np.asarray(evidence, dtype=float)
    )


def test_evidence_decides_unless_errors_speak_clearly():
    rng = np.random.default_rng(0)
    base = 1.0 + 0.1 * rng.normal(size=40)
    evident = candidate("evident", base, np.zeros(40))
    # lower by chance
    lucky = candidate("lucky", base - 0.001 + 0.1 * rng.normal(size=40), np.full(40, -1.0))
    lucky = candidate("lucky", lucky.errors - lucky.errors.mean() + base.mean() - 1e-3, np.full(40, -1.0))
    assert decide([evident, lucky]) is evident
    assert decide([lucky, evident]) is evident
    better = candidate("better", base - 0.1 + 0.01 * rng.normal(size=40), np.full(40, -1.0))
    assert decide([evident, lucky, better]) is better
    # the lowest error is asked about, and no other
    assert decide([evident]) is evident


def test_ties_leave_the_simplest():
    errors, evidence = np.ones(5), np.zeros(5)
    first, second = candidate("first", errors, evidence), candidate("second", errors, evidence)
    assert decide([first, second]) is first
    assert decide([second, first]) is second


def test_tasks_without_rows_have_no_say():
    errors = np.array([1.0, np.nan, 1.1, 0.9, np.nan, 1.0])
    evident = candidate("evident", errors, np.zeros(6))
    better = candidate("better", errors - 0.5, np.full(6, -1.0))
    assert evident.error == pytest.approx(1.0)
    assert decide([evident, better]) is better
    nothing = candidate("nothing", np.full(3, np.nan), np.zeros(3))
    assert nothing.error == 0.0
    assert decide([nothing, nothing]) is nothing


def test_what_is_significant():
    rng = np.random.default_rng(0)
    assert significant(0.5 + 0.1 * rng.normal(size=20))
    assert not significant(-0.5 + 0.1 * rng.normal(size=20))
    gains = rng.normal(size=400)
    gains += (1.9 * gains.std(ddof=1) / 20.0) - gains.mean()
    assert not significant(gains)
    assert significant(gains * 1.0 + 0.2 * gains.std(ddof=1) / 20.0)
    assert significant(np.append(gains + 0.2 * gains.std() / 20.0, [np.nan] * 50))
    for few in ([], [np.nan], [3.0], [3.0, np.nan]):
        assert not significant(np.array(few))
    assert not significant(np.zeros(10))
    assert significant(np.ones(10))
