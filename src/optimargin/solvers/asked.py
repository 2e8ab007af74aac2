"""What machines over landmarks ask of the kernel values, answered for all of them in one read.

A machine is a generator: it yields what it asks and is sent the answer, and it yields points on
its way.  Several machines go on until each has asked or is done; then the values are read once,
in blocks that stay in the cache while one machine after the other takes the rows it asked for, and
the triangular systems of all have one call.  Between two reads every machine has a thread.
Sums are double precision, and no machine reads rows it does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from optimargin.arrays import is_foreign
from optimargin.problem import Asking, Points, Problem, T
from optimargin.rows import DenseRows, compiled, fetch, push, score
from optimargin.sketch import Sketch
from optimargin.solvers import arraywise
from optimargin.solvers.passes import ranges
from optimargin.threads import spans, spread

_HALF = 0.5  # share of a block's rows from which on values are made for all of them


class Ask(NamedTuple):
    """Scores Phi w of some rows; or Phi'h; or, with both, Phi' diag(h) Phi w.

    Phi are the features of the rows, of which ``rows`` are the numbers in rising order, or None
    for all; ``h`` has a number for each.
    """

    rows: np.ndarray | None
    w: Any = None
    h: Any = None
    part: Any = None  # the features that are meant, all of them, on a device


def answers(problem: Problem, asks: Sequence[Ask]) -> list[np.ndarray]:
    """One answer for each, from one read of the kernel values."""
    if is_foreign(problem.y):
        return arraywise.answers(asks)
    sketch = problem.sketch
    assert sketch is not None
    n, S = sketch.shape
    parts = [_pieces(sketch, part, len(asks)) for part in ranges(problem, S + 1)]
    edges = np.array([span.start for spans in parts for span in spans] + [n])
    scored = _group([m for m, ask in enumerate(asks) if ask.h is None], asks, edges, sketch)
    summed = _group([m for m, ask in enumerate(asks) if ask.h is not None], asks, edges, sketch)
    firsts = np.cumsum([0] + [len(part) for part in parts])

    def task(k: int) -> np.ndarray:
        sums = np.zeros((len(summed.members), S + 1))
        for j, span in enumerate(parts[k], start=firsts[k]):
            groups = [g for g in (scored, summed) if (g.cuts[:, j] < g.cuts[:, j + 1]).any()]
            if not groups:
                continue
            K, place = _values(sketch, span, groups, j)
            if scored in groups:
                _score(K, span.start, place, scored.lines(j), scored.models, scored.values)
            if summed in groups:
                lines = summed.lines(j)
                _add(K, span.start, place, lines, summed.models, summed.values, sums)
        return sums

    found = spread(task, range(len(parts)), problem.threads)
    out: list[Any] = [None] * len(asks)
    for m, where in zip(scored.members, scored.spots, strict=True):
        out[m] = scored.values[where]
    if summed.members:
        sums = np.add.reduce(found)[:, :-1]
        for m, v in zip(summed.members, sketch.landmarks.contract(sums.T).T, strict=True):
            out[m] = v
    return out


class Lines(NamedTuple):
    """For compiled loops: where a machine's rows, and its numbers for them, begin and end."""

    rows: np.ndarray
    first_row: np.ndarray
    first_value: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    has_model: np.ndarray


@dataclass(frozen=True, eq=False)
class _Group:
    """Asks of one kind, their rows and numbers one after the other.

    ``cuts`` tells for each where the blocks begin among its rows.
    """

    members: list[int]
    rows: np.ndarray
    first_row: np.ndarray
    spots: list[slice]
    cuts: np.ndarray
    models: np.ndarray
    has_model: np.ndarray
    values: np.ndarray

    def lines(self, j: int) -> Lines:
        """What is to be done in block j."""
        first = np.array([spot.start for spot in self.spots])
        cuts = self.cuts
        return Lines(self.rows, self.first_row, first, cuts[:, j], cuts[:, j + 1], self.has_model)


