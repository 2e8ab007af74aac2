"""Linear machines on Spark: what a round costs, and Spark's own LinearSVC on the same cluster.

Cluster     two executors of one core and 1 GiB each, processes of their own on this computer
Rounds      rows of 50 float32 features that executors generate, in four parts; a round that finds
            the gradient and writes margins, and one that writes nothing, ten times each.  Asked
            for: at most 1.5 times the slowest part's compute time plus half a second
Memory      3 GB of such rows, which is more than both executors may hold; trained to a relative gap
            of 1e-6, and what a worker takes then beside the files that it maps
LinearSVC   the same cached DataFrame of vectors, hinge loss, C = 1 for each row, no intercept
            (Spark does not regularise its own); Spark's with its defaults, at most 100 steps, and
            ours ("auto", with rows where they are) until its objective is the same to six
            digits or less, or three times as long.  Asked for: five times faster, the placing
            counted
"""

from __future__ import annotations

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
from benchmarks.kept import Kept, Record
from benchmarks.methods import Options
from benchmarks.report import Table, say
from optimargin.engines.frames import KEPT
from optimargin.engines.spark import SparkEngine
from optimargin.loss import hinge, odm
from optimargin.problem import Start, Stop, drive
from optimargin.solvers.on_parts import on_parts
from optimargin.solvers.parted import see
from optimargin.solvers.parted_newton import PartedNewton
from optimargin.solvers.parting import Parting

_FEATURES, _PARTS, _ROUNDS = 50, 4, 10
_SIZES = {"64 MB": 1 << 26, "256 MB": 1 << 28, "1 GB": 1 << 30}
_LARGE, _MUCH = "3 GB", 3 << 30
_SETS = ("generated", "covtype")
_FACTOR, _MORE, _FASTER = 1.5, 0.5, 5.0  # what is asked for
_SAME = 1e-6  # share of an objective by which another is the same
_TOL = 1e-4  # the gap that a solver is told to wish for
_PATIENCE = 3.0  # times as long as Spark's LinearSVC, then ours is stopped


def run(options: Options) -> Iterator[Table]:
    """What a round costs, then LinearSVC."""
    path = None if options.results is None else options.results / "spark.jsonl"
    kept = Kept(path, (_FEATURES, _PARTS, _ROUNDS))
    jobs = [name for name in _jobs(options) if options.wants(name)]
    missing = kept.missing(jobs, lambda r: r["name"])
    if missing:
        with _session() as session:
            for name in missing:
                try:
                    kept.add({"name": name, **_measured(name, session, options)})
                except data.NoData:
                    say(f"{name}: no data")
    found = {r["name"]: r for r in kept.records if r["name"] in jobs}
    yield _round_table([r for r in found.values() if "rounds" in r])
    yield _memory_table([r for r in found.values() if "gap" in r])
    if options.peers:
        yield _svc_table([r for r in found.values() if "theirs" in r])


def _jobs(options: Options) -> list[str]:
    if options.quick:
        return ["1 MB", "generated"] if options.peers else ["1 MB"]
    return [*_SIZES, _LARGE, *(_SETS if options.peers else ())]


def _measured(name: str, session: Any, options: Options) -> Record:
    if name in _SETS:
        return _beside_linear_svc(name, session, options)
    return _trained(session) if name == _LARGE else _rounds(name, session)


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


def _rounds(name: str, session: Any) -> Record:
    """Seconds of rounds, and of the slowest part's task in each."""
    n = _SIZES.get(name, 1 << 20) // (4 * _FEATURES)
    began = time.perf_counter()
    with SparkEngine(session).place(_generated(session, n), _PARTS) as placed:
        seconds = time.perf_counter() - began
        say(f"{name}: placed in {seconds:.1f} s")
        shards = placed.posed(loss=odm(n, 0.5, 0.2, n), bias=1.0)
        rounds = {title: _medians(shards, call) for title, call in _calls(shards).items()}
    return {"rows": n, "placed": seconds, "rounds": rounds}


def _round_table(records: list[Record]) -> Table:
    columns = ["rows", "placed, s", "round", "s a round", "slowest part, s", "asked for, s", "met"]
    rows: list[list[Any]] = []
    for r in records:
        for title, (wall, slowest) in r["rounds"].items():
            goal = _FACTOR * slowest + _MORE
            rows.append([r["name"], r["placed"], title, wall, slowest, goal, wall <= goal])
    note = f"Medians of {_ROUNDS} rounds after two others. {_PARTS} parts on two executors."
    return Table("A round on Spark", columns, rows, note, records)


