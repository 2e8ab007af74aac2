import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from optimargin.loss import (
    conjugate,
    conjugate_curvature,
    conjugate_slope,
    curvature,
    dual_gain,
    dual_of,
    dual_step,
    hinge,
    is_smooth,
    odm,
    rounded,
    row_gap,
    scaled,
    slope,
    squared_hinge,
    value,
)
from oracle import hinge_value, odm_value, squared_hinge_value
from strategies import losses, margins, positive


def feasible(loss, share):
    """A dual value inside the loss's bounds, spread over its natural scale."""
    low = max(loss.a_min, -10.0 / loss.ridge_hi) if loss.a_min < 0 else 0.0
    high = min(loss.a_max, 10.0 / loss.ridge_lo)
    return low + share * (high - low)


@given(positive, st.floats(0, 5), st.floats(0, 0.95), st.integers(1, 1000), margins)
def test_odm_is_its_formula(lam, mu, theta, n, u):
    assert value(odm(lam, mu, theta, n), u) == pytest.approx(
        odm_value(u, lam, mu, theta, n), rel=1e-12
    )


@given(positive, margins)
def test_svm_losses_are_their_formulas(C, u):
    assert value(hinge(C), u) == pytest.approx(hinge_value(u, C), rel=1e-12)
    assert value(squared_hinge(C), u) == pytest.approx(squared_hinge_value(u, C), rel=1e-12)


@given(positive, st.integers(1, 1000), margins)
def test_odm_without_its_upper_side_is_the_squared_hinge(C, n, u):
    assert value(odm(C * n, 0.0, 0.0, n), u) == pytest.approx(value(squared_hinge(C), u))


@given(losses, margins)
def test_fenchel_young_is_tight_at_the_slope(loss, u):
    a = -slope(loss, u)
    gap = value(loss, u) + conjugate(loss, a) + a * u
    assert abs(gap) <= 1e-9 * (1 + value(loss, u) + abs(a * u))


@given(losses, margins, st.floats(0, 1))
def test_no_pair_of_margin_and_dual_has_a_negative_gap(loss, u, share):
    a = feasible(loss, share)
    assert row_gap(loss, a, u) >= -1e-9 * (1 + value(loss, u) + abs(a * u))


@given(losses, st.floats(-20, 20))
def test_slope_matches_differences(loss, u):
    step = 1e-6
    if min(abs(u - loss.lo), abs(u - loss.hi)) < 2 * step:
        return
    difference = (value(loss, u + step) - value(loss, u - step)) / (2 * step)
    assert slope(loss, u) == pytest.approx(difference, rel=1e-4, abs=1e-5)


@given(losses, st.floats(-20, 20))
def test_curvature_matches_differences_of_the_slope(loss, u):
    step = 1e-6
    if min(abs(u - loss.lo), abs(u - loss.hi)) < 2 * step:
        return
    difference = (slope(loss, u + step) - slope(loss, u - step)) / (2 * step)
    assert curvature(loss, u) == pytest.approx(difference, rel=1e-4, abs=1e-5)


@given(losses, st.floats(0.01, 0.9), st.sampled_from([-1.0, 1.0]))
def test_slope_and_curvature_of_the_conjugate_match_differences(loss, share, sign):
    a = share * np.clip(10.0 * sign, loss.a_min, loss.a_max)
    if a == 0.0:
        return
    h = 1e-6 * abs(a)
    steps = conjugate(loss, a + h) - conjugate(loss, a - h)
    size = abs(loss.lo) + abs(loss.hi) + (loss.ridge_lo + loss.ridge_hi) * abs(a)
    assert np.isclose(conjugate_slope(loss, a), steps / (2 * h), atol=1e-4 * size)
    bend = conjugate_slope(loss, a + h) - conjugate_slope(loss, a - h)
    assert np.isclose(conjugate_curvature(loss, a), bend / (2 * h), rtol=1e-3, atol=1e-4 * size)


@given(losses, margins, st.floats(0, 1), st.floats(1e-3, 1e3))
def test_dual_step_minimises_along_its_coordinate(loss, u, share, q):
    a = feasible(loss, share)

    def along(b):
        return 0.5 * q * b**2 + (u - q * a) * b + conjugate(loss, b)

    new = dual_step(loss, a, u, q)
    assert loss.a_min <= new <= loss.a_max
    reach = 10 * (abs(new) + abs(a) + 1)
    best = minimize_scalar(
        along, bounds=(max(loss.a_min, -reach), min(loss.a_max, reach)), method="bounded"
    )
    assert along(new) <= best.fun + 1e-7 * (1 + abs(best.fun))
    assert dual_gain(loss, a, new, u, q) == pytest.approx(
        along(a) - along(new), abs=1e-9 * (1 + abs(along(a)) + abs(along(new)))
    )


@given(losses, margins, st.floats(0.1, 10))
def test_weights_scale_the_loss(loss, u, s):
    own = scaled(loss, s)
    assert value(own, u) == pytest.approx(s * value(loss, u), rel=1e-12)
    assert dual_of(own, u) == pytest.approx(s * dual_of(loss, u), rel=1e-12)


@given(losses, margins)
def test_a_weight_of_zero_leaves_nothing(loss, u):
    own = scaled(loss, 0.0)
    assert value(own, u) < 1e-80
    assert abs(dual_of(own, u)) < 1e-80
    assert abs(dual_step(own, 0.0, u, 1.0)) < 1e-80


@given(losses, st.lists(margins, min_size=1, max_size=5))
def test_arrays_and_numbers_agree(loss, us):
    for formula in (value, slope, curvature, dual_of):
        whole = formula(loss, np.array(us))
        assert whole.tolist() == [formula(loss, u) for u in us]


def test_only_the_hinge_has_a_kink():
    assert is_smooth(odm(1.0, 0.5, 0.2, 10))
    assert is_smooth(squared_hinge(1.0))
    assert not is_smooth(hinge(1.0))


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 4.0), st.floats(-50, 50))
def test_a_rounded_hinge_is_smooth_feasible_and_near(C, width, u):
    loss, near = hinge(C), rounded(hinge(C), width)
    assert is_smooth(near)
    assert 0.0 <= dual_of(near, u) <= C
    excess = value(near, u) - value(loss, u)
    assert -1e-12 * C * (1 + abs(u)) <= excess <= C * width / 8 + 1e-12 * C * (1 + abs(u))
    gap = row_gap(loss, dual_of(near, u), u)
    assert -1e-12 * C * (1 + abs(u)) <= gap <= C * width / 16 + 1e-12 * C * (1 + abs(u))
    if abs(u - 1.0) > 0.51 * width:
        assert excess == pytest.approx(0.0, abs=1e-12 * C * (1 + abs(u)))
        assert curvature(near, u) == 0.0
