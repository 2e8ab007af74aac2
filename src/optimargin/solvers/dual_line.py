"""The dual objective along a line, from numbers that parts can add up.

    f(t) = 1/2 |w + t p|^2 + sum_i psi_i(a_i + t d_i),   p = w(d),   0 <= t <= reach

is convex and piecewise quadratic.  Without an upper side (hinge, squared hinge) psi has one piece
inside its bounds, and f is one parabola up to the reach.  With one (ODM) psi has a kink at zero,
and a row whose sign changes at t_i = -a_i / d_i starts a new piece there.  A part says what its
rows add to the first piece, and for each of some cells of t what the pieces that start there add
to all later ones, as coefficients of 1, t and t^2 / 2.  So f is exact at the edges of the cells,
and inside the one that holds the minimum its slope is taken as linear, which it is but for the
pieces that start there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optimargin.loss import is_unbounded, of_row
from optimargin.problem import Problem
from optimargin.rows import compiled

_OCTAVE, _OCTAVES = 8, 6  # cells for each factor of 2; from 2^-6 to 2^6
_EDGES = 2.0 ** (np.arange(-_OCTAVE * _OCTAVES, _OCTAVE * _OCTAVES + 1) / _OCTAVE)


@dataclass(frozen=True)
class Least:
    """A number that adds up to the least of several."""

    value: float

    def __add__(self, other: Least) -> Least:
        return self if self.value <= other.value else other


class Line(NamedTuple):
    """What the rows add to f: coefficients of 1, t and t^2 / 2 for each cell, and the reach.

    The first column is the first piece; there are no others where psi has no kink inside.
    """

    pieces: np.ndarray
    reach: Least


def line(problem: Problem, a: np.ndarray, d: np.ndarray) -> Line:
    """What the rows of a part say of the way from a along d."""
    kinked = is_unbounded(problem.loss)
    pieces = np.zeros((3, 1 + (len(_EDGES) if kinked else 0)))
    reach = _tally(problem.loss, problem.weight, a, d, kinked, pieces)
    return Line(pieces, Least(reach))


class Descent:
    """The dual objective along a line, all rows together."""

    def __init__(self, w: np.ndarray, p: np.ndarray, pieces: np.ndarray, reach: Least) -> None:
        total = np.cumsum(pieces, axis=1)
        self.value, self.slope = total[0], total[1] + float(w @ p)
        self.curve = total[2] + float(p @ p)
        self.edges = _EDGES if pieces.shape[1] > 1 else np.empty(0)
        self.reach = min(reach.value, _EDGES[-1]) if len(self.edges) else reach.value

    def change(self, t: float) -> float:
        """The difference f(t) - f(0), exact where t is an edge of a cell."""
        k = int(np.searchsorted(self.edges, t, side="right"))
        return float(self.value[k] + t * (self.slope[k] + 0.5 * t * self.curve[k]))

    def exact(self) -> float:
        """The t where f is least; 0 where it does not fall."""
        if not self.slope[0] < 0.0:
            return 0.0
        ends = self.slope[1:] + self.edges * self.curve[1:]  # slopes at the edges
        k = int(np.searchsorted(ends, 0.0))  # f is convex: they rise
        if k == len(ends):
            flat = not self.curve[k] > 0.0
            return float(self.reach if flat else min(-self.slope[k] / self.curve[k], self.reach))
        low = self.edges[k - 1] if k else 0.0
        first = self.slope[k] + low * self.curve[k]
        return float(low + (self.edges[k] - low) * first / (first - ends[k]))

    def armijo(self, shrink: float, share: float) -> float:
        """The largest power t of ``shrink`` with f(t) - f(0) <= share t f'(0)."""
        lean, t = float(self.slope[0]), 1.0
        while lean < 0.0 and t > 1e-12:
            if self.change(t) <= share * t * lean:
                return t
            t *= shrink
        return 0.0


@compiled
def _tally(loss, weight, a, d, kinked, pieces):
    """Add what the rows say to the pieces; returns how far all variables may go."""
    reach = np.inf
    for i in range(len(a)):
        if d[i] == 0.0:
            continue
        own = of_row(loss, weight, i)
        above = a[i] > 0.0 or (a[i] == 0.0 and d[i] > 0.0)
        ridge, pull = (own.ridge_lo, own.lo) if above else (own.ridge_hi, own.hi)
        pieces[1, 0] += d[i] * (ridge * a[i] - pull)
        pieces[2, 0] += d[i] * d[i] * ridge
        reach = min(reach, ((own.a_max if d[i] > 0.0 else own.a_min) - a[i]) / d[i])
        if kinked and a[i] != 0.0 and (a[i] > 0.0) != (d[i] > 0.0):
            t = -a[i] / d[i]
            k = max(int(np.ceil(_OCTAVE * np.log2(t))) + _OCTAVE * _OCTAVES, 0)
            if k + 1 < pieces.shape[1]:
                other, far = (own.ridge_hi, own.hi) if above else (own.ridge_lo, own.lo)
                slope = d[i] * ((other - ridge) * a[i] - (far - pull))
                curve = d[i] * d[i] * (other - ridge)
                pieces[0, k + 1] -= t * (slope + 0.5 * t * curve)
                pieces[1, k + 1] += slope
                pieces[2, k + 1] += curve
    return reach
