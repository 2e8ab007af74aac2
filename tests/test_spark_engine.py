"""Spark says what threads say, to the last digit, whatever is lost on the way; and leaves nothing.

The executors are processes of a local cluster; they are killed, and files are removed, for real.
"""

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import cluster_tasks as tasks
import optimargin.solvers.csvrg as csvrg
from optimargin.engines import cluster, sparkshards
from optimargin.engines.cluster import ClusterError
from optimargin.engines.local import LocalEngine
from optimargin.engines.spark import SparkEngine
from optimargin.gram import make_gram
from optimargin.kernels import RBF
from optimargin.loss import odm
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.csvrg import CSVRG
from optimargin.solvers.dsvrg import DSVRG
from optimargin.solvers.newton import Newton
from optimargin.solvers.parted_newton import PartedNewton
from optimargin.solvers.parting import Parting
from optimargin.solvers.sodm import SODM

pytestmark = pytest.mark.xdist_group("spark")

RNG = np.random.default_rng(0)
N, D, PARTS = 400, 5, 3
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.6)
y = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.integers(1, 4, size=N).astype(float)
PART = RNG.permutation(N) % PARTS
VALUE = RNG.normal(size=N) * 10.0 ** RNG.integers(-8, 8, size=N)  # a sum feels its order
LOSS = odm(200.0, 0.5, 0.2, WEIGHT.sum())


def posed(rows=X):
    return Problem(rows, y, WEIGHT, LOSS, 1.0)


def held(spark):
    """What Spark and we have not given back: RDDs, and files of broadcasts."""
    context = spark.sparkContext
    return len(context._jsc.getPersistentRDDs()), len(os.listdir(context._temp_dir))


def is_given_back(spark, before):
    """Whether nothing more is held than before; shards of earlier tests may have ended since."""
    return all(now <= then for now, then in zip(held(spark), before, strict=True))


@pytest.fixture
def scattered(spark):
    """Shards of threads and of Spark; afterwards nothing is left of the latter."""
    before, made = held(spark), []

    def make(rows=X, **state):
        pair = [
            engine.scatter(posed(rows), PART, state) for engine in (LocalEngine(), SparkEngine())
        ]
        made.append(pair[1])
        return pair

    yield make
    for shards in made:
        roots = set(shards.lease.roots)
        shards.close()
        assert roots
        assert not any(os.path.exists(root) for root in roots)
    assert is_given_back(spark, before)


def same(here, there):
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a, b)


# -- the same answers ---------------------------------------------------------------------


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_shards_say_what_those_of_threads_say(scattered, rows):
    here, there = scattered(rows(X), value=VALUE)
    assert here.sizes == there.sizes
    assert here.sum(tasks.total, 3.0) == there.sum(tasks.total, 3.0)
    assert there.sum(tasks.places) == list(range(PARTS))
    (a, said), (b, told) = (shards.step(tasks.doubled, 2.0) for shards in (here, there))
    assert said == told
    a, b = (shards.step(tasks.noted)[0] for shards in (a, b))
    same([here.gather("value")], [there.gather("value")])  # those before are as they were
    same([a.gather("0/1/more")], [b.gather("0/1/more")])
    same([a.turn(1, tasks.doubled_value)], [b.turn(1, tasks.doubled_value)])
    with pytest.raises(ValueError, match="lam: must be positive"):
        there.sum(tasks.wrong)
    with pytest.raises(RuntimeError, match="Odd: of an unknown kind"):
        there.turn(0, tasks.odd)
    here, there = a.merge(2), b.merge(2)
    assert here.sizes == there.sizes
    same([here.gather("value")], [there.gather("value")])
    same(here.sum(tasks.pair), there.sum(tasks.pair))
    here, there = (shards.featured(tasks.squared, 2) for shards in (here, there))
    assert there.whole.d == D + 1
    assert there.whole.bias == 0.0
    same(here.sum(tasks.pair), there.sum(tasks.pair))
    assert there.traffic.bytes > here.traffic.bytes > 0  # the calls that only Spark had
    assert there.traffic.seconds > there.traffic.slowest > 0.0


