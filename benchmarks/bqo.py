"""Dual solvers on parts of the rows: tables 2 and 3 and figure 1 of bqo.txt.

Protocol    C = 1, 16 parts of random rows, one sweep for a direction, two threads of one computer
Data        generated sets with the shape of the paper's three, made small (`SHAPES`), and real ones
Methods     BQO with the exact step (E) and Armijo's (A), DisDCA (CoCoA+) and DSVM-AVE; with the
            squared hinge TRON.  The exact step is ours, in the plane of the direction and of the
            last step; "line" is the paper's, along the direction.  Beside them ADMM, which the
            paper leaves out as slow, and Newton's method over the parts
Accuracy    (best so far - optimum) / optimum, of the primal and of the dual objective; the optimum
            is that of coordinate descent on one machine, to a gap of 1e-6
Rounds      calls of all parts; TRON and Newton take several for a step, on average so many each
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks import data, pictures, problems
from benchmarks.kept import Kept, Record
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from optimargin import LinearSVMClassifier
from optimargin.engines.local import LocalEngine

Rows = tuple[Any, np.ndarray]
PARTS, C, GOALS = 16, 1.0, (1e-2, 1e-4)
METHODS: dict[str, dict[str, Any]] = {
    "BQO-E": {"solver": "bqo"},
    "BQO-E, line": {"solver": "bqo", "line_search": "line"},
    "BQO-A": {"solver": "bqo", "line_search": "armijo"},
    "DisDCA": {"solver": "disdca"},
    "DSVM-AVE": {"solver": "dsvm-ave"},
    "TRON": {"solver": "tron"},
    "ADMM": {"solver": "admm-acc"},
    "Newton": {"solver": "newton", "engine": LocalEngine()},
}
DUAL = ("BQO-E", "BQO-E, line", "BQO-A", "DisDCA", "DSVM-AVE")  # which differ in the step
_SMOOTH = ("TRON", "Newton")
_DOTS = 80  # points of a line that are kept, for the picture
_DRAWN = ("BQO-E", "BQO-E, line", "BQO-A", "DisDCA", "DSVM-AVE", "ADMM")
LOSSES = {"hinge": "L1-SVM", "squared_hinge": "L2-SVM"}


class Shape(NamedTuple):
    """Rows, features, and entries of a row; the paper's set of that kind."""

    n: int
    d: int
    entries: int
    paper: str


SHAPES = {
    "url": Shape(20_000, 34_000, 116, "1,916,904 x 3,231,961, 116 entries a row"),
    "webspam": Shape(3_000, 180_000, 1_000, "280,000 x 16,609,143, 3,730 entries a row"),
    "epsilon": Shape(16_000, 400, 400, "400,000 x 2,000, dense"),
}


def run(options: Options) -> Iterator[Table]:
    """A table for the primal and one for the dual, of each loss, and the picture."""
    path = None if options.results is None else options.results / "bqo.jsonl"
    kept = Kept(path, (PARTS, C, GOALS, SHAPES))
    kept.records = [r for r in kept.records if not _was_cut(r) or r["limit"] >= options.limit]
    records: list[Record] = []
    for name, load in _sets(options).items():
        if options.wants(name):
            records += _records(name, load, kept, options)
    for loss in LOSSES:
        for what, number in (("primal", 2), ("dual", 3)):
            yield _table(records, loss, what, number)
    yield _verdict(records)
    paths: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for r in records:
        if r["method"] in _DRAWN:
            panel = paths.setdefault(f"{r['data']}, {LOSSES[r['loss']]}", {})
            panel[r["method"]] = (r["calls"], r["far"])
    if options.pictures is not None and paths:
        pictures.descents(
            paths, options.pictures / "bqo-dual.png", "rounds", "relative dual accuracy"
        )


def _was_cut(r: Record) -> bool:
    """Whether more time might tell more: such a record gives way when the limit is raised."""
    return bool(r["status"] == "time_limit")