def _trained(session: Any) -> Record:
    """Training on rows that no executor could hold."""
    n = _MUCH // (4 * _FEATURES)
    began = time.perf_counter()
    with SparkEngine(session).place(_generated(session, n), 2 * _PARTS) as placed:
        seconds = time.perf_counter() - began
        say(f"{_LARGE}: placed in {seconds:.1f} s")
        shards, began = placed.posed(loss=odm(n, 0.5, 0.2, n), bias=1.0), time.perf_counter()
        found = drive(PartedNewton(0, Parting()).points(shards, Start()), Stop(1e-6))
        trained = time.perf_counter() - began
        own = max(shards.sum(own_memory))
        return {
            "rows": n, "placed": seconds, "trained": trained, "gap": found.gap, "own": own,
            "rounds of training": shards.traffic.rounds,
        }  # fmt: skip


def own_memory(part: Any) -> list[int]:
    """Bytes of this worker that are not of files: the most of it so far would count those, too."""
    with open("/proc/self/status", encoding="utf-8") as file:
        lines = dict(line.split(":", 1) for line in file)
    return [1024 * int(lines["RssAnon"].split()[0])]


def _memory_table(records: list[Record]) -> Table:
    columns = ["rows", "executors", "placed, s", "trained, s", "rounds", "gap", "a worker's own MB"]
    rows = [
        [r["name"], "2 x 1 GB", r["placed"], r["trained"], r["rounds of training"], r["gap"],
         f"{r['own'] / 1e6:.0f}"]
        for r in records
    ]  # fmt: skip
    note = "Rows are mapped from files, so their pages are the system's to keep or to drop."
    return Table("More rows than memory", columns, rows, note, records)


def _generated(session: Any, n: int) -> Any:
    return session.range(0, n, 1, 8).mapInArrow(made, "features array<float>, label double")


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


def _beside_linear_svc(name: str, session: Any, options: Options) -> Record:
    X, y = _set(name, options)
    with _frame(session, X, y) as frame:
        theirs = _linear_svc(frame, X, y)
        say(f"{name}, LinearSVC: {theirs}")
        ours = _ours(session, frame, theirs)
        say(f"{name}, ours: {ours}")
    return {"shape": X.shape, "theirs": theirs, "ours": ours}


def _svc_table(records: list[Record]) -> Table:
    columns = ["data", "shape", "method", "objective", "seconds", "of these to place rows"]
    columns += ["rounds", "times faster", "met"]
    rows: list[list[Any]] = []
    for r in records:
        theirs, ours = Reached(*r["theirs"]), Reached(*r["ours"])
        shape = f"{r['shape'][0]:,} x {r['shape'][1]}"
        faster = theirs.seconds / ours.seconds
        met = faster >= _FASTER and ours.objective <= (1.0 + _SAME) * theirs.objective
        rows.append([r["name"], shape, "Spark's LinearSVC", *theirs, "", ""])
        rows.append([r["name"], shape, "ours", *ours, faster, met])
    note = "Objective: |w|^2 / 2 + sum of the hinge losses. Rounds: steps of LinearSVC, and ours."
    return Table("Hinge loss on Spark", columns, rows, note, records)


def _set(name: str, options: Options) -> tuple[Any, np.ndarray]:
    if name == "generated":
        return problems.tall(2_000 if options.quick else 1_000_000, 18 if options.quick else 50)
    covtype = next(p for p in problems.linear(quick=False) if p.name == "covtype")
    return covtype.load(options.data)


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


def _ours(session: Any, frame: Any, theirs: Reached) -> Reached:
    """What users get: a part for each core, rows where they are, and the solver "auto"."""

    def reached(rows: Any, stop: Stop) -> tuple[Any, float, int]:
        began = time.perf_counter()
        with SparkEngine(session).place(rows, how=KEPT) as placed:
            placing = time.perf_counter() - began
            shards = placed.posed(loss=hinge(1.0), bias=0.0)
            solver = on_parts("auto", shards.whole, 0, Parting(), _TOL)
            found = drive(solver.points(shards, Start()), stop)
            return found, placing, shards.traffic.rounds

    reached(frame, Stop(_TOL, 1))  # compiled before the clock
    began, goal = time.perf_counter(), (1.0 + _SAME) * theirs.objective
    stop = Stop(0.0, 1000, _PATIENCE * theirs.seconds, lambda line, _: line.objective <= goal)
    found, placing, rounds = reached(frame, stop)
    return Reached(found.primal, time.perf_counter() - began, placing, rounds)
