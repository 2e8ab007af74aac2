"""A fit in a process of its own: it can be stopped, may run out of memory, and its peak is seen.

The process fits a few rows first, so that compiled code and threads are there, and says so;
the clock of the time limit starts then.  A short fit is repeated, and the best counts.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.timing import timed

UNFINISHED, NO_MEMORY, CRASHED = "did not finish", "out of memory", "crashed"
_SHORT = 5.0  # seconds of fits in all, beyond which none is repeated
_FEW = 300  # rows of the first fit
_START = 300.0  # seconds a process may take to begin: compilation, much data
_STATUS = Path("/proc/self/status")


class Rows(NamedTuple):
    """Training and test rows with their labels, in random order."""

    A: np.ndarray
    a: np.ndarray
    B: np.ndarray
    b: np.ndarray


def attempt(make: Callable[[int], Any], rows: Rows, repeats: int, limit: float) -> dict[str, Any]:
    """Seconds, test accuracy and extra bytes of a fit, or the ``status`` that says why not."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    # not a daemon: in one of those joblib, and so our solvers, would use a single thread
    process = context.Process(target=_work, args=(there, make, rows, repeats))
    process.start()
    there.close()
    found: dict[str, Any] = {}
    patience = _START
    try:
        while "accuracy" not in found and "status" not in found:
            if not here.poll(patience):
                found |= {"status": UNFINISHED, "seconds": limit}
            else:
                found |= here.recv()
            patience = limit
    except EOFError:
        found["status"] = CRASHED
    finally:
        process.kill()
        process.join()
    return found


def _work(there: Connection, make: Callable[[int], Any], rows: Rows, repeats: int) -> None:
    """What the other process does: it sends what it knows as soon as it knows it."""
    free = psutil.virtual_memory().available
    resource.setrlimit(resource.RLIMIT_DATA, (free, free))  # rather than swap, or harm others
    A, a, B, b = rows
    few = min(_FEW, len(a))
    try:
        timed(partial(make(few).fit, A[:few], a[:few]))
        model = make(len(a))
        there.send({})
        before = _forget_peak()
        seconds: list[float] = []
        while len(seconds) < repeats and sum(seconds) < _SHORT:
            seconds.append(timed(partial(model.fit, A, a))[0])
        there.send({"seconds": min(seconds), "repeats": seconds, "memory": _peak() - before})
        prediction, predicted = timed(partial(model.predict, B))
        there.send({"accuracy": float(np.mean(predicted == b)), "prediction": prediction})
    except MemoryError:
        there.send({"status": NO_MEMORY})


def _forget_peak() -> int:
    """Bytes in use now, from which the next peak is measured, where the system can do so."""
    if _STATUS.is_file():
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return psutil.Process().memory_info().rss


def _peak() -> int:
    """The most bytes in use so far; Linux counts its usual figure across programs."""
    if _STATUS.is_file():
        found = re.search(r"VmHWM:\s+(\d+)", _STATUS.read_text(encoding="ascii"))
        if found:
            return 1024 * int(found[1])
    return (1 if sys.platform == "darwin" else 1024) * resource.getrusage(
        resource.RUSAGE_SELF
    ).ru_maxrss
