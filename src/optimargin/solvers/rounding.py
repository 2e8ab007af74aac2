"""The hinge for Newton's method: its kink is rounded, as finely as the wished gap asks for.

Problem      min_w P(w), P with the hinge, which has no curvature
Rounded      P_h(w), the hinge replaced by `loss.rounded` of width h: smooth, and quadratic where a
             margin is within h / 2 of 1
Certificate  the dual variables a of the rounded loss are feasible for the hinge, so
             P(w) - D(a) = |grad P_h(w)|^2 / 2 + sum_i (loss_i(u_i) + psi_i(a_i) + a_i u_i)
             with the hinge's own loss and psi: the certificate is that of the hinge.  Only rows
             that are being rounded add to the sum, each up to h C / 16, so it falls as h^2
Width        shrinks when the sum is the larger part of the gap: to where the sum would be half of
             what is wished for, but not too fast, so that each width begins where Newton's method
             is quick.  Losses that are smooth have the width 0, and nothing is added
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optimargin.loss import Loss, curvature, dual_of, is_smooth, of_row, rounded, row_gap, value
from optimargin.problem import Problem
from optimargin.rows import compiled
from optimargin.solvers.passes import Pull, pull

_FIRST = 8.0  # width where nothing is known: margins of 0 are well inside
_LEAST = 1e-10  # a width below which there is nothing to gain
_SHARE = 0.5  # of the wished gap, which may be due to rounding
_SHRINK = 0.1  # the smallest ratio of two widths
_STAYS = 0.5  # the largest
_FAR = 4.0  # ratio of the two widths whose curvatures make a soft step


class At(NamedTuple):
    """A model, the rounded objective and its gradient there, and what the loss itself says.

    ``primal`` is the objective, ``rounding`` what of its duality gap is due to the width.
    """

    w: np.ndarray
    value: float
    gradient: np.ndarray
    width: float
    primal: float
    rounding: float

    @property
    def distance(self) -> float:
        """What of the duality gap is due to the gradient."""
        return 0.5 * float(self.gradient @ self.gradient)

    @property
    def bound(self) -> float:
        """The dual objective of the loss itself."""
        return self.primal - self.rounding - self.distance

    def next_width(self, tol: float) -> float:
        """The width for the next step, if a relative gap of ``tol`` is wished for."""
        if self.distance > _SHARE * self.rounding or self.width <= _LEAST:
            return self.width
        wished = _SHARE * tol * abs(self.primal)
        ratio = float(np.sqrt(wished / self.rounding)) if self.rounding > 0.0 else 1.0
        if ratio >= 1.0:  # the gap is reached, and somebody wants to go on
            ratio = _SHRINK
        return self.width * min(max(ratio, _SHRINK), _STAYS)


def first_width(loss: Loss) -> float:
    """The width to begin with; 0 where the loss is smooth."""
    return 0.0 if is_smooth(loss) else _FIRST


def smoothed(problem: Problem, width: float) -> Problem:
    """The problem with the rounded loss."""
    return problem.changed(loss=rounded(problem.loss, width)) if width else problem


def pulled(
    problem: Problem, width: float, u: np.ndarray, soft: bool = False
) -> tuple[Pull, float, float]:
    """What the rounded losses say at the margins u; the losses, and what the width adds to the gap.

    Where it is ``soft``, the curvature is the mean of that of this width and of a larger one: then
    even a feature that few rows have is hardly ever without any, and steps do not shoot over.
    """
    if not width:
        found = pull(problem, u)
        return found, found.total, 0.0
    found = pull(smoothed(problem, width), u)
    if soft:
        far = rounded(problem.loss, _FAR * width)
        _soften(far, problem.weight, u, found.curvature)
    return found, *_priced(problem.loss, rounded(problem.loss, width), problem.weight, u)


def fitting_width(problem: Problem, u: np.ndarray, tol: float) -> float:
    """The width for margins near u, if a relative gap of ``tol`` is wished for."""
    width = first_width(problem.loss)
    while width > _LEAST and u.any():
        near = rounded(problem.loss, width)
        total, gap = _priced(problem.loss, near, problem.weight, u)
        if gap <= _SHARE * tol * total:
            break
        width *= _STAYS
    return width


@compiled
def _soften(far, weight, u, h):
    for i in range(len(u)):
        h[i] = 0.5 * (h[i] + curvature(of_row(far, weight, i), u[i]))


@compiled
def _priced(loss, round_loss, weight, u):
    total, gap = 0.0, 0.0
    for i in range(len(u)):
        own, a = of_row(loss, weight, i), dual_of(of_row(round_loss, weight, i), u[i])
        total += value(own, u[i])
        gap += row_gap(own, a, u[i])
    return total, gap
