"""Machines whose rows are with an engine and never here: one, or each class against the rest.

For two classes a part's ``y`` holds signs, for more the numbers of classes, and then every machine
is made to see signs.  Machines ask the parts together; those that move rows do so one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimargin.classes import signs
from optimargin.engines.local import Part, State
from optimargin.engines.together import together
from optimargin.problem import Problem, Solution, Start, Stop, drive
from optimargin.solvers.on_parts import ALONE, PartedSolver


@dataclass(frozen=True)
class Side:
    """Makes the problem of class ``m`` against the rest."""

    m: int

    def __call__(self, whole: Problem) -> Problem:
        """The same rows with signs; their norms are found once for all machines and rounds."""
        side = whole.binary(signs(whole.y == self.m))
        vars(side)["sqnorms"] = whole.sqnorms
        return side


@dataclass(frozen=True)
class Against:
    """Shards as one machine sees them, which may merge them."""

    shards: Any
    side: Side

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def whole(self) -> Any:
        """What is known of all rows."""
        return self.shards.whole

    @property
    def traffic(self) -> Any:
        """That of the shards."""
        return self.shards.traffic

    def sum(self, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of every part, added up."""
        return self.shards.sum(_sided, self.side, task, *shared)

    def step(self, task: Callable[..., tuple[State, Any]], *shared: Any) -> tuple[Against, Any]:
        """The parts with the states that the task makes, and what it says, added up."""
        shards, said = self.shards.step(_sided, self.side, task, *shared)
        return replace(self, shards=shards), said

    def turn(self, k: int, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of part k alone."""
        return self.shards.turn(k, _sided, self.side, task, *shared)

    def merge(self, fan_in: int, only: str | None = None) -> Against:
        """Every ``fan_in`` neighbours as one part."""
        return replace(self, shards=self.shards.merge(fan_in, only))


def _sided(part: Part, side: Side, task: Callable[..., Any], *shared: Any) -> Any:
    return task(part._replace(problem=side(part.problem)), *shared)


def views(shards: Any) -> list[Any]:
    """The parts as each machine sees them."""
    classes = shards.whole.classes
    return [Against(shards, Side(m)) for m in range(classes)] if classes > 2 else [shards]


def linear(
    shards: Any, solver: PartedSolver, starts: Sequence[Start], stop: Stop
) -> list[Solution]:
    """The linear machines; the first answer tells the traffic, which is that of all."""

    def run(m: int, view: Any) -> Solution:
        return drive(solver.points(view, starts[m]), stop, solver.name)

    if shards.whole.classes > 2 and solver.name not in ALONE:
        found = together(shards, [Side(m) for m in range(shards.whole.classes)], run)
    else:
        seen = views(shards)
        stop = shared(stop, len(seen))
        found = [run(m, view) for m, view in enumerate(seen)]
    return [replace(s, traffic=None if m else shards.traffic.seen) for m, s in enumerate(found)]


def shared(stop: Stop, count: int) -> Stop:
    """When to stop each of several machines that wait for one another."""
    seconds = stop.time_limit
    return stop if seconds is None else stop._replace(time_limit=seconds / count)
