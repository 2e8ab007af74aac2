"""The first fit in a fresh process: with a cold cache of compiled code, with a warm one; import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.methods import Options
from benchmarks.report import Table

_FIT = """
import json, sys, time
import numpy as np
import optimargin

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 5))
y = X[:, 0] + 0.3 * rng.standard_normal(200) > 0
model = getattr(optimargin, sys.argv[1])(**json.loads(sys.argv[2]))
seconds = []
for _ in range(2):
    began = time.perf_counter()
    model.fit(X, y)
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds))
"""
_IMPORT = """
import json, time
import sklearn.svm
began = time.perf_counter()
from optimargin import LinearODMClassifier, ODMClassifier
print(json.dumps(time.perf_counter() - began))
"""
FITS = [
    ("LinearODMClassifier", {}),
    ("LinearODMClassifier", {"solver": "dcd"}),
    ("ODMClassifier", {}),
    ("ODMClassifier", {"solver": "dcd"}),
]
COLD, WARM, IMPORT = 8.0, 0.5, 0.5  # seconds


def run(options: Options) -> Iterator[Table]:
    """One table: a row for each kind of start."""
    rows: list[list[Any]] = []
    records: list[dict[str, Any]] = []
    for name, settings in FITS:
        said = f"{name}({', '.join(f'{k}={v!r}' for k, v in settings.items())})"
        cold, warm = _starts(name, settings, options.repeats)
        rows.append([f"{said}, cold cache", cold, COLD, cold < COLD])
        rows.append([f"{said}, warm cache", warm, WARM, warm < WARM])
        records.append({"fit": said, "cold": cold, "warm": warm})
    seconds = min(_child(_IMPORT) for _ in range(options.repeats))
    rows.append(
        ["import of both classifiers, after sklearn.svm", seconds, IMPORT, seconds < IMPORT]
    )
    records.append({"import": seconds})
    note = (
        "Cold: the first fit of a process that finds no compiled code. Warm: the first fit less"
        " the second, in a process that finds all of it."
    )
    yield Table("Start", ["what", "seconds", "target", "target met"], rows, note, records)


def _starts(name: str, settings: dict[str, Any], repeats: int) -> tuple[float, float]:
    """Seconds of the first fit with an empty cache, and its excess with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        arguments = (name, json.dumps(settings))
        cold = _child(_FIT, *arguments, cache=cache)[0]
        pairs = [_child(_FIT, *arguments, cache=cache) for _ in range(repeats)]
    return cold, min(first - second for first, second in pairs)


def _child(code: str, *arguments: str, cache: str | None = None) -> Any:
    environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)