def text(shape: Shape, flags: bool, seed: int = 0) -> Rows:
    """Sparse rows whose features are as common as words are; flags, or counts of norm 1."""
    rng = np.random.default_rng(seed)
    n, d, entries, _ = shape
    often = 1.0 / np.arange(10.0, d + 10.0)
    columns = rng.choice(d, size=(n, entries), p=often / often.sum())
    values = np.ones(n * entries) if flags else rng.lognormal(size=n * entries)
    X = sp.csr_matrix((values, columns.ravel(), np.arange(0, n * entries + 1, entries)), (n, d))
    X.sum_duplicates()
    if flags:
        X.data[:] = 1.0
    X = normalize(X) if not flags else X
    scores = X @ (rng.standard_normal(d) * (rng.random(d) < 0.3))
    noise = 0.3 * scores.std() * rng.standard_normal(n)
    return X, problems.signs(scores + noise > np.median(scores))


def dense(shape: Shape, seed: int = 0) -> Rows:
    """Dense rows of norm 1, of two classes that overlap (the shape of epsilon)."""
    rng = np.random.default_rng(seed)
    X = normalize(rng.standard_normal((shape.n, shape.d)) + 0.3 * rng.standard_normal(shape.d))
    scores = X @ rng.standard_normal(shape.d)
    noise = 0.5 * scores.std() * rng.standard_normal(shape.n)
    return X, problems.signs(scores + noise > np.median(scores))


def _sets(options: Options) -> dict[str, Callable[[], Rows]]:
    if options.quick:
        return {"url": partial(text, Shape(300, 400, 12, ""), True)}
    made: dict[str, Callable[[], Rows]] = {
        "url": partial(text, SHAPES["url"], True),
        "webspam": partial(text, SHAPES["webspam"], False),
        "epsilon": partial(dense, SHAPES["epsilon"]),
        "rcv1": partial(_rcv1, options),
    }
    real = {p.name: p for p in problems.linear(quick=False)}
    made["news20"] = partial(real["news20, unit rows"].load, options.data)
    made["covtype"] = partial(real["covtype"].load, options.data)
    return made


def _rcv1(options: Options) -> Rows:
    X, y = data.read("rcv1_cocoa_subset", options.data)
    return data.shuffled(X, problems.signs(y == 1))


def _records(name: str, load: Callable[[], Rows], kept: Kept, options: Options) -> list[Record]:
    """What every method took on a set, from the file or new; nothing where there is no data."""
    jobs = [(name, loss, method) for loss in LOSSES for method in _methods(loss)]
    missing = kept.missing(jobs, _key)
    if missing:
        try:
            X, y = load()
        except data.NoData:
            say(f"{name}: no data")
            return []
        for loss in LOSSES:
            methods = [job[2] for job in missing if job[1] == loss]
            exact = _optimum(name, X, y, loss, kept, options) if methods else {}
            for method in methods:
                say(f"{name}, {LOSSES[loss]}, {method}")
                head = {"data": name, "loss": loss, "method": method, "limit": options.limit}
                kept.add({**head, **_followed(X, y, exact, METHODS[method], options)})
    found = {_key(r): r for r in kept.records}
    return [found[job] for job in jobs]


def _key(r: Record) -> tuple[str, str, str]:
    return r["data"], r["loss"], r["method"]


def _methods(loss: str) -> list[str]:
    """Those that take the loss."""
    return [m for m in METHODS if loss != "hinge" or m not in _SMOOTH]


def _optimum(name: str, X: Any, y: np.ndarray, loss: str, kept: Kept, options: Options) -> Record:
    """The objective of the machine that the others are compared with, and its gap."""
    key = name, loss, "optimum"
    if known := [r for r in kept.records if _key(r) == key]:
        return known[0]
    exact = LinearSVMClassifier(loss=loss, C=C, solver="dcd", tol=1e-6, max_iter=10**6)
    exact.set_params(time_limit=10 * options.limit, random_state=0)
    timed(partial(exact.fit, X, y))
    found: Record = dict(zip(("data", "loss", "method"), key, strict=True))
    found |= {"objective": float(exact.objective_), "gap": float(exact.dual_gap_), "status": ""}
    kept.add(found)
    return found


