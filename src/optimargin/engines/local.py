"""Parts of a problem on the threads of this computer; and what every engine offers.

scatter   rows go to their parts, once; what belongs to rows (`State`) stays with them
sum       adds up what a task says of every part
step      the same, and what the task makes of a part's state takes its place
turn      what a task says of one part, while the others wait (Spark: a job on one partition)
merge     neighbours become one part; of their rows, all go on or only some
gather    the state of all rows, in the order of the problem
featured  the same parts, whose rows are what a task makes of them where they are
close     what the parts hold is given back

A task is a module-level function of a part and of what is shared, and says numbers or arrays, or
a tuple of them, none larger than a vector of features or so.  Parts are added up in their order,
so nothing depends on how many threads there are; lists are added as Python does, so a list of
one thing from every part becomes a list of all.  Rows of a part that follow each other in the
problem are not copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.partition import sorted_by
from optimargin.problem import Problem
from optimargin.threads import blas_threads, spread

State = dict[str, np.ndarray]  # an entry for every row


class Part(NamedTuple):
    """Some of the rows, what belongs to them, and which of the parts it is, from 0."""

    problem: Problem
    state: State
    number: int = 0


@dataclass
class Traffic:
    """How often the parts were called or merged, and the bytes that went there and back."""

    rounds: int = 0
    bytes: int = 0
    seconds: float = 0.0  # in calls and merges
    slowest: float = 0.0  # of these, in the task of the part that took longest

    @property
    def seen(self) -> tuple[int, int]:
        """Both numbers as they are now."""
        return self.rounds, self.bytes

    def add(self, shared: Sequence[Any], said: Sequence[Any]) -> None:
        """Count a call of as many parts as have said something."""
        self.rounds += 1
        self.bytes += len(said) * size_of(shared) + sum(size_of(value) for value in said)

    def move(self, count: int) -> None:
        """Count a merge, in which rows of so many bytes went from part to part."""
        self.rounds += count > 0
        self.bytes += count


@dataclass(frozen=True)
class LocalShards:
    """The parts of a problem, and the numbers of their rows."""

    whole: Problem
    rows: list[np.ndarray]
    parts: list[Part]
    traffic: Traffic = field(default_factory=Traffic)

    def __len__(self) -> int:
        return len(self.parts)

    def sum(self, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of every part, added up."""
        said = self._call(task, shared, self.parts)
        self.traffic.add(shared, said)
        return added(said)

    def step(self, task: Callable[..., tuple[State, Any]], *shared: Any) -> tuple[LocalShards, Any]:
        """The parts with the states that the task makes, and what it says, added up."""
        found = self._call(task, shared, self.parts)
        self.traffic.add(shared, [value for _, value in found])
        parts = [p._replace(state=state) for p, (state, _) in zip(self.parts, found, strict=True)]
        return replace(self, parts=parts), added([value for _, value in found])

    def turn(self, k: int, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of part k alone."""
        (said,) = self._call(task, shared, [self.parts[k]])
        self.traffic.add(shared, [said])
        return said

    def merge(self, fan_in: int, only: str | None = None) -> LocalShards:
        """Every ``fan_in`` neighbours as one part.

        If ``only`` names a state, rows where that is 0 are left behind, and so is a part that
        has no others.
        """
        groups = [range(k, min(k + fan_in, len(self))) for k in range(0, len(self), fan_in)]
        rows, states, moved = [], [], 0
        for group in groups:
            first = len(self.rows[group[0]])  # they are there already
            index = np.concatenate([self.rows[k] for k in group])
            state = {
                name: np.concatenate([self.parts[k].state[name] for k in group])
                for name in self.parts[group[0]].state
            }
            if only is not None:
                goes = np.flatnonzero(state[only])
                index, state = index[goes], {name: v[goes] for name, v in state.items()}
                first = int(np.searchsorted(goes, first))
            moved += row_bytes(self.whole, index[first:])
            moved += sum(size_of(v[first:]) for v in state.values())
            if len(index):
                rows.append(index)
                states.append(state)
        self.traffic.move(moved)
        return _shards(self.whole, rows, states, self.traffic)

    @property
    def sizes(self) -> list[int]:
        """How many rows every part has."""
        return [len(index) for index in self.rows]

    def featured(self, task: Callable[..., Any], *shared: Any) -> LocalShards:
        """The same parts on the features that a task makes of rows, as a matrix of as many rows.

        The constant feature is left to it: the new bias is 0.
        """
        found = self._call(task, shared, self.parts)
        index = np.concatenate(self.rows)
        stacked = sp.vstack(found, format="csr") if sp.issparse(found[0]) else np.vstack(found)
        whole = replace(self.whole, X=_back(stacked, index, self.whole.n), bias=0.0)
        return _shards(whole, self.rows, [part.state for part in self.parts], self.traffic)

    def close(self) -> None:
        """Nothing to give back here."""

    def gather(self, name: str) -> np.ndarray:
        """The state so named of all rows; 0 for those that are in no part any more."""
        first = self.parts[0].state[name]
        out = np.zeros((self.whole.n, *first.shape[1:]), dtype=first.dtype)
        for index, part in zip(self.rows, self.parts, strict=True):
            out[index] = part.state[name]
        return out

    def _call(
        self, task: Callable[..., Any], shared: tuple[Any, ...], parts: list[Part]
    ) -> list[Any]:
        """What a task says of some parts; threads are shared out, those of BLAS too."""

        def timed(part: Part) -> tuple[Any, float]:
            start = time.perf_counter()
            return task(part, *shared), time.perf_counter() - start

        began = time.perf_counter()
        with blas_threads(parts[0].problem.threads):
            found = spread(timed, parts, self.whole.threads)
        self.traffic.seconds += time.perf_counter() - began
        self.traffic.slowest += max(seconds for _, seconds in found)
        return [said for said, _ in found]


class LocalEngine:
    """Threads of this computer."""

    def scatter(
        self,
        problem: Problem,
        part: np.ndarray,
        state: State | None = None,
        traffic: Traffic | None = None,
    ) -> LocalShards:
        """The problem in parts, of which ``part`` has the number for every row.

        Rows whose number is negative go nowhere.  ``traffic`` is what to count on from, where
        rows are scattered anew.
        """
        order = sorted_by(part)
        ends = np.searchsorted(part[order], np.arange(int(part.max()) + 2))
        rows = [order[a:b] for a, b in pairwise(ends) if b > a]
        states = [{name: v[index] for name, v in (state or {}).items()} for index in rows]
        if traffic is None:
            return _shards(problem, rows, states, Traffic())
        traffic.move(sum(row_bytes(problem, index) for index in rows))
        return _shards(problem, rows, states, traffic)


def _shards(
    problem: Problem, rows: list[np.ndarray], states: list[State], traffic: Traffic
) -> LocalShards:
    threads = max(problem.threads // len(rows), 1)
    pairs = enumerate(zip(rows, states, strict=True))
    parts = [Part(some_rows(problem, r, threads), s, k) for k, (r, s) in pairs]
    return LocalShards(problem, rows, parts, traffic)


def some_rows(problem: Problem, index: np.ndarray, threads: int) -> Problem:
    """The problem of some rows; a kernel matrix is not theirs."""
    which: Any = index
    if index[-1] - index[0] + 1 == len(index) and (np.diff(index) == 1).all():
        which = slice(int(index[0]), int(index[-1]) + 1)
    return replace(
        problem,
        X=problem.X[which],
        y=problem.y[which],
        weight=None if problem.weight is None else problem.weight[which],
        threads=threads,
        gram=None,
        sketch=None,
    )


def row_bytes(problem: Problem, index: np.ndarray) -> int:
    """How much these rows are on their way, with their labels and weights."""
    X, numbers = problem.X, 1 if problem.weight is None else 2
    if sp.issparse(X):
        entries = int(np.diff(X.indptr)[index].sum())
        values = entries * (X.data.itemsize + X.indices.itemsize)
    else:
        values = len(index) * X.shape[1] * X.dtype.itemsize
    return int(values + 8 * numbers * len(index))


def _back(X: Any, index: np.ndarray, n: int) -> Any:
    """Rows with these numbers where they belong among n; those of others are 0."""
    if sp.issparse(X):
        place = sp.csr_array((np.ones(len(index), X.dtype), (index, np.arange(len(index)))))
        place.resize((n, len(index)))
        return place @ X
    out = np.zeros((n, X.shape[1]), dtype=X.dtype)
    out[index] = X
    return out


def added(said: list[Any]) -> Any:
    """The sum of numbers or arrays, or of each entry of tuples; in their order."""
    if isinstance(said[0], tuple):
        return tuple(added(list(column)) for column in zip(*said, strict=True))
    total = said[0]
    for value in said[1:]:
        total = total + value
    return total


def size_of(value: Any) -> int:
    """About how much a value is on its way."""
    if isinstance(value, tuple | list):
        return sum(size_of(entry) for entry in value)
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 8))
