"""What solvers of linear machines on parts of the rows share: the parts, a look, an answer.

A part's `Problem` has the losses of the whole, so sums over the parts are sums over the rows.
Margins stay with the parts until the answer is found; then all parts are called once more, and
n numbers are gathered, for what an answer says of its rows.  That is not counted as traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optimargin.engines.local import LocalShards, Part, State
from optimargin.loss import dual_of, value
from optimargin.problem import Point, Points, Problem, Solution, Start, Stop, drive
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins, pull
from optimargin.solvers.sweeps import model

NOWHERE = np.empty(0)  # the margins of a point whose rows are elsewhere


class Here(NamedTuple):
    """A model, its objective, and the gradient there."""

    w: np.ndarray
    value: float
    gradient: np.ndarray

    def point(self, rounds: int) -> Point:
        """The same with the certificate: half the squared norm of the gradient."""
        bound = self.value - 0.5 * float(self.gradient @ self.gradient)
        return Point(self.w, None, NOWHERE, self.value, bound, rounds)


def begun(problem: Problem, start: Start) -> np.ndarray:
    """The model to start from."""
    return np.zeros(problem.d + 1) if start.coef is None else start.coef.astype(np.float64)


def here(w: np.ndarray, told: tuple[float, np.ndarray]) -> Here:
    """The losses and their gradient, and what the norm of w adds."""
    total, gradient = told
    return Here(w, 0.5 * float(w @ w) + float(total), w + gradient)


def own(part: Part) -> Problem:
    """The problem of a part, with other weights or features where its rows have some for now."""
    problem, weight, features = part.problem, part.state.get("weight"), part.state.get("features")
    if features is not None:
        problem = replace(problem, X=features, bias=0.0)
    return problem if weight is None else replace(problem, weight=weight)


def see(part: Part, w: np.ndarray) -> tuple[State, tuple[float, np.ndarray]]:
    """The losses of a part at w and their gradient; margins stay."""
    problem = own(part)
    u = margins(problem, w)
    found = pull(problem, u)
    return {**part.state, "margin": u}, (found.total, found.gradient)


def begin(part: Part, w: np.ndarray) -> tuple[State, tuple[float, np.ndarray]]:
    """The dual variables that belong to a model; its losses, and the model that they make."""
    losses, u = part.problem.losses, margins(part.problem, w)
    a = dual_of(losses, u)
    return {"dual": a}, (float(value(losses, u).sum()), model(part.problem, a))


def answer(
    points: Callable[[LocalShards], Points],
    problem: Problem,
    parting: Parting,
    stop: Stop,
    seed: int,
    *,
    name: str,
) -> Solution:
    """The answer to a problem by a solver that is given it in parts."""
    began = time.perf_counter()
    with closing(parting.scattered(problem, seed)) as shards:
        spent = time.perf_counter() - began
        if stop.time_limit is not None:
            stop = stop._replace(time_limit=max(stop.time_limit - spent, 1e-3))
        found = drive(points(shards), stop, name)
        seen = shards.traffic.seen
        margin = shards.step(see, found.coef)[0].gather("margin")
    history = [line._replace(time=line.time + spent) for line in found.history]
    return replace(found, margin=margin, history=history, traffic=seen)
