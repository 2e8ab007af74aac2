"""Stochastic gradients with variance reduction, guided by a coreset.

Problem   min_w P(w), as in `dsvrg`
Update    at a true gradient, found by all rows at w0: a few references of `dsvrg` over a
          weighted coreset C of the rows, of P_C(w) + (grad P(w0) - grad P_C(w0)).w, whose gradient
          at w0 is the true one; where they lead is the next w0
Source    sodm.txt, section 4.1, names CSVRG without saying how; the design is ours.  Rows of
          C are drawn class by class and stratum by stratum, in proportion to their smoothness,
          and weighed by the inverse, so P_C is P in the mean.  What P_C gets wrong is then the
          change of a gradient, which vanishes as w settles, and so the answer is that of P with its
          certificate.  C is twice as large after a w0 that is worse than the last, which is
          taken back, or hardly better; from half of the rows on it is all of them
Rounds    1 for a true gradient, then those of `dsvrg` for up to 8 references
Bytes     as in `dsvrg`; reads few rows, so it is for parts that compute more slowly than they talk
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.kernels import Linear
from optimargin.partition import cells
from optimargin.problem import Points, Problem, Solution, Start, Stop, counted_on
from optimargin.solvers.dsvrg import DSVRG, Field, Gait, descent, systematic, weighed
from optimargin.solvers.parted import answer, begun, here, see
from optimargin.solvers.parting import Parting
from optimargin.solvers.walk import smoothness

_SHARE = 1 / 32  # of the rows: the first coreset
_LEAST = 1000  # rows of a coreset
_REFERENCES = 8  # over a coreset, at most
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
        size, rounds = max(_LEAST, int(_SHARE * n)), 0
        core: Field | None = None
        gait: Gait | None = None
        at = here(w, shards.sum(_tell, w))
        while 2 * size < n:
            point = at.point(rounds)
            yield point
            if core is None:
                core = self._coreset(shards, size)
                gait = None
            first = float(at.gradient @ at.gradient)
            guided = descent(core, at.w, self.seed + rounds, at.gradient, gait)
            for _, (inner, gait) in zip(range(1 + _REFERENCES), guided, strict=False):
                yield point  # a chance to stop
                if inner.gradient @ inner.gradient <= _NEAR * first:
                    break
            new = here(inner.w, shards.sum(_tell, inner.w))
            rounds += 1
            if not (new.value < at.value and new.gradient @ new.gradient <= _WORTH * first):
                size, core = 2 * size, None
            if new.value < at.value:
                at = new
        plain = DSVRG(self.seed, self.parting).points(shards, Start(at.w))
        return (yield from counted_on(plain, rounds))

    def _coreset(self, shards: LocalShards, size: int) -> Field:
        """The parts with some of their rows, weighed."""
        n, strata = shards.whole.n, self.parting.strata
        total = float(shards.sum(_smoothness, n))
        drawn, _ = shards.step(_draw, n, size / total, strata, (self.seed, size))
        return weighed(drawn.merge(1, only="weight"))


def _tell(part: Part, w: np.ndarray) -> tuple[float, np.ndarray]:
    """The losses of a part at w and their gradient."""
    return see(part, w)[1]


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
    return {"weight": weight}, np.count_nonzero(weight)
