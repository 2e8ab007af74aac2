"""What the machines of a classifier have to say, as its attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from optimargin.problem import Solution, Status
from optimargin.solvers.train import Machine


def told(machines: list[Machine]) -> dict[str, Any]:
    """Fitted attributes beside the model: a number for one machine, an array for several."""
    solutions = [m.solution for m in machines]
    worst = worst_of(solutions)
    found = {
        "n_iter_": max(s.rounds for s in solutions),
        "objective_": _one_or_all([s.primal for s in solutions]),
        "dual_gap_": _one_or_all([s.gap for s in solutions]),
        "loo_bound_": _one_or_all([m.loo[0] for m in machines]),
        "loo_count_": _one_or_all([m.loo[1] for m in machines]),
        "status_": worst.status.value,
        "solver_": worst.solver,
        "history_": _history(solutions),
    }
    calls = [s.traffic for s in solutions if s.traffic is not None]
    if calls:
        rounds, sent = (sum(column) for column in zip(*calls, strict=True))
        found["traffic_"] = {"rounds": rounds, "bytes": sent}
    return found


def worst_of(solutions: list[Solution]) -> Solution:
    """The answer that is furthest from what was asked for."""
    return max(solutions, key=lambda s: (s.status is not Status.CONVERGED, s.gap))


def _one_or_all(values: list[float]) -> Any:
    return values[0] if len(values) == 1 else np.array(values)


def _history(solutions: list[Solution]) -> dict[str, np.ndarray]:
    rounds = [(k, *r) for k, s in enumerate(solutions) for r in s.history]
    columns = [np.array(column) for column in zip(*rounds, strict=True)]
    return dict(zip(("machine", "round", "objective", "gap", "time"), columns, strict=True))
