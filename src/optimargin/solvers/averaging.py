"""Averages of machines that every part finds for itself: of equal weights, or of the best.

Problem   PA:   w = mean of the w_m,  w_m = argmin 1/2 |w|^2 + K (the losses of part m), K parts
          DWPA: min_beta P(sum_m beta_m w_m / |w_m|), a machine in K dimensions
Update    PA: none.  DWPA: that of `consensus` on the rows' products with the K models, from the
          mean of PA
Source    dwpa.txt, sections 2.1 to 2.3 and algorithm 1; models of norm 1, as there.  The best
          weights are WPA's; "dwpa-acc" is over-relaxed (DWPAacc)
Bound     dual variables of the w_m, divided by K, are feasible for the whole problem and make
          the mean: P(mean) - D is a sum over the rows.  DWPA ends where its own problem is solved,
          and then tries the dual variables of that
Rounds    PA: 2, of which one judges.  DWPA: 4, and one for each point
Bytes     PA: 8 (d+1) back and out again for every part.  DWPA: 8 K (d+1) out for every part more,
          and 32 K a round; a row keeps K numbers
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.loss import scaled
from optimargin.problem import (
    Point,
    Points,
    Problem,
    Solution,
    Start,
    Status,
    Stop,
    drive,
    relative_gap,
)
from optimargin.solvers.consensus import Consensus, ridge_of
from optimargin.solvers.dcd import DCD
from optimargin.solvers.parted import NOWHERE, answer
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins
from optimargin.solvers.sweeps import certificate, model

_LOCAL = Stop(tol=1e-4, max_iter=300)  # of a part's own machine


@dataclass(frozen=True)
class Averaging:
    """The mean of the parts' machines, or with ``alpha`` (1, or more to over-relax) the best one.

    ``tol`` is the relative gap at which the best is found.  ``seed`` decides which rows make a
    part, and their order.
    """

    seed: int
    parting: Parting
    tol: float = 1e-4
    alpha: float | None = None

    @property
    def name(self) -> str:
        """What the paper calls it."""
        if self.alpha is None:
            return "pa"
        return "dwpa" if self.alpha == 1.0 else "dwpa-acc"

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to the problem, with its traffic."""
        points = partial(self.points, start=start)
        return answer(points, problem, self.parting, stop, self.seed, name=self.name)

    def points(self, shards: LocalShards, start: Start) -> Points:
        """The mean, and with weights a point after each round; a start is of no use."""
        shards, W = learned(shards, self.seed)
        mean, rounds = W.mean(axis=0), 1
        point, pulled = judged(shards, mean, rounds)
        yield point
        if self.alpha is None:
            return Status.AVERAGED
        shards, W, beta = projected(shards, W)
        least, bound, w, ridge = np.inf, -np.inf, mean, ridge_of(W)
        for stand in Consensus(self.seed, self.alpha).stands(shards, ridge, beta, W @ pulled):
            shards, rounds, bound = stand.shards, rounds + 1, max(bound, stand.bound)
            if stand.value < least:
                least, w = stand.value, stand.z @ W
            yield Point(stand.z @ W, None, NOWHERE, stand.value, -np.inf, rounds)
            if relative_gap(least, bound) <= self.tol:
                break
        yield judged(shards, w, rounds)[0]
        return Status.AVERAGED


def learned(shards: LocalShards, seed: int) -> tuple[LocalShards, np.ndarray]:
    """The parts with the dual variables of their own machines, and the models, a row each."""
    shards, models = shards.step(_learn, len(shards), seed)
    return shards, np.stack(models)


def projected(shards: LocalShards, W: np.ndarray) -> tuple[LocalShards, np.ndarray, np.ndarray]:
    """The parts with their rows' products with the models of norm 1; these, and the mean's weights.

    There is one model more, which is 0 and stands for the constant feature of the products.
    """
    norms = np.linalg.norm(W, axis=1)
    W = W / np.where(norms > 0.0, norms, 1.0)[:, None]
    shards, _ = shards.step(_project, W)
    return shards, np.vstack([W, np.zeros_like(W[:1])]), np.append(norms / len(W), 0.0)


def judged(shards: LocalShards, w: np.ndarray, rounds: int) -> tuple[Point, np.ndarray]:
    """A point with the bound that the dual variables of the parts give; the model they make."""
    total, gap, pulled = shards.sum(_judge, w)
    primal, away = 0.5 * float(w @ w) + float(total), w - pulled
    bound = primal - float(gap) - 0.5 * float(away @ away)
    return Point(w, None, NOWHERE, primal, bound, rounds), pulled


def _learn(part: Part, K: int, seed: int) -> tuple[State, list[np.ndarray]]:
    """The machine of a part, as if there were K of its kind; lists add up to longer ones."""
    problem = replace(part.problem, loss=scaled(part.problem.loss, float(K)))
    found = drive(DCD(seed).points(problem, Start()), _LOCAL)
    assert found.dual is not None
    return {"dual": found.dual / K}, [found.coef]


def _judge(part: Part, w: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Losses and gaps of a part at w, and the model that its dual variables make."""
    a = part.state["dual"]
    return *certificate(part.problem, a, margins(part.problem, w)), model(part.problem, a)


def _project(part: Part, W: np.ndarray) -> tuple[State, int]:
    """Note every row's products with the models."""
    problem = part.problem
    Z = np.asarray(problem.X @ W[:, :-1].T.astype(problem.X.dtype)) + problem.bias * W[:, -1]
    return {**part.state, "features": Z}, problem.n
