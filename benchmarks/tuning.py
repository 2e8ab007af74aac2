"""Choosing lam, mu and theta: our cross-validated classifiers beside GridSearchCV."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sklearn.model_selection import GridSearchCV

from benchmarks.methods import Options
from benchmarks.problems import curved, tall
from benchmarks.report import Table, say, verdict
from benchmarks.timing import timed
from optimargin import LinearODMClassifier, LinearODMClassifierCV, ODMClassifier, ODMClassifierCV

JOBS, TARGET = 2, 10.0
FOUR = [0.2, 0.4, 0.6, 0.8]
GRID: dict[str, list[float]] = {  # that of the ODM paper
    "lam": [4.0**k for k in range(11)],
    "mu": FOUR,
    "theta": FOUR,
}
QUICK: dict[str, list[float]] = {"lam": [1.0, 64.0], "mu": [0.2, 0.8], "theta": [0.2]}


def run(options: Options) -> Iterator[Table]:
    """One table: a row for each machine."""
    n, grid = (120, QUICK) if options.quick else (2000, GRID)
    searches = [
        (f"RBF, {n:,} x 10", curved(n), ODMClassifier, ODMClassifierCV, TARGET),
        (f"linear, {n:,} x 18", tall(n), LinearODMClassifier, LinearODMClassifierCV, None),
    ]
    rows: list[list[Any]] = []
    records: list[dict[str, Any]] = []
    for name, (X, y), plain, tuned, target in searches:
        if not options.wants(name):
            continue
        grids = {f"{key}s": values for key, values in grid.items()}
        ours = tuned(**grids, n_jobs=JOBS, random_state=0)
        theirs = GridSearchCV(plain(random_state=0), grid, n_jobs=JOBS)
        for search in (ours, theirs):  # compiled code and workers are there before the clock is
            timed(partial(search.fit, X[:60], y[:60]))
        say(f"{name}: {len(ours.cv_results_['params'])} settings")
        quick, _ = timed(partial(ours.fit, X, y))
        slow, _ = timed(partial(theirs.fit, X, y))
        ratio = slow / quick
        same = bool(ours.best_index_ == theirs.best_index_)
        apart = float(
            abs(ours.cv_results_["mean_test_score"] - theirs.cv_results_["mean_test_score"]).max()
        )
        met = "" if target is None or options.quick else verdict(ratio, target)
        rows.append([name, slow, quick, ratio, met, same, apart])
        records.append(
            {"data": name, "grid_search": slow, "ours": quick, "ratio": ratio}
            | {"best": ours.best_params_, "best_of_grid_search": theirs.best_params_}
            | {"score": ours.best_score_, "score_of_grid_search": theirs.best_score_}
            | {"largest_difference": apart, "jobs": JOBS, "grid": grid}
        )
    settings = " x ".join(f"{len(values)} {key}" for key, values in grid.items())
    note = (
        f"{settings}, 5 folds, n_jobs={JOBS}, the default tol of each classifier, refit included;"
        " seconds of one run. Largest difference: between the mean scores of any setting."
    )
    columns = [
        "machine",
        "GridSearchCV",
        "ours",
        "ratio",
        "target met",
        "same choice",
        "largest difference",
    ]
    yield Table("Search", columns, rows, note, records)
