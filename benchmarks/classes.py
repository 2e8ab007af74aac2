"""More and more classes: the mcODM paper's figures 1, 2 and 3, as tables and pictures.

Accuracy    the first 2 to 7 classes of segment, by the protocol and the thinned grids of
            `accuracy`: 80/20 splits, features in [0, 1], 5-fold cross-validation
Margins     own score minus the runner-up's on the test rows of the first split, over their
            mean: scores have no scale of their own
Iteration   one pass over the rows, ours and that of LIBLINEAR's Crammer-Singer solver, on
            every multi-class set
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks import accuracy, data, epoch, pictures
from benchmarks.choice import Setting, View, choose
from benchmarks.kept import Kept, Record
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.workers import spread
from optimargin.margins import margins

NAME = "segment"
COUNTS = (2, 3, 4, 5, 6, 7)
ONE_VS_REST = "ODM, one against the rest"
ONE_VS_ONE = "ODM, one against one"
METHODS = ("mcODM", "Crammer-Singer", ONE_VS_REST, ONE_VS_ONE)
DRAWN = METHODS[:2]  # whose margins are shown
SETS = (
    *("iris", "wine", "glass", "svmguide2", "vowel", "vehicle", "dna", "segment", "usps"),
    *("pendigits", "letter", "news20", "mnist", "connect-4", "covtype"),
)
EFFORT = accuracy.SMALL._replace(costs=accuracy.SMALL.costs[::2])


def run(options: Options) -> Iterator[Table]:
    """Accuracy, margins, iterations."""
    found = list(_splits(options))
    yield _accuracy(found, options)
    yield _margins(found, options)
    yield _iterations(options)


def settings() -> dict[str, list[Setting]]:
    """The settings of `accuracy`, and those of one against the rest for one against one."""
    count = len(accuracy.candidates(1, EFFORT)[ONE_VS_REST])
    found = {
        name: [Setting(f"{name} {k}", _maker(name, k)) for k in range(len(makers))]
        for name, makers in accuracy.candidates(1, EFFORT).items()
    }
    found[ONE_VS_ONE] = [
        Setting(f"{ONE_VS_ONE} {k}", _maker(ONE_VS_REST, k, multi_class="ovo"))
        for k in range(count)
    ]
    return {name: found[name] for name in METHODS}


def _maker(name: str, k: int, **changed: Any) -> Callable[[int], Any]:
    def make(n: int) -> Any:
        model = accuracy.candidates(n, EFFORT)[name][k]()
        alone = {"n_jobs": 1} if "n_jobs" in model.get_params() else {}
        return model.set_params(**alone, **changed)

    return make


def _splits(options: Options) -> Iterator[Record]:
    """Scores and margins for each number of classes and each split, from the file or new."""
    if options.quick:
        X, y = make_blobs(90, 3, centers=3, cluster_std=2.0, random_state=0)
        few = {name: some[:4:3] for name, some in settings().items()}
        yield from (split(X[y < k], y[y < k], k, 0, few) for k in (2, 3))
        return
    try:
        X, y = data.read(NAME, options.data)
    except data.NoData:
        return
    X = data.to_unit_interval(X.toarray())
    recipe = [(name, [s.make(1).get_params() for s in some]) for name, some in settings().items()]
    path = None if options.results is None else options.results / "classes.jsonl"
    kept = Kept(path, recipe)
    jobs = [(k, seed) for k in COUNTS for seed in range(options.repeats)]
    missing = kept.missing(jobs, lambda r: (r["classes"], r["seed"]))
    rows = ((X[y < k], y[y < k], k, seed) for k, seed in missing)
    for record in spread(split, rows, here=False):
        say(f"{NAME}, {record['classes']} classes, split {record['seed']}")
        kept.add(record)
    yield from (r for r in kept.records if (r["classes"], r["seed"]) in jobs)


def split(
    X: np.ndarray,
    y: np.ndarray,
    classes: int,
    seed: int,
    methods: Mapping[str, list[Setting]] | None = None,
) -> Record:
    """Accuracy of each method on one split; margins of the first."""
    A, B, a, b = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(A, a))
    scores: dict[str, float] = {}
    drawn: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: a poor setting is not chosen
        found = choose(methods or settings(), [View("", A, B)], a, folds)
        for name, (_, setting) in found.items():
            model = setting.make(len(a)).fit(A, a)
            scores[name] = float(model.score(B, b))
            if seed == 0 and name in DRAWN:
                u = margins(model, B, b)
                drawn[name] = np.round(u / u.mean(), 4).tolist()
    return {"classes": classes, "seed": seed, "scores": scores, "margins": drawn}


def _accuracy(found: list[Record], options: Options) -> Table:
    title = f"Accuracy on the first classes of {NAME} (mcodm.txt, figure 1)"
    columns = ["classes", *METHODS]
    counts = sorted({r["classes"] for r in found})
    if not counts:
        return Table(title, columns, [["no data"] + [""] * len(METHODS)])
    means = {
        m: [float(np.mean([r["scores"][m] for r in found if r["classes"] == k])) for k in counts]
        for m in METHODS
    }
    rows = [[k, *(f"{means[m][at]:.4f}" for m in METHODS)] for at, k in enumerate(counts)]
    if options.pictures is not None:
        pictures.accuracies(means, counts, options.pictures / "classes-accuracy.png")
    note = f"{options.repeats} splits; settings as in the benchmark `accuracy`."
    records = [{k: v for k, v in r.items() if k != "margins"} for r in found]
    return Table(title, columns, rows, note, records)


def _margins(found: list[Record], options: Options) -> Table:
    title = "Margins over their mean (mcodm.txt, figure 2)"
    columns = ["classes"]
    columns += [f"{m}: {what}" for m in DRAWN for what in ("variance", "least", "below 0")]
    first = sorted((r for r in found if r["margins"]), key=lambda r: r["classes"])
    if not first:
        return Table(title, columns, [["no data"] + [""] * (len(columns) - 1)])
    rows = []
    for record in first:
        each = [np.array(record["margins"][m]) for m in DRAWN]
        cells = [(float(u.var()), float(u.min()), f"{(u < 0).mean():.1%}") for u in each]
        rows.append([record["classes"], *(c for some in cells for c in some)])
    if options.pictures is not None:
        drawn = {r["classes"]: r["margins"] for r in first}
        pictures.histograms(drawn, options.pictures / "classes-margins.png")
    note = "Test rows of the first split. The outermost bars of the picture hold all beyond them."
    return Table(title, columns, rows, note)


def _iterations(options: Options) -> Table:
    title = "One iteration (mcodm.txt, figure 3)"
    columns = ["data", "rows", "classes", "Crammer-Singer", "mcODM", "Crammer-Singer / mcODM"]
    rows, seconds = [], {}
    for name, X, y in epoch.sets(() if options.quick else SETS, options):
        found = epoch.measure(X, y, options.repeats)
        theirs, ours = found.first, found.ours
        seconds[name] = {"mcODM": ours, "Crammer-Singer": theirs}
        rows.append([name, len(y), int(y.max()) + 1, theirs, ours, theirs / ours])
    if options.pictures is not None and seconds:
        pictures.epochs(seconds, options.pictures / "classes-iteration.png")
    note = (
        f"Seconds of one pass over the rows, the best of {options.repeats}; at most"
        f" {epoch.ROWS:,} rows of a set. Ours visits all rows; LIBLINEAR leaves out those that it"
        " thinks settled, from its first pass on; its first few passes are timed."
    )
    return Table(title, columns, rows, note)
