"""Many rows, linear: the ODM paper's table 4 (accuracy) and figure 2 (training time).

Protocol    ten random halves with ``--repeats 10``; sparse rows divided by the largest value of
            each feature and so kept sparse, others in [0, 1] (odm.txt, 6.1)
Settings    chosen on 4,000 of the training rows, two thirds to learn and one third to judge;
            weights of the losses are a row's, so they mean the same on all rows
Time        of one fit on the training half at those settings, one thread, one at a time
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

from benchmarks import data, pictures, printed, problems, verdicts
from benchmarks.choice import Setting, View, choose
from benchmarks.kept import Kept, Record
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from optimargin import LinearLDMClassifier, LinearODMClassifier

SETS = (
    "rcv1_cocoa_subset",
    "farm-ads",
    "a9a",
    "w8a",
    "cod-rna",
    "ijcnn1",
    "skin_nonskin",
    "covtype",
)
METHODS = ("LinearSVC", "SGDClassifier", "ODM^L", "ODM", "ODM, svrg")
COSTS = (0.01, 0.1, 1.0, 10.0)
SHARES = (0.01, 0.1)
SHAPES = ((0.1, 0.0), (1.0, 0.0), (0.1, 0.5), (1.0, 0.5))
_TUNED_ON = 4000
_DENSE = 0.2  # share of values that are not zero
_QUICK = "generated"
_TITLES = ("Accuracy on large sets (odm.txt, table 4)", "Training time (odm.txt, figure 2)")


def run(options: Options) -> Iterator[Table]:
    """Accuracy, then time."""
    found = settings(options.limit)
    recipe = [(name, [s.words for s in some]) for name, some in found.items()]
    kept = Kept(None if options.results is None else options.results / "large.jsonl", recipe)
    names = (_QUICK,) if options.quick else tuple(filter(options.wants, SETS))
    for name in names:
        jobs = [(name, seed) for seed in range(options.repeats)]
        missing = kept.missing(jobs, lambda r: (r["data"], r["seed"]))
        if not missing:
            continue
        try:
            X, y = _rows(name, options)
        except data.NoData:
            say(f"{name}: no data")
            continue
        for _, seed in missing:
            say(f"{name} {seed}")
            kept.add({"data": name, "seed": seed, **half(X, y, seed, options)})
    records = [r for r in kept.records if r["data"] in names and r["seed"] < options.repeats]
    yield _accuracy(records)
    yield _time(records, options)


def settings(limit: float) -> dict[str, list[Setting]]:
    """What each method chooses from; C is the weight of one row's loss."""
    ldm = partial(LinearLDMClassifier, n_jobs=1, random_state=0, time_limit=limit)
    odm = partial(LinearODMClassifier, n_jobs=1, random_state=0, time_limit=limit)
    return {
        "LinearSVC": [
            Setting(f"C={C:g}", lambda n, C=C: LinearSVC(C=C, random_state=0)) for C in COSTS
        ],
        "SGDClassifier": [
            Setting(
                f"alpha=1/({C:g} n)", lambda n, C=C: SGDClassifier(alpha=1 / C / n, random_state=0)
            )
            for C in COSTS
        ],
        "ODM^L": [
            Setting(
                f"C={C:g} n, lam1=lam2={share:g} C",
                lambda n, C=C, m=share * C: ldm(C=C * n, lam1=m * n, lam2=m * n),
            )
            for C, share in product(COSTS, SHARES)
        ],
        "ODM": [
            Setting(
                f"lam={C:g} n (1-theta)^2, mu={mu:g}, theta={theta:g}",
                lambda n, C=C, mu=mu, theta=theta: odm(
                    lam=C * n * (1 - theta) ** 2, mu=mu, theta=theta
                ),
            )
            for C, (mu, theta) in product(COSTS, SHAPES)
        ],
    }


def _rows(name: str, options: Options) -> tuple[Any, np.ndarray]:
    """All rows of a set, labels 0 and 1; dense where most features have values."""
    if name == _QUICK:
        X, y = problems.tall(600)
        return X, (y > 0).astype(int)
    X, y = data.read(name, options.data)
    if name == "ijcnn1":  # the paper takes both parts together
        B, b = data.read("ijcnn1.t", options.data)
        X, y = sp.vstack([X, B], format="csr"), np.concatenate([y, b])
    if name == "covtype":
        y = (y == 1).astype(int)
    if X.nnz > _DENSE * X.shape[0] * X.shape[1]:
        X = data.to_unit_interval(X.toarray())
    return X, y


