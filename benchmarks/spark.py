"""Linear machines on Spark: what a round costs, and Spark's own LinearSVC on the same cluster.

Cluster     two executors of one core and 1 GiB each, processes of their own on this computer
Rounds      rows of 50 float32 features that executors generate, in four parts; a round that finds
            the gradient and writes margins, and one that writes nothing, ten times each.  Asked
            for: at most 1.5 times the slowest part's compute time plus half a second
LinearSVC   the same cached DataFrame of vectors, hinge loss, C = 1 for each row, no intercept
            (Spark does not regularise its own); Spark's with its defaults, at most 100 steps, and
            ours until its objective is no larger.  Asked for: five times faster with the placing
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data, problems
from benchmarks.methods import Options
from benchmarks.report import Table, say
from optimargin.engines.spark import SparkEngine
from optimargin.loss import hinge, odm
from optimargin.problem import Start, Stop, drive
from optimargin.solvers.parted import see
from optimargin.solvers.parting import Parting

_FEATURES, _PARTS, _ROUNDS = 50, 4, 10
_SIZES = {"64 MB": 1 << 26, "256 MB": 1 << 28, "1 GB": 1 << 30}
_FACTOR, _MORE, _FASTER = 1.5, 0.5, 5.0  # what is asked for
_SOLVER = "optimargin.solvers.bqo"  # the hinge has no curvature for Newton's method


def run(options: Options) -> Iterator[Table]:
    """What a round costs, then LinearSVC."""
    with _session() as session:
        yield _rounds(session, options)
        if options.peers:
            yield _beside_linear_svc(session, options)


@contextmanager
def _session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    root = Path(__file__).resolve().parents[1]
    known = os.environ.get("PYTHONPATH")
    paths = [str(root / "src"), str(root), *([known] if known else [])]
    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("benchmarks")
    for name in ("spark.driver.memory", "spark.executor.memory"):
        builder = builder.config(name, "1g")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.sparkContext.setLogLevel("OFF")
        session.stop()


# -- rounds ---------------------------------------------------------------------------------


def _rounds(session: Any, options: Options) -> Table:
    columns = ["rows", "placed, s", "round", "s a round", "slowest part, s", "asked for, s", "met"]
    rows: list[list[Any]] = []
    sizes = {"1 MB": 1 << 20} if options.quick else _SIZES
    for name, size in sizes.items():
        if not options.wants(name):
            continue
        n = size // (4 * _FEATURES)
        frame = session.range(0, n, 1, 8).mapInArrow(made, "features array<float>, label double")
        began = time.perf_counter()
        with SparkEngine(session).place(frame, _PARTS) as placed:
            seconds = time.perf_counter() - began
            say(f"{name}: placed in {seconds:.1f} s")
            shards = placed.posed(loss=odm(n, 0.5, 0.2, n), bias=1.0)
            for title, call in _calls(shards).items():
                wall, slowest = _medians(shards, call)
                goal = _FACTOR * slowest + _MORE
                rows.append([name, seconds, title, wall, slowest, goal, wall <= goal])
    note = f"Medians of {_ROUNDS} rounds after two others. {_PARTS} parts on two executors."
    return Table("A round on Spark", columns, rows, note)


def made(batches: Iterable[Any]) -> Iterator[Any]:
    """Rows of two classes in place of row numbers; runs on executors."""
    import pyarrow as pa

    way = np.random.default_rng(0).normal(size=_FEATURES)
    for batch in batches:
        number = batch.column(0).to_numpy()
        rng = np.random.default_rng(int(number[0]))
        X = rng.normal(size=(len(number), _FEATURES)).astype(np.float32)
        y = np.where(X @ way + 3.0 * rng.normal(size=len(number)) > 0, 1.0, -1.0)
        ends = pa.array(np.arange(0, X.size + 1, _FEATURES, dtype=np.int32))
        lists = pa.ListArray.from_arrays(ends, pa.array(X.ravel()))
        yield pa.RecordBatch.from_arrays([lists, pa.array(y)], ["features", "label"])


def _calls(shards: Any) -> dict[str, Callable[[], Any]]:
    w = np.random.default_rng(0).normal(size=shards.whole.d + 1) / 10.0
    return {
        "gradient": partial(shards.step, see, w),
        "losses": partial(shards.sum, losses_at, w),
    }


def losses_at(part: Any, w: np.ndarray) -> float:
    """A pass that writes nothing."""
    return float(see(part, w)[1][0])


def _medians(shards: Any, call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a round, and of the slowest part's task."""
    traffic, walls, slowest = shards.traffic, [], []
    for _ in range(_ROUNDS + 2):
        before, began = traffic.slowest, time.perf_counter()
        call()
        walls.append(time.perf_counter() - began)
        slowest.append(traffic.slowest - before)
    return statistics.median(walls[2:]), statistics.median(slowest[2:])


