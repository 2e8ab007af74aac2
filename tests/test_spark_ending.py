"""A fit that is broken off leaves nothing, and a session that ends leaves no processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.xdist_group("spark")


def test_what_is_broken_off_leaves_nothing(why_no_spark, tmp_path):
    if why_no_spark is not None:
        pytest.skip(f"Spark tests did not run: {why_no_spark}")
    tests = Path(__file__).parent
    paths = os.pathsep.join([str(tests.parent / "src"), str(tests)])
    home = Path(sys.executable).parent
    process = subprocess.Popen(
        [sys.executable, str(tests / "spark_ending.py"), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": paths,
            "PYSPARK_PYTHON": str(home / "python"),
            "PYTHONWARNINGS": "ignore",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    watch = threading.Timer(600.0, process.kill)  # a fit that does not end fails
    watch.start()
    seen, said = {}, []
    with process.stdout as lines:
        for line in lines:
            children = psutil.Process(process.pid).children(recursive=True)
            seen |= {child.pid: child for child in children}
            said.append(line.strip())
    watch.cancel()
    assert process.wait(60.0) == 0, said
    assert len(seen) >= 3  # Spark, and two executors
    interrupted, held, status, first, then = said
    assert interrupted == "interrupted"
    assert held == "held 0 0"
    assert status == "converged"
    assert first == "ClusterError: The session was stopped in the midst of a job."
    assert (
        then == "ValueError: session: must be a running classic Spark session, not a stopped one."
    )
    _, alive = psutil.wait_procs(seen.values(), timeout=30.0)
    assert not alive
    assert not list(tmp_path.rglob("optimargin-*"))
