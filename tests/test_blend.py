"""The best blend of a few models."""

from threading import Thread

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from optimargin.blend import best_blend
from optimargin.loss import conjugate, is_smooth, is_unbounded, scaled, value
from strategies import losses


@given(losses.filter(is_smooth), st.integers(0, 10**6), st.integers(2, 40), st.booleans())
def test_no_blend_is_better(loss, seed, n, weighted):
    rng = np.random.default_rng(seed)
    X, y, W = rng.normal(size=(n, 4)), rng.choice([-1.0, 1.0], n), rng.normal(size=(3, 4))
    weight = rng.uniform(0, 2, n) if weighted else None
    losses_ = loss if weight is None else scaled(loss, weight)

    def primal(c):
        w = c @ W
        return 0.5 * w @ w + value(losses_, y * (X @ w)).sum()

    c, best = best_blend(loss, weight, False, W @ W.T, tuple(y * (X @ w) for w in W), 1e-12)
    found = min(minimize(primal, start, method="BFGS").fun for start in (c, np.eye(3)[0]))
    assert np.isclose(best, primal(c), rtol=1e-9)
    assert best <= primal(np.eye(3)[0]) * (1 + 1e-12)
    assert best <= found + 1e-6 * (1 + abs(found))


def test_equal_models_do_no_harm():
    from optimargin.loss import squared_hinge

    u = np.array([0.5, -1.0, 2.0])
    c, best = best_blend(squared_hinge(1.0), None, False, np.ones((3, 3)), (u, u, u), 1e-12)
    alone, single = best_blend(squared_hinge(1.0), None, False, np.ones((1, 1)), (u,), 1e-12)
    assert np.isclose(best, single)
    assert np.isclose(c.sum(), alone[0])


def test_a_gap_below_zero_by_rounding_does_not_go_on_for_ever():
    from optimargin.loss import odm

    # The model (0.96,) has the least objective of all, so no step is better.
    u, G = np.array([0.96, 0.96]), np.full((1, 1), 0.96**2)
    loss = odm(48.0 * 0.9**2, 0.5, 0.04, 2.0)
    c, _ = best_blend(loss, None, False, G, (u,), 1e-12)
    found = []
    search = Thread(
        target=lambda: found.append(best_blend(loss, None, False, c * G * c, (c * u,), -2e-15)),
        daemon=True,
    )
    search.start()
    search.join(60.0)
    assert found
    assert np.isclose(found[0][0], 1.0)


@given(losses.filter(is_unbounded), st.integers(0, 10**6), st.integers(2, 40), st.booleans())
def test_a_blend_of_dual_variables_is_no_worse_than_where_they_are(loss, seed, n, weighted):
    rng = np.random.default_rng(seed)
    Z, A = rng.normal(size=(n, 4)), rng.normal(size=(3, n))
    weight = rng.uniform(0.1, 2, n) if weighted else None
    losses_ = loss if weight is None else scaled(loss, weight)

    def least(c):
        w = c @ A @ Z
        return 0.5 * w @ w + conjugate(losses_, c @ A).sum()

    W = A @ Z
    c, best = best_blend(loss, weight, True, W @ W.T, tuple(A), 1e-12)
    size = 1 + abs(least(c))
    assert np.isclose(best, least(c), rtol=1e-9, atol=1e-9 * size)
    assert best <= least(np.eye(3)[0]) + 1e-9 * size
