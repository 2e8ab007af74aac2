"""Accuracy out of the box: SVC() against ODMClassifier(), both after StandardScaler."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks import data, search
from benchmarks.methods import Options
from benchmarks.report import Table
from benchmarks.timing import timed
from optimargin import ODMClassifier

_ROWS = 5000  # sets of at most so many rows


def small_sets(options: Options) -> Iterator[tuple[str, data.Entry, Any, np.ndarray]]:
    """All training parts of at most 5,000 rows, smallest first."""
    rows = 150 if options.quick else _ROWS
    entries = sorted(data.index(options.data).items(), key=lambda item: item[1].rows)
    for name, entry in entries:
        if entry.rows <= rows and not name.endswith(".t") and options.wants(name):
            X, y = data.read(name, options.data)
            yield name, entry, data.dense_if_small(X), y


def run(options: Options) -> Iterator[Table]:
    """Accuracy of both out of the box; with --search, what other defaults would do."""
    if options.search is not None:
        search.run(small_sets(options), options.repeats, options.search)
        yield from search.report(search.load(options.search))
        return
    rows: list[list[Any]] = []
    records: list[dict[str, Any]] = []
    for name, entry, X, y in small_sets(options):
        record = {"data": name, "rows": entry.rows, **compare(X, y, options.repeats)}
        rows.append([name, entry.rows, entry.classes, *_judge(record)])
        records.append(record)
    columns = ["data", "rows", "classes", "SVC()", "ODMClassifier()", "difference", ""]
    if not rows:
        yield Table("Defaults", columns, [["no data"] + [""] * 6])
        return
    theirs, ours = (np.array([r[key] for r in records]) for key in ("SVC", "ODM"))
    rows.append(
        ["average", "", "", f"{theirs.mean():.4f}", f"{ours.mean():.4f}", *_judged(records)]
    )
    note = (
        f"StandardScaler before both; 5-fold stratified cross-validation, {options.repeats} times"
        f" over with fixed seeds. A difference of at most {search.TIE:g} is a tie."
    )
    yield Table("Defaults", columns, rows, note, records)


def compare(X: Any, y: np.ndarray, repeats: int) -> dict[str, float]:
    """Mean accuracy of SVC() and ODMClassifier() over the same folds."""
    scores: dict[str, list[float]] = {"SVC": [], "ODM": []}
    for train, test in search.folds(y, repeats, 5):
        A, B = data.standardised(X[train], X[test])
        for name, model in (("SVC", SVC()), ("ODM", ODMClassifier(random_state=0))):
            timed(partial(model.fit, A, y[train]))
            scores[name].append(float(model.score(B, y[test])))
    return {name: float(np.mean(values)) for name, values in scores.items()}


def _judge(record: dict[str, Any]) -> list[str]:
    difference = record["ODM"] - record["SVC"]
    word = "tie" if abs(difference) <= search.TIE else "win" if difference > 0 else "loss"
    return [f"{record['SVC']:.4f}", f"{record['ODM']:.4f}", f"{difference:+.4f}", word]


def _judged(records: list[dict[str, Any]]) -> list[str]:
    words = [_judge(record)[-1] for record in records]
    difference = np.mean([r["ODM"] - r["SVC"] for r in records])
    return [
        f"{difference:+.4f}",
        ", ".join(f"{words.count(w)} {w}" for w in ("win", "tie", "loss")),
    ]
