"""Several classes: accuracy by the protocol of the mcODM paper, and the cost of an epoch.

Accuracy    80/20 splits, features in [0, 1], every method tuned by 5-fold cross-validation on
            the same folds (mcodm.txt section 6); grids are thinned, and the table says so
Epoch       LIBLINEAR's Crammer-Singer solver takes no limit of epochs, so loose tolerances
            stand for the first few; one of ours is a sweep over all rows
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import LinearSVC

from benchmarks import data
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.timing import timed
from optimargin import LinearODMClassifier
from optimargin.loss import odm
from optimargin.problem import Problem, Start
from optimargin.solvers.rowwise import begin, freeze, sweep

SMALL = ("iris", "wine", "glass", "svmguide2", "vehicle", "vowel", "segment", "dna")
EPOCHS = ("letter", "usps", "news20", "mnist")
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
_COSTS = 2.0 ** np.arange(0, 21, 4)
_BAND = (0.2, 0.8)
_SEVERAL = 2  # epochs that are timed at least
_LONG = 50  # the same, of a long run
_LOOSE = (1e4, 70.0, 50.0, 30.0, 20.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.0, 1.0)

Maker = Callable[[], Any]


def run(options: Options) -> Iterator[Table]:
    """Accuracy, then epochs."""
    yield _accuracy(options)
    yield _epochs(options)


def candidates(n: int) -> dict[str, list[Maker]]:
    """The settings that each method chooses from, for n training rows."""
    ours = partial(LinearODMClassifier, random_state=0, time_limit=10.0)
    svm = partial(LinearSVC, random_state=0, max_iter=2000)
    return {
        "mcODM": [
            partial(ours, lam=lam, mu=mu, theta=theta)
            for lam, mu, theta in product(_COSTS, _BAND, _BAND)
        ],
        "ODM, one against the rest": [
            partial(ours, multi_class="ovr", lam=lam, mu=mu, theta=theta)
            for lam, mu, theta in product(_COSTS, _BAND, _BAND)
        ],
        "LinearSVC": [partial(svm, C=lam / n, dual=False) for lam in _COSTS],
        # its stopping rule is all there is to bound its time
        "Crammer-Singer": [
            partial(svm, C=lam / n, multi_class="crammer_singer", tol=0.01) for lam in _COSTS
        ],
    }


def _accuracy(options: Options) -> Table:
    methods = list(candidates(1))
    columns = ["data", "rows", "classes", *methods, "paper's mcODM"]
    rows, records = [], []
    names = () if options.quick else SMALL
    for name, X, y in _sets(names, options):
        scores = np.array([_one_split(X.toarray(), y, seed) for seed in range(options.repeats)])
        mean, spread = 100 * scores.mean(axis=0), 100 * scores.std(axis=0)
        cells = [f"{m:.1f} ± {s:.1f}" for m, s in zip(mean, spread, strict=True)]
        paper = "{} ± {}".format(*PAPER[name])
        rows.append([name, len(y), int(y.max()) + 1, *cells, paper])
        records += [
            {"data": name, "method": m, "scores": list(s)}
            for m, s in zip(methods, scores.T.tolist(), strict=True)
        ]
    grid = f"lam or C n from {', '.join(f'{c:g}' for c in _COSTS)}; mu and theta from {_BAND}"
    note = f"{options.repeats} splits; thinned grid: {grid}. Accuracy in per cent."
    return Table("Accuracy of linear machines", columns, rows, note, records)


def _sets(names: tuple[str, ...], options: Options) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Those of the sets that are wanted and there."""
    for name in filter(options.wants, names):
        try:
            X, y = data.read(name, options.data)
        except data.NoData:
            say(f"{name}: no data")
            continue
        say(name)
        yield name, X, y


def _one_split(X: np.ndarray, y: np.ndarray, seed: int) -> list[float]:
    """Test accuracy of each method at the setting it chose."""
    X = data.to_unit_interval(X)
    A, B, a, b = train_test_split(X, y, test_size=0.2, stratify=y, random_state=seed)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(A, a))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for makers in candidates(len(a)).values():
            means = [
                np.mean([make().fit(A[i], a[i]).score(A[j], a[j]) for i, j in folds])
                for make in makers
            ]
            found.append(makers[int(np.argmax(means))]().fit(A, a).score(B, b))
    return found


def _epochs(options: Options) -> Table:
    columns = ["data", "rows", "classes", "epochs", "LIBLINEAR", "ours", "LIBLINEAR / ours"]
    columns += ["of epochs", "LIBLINEAR, shrunk"]
    rows = []
    for name, X, y in _sets(() if options.quick else EPOCHS, options):
        X, y = data.shuffled(X, y)
        X, y = X[:20_000], y[:20_000]
        X = X if name == "news20" else data.to_unit_interval(X.toarray())
        e = _epoch(X, y, options.repeats)
        cells = [e.few, f"{e.first:.4f}", f"{e.ours:.4f}", e.first / e.ours]
        cells += [e.many, f"{e.shrunk:.4f}"]
        rows.append([name, len(y), int(y.max()) + 1, *cells])
    note = (
        "Seconds an epoch: of LIBLINEAR's first few, which shrink from the first on; of our first"
        " four, over all rows; and the mean of many of LIBLINEAR's, most of them over few rows."
        " Both are given the same matrix, and both leave out its zeros before the clock starts."
    )
    return Table("Cost of an epoch", columns, rows, note)


class Epochs(NamedTuple):
    """How many of LIBLINEAR's epochs were timed, and the seconds of one: theirs and ours."""

    few: int
    many: int
    first: float
    shrunk: float
    ours: float


def _epoch(X: Any, y: np.ndarray, repeats: int) -> Epochs:
    """Both in turns; an epoch of theirs is the difference between two least disturbed runs."""
    n, k = len(y), int(y.max()) + 1
    problem = Problem(X, y, None, odm(float(n), 0.5, 0.5, n), 1.0, classes=k)
    _sweeps(problem, 1)  # compiles
    seconds: dict[int, float] = {}  # by the number of epochs
    ours = np.inf
    for _ in range(repeats):
        for tol in _LOOSE:
            model = LinearSVC(multi_class="crammer_singer", C=1.0, tol=tol, random_state=0)
            elapsed, _ = timed(partial(model.fit, X, y))
            seconds[model.n_iter_] = min(elapsed, seconds.get(model.n_iter_, np.inf))
            if model.n_iter_ > _LONG:
                break
        ours = min(ours, _sweeps(problem, 4))
    once, last = min(seconds), max(seconds)
    few = min((count for count in seconds if count >= once + _SEVERAL), default=last)
    first, shrunk = ((seconds[c] - seconds[once]) / (c - once) for c in (few, last))
    return Epochs(few - once, last - once, first, shrunk, ours)


def _sweeps(problem: Problem, count: int) -> float:
    """Mean seconds of our first sweeps over all rows."""
    s, seconds, gain = begin(problem, Start()), 0.0, np.empty(problem.n)
    for seed in range(count):
        freeze(problem, s, "index")
        order = np.random.default_rng(seed).permutation(problem.n)
        duals = (s.r, s.M, problem.weight, problem.sqnorms, s.dual, s.beta, s.near)
        seconds += timed(partial(sweep, problem.loss, s.rows, problem.y, *duals, order, 0.0, gain))[
            0
        ]
    return seconds / count
