"""Solvers on parts x losses x rows x numbers of parts: LIBLINEAR's answer, with a certificate."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from optimargin.engines.local import LocalEngine
from optimargin.loss import conjugate, hinge, odm, scaled, squared_hinge, value
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.newton import Newton
from optimargin.solvers.on_parts import on_parts
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins

RNG = np.random.default_rng(0)
N, D = 160, 24
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.5)
X /= np.linalg.norm(X, axis=1)[:, None]
y = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(1, 4, size=N).astype(float)
LOSSES = {"hinge": hinge(0.2), "squared_hinge": squared_hinge(0.4), "odm": odm(10.0, 0.5, 0.2, N)}
DUAL = ("bqo", "bqo-line", "bqo-armijo", "disdca", "dsvm-ave", "admm", "admm-acc")
PAIRS = [(name, loss) for name in DUAL for loss in LOSSES]
PAIRS += [("newton", "hinge")]
PAIRS += [(name, loss) for name in ("tron", "newton") for loss in ("squared_hinge", "odm")]
pairs = pytest.mark.parametrize(("name", "loss"), PAIRS)
AVERAGES = ("pa", "dwpa", "dwpa-acc")


def posed(loss, rows=X, weight=None, threads=1):
    return Problem(rows, y, weight, LOSSES[loss], 1.0, threads=threads)


def solver(name, loss, parting, seed=0, tol=1e-4):
    return on_parts(name, posed(loss), seed, parting, tol)


@cache
def optimum(loss, is_weighed=False):
    """P at the answer of LIBLINEAR, or of Newton's method where LIBLINEAR has no such loss."""
    weight = WEIGHT if is_weighed else None
    problem = posed(loss, weight=weight)
    if loss == "odm":
        return drive(Newton(direct=True).points(problem, Start()), Stop(1e-13)).primal
    C = 0.2 if loss == "hinge" else 0.4
    peer = LinearSVC(C=C, loss=loss, tol=1e-10, max_iter=10**7, dual=True, random_state=0)
    peer.fit(X, y, sample_weight=weight)
    w = np.append(peer.coef_, peer.intercept_)
    return 0.5 * w @ w + value(problem.losses, margins(problem, w)).sum()


def reached(name, loss, problem, parting, best):
    """The answer where the objective is within 1e-4 of the optimum."""
    stop = Stop(0.0, 3000, callback=lambda line, _: line.objective <= best * (1 + 1e-4))
    return solver(name, loss, parting).solve(problem, Start(), stop)


@pairs
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("count", [1, 2, 7, 32])
def test_every_solver_reaches_liblinears_answer(name, loss, rows, count):
    problem, best = posed(loss, rows(X)), optimum(loss)
    found = reached(name, loss, problem, Parting(count), best)
    here = 0.5 * found.coef @ found.coef + value(problem.losses, found.margin).sum()
    assert here == pytest.approx(found.primal, rel=1e-9)
    assert best * (1 - 1e-9) <= here <= best * (1 + 1e-4)
    assert found.bound <= best * (1 + 1e-9)
    np.testing.assert_allclose(found.margin, margins(problem, found.coef), atol=1e-12)


@pairs
def test_a_gap_is_reached_and_is_a_gap(name, loss):
    found = solver(name, loss, Parting(3)).solve(posed(loss), Start(), Stop(1e-3, 3000))
    assert found.status is Status.CONVERGED
    assert found.primal - optimum(loss) <= 1e-3 * found.primal
    assert optimum(loss) >= found.bound
    assert found.solver == name.removesuffix("-armijo").removesuffix("-line")
    rounds, sent = found.traffic
    assert rounds > found.rounds
    assert sent >= 8 * rounds


@pairs
def test_weights_equal_repetitions(name, loss):
    weighed, repeated = posed(loss, weight=WEIGHT), np.repeat(np.arange(N), WEIGHT.astype(int))
    whole = replace(weighed, X=X[repeated], y=y[repeated], weight=None)
    answers = [
        solver(name, loss, Parting(3)).solve(problem, Start(), Stop(2e-4, 3000))
        for problem in (weighed, whole)
    ]
    for answer in answers:
        assert answer.gap <= 2e-4
        assert answer.primal == pytest.approx(optimum(loss, is_weighed=True), rel=3e-4)


@pytest.mark.parametrize("name", [*DUAL, "tron", *AVERAGES])
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_threads_do_not_change_the_answer(name, rows):
    one, two = (
        solver(name, "odm", Parting(5)).solve(
            posed("odm", rows(X), threads=threads), Start(), Stop(0.0, 6)
        )
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one.coef, two.coef)
    assert (one.bound, one.traffic) == (two.bound, two.traffic)


