"""What the Spark engine asks of Spark: a session, jobs that end, and that all is given back.

A job that fails is one sentence: the error that its task met, or what Spark said of it.  One that
no executor works on is cancelled after a while, and so is one that takes longer than somebody's
patience; Spark itself gives up after a task has failed a few times (``spark.task.maxFailures``).
"""

from __future__ import annotations

import itertools
import re
import shutil
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from optimargin.engines import rounds
from optimargin.engines.blocks import Lost

R = TypeVar("R")

_LOOK = 5.0  # seconds between two looks at a job that takes long
_STARVING = 120.0  # seconds that a job may wait for an executor
_INLINE = 1 << 16  # bytes that travel with every task; more are a broadcast
_SWEEPS = 3  # attempts to reach all executors with a request to remove files

_INSTALL = (
    "pyspark 4.1 or newer and Java 17 or newer are needed: pip install 'optimargin[spark]', and a"
    " Java runtime (a JRE or JDK 17) with JAVA_HOME set or java on the PATH."
)


class ClusterError(RuntimeError):
    """What a cluster could not do."""


def context(session: Any) -> Any:
    """The Spark context of a session, or of the active one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ImportError(f"SparkEngine: pyspark is not installed. {_INSTALL}") from None
    session = session or SparkSession.getActiveSession()
    if session is None:
        hint = "" if shutil.which("java") else f" {_INSTALL}"
        raise ValueError(
            "session: no Spark session is active; start one with"
            f" SparkSession.builder.getOrCreate(), or pass it as session=.{hint}"
        )
    found = getattr(session, "sparkContext", None)
    if found is None or _is_stopped(found):
        raise ValueError("session: must be a running classic Spark session, not a stopped one.")
    return found


def _is_stopped(sc: Any) -> bool:
    """Whether a context is gone, or about to be."""
    try:
        return sc._jsc is None or bool(sc._jsc.sc().isStopped())
    except Exception:  # so is Java
        return True


def run(sc: Any, action: Callable[[], R], patience: float | None) -> R:
    """What an action gives; an error is one sentence."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with _watched(sc, patience) as reasons:
        try:
            return action()
        except (Py4JError, PySparkException) as error:
            if reasons:
                raise ClusterError(reasons[0]) from None
            if _is_stopped(sc):
                raise ClusterError("The session was stopped in the midst of a job.") from None
            raise _told(str(error)) from None


def _told(text: str) -> Exception:
    """What went wrong, out of the text of Spark's error."""
    traces = text.split("Traceback (most recent call last):")
    if len(traces) > 1:
        trace = traces[-1].split("\n\tat ")[0]
        lines = [line for line in trace.splitlines() if re.match(r"[\w.]+(:|$)", line)]
        last = lines[-1] if lines else trace.strip()
        if re.match(r"(optimargin\.engines\.blocks\.)?Lost\b", last):
            return Lost("rows", last)
        if "No module named 'optimargin" in last:
            return ClusterError(
                "The executors' Python cannot import optimargin: install it there, and set"
                " PYSPARK_PYTHON to that Python before the session starts."
            )
        name, _, message = last.partition(": ")
        known = {"ValueError": ValueError, "TypeError": TypeError}.get(name)
        return known(message) if known else ClusterError(f"A task failed on an executor: {last}")
    if "Checkpoint block" in text:
        return ClusterError(
            "The state of some rows was lost with the executors that held its copies; fit again."
        )
    reason = re.search(r"(?:SparkException|Exception): (.+)", text)
    said = reason[1] if reason else text.strip().splitlines()[0]
    return ClusterError(f"Spark could not finish a job: {said}")


@contextmanager
def _watched(sc: Any, patience: float | None) -> Iterator[list[str]]:
    """Cancel the jobs of this block when they starve or take too long, and say why."""
    tag, done, reasons = f"optimargin-{uuid.uuid4().hex}", threading.Event(), list[str]()

    def watch() -> None:
        began = worked = time.monotonic()
        while not done.wait(_LOOK if patience is None else min(_LOOK, patience / 2)):
            now = time.monotonic()
            if _is_busy(sc):
                worked = now
            if now - worked > _STARVING:
                reasons.append(
                    f"No executor has taken a task for {_STARVING:g} seconds: see that the cluster"
                    " has workers with free cores and memory."
                )
            elif patience is not None and now - began > patience:
                reasons.append(
                    f"patience: a call to the parts took longer than {patience:g} seconds."
                )
            else:
                continue
            sc.cancelJobsWithTag(tag)
            return

    watcher = threading.Thread(target=watch, name="optimargin-watch", daemon=True)
    sc.addJobTag(tag)
    watcher.start()
    try:
        yield reasons
    finally:
        done.set()
        with suppress(Exception):  # a context that was stopped meanwhile
            sc.removeJobTag(tag)


