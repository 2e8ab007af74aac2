"""The dual objective over a plane: its parabola is the objective, and its least point the least."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimargin.loss import conjugate, hinge, odm, squared_hinge
from optimargin.problem import Problem
from optimargin.solvers.dual_plane import FAR, again, best, plane
from optimargin.solvers.sweeps import model

N, D = 40, 6


def posed(loss, rng):
    X, y = rng.normal(size=(N, D)), np.where(rng.random(N) < 0.5, 1.0, -1.0)
    return Problem(X, y, rng.uniform(0.5, 2.0, N), loss, 1.0)


def dual(problem, a):
    w = model(problem, a)
    return 0.5 * w @ w + conjugate(problem.losses, a).sum()


@given(st.integers(0, 10**6), st.sampled_from(["hinge", "squared_hinge", "odm"]))
def test_the_parabola_is_the_objective_inside_the_triangle(seed, name):
    rng = np.random.default_rng(seed)
    loss = {"hinge": hinge(1.0), "squared_hinge": squared_hinge(1.0), "odm": odm(N, 0.5, 0.2, N)}
    problem = posed(loss[name], rng)
    losses = problem.losses
    if name == "odm":  # nobody changes sign
        a = rng.uniform(0.5, 1.0, N) * rng.choice([-1.0, 1.0], N)
        d, move = 0.1 * rng.normal(size=N) * abs(a), 0.05 * rng.normal(size=N) * abs(a)
    else:
        top = np.minimum(losses.a_max, 2.0)
        a = np.clip(rng.uniform(-0.5, 1.5, N), 0.0, top)
        d = np.clip(a + rng.normal(size=N), 0.0, top) - a
        move = a - np.clip(a + rng.normal(size=N), 0.0, top)
    s, cut = again(problem, a, move)
    np.testing.assert_allclose(s, FAR * move + cut)
    assert (a + s >= losses.a_min).all()
    assert (a + s <= losses.a_max + 1e-15).all()
    w, p, r = (model(problem, v) for v in (a, d, s))
    sums, own = plane(problem, a, d, s), plane(problem, a, d, d)
    slopes = np.array([w @ p + own[0], w @ r + sums[0]])
    cross = p @ r + sums[1]
    curves = np.array([[p @ p + own[2], cross], [cross, r @ r + sums[2]]])
    found = best(slopes, curves)
    f = dual(problem, a)
    least = f
    for x in np.concatenate([rng.dirichlet(np.ones(3), 20)[:, :2], np.eye(2), np.zeros((1, 2))]):
        there = dual(problem, a + x[0] * d + x[1] * s)
        assert there - f == pytest.approx(slopes @ x + 0.5 * x @ curves @ x, rel=1e-9, abs=1e-9)
        least = min(least, there)
    assert found.along >= 0.0
    assert found.again >= 0.0
    assert found.along + found.again <= 1.0 + 1e-12
    assert f - found.promised <= least + 1e-9
    there = dual(problem, a + found.along * d + found.again * s)
    assert f - there == pytest.approx(found.promised, rel=1e-9, abs=1e-9)


def test_nothing_is_promised_where_nothing_falls():
    assert best(np.array([1.0, 2.0]), np.eye(2)) == (0.0, 0.0, 0.0)
    assert best(np.array([-1.0, 0.0]), np.zeros((2, 2))) == (1.0, 0.0, 1.0)
