"""Does ODM predict better? The ODM paper's tables 2 and 3, repeated on small binary sets.

Protocol    features in [0, 1]; random halves for training and test, 30 of them with
            ``--repeats 30`` and fewer on the largest sets; settings by 5-fold cross-validation
            on the training half, all methods on the same folds and, with a kernel, the same
            matrices (odm.txt, 6.1)
Judgement   paired t-tests at 95 % over the halves, as the paper has them
Time        two processes of one thread each; every half is kept as it comes, so an
            interrupted run continues
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import euclidean_distances
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks import contenders, data, printed, problems, verdicts
from benchmarks.choice import View, choose
from benchmarks.kept import Kept
from benchmarks.methods import Options
from benchmarks.printed import METHODS
from benchmarks.report import Table, say
from benchmarks.workers import spread

SETS = (*printed.LINEAR, "breast-w", "svmguide1")  # the last two are not in the paper
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernel, in average distances of the training rows
KINDS = {
    "linear": ("Linear machines (odm.txt, table 2)", contenders.linear, printed.LINEAR),
    "rbf": ("RBF machines (odm.txt, table 3)", contenders.rbf, printed.RBF),
}
# Above so many rows, at most so many halves: kernel ODM^L takes up to a second there.
_FEWER = {"linear": ((2000, 10),), "rbf": ((2000, 3), (600, 5), (300, 10))}
_QUICK = "generated"
_NOT_PRINTED = printed.Printed((float("nan"),) * 4, "")


def run(options: Options) -> Iterator[Table]:
    """Both tables."""
    sizes = _sizes(options)
    for kind, (_, methods, _) in KINDS.items():
        recipe = (METHODS, WIDTHS, [[s.words for s in found] for found in methods().values()])
        path = None if options.results is None else options.results / f"regular-{kind}.jsonl"
        kept = Kept(path, recipe)
        jobs = [
            (name, seed)
            for name, rows in sizes.items()
            for seed in range(min([options.repeats, *(k for n, k in _FEWER[kind] if rows > n)]))
        ]
        missing = kept.missing(jobs, lambda r: (r["data"], r["seed"]))
        work = [(kind, *job, options.data) for job in missing]
        for record in spread(half, work, here=options.quick):
            say(f"{kind} {record['data']} {record['seed']}")
            kept.add(record)
        asked = set(jobs)
        yield _table(kind, [r for r in kept.records if (r["data"], r["seed"]) in asked], options)


def _sizes(options: Options) -> dict[str, int]:
    """The rows of each set that is wanted and there, smallest first."""
    if options.quick:
        return {_QUICK: 60}
    entries = data.index(options.data)
    found = {name: entries[name].rows for name in SETS if name in entries and options.wants(name)}
    return dict(sorted(found.items(), key=lambda item: item[1]))


@cache
def _rows(name: str, directory: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if name == _QUICK:
        X, y = problems.tall(60, d=4)
        return data.to_unit_interval(X), (y > 0).astype(int)
    X, y = data.read(name, directory)
    return data.to_unit_interval(X.toarray()), y


def half(kind: str, name: str, seed: int, directory: Path | None) -> dict[str, Any]:
    """Test accuracy of each method on one random half, with the settings chosen on the other."""
    X, y = _rows(name, directory)
    A, B, a, b = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    views = [_within_span(A, B)] if kind == "linear" else kernels(A, B)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(A, a))
    scores, chosen = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: a poor setting is not chosen
        found = choose(KINDS[kind][1](), views, a, folds)
        for method, (view, setting) in found.items():
            model = setting.make(len(a)).fit(view.train, a)
            scores[method] = float(np.mean(model.predict(view.test) == b))
            chosen[method] = " ".join(filter(None, (setting.words, view.words)))
    return {"data": name, "seed": seed, "scores": scores, "chosen": chosen}


def _within_span(A: np.ndarray, B: np.ndarray) -> View:
    """Rows with no more features than there are training rows.

    A linear machine lies in the span of its training rows, so coordinates within that span
    lose nothing.
    """
    if A.shape[1] > A.shape[0]:
        axes = np.linalg.svd(A, full_matrices=False)[2].T
        A, B = A @ axes, B @ axes
    return View("", A, B)


def kernels(A: np.ndarray, B: np.ndarray) -> list[View]:
    """exp(-|x - z|^2 / (2 s^2)) for each width s."""
    within, across = euclidean_distances(A), euclidean_distances(B, A)
    average = within[np.triu_indices(len(A), 1)].mean()
    found = []
    for width in WIDTHS:
        gamma = 0.5 / (width * average) ** 2
        K, L = np.exp(-gamma * within**2), np.exp(-gamma * across**2)
        found.append(View(f"width={width:g}", K, L, is_kernel=True))
    return found


def _table(kind: str, records: list[dict[str, Any]], options: Options) -> Table:
    title, _, paper = KINDS[kind]
    columns = ["data", "rows x features", "halves", *METHODS, *(f"paper's {m}" for m in METHODS)]
    if not records:
        return Table(title, columns, [["no data"] + [""] * (len(columns) - 1)])
    names = list(dict.fromkeys(r["data"] for r in sorted(records, key=_size(options))))
    scores = {
        name: {m: [r["scores"][m] for r in _of(records, name)] for m in METHODS} for name in names
    }
    rows = []
    for name in names:
        found, theirs = scores[name], paper.get(name, _NOT_PRINTED).means
        marks = [verdicts.MARKS[verdicts.paired(found[m], found["SVM"])] for m in METHODS]
        cells = [
            verdicts.mean_and_spread(found[m]) + mark
            for m, mark in zip(METHODS, marks, strict=True)
        ]
        rows.append(
            [_title(name, options), _shape(name, options), len(found["ODM"]), *cells]
            + [_digits(mean) for mean in theirs]
        )
    rows += [_averages(scores, paper), *_counted(scores, paper)]
    note = (
        "Accuracy, mean ± standard deviation over random halves; • better, ○ worse than the SVM in"
        " a paired t-test at 95 %. The last rows count ODM's tests against each method, and under"
        " paper's SVM those that the paper reports on the same sets. * The paper's copy of the set"
        f" has another shape. {contenders.NOTE}; {_only(kind)}."
    )
    return Table(title, columns, rows, note, records)


def _only(kind: str) -> str:
    """What is to be said of one of the tables."""
    constant = "all machines have a constant feature, the paper's have none"
    if kind == "rbf":
        widths = ", ".join(map("{:g}".format, WIDTHS))
        return f"{constant}; width of the kernel {widths} average distances"
    return f"{constant}; ODM^L is solved by SVRG to a gap of 1 %"


def _averages(scores: dict[str, Any], paper: dict[str, printed.Printed]) -> list[Any]:
    """Over all sets; the paper's over those of them that it has."""
    ours = [f"{np.mean([np.mean(s[m]) for s in scores.values()]):.3f}" for m in METHODS]
    shared = [paper[name].means for name in scores if name in paper]
    theirs = [_digits(mean) for mean in np.mean(shared, axis=0)] if shared else [""] * 4
    return ["average", "", "", *ours, *theirs]


