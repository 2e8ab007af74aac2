"""Several machines on the same rows, whose calls of the parts travel together.

Every machine runs its ordinary solver, which sees the parts as its own: with its own labels and
its own state.  It runs until it asks something of the parts, and waits; when all have asked, one
call of the engine answers them all.  So a pass over the parts costs one round, however many
machines there are.  Machines run one at a time, in their order, each in a thread of its own
because a solver cannot be left in the middle otherwise; the engine is called by the caller alone.
A machine that is done is not waited for, and an error of one ends all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from optimargin.engines.local import Part, State
from optimargin.problem import Problem

T = TypeVar("T")
Own = Callable[[Problem], Problem]  # a machine's own problem, on all rows or some


class _Halted(Exception):
    """Another machine went wrong."""


class _Call(NamedTuple):
    """A call by machine ``m`` from a version of its state; a step makes the version ``new``."""

    m: int
    own: Own
    task: Callable[..., Any]
    shared: tuple[Any, ...]
    old: int
    new: int | None = None
    k: int | None = None  # the only part that is asked


@dataclass(frozen=True)
class View:
    """The parts as one machine sees them; what its solver asks is answered with the others'."""

    whole: Any
    parts: int
    m: int
    own: Own
    line: _Line
    version: int = 0

    def __len__(self) -> int:
        return self.parts

    def sum(self, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of every part, added up."""
        return self.line.ask(_Call(self.m, self.own, task, shared, self.version))

    def turn(self, k: int, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of part k alone."""
        return self.line.ask(_Call(self.m, self.own, task, shared, self.version, k=k))

    def step(self, task: Callable[..., tuple[State, Any]], *shared: Any) -> tuple[View, Any]:
        """The parts with the states that the task makes, and what it says, added up.

        The states before stay until the next step.
        """
        new = self.line.version()
        said = self.line.ask(_Call(self.m, self.own, task, shared, self.version, new))
        return replace(self, version=new), said


class _Line:
    """Between a machine and the caller: what it asks, and the answer."""

    def __init__(self) -> None:
        self.questions: SimpleQueue[Any] = SimpleQueue()
        self.answers: SimpleQueue[Any] = SimpleQueue()
        self.versions = 0

    def version(self) -> int:
        """A number that no version of the state has had."""
        self.versions += 1
        return self.versions

    def ask(self, call: _Call) -> Any:
        """Called by the machine: waits for the answer."""
        self.questions.put(call)
        answer = self.answers.get()
        if answer is _Halted:
            raise _Halted
        return answer


class _Done(NamedTuple):
    """What a machine found, or why it did not."""

    found: Any
    error: BaseException | None = None


def together(shards: Any, owns: Sequence[Own], run: Callable[[int, View], T]) -> list[T]:
    """``run(m, view)`` for every machine, by the calls of all at once.

    ``owns`` make each machine's problem of the rows of a part.  A view's ``whole`` is that of
    the shards.
    """
    lines = [_Line() for _ in owns]
    views = [
        View(shards.whole, len(shards), m, own, line)
        for m, (own, line) in enumerate(zip(owns, lines, strict=True))
    ]

    def work(m: int) -> None:
        try:
            done = _Done(run(m, views[m]))
        except BaseException as error:
            done = _Done(None, error)
        lines[m].questions.put(done)

    threads = [Thread(target=work, args=(m,), daemon=True) for m in range(len(owns))]
    found: dict[int, T] = {}
    calls: list[_Call] = []

    def listen(m: int) -> None:
        """Let machine m run until it asks or is done."""
        said = lines[m].questions.get()
        if isinstance(said, _Call):
            calls.append(said)
            return
        if said.error is not None:
            raise said.error
        found[m] = said.found

    try:
        for m, thread in enumerate(threads):
            thread.start()
            listen(m)
        while calls:
            shards, answers = _answered(shards, calls)
            calls.clear()
            for m, answer in answers.items():
                lines[m].answers.put(answer)
                listen(m)
    finally:
        for line, thread in zip(lines, threads, strict=True):
            line.answers.put(_Halted)  # nobody is left who would read it, unless something failed
            if thread.ident is not None:
                thread.join()
    return [found[m] for m in range(len(owns))]


def _answered(shards: Any, calls: Sequence[_Call]) -> tuple[Any, dict[int, Any]]:
    """The parts after these calls, and the answers by machine, in their order."""
    answers: dict[int, Any] = {}
    of_all = [call for call in calls if call.k is None]
    if of_all:
        if any(call.new is not None for call in of_all):
            shards, said = shards.step(_step, of_all)
        else:
            said = shards.sum(_say, of_all)
        answers |= {call.m: value for call, value in zip(of_all, said, strict=True)}
    for k in sorted({call.k for call in calls if call.k is not None}):
        of_one = [call for call in calls if call.k == k]
        said = shards.turn(k, _say, of_one)
        answers |= {call.m: value for call, value in zip(of_one, said, strict=True)}
    return shards, dict(sorted(answers.items()))


def _say(part: Part, calls: Sequence[_Call]) -> tuple[Any, ...]:
    return tuple(call.task(_seen(part, call), *call.shared) for call in calls)


def _step(part: Part, calls: Sequence[_Call]) -> tuple[State, tuple[Any, ...]]:
    """Of every machine that steps, the state it came from and the new one stay."""
    state, said = dict(part.state), []
    for call in calls:
        value = call.task(_seen(part, call), *call.shared)
        if call.new is not None:
            own, value = value
            kept = _prefix(call.m, call.old)
            state = {
                name: v
                for name, v in state.items()
                if name.startswith(kept) or not name.startswith(f"{call.m}/")
            }
            state |= {_prefix(call.m, call.new) + name: v for name, v in own.items()}
        said.append(value)
    return state, tuple(said)


def _seen(part: Part, call: _Call) -> Part:
    """The part as the machine sees it."""
    prefix = _prefix(call.m, call.old)
    state = {
        name.removeprefix(prefix): v for name, v in part.state.items() if name.startswith(prefix)
    }
    return part._replace(problem=call.own(part.problem), state=state)


def _prefix(m: int, version: int) -> str:
    return f"{m}/{version}/"
