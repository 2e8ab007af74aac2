"""Peak memory of a fit, each in a process of its own.

The peak is that of the fit alone: imports, compiled code and the data are there before it
begins, and a first tiny fit has compiled the loops.  It is set against what the fit may
use: the data and the kernel matrix, or the data and memory_limit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import problems
from benchmarks.methods import Options
from benchmarks.report import Table

TARGET = 1.2
_PROBE = """
import json, resource, sys, warnings
import numpy as np, psutil
from optimargin import LinearODMClassifier, ODMClassifier

warnings.simplefilter("ignore")
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kind, settings, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
X, y = np.load(folder + "/X.npy"), np.load(folder + "/y.npy")
model = {"linear": LinearODMClassifier, "kernel": ODMClassifier}[kind](random_state=0, **settings)
model.fit(X[:300], y[:300])
before, highest = psutil.Process().memory_info().rss, peak()
model.fit(X, y)
print(json.dumps({"extra": peak() - before, "exact": peak() > highest, "solver": model.solver_}))
"""


class Case(NamedTuple):
    """A fit: which classifier, its settings, how many rows, and bytes it may use beside them."""

    name: str
    kind: str
    settings: dict[str, Any]
    rows: int
    dtype: str
    allowed: int


def cases(quick: bool) -> list[Case]:
    """The fits whose memory is measured."""
    few, many = (1_000, 20_000) if quick else (8_000, 500_000)
    found = [Case("RBF, dcd, matrix fits", "kernel", {"solver": "dcd"}, few, "float64", 4 * few**2)]
    found += [
        Case(
            f"RBF, {solver}, memory_limit={limit}MB",
            "kernel",
            {"solver": solver, "memory_limit": limit * 1_000_000},
            few,
            "float64",
            limit * 1_000_000,
        )
        for solver, limit in (("dcd", 100), ("newton", 100), ("newton", 400))
    ]
    found += [
        Case(f"linear, {solver}, {dtype}", "linear", {"solver": solver}, many, dtype, 0)
        for solver in ("dcd", "newton", "svrg")
        for dtype in ("float32", "float64")
    ]
    return found


def run(options: Options) -> Iterator[Table]:
    """One table: a row for each fit."""
    columns = ["fit", "rows", "data MB", "allowed MB", "peak MB", "peak / allowed", "target met"]
    rows, records = [], []
    for case in cases(options.quick):
        record = measure(case)
        rows.append([case.name, f"{case.rows:,}", *_judge(record)])
        records.append({**case._asdict(), **record})
    note = (
        "Allowed: the data, and the kernel matrix in single precision or memory_limit. Peak: the"
        " data and what the fit adds to the process, vectors of length n included; '<' where an"
        f" earlier peak of the process hides it. Target: at most {TARGET}."
    )
    yield Table("Memory", columns, rows, note, records)


def measure(case: Case) -> dict[str, Any]:
    """Bytes of the data, and bytes that a fit in a fresh process adds to them."""
    make = problems.curved if case.kind == "kernel" else problems.tall
    X, y = make(case.rows)
    X = X.astype(case.dtype)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        np.save(Path(folder) / "y.npy", y)
        command = [sys.executable, "-c", _PROBE, case.kind, json.dumps(case.settings), folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"data": X.nbytes + y.nbytes, "allowed": case.allowed, **json.loads(done.stdout)}


def _judge(record: dict[str, Any]) -> list[Any]:
    allowed, peak = record["data"] + record["allowed"], record["data"] + record["extra"]
    sign = "" if record["exact"] else "< "
    ratio = peak / allowed
    megabytes = [f"{record['data'] / 1e6:.0f}", f"{allowed / 1e6:.0f}", f"{sign}{peak / 1e6:.0f}"]
    return [*megabytes, f"{sign}{ratio:.2f}", round(ratio, 2) <= TARGET]