def half(X: Any, y: np.ndarray, seed: int, options: Options) -> Record:
    """Accuracy and seconds of each method on one random half."""
    A, B, a, b = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    if sp.issparse(X):
        scaler = MaxAbsScaler().fit(A)
        A, B = scaler.transform(A), scaler.transform(B)
    chosen = _chosen(A, a, options)
    _warm(A, a)
    models = {name: setting.make(len(a)) for name, setting in chosen.items()}
    models["ODM, svrg"] = chosen["ODM"].make(len(a)).set_params(solver="svrg")
    found: Record = {"scores": {}, "seconds": {}, "status": {}}
    for name, model in models.items():
        found["seconds"][name], _ = timed(partial(model.fit, A, a))
        found["scores"][name] = float(model.score(B, b))
        found["status"][name] = getattr(model, "status_", "")
    words = {name: setting.words for name, setting in chosen.items()}
    return {**found, "rows": X.shape[0], "features": X.shape[1], "chosen": words}


def _chosen(A: Any, a: np.ndarray, options: Options) -> dict[str, Setting]:
    """The best settings on some of the training rows, which are in random order."""
    some = min(_TUNED_ON, len(a))
    fold = np.arange(2 * some // 3), np.arange(2 * some // 3, some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = choose(settings(options.limit), [View("", A[:some], A[:0])], a[:some], [fold])
    return {name: setting for name, (_, setting) in found.items()}


def _warm(A: Any, a: np.ndarray) -> None:
    """Compile what "auto" may choose, outside the clock."""
    some = np.concatenate([np.flatnonzero(a == label)[:100] for label in (0, 1)])
    odm = [LinearODMClassifier(solver=name) for name in ("dcd", "newton", "svrg")]
    # whitening by name would not ask how many features there are
    for model in (*odm, LinearLDMClassifier(), LinearLDMClassifier(solver="svrg")):
        timed(partial(model.set_params(max_iter=3, n_jobs=1).fit, A[some], a[some]))


def _accuracy(records: list[Record]) -> Table:
    theirs = {"SVM": 0, "ODM^L": 2, "ODM": 3}  # columns of the paper's table
    columns = ["data", "rows x features", "halves", *METHODS, *(f"paper's {m}" for m in theirs)]
    if not records:
        return Table(_TITLES[0], columns, [["no data"] + [""] * (len(columns) - 1)])
    scores = _by_set(records, "scores")
    rows = []
    for name, found in scores.items():
        first = next(r for r in records if r["data"] == name)
        shape = f"{first['rows']} x {first['features']}"
        copy, paper = printed.COPIES.get(name), printed.LARGE.get(name)
        star = " *" if copy and shape != f"{copy.rows} x {copy.features}" else ""
        marks = [verdicts.MARKS[verdicts.paired(found[m], found["LinearSVC"])] for m in METHODS]
        cells = [
            verdicts.mean_and_spread(found[m]) + k for m, k in zip(METHODS, marks, strict=True)
        ]
        means = [f"{paper.means[k]:.3f}" if paper else "" for k in theirs.values()]
        rows.append([name + star, shape, len(found["ODM"]), *cells, *means])
    for words, share in (("ODM: w/t/l", 0.0), ("the same, corrected for overlap", 1.0)):
        against = verdicts.tally(scores, "ODM", METHODS[:3], share)
        rows.append([words, "", "", *against, "", "", *[""] * len(theirs)])
    note = (
        "Accuracy, mean ± standard deviation over random halves; • better, ○ worse than LinearSVC"
        f" in a paired t-test at 95 %. Weight C of a row's loss of {_list(COSTS)}; ODM^L lam1 ="
        f" lam2 of {_list(SHARES)} times C n; ODM (mu, theta) of {', '.join(map(str, SHAPES))}."
        " * The paper's copy of the set has another shape."
    )
    return Table(_TITLES[0], columns, rows, note, records)


def _time(records: list[Record], options: Options) -> Table:
    columns = ["data", *METHODS, "LinearSVC / ODM"]
    if not records:
        return Table(_TITLES[1], columns, [["no data"] + [""] * (len(columns) - 1)])
    seconds = {
        name: {m: float(np.median(found[m])) for m in METHODS}
        for name, found in _by_set(records, "seconds").items()
    }
    rows = [
        [name, *(found[m] for m in METHODS), found["LinearSVC"] / found["ODM"]]
        for name, found in seconds.items()
    ]
    cut = sorted({f"{m} on {r['data']}" for r in records for m in METHODS if _was_cut(r, m)})
    note = (
        "Seconds of one fit on one thread, the median of the halves."
        f" Stopped at {options.limit:g} s: {', '.join(cut) or 'none'}."
    )
    if options.pictures is not None:
        pictures.training_times(seconds, options.pictures / "large-time.png")
    return Table(_TITLES[1], columns, rows, note)


def _by_set(records: list[Record], what: str) -> dict[str, dict[str, list[float]]]:
    names = dict.fromkeys(r["data"] for r in records)
    return {
        name: {m: [r[what][m] for r in records if r["data"] == name] for m in METHODS}
        for name in names
    }


def _was_cut(record: Record, method: str) -> bool:
    return record["status"][method] == "time_limit"


def _list(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
