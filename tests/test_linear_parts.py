"""Linear machines on parts of the rows: the same answer as in one place, with its certificate."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import optimargin.solvers.csvrg as csvrg
import optimargin.solvers.dsvrg as dsvrg
from optimargin import LinearODMClassifier, ODMClassifier
from optimargin.engines.local import LocalEngine
from optimargin.loss import odm, value
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.csvrg import CSVRG
from optimargin.solvers.dsvrg import DSVRG, systematic
from optimargin.solvers.newton import Newton
from optimargin.solvers.parted_newton import PartedNewton
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins

RNG = np.random.default_rng(0)
N, D = 400, 6
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6)
y = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(1, 4, size=N).astype(float)


def newton(parting, direct=None):
    return PartedNewton(0, parting, direct)


MAKERS = {
    "newton-factored": (lambda parting: newton(parting, True), 1e-6),
    "newton-applied": (lambda parting: newton(parting, False), 1e-6),
    "dsvrg": (lambda parting: DSVRG(0, parting), 1e-5),
    "csvrg": (lambda parting: CSVRG(0, parting), 1e-5),
}


@pytest.fixture(autouse=True)
def few_rows_are_a_coreset(monkeypatch):
    monkeypatch.setattr(csvrg, "_LEAST", 40)


def posed(rows=X, weight=None, lam=200.0, threads=1):
    total = N if weight is None else weight.sum()
    return Problem(rows, y, weight, odm(lam, 0.5, 0.2, total), 1.0, threads=threads)


def best(problem):
    return drive(Newton(direct=True).points(problem, Start()), Stop(1e-12)).primal


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighed"])
def test_every_solver_reaches_the_optimum_in_any_number_of_parts(name, rows, count, weight):
    make, tol = MAKERS[name]
    problem = posed(rows(X), weight)
    found = make(Parting(count)).solve(problem, Start(), Stop(tol))
    assert found.status is Status.CONVERGED
    assert found.gap <= tol
    assert found.primal == pytest.approx(best(problem), rel=2 * tol)
    np.testing.assert_allclose(found.margin, margins(problem, found.coef), atol=1e-9)
    here = 0.5 * found.coef @ found.coef + value(problem.losses, found.margin).sum()
    assert found.primal == pytest.approx(here, rel=1e-9)
    rounds, sent = found.traffic
    assert rounds >= found.rounds + 1
    assert sent >= rounds * 8
    assert len(found.history) == found.rounds + 1


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("how", ["random", "kmeans", "kmeans-strata", "blocks"])
def test_any_rule_makes_parts(name, how):
    make, tol = MAKERS[name]
    found = make(Parting(4, how)).solve(posed(), Start(), Stop(tol))
    assert found.gap <= tol


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_threads_do_not_change_the_answer(name, rows):
    make, tol = MAKERS[name]
    one, two = (
        make(Parting(5)).solve(posed(rows(X), threads=threads), Start(), Stop(tol))
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one.coef, two.coef)
    assert one.traffic == two.traffic


@pytest.mark.parametrize("name", MAKERS)
def test_a_start_at_the_answer_is_the_answer(name):
    make, tol = MAKERS[name]
    first = make(Parting(3)).solve(posed(), Start(), Stop(tol))
    again = make(Parting(3)).solve(posed(), Start(first.coef), Stop(tol))
    assert again.rounds == 0
    np.testing.assert_array_equal(first.coef, again.coef)


@pytest.mark.parametrize("name", MAKERS)
def test_limits_stop_and_say_so(name):
    make, _ = MAKERS[name]
    solver, start = make(Parting(3)), Start()
    assert solver.solve(posed(), start, Stop(0.0, 2)).status is Status.MAX_ITER
    assert solver.solve(posed(), start, Stop(-1.0, 99, 1e-9)).status is Status.TIME_LIMIT
    asked = solver.solve(posed(), start, Stop(0.0, callback=lambda line, _: line.round == 1))
    assert asked.status is Status.CALLBACK
    assert asked.rounds == 1


def test_newton_ends_where_arithmetic_does():
    found = newton(Parting(3), True).solve(posed(), Start(), Stop(0.0))
    assert found.status in (Status.PRECISION, Status.CONVERGED)
    assert found.gap < 1e-12


def test_newton_sends_what_its_file_says():
    parts = 4
    found = newton(Parting(parts), True).solve(posed(), Start(), Stop(1e-8))
    (rounds, sent), steps, w = found.traffic, found.rounds, D + 1
    out = w + w + 2  # a model, a step, how a hinge would be rounded
    back = 1 + w + w * (w + 1) // 2 + 2 + 15  # losses, gradient, Hessian; the hinge's own; slopes
    assert steps + 1 <= rounds <= 2 * steps + 1  # some steps are tried twice
    assert sent == parts * 8 * rounds * (out + back)


def test_conjugate_gradients_send_no_hessian():
    factored, applied = (
        newton(Parting(4), direct).solve(posed(), Start(), Stop(1e-8)) for direct in (True, False)
    )
    assert applied.traffic[0] > factored.traffic[0]
    assert applied.traffic[1] / applied.traffic[0] <= 4 * 8 * (3 * (D + 1) + 20)


def test_newton_on_many_rows_starts_from_machines_on_a_few(monkeypatch):
    import optimargin.solvers.newton as module

    zero = newton(Parting(4)).solve(posed(lam=10.0), Start(), Stop(1e-9))
    monkeypatch.setattr(module, "_PILOT", 50)
    monkeypatch.setattr(module, "_PILOT_SHARE", 1)
    few = newton(Parting(4)).solve(posed(lam=10.0), Start(), Stop(1e-9))
    assert few.history[0].gap < zero.history[0].gap
    assert few.primal == pytest.approx(zero.primal, rel=1e-8)


def test_a_reference_that_is_worse_is_taken_back(monkeypatch):
    import optimargin.solvers.dsvrg as module

    monkeypatch.setattr(module, "FIRST", 50.0)
    found = DSVRG(0, Parting(3)).solve(posed(), Start(), Stop(1e-5))
    assert found.status is Status.CONVERGED
    objectives = [line.objective for line in found.history]
    assert objectives == sorted(objectives, reverse=True)


@given(
    st.lists(st.floats(-3.0, 3.0), min_size=4, max_size=4),
    st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=2),
)
def test_the_step_in_the_plane_is_the_lowest_point_of_the_parabola(ways, slope):
    A = np.reshape(ways, (2, 2))
    H = A @ A.T + 0.1 * np.eye(2)
    x = dsvrg._lowest(H, np.array(slope))
    np.testing.assert_allclose(H @ x, -np.array(slope), atol=1e-9)


def test_a_way_that_is_nothing_or_the_same_is_not_gone():
    for H in (np.diag([2.0, 0.0]), np.full((2, 2), 2.0)):
        np.testing.assert_allclose(dsvrg._lowest(H, np.array([-1.0, 0.0])), [0.5, 0.0])
    np.testing.assert_array_equal(dsvrg._lowest(np.zeros((2, 2)), np.zeros(2)), 0.0)
    rounding = np.diag([1e-32, 2.0])  # a trial that is where the reference is
    np.testing.assert_allclose(dsvrg._lowest(rounding, np.array([1e-17, -1.0])), [0.0, 0.5])


def test_the_last_step_makes_steps_long_where_rows_are_few_and_wide(monkeypatch):
    """As conjugate gradients beside steepest descent: a third of the references, or fewer."""
    rng = np.random.default_rng(0)
    z = np.where(rng.random(150) < 0.5, 1.0, -1.0)
    Z = np.maximum(rng.normal(size=(150, 120)) + 0.2 * z[:, None], 0.0)
    problem = Problem(Z, z, None, odm(150.0, 0.1, 0.6, 150), 1.0)
    solver = DSVRG(0, Parting(3, "random"))
    plane = solver.solve(problem, Start(), Stop(1e-3))
    monkeypatch.setattr(dsvrg, "_lowest", lambda H, g: np.zeros(2))
    alone = solver.solve(problem, Start(), Stop(1e-3))
    assert plane.gap <= 1e-3
    assert 3 * plane.rounds <= alone.rounds


def test_the_coreset_is_the_whole_in_the_mean():
    problem = posed(weight=WEIGHT)
    shards = Parting(4).scattered(problem, 0)
    w, drawn = RNG.normal(size=D + 1), []
    for seed in range(60):
        core = CSVRG(seed, Parting(4))._coreset(shards, 80)
        assert len(core) == 1
        weight = core.parts[0].state["weight"]
        assert 60 <= len(weight) <= 84
        own = replace(core.parts[0].problem, weight=weight)
        drawn.append(value(own.losses, margins(own, w)).sum())
    exact = value(problem.losses, margins(problem, w)).sum()
    assert np.mean(drawn) == pytest.approx(exact, abs=4 * np.std(drawn) / np.sqrt(60))


@settings(max_examples=50)
@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=30), st.integers(0, 99))
def test_rows_come_as_often_as_they_should(often, seed):
    often = np.array(often)
    times = systematic(often, np.random.default_rng(seed))
    assert (times >= np.floor(often)).all()
    assert (times <= np.ceil(often)).all()
    for k in range(1, len(often) + 1):
        assert abs(times[:k].sum() - often[:k].sum()) <= 1.0 + 1e-9


# -- the estimator ------------------------------------------------------------------------


SETTINGS = [
    {"solver": "dsvrg", "n_partitions": 3},
    {"solver": "csvrg", "n_partitions": 3},
    {"solver": "newton", "n_partitions": 3, "engine": LocalEngine()},
    {"solver": "auto", "engine": LocalEngine(), "partition": "blocks"},
]


@pytest.mark.parametrize("given", SETTINGS, ids=lambda given: given["solver"])
def test_the_classifier_says_how_much_was_sent(given):
    plain = LinearODMClassifier(solver="newton", tol=1e-8).fit(X, y)
    assert not hasattr(plain, "traffic_")
    models = [
        LinearODMClassifier(**given, tol=1e-6, random_state=0, n_jobs=jobs).fit(X, y)
        for jobs in (1, 2)
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    for model in models:
        assert model.dual_gap_ <= 1e-6
        assert model.objective_ == pytest.approx(plain.objective_, rel=1e-5)
        assert model.traffic_["rounds"] > 0
        assert model.traffic_["bytes"] > 0
        assert model.solver_ == given["solver"].replace("auto", "newton")
        assert model.loo_bound_ == pytest.approx(plain.loo_bound_, rel=0.05)
    model.set_params(solver="newton", engine=None).fit(X, y)
    assert not hasattr(model, "traffic_")


@pytest.mark.parametrize("given", SETTINGS, ids=lambda given: given["solver"])
def test_warm_starts_go_on(given):
    model = LinearODMClassifier(**given, warm_start=True, random_state=0, tol=1e-5).fit(X, y)
    model.fit(X, y)
    assert model.n_iter_ == 0
    model.set_params(lam=1.5 * model.lam_).fit(X, y)
    assert model.dual_gap_ <= 1e-5


@pytest.mark.parametrize("given", SETTINGS, ids=lambda given: given["solver"])
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_several_classes_are_several_machines(given, multi_class):
    z = np.digitize(X[:, 0], [-0.5, 0.5])
    models = [
        LinearODMClassifier(**options, multi_class=multi_class, random_state=0).fit(X, z)
        for options in (given, {"solver": "newton"})
    ]
    assert np.mean(models[0].predict(X) == models[1].predict(X)) > 0.98
    assert len(models[0].dual_gap_) == 3
    assert models[0].traffic_["rounds"] >= 6


def test_what_cannot_be_is_refused():
    z = np.digitize(X[:, 0], [-0.5, 0.5])
    for solver in ("dsvrg", "csvrg"):
        with pytest.raises(ValueError, match="is for two classes"):
            LinearODMClassifier(solver=solver).fit(X, z)
    with pytest.raises(ValueError, match="engine is for machines of two classes"):
        LinearODMClassifier(engine=LocalEngine()).fit(X, z)
    for solver in ("dcd", "svrg"):
        with pytest.raises(ValueError, match="needs all rows in one place"):
            LinearODMClassifier(solver=solver, engine=LocalEngine()).fit(X, y)
    for wrong in (
        {"engine": "threads"},
        {"n_partitions": 0},
        {"partition": "half"},
        {"n_strata": 0},
        {"solver": "sodm"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            LinearODMClassifier(**wrong).fit(X, y)


def test_more_parts_than_rows_are_as_many_as_rows():
    model = LinearODMClassifier(solver="dsvrg", n_partitions=50, random_state=0)
    assert model.fit(X[:20], y[:20]).dual_gap_ <= 1e-4


def test_a_model_file_leaves_the_engine_behind(tmp_path):
    import optimargin

    model = LinearODMClassifier(engine=LocalEngine(), n_partitions=2).fit(X, y)
    model.save(tmp_path / "model")
    again = optimargin.load(tmp_path / "model")
    assert again.engine is None
    assert again.traffic_ == model.traffic_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert clone(model).n_partitions == 2


def test_sodm_says_how_much_was_sent():
    for options in ({}, {"partition": "kmeans"}):
        model = ODMClassifier(solver="sodm", n_partitions=4, fan_in=2, random_state=0, **options)
        traffic = model.fit(X, y).traffic_
        assert traffic["rounds"] >= model.n_iter_
        assert traffic["bytes"] > 0
    assert not hasattr(model.set_params(solver="dcd").fit(X, y), "traffic_")