# -- LinearSVC ------------------------------------------------------------------------------


class Reached(NamedTuple):
    """What a method reached, in how many seconds; of these, to place rows."""

    objective: float
    seconds: float
    placing: float
    rounds: int


def _beside_linear_svc(session: Any, options: Options) -> Table:
    columns = ["data", "shape", "method", "objective", "seconds", "of these to place rows"]
    columns += ["rounds", "times faster", "met"]
    rows: list[list[Any]] = []
    for name, load in _sets(options).items():
        try:
            X, y = load()
        except data.NoData:
            rows.append([name, "no data", *[""] * 7])
            continue
        shape = f"{X.shape[0]:,} x {X.shape[1]}"
        with _frame(session, X, y) as frame:
            theirs = _linear_svc(frame, X, y)
            say(f"{name}, LinearSVC: {theirs}")
            rows.append([name, shape, "Spark's LinearSVC", *theirs, "", ""])
            ours = _ours(session, frame, len(y), theirs.objective)
        if ours is None:
            rows.append([name, shape, "ours: no solver for the hinge loss here", *[""] * 6])
            continue
        say(f"{name}, ours: {ours}")
        faster = theirs.seconds / ours.seconds
        met = faster >= _FASTER and ours.objective <= theirs.objective
        rows.append([name, shape, "ours", *ours, faster, met])
    note = "Objective: |w|^2 / 2 + sum of the hinge losses. Rounds: steps of LinearSVC, and ours."
    return Table("Hinge loss on Spark", columns, rows, note)


def _sets(options: Options) -> dict[str, Callable[[], tuple[Any, np.ndarray]]]:
    if options.quick:
        return {"generated": partial(problems.tall, 2_000)}
    covtype = next(p for p in problems.linear(quick=False) if p.name == "covtype")
    found = {
        "generated": partial(problems.tall, 1_000_000, 50),
        "covtype": partial(covtype.load, options.data),
    }
    return {name: load for name, load in found.items() if options.wants(name)}


@contextmanager
def _frame(session: Any, X: Any, y: np.ndarray) -> Iterator[Any]:
    """The rows as a cached DataFrame of vectors, by way of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.ml.functions import array_to_vector

    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    with tempfile.TemporaryDirectory() as folder:
        ends = pa.array(np.arange(0, X.size + 1, X.shape[1], dtype=np.int32))
        lists = pa.ListArray.from_arrays(ends, pa.array(X.ravel()))
        path = Path(folder, "rows.parquet")
        pq.write_table(pa.table({"x": lists, "label": y}), path, row_group_size=len(y) // 8 + 1)
        frame = session.read.parquet(path.as_uri())
        frame = frame.select(array_to_vector("x").alias("features"), "label").persist()
        frame.count()
        yield frame
        frame.unpersist()


def _linear_svc(frame: Any, X: Any, y: np.ndarray) -> Reached:
    from pyspark.ml.classification import LinearSVC
    from pyspark.sql import functions as F

    zero_one = frame.withColumn("label", F.expr("(label + 1) / 2"))
    svc = LinearSVC(regParam=1.0 / len(y), fitIntercept=False, standardization=False)
    svc.copy({svc.maxIter: 1}).fit(zero_one)  # compiled before the clock
    began = time.perf_counter()
    model = svc.fit(zero_one)
    seconds = time.perf_counter() - began
    w = model.coefficients.toArray()
    losses = np.maximum(1.0 - y * (X @ w), 0.0)
    objective = 0.5 * float(w @ w) + float(losses.sum())
    return Reached(objective, seconds, 0.0, model.summary().totalIterations)


def _ours(session: Any, frame: Any, n: int, goal: float) -> Reached | None:
    try:
        solver = importlib.import_module(_SOLVER).BQO(0, Parting())
    except ModuleNotFoundError:
        return None
    with SparkEngine(session).place(frame.limit(500), _PARTS, how="random") as few:
        warm = few.posed(loss=hinge(1.0), bias=0.0)
        drive(solver.points(warm, Start()), Stop(0.5, 3))  # compiled before the clock
    began = time.perf_counter()
    with SparkEngine(session).place(frame, _PARTS) as placed:
        placing = time.perf_counter() - began
        shards = placed.posed(loss=hinge(1.0), bias=0.0)
        stop = Stop(0.0, 1000, None, lambda line, _: line.objective <= goal)
        found = drive(solver.points(shards, Start()), stop)
        seconds = time.perf_counter() - began
        return Reached(found.primal, seconds, placing, shards.traffic.rounds)
