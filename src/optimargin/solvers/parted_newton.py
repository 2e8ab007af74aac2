"""Newton's method for a linear machine whose rows are in parts.

Problem   min_w P(w), as in `newton`
Update    the same step p, then w + t p, where the slope along p is about zero
Source    `newton`, with a line search by slopes; the hinge is rounded (`rounding`).  Ours: many
          rows begin with the average of machines, each found on a sixteenth of a part
Rounds    one for each step: w and p go out; losses, gradient and half a Hessian at w + p come
          back, and slopes on the way there.  One more where these say that another t is better, and
          for the average that is the start.  Where d is large no Hessian comes back, and one more
          for each conjugate-gradient step
Bytes     16 (d+1) out and 8 (d+1) (d+2)/2 + 8 (d+1) back for every part and round; with conjugate
          gradients 8 (d+1) out and back, and curvatures stay.  Where a Hessian comes back nothing
          stays
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.linesearch import crossing, slopes
from optimargin.loss import scaled
from optimargin.problem import Point, Points, Problem, Solution, Start, Stop
from optimargin.solvers.newton import (
    Newton,
    conjugate_gradients,
    has_pilot,
    hessian,
    is_direct,
    solved,
)
from optimargin.solvers.parted import NOWHERE, answer, begun
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import curved, margins
from optimargin.solvers.rounding import At, first_width, fitting_width, pulled, smoothed

_TIMES = 2.0 ** np.arange(-12, 3)  # shares of a step at which slopes are asked for
_MANY = 1000  # rows to a feature from which on steps are soft once one shot over: see `rounding`
_NOTHING = 1e-12  # length of a step, relative to the model, that is not worth another look
_FLAT = 0.5  # share of the first slope that makes a whole step good enough


class Told(NamedTuple):
    """What a part says: see `look`."""

    total: float
    gradient: np.ndarray
    packed: np.ndarray
    own: float
    rounding: float
    rises: np.ndarray


@dataclass(frozen=True)
class PartedNewton:
    """Newton's method over an engine; ``seed`` decides which rows make a part.

    ``tol`` is the relative gap that is wished for, which decides how a hinge is rounded.
    """

    seed: int
    parting: Parting
    direct: bool | None = None
    tol: float = 1e-4
    name = "newton"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point after each Newton step."""
        whole = shards.whole
        direct = self.direct
        if direct is None:
            direct = is_direct(whole.d, whole.limit / len(shards))
        w, width = self._begin(shards, start)
        rounds, forcing = 0, 0.1
        seen = _see(shards, w, np.zeros_like(w), Rounding(width), direct)
        while True:
            at = seen.at
            yield Point(at.w, None, NOWHERE, at.primal, at.bound, rounds)
            if direct:
                p = -solved(_unpacked(seen.packed, len(w)), at.gradient)
            else:
                p = -conjugate_gradients(partial(seen.shards.sum, curve), at.gradient, forcing)
            rounds, narrower = rounds + 1, at.next_width(self.tol)
            if narrower < at.width:
                seen = _see(seen.shards, at.w, p, Rounding(narrower, seen.soft), direct)
                continue
            seen = _gone(seen.shards, at, p, seen.soft, direct)
            new = seen.at
            if not (new.value < at.value or new.distance < at.distance):
                return None
            forcing = min(0.1, forcing * (new.distance / at.distance) ** 0.25)

    def _begin(self, shards: LocalShards, start: Start) -> tuple[np.ndarray, float]:
        """Where to start, and with which width."""
        whole = shards.whole
        w, width = begun(whole, start), first_width(whole.loss)
        if start.coef is None and has_pilot(whole):
            w, width = shards.sum(_pilot, whole.n, self.seed, self.tol)
        elif width and w.any():
            width = shards.sum(_width, w, whole.n, self.tol)
        return w, float(width)


class Rounding(NamedTuple):
    """How a hinge is rounded: see `pulled`; smooth losses have the width 0."""

    width: float = 0.0
    soft: bool = False