def test_only_survivors_go_on(scattered):
    kept = np.where((RNG.random(N) < 0.5) & (PART != 2), VALUE, 0.0)
    here, there = (shards.merge(2, only="value") for shards in scattered(value=kept))
    assert len(here) == len(there) == 1  # nobody of the last part survives
    assert here.traffic.seen == there.traffic.seen
    np.testing.assert_array_equal(there.gather("value"), kept)
    assert here.sum(tasks.total, 1.0) == there.sum(tasks.total, 1.0)


SOLVERS = {
    "newton-factored": (lambda parting: PartedNewton(0, parting, True), np.asarray),
    "newton-applied": (lambda parting: PartedNewton(0, parting, False), sp.csr_array),
    "dsvrg": (lambda parting: DSVRG(0, parting), sp.csr_array),
    "csvrg": (lambda parting: CSVRG(0, parting), np.asarray),
    "sodm": (lambda parting: SODM(0, parting), np.asarray),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_finds_the_same_answer(spark, monkeypatch, name):
    monkeypatch.setattr(csvrg, "_LEAST", 40)
    monkeypatch.setattr(cluster, "_INLINE", 0)  # whatever travels is a broadcast
    make, rows = SOLVERS[name]
    problem = posed(rows(X))
    if name == "sodm":
        problem = replace(problem, gram=make_gram(RBF(0.5), problem.X, 1.0, 1 << 24, 1))
    here, there = (
        make(Parting(PARTS, engine=engine)).solve(problem, Start(), Stop(1e-3))
        for engine in (LocalEngine(), SparkEngine())
    )
    assert there.gap <= 1e-3
    assert here.traffic == there.traffic
    if name == "sodm":  # products of matrices round by how many threads BLAS has there
        np.testing.assert_allclose(there.coef, here.coef, rtol=1e-6, atol=1e-9)
    else:
        same([here.coef, here.margin], [there.coef, there.margin])


# -- faults ---------------------------------------------------------------------------------


def killed(spark, shards):
    """One of the executors dies as by a power cut."""
    victim = shards.sum(tasks.executor)[0]
    os.kill(victim, signal.SIGKILL)


def emptied(spark, shards):
    """The files of a part are gone, Spark knows of nothing."""
    shutil.rmtree(shards.anchors.facts[0].path)


def erased(spark, shards):
    """All files of all parts are gone."""
    for root in shards.lease.roots:
        shutil.rmtree(root)


def uncached(spark, shards):
    """Spark has dropped what it had kept."""
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        rdd.unpersist(True)


@pytest.mark.parametrize("fault", [killed, emptied, erased, uncached], ids=lambda f: f.__name__)
def test_what_is_lost_in_mid_training_does_not_change_the_answer(scattered, spark, fault):
    here, there = scattered(value=VALUE)
    solver = PartedNewton(0, Parting(), False)  # curvatures stay with the parts
    plain = drive(solver.points(here, Start()), Stop(1e-10))

    def once(line, point):
        if line.round == 1:
            fault(spark, there)
        return False

    found = drive(solver.points(there, Start()), Stop(1e-10, callback=once))
    assert found.status is Status.CONVERGED
    np.testing.assert_array_equal(plain.coef, found.coef)
    np.testing.assert_array_equal(there.gather("value"), VALUE)


def test_shards_that_were_made_of_others_are_made_again(scattered, spark):
    here, there = (shards.step(tasks.noted)[0] for shards in scattered(value=VALUE))
    pairs = [(here.merge(2), there.merge(2))]
    pairs.append(tuple(shards.featured(tasks.squared, 2) for shards in (here, there)))
    erased(spark, there)
    for a, b in pairs:
        same(a.sum(tasks.pair), b.sum(tasks.pair))
        same([a.gather("0/1/more")], [b.gather("0/1/more")])


def test_a_long_past_is_cut_and_states_come_back_from_copies(scattered, spark, monkeypatch):
    monkeypatch.setattr(sparkshards, "_STEPS", 2)
    here, there = scattered(value=VALUE)
    for _ in range(3):
        here, there = (shards.step(tasks.doubled, 1.5)[0] for shards in (here, there))
    assert len(there.past.steps) == 1
    assert there.past.copies is not None
    erased(spark, there)
    same([here.gather("value")], [there.gather("value")])


def test_a_straggler_is_waited_for_and_others_take_its_turns(scattered):
    _, there = scattered(value=VALUE)
    assert there.sum(tasks.slow, 2.0) == N
    assert there.sum(tasks.total, 1.0) == scattered(value=VALUE)[0].sum(tasks.total, 1.0)


def test_patience_ends(spark):
    with SparkEngine(patience=600.0).scatter(posed(), PART) as shards:
        shards.lease.patience = 1.0  # not of the rows' way there, on a busy machine
        began = time.monotonic()
        with pytest.raises(ClusterError, match="patience: a call to the parts took longer than 1"):
            shards.sum(tasks.slow, 60.0)
        assert time.monotonic() - began < 60.0
    with pytest.raises(ValueError, match="shards: they have been closed"):
        shards.sum(tasks.slow, 0.0)


# -- rows of a frame ------------------------------------------------------------------------


def vector(row, kind):
    from pyspark.ml.linalg import Vectors

    if kind == "array":
        return row.tolist()
    if kind == "dense" or (kind == "mixed" and row[0] > 0):
        return Vectors.dense(row)
    places = np.flatnonzero(row)
    return Vectors.sparse(len(row), places.tolist(), row[places].tolist())


def frame_of(spark, kind="array", size=N):
    rows = [
        (vector(row, kind), float(label), float(weight))
        for row, label, weight in zip(X[:size], y, WEIGHT, strict=False)
    ]
    if kind == "array":
        return spark.createDataFrame(rows, "features array<float>, label double, w double")
    return spark.createDataFrame(rows, ["features", "label", "w"])


@pytest.mark.parametrize("kind", ["array", "dense", "sparse", "mixed"])
def test_placed_rows_have_the_answer_of_rows_in_one_place(spark, kind):
    before = held(spark)
    with SparkEngine().place(frame_of(spark, kind), PARTS, weight="w", strata=4) as shards:
        is_sparse, dtype = kind == "sparse", "float32" if kind == "array" else "float64"
        assert shards.sum(tasks.shape) == PARTS * [(is_sparse, dtype, "int8")]
        assert sum(shards.sizes) == shards.whole.n == N
        assert max(shards.sizes) - min(shards.sizes) <= 16  # a row for each cell and source
        assert shards.sum(tasks.labels) == PARTS * [[-1, 1]]
        assert shards.tally[1] == ((y == 1).sum(), WEIGHT[y == 1].sum())
        posed_there = shards.posed(loss=LOSS, bias=1.0)
        points = PartedNewton(0, Parting(), True).points(posed_there, Start())
        found = drive(points, Stop(1e-8))
        erased(spark, shards)
        again = drive(PartedNewton(0, Parting(), True).points(posed_there, Start()), Stop(1e-8))
        np.testing.assert_array_equal(found.coef, again.coef)
    best = drive(Newton(direct=True).points(posed(), Start()), Stop(1e-12)).primal
    assert found.primal == pytest.approx(best, rel=1e-6)
    assert is_given_back(spark, before)


def test_rows_that_are_kept_where_they_are_stay_there_and_come_back(spark):
    """Partitions of the frame become parts in their order, and again after files are gone."""
    frame = frame_of(spark).repartition(6).persist()
    rows = [len(part) for part in frame.rdd.glom().collect()]
    with SparkEngine().place(frame, 6, how="kept", weight="w") as shards:
        assert shards.sizes == rows
        shards = shards.posed(loss=LOSS, bias=1.0)
        solver = PartedNewton(0, Parting(), True)
        first = drive(solver.points(shards, Start()), Stop(1e-8))
        assert first.gap <= 1e-8
        assert first.primal == pytest.approx(
            drive(Newton(direct=True).points(posed(), Start()), Stop(1e-10)).primal, rel=1e-6
        )
        shutil.rmtree(shards.anchors.facts[2].path)
        again = drive(solver.points(shards, Start()), Stop(1e-8))
        np.testing.assert_array_equal(again.coef, first.coef)
    with SparkEngine().place(frame, 2, how="kept", weight="w") as shards:
        assert len(shards) == 2
        assert sum(shards.sizes) == N
    with SparkEngine().place(frame.coalesce(1), 3, how="kept") as shards:
        assert len(shards) == 3  # one partition is dealt
    frame.unpersist()


def test_parts_of_ones_own_and_parts_that_are_empty_or_of_one_class(spark):
    from pyspark.sql import functions as F

    own = frame_of(spark).withColumn("part", F.when(F.col("label") > 0, 3).otherwise(1))
    with SparkEngine().place(own, 5, part="part") as shards:
        assert shards.sizes == [(y < 0).sum(), (y > 0).sum()]
        assert shards.sum(tasks.labels) == [[-1], [1]]
        loss = odm(200.0, 0.5, 0.2, N)
        points = PartedNewton(0, Parting()).points(shards.posed(loss=loss, bias=1.0), Start())
        assert drive(points, Stop(1e-6)).gap <= 1e-6


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"features": "transform(features, v -> float('nan'))"}, "features.*NaN"),
        ({"features": "transform(features, v -> float('inf'))"}, "features.*infinite"),
        ({"features": "null"}, "features.*nulls"),
        ({"features": "transform(features, v -> null)"}, "features.*nulls"),
        ({"features": "slice(features, 1, 3)"}, "features.*a row of 3 features"),
        ({"label": "3.0"}, "label.*holds 3; the labels of 2 classes are -1 and 1"),
        ({"label": "null"}, "label.*nulls"),
        ({"w": "-1.0"}, "weight.*holds -1"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_bad_row_is_one_sentence(spark, change, word):
    from pyspark.sql import functions as F

    before, frame = held(spark), frame_of(spark, size=100).coalesce(1)
    ((name, expression),) = change.items()
    kind = {"features": "array<float>"}.get(name, "double")
    bad = F.when(F.monotonically_increasing_id() == 90, F.expr(f"cast({expression} as {kind})"))
    frame = frame.withColumn(name, bad.otherwise(F.col(name)))
    for how in ("random", "kept"):
        with pytest.raises(ValueError, match=word):
            SparkEngine().place(frame, 1 if how == "kept" else 2, how=how, weight="w")
    assert is_given_back(spark, before)


def test_columns_that_are_not_there_or_no_numbers(spark):
    from pyspark.sql import functions as F

    frame = frame_of(spark, size=10)
    for given, word in (
        ({"features": "x"}, "features: the frame has no column 'x'"),
        ({"features": "label"}, "features: column 'label' must hold vectors or arrays"),
        ({"label": "text"}, "label: column 'text' must hold numbers, not string"),
        ({"how": "blocks"}, "how: must be one of"),
    ):
        with pytest.raises(ValueError, match=word):
            SparkEngine().place(frame.withColumn("text", F.lit("a")), 2, **given)


def test_no_session_is_a_sentence(monkeypatch, spark):
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    with pytest.raises(ValueError, match="session: no Spark session is active"):
        SparkEngine().lease()


def test_nothing_is_left_when_shards_are_forgotten(spark):
    before = held(spark)
    shards = SparkEngine().scatter(posed(), PART)
    roots = set(shards.lease.roots)
    shards, _ = shards.step(tasks.noted_nothing)
    del shards
    end = time.monotonic() + 30.0
    while (
        not is_given_back(spark, before) or any(map(os.path.exists, roots))
    ) and time.monotonic() < end:
        time.sleep(0.1)
    assert is_given_back(spark, before)
    assert not any(Path(root).exists() for root in roots)
