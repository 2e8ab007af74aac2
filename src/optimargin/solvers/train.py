"""All machines of a problem: one for two classes, a joint one or several for more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from optimargin.classes import Part, parts
from optimargin.problem import Problem, Solution, Start, Status, Stop
from optimargin.sketch import beside
from optimargin.solvers.choose import over_landmarks, solve
from optimargin.solvers.exactness import exact_gap
from optimargin.solvers.left_out import left_out
from optimargin.solvers.on_parts import is_shared, on_parts, solve_together
from optimargin.solvers.parting import Parting
from optimargin.threads import spans

_UNKNOWN = np.full(2, np.nan)


class Plan(NamedTuple):
    """How to train: the solver's name, how to treat several classes, when to stop, the seed.

    ``bounds`` asks for what the answers say of the leave-one-out error and of the exact machine;
    ``parting`` is for solvers that work on parts of the rows.
    """

    solver: str
    kind: str
    stop: Stop
    seed: int
    bounds: bool = True
    parting: Parting = Parting()

    def is_shared(self, whole: Problem) -> bool:
        """Whether the machines are trained together, on parts that they share."""
        return is_shared(self.solver, self.kind, whole, self.parting)

    def at_once(self, whole: Problem) -> int:
        """How many machines are trained at the same time, by this thread."""
        count = len(parts(self.kind, whole.classes))
        if whole.sketch is not None:
            return min(count, 1 + int(whole.sketch.room // beside(*whole.sketch.shape)))
        return count if self.is_shared(whole) else 1


class Machine(NamedTuple):
    """An answer, and what it says of the leave-one-out error and of the machine without landmarks.

    ``exact`` is the relative gap with that machine: see `exactness`.
    """

    solution: Solution
    loo: np.ndarray
    exact: float


def train(
    plan: Plan,
    whole: Problem,
    starts: list[Start] | None = None,
    each: Callable[..., Iterable[Any]] = map,
) -> tuple[Problem, list[Machine]]:
    """The machines, and the problem they solve: one made convex, where it was not.

    ``each`` maps a function over machines and starts, on several threads if it likes.
    """
    makers = parts(plan.kind, whole.classes)
    cold = [Start()] * len(makers)

    def all_of(whole: Problem, starts: list[Start]) -> list[Machine]:
        def judged(problem: Problem, solution: Solution) -> Machine:
            if not plan.bounds:
                return Machine(solution, _UNKNOWN, np.nan)
            exact = exact_gap(problem, solution, 1.0 / len(makers))
            return Machine(solution, left_out(problem, solution), exact)

        def side_by_side(some: slice) -> list[Machine]:
            problems = [make(whole) for make in makers[some]]
            stop, seed = plan.stop, plan.seed
            found = over_landmarks(plan.solver, whole, problems, starts[some], stop, seed)
            return [judged(*pair) for pair in zip(problems, found, strict=True)]

        def one(maker: Part, start: Start) -> Machine:
            problem = maker(whole).narrowed()
            solution = solve(plan.solver, problem, start, plan.stop, plan.seed, plan.parting)
            return judged(problem, solution)

        if whole.sketch is not None:
            groups = spans(len(makers), plan.at_once(whole))
            return [machine for some in groups for machine in side_by_side(some)]
        if not plan.is_shared(whole):
            return list(each(one, makers, starts))
        rows, stop, seed, parting = whole.narrowed(), plan.stop, plan.seed, plan.parting
        solver = on_parts(plan.solver, whole, seed, parting, stop.tol)
        found = solve_together(solver, rows, makers, starts, stop, seed=seed, parting=parting)
        return [judged(make(rows), answer) for make, answer in zip(makers, found, strict=True)]

    machines = all_of(whole, starts if starts and len(starts) == len(makers) else cold)
    if any(m.solution.status is Status.INDEFINITE for m in machines):
        whole = whole.convexified()
        machines = all_of(whole, cold)
    return whole, machines
