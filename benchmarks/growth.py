"""How the time and memory of the landmark solver grow with the rows, at 500 landmarks.

The yardstick for a million rows is one pass of ``F.T @ F`` over as many rows of 500 float32
features: no machine that looks at all second moments of its features can do with less.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import plans, problems
from benchmarks.kept import Kept, Record
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from benchmarks.trial import Rows, attempt

ROWS, SIZE, MILLION = (50_000, 200_000, 800_000, 2_000_000), 500, 1_000_000
EXPONENT, PASSES = 1.1, 25.0  # at most
_PASS = "one pass"
_FEATURES, _TEST = 18, 10_000


def tables(kept: Kept, options: Options) -> Iterator[Table]:
    """The exponents, then the million rows."""
    if options.quick or options.wants("growth"):
        yield _growth(kept, options)
    if options.quick or options.wants("million"):
        yield _million(kept, options)


def _growth(kept: Kept, options: Options) -> Table:
    size, rows = (20, (1_000, 2_000)) if options.quick else (SIZE, ROWS)
    found = [_record(kept, n, size, plans.OURS, options) for n in rows]
    cells = [
        [
            f"{r['rows']:,}",
            r.get("seconds", ""),
            f"{_bytes(r) / 1e6:.0f}" if "memory" in r else "",
            f"{r['accuracy']:.4f}" if "accuracy" in r else "",
            r.get("status", ""),
        ]
        for r in found
    ]
    done = [r for r in found if "accuracy" in r]
    if len(done) > 1:
        time = _exponent(done, [r["seconds"] for r in done])
        memory = _exponent(done, [_bytes(r) for r in done])
        met = [f"{word} {'met' if x <= EXPONENT else 'MISSED'}" for word, x in
               (("time", time), ("memory", memory))]  # fmt: skip
        cells.append(["exponent", f"{time:.2f}", f"{memory:.2f}", "", ", ".join(met)])
    note = (
        f"Generated rows of {_FEATURES} features, {size} landmarks, one setting. Peak: the float32"
        " rows and what the fit adds. The exponent is the slope of a line through the logarithms;"
        f" at most {EXPONENT:g} is asked for."
    )
    return Table("Growth", ["rows", "seconds", "peak MB", "accuracy", "note"], cells, note, found)


def _million(kept: Kept, options: Options) -> Table:
    n, size = (2_000, 20) if options.quick else (MILLION, SIZE)
    fit, once = (_record(kept, n, size, method, options) for method in (plans.OURS, _PASS))
    row: list[Any] = [f"{n:,}", size, fit.get("seconds", ""), once["seconds"]]
    if "accuracy" in fit:
        passes = fit["seconds"] / once["seconds"]
        row += [passes, passes <= PASSES]
    else:
        row += [fit["status"], False]
    note = (
        "One pass: the product of the float32 features, transposed, with themselves;"
        f" at most {PASSES:g} times its time is asked for."
    )
    columns = ["rows", "landmarks", "fit, s", "one pass, s", "fit / pass", "met"]
    return Table("A million rows", columns, [row], note, [fit, once])


def _record(kept: Kept, n: int, size: int, method: str, options: Options) -> Record:
    """The fit, or the pass, from the file or new."""
    job = (f"tall {n}", method, size)
    if kept.missing([job], _key):
        say(f"{n:,} rows, {method}")
        seen = _one_pass(n, size, options) if method == _PASS else _fit(n, size, options)
        head = {"data": job[0], "method": method, "size": size, "rows": n, "limit": options.limit}
        kept.add(head | seen)
    return next(r for r in reversed(kept.records) if _key(r) == job)


def _key(r: Record) -> tuple[str, str, int]:
    return r["data"], r["method"], r["size"]


def _fit(n: int, size: int, options: Options) -> Record:
    X, y = problems.tall(n + _TEST, _FEATURES)
    X = X.astype(np.float32)
    gamma = 1.0 / (_FEATURES * float(X.var(dtype=np.float64)))
    plan = plans.Plan(plans.OURS, size, gamma, 1.0, *plans.SHAPES[0])
    rows = Rows(X[:n], y[:n], X[n:], y[n:])
    return attempt(partial(plans.build, plan), rows, options.repeats, options.limit)


def _one_pass(n: int, size: int, options: Options) -> Record:
    F = np.random.default_rng(0).random((n, size), dtype=np.float32)
    seconds = [timed(lambda: F.T @ F)[0] for _ in range(options.repeats)]
    return {"seconds": min(seconds), "repeats": seconds}


def _bytes(r: Record) -> float:
    return 4.0 * _FEATURES * r["rows"] + r["memory"]


def _exponent(records: list[Record], values: list[float]) -> float:
    return float(np.polyfit(np.log([r["rows"] for r in records]), np.log(values), 1)[0])
