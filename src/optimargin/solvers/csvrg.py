"""Stochastic gradients with variance reduction, over a coreset of the rows.

Problem   min_w P(w), as in `dsvrg`
Update    all parts find the gradient at w0; then one place that holds a weighted coreset C of
          the rows takes the references and steps of SVRG, on
          P_C(w) + (grad P(w0) - grad P_C(w0)).w, whose gradient at w0 is the true one; where they
          lead is the next w0
Source    sodm.txt, section 4.1, names CSVRG without saying how; the design is ours.  Rows of
          C are drawn class by class and stratum by stratum, in proportion to their smoothness,
          and weighed by the inverse, so P_C is P in the mean.  What P_C gets wrong is then the
          change of a gradient, which vanishes as w settles: the answer is that of P, with its
          certificate.  C is four times as large after a w0 that is worse than the last, which is
          taken back, or where it misled; from half of the rows on, it is `dsvrg` over all of them
Rounds    2 for each w0, and 3 for each coreset
Bytes     8 (d+1) out and back for every part; 16 (d+1) out and 8 (d+1) back for the coreset,
          whose rows move once
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from optimargin.engines.local import LocalEngine, LocalShards, Part, State
from optimargin.kernels import Linear
from optimargin.partition import cells
from optimargin.problem import Points, Problem, Solution, Start, Stop, counted_on
from optimargin.solvers.dsvrg import DSVRG, Gait, descent, systematic, weighed
from optimargin.solvers.parted import answer, begun, here, own, see
from optimargin.solvers.parting import Parting
from optimargin.solvers.walk import smoothness

_SHARE = 1 / 32  # of the rows: the first coreset
_LEAST = 1000  # rows of a coreset
_PER_FEATURE = 8  # the same, for each feature: fewer would not know their curvature
_REFERENCES = 40  # over a coreset, at most
_GROW = 4  # times: a coreset that was too small
_NEAR = 1e-3  # of the squared gradient, at which the coreset has nothing more to say
_WORTH = 0.5  # of the squared gradient that a coreset may leave


@dataclass(frozen=True)
class CSVRG:
    """SVRG with a coreset; ``seed`` decides which rows make it, and their order."""

    seed: int
    parting: Parting
    name = "csvrg"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point at each true gradient."""
        n, w = shards.whole.n, begun(shards.whole, start)
        size, rounds = max(_LEAST, int(_SHARE * n), _PER_FEATURE * len(w)), 0
        core: LocalShards | None = None
        gait: Gait | None = None
        at = here(w, shards.sum(_tell, w))
        while 2 * size < n:
            yield at.point(rounds)
            if core is None:
                core, gait = self._coreset(shards, size), None
            seed = self.seed + rounds
            trial, gait, hoped = core.turn(0, _guided, at.w, at.gradient, gait, seed)
            new = here(trial, shards.sum(_tell, trial))
            rounds += 1
            left = float(new.gradient @ new.gradient)
            is_misled = left > max(_WORTH * float(at.gradient @ at.gradient), 2.0 * hoped)
            if is_misled or not new.value < at.value:
                size, core = _GROW * size, None
            if new.value < at.value:
                at = new
        plain = DSVRG(self.seed, self.parting).points(shards, Start(at.w))
        return (yield from counted_on(plain, rounds))

    def _coreset(self, shards: LocalShards, size: int) -> LocalShards:
        """Some of the rows in one part, weighed."""
        n, strata = shards.whole.n, self.parting.strata
        rate = size / float(shards.sum(_smoothness, n))
        drawn, _ = shards.step(_draw, n, rate, strata, (self.seed, size))
        return drawn.merge(len(shards), only="weight")


def _tell(part: Part, w: np.ndarray) -> tuple[float, np.ndarray]:
    """The losses of a part at w and their gradient."""
    return see(part, w)[1]


def _guided(
    part: Part, w: np.ndarray, gradient: np.ndarray, gait: Gait | None, seed: int
) -> tuple[np.ndarray, Gait, float]:
    """Where the coreset leads from w, with the true gradient there, and how it gets there.

    Also the square of the gradient that it believes to leave.
    """
    core = LocalEngine().scatter(own(part), np.zeros(part.problem.n, dtype=np.intp))
    steps, first = descent(weighed(core), w, seed, gradient, gait), float(gradient @ gradient)
    at, gait = next(steps)
    for _, (now, how) in zip(range(_REFERENCES), steps, strict=False):
        at, gait = now, how
        if at.gradient @ at.gradient <= _NEAR * first:
            break
    return at.w, gait, float(at.gradient @ at.gradient)


def _smoothness(part: Part, n: int) -> float:
    return float(smoothness(part.problem, n).sum())


def _draw(part: Part, n: int, rate: float, strata: int, seed: tuple[int, ...]) -> tuple[State, int]:
    """Weights of the rows of a coreset, 0 for the others; how many they are."""
    problem, rng = part.problem, np.random.default_rng(seed)
    often = rate * smoothness(problem, n)
    order = rng.permutation(problem.n)
    cell = cells("stratified", problem.X, problem.y, rng, Linear(), strata)
    order = order[np.argsort(cell[order], kind="stable")]
    weight = np.zeros(problem.n)
    weight[order] = systematic(often[order], rng) / often[order]
    if problem.weight is not None:
        weight *= problem.weight
    return {"weight": weight}, int(np.count_nonzero(weight))
