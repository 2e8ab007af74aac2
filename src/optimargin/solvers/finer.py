"""Whether rounding of the features shows in an answer, and a better answer where it does.

Problem   features on a device are kept in half, single or double precision; the certificate is
          that of the machine over the features as they are kept
Check     of some rows, the loss at margins in double precision against that at margins from the
          kept features: by as much, summed up, the objective is off.  Rounding that is as often up
          as down does no harm, and is told apart by the standard error
Remedy    the next finer precision, from the answer so far: a Newton step or two
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optimargin.arrays import on_host, taken
from optimargin.device import times
from optimargin.features import Features
from optimargin.loss import scaled, value
from optimargin.partition import thinned
from optimargin.problem import Problem, Solution, Start, Status, Stop
from optimargin.solvers.landmark import train_all

_JUDGES = 16_384  # rows that are looked at, at most
_CHANCE = 3.0  # standard errors of their mean that say nothing


def refined(
    problem: Problem,
    machines: Sequence[Problem],
    found: list[Solution],
    stop: Stop,
    seed: int,
) -> list[Solution]:
    """The answers, improved over finer features while rounding shows in one of them."""
    features = problem.sketch
    while isinstance(features, Features):
        finer = features.finer()
        pairs = zip(machines, found, strict=True)
        if finer is None or not any(is_rounded(m, s, features, stop.tol) for m, s in pairs):
            break
        features = finer.filled()
        problem, machines = (
            replace(problem, sketch=features),
            [replace(machine, sketch=features) for machine in machines],
        )
        again = train_all(problem, machines, [Start(s.coef) for s in found], stop, seed)
        found = [_joined(*pair) for pair in zip(found, again, strict=True)]
    return found


def is_rounded(problem: Problem, found: Solution, features: Features, tol: float) -> bool:
    """Whether the objective is off by more than was asked for."""
    if found.status is Status.PRECISION and found.gap > tol:
        return True
    n = problem.n
    rows = thinned(n, min(n, _JUDGES), np.random.default_rng(0))
    y, weight = taken(problem.y, rows), problem.weight
    losses = problem.loss if weight is None else scaled(problem.loss, taken(weight, rows))
    w = features.triangle.twisted(features.landmarks.lift(found.coef))
    kept, true = times(features[rows], w), features.in_double(rows, found.coef)
    off = on_host(value(losses, y * kept) - value(losses, y * true))
    m = len(rows)  # of all rows; where it is all of them, nothing is left to chance
    chance = _CHANCE * float(off.std()) * np.sqrt((1.0 - m / n) / m)
    return (abs(float(off.mean())) - chance) * n > tol * abs(found.primal)


def _joined(before: Solution, after: Solution) -> Solution:
    """The later answer, with the rounds of both."""
    seconds = before.history[-1].time
    more = [r._replace(round=before.rounds + r.round, time=seconds + r.time) for r in after.history]
    history = [*before.history, *more]
    return replace(after, rounds=before.rounds + after.rounds, history=history)
