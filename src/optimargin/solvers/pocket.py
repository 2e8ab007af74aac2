"""The best model so far, kept while a dual solver's own model sways around the optimum.

The primal objective is convex, so between the best model and the running mean of the last few
there is often a better one.  Parts keep the margins of both, and tell the losses at some blends in
the same round that judges the newest model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optimargin.engines.local import State
from optimargin.loss import of_row, value
from optimargin.problem import Problem
from optimargin.rows import compiled

_SHARES = np.array([0.125, 0.25, 0.5, 1.0])  # of the mean; 1 is the mean alone
_NEWEST = 1 / 3  # what the newest model counts in it


class Pocket(NamedTuple):
    """The best model, its objective, the mean, and the share of that in the best one.

    The share is 0 where the last round found none that is better.
    """

    w: np.ndarray
    mean: np.ndarray
    value: float = np.inf
    share: float = 0.0

    def after(self, w: np.ndarray, totals: np.ndarray) -> Pocket:
        """What is best when the newest model is w; ``totals`` are the losses at the blends."""
        mean = self.mean + _NEWEST * (w - self.mean)
        blends = self.w + _SHARES[:, None] * (mean - self.w)
        values = 0.5 * np.einsum("ij,ij->i", blends, blends) + totals
        k = int(np.argmin(values))
        if values[k] < self.value:
            return Pocket(blends[k], mean, float(values[k]), float(_SHARES[k]))
        return self._replace(mean=mean, share=0.0)


def judged(problem: Problem, state: State, u: np.ndarray, share: float) -> tuple[State, np.ndarray]:
    """The margins of a part at the best model and the mean, and its losses at their blends.

    u are those at the newest model, and ``share`` is what the last round found.
    """
    best, mean = state.get("best", u), state.get("mean", u)
    if share:
        best = best + share * (mean - best)
    mean = mean + _NEWEST * (u - mean)
    totals = np.zeros(len(_SHARES))
    _tally(problem.loss, problem.weight, best, mean, _SHARES, totals)
    return {"best": best, "mean": mean}, totals


@compiled
def _tally(loss, weight, best, mean, shares, totals):
    for i in range(len(best)):
        own = of_row(loss, weight, i)
        for k in range(len(shares)):
            totals[k] += value(own, best[i] + shares[k] * (mean[i] - best[i]))
