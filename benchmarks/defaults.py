"""Accuracy out of the box, against SVC() and LinearSVC(), all after StandardScaler."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.svm import SVC, LinearSVC

from benchmarks import data, search
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from optimargin import LinearODMClassifier, ODMClassifier

_ROWS = 5000  # sets of at most so many rows


def small_sets(options: Options) -> Iterator[tuple[str, data.Entry, Any, np.ndarray]]:
    """All training parts of at most 5,000 rows, smallest first."""
    rows = 150 if options.quick else _ROWS
    entries = sorted(data.index(options.data).items(), key=lambda item: item[1].rows)
    for name, entry in entries:
        if entry.rows <= rows and not name.endswith(".t") and options.wants(name):
            X, y = data.read(name, options.data)
            say(f"{name}, {X.shape[0]} x {X.shape[1]}")
            yield name, entry, data.dense_if_small(X), y


def run(options: Options) -> Iterator[Table]:
    """Accuracy out of the box; with --search, what other defaults would do."""
    if options.search is not None:
        search.run(small_sets(options), options.repeats, options.search)
        yield from search.report(search.load(options.search))
        return
    yield _table((SVC(), ODMClassifier(random_state=0)), options)
    yield _table((LinearSVC(random_state=0), LinearODMClassifier(random_state=0)), options)


def _table(models: tuple[Any, Any], options: Options) -> Table:
    records = [
        {"data": name, "rows": e.rows, "classes": e.classes, **compare(models, X, y, options)}
        for name, e, X, y in small_sets(options)
    ]
    theirs, ours = (f"{type(model).__name__}()" for model in models)
    columns = ["data", "rows", "classes", theirs, ours, "difference", ""]
    if not records:
        return Table(f"{ours} against {theirs}", columns, [["no data"] + [""] * 6])
    rows = [[r["data"], r["rows"], r["classes"], *_judge(r)] for r in records]
    words = [row[-1] for row in rows]
    average = {key: float(np.mean([r[key] for r in records])) for key in ("theirs", "ours")}
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("win", "tie", "loss"))
    rows.append(["average", "", "", *_judge(average)[:-1], counts])
    note = (
        f"StandardScaler before both; 5-fold stratified cross-validation, {options.repeats} times"
        f" over with fixed seeds. A difference of at most {search.TIE:g} is a tie."
    )
    return Table(f"{ours} against {theirs}", columns, rows, note, records)


def compare(models: tuple[Any, Any], X: Any, y: np.ndarray, options: Options) -> dict[str, float]:
    """Mean accuracy of two classifiers over the same folds."""
    scores = []
    for train, test in search.folds(y, options.repeats, 5):
        A, B = data.standardised(X[train], X[test])
        fitted = [timed(partial(clone(model).fit, A, y[train]))[1] for model in models]
        scores.append([model.score(B, y[test]) for model in fitted])
    theirs, ours = np.mean(scores, axis=0)
    return {"theirs": float(theirs), "ours": float(ours)}


def _judge(record: dict[str, Any]) -> list[str]:
    difference = record["ours"] - record["theirs"]
    word = "tie" if abs(difference) <= search.TIE else "win" if difference > 0 else "loss"
    return [f"{record['theirs']:.4f}", f"{record['ours']:.4f}", f"{difference:+.4f}", word]
