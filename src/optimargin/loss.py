"""Margin losses, each with its slope, curvature, conjugate and dual step.

Every loss of this package is one convex function of the margin u = y f(x),
described by its conjugate in the signed dual variable a:

    psi(a) = -lo a + ridge_lo a^2 / 2    for 0 <= a <= a_max
             -hi a + ridge_hi a^2 / 2    for a_min <= a < 0
    value(u) = max_a  -a u - psi(a)

====================  ========  ========  ===============  =================  ======  =====
loss                  lo        hi        ridge_lo         ridge_hi           a_min   a_max
====================  ========  ========  ===============  =================  ======  =====
ODM, math of `odm`    1-theta   1+theta   1/(2c)           1/(2 c mu)         -inf    inf
squared hinge         1         -         1/(2C)           -                  0       inf
hinge                 1         -         0                -                  0       C
====================  ========  ========  ===============  =================  ======  =====

The functions use operators, `at_least`, `at_most` and `pick` only, so the same lines serve
scalars inside compiled loops and whole arrays outside them, on whatever device these are.  A
row's weight scales its loss: ``scaled(loss, s)`` is the loss s * value(u), ``of_row(loss, weight,
i)`` that of a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from optimargin.arrays import at_least, at_most, pick

_TINY = 1e-300  # stands for zero where a quotient must stay defined
_NO_WEIGHT = 1e-100  # stands for a weight of zero, far from overflow


class Loss(NamedTuple):
    """A piecewise quadratic margin loss, by the numbers of its conjugate."""

    lo: Any
    hi: Any
    ridge_lo: Any
    ridge_hi: Any
    a_min: Any
    a_max: Any


def odm(lam: float, mu: float, theta: float, n: float) -> Loss:
    """C [(1-theta-u)_+^2 + mu (u-1-theta)_+^2] with c = lam / (n (1-theta)^2)."""
    lam, mu, theta, n = float(lam), float(mu), float(theta), float(n)
    c = lam / (n * (1.0 - theta) ** 2)
    if c * mu < _NO_WEIGHT:  # the upper side is switched off
        return Loss(1.0 - theta, 1.0 + theta, 1.0 / (2.0 * c), 1.0, 0.0, np.inf)
    return Loss(1.0 - theta, 1.0 + theta, 1.0 / (2.0 * c), 1.0 / (2.0 * c * mu), -np.inf, np.inf)


def squared_hinge(C: float) -> Loss:
    """C (1-u)_+^2: the L2-SVM of LIBLINEAR, and ODM with mu = theta = 0, lam = C n."""
    return Loss(1.0, 1.0, 1.0 / (2.0 * float(C)), 1.0, 0.0, np.inf)


def hinge(C: float) -> Loss:
    """C (1-u)_+: the L1-SVM; its dual variable is bounded by C."""
    return Loss(1.0, 1.0, _TINY, 1.0, 0.0, float(C))


def rounded(loss: Loss, width: float, above: float = 0.5) -> Loss:
    """A hinge whose kink is spread over margins of some width, of which a share is above it.

    Its dual variables have the same bounds, so they are feasible for the hinge.
    """
    return loss._replace(lo=loss.lo + above * width, ridge_lo=width / loss.a_max)


def is_smooth(loss: Loss) -> bool:
    """Whether the loss has a Lipschitz slope, as every Newton and gradient method needs."""
    return loss.ridge_lo > _TINY


def is_unbounded(loss: Loss) -> bool:
    """Whether the dual variable may be any number."""
    return bool(np.isneginf(loss.a_min) and np.isposinf(loss.a_max))


def steepest(loss: Loss) -> float:
    """The largest curvature of the loss."""
    return 1.0 / (min(loss.ridge_lo, loss.ridge_hi) if loss.a_min < 0.0 else loss.ridge_lo)


@register_jitable
def scaled(loss, s):
    """The loss s * value(u); s = 0 is taken as a number too small to matter."""
    s = at_least(s, _NO_WEIGHT)
    r = 1.0 / s
    return Loss(
        loss.lo, loss.hi, loss.ridge_lo * r, loss.ridge_hi * r, loss.a_min * s, loss.a_max * s
    )


@register_jitable
def of_row(loss, weight, i):
    """Row i's own loss; ``weight`` is None where every row counts the same."""
    if weight is None:
        return loss
    return scaled(loss, weight[i])


