"""Machines of clusters beside one machine over landmarks: forest cover types, class 2 or not.

Protocol    the rows of `landmark`: four fifths to learn from, float32 features in [0, 1]
Settings    fixed.  Kernel width and C of the clusters were chosen on training rows of a few
            regions, a fifth of them held out, those of the landmarks by the search of
            `landmark`; ``C`` is the weight of one row's loss
Time        of one fit on all cores, in a process of its own that is stopped after five minutes;
            and of the prediction of all test rows
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks import data, goals
from benchmarks.goals import Case
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.trial import attempt
from optimargin import LocalODMClassifier, ODMClassifier

GOAL, LIMIT = 0.96, 300.0  # accuracy that is asked for, and seconds
_DATA = "covtype"
CLUSTERS, LANDMARKS = "clusters", "landmarks"


class Try(NamedTuple):
    """A machine in numbers, which can travel to another process."""

    method: str
    gamma: float
    C: float
    changes: tuple[tuple[str, Any], ...] = ()
    mu: float = 0.5
    theta: float = 0.1

    @property
    def words(self) -> str:
        """The setting, as people write it."""
        more = [f"{name}={value}" for name, value in self.changes]
        shape = [f"mu={self.mu:g}", f"theta={self.theta:g}"]
        return ", ".join([f"gamma={self.gamma:.3g}", f"C={self.C:g}", *shape, *more])


TRIES = (
    Try(CLUSTERS, 2.0, 30.0, (("kernel", "laplacian"),)),
    Try(CLUSTERS, 64.0, 30.0),
    Try(CLUSTERS, 64.0, 30.0, (("overlap", 0.0), ("n_asked", 1))),
    Try(LANDMARKS, 0.487, 100.0, (("n_landmarks", 1000),), 0.1, 0.6),
)
_QUICK = (
    Try(CLUSTERS, 1.0, 10.0, (("n_clusters", 4),)),
    Try(LANDMARKS, 1.0, 10.0, (("n_landmarks", 40),)),
)


def run(options: Options) -> Iterator[Table]:
    """One table: every setting, and whether it does what is asked for."""
    case, tries = next(c for c in goals.CASES if c.name == _DATA), TRIES
    if options.quick:
        case, tries = goals.QUICK, _QUICK
    yield _table(case, tries, options)


def build(one: Try, n: int) -> Any:
    """The classifier for n training rows."""
    settings = {
        "gamma": one.gamma,
        "lam": one.C * n * (1.0 - one.theta) ** 2,
        "mu": one.mu,
        "theta": one.theta,
        "random_state": 0,
        **dict(one.changes),
    }
    if one.method == CLUSTERS:
        return LocalODMClassifier(**settings)
    settings["n_landmarks"] = min(settings["n_landmarks"], n)
    return ODMClassifier(solver="landmark", **settings)


def _table(case: Case, tries: tuple[Try, ...], options: Options) -> Table:
    columns = ["data", "rows", "method", "setting", "accuracy", "fit, s", "prediction, s"]
    columns += ["peak MB", "note", "met"]
    records: list[dict[str, Any]] = []
    note = (
        "Seconds of a fit on all training rows, the best of up to"
        f" {options.repeats} where it is short; stopped at {LIMIT:g} s. Prediction: of all test"
        " rows. Peak: what the fit adds to the process."
        f" lam = C n (1-theta)^2. Asked for: accuracy {GOAL:g} within {LIMIT:g} s."
    )
    try:
        rows = goals.load(case, options)
    except data.NoData:
        say(f"{case.name}: no data")
        return Table("Machines of clusters", columns, [], note, records)
    for one in tries:
        found = attempt(partial(build, one), rows, options.repeats, LIMIT)
        say(f"{one.method} {one.words}: {found}")
        head = {"data": case.name, "rows": len(rows.a), "method": one.method, "chosen": one.words}
        records.append(head | found)
    return Table("Machines of clusters", columns, [_cells(r) for r in records], note, records)


def _cells(r: dict[str, Any]) -> list[Any]:
    head = [r["data"], f"{r['rows']:,}", r["method"], r["chosen"]]
    if "accuracy" not in r:
        return [*head, "", r.get("seconds", ""), "", "", r["status"], False]
    figures = [f"{r['accuracy']:.4f}", r["seconds"], r["prediction"], f"{r['memory'] / 1e6:.0f}"]
    return [*head, *figures, "", bool(r["accuracy"] >= GOAL and r["seconds"] <= LIMIT)]
