"""Consensus of the parts in feature space: the distributed SVM by ADMM.

Problem   min_w P(w), of which every part has the losses of its rows
Update    that of `consensus`, with G = I
Source    dwpa.txt, section 2.3, where it is called DSVM; "admm-acc" is over-relaxed (DSVMacc)
Rounds    one for each point.  A start from a model takes one more
Bytes     16 (d+1) out and back for every part
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from optimargin.engines.local import LocalShards
from optimargin.problem import Point, Points, Problem, Solution, Start, Stop
from optimargin.solvers.consensus import RELAXED, Consensus, Ridge
from optimargin.solvers.parted import NOWHERE, answer, begin
from optimargin.solvers.parting import Parting


@dataclass(frozen=True)
class ADMM:
    """Consensus ADMM; ``seed`` decides which rows make a part, and their order."""

    seed: int
    parting: Parting
    alpha: float = 1.0

    @property
    def name(self) -> str:
        """Whether it is over-relaxed."""
        return "admm" if self.alpha == 1.0 else "admm-acc"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """A point after each round."""
        z = pulled = np.zeros(shards.whole.d + 1)
        if start.coef is not None:
            z = start.coef.astype(np.float64)
            shards, (_, pulled) = shards.step(begin, z)
        stands = Consensus(self.seed, self.alpha).stands(shards, Ridge(), z, pulled)
        for rounds, stand in enumerate(stands):
            yield Point(stand.z, None, NOWHERE, stand.value, stand.bound, rounds)
        return None


def relaxed(seed: int, parting: Parting) -> ADMM:
    """The accelerated variant."""
    return ADMM(seed, parting, RELAXED)
