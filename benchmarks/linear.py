"""Linear machines: time to a relative primal gap of 1e-4, against LinearSVC and Snap ML.

Objective   the L2-SVM, ODM with mu = theta = 0 and lam = C n, intercept penalised by all
Reference   our Newton solver (or coordinate descent, with many features) at a gap of 1e-9
Time        each method tries its own tolerances, loosest first; the first whose model is
            within 1e-4 of the reference is then timed again, all methods taking turns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks import ours, peers, problems
from benchmarks.data import NoData
from benchmarks.methods import LinearMethod, NotInstalled, Options, Task
from benchmarks.objective import linear_primal
from benchmarks.report import Table, say, verdict
from benchmarks.timing import side_by_side, timed

GOAL = 1e-4  # relative primal gap to be reached
_DIRECT = 1500  # features up to which Newton finds the reference


class Reached(NamedTuple):
    """How a method came to the goal, or why it did not."""

    tol: float
    gap: float
    seconds: float
    why_not: str = ""
    repeats: tuple[float, ...] = ()
    call: Callable[[], Any] | None = None
    reference: float = 0.0  # certified gap of the optimum it was compared with

    def record(self) -> dict[str, Any]:
        """The figures, without the call that made them."""
        return {key: value for key, value in self._asdict().items() if key != "call"}

    def __str__(self) -> str:
        return self.why_not or f"{self.seconds:.3g}"


def run(options: Options) -> Iterator[Table]:
    """One table of times for the L2-SVM, one for the ODM."""
    chosen = [p for p in problems.linear(options.quick) if options.wants(p.name)]
    costs = (0.1,) if options.quick else (0.01, 0.1, 1.0)
    methods = peers.linear(options) + ours.LINEAR
    svm = _Rows(methods)
    odm = _Rows(ours.LINEAR)
    for problem in chosen:
        if options.quick and not problem.is_generated:
            continue
        try:
            X, y = problem.load(options.data)
        except NoData:
            svm.absent(problem.name)
            continue
        _compile(X, y)
        for C in costs:
            task = Task(X, y, lam=C * len(y))
            say(f"{problem.name}, C = {C:g}")
            svm.add(problem.name, C, problem.target, compare(task, methods, options))
        task = Task(X, y, lam=0.1 * len(y), mu=0.5, theta=0.2)
        say(f"{problem.name}, ODM")
        odm.add(problem.name, 0.1, 0.0, compare(task, ours.LINEAR, options))
    loosest = max((r["reference"] for r in svm.records + odm.records), default=0.0)
    note = (
        f"Seconds to a relative primal gap of {GOAL:g}, or the gap after the last attempt; ratio:"
        f" faster LinearSVC over auto. References are certified to {loosest:.0e} or better."
    )
    yield Table("L2-SVM", svm.columns, svm.rows, note, svm.records)
    note = f"mu = 0.5, theta = 0.2, lam = n / 10. Seconds to a relative primal gap of {GOAL:g}."
    yield Table("ODM", odm.columns, odm.rows, note, odm.records)


def compare(task: Task, methods: list[LinearMethod], options: Options) -> dict[str, Reached]:
    """What each method needs on this task."""
    solver = "newton" if task.X.shape[1] <= _DIRECT else "dcd"
    seconds, model = timed(partial(ours.linear_model, task, 1e-9, 2 * options.limit, solver=solver))
    say(f"  reference: {seconds:.3g} s, certified to {model.dual_gap_:.1g}")
    best = linear_primal(task, ours.weights(model))
    first = {m.name: reach(task, m, best, options.limit) for m in methods}
    runs = {m.name: first[m.name].call for m in methods if not first[m.name].why_not}
    again = side_by_side(runs, options.repeats)
    for name, times in again.items():
        first[name] = first[name]._replace(seconds=times.best, repeats=tuple(times.seconds))
    return {name: found._replace(reference=model.dual_gap_) for name, found in first.items()}


def reach(task: Task, method: LinearMethod, best: float, limit: float) -> Reached:
    """The loosest of a method's tolerances that brings it to the goal, as far as time allows."""
    gap, elapsed, spent = float("inf"), 0.0, 0.0
    for tol in method.tolerances:
        try:
            elapsed, model = timed(call := method.prepare(task, tol, limit))
        except NotInstalled:
            return Reached(tol, gap, elapsed, "not installed")
        gap, spent = (linear_primal(task, model) - best) / best, spent + elapsed
        say(f"  {method.name}, tol {tol:g}: {elapsed:.3g} s, gap {gap:.1g}")
        if gap <= GOAL:
            return Reached(tol, gap, elapsed, call=call)
        if elapsed > 0.5 * limit or spent > 3.0 * limit:
            break
    return Reached(tol, gap, elapsed, f"{gap:.1g} in {elapsed:.3g}")


class _Rows:
    """Collects the rows of a table: one for each problem and C, one column for each method."""

    def __init__(self, methods: list[LinearMethod]) -> None:
        self.names = [m.name for m in methods]
        self.rivals = [m.name for m in methods if m.name.startswith("LinearSVC")]
        self.columns = ["data", "C", *self.names, *(["ratio", "target met"] if self.rivals else [])]
        self.rows: list[list[Any]] = []
        self.records: list[dict[str, Any]] = []

    def absent(self, data: str) -> None:
        self.rows.append([data, "no data"] + [""] * (len(self.columns) - 2))

    def add(self, data: str, C: float, target: float, found: dict[str, Reached]) -> None:
        end: list[Any] = []
        if self.rivals:
            done = [found[r].seconds for r in self.rivals if not found[r].why_not]
            # rivals that never arrive are at least as slow as their last attempts
            rival = min(done or [found[r].seconds for r in self.rivals])
            ratio = rival / found["auto"].seconds if not found["auto"].why_not else 0.0
            end = [f"{'' if done else '> '}{ratio:.3g}", verdict(ratio, target)]
        self.rows.append([data, C, *(found[name] for name in self.names), *end])
        self.records += [
            {"data": data, "C": C, "method": name, **reached.record()}
            for name, reached in found.items()
        ]


def _compile(X: Any, y: Any) -> None:
    """Compile every loop on a few rows, so that no timing pays for it."""
    few = Task(X[:200], y[:200], lam=1.0)
    for method in ours.LINEAR:
        timed(method.prepare(few, 0.1, 10.0))
