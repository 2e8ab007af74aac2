"""Kernel matrices whose rows are computed when they are first asked for."""

import numpy as np
import pytest
import scipy.sparse as sp

from optimargin.gram import make_gram, raised
from optimargin.kernels import RBF, Laplacian, Linear
from optimargin.loss import odm
from optimargin.problem import Problem, Start, Stop, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton
from optimargin.solvers.visited import visited

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1).astype(np.int8)
FEW = np.array([3, 7, 250, 41])


@pytest.mark.parametrize("kernel", [RBF(0.3), Linear(), Laplacian(0.2)])
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("room", [1 << 30, 300 * 8 * 40], ids=["room", "little room"])
def test_it_has_the_values_of_a_whole_matrix(kernel, rows, room):
    whole = raised(make_gram(kernel, rows(X), 0.5, 1 << 30), 0.1)
    gram = raised(visited(kernel, rows(X), 0.5, room, 2), 0.1)
    v = np.zeros(300)
    v[FEW] = [1.0, -2.0, 0.5, 3.0]
    np.testing.assert_allclose(gram.apply(v), whole.apply(v), atol=1e-12)
    assert (gram.slot >= 0).sum() <= len(FEW)
    dense = RNG.normal(size=300)
    np.testing.assert_allclose(gram.apply(dense), whole.apply(dense), atol=1e-11)
    assert gram.is_whole == (room == 1 << 30)
    np.testing.assert_allclose(gram.square(FEW, float), whole.square(FEW, float), atol=1e-12)
    np.testing.assert_allclose(gram.rows(FEW), whole.rows(FEW), atol=1e-12)
    assert gram.kept.nbytes <= room


def test_rows_are_computed_once_and_only_when_asked_for():
    asked = []

    class Counted(RBF):
        def block(self, A, B, out=None):
            asked.append(len(A))
            return super().block(A, B, out)

    gram = visited(Counted(0.3), X, 0.0, 1 << 30, 1)
    assert sum(asked) == 0
    for _ in range(3):
        for rows, K, slot in gram.blocks(FEW):
            np.testing.assert_array_equal(K[slot[rows]], gram.rows(rows))
    assert sum(asked) == len(FEW)


@pytest.mark.parametrize("solver", [DCD(0), KernelNewton(0)], ids=["dcd", "newton"])
def test_solvers_find_the_same_machine_and_leave_rows_unvisited(solver):
    loss = odm(3000.0, 0.5, 0.6, len(y))
    whole = Problem(X, y, None, loss, gram=make_gram(RBF(0.3), X, 0.0, 1 << 30))
    exact = drive(KernelNewton().points(whole, Start()), Stop(1e-10))
    some = Problem(X, y, None, loss, gram=visited(RBF(0.3), X, 0.0, 1 << 30, 1))
    start = Start(exact.coef, None, exact.margin)
    found = drive(solver.points(some, start), Stop(1e-6))
    assert found.gap <= 1e-6
    assert found.primal == pytest.approx(exact.primal, rel=1e-6)
    assert (some.gram.slot >= 0).sum() <= np.count_nonzero(exact.coef) + 1 < len(y)
    cold = Problem(X, y, None, loss, gram=visited(RBF(0.3), X, 0.0, 1 << 30, 1))
    again = drive(solver.points(cold, Start()), Stop(1e-6))
    assert again.primal == pytest.approx(exact.primal, rel=1e-6)
