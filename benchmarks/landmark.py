"""Kernel machines on many rows by landmarks: accuracy and time against SVC and two pipelines.

Protocol    one split of four fifths and a fifth (mnist has its own), float32 features in [0, 1]
Settings    of each method and number of features from one grid of widths and costs (`plans`), by
            cross-validation on 6,000 training rows, then 30,000 where there are more, then all
            of them where there are many more; from coarse to fine, and uphill (`uphill`); with
            more features from where that with fewer ended; more than 2,000 features take the
            setting of the next number below, and a search has at least five rows for each
Time        of one fit on all training rows at that setting, on all cores, in a process of its
            own that is stopped after 15 times ``--limit`` seconds; and of the search, each step of
            which begins no fit after that limit; the two pipelines have a fortieth and an eighth
Growth      see `growth`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import data, goals, growth, pictures, plans, prediction, uphill
from benchmarks.goals import CASES, QUICK, Case
from benchmarks.kept import Kept, Record
from benchmarks.methods import NotInstalled, Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from benchmarks.trial import UNFINISHED, Rows, attempt

_ENOUGH = 2000  # features at which a setting is chosen, at most
_SHARE = 0.125  # of the time limit, for pipelines that take long whatever the setting
_LONGER, _LONGER_SHARE = 15.0, 0.375  # times the limit, for the fit at the chosen setting
_FEW = 300


def run(options: Options) -> Iterator[Table]:
    """Every method on every set, the goals, the rivals at equal features, and growth."""
    path = None if options.results is None else options.results / "landmark.jsonl"
    rungs = uphill.ONCE, uphill.TWICE, uphill.THRICE
    recipe = plans.MULTIPLES, plans.COSTS, plans.SHAPES, plans.ROWS_EACH, *rungs
    kept = Kept(path, recipe)
    kept.records = [r for r in kept.records if not _was_cut(r) or r["limit"] >= options.limit]
    cases = (QUICK,) if options.quick else [c for c in CASES if options.wants(c.name)]
    found = {case: list(_records(case, kept, options)) for case in cases}
    yield _methods(found, options)
    yield _goals(found)
    yield _duels(found)
    yield from growth.tables(kept, options)
    if options.quick or options.wants("prediction"):
        yield prediction.table(options)


def _was_cut(r: Record) -> bool:
    """Whether more time might tell more: such a record gives way when the limit is raised."""
    return r.get("is_cut", False) or r.get("status") == UNFINISHED


def _records(case: Case, kept: Kept, options: Options) -> Iterator[Record]:
    """What every method does on a set, from the file or new; nothing where there is no data."""
    jobs = [(case.name, *job) for job in _jobs(case, options.peers)]
    missing = kept.missing(jobs, lambda r: (r["data"], r["method"], r["size"]))
    absent = []
    if missing:
        try:
            rows = goals.load(case, options)
        except data.NoData:
            say(f"{case.name}: no data")
            return
        for name, method, size in missing:
            say(f"{name}, {method} {size or ''}")
            head = {"data": name, "method": method, "size": size, "rows": len(rows.a)}
            head["limit"] = options.limit
            smaller = [
                r
                for r in kept.records
                if (r["data"], r["method"]) == (name, method) and r["size"] < size
            ]
            known = max(smaller, key=lambda r: r["size"]) if smaller else None
            try:
                kept.add({**head, **measure(method, size, rows, options, known)})
            except NotInstalled:
                absent.append({**head, "status": goals.ABSENT})
    done = {(r["data"], r["method"], r["size"]): r for r in kept.records + absent}
    yield from (done[job] for job in jobs)


def _jobs(case: Case, peers: bool) -> list[tuple[str, int]]:
    """Methods and numbers of features; 0 for those that take the kernel as it is."""
    jobs = [(plans.SVC, 0)] * (not case.is_beyond_svc) + [(plans.EXACT, 0)] * case.is_small
    jobs += [(method, size) for size in case.sizes for method in plans.SIZED]
    jobs += [(plans.OURS, size) for size in case.alone]
    return [job for job in jobs if peers or job[0] not in plans.PEERS]


def measure(
    method: str, size: int, rows: Rows, options: Options, known: Record | None = None
) -> Record:
    """The search and the fit of one method.

    The search begins where that with fewer features ended, if such a one is ``known``.
    """
    unit = 1.0 / (rows.A.shape[1] * float(rows.A.var(dtype=np.float64)))
    grid = plans.grid(method, size, unit, options.quick)
    is_slow = method in (plans.PIPELINE, plans.SNAP)
    limit = options.limit * (_SHARE if is_slow else 1.0)
    patience = options.limit * (_LONGER_SHARE if is_slow else _LONGER)
    head: Record
    start = known and next(k for k, s in grid.items() if s.words == known["chosen"])
    if start is None or size <= _ENOUGH:
        few = next(iter(grid.values())).make(_FEW)
        timed(partial(few.fit, rows.A[:_FEW], rows.a[:_FEW]))  # compiled before the clock starts
        seconds, found = timed(partial(uphill.search, grid, rows, limit, start))
        chosen = found.setting
        head = {"chosen": chosen.words, "search": seconds, "fits": found.fits}
        head["is_cut"] = found.is_cut
    else:
        chosen = grid[start]
        head = {key: known[key] for key in ("chosen", "search", "fits", "is_cut")}
    fitted = attempt(chosen.make, rows, options.repeats, patience)
    say(f"  {chosen.words}: {fitted}")
    return {**head, **fitted}


def _methods(found: dict[Case, list[Record]], options: Options) -> Table:
    columns = ["data", "rows", "method", "features", "setting", "accuracy", "seconds", "search, s"]
    columns += ["peak MB", "note"]
    rows: list[Sequence[Any]] = []
    for case, records in found.items():
        rows += [_cells(r) for r in records]
        if not records:
            rows.append([case.name, "", "no data"] + [""] * (len(columns) - 3))
    note = (
        "Seconds of the fit on all training rows at the chosen setting, the best of up to"
        f" {options.repeats} where it is short; stopped at {_LONGER * options.limit:g} s, Nystroem"
        f" + LinearSVC and Snap ML at {_LONGER_SHARE * options.limit:g} s. Search: seconds to"
        f" choose among the settings; a step of it that took {options.limit:g} s (theirs"
        f" {_SHARE * options.limit:g} s) is cut."
        " Peak: what the fit adds to the process."
        f" gamma of {_list(plans.MULTIPLES)} times 1 / (features x variance), C of"
        f" {_list(plans.COSTS)} for a row, ours with lam = C n (1-theta)^2 and (mu, theta) of"
        f" {', '.join(map(str, plans.SHAPES))}. Nystroem's features are made by scikit-learn,"
        " Snap ML's are random waves."
    )
    every = [r for records in found.values() for r in records]
    if options.pictures is not None and any("accuracy" in r for r in every):
        panels = [_panel(case, records) for case, records in found.items() if records]
        pictures.pareto(panels, options.pictures / "landmark-pareto.png")
    return Table("Accuracy and time", columns, rows, note, every)


def _cells(r: Record) -> list[Any]:
    accuracy = f"{r['accuracy']:.4f}" if "accuracy" in r else ""
    peak = f"{r['memory'] / 1e6:.0f}" if "memory" in r else ""
    head = [r["data"], f"{r['rows']:,}", r["method"], r["size"] or "", r.get("chosen", "")]
    cut = "search cut" if r.get("is_cut") else ""
    note = "; ".join(filter(None, (r.get("status", ""), cut)))
    return [*head, accuracy, r.get("seconds", ""), r.get("search", ""), peak, note]


def _panel(case: Case, records: list[Record]) -> pictures.Panel:
    """Those that finished, by method, and the names of the others."""
    points: dict[str, list[pictures.Point]] = {}
    for r in sorted(records, key=lambda r: plans.METHODS.index(r["method"])):
        if "accuracy" in r:
            point = pictures.Point(r["seconds"], r["accuracy"], str(r["size"] or ""))
            points.setdefault(r["method"], []).append(point)
    levels = [goal.accuracy for goal in case.goals if goal.accuracy is not None]
    others = [f"{r['method']} {r['size'] or ''}: {r['status']}" for r in records if "status" in r]
    return pictures.Panel(case.name, points, levels, "\n".join(others))


def _goals(found: dict[Case, list[Record]]) -> Table:
    columns = ["data", "accuracy to reach", "times SVC's speed", "SVC", "SVC, s", "features"]
    columns += ["ours", "ours, s", "SVC / ours", "met"]
    rows = [row for case, records in found.items() for row in goals.judge(case, records)]
    note = (
        "Ours: the fewest seconds among the numbers of features that reach the accuracy, or the"
        " best accuracy where none does; \"all\" is the exact machine, which solver='auto' takes"
        " on so few rows."
    )
    return Table("What was asked for", columns, rows, note)


def _duels(found: dict[Case, list[Record]]) -> Table:
    columns = ["data", "features", "rival", "accuracy: ours - its", "time: its / ours", "ahead in"]
    rows = [row for records in found.values() for row in goals.duels(records)]
    both = sum(row[-1] == goals.BOTH for row in rows)
    lost = sum(row[-1] == goals.NEITHER for row in rows)
    note = f"Of {len(rows)} comparisons ours is ahead in both in {both}, in neither in {lost}."
    return Table("At equal numbers of features", columns, rows, note)


def _list(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