@pytest.mark.parametrize("name", [*DUAL, *AVERAGES])
def test_a_part_may_lack_a_class(name):
    order = np.argsort(y)  # parts of one class, and one of both
    problem = replace(posed("hinge"), X=X[order], y=y[order])
    found = solver(name, "hinge", Parting(5, "blocks")).solve(problem, Start(), Stop(1e-2, 3000))
    assert optimum("hinge") >= found.bound
    if name in AVERAGES:
        assert found.status is Status.AVERAGED
    else:
        assert found.primal <= optimum("hinge") * (1 + 1.1e-2)


@pairs
def test_a_start_at_the_answer_is_better_than_none(name, loss):
    first = solver(name, loss, Parting(3)).solve(posed(loss), Start(), Stop(1e-3, 3000))
    again = solver(name, loss, Parting(3)).solve(posed(loss), Start(first.coef), Stop(1e-3, 3000))
    assert again.primal <= first.primal * (1 + 1e-12)
    assert again.gap <= 1e-3
    assert again.history[0].objective <= first.history[0].objective
    if loss != "hinge":  # whose dual variables a model does not tell: rounds are luck, by the seed
        assert again.rounds <= first.rounds
    assert optimum(loss) >= again.bound


@pytest.mark.parametrize("name", [*DUAL, "tron"])
def test_limits_stop_and_say_so(name):
    given, problem = solver(name, "odm", Parting(3)), posed("odm")
    assert given.solve(problem, Start(), Stop(0.0, 2)).status is Status.MAX_ITER
    assert given.solve(problem, Start(), Stop(0.0, 99, 1e-9)).status is Status.TIME_LIMIT


@pytest.mark.parametrize("name", ["bqo", "tron"])
def test_where_arithmetic_ends_the_solver_does(name):
    found = solver(name, "squared_hinge", Parting(2)).solve(
        posed("squared_hinge"), Start(), Stop(0.0, 50_000)
    )
    assert found.status in (Status.PRECISION, Status.CONVERGED)
    assert found.gap < 1e-9


@pytest.mark.parametrize("count", [1, 4])
def test_the_width_of_a_rounded_hinge_ends_where_arithmetic_does(count):
    given = solver("newton", "hinge", Parting(count), tol=0.0)
    found = given.solve(posed("hinge"), Start(), Stop(0.0, 5000))
    assert found.status in (Status.PRECISION, Status.CONVERGED)
    assert found.primal == pytest.approx(optimum("hinge"), rel=1e-9)
    assert found.gap < 1e-7


@pytest.mark.parametrize("name", ["bqo", "admm", "tron"])
def test_solvers_read_little_of_the_whole(name):
    """On a cluster the driver has no rows."""

    class Whole:
        n, d, loss, bias, limit, threads = N, D, LOSSES["odm"], 1.0, np.inf, 1

    shards = Parting(3).scattered(posed("odm"), 0)
    far = replace(shards, whole=Whole())
    points = [
        list(zip(range(4), solver(name, "odm", Parting(3)).points(s, Start()), strict=False))
        for s in (shards, far)
    ]
    for (_, near), (_, there) in zip(*points, strict=True):
        assert near.primal == there.primal


def test_bqo_sends_what_its_file_says():
    out = (D + 1) + 2 + 2 + 1 + 2 + 1  # w, lengths, metric, sweeps, seed, share
    back = 2 + (D + 1) + 1  # losses and gap, w(d), the reach
    beside = {"hinge": 4 + (D + 1) + 3, "odm": 4 + 1 + 3}  # blends, what is cut off, the plane
    for name, loss, pieces in (
        ("bqo-line", "hinge", 3),
        ("bqo", "hinge", 3),
        ("bqo-line", "odm", 3 * 98),
        ("bqo", "odm", 3 * 98),
    ):
        found = solver(name, loss, Parting(4)).solve(posed(loss), Start(), Stop(0.0, 5))
        rounds, sent = found.traffic
        own = name == "bqo"  # begins with machines of the parts
        more = beside[loss] if own else 0
        first = 4 * 8 * (2 + D + 1) if own else 0
        assert rounds == 6
        assert sent == first + 4 * (6 - own) * 8 * (out + back + pieces + more)


