"""Machines whose rows are with an engine are those of the local classifiers."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_moons

from optimargin import LinearODMClassifier, ODMClassifier
from optimargin.engines.local import LocalEngine
from optimargin.kernels import RBF
from optimargin.loss import odm
from optimargin.problem import Problem, Start, Stop
from optimargin.solvers import placed
from optimargin.solvers.drawn import draw, joined
from optimargin.solvers.levels import support, support_size
from optimargin.solvers.on_parts import on_parts
from optimargin.solvers.parting import Parting
from optimargin.solvers.sodm import SODM, elsewhere

RNG = np.random.default_rng(0)
N = 500
X = np.column_stack([make_moons(N, noise=0.2, random_state=0)[0], RNG.normal(size=N)])
TWO = np.where(X[:, 0] + 0.2 * RNG.normal(size=N) > X[:, 1], 1, -1).astype(np.int8)
THREE = np.where(X[:, 2] > 0.7, 2, (TWO > 0).astype(np.intp))
WEIGHT = 1.0 + np.arange(N) % 3


def shards(y, weight=None, rows=X, theta=0.6, bias=1.0):
    total = N if weight is None else weight.sum()
    loss = odm(total * (1.0 - theta) ** 2, 0.5, theta, total)
    classes = 3 if y is THREE else 2
    problem = Problem(rows, y, weight, loss, bias, classes=classes)
    return LocalEngine().scatter(problem, np.arange(N) % 4)


@pytest.mark.parametrize(("name", "tol"), [("newton", 1e-6), ("bqo", 0.02), ("csvrg", 1e-5)])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_linear_machines_are_those_of_the_local_classifier(name, tol, y):
    placed_rows = shards(y, WEIGHT)
    solver = on_parts(name, placed_rows.whole, 0, Parting(4), tol)
    found = placed.linear(placed_rows, solver, [Start()] * 3, Stop(tol=tol))
    local = LinearODMClassifier(multi_class="ovr", tol=1e-8).fit(X, y, sample_weight=WEIGHT)
    assert len(found) == (1 if y is TWO else 3)
    assert all(solution.gap <= tol for solution in found)
    assert [s.primal for s in found] == pytest.approx(np.ravel(local.objective_), rel=2 * tol)
    assert found[0].traffic == placed_rows.traffic.seen
    assert all(solution.traffic is None for solution in found[1:])


def test_machines_share_the_seconds_there_are():
    assert placed.shared(Stop(time_limit=6.0), 3).time_limit == 2.0
    assert placed.shared(Stop(), 3).time_limit is None


@pytest.mark.parametrize("rows", [X, sp.csr_matrix(X)], ids=["dense", "sparse"])
@pytest.mark.parametrize("levels", [1, None])
def test_a_model_of_sodm_is_the_support_that_parts_tell(rows, levels):
    """Nobody gathers what is with the rows; the scores are those of the classifier's own way."""
    y = THREE
    parts = shards(y, WEIGHT, rows, theta=0.1, bias=0.0)
    solver = SODM(0, Parting(4, fan_in=2, levels=levels))
    level = solver.level(RBF(1.0), WEIGHT.sum(), 1 << 28, Stop(tol=1e-6))
    for m, view in enumerate(placed.views(parts)):
        climbed = solver.climb(view, level, 0.0, describe=elsewhere)
        assert climbed.is_whole == (levels is None)
        pieces = support(climbed.shards, climbed.is_whole)
        count, size = support_size(climbed.shards, climbed.is_whole)
        assert count == sum(len(b) for _, b in pieces) <= N
        assert size >= count * 8 * 2
        Z = np.concatenate([Z.toarray() if sp.issparse(Z) else Z for Z, _ in pieces])
        b = np.concatenate([own for _, own in pieces])
        scores = np.exp(-((X[:, None] - Z) ** 2).sum(axis=2)) @ b
        sign = np.where(m == y, 1.0, -1.0)
        own = ODMClassifier(gamma=1.0, tol=1e-8).fit(X, sign, sample_weight=WEIGHT)
        if levels is None:
            np.testing.assert_allclose(scores, own.decision_function(X), atol=2e-3)
            assert climbed.found.gap <= 1e-6
        assert climbed.found.primal >= own.objective_ * (1 - 1e-6)


def test_a_sample_has_a_share_of_every_part():
    parts = shards(TWO, WEIGHT)
    few = joined(parts.sum(draw, 100, N, 3))
    again = joined(parts.sum(draw, 100, N, 3))
    np.testing.assert_array_equal(few.X, again.X)
    assert len(few.y) == 100
    assert few.times.sum() == pytest.approx(N)
    assert len(np.unique(few.code)) == 100
    everything = joined(parts.sum(draw, N, N, 0))
    np.testing.assert_array_equal(np.sort(everything.X[:, 0]), np.sort(X[:, 0]))
    np.testing.assert_array_equal(everything.times, 1.0)
