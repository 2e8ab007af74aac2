"""What a worker does when its engine calls: find the rows and the state of a part, run a task.

Whatever a part was told is pure: rows, state and what is shared decide what it says.  So a state
that is not where it should be (its worker is gone, or the task has moved) is made again from an
older version by the steps that followed it, which the driver sends where they are asked for.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.engines import blocks
from optimargin.engines.blocks import FIRST, Chunk, Facts, Lost, Pose
from optimargin.engines.local import Part, State, row_bytes, size_of
from optimargin.problem import Problem
from optimargin.threads import spans

_CHUNK = 1 << 20  # bytes of rows that go to another part together
_TRANSIENT = (OSError, MemoryError)  # another worker may have better luck


class Step(NamedTuple):
    """A call that made a version of the state."""

    version: int
    pose: Pose
    call: bytes  # the task and what is shared, pickled


class Known(NamedTuple):
    """What the driver knows of a part: its place among the others, and its rows."""

    number: int
    digest: int
    first: int  # number of its first row in the whole, where rows have no numbers of their own


class Order(NamedTuple):
    """What the driver asks of every part.

    ``log`` are the steps that lead to ``version`` from ``base``, if the driver sent them;
    ``states`` are those of the base, by part, where they are not the ones that came with the rows.
    """

    pose: Pose
    version: int
    known: dict[int, Known]
    call: bytes = b""
    makes: int | None = None
    drops: tuple[int, ...] = ()
    rubbish: tuple[int, ...] = ()
    log: tuple[Step, ...] | None = None
    base: int = FIRST
    states: dict[int, State] | None = None
    wants: str = ""  # the name of a state that is gathered


class Reply(NamedTuple):
    """What a part says: a value, an error, or that something is not there."""

    part: int
    path: str
    kind: str  # "said", "failed", "lost rows" or "lost state"
    value: Any
    seconds: float = 0.0


def root(lease: str, part: int) -> str:
    """The folder for blocks of a run on this worker, inside of those that Spark removes."""
    places = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    folders = [place for place in places.split(",") if place]
    return os.path.join(folders[part % len(folders)], f"optimargin-{lease}")


def opened(packed: Any) -> Order:
    """An order as it has travelled: bytes, or a broadcast of them."""
    found = pickle.loads(packed if isinstance(packed, bytes) else packed.value)
    assert isinstance(found, Order)
    return found


def store(lease: str, generation: int, part: int, chunks: Iterable[Chunk]) -> Facts:
    """The chunks as the block of a part, here."""
    folder = root(lease, part)
    os.makedirs(folder, exist_ok=True)
    return blocks.write(part, os.path.join(folder, f"{generation}-{part}"), chunks)


def replied(packed: Any, anchors: Iterable[Facts]) -> Iterator[Reply]:
    """What the task of a call says of the parts whose blocks these are."""
    order = opened(packed)
    for facts in anchors:
        yield _reply(order, facts)
        _tidy(order, facts)


def _reply(order: Order, facts: Facts) -> Reply:
    try:
        part = recalled(order, facts)
    except Lost as lost:
        return Reply(facts.part, facts.path, f"lost {lost.what}", None)
    if order.wants:
        values = np.array(part.state[order.wants])
        row = np.array(blocks.numbers(facts.path, order.known[facts.part].first))
        return Reply(facts.part, facts.path, "said", (row, values))
    began = time.perf_counter()
    try:
        task, shared = pickle.loads(order.call)
        found = task(part, *shared)
        if order.makes is None:
            return Reply(facts.part, facts.path, "said", found, time.perf_counter() - began)
        state, said = found
        blocks.write_state(facts.path, order.makes, state, part.state, order.version)
    except _TRANSIENT:
        raise
    except Exception as error:
        return Reply(facts.part, facts.path, "failed", _portable(error))
    return Reply(facts.part, facts.path, "said", said, time.perf_counter() - began)


def recalled(order: Order, facts: Facts) -> Part:
    """A part with its rows and the version of its state that is asked for."""
    problem = blocks.opened(facts.path, order.pose)
    known = order.known[facts.part]
    if known.digest != facts.digest:
        raise ValueError(
            "frame: its rows are others than they were the first time; persist it, or write it"
            " to a file, before it is placed."
        )
    if not blocks.has_state(facts.path, order.version):
        _replay(order, facts)
        problem = blocks.opened(facts.path, order.pose)
    return Part(problem, blocks.read_state(facts.path, order.version), known.number)


def _replay(order: Order, facts: Facts) -> None:
    """Make a version of the state from the last one that is here."""
    if order.log is None:
        raise Lost("state", facts.path)
    steps, version = list(order.log), order.base
    for k in reversed(range(len(steps))):
        if blocks.has_state(facts.path, steps[k].version):
            version, steps = steps[k].version, steps[k + 1 :]
            break
    else:
        if order.states is not None and not blocks.has_state(facts.path, version):
            blocks.write_state(facts.path, version, order.states[facts.part], {}, version)
    number = order.known[facts.part].number
    for step in steps:
        before = blocks.read_state(facts.path, version)
        problem = blocks.opened(facts.path, step.pose)
        task, shared = pickle.loads(step.call)
        state, _ = task(Part(problem, before, number), *shared)
        blocks.write_state(facts.path, step.version, state, before, version)
        version = step.version


def _portable(error: Exception) -> Exception:
    """The error as it may travel: some cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _tidy(order: Order, facts: Facts) -> None:
    """Remove states and blocks of this worker that nobody will ask for."""
    folder = os.path.dirname(facts.path)
    if not (order.drops or order.rubbish) or not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.partition("-")[0] in map(str, order.rubbish):  # generations of blocks
            blocks.remove(path)
        else:
            blocks.drop_states(path, order.drops)


