"""A linear machine on a real cluster of Apache Spark: a master and two workers on this computer.

Run by ``make cluster-demo``.  It starts the three processes, trains from a Parquet file that it
writes, compares with the machine of one process, and stops everything, also on Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimargin import LinearODMClassifier
from optimargin.engines.spark import SparkEngine
from optimargin.loss import odm
from optimargin.problem import Start, Stop, drive
from optimargin.solvers.parted_newton import PartedNewton
from optimargin.solvers.parting import Parting

ROWS, FEATURES, PARTS = 300_000, 20, 4
MU, THETA, TOL = 0.5, 0.6, 1e-6
HOST, PATIENCE = "127.0.0.1", 100.0  # seconds until the cluster must be there


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers, which end with this block."""
    import pyspark

    home = Path(pyspark.__file__).parent
    os.environ |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
    }
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    address, started = f"spark://{HOST}:{port}", list[subprocess.Popen[bytes]]()

    def start(role: str, *words: str) -> None:
        name = f"org.apache.spark.deploy.{role.lower()}.{role}"
        command = [str(home / "bin" / "spark-class"), name, "--host", HOST, "--webui-port", "0"]
        with open(folder / f"{role}-{len(started)}.log", "wb") as log:
            started.append(
                subprocess.Popen([*command, *words], stdout=log, stderr=log, start_new_session=True)
            )
        say(f"  {role.lower()}, process {started[-1].pid}")

    try:
        start("Master", "--port", str(port))
        _wait_for(port, started[0])
        for _ in range(2):
            start("Worker", "-c", "1", "-m", "1g", "-d", str(folder / "work"), address)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        say("The cluster is stopped.")


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with socket.socket() as line:
            if line.connect_ex((HOST, port)) == 0:
                return
        if process.poll() is not None:
            raise SystemExit("The master did not start: is there a Java runtime, 17 or newer?")
        time.sleep(0.2)
    raise SystemExit(f"The master did not answer within {PATIENCE:g} seconds.")


@contextmanager
def session(address: str) -> Iterator[object]:
    """A session with an executor on each worker."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(address).appName("optimargin")
    for name, setting in {
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def write(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two classes, in a Parquet file."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(ROWS) < 0.4, 1.0, -1.0)
    X = rng.normal(size=(ROWS, FEATURES)) + 0.3 * y[:, None] * rng.normal(size=FEATURES)
    X = X.astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), FEATURES)
    table = pa.table({"features": lists.cast(pa.list_(pa.float32())), "label": y})
    pq.write_table(table, path, row_group_size=ROWS // 8)
    return X, y


def train(spark: object, path: Path) -> tuple[float, float, float]:
    """Objective, gap and seconds of the machine on the cluster."""
    loss = odm(ROWS * (1.0 - THETA) ** 2, MU, THETA, ROWS)
    began = time.perf_counter()
    frame = spark.read.parquet(path.as_uri())
    with SparkEngine(spark).place(frame, PARTS) as placed:
        say(f"  {placed.whole.n:,} rows in parts of {placed.sizes}")
        say(f"  placed in {time.perf_counter() - began:.1f} s; none passed through the driver")
        shards, began = placed.posed(loss=loss, bias=1.0), time.perf_counter()
        found = drive(PartedNewton(0, Parting()).points(shards, Start()), Stop(TOL))
        seconds, traffic = time.perf_counter() - began, shards.traffic
    say(f"  {found.rounds} steps of Newton's method, status {found.status.value!r}")
    say(
        f"  {traffic.rounds} rounds, {traffic.bytes / 1e3:.1f} kB there and back,"
        f" {traffic.seconds / traffic.rounds:.2f} s a round, of which"
        f" {traffic.slowest / traffic.rounds:.3f} s in the slowest part"
    )
    return found.primal, found.gap, seconds


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster ends, too
    with tempfile.TemporaryDirectory(prefix="optimargin-") as name:
        folder, path = Path(name), Path(name, "rows.parquet")
        X, y = write(path)
        say(f"Written: {ROWS:,} rows of {FEATURES} features, {path.stat().st_size / 1e6:.0f} MB\n")
        say("A cluster on this computer:")
        with cluster(folder) as address, session(address) as spark:
            objective, gap, seconds = train(spark, path)
        say("\nThe same in one process:")
        began = time.perf_counter()
        local = LinearODMClassifier(mu=MU, theta=THETA, tol=TOL).fit(X, y)
        say(f"  {time.perf_counter() - began:.1f} s, {seconds:.1f} s on the cluster")
        apart = abs(objective - local.objective_) / local.objective_
        say(f"  objective {local.objective_:.6f}, {objective:.6f} on the cluster, gap {gap:.1e}")
        if apart > 2 * TOL:
            raise SystemExit(f"The answers are {apart:.1e} apart.")
        say(f"  {apart:.1e} apart: the same answer")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
