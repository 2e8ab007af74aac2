"""Problems x solvers: every solver is right because its duality gap says so."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optimargin.gram import Gram, make_gram
from optimargin.kernels import RBF, Linear
from optimargin.loss import conjugate, hinge, is_smooth, odm, scaled, squared_hinge, value
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.choose import choose
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton
from optimargin.solvers.newton import Newton
from optimargin.solvers.svrg import SVRG
from oracle import features_of, minimise, primal
from strategies import datasets, losses

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 6))
y = np.where(X @ RNG.normal(size=6) + RNG.normal(size=120) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(0, 4, size=120).astype(float)
SOLVERS = [DCD(), Newton(direct=True), Newton(direct=False), SVRG()]
KERNEL_SOLVERS = [DCD(), KernelNewton()]


def solve(problem, solver, tol=1e-9, start=None, **limits):
    stop = Stop(tol=tol, max_iter=limits.pop("max_iter", 20_000), **limits)
    return drive(solver.points(problem, start or Start()), stop, solver.name)


def linear(X, lam=10.0, mu=0.5, theta=0.2, weight=None, bias=0.0, threads=1):
    weight = np.ones(X.shape[0]) if weight is None else weight
    return Problem(X, y, weight, odm(lam, mu, theta, weight.sum()), bias, threads=threads)


def kernel(lam=10.0, mu=0.5, theta=0.2, limit=10**9, weight=None, bias=0.0):
    weight = np.ones(len(y)) if weight is None else weight
    gram = make_gram(RBF(0.3), X, bias, limit)
    return Problem(X, y, weight, odm(lam, mu, theta, weight.sum()), bias, gram)


def dual_value(problem, dual, gram):
    b = dual * problem.y
    return -0.5 * b @ gram @ b - conjugate(scaled(problem.loss, problem.weight), dual).sum()


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{s.name}-{getattr(s, 'direct', '')}")
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize(("lam", "mu", "theta"), [(10, 0.5, 0.2), (300, 0.1, 0.6), (5, 0, 0)])
def test_linear_solvers_reach_the_optimum_with_a_certificate(solver, rows, lam, mu, theta):
    problem = linear(rows(X), lam, mu, theta)
    solution = solve(problem, solver)
    w, best = minimise(X, y, lam, mu, theta)
    assert solution.status is Status.CONVERGED
    assert solution.gap <= 1e-9
    assert solution.primal == pytest.approx(best, rel=1e-8)
    assert solution.primal == pytest.approx(primal(X, y, solution.coef[:-1], lam, mu, theta))
    np.testing.assert_allclose(solution.coef[:-1], w, atol=1e-3)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{s.name}-{getattr(s, 'direct', '')}")
def test_the_constant_feature_is_a_column_of_ones(solver):
    solution = solve(linear(X, bias=1.0), solver)
    _, best = minimise(np.column_stack([X, np.ones(len(y))]), y, 10, 0.5, 0.2)
    assert solution.primal == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{s.name}-{getattr(s, 'direct', '')}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_every_type_of_numbers_and_indices_is_taken(solver, dtype, index):
    S = sp.csr_array(X.astype(dtype))
    S.indices, S.indptr = S.indices.astype(index), S.indptr.astype(index)
    _, best = minimise(X.astype(dtype).astype(float), y, 10, 0.5, 0.2)
    assert solve(linear(S), solver, 1e-7).primal == pytest.approx(best, rel=1e-6)
    assert solve(linear(X.astype(dtype)), solver, 1e-7).primal == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{s.name}-{getattr(s, 'direct', '')}")
def test_weights_equal_repetitions(solver):
    repeated = np.repeat(np.arange(len(y)), WEIGHT.astype(int))
    weighted = solve(linear(X, weight=WEIGHT), solver)
    _, best = minimise(X[repeated], y[repeated], 10, 0.5, 0.2)
    assert weighted.primal == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("solver", KERNEL_SOLVERS, ids=lambda s: s.name)
@pytest.mark.parametrize("limit", [10**9, 120 * 8 * 30])
@pytest.mark.parametrize(("lam", "mu", "theta"), [(10, 0.5, 0.2), (1e4, 0.1, 0.6), (5, 0, 0)])
def test_kernel_solvers_reach_the_optimum_with_a_certificate(solver, limit, lam, mu, theta):
    problem = kernel(lam, mu, theta, limit, WEIGHT, bias=1.0)
    solution = solve(problem, solver, 1e-8)
    K = RBF(0.3).block(X, X) + 1.0
    _, best = minimise(features_of(K), y, lam, mu, theta, WEIGHT)
    assert solution.gap <= 1e-8
    assert solution.primal <= best * (1 + 1e-7)
    np.testing.assert_allclose(y * (K @ solution.coef), solution.margin, atol=1e-8)


@pytest.mark.parametrize("solver", KERNEL_SOLVERS, ids=lambda s: s.name)
def test_a_linear_kernel_is_the_linear_machine(solver):
    gram = make_gram(Linear(), X, 1.0, 10**9)
    problem = linear(X, bias=1.0)
    wide = Problem(X, y, problem.weight, problem.loss, 1.0, gram)
    assert solve(wide, solver).primal == pytest.approx(solve(problem, Newton()).primal, rel=1e-8)


def test_conjugate_gradients_and_factors_agree(monkeypatch):
    exact = solve(kernel(1e4), KernelNewton())
    monkeypatch.setattr(Gram, "exact_up_to", 10)
    for most in (10, 10_000):
        monkeypatch.setattr(Gram, "factored_up_to", most)
        iterated = solve(kernel(1e4), KernelNewton())
        assert iterated.gap <= 1e-9
        assert iterated.primal == pytest.approx(exact.primal, rel=1e-8)


@settings(max_examples=30, deadline=None)
@given(datasets(), losses)
def test_coordinate_descent_certifies_every_loss(data, loss):
    X, y = data
    problem = Problem(X, y, np.ones(len(y)), loss, 1.0)
    solution = solve(problem, DCD(), 1e-3, max_iter=3000)
    w, a = solution.coef, solution.dual
    Z = np.column_stack([X, np.ones(len(y))])
    assert (a >= loss.a_min).all()
    assert (a <= loss.a_max).all()
    np.testing.assert_allclose(y * (Z @ w), solution.margin, atol=1e-6 * (1 + abs(w).max()))
    here = 0.5 * w @ w + value(loss, y * (Z @ w)).sum()
    assert solution.primal == pytest.approx(here, rel=1e-6, abs=1e-9)
    assert solution.bound == pytest.approx(
        dual_value(problem, a, Z @ Z.T), rel=1e-6, abs=1e-9
    ) or solution.bound > dual_value(problem, a, Z @ Z.T)
    if solution.status is Status.CONVERGED:
        assert solution.gap <= 1e-3


@pytest.mark.parametrize("make", [hinge, squared_hinge])
def test_svm_losses_reach_liblinear(make):
    from sklearn.svm import LinearSVC

    loss = make(0.5)
    name = "hinge" if make is hinge else "squared_hinge"
    peer = LinearSVC(C=0.5, loss=name, tol=1e-10, max_iter=1_000_000, random_state=0).fit(X, y)
    w = np.append(peer.coef_, peer.intercept_)
    problem = Problem(X, y, np.ones(len(y)), loss, 1.0)
    for solver in (DCD(), Newton(tol=1e-8), *([SVRG()] if is_smooth(loss) else [])):
        solution = solve(problem, solver, 1e-8)
        u = y * (np.column_stack([X, np.ones(len(y))]) @ w)
        theirs = 0.5 * w @ w + value(loss, u).sum()
        assert solution.primal == pytest.approx(theirs, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(datasets(), st.floats(-2, 2), st.booleans(), st.booleans())
def test_newton_certifies_the_hinge(data, power, direct, is_sparse):
    """The bound is the dual objective of the hinge itself, at dual variables inside its box."""
    X, y = data
    weight = 1.0 + np.arange(len(y)) % 3
    rows = sp.csr_array(X) if is_sparse else X
    problem = Problem(rows, y, weight, hinge(10.0**power), 1.0)
    seen = []
    stop = Stop(1e-3, 300, callback=lambda line, point: seen.append(point) or False)
    solution = drive(Newton(0, direct, 1e-3).points(problem, Start()), stop)
    assert solution.gap <= 1e-3
    Z = np.column_stack([X, np.ones(len(y))])
    for point in seen:
        w, a, losses = point.coef, point.dual, problem.losses
        assert ((a >= 0.0) & (a <= losses.a_max * (1 + 1e-12))).all()
        size = 1.0 + 0.5 * w @ w + value(losses, y * (Z @ w)).sum()
        primal = 0.5 * w @ w + value(losses, y * (Z @ w)).sum()
        assert point.primal == pytest.approx(primal, rel=1e-9, abs=1e-9 * size)
        v = (a * y) @ Z
        dual = -0.5 * v @ v - conjugate(losses, a).sum()
        assert point.bound <= dual + 1e-8 * (size + abs(dual))


@pytest.mark.parametrize("solver", [DCD(3), SVRG(3), Newton(3)], ids=lambda s: s.name)
def test_results_depend_on_the_seed_and_not_on_threads(solver):
    S = sp.csr_array(X * (np.abs(X) > 0.5))
    for rows in (X, S):
        one = solve(linear(rows), solver, 1e-6)
        two = solve(linear(rows, threads=2), solver, 1e-6)
        np.testing.assert_array_equal(one.coef, two.coef)


@pytest.mark.parametrize("solver", [*SOLVERS, *KERNEL_SOLVERS], ids=lambda s: s.name)
def test_a_warm_start_at_the_solution_is_done_at_once(solver):
    problem = kernel() if solver in KERNEL_SOLVERS and solver is not SOLVERS[0] else linear(X)
    first = solve(problem, solver, 1e-8)
    again = solve(problem, solver, 1e-6, Start(first.coef, first.dual))
    assert again.rounds == 0
    assert again.gap <= 1e-6


def test_newton_on_many_rows_starts_from_a_few(monkeypatch):
    import optimargin.solvers.newton as module

    monkeypatch.setattr(module, "_PILOT", 50)
    monkeypatch.setattr(module, "_PILOT_SHARE", 2)
    Z, z = np.tile(X, (10, 1)), np.tile(y, 10)
    problem = Problem(Z, z, np.ones(1200), odm(10.0, 0.5, 0.2, 1200), 0.0)
    started = solve(problem, Newton())
    _, best = minimise(X, y, 10, 0.5, 0.2)
    assert started.primal == pytest.approx(best, rel=1e-8)
    assert started.history[0].gap < 1.0


def test_limits_stop_a_solver_and_say_so():
    problem = linear(X, lam=1e6)
    assert solve(problem, DCD(), 0.0, max_iter=3).status is Status.MAX_ITER
    assert solve(problem, DCD(), 0.0, time_limit=1e-9).status is Status.TIME_LIMIT
    stopped = solve(problem, DCD(), 0.0, callback=lambda round, point: round.round == 2)
    assert stopped.status is Status.CALLBACK
    assert stopped.rounds == 2
    assert solve(problem, Newton(), 0.0).status in (Status.PRECISION, Status.CONVERGED)


@settings(max_examples=25, deadline=None)
@given(datasets(), st.floats(1e-2, 1e4), st.floats(0, 2), st.floats(0, 0.9))
def test_auto_certifies_whatever_the_parameters(data, lam, mu, theta):
    X, y = data
    for gram in (None, make_gram(RBF(0.5), X, 1.0, 10**9)):
        problem = Problem(X, y, np.ones(len(y)), odm(lam, mu, theta, len(y)), 1.0, gram)
        assert solve(problem, choose("auto", problem, 0), 1e-6).gap <= 1e-6


@pytest.mark.parametrize(("cost", "name"), [(1.0, "dcd"), (200.0, "dcd"), (2e4, "newton")])
def test_newton_takes_over_where_a_kernel_problem_is_very_stiff(cost, name):
    """Between, descent has the shorter rounds and leaps; Newton factors what is curved."""
    rows = RNG.normal(size=(2600, 2))
    gram = make_gram(RBF(1.0), rows, 0.0, 10**9)
    problem = Problem(rows, np.ones(2600), None, squared_hinge(cost), gram=gram)
    assert choose("auto", problem, 0).name == name
