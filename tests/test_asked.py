"""What machines over landmarks ask of the kernel values: the same answers alone and together."""

import tracemalloc

import numpy as np
import pytest

from optimargin.classes import signs
from optimargin.kernels import RBF
from optimargin.landmarks import make_landmarks
from optimargin.loss import odm
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.sketch import beside, footprint, make_sketch
from optimargin.solvers.asked import Ask, abreast, answers
from optimargin.solvers.guide import Guide
from optimargin.solvers.landmark import LandmarkNewton, train_all
from optimargin.solvers.place import Wish, place
from optimargin.solvers.train import Plan, train

RNG = np.random.default_rng(0)
N, S = 700, 40
X = RNG.normal(size=(N, 3))
CLASS = np.digitize(X[:, 0] + 0.3 * RNG.normal(size=N), [-0.5, 0.5])


def posed(kept=N, dtype=np.float64, lam=1e3):
    landmarks = make_landmarks(RBF(0.4), X[:S].astype(dtype), np.arange(S), 0.0, dtype)
    limit = footprint(N, S, kept * S * np.dtype(dtype).itemsize) + 1
    sketch = make_sketch(landmarks, X.astype(dtype), limit, 2)
    assert len(sketch.kept) == kept
    return Problem(
        sketch.X, CLASS, None, odm(lam, 0.2, 0.3, N), sketch=sketch, classes=3, threads=2
    )


def machines(problem):
    return [problem.binary(signs(problem.y == m)) for m in range(3)]


@pytest.mark.parametrize("kept", [0, 300, N])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_answers_are_products_with_the_features(kept, dtype):
    problem = posed(kept, dtype)
    phi = problem.sketch.landmarks.contract(problem.sketch[:].astype(float).T).T
    some = [np.arange(N), np.array([0, 299, 300, N - 1]), np.empty(0, dtype=int), np.arange(5, 90)]
    asks, wanted = [], []
    for rows in [None, *some]:
        own = phi if rows is None else phi[rows]
        w, h = RNG.normal(size=S), RNG.random(len(own))
        asks += [Ask(rows, w), Ask(rows, h=h), Ask(rows, w, h)]
        wanted += [own @ w, own.T @ h, own.T @ (h * (own @ w))]
    tol = 1e-9 if dtype == np.float64 else 1e-5
    for found in (answers(problem, asks), [answers(problem, [ask])[0] for ask in asks]):
        for answer, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(answer, right, rtol=tol, atol=tol)


def test_no_value_is_computed_that_is_not_asked_for(monkeypatch):
    problem, seen = posed(0), []
    block = RBF.block
    monkeypatch.setattr(RBF, "block", lambda *a: (seen.append(len(a[1])), block(*a))[1])
    answers(problem, [Ask(np.array([3, 4, 600]), np.ones(S)), Ask(np.array([4]), h=np.ones(1))])
    assert sum(seen) == 3


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_machines_side_by_side_find_what_each_finds_alone(tol):
    problem = posed()
    found = train_all(problem, machines(problem), [Start()] * 3, Stop(tol), 0)
    for machine, solution in zip(machines(problem), found, strict=True):
        own = drive(LandmarkNewton(0, tol).points(machine, Start()), Stop(tol))
        assert solution.status is Status.CONVERGED
        assert solution.rounds == own.rounds
        assert len(solution.history) == len(own.history)
        assert solution.primal == pytest.approx(own.primal, rel=1e-9)
        assert solution.bound == pytest.approx(own.bound, rel=1e-9)
        np.testing.assert_allclose(solution.margin, own.margin, atol=1e-6)


def test_one_read_answers_all_machines(monkeypatch):
    """The values that are not kept are computed no more often for three machines than for one."""
    problem, seen = posed(0), []
    block = RBF.block

    def counted(*a):
        seen.append(len(a[1]))
        return block(*a)

    monkeypatch.setattr(RBF, "block", counted)
    alone = []
    for machine in machines(problem):
        seen.clear()
        train_all(problem, [machine], [Start()], Stop(1e-3), 0)
        alone.append(sum(seen))
    seen.clear()
    train_all(problem, machines(problem), [Start()] * 3, Stop(1e-3), 0)
    assert sum(seen) < 0.75 * sum(alone)