def _counted(scores: dict[str, Any], paper: dict[str, printed.Printed]) -> list[list[Any]]:
    """ODM's wins, ties and losses against each method, by both tests; SVM's in the paper."""
    lines = []
    for words, share in (("ODM: w/t/l", 0.0), ("the same, corrected for overlap", 1.0)):
        against = verdicts.tally(scores, "ODM", METHODS[:-1], share)
        lines.append([words, "", "", *against, "", *[""] * 4])
    marks = [paper[name].marks[-1] for name in scores if name in paper]
    lines[0][7] = verdicts.counts(["-=+".index(mark) - 1 for mark in marks])
    return lines


def _of(records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return sorted((r for r in records if r["data"] == name), key=lambda r: r["seed"])


def _size(options: Options) -> Any:
    order = list(_sizes(options))
    return lambda record: order.index(record["data"])


def _shape(name: str, options: Options) -> str:
    if name == _QUICK:
        return "60 x 4"
    entry = data.index(options.data)[name]
    return f"{entry.rows} x {entry.features}"


def _title(name: str, options: Options) -> str:
    """With a star where the paper's copy is another one."""
    copy = printed.COPIES.get(name)
    same = copy is None or _shape(name, options) == f"{copy.rows} x {copy.features}"
    return name if same else f"{name} *"


def _digits(mean: float) -> str:
    return "" if np.isnan(mean) else f"{mean:.3f}"
