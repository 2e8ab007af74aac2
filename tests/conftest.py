"""Compiled code of a test run is cached under a hash of the sources.

An edit in ``loss.py`` does not refresh loops that were compiled into other files' caches,
so every state of the sources gets a cache of its own.

Hypothesis draws the same examples each time, so that a run is red for a reason;
``HYPOTHESIS=explore pytest`` draws new ones.
"""

import hashlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

from spark_ending import SPARK

ROOT = Path(__file__).resolve().parent.parent
DIGEST = hashlib.sha256()
for source in sorted((ROOT / "src").rglob("*.py")):
    DIGEST.update(source.read_bytes())
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba-cache" / DIGEST.hexdigest()[:16]))

matplotlib.use("Agg")

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "fixed"))


def _why_no_spark():
    """What a session of Spark lacks here; None where it lacks nothing."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").is_file()):
        return "there is no Java (17 or newer)"
    return None


@pytest.fixture(scope="session")
def why_no_spark():
    """The same, for tests that start a session of their own."""
    return _why_no_spark()


@pytest.fixture(scope="session")
def spark(why_no_spark):
    """A session of Spark with two executors, which are processes of their own."""
    if why_no_spark is not None:
        pytest.skip(f"Spark tests did not run: {why_no_spark}")
    from pyspark.sql import SparkSession

    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "PYTHONWARNINGS": "ignore",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("optimargin tests")
    for name, setting in SPARK.items():
        builder = builder.config(name, setting)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # executors that die are part of the tests
    application = session.sparkContext.applicationId
    yield session
    session.stop()
    work = Path(os.environ.get("SPARK_HOME", ""), "work", application)  # logs of executors
    shutil.rmtree(work, ignore_errors=True)
