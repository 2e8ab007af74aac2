"""Accuracy of linear machines for several classes, by the protocol of the mcODM paper.

Protocol    80/20 splits of all rows there are, features in [0, 1], every method tuned by
            cross-validation on the same folds (mcodm.txt section 6); fewer splits and a smaller
            grid where there are many rows
Time        two processes of one thread each; every split is kept as it comes, so an
            interrupted run continues
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import LinearSVC

from benchmarks import data, verdicts
from benchmarks.kept import Kept
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.workers import spread
from optimargin import LinearODMClassifier

# mcodm.txt, table 2: accuracy and standard deviation of mcODM
PAPER = {
    "iris": (87.3, 3.4),
    "wine": (98.4, 1.9),
    "glass": (68.2, 7.3),
    "svmguide2": (84.1, 1.8),
    "vehicle": (85.6, 6.6),
    "vowel": (65.6, 3.9),
    "segment": (96.7, 1.3),
    "dna": (95.6, 0.7),
}
OTHERS = ("usps", "pendigits", "letter")
_FITS = 3.0  # seconds that one fit of ours may take

Maker = Callable[[], Any]


class Effort(NamedTuple):
    """What is spent on a set: settings, folds, and splits at most."""

    costs: tuple[float, ...]
    band: tuple[float, ...]
    folds: int
    splits: int


SMALL = Effort(tuple(2.0 ** np.arange(0, 21, 2)), (0.2, 0.8), 5, 10)
MEDIUM = SMALL._replace(splits=3)
LARGE = Effort((2.0**8, 2.0**12, 2.0**16), (0.2, 0.8), 3, 2)


def effort(rows: int) -> Effort:
    """As the paper's while the rows are few."""
    return SMALL if rows <= 1500 else MEDIUM if rows <= 4000 else LARGE


def candidates(n: int, found: Effort) -> dict[str, list[Maker]]:
    """The settings that each method chooses from, for n training rows."""
    ours = partial(LinearODMClassifier, random_state=0, time_limit=_FITS, n_jobs=1)
    svm = partial(LinearSVC, random_state=0, max_iter=2000)
    odms = list(product(found.costs, found.band, found.band))
    return {
        "mcODM": [partial(ours, lam=lam, mu=mu, theta=theta) for lam, mu, theta in odms],
        "ODM, one against the rest": [
            partial(ours, multi_class="ovr", lam=lam, mu=mu, theta=theta) for lam, mu, theta in odms
        ],
        "LinearSVC": [partial(svm, C=lam / n, dual=False) for lam in found.costs],
        # its stopping rule is all there is to bound its time
        "Crammer-Singer": [
            partial(svm, C=lam / n, multi_class="crammer_singer", tol=0.01) for lam in found.costs
        ],
    }


def table(options: Options) -> Table:
    """A line for each set."""
    there = data.index(options.data)
    names = [n for n in (*PAPER, *OTHERS) if n in there and options.wants(n) and not options.quick]
    sizes = {n: there[n].rows + (there[f"{n}.t"].rows if f"{n}.t" in there else 0) for n in names}
    kept = Kept(
        None if options.results is None else options.results / "accuracy.jsonl",
        (SMALL, MEDIUM, LARGE, list(candidates(1, SMALL))),
    )
    jobs = [  # a split of every set before the next, so that an early end leaves a fair table
        (name, seed)
        for seed in range(options.repeats)
        for name in names
        if seed < effort(sizes[name]).splits
    ]
    missing = kept.missing(jobs, lambda r: (r["data"], r["seed"]))
    for record in spread(split, [(*job, options.data) for job in missing], here=False):
        say(f"{record['data']} {record['seed']}")
        kept.add(record)
    return _table(names, [r for r in kept.records if (r["data"], r["seed"]) in set(jobs)], sizes)


def whole(name: str, directory: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a set, those of its test file too, with features in [0, 1]."""
    parts = [data.read(name, directory)]
    if f"{name}.t" in data.index(directory):
        parts.append(data.read(f"{name}.t", directory))
    X = np.vstack([X.toarray() for X, _ in parts])
    return data.to_unit_interval(X), np.concatenate([y for _, y in parts])


def split(name: str, seed: int, directory: Path | None) -> dict[str, Any]:
    """Test accuracy of each method at the setting it chose."""
    X, y = whole(name, directory)
    found = effort(len(y))
    A, B, a, b = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    cuts = StratifiedKFold(found.folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: a poor setting is not chosen
        folds = list(cuts.split(A, a))
        scores = {}
        for method, makers in candidates(len(a), found).items():
            means = [
                np.mean([make().fit(A[i], a[i]).score(A[j], a[j]) for i, j in folds])
                for make in makers
            ]
            scores[method] = makers[int(np.argmax(means))]().fit(A, a).score(B, b)
    return {"data": name, "seed": seed, "scores": scores}


def _table(names: list[str], records: list[dict[str, Any]], sizes: dict[str, int]) -> Table:
    methods = list(candidates(1, SMALL))
    columns = ["data", "rows", "splits", *methods, "paper's mcODM"]
    rows: list[list[Any]] = []
    scores = {n: [r["scores"] for r in records if r["data"] == n] for n in names}
    for name, found in scores.items():
        if found:
            cells = [_cell([s[m] for s in found]) for m in methods]
            paper = "{} ± {}".format(*PAPER[name]) if name in PAPER else ""
            rows.append([name, sizes[name], len(found), *cells, paper])
    if rows:
        means = [
            f"{100 * np.mean([np.mean([s[m] for s in found]) for found in scores.values()]):.2f}"
            for m in methods
        ]
        by_method = {
            name: {m: [s[m] for s in found] for m in methods} for name, found in scores.items()
        }
        against = verdicts.tally(by_method, methods[0], methods[1:], 0.0)
        rows += [
            ["average", "", "", *means, ""],
            ["mcODM: w/t/l", "", "", "", *against, ""],
        ]
    note = (
        f"Accuracy in per cent. Up to 4,000 rows: {_words(SMALL)}. Above: {_words(LARGE)}."
        f" A fit of ours is stopped after {_FITS:g} s."
        " LinearSVC and Crammer-Singer choose C n from the same values as lam. The last row"
        " counts paired t-tests at 95 %. Sets with a test file are joined with it, as in the paper."
    )
    return Table("Accuracy of linear machines", columns, rows, note, records)


def _cell(found: list[float]) -> str:
    return f"{100 * np.mean(found):.1f} ± {100 * np.std(found):.1f}"


def _words(found: Effort) -> str:
    costs = ", ".join(f"2^{np.log2(cost):g}" for cost in found.costs)
    return f"lam of {costs}, mu and theta of {found.band}, {found.folds} folds"
