"""Kernel machines with a large weight of the losses: few Newton steps, each certified."""

import numpy as np
import pytest

from optimargin.gram import Gram, make_gram
from optimargin.kernels import RBF
from optimargin.loss import conjugate, odm, scaled, squared_hinge, value
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton
from optimargin.solvers.nearby import Nearby

RNG = np.random.default_rng(0)
N = 600
SMOOTH = RNG.random((N, 3))  # a kernel of low rank on these, and of full rank on the others
ROUGH = RNG.integers(0, 2, size=(N, 30)).astype(float)
WEIGHT = RNG.integers(0, 4, size=N).astype(float)


def posed(X, cost, mu=0.5, theta=0.1, weight=None, limit=10**9, threads=1):
    noise = np.random.default_rng(1).normal(size=len(X))
    y = np.where(np.sin(4.0 * X[:, 0]) + X[:, 1] - 1.0 + 0.3 * noise > 0.0, 1.0, -1.0)
    gram = make_gram(RBF(1.0), X, 0.0, limit, threads)
    loss = squared_hinge(cost) if mu is None else odm(cost * N * (1.0 - theta) ** 2, mu, theta, N)
    return Problem(X, y, weight, loss, gram=gram, threads=threads)


def found(problem, solver, tol, **limits):
    return drive(solver.points(problem, Start()), Stop(tol, **limits))


@pytest.fixture(params=["factors", "guides", "low rank"])
def _as_for_many_rows(request, monkeypatch):
    """What systems are solved by where they are large, and where no factor of them fits."""
    if request.param != "factors":
        monkeypatch.setattr(Gram, "exact_up_to", 10)
    if request.param == "low rank":
        monkeypatch.setattr(Gram, "factored_up_to", 10)


@pytest.mark.usefixtures("_as_for_many_rows")
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighted"])
@pytest.mark.parametrize(("mu", "theta"), [(0.5, 0.1), (0.1, 0.6), (None, 0.0)])
@pytest.mark.parametrize("X", [SMOOTH, ROUGH], ids=["smooth", "rough"])
def test_newton_certifies_stiff_machines_in_few_steps(X, mu, theta, weight):
    problem = posed(X, 1e3, mu, theta, weight)
    solution = found(problem, KernelNewton(), 1e-3, max_iter=25)
    assert solution.status is Status.CONVERGED
    K, losses, a = RBF(1.0).block(X, X), problem.losses, solution.dual
    assert (a >= losses.a_min).all()
    b, w = a * problem.y, solution.coef
    dual = -0.5 * b @ K @ b - conjugate(losses, a).sum()
    primal = 0.5 * w @ K @ w + value(losses, problem.y * (K @ w)).sum()
    assert solution.primal == pytest.approx(primal, rel=1e-6)
    assert solution.bound <= primal * (1.0 + 1e-9)
    assert solution.bound >= dual - 1e-6 * primal  # the best of all points' duals


def test_a_point_is_its_own_dual_point_and_tells_its_gap():
    problem = posed(SMOOTH, 1e3)
    points = KernelNewton().points(problem, Start(coef=RNG.normal(size=N)))
    K = RBF(1.0).block(SMOOTH, SMOOTH)
    for _ in range(4):
        point = next(points)
        b = point.dual * problem.y
        dual = -0.5 * b @ K @ b - conjugate(problem.losses, point.dual).sum()
        assert point.bound == pytest.approx(dual, rel=1e-6, abs=1e-6 * point.primal)


def test_the_same_with_a_dual_variable_that_must_not_be_negative():
    problem = posed(SMOOTH, 1e2, mu=None)
    points = KernelNewton().points(problem, Start(coef=RNG.normal(size=N)))
    K, losses = RBF(1.0).block(SMOOTH, SMOOTH), scaled(problem.loss, np.ones(N))
    for _ in range(3):
        point = next(points)
        b = point.dual * problem.y
        assert (point.dual >= 0.0).all()
        dual = -0.5 * b @ K @ b - conjugate(losses, point.dual).sum()
        assert point.bound == pytest.approx(dual, rel=1e-6, abs=1e-6 * point.primal)


def test_descent_hands_over_where_its_gap_falls_slowly_and_only_there():
    easy, stiff = posed(ROUGH, 0.1), posed(SMOOTH, 1e4)
    assert found(easy, Nearby(), 1e-3).rounds == found(easy, DCD(), 1e-3).rounds
    alone = found(stiff, DCD(), 1e-3, max_iter=300)
    assert alone.status is Status.MAX_ITER
    assert found(stiff, Nearby(), 1e-3, max_iter=60).status is Status.CONVERGED


def test_neither_threads_nor_room_change_the_answer_much(monkeypatch):
    monkeypatch.setattr(Gram, "exact_up_to", 10)
    one = found(posed(SMOOTH, 1e3), KernelNewton(), 1e-6)
    two = found(posed(SMOOTH, 1e3, threads=2), KernelNewton(), 1e-6)
    np.testing.assert_array_equal(one.coef, two.coef)
    little = found(posed(SMOOTH, 1e3, limit=100 * 8 * N), KernelNewton(), 1e-6)
    assert little.gap <= 1e-6
    assert little.primal == pytest.approx(one.primal, rel=2e-6)
