"""Parts of a problem on Apache Spark: the same methods as `engines.local`, rows where they are.

    engine = SparkEngine(session)               None: the active session
    shards = engine.scatter(problem, part)      rows on the driver go out once
    shards = engine.place(frame, 16, ...)       rows of a DataFrame never come to the driver
    shards = shards.posed(loss=..., bias=1.0)   what makes a problem of placed rows
    shards.sum | step | turn | merge | gather | featured | close

Rows      are written once, to files beside the executor that has the part (`blocks`), and mapped
          into memory by its tasks: a round reads no row through a pipe, and a part may be larger
          than an executor's memory
State     is files beside them, one version for each step; a version goes when nobody refers to it
Rounds    a call is one job over a persisted RDD of anchors, one small record a part, which says
          where a block is; Spark sends a task where its anchor is kept.  What is shared travels
          with the task, or as one broadcast that ends with the call
Faults    an anchor that is lost is computed again by Spark, which writes the block anew from where
          its rows came from: shuffled rows, the driver, or the shards it was made of.  A state
          that is lost is made again by the steps that led to it, which the driver keeps; every
          so often states are copied (two executors, or the checkpoint directory), and the steps
          before are forgotten.  A part that finds nothing says so, others are not asked twice
Answer    does not depend on where a part is: what parts say is added up in their order
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from optimargin.engines import cluster, dealing, frames, rounds
from optimargin.engines.anchors import Anchors
from optimargin.engines.blocks import Chunk
from optimargin.engines.cluster import Lease
from optimargin.engines.local import State, Traffic, row_bytes
from optimargin.engines.sparkshards import SparkShards, Whole, make_shards
from optimargin.kernels import Kernel, Linear
from optimargin.problem import Problem

_EACH = 4  # partitions of a frame for every core that stay apart


class SparkEngine:
    """Apache Spark 4.

    Parameters
    ----------
    session : SparkSession, optional
        None means the active one.
    patience : float, optional
        Seconds that a call to the parts may take; it is cancelled then, and so is the training.
        None means as long as it takes.  A call that no executor works on ends in either case.

    Notes
    -----
    Executors need Python with optimargin (PYSPARK_PYTHON, set before the session starts).  Rows are
    in Python's memory and files, not in Java's: leave room beside ``spark.executor.memory``
    (``spark.executor.memoryOverhead`` on a cluster manager that limits it), and put
    ``spark.local.dir`` on a disk with room for two or three times the rows.
    """

    def __init__(self, session: Any = None, patience: float | None = None) -> None:
        self.session = session
        self.patience = patience

    def __deepcopy__(self, _: Any) -> SparkEngine:
        return self  # a session cannot be copied

    def __reduce__(self) -> tuple[Any, ...]:
        return SparkEngine, (None, self.patience)

    def lease(self) -> Lease:
        """What a run will hold on the cluster."""
        return Lease(cluster.context(self.session), self.patience)

    def scatter(
        self,
        problem: Problem,
        part: np.ndarray,
        state: State | None = None,
        traffic: Traffic | None = None,
    ) -> SparkShards:
        """The problem in parts: see `LocalEngine.scatter`."""
        lease = self.lease()
        order = np.argsort(part, kind="stable")
        ends = np.searchsorted(part[order], np.arange(int(part.max()) + 2))
        rows = [order[a:b] for a, b in pairwise(ends) if b > a]
        if traffic is not None:
            traffic.move(sum(row_bytes(problem, index) for index in rows))

        def source(generation: int, wanted: Sequence[int], held: list[Any]) -> Any:
            found = []
            for k in wanted:
                sent = lease.sc.broadcast([_chunk(problem, rows[k], state)])
                held.append(sent)
                put = partial(rounds.put, lease.id, generation, k, sent)
                found.append(lease.sc.parallelize([k], 1).mapPartitions(put))
            return lease.sc.union(found)

        anchors = Anchors(lease, source, range(len(rows)))
        whole = Whole(
            problem.n,
            problem.d,
            problem.loss,
            problem.bias,
            problem.classes,
            int(lease.sc.getConf().get("spark.task.cpus", "1")),
            problem.limit,
        )
        return make_shards(whole, anchors, Traffic() if traffic is None else traffic)

    def place(
        self,
        frame: Any,
        n_partitions: int | None = None,
        *,
        how: str = "stratified",
        strata: int = 32,
        kernel: Kernel | None = None,
        seed: int = 0,
        classes: int = 2,
        dtype: str | None = None,
        features: str = "features",
        label: str = "label",
        weight: str | None = None,
        part: str | None = None,
    ) -> SparkShards:
        """The rows of a DataFrame in parts; none of them passes through the driver.

        A sample of at most 4,096 rows does, for strata, and to tell dense rows from sparse ones.

        Parameters
        ----------
        frame : DataFrame
            Its order of rows within partitions must be the same when Spark computes it again.
        n_partitions : int, optional
            None means one for every core of the cluster; of rows that are "kept", up to four.
        how : {"stratified", "random", "kmeans", "kmeans-strata", "kept"}
            The rule that gives every row its part: see `optimargin.partition`.  "kept" leaves
            rows in the partitions of the frame, joined where there are more than parts, and
            needs no shuffle: for solvers that do not care who has which row.  A frame of fewer
            partitions than parts is dealt at random.
        strata : int
            How many strata, or clusters.
        kernel : Kernel, optional
            In whose space strata are near; None means linear.
        seed : int
            Decides who goes where.
        classes : int
            Labels are -1 and 1 for two classes, and 0 .. classes - 1 for more.
        dtype : {"float32", "float64"}, optional
            None is that of an array column, and float64 for vectors.
        features, label, weight, part : str
            Columns: vectors or arrays of numbers; numbers; numbers of at least 0, None where every
            row counts the same; numbers of parts instead of a rule, negative for rows that are
            left out.

        Returns
        -------
        SparkShards
            Without a loss: see `SparkShards.posed`.
        """
        lease = self.lease()
        names = dealing.Names(features, label, weight, part)
        count = lease.sc.defaultParallelism if n_partitions is None else n_partitions
        rule = frames.Rule(how, strata, Linear() if kernel is None else kernel, seed)
        if part is not None and how == frames.KEPT:
            rule = rule._replace(how="random")
        shape = count, classes, dtype
        anchors = None
        if rule.how == frames.KEPT:
            # Partitions of unequal size are even for cores that take the next when done with one.
            most = _EACH * count if n_partitions is None else count
            deal = frames.deal(frame, names, rule, shape, lease)
            anchors = _kept(frame, names, deal, lease, most)
            rule = rule._replace(how="random")
        if anchors is None:
            deal = frames.deal(frame, names, rule, shape, lease)
            anchors = _dealt(frame, names, deal, lease)
        facts = anchors.facts.values()
        frames.check(facts, lease)
        n, d = sum(one.rows for one in facts), max(one.features for one in facts)
        cpus = int(lease.sc.getConf().get("spark.task.cpus", "1"))
        return make_shards(Whole(n, d, classes=classes, threads=cpus), anchors, Traffic())


def _dealt(frame: Any, names: dealing.Names, deal: dealing.Deal, lease: Lease) -> Anchors:
    """Blocks of rows that a shuffle brings to their parts."""
    pairs = frames.pairs(frame, names, deal, lease)

    def source(generation: int, wanted: Sequence[int], held: list[Any]) -> Any:
        write = partial(dealing.arrived, lease.id, generation, tuple(wanted))
        return cluster.selected(pairs, wanted).mapPartitionsWithIndex(write)

    return Anchors(lease, source, range(deal.parts))


def _kept(
    frame: Any, names: dealing.Names, deal: dealing.Deal, lease: Lease, most: int
) -> Anchors | None:
    """Blocks of rows that stay where they are; None where the frame has too few partitions."""
    generation = lease.number()
    made = frames.blocks(frame, names, deal, lease, generation, most)
    if made is None:
        return None

    def source(_: int, wanted: Sequence[int], held: list[Any]) -> Any:
        return cluster.selected(made, wanted).mapPartitions(dealing.told)

    anchors = Anchors(lease, source, range(made.getNumPartitions()))
    lease.own(anchors, "generation", generation)
    return anchors


def _chunk(problem: Problem, index: np.ndarray, state: State | None) -> Chunk:
    weight = None if problem.weight is None else problem.weight[index]
    X: Any = problem.X[index]
    X = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
    some = {name: values[index] for name, values in (state or {}).items()}
    return Chunk((0, 0), X, problem.y[index], weight, index, some)
