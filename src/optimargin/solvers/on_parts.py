"""Linear machines on parts of the rows: their solvers by name, and several machines at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from optimargin.classes import Part as Maker
from optimargin.engines.local import Part, State
from optimargin.engines.together import View, together
from optimargin.loss import Loss, is_smooth
from optimargin.problem import Points, Problem, Solution, Start, Stop, drive
from optimargin.solvers.admm import ADMM
from optimargin.solvers.averaging import Averaging
from optimargin.solvers.bqo import BQO
from optimargin.solvers.consensus import RELAXED
from optimargin.solvers.csvrg import CSVRG
from optimargin.solvers.dsvrg import DSVRG
from optimargin.solvers.newton import is_direct
from optimargin.solvers.parted_newton import PartedNewton
from optimargin.solvers.parting import Parting
from optimargin.solvers.passes import margins
from optimargin.solvers.tron import TRON


class PartedSolver(Protocol):
    """Frozen settings and two methods."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def solve(self, problem: Problem, start: Start, stop: Stop) -> Solution:
        """The answer to a problem whose rows are here, and divided first."""
        ...

    def points(self, shards: Any, start: Start) -> Points:
        """Better and better points, each with both objectives; from parts."""
        ...


_MAKERS: dict[str, Callable[[int, Parting, float], Any]] = {
    "newton": lambda seed, parting, tol: PartedNewton(seed, parting, tol=tol),
    "tron": lambda seed, parting, tol: TRON(seed, parting),
    "dsvrg": lambda seed, parting, tol: DSVRG(seed, parting),
    "csvrg": lambda seed, parting, tol: CSVRG(seed, parting),
    "bqo": lambda seed, parting, tol: BQO(seed, parting),
    "bqo-line": lambda seed, parting, tol: BQO(seed, parting, "line"),
    "bqo-armijo": lambda seed, parting, tol: BQO(seed, parting, "armijo"),
    "disdca": lambda seed, parting, tol: BQO(seed, parting, "add"),
    "dsvm-ave": lambda seed, parting, tol: BQO(seed, parting, "average"),
    "admm": lambda seed, parting, tol: ADMM(seed, parting),
    "admm-acc": lambda seed, parting, tol: ADMM(seed, parting, RELAXED),
    "pa": lambda seed, parting, tol: Averaging(seed, parting, tol),
    "dwpa": lambda seed, parting, tol: Averaging(seed, parting, tol, 1.0),
    "dwpa-acc": lambda seed, parting, tol: Averaging(seed, parting, tol, RELAXED),
}
PARTED = tuple(name for name in _MAKERS if name != "newton")  # those that always work on parts
STEPS = {"exact": "bqo", "line": "bqo-line", "armijo": "bqo-armijo"}  # by line_search
NAMED = tuple(name for name in PARTED if name not in STEPS.values() or name == "bqo")
_SMOOTH = ("tron", "csvrg", "dsvrg")  # those that need a slope everywhere
_ROWS_ROUNDED = 50  # rows to a feature from which on Newton's method is for the hinge, too
ANYHOW = ("newton", "tron")  # those that find the same whoever has which row
ALONE = ("csvrg",)  # moves rows, so its machines cannot share them


def on_parts(name: str, whole: Any, seed: int, parting: Parting, tol: float) -> PartedSolver:
    """The solver of that name; "auto" is Newton's method wherever it needs few rounds.

    With the hinge that is where there are many rows to a feature; elsewhere "bqo", which of the
    dual solvers takes the fewest.
    """
    if name == "auto":
        few = is_direct(whole.d, whole.limit) and whole.n >= _ROWS_ROUNDED * whole.d
        name = "newton" if few or is_smooth(whole.loss) else "bqo"
    if name not in _MAKERS:
        choices = ", ".join(f"'{known}'" for known in ("newton", *NAMED))
        raise ValueError(
            f"solver={name!r} needs all rows in one place; with an engine choose 'auto', {choices}."
        )
    refuse_kinks(name, whole.loss)
    return _MAKERS[name](seed, parting, tol)


def refuse_kinks(name: str, loss: Loss) -> None:
    """Say so if a solver cannot take the loss."""
    if name in _SMOOTH and not is_smooth(loss):
        raise ValueError(
            f"solver={name!r} needs a loss with a slope everywhere, which loss='hinge' has not;"
            " choose 'auto', 'newton', 'bqo' or 'admm', or loss='squared_hinge'."
        )


def is_shared(name: str, kind: str, whole: Problem, parting: Parting) -> bool:
    """Whether machines for several classes ask the parts together.

    Machines of pairs have rows of their own.
    """
    linear = whole.gram is None and whole.sketch is None
    parted = linear and (parting.engine is not None or name in PARTED)
    return parted and kind == "ovr" and whole.classes > 2 and name not in ALONE


def solve_together(
    solver: PartedSolver,
    whole: Problem,
    makers: Sequence[Maker],
    starts: Sequence[Start],
    stop: Stop,
    *,
    seed: int,
    parting: Parting,
) -> list[Solution]:
    """The answers of several machines on the same rows, one pass of the parts for all of them.

    The first answer tells the traffic, which is that of all.
    """
    began = time.perf_counter()
    shards = parting.scattered(whole, seed)
    spent = time.perf_counter() - began
    if stop.time_limit is not None:
        stop = stop._replace(time_limit=max(stop.time_limit - spent, 1e-3))

    def run(m: int, view: View) -> Solution:
        return drive(solver.points(view, starts[m]), stop, solver.name)

    found = together(shards, makers, run)
    seen = shards.traffic.seen
    looked, _ = shards.step(_see_all, makers, [solution.coef for solution in found])
    return [
        replace(
            solution,
            margin=looked.gather(f"margin {m}"),
            history=[line._replace(time=line.time + spent) for line in solution.history],
            traffic=None if m else seen,
        )
        for m, solution in enumerate(found)
    ]


def _see_all(part: Part, makers: Sequence[Maker], models: list[np.ndarray]) -> tuple[State, int]:
    """The margins of every machine."""
    problems = [make(part.problem) for make in makers]
    found = [margins(problem, w) for problem, w in zip(problems, models, strict=True)]
    return {f"margin {m}": u for m, u in enumerate(found)}, part.problem.n