def states(packed: Any, anchors: Iterable[Facts]) -> Iterator[tuple[int, State]]:
    """The state of every part, as it travels."""
    order = opened(packed)
    for facts in anchors:
        part = recalled(order, facts)
        yield facts.part, {name: np.array(values) for name, values in part.state.items()}


class Move(NamedTuple):
    """Which of the new parts every part joins, and what goes there."""

    target: dict[int, int]
    stays: frozenset[int]  # parts whose rows are where they go already
    only: str | None


def moved(packed: Any, move: Move, anchors: Iterable[Facts]) -> Iterator[tuple[int, Chunk]]:
    """The rows of every part in chunks, with the number of the part that they join."""
    order = opened(packed)
    for facts in anchors:
        part = recalled(order, facts)
        problem, state = part.problem, part.state
        row = blocks.numbers(facts.path, order.known[facts.part].first)
        goes = np.arange(problem.n) if move.only is None else np.flatnonzero(state[move.only])
        each = row_bytes(problem, np.arange(min(problem.n, 100)))
        width = max(_CHUNK * min(problem.n, 100) // max(each, 1), 64)
        for j, span in enumerate(spans(len(goes), width)):
            which: Any = goes[span]
            if move.only is None:
                which = span
            some = {name: np.array(values[which]) for name, values in state.items()}
            size = 0
            if facts.part not in move.stays:
                size = row_bytes(problem, goes[span]) + sum(size_of(v) for v in some.values())
            yield (
                move.target[facts.part],
                Chunk(
                    (facts.part, j),
                    problem.X[which],
                    np.array(problem.y[which]),
                    None if problem.weight is None else np.array(problem.weight[which]),
                    row[which],
                    some,
                    size,
                ),
            )


def featured(packed: Any, lease: str, generation: int, anchors: Iterable[Facts]) -> Iterator[Facts]:
    """New blocks beside those of the parts, whose rows are what the task makes of them."""
    order = opened(packed)
    for facts in anchors:
        part = recalled(order, facts)
        found = store(lease, generation, facts.part, _made(order, facts, part))
        yield found._replace(digest=facts.digest)  # of the same rows; sums may round otherwise


def _made(order: Order, facts: Facts, part: Part) -> Iterator[Chunk]:
    task, shared = pickle.loads(order.call)
    problem, state = part.problem, part.state
    row = blocks.numbers(facts.path, -1)
    has_numbers = len(row) > 0 and row[0] >= 0
    for j, span in enumerate(spans(problem.n, 4096)):
        some = {name: np.array(values[span]) for name, values in state.items()}
        weight = None if problem.weight is None else problem.weight[span]
        few = _rows(problem, span, weight)
        X = task(Part(few, some, part.number), *shared)
        X = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
        yield Chunk((facts.part, j), X, few.y, weight, row[span] if has_numbers else None, some)


def _rows(problem: Problem, span: slice, weight: np.ndarray | None) -> Problem:
    return Problem(
        problem.X[span],
        problem.y[span],
        weight,
        problem.loss,
        problem.bias,
        classes=problem.classes,
        threads=problem.threads,
        limit=problem.limit,
    )


def cleared(folders: Sequence[str], _: Iterable[Any]) -> Iterator[str]:
    """Those of the folders that were on this computer and are not any more."""
    time.sleep(0.02)  # so that no worker takes the tasks of all others
    for folder in folders:
        if os.path.isdir(folder):
            blocks.remove(folder)
            yield folder


def put(lease: str, generation: int, part: int, chunks: Any, _: Iterable[Any]) -> Iterator[Facts]:
    """A block of rows that the driver has sent."""
    yield store(lease, generation, part, chunks.value)


def joined(
    lease: str, generation: int, parts: Sequence[int], k: int, pairs: Iterable[tuple[int, Chunk]]
) -> Iterator[Facts]:
    """A block of rows that came from other workers."""
    yield store(lease, generation, parts[k], (chunk for _, chunk in pairs))


def place_of(parts: Sequence[int], part: int) -> int:
    """Where a part is among some."""
    return parts.index(part)


def is_among(parts: frozenset[int], pair: tuple[int, State]) -> bool:
    """Whether a state is that of one of these parts."""
    return pair[0] in parts
