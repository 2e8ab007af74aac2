"""mcODM: the step of a row, the solver, and what the classifiers make of it."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification

from optimargin import LinearODMClassifier, ODMClassifier, margins
from optimargin.gram import make_gram
from optimargin.kernels import Linear
from optimargin.loss import odm, squared_hinge, value
from optimargin.multiclass import level, row_conjugate, row_step
from optimargin.problem import Problem, Start, Status, Stop
from optimargin.rows import DenseRows, SparseRows
from optimargin.solvers.dcd import DCD
from optimargin.solvers.mcodm import McODM
from optimargin.solvers.rowwise import begin

rng = np.random.default_rng(0)
X, y = make_classification(
    90, 6, n_informative=5, n_redundant=0, n_classes=4, n_clusters_per_class=1, random_state=3
)


def pose(lam=50.0, mu=0.5, theta=0.2, X=X, y=y, weight=None, **data):
    total = len(y) if weight is None else weight.sum()
    k = int(y.max()) + 1
    return Problem(X, y, weight, odm(lam, mu, theta, total), classes=k, **data)


def solve(problem, tol=1e-8, rule="index", **limits):
    return McODM(0, rule).solve(problem, Start(), Stop(tol, **{"max_iter": 5000, **limits}))


def margin(F, y):
    others = F.copy()
    others[np.arange(len(y)), y] = -np.inf
    return F[np.arange(len(y)), y] - others.max(axis=1)


def objective(problem, W):
    Z = np.column_stack([problem.X, np.full(problem.n, problem.bias)])
    weight = 1.0 if problem.weight is None else problem.weight
    return 0.5 * (W**2).sum() + (weight * value(problem.loss, margin(Z @ W.T, problem.y))).sum()


# -- the step of one row --------------------------------------------------------------------


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0, 0.9), st.floats(0.01, 100))
def test_with_a_score_frozen_the_step_of_a_row_is_a_quadratic_programme(seed, k, theta, lam):
    rng = np.random.default_rng(seed)
    loss = odm(lam, 0.3, theta, 7.0)
    A, rest, own, M = rng.uniform(0.1, 3), rng.normal(size=k), rng.integers(k), rng.normal()

    def dual(z):  # alpha of the others, then beta
        share = np.insert(z[:-1], own, -np.sum(z[:-1]))
        psi = row_conjugate(loss, share[own], z[-1], M)
        share[own] -= z[-1]
        return 0.5 * A * share @ share + share @ rest + psi

    alpha = -np.abs(rng.normal(size=k)) * (rng.random(k) < 0.5)
    alpha[own], beta = 0.0, abs(rng.normal())
    alpha[own] = -alpha.sum()
    share = alpha - beta * (np.arange(k) == own)
    change, B = np.empty(k), np.empty(k)
    gain, step = row_step(loss, A, rest + A * share, own, -1, M, alpha, beta, 0.0, B, change)
    new = np.delete(alpha + change + step * (np.arange(k) == own), own)
    before, after = dual([*np.delete(alpha, own), beta]), dual([*new, beta + step])
    bounds = [(None, 0.0)] * (k - 1) + [(0.0, None)]
    best = minimize(dual, np.zeros(k), bounds=bounds, method="SLSQP", options={"ftol": 1e-14}).fun
    assert (new <= 0.0).all()
    assert beta + step >= 0.0
    assert gain == pytest.approx(before - after, rel=1e-6, abs=1e-9 * (1 + abs(before)))
    assert after <= best + 1e-6 * (1 + abs(best))


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.integers(3, 6))
def test_with_a_rival_frozen_alpha_and_then_beta_are_best(seed, k):
    rng = np.random.default_rng(seed)
    loss = odm(rng.uniform(0.1, 100), 0.3, 0.2, 7.0)
    A, rest, own = rng.uniform(0.1, 3), rng.normal(scale=2, size=k), rng.integers(k)
    rival = (own + 1 + rng.integers(k - 1)) % k
    tie = (np.arange(k) == rival) * 1.0 - (np.arange(k) == own)

    def dual(others, beta):
        alpha = np.insert(others, own, -np.sum(others))
        share = alpha + beta * tie
        return 0.5 * A * share @ share + share @ rest + row_conjugate(loss, alpha[own], beta, 0.0)

    alpha, beta = np.zeros(k), abs(rng.normal())
    change, B = np.empty(k), np.empty(k)
    gain, step = row_step(
        loss, A, rest + A * beta * tie, own, rival, 0.0, alpha, beta, 0.0, B, change
    )
    others, new = np.delete(alpha + change - step * tie, own), beta + step
    bounds = [(None, 0.0)] * (k - 1)
    best = minimize(dual, np.zeros(k - 1), (beta,), "SLSQP", bounds=bounds, options={"ftol": 1e-14})
    assert dual(others, beta) <= best.fun + 1e-6 * (1 + abs(best.fun))
    assert dual(others, new) <= min(dual(others, max(new + d, 0.0)) for d in (-1e-3, 1e-3)) + 1e-12
    assert gain == pytest.approx(dual(np.zeros(k - 1), beta) - dual(others, new), abs=1e-8)


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(4, 8), st.booleans())
def test_classes_may_be_left_out_of_a_step(seed, k, value):
    rng = np.random.default_rng(seed)
    loss, A, M = odm(rng.uniform(0.1, 100), 0.3, 0.2, 7.0), rng.uniform(0.1, 3), rng.normal()
    rest, alpha, beta = rng.normal(size=k), -rng.uniform(size=k), rng.uniform()
    alpha[0], own, rival = 0.0, 0, -1 if value else 1
    alpha[0] = -alpha.sum()
    tie = (np.arange(k) == rival) * 1.0 - (np.arange(k) == own)
    met = np.arange(k - 2)  # the last two classes are left out
    f = rest + A * (alpha + beta * tie)

    def dual(others, beta):
        share = alpha.copy()
        share[1 : k - 2] = others
        share[0] = -share[1:].sum()
        psi = row_conjugate(loss, share[0], beta, M if value else 0.0)
        share += beta * tie
        return 0.5 * A * share @ share + share @ rest + psi

    change, B, left = np.empty(k - 2), np.empty(k - 2), -alpha[k - 2 :].sum()
    gain, step = row_step(
        loss, A, f[met], own, rival, M if value else 0.0, alpha[met], beta, left, B, change
    )
    new = (alpha[met] + change - step * tie[met])[1:]
    before, after = dual(alpha[1 : k - 2], beta), dual(new, beta + step)
    assert gain == pytest.approx(before - after, rel=1e-6, abs=1e-9 * (1 + abs(before)))
    bounds = [(None, 0.0)] * (k - 3)
    held = beta + step if value else beta  # with a rival frozen beta moves after alpha
    best = minimize(
        dual, alpha[1 : k - 2], (held,), "SLSQP", bounds=bounds, options={"ftol": 1e-14}
    )
    assert dual(new, held) <= best.fun + 1e-6 * (1 + abs(best.fun))


@given(st.integers(0, 10**6), st.integers(2, 50))
def test_the_level_is_that_of_the_sort(seed, k):
    rng = np.random.default_rng(seed)
    B, y, P, Q = rng.normal(size=k), rng.integers(k), rng.normal(), rng.uniform(0.01, 3)
    s, m = P, 0
    for b in sorted(np.delete(B, y), reverse=True):
        if s / (Q + m) < b:
            s, m = s + b, m + 1
    B[y] = -np.inf
    assert level(B, P, Q) == pytest.approx(s / (Q + m))


# -- the solver -------------------------------------------------------------------------------


@pytest.mark.parametrize(("lam", "mu"), [(10.0, 0.0), (1e4, 0.0), (10.0, 0.5)])
def test_the_answer_is_a_minimum_of_the_objective(lam, mu):
    problem = pose(lam, mu, 0.1, X[:25], y[:25] % 3, bias=1.0)
    solution = solve(problem)
    assert solution.status is Status.CONVERGED
    assert solution.gap <= 1e-8
    assert solution.primal == pytest.approx(objective(problem, solution.coef), rel=1e-6)
    shape = solution.coef.shape
    found = minimize(
        lambda w: objective(problem, w.reshape(shape)), solution.coef.ravel(), method="Powell"
    )
    assert found.fun >= solution.primal * (1 - 1e-6)


def test_two_classes_are_the_binary_machine_with_twice_the_weight():
    z = (y > 1).astype(int)
    twice = Problem(X, np.where(z, 1.0, -1.0), None, odm(100.0, 0.5, 0.2, len(y)))
    from optimargin.problem import drive

    binary = drive(DCD().points(twice, Start()), Stop(1e-10))
    both = solve(pose(50.0, y=z), 1e-10)
    assert 2.0 * both.primal == pytest.approx(binary.primal, rel=1e-8)


def test_rows_may_be_dense_sparse_or_a_kernel():
    dense = solve(pose(X=X, bias=1.0))
    sparse = solve(pose(X=sp.csr_array(X), bias=1.0))
    gram = make_gram(Linear(), X, 1.0, 10**9)
    kernel = solve(pose(X=X, bias=1.0, gram=gram))
    tight = make_gram(Linear(), X, 1.0, 90 * 8 * 30)
    blocks = solve(pose(X=X, bias=1.0, gram=tight))
    for other in (sparse, kernel, blocks):
        assert other.primal == pytest.approx(dense.primal, rel=1e-6)
    np.testing.assert_allclose(margin((X @ X.T + 1) @ kernel.coef.T, y), kernel.margin, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_do_not_matter(dtype):
    thin = np.where(rng.random((90, 40)) < 0.2, rng.normal(size=(90, 40)), 0.0).astype(dtype)
    whole, stingy = solve(pose(X=thin, bias=1.0)), solve(pose(X=thin, bias=1.0, limit=0.0))
    sparse = solve(pose(X=sp.csr_array(thin), bias=1.0))
    assert isinstance(begin(pose(X=thin), Start()).rows, SparseRows)
    assert isinstance(begin(pose(X=thin, limit=0.0), Start()).rows, DenseRows)
    np.testing.assert_allclose(whole.coef, sparse.coef, atol=1e-4)
    np.testing.assert_allclose(whole.coef, stingy.coef, atol=1e-4)


@pytest.mark.parametrize("noise", [0.3, 30.0])
def test_a_row_that_meets_few_of_many_classes_ends_where_it_meets_all(noise):
    y = np.arange(150) % 50
    Z = rng.normal(size=(50, 10))[y] + noise * rng.normal(size=(150, 10))
    dense = solve(pose(X=Z, y=y, bias=1.0), 1e-5)
    sparse = solve(pose(X=sp.csr_array(Z), y=y, bias=1.0), 1e-5)
    kernel = solve(pose(X=Z, y=y, bias=1.0, gram=make_gram(Linear(), Z, 1.0, 10**9)), 1e-5)
    assert dense.status is sparse.status is kernel.status is Status.CONVERGED
    for other in (dense, sparse):  # the objective is not convex: the ends may differ a little
        assert other.primal == pytest.approx(kernel.primal, rel=1e-3)
    assert dense.primal == pytest.approx(objective(pose(X=Z, y=y, bias=1.0), dense.coef), rel=1e-4)


def test_more_rivals_than_a_row_can_meet_are_met_in_turn():
    y = np.arange(300) % 100
    Z = np.ones((300, 1)) + 1e-3 * rng.normal(size=(300, 1))  # nothing tells the classes apart
    problem = Problem(Z, y, None, squared_hinge(1.0), classes=100)
    assert solve(problem, 1e-4).gap <= 1e-4


def test_memory_is_that_of_one_array_of_dual_variables():
    y = np.arange(3000) % 100
    Z = rng.normal(size=(100, 20))[y] + 0.5 * rng.normal(size=(3000, 20))
    solve(pose(X=Z[:300], y=y[:300]), 1e-2)  # compiles
    tracemalloc.start()
    solve(pose(X=Z, y=y), 1e-2, max_iter=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.8 * 8 * (3000 + 20) * 100  # of which 0.5 are blocks and lists of fixed size


def test_the_rule_of_the_paper_comes_close():
    ours, paper = solve(pose()), solve(pose(), 1e-4, rule="value")
    assert paper.gap <= 1e-4  # of its last convex problem
    W = paper.coef
    assert ours.primal * (1 - 1e-6) <= objective(pose(), W) <= 1.5 * ours.primal


@pytest.mark.parametrize("lam", [2.0**14, 2.0**20])
def test_a_large_lam_is_solved_too(lam):
    solution = solve(pose(lam, 0.4, 0.8), 1e-6)
    assert solution.status is Status.CONVERGED
    assert solution.gap <= 1e-6


def test_the_objective_never_rises_from_one_problem_to_the_next():
    for lam in (10.0, 1e3):
        history = solve(pose(lam, 1.0, 0.1), 1e-9).history
        ends = [a.objective for a, b in pairwise(history) if b.round <= a.round]
        assert len(ends) > 2
        assert (np.diff(ends[1:]) <= 1e-6 * ends[1]).all()


@pytest.mark.parametrize(("mu", "seed"), [(0.0, 0), (0.0, 1), (0.0, 2), (0.5, 0)])
def test_weights_equal_repetitions(mu, seed):
    # Without an upper side the problem is convex, so any draw will do; with one there may be
    # several ends, and the draw must not depend on which tests ran before.
    weight = np.random.default_rng(seed).integers(0, 4, len(y)).astype(float)
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted, copied = (
        solve(pose(mu=mu, **changes)).primal
        for changes in ({"weight": weight}, {"X": X[repeated], "y": y[repeated]})
    )
    assert weighted == pytest.approx(copied)


def test_threads_do_not_matter_and_a_warm_start_is_at_its_goal():
    problem = pose(300.0)
    one, two = solve(problem), solve(pose(300.0, threads=2))
    np.testing.assert_array_equal(one.coef, two.coef)
    again = McODM(1).solve(problem, Start(one.coef, one.dual), Stop(1e-8))
    assert again.history[0].objective == pytest.approx(one.primal, rel=1e-6)
    assert again.primal == pytest.approx(one.primal)


def test_limits_are_kept():
    assert solve(pose(1e5), max_iter=3).status is Status.MAX_ITER
    assert solve(pose(1e5), max_iter=3).rounds == 3
    assert solve(pose(1e6), time_limit=0.0).status is Status.TIME_LIMIT
    asked = Stop(0.0, 100, None, lambda r, p: r.round == 2)
    assert McODM().solve(pose(1e5), Start(), asked).status is Status.CALLBACK


def test_zero_rows_and_squared_hinge_have_a_certificate():
    Z = X.copy()
    Z[:5] = 0.0
    problem = Problem(Z, y, None, squared_hinge(1.0), classes=4)
    assert solve(problem, 1e-6).gap <= 1e-6


# -- the classifiers --------------------------------------------------------------------------


@pytest.mark.parametrize("multi_class", ["mcodm", "mcodm-paper", "ovr", "ovo"])
@pytest.mark.parametrize("make", [ODMClassifier, LinearODMClassifier])
def test_several_classes(make, multi_class):
    names = np.array(["a", "b", "c"])
    data, codes = load_iris(return_X_y=True)
    model = make(multi_class=multi_class, random_state=0).fit(data, names[codes])
    assert model.score(data, names[codes]) > 0.9
    F = model.decision_function(data)
    assert F.shape == (150, 3)
    assert (model.classes_[F.argmax(axis=1)] == model.predict(data)).all()
    u = margins(model, data, names[codes])
    assert ((u > 0) == (model.predict(data) == names[codes])).mean() > 0.99
    assert model.status_ == "converged"
    assert np.isnan(model.loo_bound_).all() == multi_class.startswith("mcodm")


def test_pairs_agree_with_scikit_learns():
    from sklearn.multiclass import OneVsOneClassifier

    for machine in (ODMClassifier(gamma=0.2), LinearODMClassifier()):
        machine.set_params(lam=30.0, tol=1e-8, random_state=0)
        ours = clone(machine).set_params(multi_class="ovo").fit(X, y)
        theirs = OneVsOneClassifier(machine).fit(X, y)
        np.testing.assert_allclose(
            ours.decision_function(X), theirs.decision_function(X), atol=1e-4
        )


def test_a_solver_for_two_classes_is_refused_for_more():
    with pytest.raises(ValueError, match="solver='newton' is for two classes"):
        LinearODMClassifier(solver="newton").fit(X, y)
    LinearODMClassifier(solver="newton").fit(X, y == 0)
    LinearODMClassifier(solver="newton", multi_class="ovr").fit(X, y)
    with pytest.raises(ValueError, match="multi_class"):
        LinearODMClassifier(multi_class="all").fit(X, y)


def test_error_correcting_codes_come_from_scikit_learn():
    from sklearn.multiclass import OutputCodeClassifier

    codes = OutputCodeClassifier(LinearODMClassifier(random_state=0), random_state=0).fit(X, y)
    assert codes.score(X, y) > 0.5


def test_an_indefinite_kernel_is_raised():
    model = ODMClassifier(kernel="sigmoid", gamma=1.0, coef0=-1.0, random_state=0).fit(X, y)
    assert model.kernel_shift_ > 0.0
    assert model.status_ == "converged"


def test_rbf_beats_planes_on_rings():
    radius = rng.uniform(0, 3, 300)
    angle = rng.uniform(0, 6.3, 300)
    Z = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    z = radius.astype(int)
    model = ODMClassifier(gamma=1.0, random_state=0).fit(Z, z)
    assert model.score(Z, z) > 0.9
    assert model.score(Z, z) > LinearODMClassifier(random_state=0).fit(Z, z).score(Z, z) + 0.2