@register_jitable
def dual_of(loss, u):
    """The dual variable that belongs to a margin: a = -slope(u), always feasible."""
    below = at_most(at_least(loss.lo - u, 0.0) / loss.ridge_lo, loss.a_max)
    above = at_least(at_most(loss.hi - u, 0.0) / loss.ridge_hi, loss.a_min)
    return below + above


@register_jitable
def slope(loss, u):
    """Derivative of the loss at the margin u (one of them, where there is a kink)."""
    return -dual_of(loss, u)


@register_jitable
def value(loss, u):
    """The loss at the margin u."""
    short, far = at_least(loss.lo - u, 0.0), at_least(u - loss.hi, 0.0)
    below = at_most(short / loss.ridge_lo, loss.a_max)
    above = at_most(far / loss.ridge_hi, -loss.a_min)
    return below * (short - 0.5 * loss.ridge_lo * below) + above * (
        far - 0.5 * loss.ridge_hi * above
    )


@register_jitable
def curvature(loss, u):
    """Second derivative of the loss at the margin u (zero on linear and flat pieces)."""
    a = dual_of(loss, u)
    below = pick((u < loss.lo) & (a < loss.a_max), 1.0 / loss.ridge_lo)
    above = pick((u > loss.hi) & (a > loss.a_min), 1.0 / loss.ridge_hi)
    return below + above


@register_jitable
def target(loss, u):
    """Where the quadratic piece at the margin u has its minimum: lo or hi."""
    return pick(u <= loss.lo, loss.lo) + pick(u > loss.lo, loss.hi)


@register_jitable
def conjugate(loss, a):
    """psi(a), the convex conjugate of the loss at -a; finite for a_min <= a <= a_max."""
    below, above = at_least(a, 0.0), at_most(a, 0.0)
    return below * (0.5 * loss.ridge_lo * below - loss.lo) + above * (
        0.5 * loss.ridge_hi * above - loss.hi
    )


@register_jitable
def conjugate_slope(loss, a):
    """Derivative of psi at a, for a other than 0, where it has a kink."""
    return pick(a > 0.0, loss.ridge_lo * a - loss.lo) + pick(a < 0.0, loss.ridge_hi * a - loss.hi)


@register_jitable
def conjugate_curvature(loss, a):
    """Second derivative of psi at a, for a other than 0."""
    return pick(a > 0.0, loss.ridge_lo) + pick(a < 0.0, loss.ridge_hi)


@register_jitable
def dual_step(loss, a, u, q):
    """Best new value of one dual variable, the others held.

    Minimises q b^2 / 2 + (u - q a) b + psi(b) over b: u is the row's margin now,
    q its squared norm K_ii.
    """
    p = q * a - u
    below = at_most(at_least(p + loss.lo, 0.0) / (q + loss.ridge_lo), loss.a_max)
    above = at_least(at_most(p + loss.hi, 0.0) / (q + loss.ridge_hi), loss.a_min)
    return below + above


@register_jitable
def row_gap(loss, a, u):
    """value(u) + psi(a) + a u >= 0, a row's share of the duality gap when w = w(a)."""
    return value(loss, u) + conjugate(loss, a) + a * u


@register_jitable
def dual_gain(loss, a, b, u, q):
    """What the dual objective gains when one variable moves from a to b, others held."""
    step = b - a
    return conjugate(loss, a) - conjugate(loss, b) - step * (u + 0.5 * q * step)