class Seen(NamedTuple):
    """What all rows say of a model, with half a Hessian or curvatures that stay with the parts."""

    shards: LocalShards
    at: At
    packed: np.ndarray
    rises: np.ndarray
    soft: bool


def _see(
    shards: LocalShards, w: np.ndarray, p: np.ndarray, rounding: Rounding, direct: bool
) -> Seen:
    """Look at w + p; parts keep something only where it is needed."""
    if direct:
        told = shards.sum(look, w, p, rounding)
    else:
        shards, told = shards.step(stand, w, p, rounding)
    total, gradient, packed, own, gap, rises = told
    w, rises = w + p, rises + w @ p + _TIMES * (p @ p)
    norm = 0.5 * float(w @ w)
    at = At(w, norm + float(total), w + gradient, rounding.width, norm + float(own), float(gap))
    return Seen(shards, at, packed, rises, rounding.soft)


def _gone(shards: LocalShards, at: At, p: np.ndarray, soft: bool, direct: bool) -> Seen:
    """As far along p as is good: all of it, or to where the slope is about 0 on the way."""
    seen = _see(shards, at.w, p, Rounding(at.width, soft), direct)
    first = float(at.gradient @ p)
    if abs(float(seen.at.gradient @ p)) <= _FLAT * abs(first):
        return seen
    times, rises = np.append(0.0, _TIMES), np.append(first, seen.rises)
    low, t = crossing(times, rises)
    how = Rounding(at.width, shards.whole.n >= _MANY * shards.whole.d)
    seen = _see(shards, at.w + t * p, np.zeros_like(p), how, direct)
    if seen.at.value < at.value or np.linalg.norm(p) <= _NOTHING * np.linalg.norm(at.w):
        return seen
    if low > 0.0:  # there it still falls
        return _see(shards, at.w + low * p, np.zeros_like(p), how, direct)
    return _gone(shards, at, _TIMES[0] * p, how.soft, direct)


def look(part: Part, w: np.ndarray, p: np.ndarray, rounding: Rounding) -> Told:
    """What a part says of w + p, and of the way there from w.

    Rounded losses, their gradient and packed Hessian; the losses themselves, and what rounding adds
    to the gap, both see `pulled`; slopes on the way.  Without a width losses are as they are.
    """
    told, h = _told(part.problem, w, p, rounding)
    H = hessian(part.problem, h)[np.tril_indices(len(w))]
    return told._replace(packed=H)


def stand(part: Part, w: np.ndarray, p: np.ndarray, rounding: Rounding) -> tuple[State, Told]:
    """The same without a Hessian: curvatures stay."""
    told, h = _told(part.problem, w, p, rounding)
    return {"curvature": h}, told


def _told(
    own: Problem, w: np.ndarray, p: np.ndarray, rounding: Rounding
) -> tuple[Told, np.ndarray]:
    problem, u, rises = smoothed(own, rounding.width), margins(own, w), np.zeros(len(_TIMES))
    if p.any():
        change = margins(own, p)
        rises = slopes(problem.loss, problem.weight, u, change, _TIMES)
        u += change
    found, total, gap = pulled(own, rounding.width, u, rounding.soft)
    return Told(found.total, found.gradient, np.zeros(0), total, gap, rises), found.curvature


def _unpacked(packed: np.ndarray, size: int) -> np.ndarray:
    H = np.zeros((size, size))
    H[np.tril_indices(size)] = packed
    return H


def curve(part: Part, v: np.ndarray) -> np.ndarray:
    """The Hessian of the losses times v."""
    return curved(part.problem, part.state["curvature"], v)


def _pilot(part: Part, n: int, seed: int, tol: float) -> tuple[np.ndarray, float]:
    """A part's share in the average of machines on a few rows of every part, and of widths."""
    share = part.problem.n / n
    local = replace(part.problem, loss=scaled(part.problem.loss, 1.0 / share))
    w, width = Newton(seed, tol=tol).pilot(local)
    return share * w, share * width


def _width(part: Part, w: np.ndarray, n: int, tol: float) -> float:
    """A part's share in the average of widths that fit a model."""
    share = part.problem.n / n
    return share * fitting_width(part.problem, margins(part.problem, w), tol)
