"""A few rounds in one call: the certificate is true, and more rounds lead to the optimum."""

import numpy as np
import pytest

from optimargin.gram import make_gram
from optimargin.kernels import RBF, Custom
from optimargin.loss import hinge, odm, squared_hinge, value
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.roughly import solve_roughly

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 3))
y = np.where(X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=160) > 0, 1, -1).astype(np.int8)
WEIGHT = RNG.integers(1, 4, size=160).astype(float)
LOSSES = {"odm": odm(300.0, 0.5, 0.2, 160), "squared": squared_hinge(3.0), "hinge": hinge(2.0)}


def posed(loss, weight=None, bias=0.5):
    return Problem(X, y, weight, LOSSES[loss], gram=make_gram(RBF(0.5), X, bias, 1 << 30))


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighed"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rounds", [0, 1, 3, 8])
def test_both_objectives_are_those_of_the_answer(loss, rounds, weight):
    problem = posed(loss, weight)
    found = solve_roughly(problem, Start(), Stop(1e-9, rounds), 0)
    u = y * problem.gram.apply(found.coef)
    np.testing.assert_allclose(found.margin, u, atol=1e-9)
    primal = 0.5 * found.coef @ (y * u) + value(problem.losses, u).sum()
    assert found.primal == pytest.approx(primal, rel=1e-9)
    best = drive(DCD(1).points(problem, Start()), Stop(1e-9, 4000))
    assert found.bound <= best.primal * (1.0 + 1e-9)
    assert best.bound <= found.primal * (1.0 + 1e-9)
    assert found.rounds == rounds
    assert found.status is Status.MAX_ITER


@pytest.mark.parametrize("loss", LOSSES)
def test_many_rounds_lead_to_the_optimum_and_stop_there(loss):
    found = solve_roughly(posed(loss), Start(), Stop(1e-5, 4000), 0)
    assert found.status is Status.CONVERGED
    assert found.gap <= 1e-5
    assert found.rounds < 4000


def test_it_goes_on_from_a_start():
    problem = posed("odm")
    first = solve_roughly(problem, Start(), Stop(1e-4, 4000), 0)
    again = solve_roughly(problem, Start(dual=first.dual), Stop(1e-2, 4000), 0)
    assert again.rounds == 0
    machine = solve_roughly(problem, Start(first.coef, None, first.margin), Stop(1e-2, 4000), 0)
    assert machine.rounds == 0


def test_the_seed_decides():
    one, same, other = (
        solve_roughly(posed("odm"), Start(), Stop(1e-9, 3), seed).coef for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_a_matrix_with_negative_eigenvalues_is_noticed():
    gram = make_gram(Custom(lambda A, B: np.sign(A @ B.T) - 0.5), X, 0.0, 1 << 30)
    problem = Problem(X, y, None, odm(1e6, 0.5, 0.2, 160), gram=gram)
    found = solve_roughly(problem, Start(), Stop(1e-6, 50), 0)
    assert found.status is Status.INDEFINITE
