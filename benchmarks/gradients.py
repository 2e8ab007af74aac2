"""Gradient methods and Newton's method for linear machines (sodm.txt, figure 4).

Seconds, rounds and megabytes on the way to a relative duality gap, eight parts on two threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import data, pictures, problems
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from optimargin import LinearODMClassifier
from optimargin.engines.local import LocalEngine

_TOL, _PARTS = 1e-4, 8
METHODS: dict[str, dict[str, Any]] = {
    "SVRG": {"solver": "svrg"},
    "CSVRG": {"solver": "csvrg", "n_partitions": _PARTS},
    "DSVRG": {"solver": "dsvrg", "n_partitions": _PARTS},
    "Newton, parts": {"solver": "newton", "n_partitions": _PARTS, "engine": LocalEngine()},
    "Newton": {"solver": "newton"},
}


def table(options: Options) -> Table:
    """Every method on every set, and a picture of the gaps."""
    rows: list[list[Any]] = []
    paths: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for name, load in _sets(options).items():
        try:
            X, y = load()
        except data.NoData:
            rows.append([name, "no data", *[""] * 6])
            continue
        for method, changes in METHODS.items():
            say(f"{name}, {method}")
            make = partial(
                LinearODMClassifier, tol=_TOL, random_state=0, time_limit=options.limit, **changes
            )
            few = min(len(y), 500)
            timed(partial(make().fit, X[:few], y[:few]))
            seconds, model = timed(partial(make().fit, X, y))
            traffic = getattr(model, "traffic_", None) or {}
            sent = [traffic["rounds"], f"{traffic['bytes'] / 1e6:.3g}"] if traffic else ["", ""]
            shape = f"{X.shape[0]:,} x {X.shape[1]:,}"
            rows.append([name, shape, method, seconds, model.n_iter_, *sent, model.dual_gap_])
            history = model.history_
            paths.setdefault(name, {})[method] = (
                history["time"].tolist(),
                np.maximum(history["gap"], 1e-16).tolist(),
            )
    if options.pictures is not None:
        pictures.descents(paths, options.pictures / "sodm-gradients.png")
    columns = ["data", "shape", "method", "seconds", "steps", "calls of all parts", "MB", "gap"]
    note = f"To a relative gap of {_TOL:g}, or {options.limit:g} s. lam is that of C = 1."
    return Table("Linear machines by gradients (figure 4)", columns, rows, note)


def _sets(options: Options) -> dict[str, Callable[[], tuple[Any, np.ndarray]]]:
    if options.quick:
        return {"generated": partial(problems.tall, 2_000)}
    chosen = [p for p in problems.linear(quick=False) if p.name in ("covtype", "w8a")]
    found = {p.name: partial(p.load, options.data) for p in chosen}
    return {"SUSY": partial(problems.tall, 1_000_000), **found}