def _group(members: list[int], asks: Sequence[Ask], edges: np.ndarray, sketch: Sketch) -> _Group:
    n, S = sketch.shape
    own = [asks[m] for m in members]
    every = np.arange(n) if any(ask.rows is None for ask in own) else np.empty(0, dtype=np.intp)
    rows, first_row, spots, stop, at = [every], [], [], 0, len(every)
    for ask in own:
        count = n if ask.rows is None else len(ask.rows)
        first_row.append(0 if ask.rows is None else at)
        spots.append(slice(stop, stop + count))
        stop += count
        if ask.rows is not None:
            rows.append(ask.rows)
            at += count
    cuts = [edges if ask.rows is None else np.searchsorted(ask.rows, edges) for ask in own]
    has_model = np.array([ask.w is not None for ask in own], dtype=bool)
    models = np.zeros((len(own), S + 1))
    if has_model.any():
        B = sketch.landmarks.expand(np.stack([ask.w for ask in own if ask.w is not None]))
        models[has_model, :-1] = B
    given = [ask.h for ask in own if ask.h is not None]
    return _Group(
        members,
        np.concatenate(rows),
        np.array(first_row, dtype=np.intp),
        spots,
        np.array(cuts).reshape(len(own), len(edges)),
        models,
        has_model,
        np.concatenate(given) if given else np.empty(stop),
    )


def _pieces(sketch: Sketch, part: slice, count: int) -> list[slice]:
    """A range of rows as it is read: kept values in the cache's size, if several machines do."""
    made = sketch.spans(part)
    if count == 1:
        return made
    return [
        slice(s.start + t.start, s.start + t.stop)
        for s in made
        for t in spans(s.stop - s.start, sketch.width)
    ]


def _values(
    sketch: Sketch, span: slice, groups: Sequence[_Group], j: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Kernel values of block j, and where among them its rows are (None is in order).

    Where they are not kept, none are computed that are not needed.
    """
    if sketch.holds(span):
        return sketch[span], None
    needed = np.zeros(span.stop - span.start, dtype=bool)
    for group in groups:
        lines = group.lines(j)
        for first, start, stop in zip(lines.first_row, lines.start, lines.stop, strict=True):
            needed[group.rows[first + start : first + stop] - span.start] = True
    if needed.sum() > _HALF * len(needed):
        return sketch[span], None
    return sketch[span.start + np.flatnonzero(needed)], np.cumsum(needed) - 1


@register_jitable
def _spot(place, i):
    return i if place is None else place[i]


@partial(compiled, contiguous=True)
def _score(K, shift, place, lines, models, f):
    """Scores of rows of a block."""
    for m in range(len(lines.start)):
        own, first = DenseRows(K, 0.0, models[m]), lines.first_row[m]
        for k in range(lines.start[m], lines.stop[m]):
            i = _spot(place, lines.rows[first + k] - shift)
            f[lines.first_value[m] + k] = score(own, i)


@partial(compiled, contiguous=True)
def _add(K, shift, place, lines, models, h, sums):
    """Rows of a block times h, and times their scores where there is a model, added to sums."""
    for m in range(len(lines.start)):
        own, into = DenseRows(K, 0.0, models[m]), DenseRows(K, 0.0, sums[m])
        first, last = lines.first_row[m], lines.stop[m]
        for k in range(lines.start[m], last):
            if k + 1 < last:  # rows that are far apart would each be waited for
                fetch(own, _spot(place, lines.rows[first + k + 1] - shift))
            i, step = _spot(place, lines.rows[first + k] - shift), h[lines.first_value[m] + k]
            if lines.has_model[m]:
                step *= score(own, i)
            push(into, i, step)


# -- one machine, or several ------------------------------------------------------------------


def alone(problem: Problem, machine: Asking[Any]) -> Points:
    """The points of one machine, what it asks answered on the way."""
    reply = None
    while True:
        try:
            said = machine.send(reply)
        except StopIteration as end:
            return end.value
        reply = None
        if isinstance(said, Ask):
            (reply,) = answers(problem, [said])
        else:
            yield said


def abreast(problem: Problem, machines: Sequence[Asking[T]]) -> list[T]:
    """What the machines return, all going on at once."""
    found: dict[int, T] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(machines)))

    def go_on(m: int) -> Ask | None:
        """Let a machine run until it asks or is done."""
        try:
            return machines[m].send(replies[m])
        except StopIteration as end:
            found[m] = end.value
            return None

    try:
        while replies:
            live = sorted(replies)
            threads = 1 if is_foreign(problem.y) else problem.threads
            said = dict(zip(live, spread(go_on, live, threads), strict=True))
            asks = {m: ask for m, ask in said.items() if ask is not None}
            replies = dict(zip(asks, answers(problem, list(asks.values())), strict=True))
    finally:
        for machine in machines:
            machine.close()
    return [found[m] for m in range(len(machines))]