def test_an_error_of_one_machine_ends_all():
    problem, closed = posed(), []

    def fine():
        try:
            while True:
                yield Ask(None, np.ones(S))
        finally:
            closed.append(True)

    def wrong():
        yield Ask(None, np.ones(S))
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        abreast(problem, [fine(), wrong(), fine()])
    assert closed == [True, True]


def test_a_machine_can_be_stopped_in_the_middle_of_a_step():
    """Between two rounds there are chances to stop: a step over many landmarks takes long."""
    seen = []
    for point in LandmarkNewton(0, 1e-6).points(machines(posed(lam=1e5))[1], Start()):
        seen.append(point.rounds)
        if point.rounds == 4:
            break
    assert all(seen.count(k) > 2 for k in (1, 2, 3))


def test_room_for_machines_comes_out_of_the_budget():
    landmarks = posed().sketch.landmarks
    limit = footprint(N, S, 8 * S * N) + 2 * beside(N, S)
    sketch = make_sketch(landmarks, X, limit, 1, 3)
    assert 0.0 < sketch.room <= 2 * beside(N, S)
    assert 8 * S * len(sketch.kept) + sketch.room <= limit - footprint(N, S, 0)
    plenty = make_sketch(landmarks, X, 1e9, 1, 3)
    assert plenty.room == 2 * beside(N, S)
    assert len(plenty.kept) == N


@pytest.mark.parametrize("most", [10_000, 60])
def test_a_guide_that_follows_is_one_made_anew(most):
    problem = posed()
    phi = problem.sketch.features()
    follows = Guide(problem, np.random.default_rng(1))
    follows.most = most
    for count in (200, 230, 190, 5, 100):
        rows = np.sort(RNG.permutation(N)[:count])
        h = RNG.uniform(1.0, 2.0, count)
        follows.spent = np.inf
        follows.meet(rows, h)
        assert len(follows.rows) == min(count, most)
        own = phi[follows.rows]
        share = h.sum() / follows.h.sum()
        wanted = np.eye(S) + share * own.T @ (follows.h[:, None] * own)
        L = np.tril(follows.factor)
        np.testing.assert_allclose(L @ L.T, wanted, rtol=1e-8, atol=1e-8)


def test_a_guide_forgets_what_has_been_taken_out():
    """In single precision the rounding of rows that weighed much would drown those that stay."""
    problem = posed(dtype=np.float32)
    guide = Guide(problem, np.random.default_rng(1))
    guide.most = 10_000
    h = np.where(np.arange(600) < 200, 1e9, 1.0)
    guide.meet(np.arange(600), h)
    guide.spent = np.inf
    guide.meet(np.arange(200, 600), h[200:])
    phi = problem.sketch.features()[200:600].astype(float)
    L = np.tril(guide.factor).astype(float)
    wanted = np.eye(S) + phi.T @ phi
    np.testing.assert_allclose(L @ L.T, wanted, rtol=1e-3, atol=1e-4 * np.trace(wanted))


def test_a_guide_stays_until_a_new_one_pays():
    guide = Guide(posed(), np.random.default_rng(1))
    rows = np.arange(300)
    guide.meet(rows, np.ones(300))
    before = guide.factor
    guide.spent = 1
    guide.meet(rows[:200], np.ones(200))
    assert guide.factor is before
    guide.spent = 10**6
    guide.meet(rows[:200], np.ones(200))
    assert guide.factor is not before


@pytest.mark.parametrize(("limit", "at_once"), [(1e9, 6), (40e6, 5), (26e6, 3)])
def test_memory_of_machines_side_by_side_is_announced(limit, at_once):
    n, count, k = 20_000, 100, 6
    rows = RNG.normal(size=(n, 3)).astype(np.float32)
    code = np.digitize(rows[:, 0], np.linspace(-1.0, 1.0, k - 1))
    whole = Problem(rows, code, None, odm(1e3, 0.2, 0.3, n), classes=k, threads=2)
    plan = Plan("landmark", "ovr", Stop(1e-3), 0, bounds=False)
    train_all(posed(), machines(posed()), [Start()] * 3, plan.stop, 0)  # compiled by now
    tracemalloc.start()
    sketched, starts = place(whole, Wish(RBF(0.4), count, "margin", np.float32, limit), 0)
    train(plan, sketched, starts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.at_once(sketched) == at_once
    announced = footprint(n, count, sketched.sketch.kept.nbytes) + sketched.sketch.room
    assert announced <= limit
    assert peak <= announced
