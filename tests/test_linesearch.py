import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from optimargin.linesearch import best_step, crossing, valley
from optimargin.loss import is_smooth, scaled, slope, value
from strategies import losses


@given(losses.filter(is_smooth), st.integers(0, 10_000), st.integers(1, 30))
def test_no_step_along_the_line_is_better(loss, seed, n):
    rng = np.random.default_rng(seed)
    u, du, weight = rng.normal(size=n), rng.normal(size=n), rng.uniform(0, 2, size=n)
    w, p = rng.normal(size=3), rng.normal(size=3)

    def along(t):
        return 0.5 * (w + t * p) @ (w + t * p) + value(scaled(loss, weight), u + t * du).sum()

    downhill = w @ p + (slope(scaled(loss, weight), u) * du).sum()
    assume(downhill < -1e-6)
    t = best_step(loss, weight, u, du, w @ p, p @ p)
    best = minimize_scalar(along, bounds=(0, 2 * t + 1), method="bounded")
    assert t > 0
    assert along(t) <= best.fun + 1e-8 * (1 + abs(best.fun))


def test_a_full_newton_step_on_one_piece_has_length_one():
    from optimargin.loss import squared_hinge

    u, du = np.array([-1.0]), np.array([1.0])
    loss = squared_hinge(1.0)
    # w = 0, p = x y t: P(t) = t^2/2 + (1 - u - t)^2 has its minimum where t = 2 (2 - t).
    t = best_step(loss, np.ones(1), u, du, 0.0, 1.0)
    assert t == pytest.approx(4 / 3)


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e6), st.floats(0, 1e3))
def test_a_valley_is_found_by_slopes_alone(place, steep, kink):
    """Of the function whose slope is piecewise linear, with a jump at its least point."""

    def slope(t):
        return steep * (t - place) + kink * (t > place)

    t = valley(slope, slope(0.0))
    assert 0 < t <= place or abs(slope(t)) <= 0.1 * abs(slope(0.0))
    assert t >= 0.5 * place


@given(st.floats(1e-3, 10.0), st.floats(1e-6, 1e6), st.floats(0, 1e3))
def test_slopes_at_several_places_tell_where_they_cross(place, steep, kink):
    """A slope that rises evenly is found where it is 0; with a jump, between its neighbours."""
    times = np.append(0.0, 2.0 ** np.arange(-6, 3))
    rises = steep * (times - place) + kink * (times > place)
    low, t = crossing(times, rises)
    assert low == times[times < place][-1]
    assert low <= t <= times[min(np.searchsorted(times, place), len(times) - 1)]
    if kink == 0 and place <= times[-1]:
        assert t == pytest.approx(place, rel=1e-9)
