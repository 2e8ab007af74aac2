"""The best model so far, kept while a dual solver's own model sways around the optimum.

The primal objective is convex, so between the best model and the newest there is often a better
one.  Parts keep the margins of the best, and tell the losses at some blends in the same round
that judges the newest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optimargin.engines.local import State
from optimargin.loss import of_row, value
from optimargin.problem import Problem
from optimargin.rows import compiled

_SHARES = np.array([0.125, 0.25, 0.5, 1.0])  # of the newest model; 1 is that model alone


class Pocket(NamedTuple):
    """A model, its objective, and its share of the newest one when it was found."""

    w: np.ndarray
    value: float = np.inf
    share: float = 1.0

    def after(self, w: np.ndarray, totals: np.ndarray) -> Pocket:
        """The best blend with the newest model; ``totals`` are the losses at each."""
        blends = self.w + _SHARES[:, None] * (w - self.w)
        values = 0.5 * np.einsum("ij,ij->i", blends, blends) + totals
        k = int(np.argmin(values))
        if not values[k] < self.value:
            return self._replace(share=0.0)
        return Pocket(blends[k], float(values[k]), float(_SHARES[k]))


def judged(
    problem: Problem, state: State, u: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """The margins of a part at the best model, and its losses at blends of that with margins u.

    ``share`` is how far the best model went towards the one that was the newest.
    """
    best = state.get("best", u)
    if share and "newest" in state:
        best = best + share * (state["newest"] - best)
    totals = np.zeros(len(_SHARES))
    _tally(problem.loss, problem.weight, best, u, _SHARES, totals)
    return best, totals


@compiled
def _tally(loss, weight, best, u, shares, totals):
    for i in range(len(u)):
        own = of_row(loss, weight, i)
        for k in range(len(shares)):
            totals[k] += value(own, best[i] + shares[k] * (u[i] - best[i]))
