"""The choice of settings of `landmark`: from a coarse grid to a fine one, from few rows to all.

Every second width and cost is tried on some of the rows; then the neighbours of the best, one
step away on the fine grid, for as long as one is better.  The best few are where that begins on
more rows, which want other widths and costs: so the best is followed, not guessed.  Of settings
that differ from the best by less than half a standard error, the one of the least cost is chosen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from sklearn.model_selection import StratifiedKFold

from benchmarks.choice import Setting, View, tally
from benchmarks.trial import Rows

Place = tuple[int, int, int]  # of a setting on the grid: its cost, width and shape


class Rung(NamedTuple):
    """A step of the search: how many rows, how many of three folds, how many settings go on."""

    rows: int
    folds: int
    left: int


class Found(NamedTuple):
    """The best setting, how many fits that took, and whether a step was cut short."""

    setting: Setting
    fits: int
    is_cut: bool


ONCE = (Rung(6_000, 3, 1),)
TWICE = (Rung(6_000, 1, 4), Rung(30_000, 3, 1))
THRICE = (Rung(6_000, 1, 4), Rung(30_000, 1, 2), Rung(10**9, 1, 1))
_CHANCE = 0.5  # standard errors that say nothing
_MANY, _VERY_MANY = 12_000, 50_000  # rows from which a second step pays, and a third


def search(
    grid: Mapping[Place, Setting], rows: Rows, limit: float, start: Place | None = None
) -> Found:
    """The most accurate setting on training rows; no step begins a fit after ``limit`` seconds.

    From a ``start`` that is known to be good there is the last step alone.
    """
    n = len(rows.a)
    rungs = THRICE if n >= _VERY_MANY else TWICE if n >= _MANY else ONCE
    left = [place for place in grid if not place[0] % 2 and not place[1] % 2]
    if start is not None:
        rungs, left = rungs[-1:], [start]
    fits, is_cut = 0, False
    for rung in rungs:
        view, y = View("", rows.A[: rung.rows], rows.A[:0]), rows.a[: rung.rows]
        folds = list(StratifiedKFold(3).split(view.train, y))[: rung.folds]
        hits: dict[Place, float] = {}
        began, ahead = time.perf_counter(), left[::-1]
        while ahead:
            place = ahead.pop()
            hits[place] = tally({"": [grid[place]]}, [view], y, folds)[""].item()
            fits += len(folds)
            if time.perf_counter() - began > limit:
                is_cut = True
                break
            ahead = ahead or _untried(max(hits, key=hits.__getitem__), grid, hits)
        left = _ranked(hits, sum(len(judged) for _, judged in folds))[: rung.left]
    return Found(grid[left[0]], fits, is_cut)


def _ranked(hits: Mapping[Place, float], rows: int) -> list[Place]:
    """Places, best first; but the first is the cheapest of those that are as good, up to chance."""
    places = sorted(hits, key=hits.__getitem__, reverse=True)
    most = hits[places[0]]
    chance = _CHANCE * (most * (1.0 - most / rows)) ** 0.5
    first = min((place for place in places if hits[place] >= most - chance), key=lambda p: p[0])
    return [first, *(place for place in places if place != first)]


def _untried(
    place: Place, grid: Mapping[Place, Setting], hits: Mapping[Place, float]
) -> list[Place]:
    """A neighbour that was not tried: first those of less cost, narrower, of another shape."""
    steps = [(-1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, -1), (1, 0, 0), (0, -1, 0)]
    near = [(place[0] + a, place[1] + b, place[2] + c) for a, b, c in steps]
    return [other for other in near if other in grid and other not in hits][:1]