def _followed(
    X: Any, y: np.ndarray, exact: Record, changes: dict[str, Any], options: Options
) -> Record:
    """Rounds and seconds of a method to each goal, and its way there."""
    low, high = exact["objective"] * (1.0 - exact["gap"]), exact["objective"]
    model = LinearSVMClassifier(
        loss=exact["loss"], C=C, n_partitions=PARTS, partition="random", tol=GOALS[-1],
        max_iter=10**6, time_limit=options.limit, random_state=0, **changes,
    )  # fmt: skip
    few = min(len(y), 300)
    timed(partial(model.fit, X[:few], y[:few]))  # compiled before the clock
    timed(partial(model.fit, X, y))
    history = model.history_
    each = (model.traffic_["rounds"] - 1) / max(model.n_iter_, 1)
    calls = 1.0 + each * history["round"]
    bound = history["objective"] * (1.0 - history["gap"])
    far = {"primal": history["objective"] / high - 1.0, "dual": 1.0 - bound / low}
    record: Record = {"rows": X.shape[0], "features": X.shape[1], "status": model.status_}
    record |= {"reference": exact["gap"], "seconds a round": _pace(history, model)}
    for what, left in far.items():
        for goal in GOALS:
            there = np.flatnonzero(left <= goal)
            found = [(float(calls[k]), float(history["time"][k])) for k in there[:1]]
            record[f"{what} {goal:g}"] = found[0] if found else None
    shown = np.unique(np.geomspace(1, len(calls), _DOTS).astype(int)) - 1
    record["calls"] = calls[shown].tolist()
    record["far"] = np.maximum(far["dual"], 1e-7)[shown].tolist()
    return record


def _pace(history: dict[str, np.ndarray], model: Any) -> float:
    return float(history["time"][-1]) / max(model.traffic_["rounds"], 1)


def _table(records: list[Record], loss: str, what: str, number: int) -> Table:
    """Rounds and seconds to each goal: a line for each set, a column for each method."""
    methods = _methods(loss)
    columns = ["data", "shape", "accuracy", *methods, "BQO-E has the fewest rounds"]
    rows = []
    ours = [r for r in records if r["loss"] == loss]
    for name in dict.fromkeys(r["data"] for r in ours):
        of_set = {r["method"]: r for r in ours if r["data"] == name}
        first = next(iter(of_set.values()))
        for goal in GOALS:
            found = {m: of_set[m][f"{what} {goal:g}"] for m in methods}
            cells = [f"{f[0]:.0f}, {f[1]:.3g} s" if f else "not reached" for f in found.values()]
            shape = f"{first['rows']:,} x {first['features']:,}"
            rows.append([name, shape, f"{goal:g}", *cells, _is_first(found)])
    note = "Rounds, and seconds on two threads. BQO-E is compared with the other four of its kind."
    title = f"{LOSSES[loss]}: to a relative {what} accuracy (bqo.txt, table {number})"
    return Table(title, columns, rows, note, ours if what == "primal" else [])


def _is_first(found: dict[str, tuple[float, float] | None]) -> bool | str:
    """Whether BQO-E needs no more rounds than its rivals; nothing where no one got there."""
    rounds = {m: f[0] if (f := found[m]) else np.inf for m in DUAL}
    if np.isinf(min(rounds.values())):
        return ""
    return bool(rounds["BQO-E"] <= min(rounds.values()))


def _verdict(records: list[Record]) -> Table:
    """How often BQO-E is first, and how much later the others are."""
    rows: list[list[Any]] = []
    for what in ("primal", "dual"):
        wins = cases = 0
        ratios: dict[str, list[float]] = {m: [] for m in DUAL[1:]}
        keys = dict.fromkeys((r["data"], r["loss"]) for r in records)
        for key in keys:
            of_set = {r["method"]: r for r in records if (r["data"], r["loss"]) == key}
            for goal in GOALS:
                found = {m: of_set[m][f"{what} {goal:g}"] for m in DUAL}
                first = _is_first(found)
                cases += first != ""
                wins += first is True
                for m in ratios:
                    if found[m] and found["BQO-E"] and found["BQO-E"][0] > 0:
                        ratios[m].append(found[m][0] / found["BQO-E"][0])
        typical = [f"{np.median(v):.3g}" if v else "" for v in ratios.values()]
        rows.append([what, f"{wins} of {cases}", *typical])
    columns = ["objective", "BQO-E first", *(f"{m}, rounds over BQO-E's" for m in DUAL[1:])]
    note = "Medians over sets, losses and goals that both reach."
    return Table("Rounds of the dual solvers, together", columns, rows, note)
