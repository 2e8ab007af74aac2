"""The dual objective along a line: parts add up to the whole, and the step is the best there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimargin.loss import conjugate, hinge, odm, scaled, squared_hinge
from optimargin.problem import Problem
from optimargin.solvers.dual_line import _EDGES, Descent, Least, line
from optimargin.solvers.sweeps import Metric, model, sweep

LOSSES = (hinge(0.7), squared_hinge(0.3), odm(20.0, 0.4, 0.3, 30.0), odm(20.0, 0.0, 0.3, 30.0))


def posed(seed, loss, weighed):
    """A problem, feasible dual variables, and a direction that stays feasible up to 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 4))
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    weight = rng.uniform(0.2, 3.0, size=30) if weighed else None
    problem = Problem(X, y, weight, loss, 1.0)
    losses = problem.losses
    a = np.clip(rng.normal(size=30), losses.a_min, losses.a_max) * (rng.random(30) < 0.7)
    w = model(problem, a)
    return problem, a, sweep(problem, problem.sqnorms, a, w.copy(), Metric(1.0), rng, times=1) - a


def objective(problem, a):
    w = model(problem, a)
    return 0.5 * w @ w + conjugate(problem.losses, a).sum()


def descent(problem, a, d):
    return Descent(model(problem, a), model(problem, d), *line(problem, a, d))


cases = given(st.integers(0, 10_000), st.sampled_from(LOSSES), st.booleans())


@settings(max_examples=60)
@cases
def test_changes_are_exact_at_the_edges(seed, loss, weighed):
    problem, a, d = posed(seed, loss, weighed)
    along, here = descent(problem, a, d), objective(problem, a)
    for t in _EDGES[::6]:
        if t <= along.reach:
            change = objective(problem, a + t * d) - here
            assert along.change(t) == pytest.approx(change, rel=1e-9, abs=1e-9 * (1 + abs(here)))


@settings(max_examples=60)
@cases
def test_the_exact_step_is_the_best_feasible_one(seed, loss, weighed):
    problem, a, d = posed(seed, loss, weighed)
    along, losses = descent(problem, a, d), problem.losses
    t = along.exact()
    there, slack = a + t * d, 1e-12 * (1 + np.abs(a))
    assert (there >= losses.a_min - slack).all()
    assert (there <= losses.a_max + slack).all()
    least = objective(problem, there)
    grid = t * np.array([0.0, 0.5, 0.9, 0.99, 1.01, 1.1, 2.0])
    others = [objective(problem, a + s * d) for s in grid if s <= along.reach]
    worth = 2e-3 * (objective(problem, a) - least)  # of what the step gains
    assert least <= min(others) + worth + 1e-12
    assert least < objective(problem, a)


@settings(max_examples=40)
@cases
def test_armijos_step_gains_its_share(seed, loss, weighed):
    problem, a, d = posed(seed, loss, weighed)
    along = descent(problem, a, d)
    t = along.armijo(0.5, 0.1)
    assert np.log2(t) == round(np.log2(t))
    gained = objective(problem, a + t * d) - objective(problem, a)
    assert gained <= 0.1 * t * along.slope[0] + 1e-12
    if t < 1.0:
        more = objective(problem, a + 2 * t * d) - objective(problem, a)
        assert more > 0.2 * t * along.slope[0] - 1e-12


@settings(max_examples=20)
@cases
def test_parts_add_up(seed, loss, weighed):
    problem, a, d = posed(seed, loss, weighed)
    whole = line(problem, a, d)
    halves = []
    for k in (slice(0, 11), slice(11, 30)):
        weight = None if problem.weight is None else problem.weight[k]
        part = Problem(problem.X[k], problem.y[k], weight, loss, 1.0)
        halves.append(line(part, a[k], d[k]))
    np.testing.assert_allclose(halves[0].pieces + halves[1].pieces, whole.pieces, atol=1e-9)
    assert (halves[0].reach + halves[1].reach).value == whole.reach.value


def test_the_least_of_several_is_their_sum():
    assert (Least(2.0) + Least(1.0) + Least(np.inf)).value == 1.0


def test_no_direction_is_no_step():
    problem, a, d = posed(0, LOSSES[0], False)
    still = descent(problem, a, 0.0 * d)
    assert still.exact() == 0.0
    assert still.armijo(0.5, 0.1) == 0.0


@pytest.mark.parametrize("loss", [scaled(odm(20.0, 0.4, 0.3, 30.0), s) for s in (1e-3, 1e3)])
def test_weights_change_no_breakpoint(loss):
    problem, a, d = posed(3, loss, True)
    along = descent(problem, a, d)
    assert along.change(along.exact()) <= 0.0
