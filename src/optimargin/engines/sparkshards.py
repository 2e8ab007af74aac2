"""The parts of a problem on a cluster: what they say, and how they find their rows and state.

See `engines.spark` for the design.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from optimargin.engines import cluster, rounds
from optimargin.engines.anchors import Anchors
from optimargin.engines.blocks import FIRST, Lost, Pose
from optimargin.engines.cluster import ClusterError, Lease
from optimargin.engines.local import State, Traffic, added
from optimargin.engines.rounds import Known, Move, Order, Reply, Step
from optimargin.loss import Loss

_ATTEMPTS = 4  # at a call, where parts do not find what is theirs
_STEPS = 32  # that are kept before states are copied
_BYTES = 1 << 26  # the same in bytes of what was shared


@dataclass(frozen=True)
class Whole:
    """What solvers on parts read of a problem whose rows are elsewhere: see `Problem`."""

    n: int
    d: int
    loss: Loss | None = None
    bias: float = 0.0
    classes: int = 2
    threads: int = 1
    limit: float = np.inf

    @property
    def pose(self) -> Pose:
        """What makes a problem of some rows."""
        return Pose(self.d, self.loss, self.bias, self.classes, self.threads, self.limit)


class Version:
    """A version of the state, whose files go when it does."""

    def __init__(self, lease: Lease, number: int) -> None:
        self.number = number
        lease.own(self, "version", number)


class Copies:
    """States as Spark keeps them, in two places or in the checkpoint directory."""

    def __init__(self, lease: Lease, number: int, rdd: Any, packed: Any) -> None:
        self.number, self.rdd = number, rdd
        lease.hold(self, [rdd] if isinstance(packed, bytes) else [rdd, packed])


class Past(NamedTuple):
    """How a state came to be: from copies, or else the state that came with the rows."""

    steps: tuple[Step, ...] = ()
    copies: Copies | None = None

    @property
    def is_long(self) -> bool:
        """Whether it is time for new copies."""
        return len(self.steps) >= _STEPS or sum(len(step.call) for step in self.steps) > _BYTES


@dataclass(frozen=True)
class SparkShards:
    """The parts of a problem on a cluster: see `engines.local.LocalShards`.

    ``parts`` are the numbers of those that have rows.  Also a context manager, which closes.
    """

    whole: Whole
    lease: Lease
    anchors: Anchors
    parts: tuple[int, ...]
    version: Version
    past: Past
    traffic: Traffic

    def __len__(self) -> int:
        return len(self.parts)

    def __enter__(self) -> SparkShards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def sizes(self) -> list[int]:
        """How many rows every part has."""
        return [self.anchors.facts[part].rows for part in self.parts]

    @property
    def tally(self) -> dict[float, tuple[int, float]]:
        """Rows of every label, and their weight."""
        found: dict[float, tuple[int, float]] = {}
        for part in self.parts:
            for label, (rows, weight) in self.anchors.facts[part].tally.items():
                before = found.get(label, (0, 0.0))
                found[label] = before[0] + rows, before[1] + weight
        return dict(sorted(found.items()))

    def posed(self, **changes: Any) -> SparkShards:
        """The same rows and state with another loss, bias or limit."""
        return replace(self, whole=replace(self.whole, **changes))

    def sum(self, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of every part, added up."""
        return added(self._call(self.parts, task, shared))

    def step(self, task: Callable[..., tuple[State, Any]], *shared: Any) -> tuple[SparkShards, Any]:
        """The parts with the states that the task makes, and what it says, added up."""
        version = Version(self.lease, self.lease.number())
        said = self._call(self.parts, task, shared, version.number)
        step = Step(version.number, self.whole.pose, _pickled(task, shared))
        past = self.past._replace(steps=(*self.past.steps, step))
        after = replace(self, version=version, past=past)
        return after._copied() if past.is_long else after, added(said)

    def turn(self, k: int, task: Callable[..., Any], *shared: Any) -> Any:
        """What the task says of part k alone."""
        return self._call([self.parts[k]], task, shared)[0]

    def merge(self, fan_in: int, only: str | None = None) -> SparkShards:
        """Every ``fan_in`` neighbours as one part: see `LocalShards.merge`."""
        groups = [self.parts[k : k + fan_in] for k in range(0, len(self), fan_in)]
        move = Move(
            {part: k for k, group in enumerate(groups) for part in group},
            frozenset(group[0] for group in groups),
            only,
        )

        def source(generation: int, wanted: Sequence[int], held: list[Any]) -> Any:
            members = [part for k in wanted for part in groups[k]]
            packed = self._packed(held)
            rows = self.anchors.over(members).mapPartitions(partial(rounds.moved, packed, move))
            rows = rows.partitionBy(len(wanted), partial(rounds.place_of, tuple(wanted)))
            write = partial(rounds.joined, self.lease.id, generation, tuple(wanted))
            return rows.mapPartitionsWithIndex(write)

        began = time.perf_counter()
        child = make_shards(
            self.whole, Anchors(self.lease, source, range(len(groups)), self), self.traffic
        )
        self.traffic.move(sum(facts.bytes for facts in child.anchors.facts.values()))
        self.traffic.seconds += time.perf_counter() - began
        return child

    def featured(self, task: Callable[..., Any], *shared: Any) -> SparkShards:
        """The same parts on the features that a task makes of rows, where the rows are.

        The task is given a few rows of a part at a time, and makes a matrix of as many rows.
        The constant feature is left to it: the new bias is 0.
        """
        call = _pickled(task, shared)

        def source(generation: int, wanted: Sequence[int], held: list[Any]) -> Any:
            packed = self._packed(held, call)
            write = partial(rounds.featured, packed, self.lease.id, generation)
            return self.anchors.over(wanted).mapPartitions(write)

        anchors = Anchors(self.lease, source, self.parts, self)
        width = anchors.facts[self.parts[0]].features
        return make_shards(replace(self.whole, d=width, bias=0.0), anchors, self.traffic)

    def gather(self, name: str) -> np.ndarray:
        """The state so named of all rows, in the order of the problem; placed ones by part."""
        order = self._order(wants=name)
        found = [reply.value for reply in self._replies(order, self.parts)]
        values = found[0][1]
        out = np.zeros((self.whole.n, *values.shape[1:]), dtype=values.dtype)
        for row, values in found:
            out[row] = values
        return out

    def close(self) -> None:
        """Remove the files of these parts and of all that share their rows, and all else."""
        self.lease.free()

    def mend(self, parts: Sequence[int] | None = None) -> None:
        """See to it that rows and state of these parts are where their anchors say."""
        self._replies(
            self._order(call=_pickled(_nothing, ())), self.parts if parts is None else parts
        )

    @cached_property
    def _known(self) -> dict[int, Known]:
        """What every part has to be."""
        found, first = {}, 0
        for k, part in enumerate(self.parts):
            facts = self.anchors.facts[part]
            found[part] = Known(k, facts.digest, first)
            first += facts.rows
        return found

    def _call(
        self,
        parts: Sequence[int],
        task: Callable[..., Any],
        shared: tuple[Any, ...],
        makes: int | None = None,
    ) -> list[Any]:
        """What a task says of some parts, in their order."""
        began = time.perf_counter()
        order = self._order(call=_pickled(task, shared), makes=makes)
        replies = self._replies(order, parts)
        said = [reply.value for reply in replies]
        self.traffic.add(shared, said)
        self.traffic.seconds += time.perf_counter() - began
        self.traffic.slowest += max(reply.seconds for reply in replies)
        return said

    def _order(self, **given: Any) -> Order:
        return Order(self.whole.pose, self.version.number, self._known, **given)

    def _with_past(self, order: Order, parts: Sequence[int]) -> Order:
        """The same with all that makes the state again."""
        copies, states = self.past.copies, None
        if copies is not None:
            pairs = copies.rdd.filter(partial(rounds.is_among, frozenset(parts)))
            states = dict(self.lease.run(pairs.collect))
        base = FIRST if copies is None else copies.number
        return order._replace(log=self.past.steps, base=base, states=states)

    def _packed(self, held: list[Any], call: bytes = b"") -> Any:
        """An order that can make the state again, for RDDs that Spark may compute twice."""
        packed = self.lease.packed(self._with_past(self._order(call=call), self.parts))
        if not isinstance(packed, bytes):
            held.append(packed)
        return packed

    def _replies(self, order: Order, parts: Sequence[int]) -> list[Reply]:
        """What parts reply; those that do not find their rows or state are helped to them."""
        lease, replies, left = self.lease, dict[int, Reply](), list(parts)
        lease.sweep()
        if len(left) == len(self):
            order = order._replace(drops=tuple(lease.versions), rubbish=tuple(lease.generations))
        for _ in range(_ATTEMPTS):
            try:
                asked = self._asked(order, left)
            except Lost:
                self.anchors.mend(left)
                order = self._with_past(order, left)
                continue
            for reply in asked:
                if reply.kind == "failed":
                    raise reply.value
                replies[reply.part] = reply
            lost = [part for part in left if replies[part].kind != "said"]
            if not lost:
                if order.drops or order.rubbish:
                    lease.versions.clear()
                    lease.generations.clear()
                return [replies[part] for part in parts]
            self.anchors.renew([part for part in lost if replies[part].kind == "lost rows"])
            order, left = self._with_past(order, lost), lost
        raise ClusterError(
            f"Part {left[0]} of the rows did not stay where it was put, {_ATTEMPTS} times: see"
            " whether executors are lost, or their disks are full."
        )

    def _asked(self, order: Order, parts: Sequence[int]) -> list[Reply]:
        lease, packed = self.lease, self.lease.packed(order)
        try:
            asked = self.anchors.over(parts).mapPartitions(partial(rounds.replied, packed))
            replies: list[Reply] = lease.run(asked.collect)
        finally:
            if not isinstance(packed, bytes):
                packed.destroy()
        for reply in replies:
            lease.roots.add(reply.path.rpartition("/")[0])
        return replies

    def _copied(self) -> SparkShards:
        """The same with states copied, and a past that begins there."""
        from pyspark import StorageLevel

        lease, sc = self.lease, self.lease.sc
        packed = lease.packed(self._order())
        rdd = self.anchors.over(self.parts).mapPartitions(partial(rounds.states, packed))
        copies = Copies(lease, self.version.number, rdd, packed)
        several = cluster.executors(sc) > 1
        rdd.persist(StorageLevel.MEMORY_AND_DISK_2 if several else StorageLevel.MEMORY_AND_DISK)
        if sc.getCheckpointDir() is None:
            rdd.localCheckpoint()
        else:
            rdd.checkpoint()
        try:
            lease.run(rdd._jrdd.count)
        except (ClusterError, LookupError):  # a state was lost just now: the past goes on
            return self
        return replace(self, past=Past((), copies))


def make_shards(whole: Whole, anchors: Anchors, traffic: Traffic) -> SparkShards:
    """Parts as they were put."""
    lease = anchors.lease
    parts = tuple(k for k, facts in sorted(anchors.facts.items()) if facts.rows)
    return SparkShards(whole, lease, anchors, parts, Version(lease, FIRST), Past(), traffic)


def _pickled(task: Callable[..., Any], shared: tuple[Any, ...]) -> bytes:
    from pyspark import cloudpickle

    found: bytes = cloudpickle.dumps((task, shared))
    return found


def _nothing(part: Any) -> int:
    return 0