def test_exact_steps_climb_the_dual():
    for loss in LOSSES:
        for name in ("bqo", "bqo-line"):
            points = solver(name, loss, Parting(4)).points(
                Parting(4).scattered(posed(loss), 0), Start()
            )
            bounds = [point.bound for _, point in zip(range(40), points, strict=False)]
            if (name, loss) != ("bqo", "odm"):  # a kink may break a promise; it is made good
                assert all(b >= a - 1e-12 * abs(a) for a, b in pairwise(bounds))
            assert bounds[-1] > 0.9 * optimum(loss)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_pocket_never_gets_worse_and_holds_what_it_says(loss):
    problem = posed(loss, weight=WEIGHT)
    points = solver("bqo", loss, Parting(4)).points(Parting(4).scattered(problem, 0), Start())
    seen = [point for _, point in zip(range(30), points, strict=False)]
    assert all(b.primal <= a.primal for a, b in pairwise(seen))
    for point in seen:
        u = margins(problem, point.coef)
        there = 0.5 * point.coef @ point.coef + value(problem.losses, u).sum()
        assert point.primal == pytest.approx(there, rel=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_plane_takes_far_fewer_rounds_than_the_line(loss):
    stiff = replace(posed(loss), loss=scaled(LOSSES[loss], 50.0))
    rounds = [
        on_parts(name, stiff, 0, Parting(8), 1e-3).solve(stiff, Start(), Stop(1e-3, 3000)).rounds
        for name in ("bqo", "bqo-line")
    ]
    assert rounds[0] < rounds[1] / 2


@pytest.mark.parametrize("name", ["bqo", "bqo-line"])
def test_the_dual_variables_make_the_model_and_the_bound(name):
    """What a part keeps is what the driver believes."""
    problem = posed("odm")
    shards, seen = Parting(4).scattered(problem, 0), []
    keep = replace(shards)

    class Spy:
        whole, traffic = keep.whole, keep.traffic

        def __init__(self, inner):
            self.inner = inner

        def __len__(self):
            return len(self.inner)

        def step(self, task, *shared):
            after, said = self.inner.step(task, *shared)
            seen.append(after.gather("dual"))
            return Spy(after), said

    points = solver(name, "odm", Parting(4)).points(Spy(keep), Start())
    last = [point for _, point in zip(range(12), points, strict=False)][-1]
    b = seen[-1] * y
    w = np.append(b @ X, b.sum())
    if name == "bqo-line":  # the other yields its pocket
        np.testing.assert_allclose(last.coef, w, atol=1e-12)
    dual = -0.5 * w @ w - conjugate(problem.losses, seen[-1]).sum()
    assert last.bound == pytest.approx(dual, rel=1e-10)


# -- averages ------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("count", [1, 2, 7, 32])
def test_averages_are_certified_and_the_best_one_is_best(loss, rows, count):
    problem, best = posed(loss, rows(X)), optimum(loss)
    mean, weighted, faster = (
        solver(name, loss, Parting(count), tol=1e-5).solve(problem, Start(), Stop(1e-9, 3000))
        for name in AVERAGES
    )
    for found in (mean, weighted, faster):
        assert found.status is Status.AVERAGED
        assert found.bound <= best * (1 + 1e-9)
        assert found.primal >= best * (1 - 1e-9)
    assert mean.rounds == 1
    assert weighted.primal <= mean.primal * (1 + 1e-9)
    assert weighted.primal == pytest.approx(faster.primal, rel=2e-5)
    models = np.stack([part_model(problem, part, count) for part in parts_of(problem, count)])
    assert weighted.primal == pytest.approx(in_the_span(problem, models), rel=3e-5)
    if count == 32:  # more models than features
        assert weighted.primal <= best * (1 + 1e-4)


def parts_of(problem, count):
    return [part.problem for part in Parting(count).scattered(problem, 0).parts]


def part_model(problem, part, count):
    from optimargin.loss import scaled
    from optimargin.solvers.averaging import _LOCAL

    own = replace(part, loss=scaled(problem.loss, float(count)))
    return drive(DCD(0).points(own, Start()), _LOCAL).coef


def in_the_span(problem, models):
    """The least objective among blends of the models, as a machine in their own basis."""
    rows = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    basis = np.linalg.qr(models.T)[0]
    Z = np.column_stack([rows, np.ones(problem.n)]) @ basis
    within = replace(problem, X=Z, bias=0.0)
    return drive(DCD().points(within, Start()), Stop(1e-7, 100_000)).primal


def toy(n, rng):
    """Two blobs, and a fifth of one class far away (dwpa.txt, section 3.1)."""
    labels = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    centre = np.where(labels[:, None] > 0, [1.5, -1.0], [-1.5, -1.0])
    centre[(labels > 0) & (rng.random(n) < 0.2)] = [-1.0, 4.0]
    return centre + 0.5 * rng.normal(size=(n, 2)), labels


def test_parameter_averaging_fails_on_the_toy_set_and_weights_do_not():
    from optimargin import LinearSVMClassifier

    rng = np.random.default_rng(0)
    A, a = toy(400, rng)
    B, b = toy(5000, rng)
    accuracy = {
        name: LinearSVMClassifier(
            C=0.2, solver=name, n_partitions=80, partition="random", random_state=0, tol=1e-3
        )
        .fit(A, a)
        .score(B, b)
        for name in ("pa", "dwpa", "dwpa-acc")
    }
    exact = LinearSVMClassifier(C=0.2).fit(A, a).score(B, b)
    assert exact > 0.99
    assert accuracy["pa"] < exact - 0.03
    assert accuracy["dwpa"] > exact - 0.003
    assert accuracy["dwpa-acc"] > exact - 0.003


def test_the_engine_may_be_given():
    given = Parting(3, engine=LocalEngine())
    found = [
        solver("admm", "hinge", parting).solve(posed("hinge"), Start(), Stop(1e-3))
        for parting in (given, Parting(3))
    ]
    np.testing.assert_array_equal(found[0].coef, found[1].coef)