def _is_busy(sc: Any) -> bool:
    """Whether a task runs; when nobody can tell, one does."""
    try:
        tracker = sc.statusTracker()
        stages = [tracker.getStageInfo(k) for k in tracker.getActiveStageIds()]
    except Exception:
        return True
    return any(stage is not None and stage.numActiveTasks for stage in stages)


def selected(rdd: Any, places: Sequence[int]) -> Any:
    """Some partitions of an RDD."""
    from pyspark import RDD

    sc = rdd.ctx
    if len(places) == rdd.getNumPartitions():
        return rdd
    jvm = sc._jvm
    wanted = jvm.PythonUtils.toSeq([int(k) for k in places]).toSet()  # a function of a number
    pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd._jrdd.rdd(), wanted)
    return RDD(pruned.toJavaRDD(), sc, rdd._jrdd_deserializer)


def executors(sc: Any) -> int:
    """How many there are, the driver not counted."""
    return int(sc._jsc.sc().getExecutorMemoryStatus().size()) - 1


class Lease:
    """What a run holds on a cluster, until it is freed.

    Owners of RDDs, broadcasts, states and blocks are Python objects; what belonged to one that is
    gone is freed with the next call.  The folders of blocks are inside of Spark's own, which Spark
    removes when an application ends, however it ends.
    """

    def __init__(self, sc: Any, patience: float | None) -> None:
        self.sc, self.patience, self.id = sc, patience, uuid.uuid4().hex[:12]
        self.roots: set[str] = set()
        self._numbers = itertools.count(1)
        self._held: dict[int, list[Any]] = {}
        self._gone: deque[tuple[str, int]] = deque()
        self.versions: list[int] = []  # of states that nobody will ask for
        self.generations: list[int] = []  # the same of blocks
        self._end = weakref.finalize(self, _freed_later, sc, self._held, self.roots)
        self._end.atexit = False  # at exit Spark ends, too

    def number(self) -> int:
        """One that was not there before."""
        return next(self._numbers)

    def hold(self, owner: Any, things: list[Any]) -> list[Any]:
        """Keep RDDs and broadcasts as long as their owner; others may be added to the list."""
        number = self.number()
        self._held[number] = things
        self._watch(owner, "things", number)
        return things

    def own(self, owner: Any, kind: str, number: int) -> None:
        """A "version" of the state or a "generation" of blocks, as long as their owner."""
        self._watch(owner, kind, number)

    def _watch(self, owner: Any, kind: str, number: int) -> None:
        weakref.finalize(owner, self._gone.append, (kind, number)).atexit = False

    def sweep(self) -> None:
        """Free what belonged to owners that are gone."""
        while self._gone:
            kind, number = self._gone.popleft()
            if kind == "version":
                self.versions.append(number)
            elif kind == "generation":
                self.generations.append(number)
            else:
                _release(self._held.pop(number, []))

    def packed(self, order: rounds.Order) -> Any:
        """An order as it travels."""
        from pyspark import cloudpickle

        found = cloudpickle.dumps(order)
        return found if len(found) <= _INLINE else self.sc.broadcast(found)

    def run(self, action: Callable[[], R]) -> R:
        """What an action on an RDD gives."""
        if not self._end.alive:
            raise ValueError("shards: they have been closed; scatter or place the rows anew.")
        return run(self.sc, action, self.patience)

    def free(self) -> None:
        """Give everything back."""
        if self._end.detach() is not None:
            _freed(self.sc, self._held, self.roots)


def _release(things: list[Any]) -> None:
    from pyspark import Broadcast

    for thing in things:
        with suppress(Exception):  # gone already, or the context is
            if isinstance(thing, Broadcast):
                thing.destroy()
            else:
                thing.unpersist()
    things.clear()


def _freed_later(sc: Any, held: dict[int, list[Any]], roots: set[str]) -> None:
    """The same from wherever the last owner happened to go."""
    threading.Thread(target=_freed, args=(sc, held, roots), daemon=True).start()


def _freed(sc: Any, held: dict[int, list[Any]], roots: set[str]) -> None:
    if sc._jsc is None:
        return  # Spark has ended, and removed its folders
    for things in list(held.values()):
        _release(things)
    held.clear()
    with suppress(Exception):
        for _ in range(_SWEEPS):
            if not roots:
                break
            tasks = sc.parallelize(range(max(sc.defaultParallelism, 1)), sc.defaultParallelism)
            done = tasks.mapPartitions(partial(rounds.cleared, sorted(roots)))
            roots.difference_update(run(sc, done.collect, 60.0))
