"""Ends a fit by Ctrl-C, and another by stopping the session; run by `test_spark_ending.py`."""

import os
import signal
import sys
import threading
import time
from glob import glob

import numpy as np

# Small sessions that start soon: for all tests, see `conftest.py`.
SPARK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.locality.wait": "500ms",
    "spark.sql.codegen.wholeStage": "false",  # many small queries: compiling them is the cost
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def soon(call):
    """Call when a training is well under way: parts have written their state some times."""

    def wait():
        while not any(int(path.split("-")[-1]) > 12 for path in states()):
            time.sleep(0.02)
        call()

    def states():
        return [
            path
            for path in glob(f"{sys.argv[1]}/**/state-*", recursive=True)
            if path[-1:].isdigit() and "." not in path.rpartition("/")[2]
        ]

    threading.Thread(target=wait, daemon=True).start()


def main():
    from pyspark.sql import SparkSession

    from optimargin.spark import SparkLinearSVMClassifier

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("ending")
    for name, value in {**SPARK, "spark.local.dir": sys.argv[1]}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    context = session.sparkContext
    context.setLogLevel("OFF")
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=3).tolist(), float(rng.random() < 0.5)) for _ in range(300)]
    frame = session.createDataFrame(rows, "features array<double>, label double")
    endless = SparkLinearSVMClassifier(solver="dsvm-ave", nPartitions=2, tol=1e-14, maxIter=10**6)
    soon(lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        endless.fit(frame)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    held = len(context._jsc.getPersistentRDDs()), len(os.listdir(context._temp_dir))
    left = [name for _, names, _ in os.walk(sys.argv[1]) for name in names if "optimargin" in name]
    print("held", *held, *left, flush=True)
    print(endless.copy({endless.tol: 0.1}).fit(frame).summary.status, flush=True)
    soon(session.stop)
    try:
        endless.fit(frame)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    try:
        endless.fit(frame)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
