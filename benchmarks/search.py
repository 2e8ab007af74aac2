"""Which lam, mu, theta and intercept serve best as defaults, over many data sets.

Objective   accuracy in stratified cross-validation of StandardScaler + ODMClassifier
Grid        lam in powers of two or four x (mu, theta) x intercept x gamma (in units of
            "scale"), on the Gram matrix of each fold
Rules       lam constant, lam = C sqrt(n) or lam = C n: read off the same grid, by linear
            interpolation in log lam, so that a rule costs nothing to try
Check       settings are chosen on one half of the sets and judged on the other, many
            times; sets that are versions of one another stay on one side
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.data import Entry, standardised
from benchmarks.report import Table
from optimargin import ODMClassifier

# Versions of one another: they count as one set when sets are left out.
FAMILIES = {
    "heart_scale": "heart",
    "svmguide1.scale": "svmguide1",
    "german.numer": "credit-g",  # codespell:ignore numer
    "australian": "credit-a",
}
LAMS = [4.0**k for k in range(1, 8)]
SHAPES = [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.2, 0.2), (0.5, 0.2), (1.0, 0.2), (0.5, 0.5)]
GAMMAS = (0.5, 1.0)
FULL_UP_TO = 1500  # rows; beyond, a fit takes seconds and the grid is thinner
RULES = {"constant": 0.0, "root": 0.5, "linear": 1.0}  # lam = C n^power


TIE = 0.002  # difference in accuracy that means nothing


class Cell(NamedTuple):
    """The accuracy of one setting on one fold of one set."""

    set: str
    fold: int
    n: int
    lam: float
    mu: float
    theta: float
    intercept: bool
    gamma: float
    accuracy: float
    svc: float


class Grid(NamedTuple):
    """What to try on a set, and on how many folds."""

    lams: list[float]
    shapes: list[tuple[float, float]]
    intercepts: tuple[bool, ...]
    gammas: tuple[float, ...]
    repeats: int
    folds: int


def grid(entry: Entry, repeats: int) -> Grid:
    """The full grid on small sets, a thin one where a fit takes seconds."""
    if entry.rows <= FULL_UP_TO:
        return Grid(LAMS, SHAPES, (True, False), GAMMAS, repeats, 5)
    return Grid(LAMS[2:], [(0.0, 0.0), (0.5, 0.2)], (True,), GAMMAS, 1, 3)


def folds(y: np.ndarray, repeats: int, count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Stratified folds with fixed seeds, ``repeats`` times over."""
    for seed in range(repeats):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes smaller than the folds
            splits = StratifiedKFold(count, shuffle=True, random_state=seed)
            yield from splits.split(np.zeros(len(y)), y)


def explore(name: str, X: Any, y: np.ndarray, grid: Grid) -> Iterator[Cell]:
    """Every setting of the grid on every fold, with SVC() beside it."""
    for fold, (train, test) in enumerate(folds(y, grid.repeats, grid.folds)):
        A, B = standardised(X[train], X[test])
        variance = A.power(2).mean() - A.mean() ** 2 if hasattr(A, "power") else A.var()
        scale = 1.0 / (A.shape[1] * variance)
        svc = SVC(gamma=scale).fit(A, y[train]).score(B, y[test])
        for gamma in grid.gammas:
            K, L = rbf_kernel(A, gamma=gamma * scale), rbf_kernel(B, A, gamma=gamma * scale)
            for (mu, theta), intercept, lam in product(grid.shapes, grid.intercepts, grid.lams):
                model = ODMClassifier(
                    kernel="precomputed",
                    lam=lam,
                    mu=mu,
                    theta=theta,
                    fit_intercept=intercept,
                    solver="newton",
                    n_jobs=1,
                    random_state=0,
                ).fit(K, y[train])
                score = float(model.score(L, y[test]))
                yield Cell(name, fold, len(train), lam, mu, theta, intercept, gamma, score, svc)


def run(sets: Iterator[tuple[str, Entry, Any, np.ndarray]], repeats: int, path: Path) -> None:
    """Explore every set that ``path`` does not hold yet; append what was found to it."""
    done = {cell.set for cell in load(path)}
    with threadpool_limits(1), warnings.catch_warnings(), path.open("a") as file:
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, entry, X, y in sets:
            if name not in done:
                cells = explore(name, X, y, grid(entry, repeats))
                file.writelines(json.dumps(cell) + "\n" for cell in list(cells))
                file.flush()


def load(path: Path) -> list[Cell]:
    """The cells of an earlier run."""
    return [Cell(*json.loads(line)) for line in path.open()] if path.is_file() else []


class Setting(NamedTuple):
    """A candidate for the defaults: lam = factor * n^power, and the rest."""

    rule: str
    factor: float
    mu: float
    theta: float
    intercept: bool
    gamma: float


def table(cells: list[Cell]) -> tuple[list[str], list[Setting], np.ndarray, np.ndarray]:
    """Sets, settings, the accuracy of each setting on each set, and that of SVC()."""
    names = sorted({cell.set for cell in cells})
    curves: dict[tuple[Any, ...], dict[float, list[float]]] = {}
    svc: dict[str, dict[int, float]] = {}
    rows: dict[str, int] = {}
    for cell in cells:
        key = (cell.set, cell.mu, cell.theta, cell.intercept, cell.gamma)
        curves.setdefault(key, {}).setdefault(cell.lam, []).append(cell.accuracy)
        svc.setdefault(cell.set, {})[cell.fold] = cell.svc
        rows[cell.set] = cell.n
    shared = set.intersection(*({k[1:] for k in curves if k[0] == name} for name in names))
    settings = [
        Setting(rule, factor, *shape)
        for rule in RULES
        for factor in _factors(RULES[rule])
        for shape in sorted(shared)
    ]
    accuracy = np.empty((len(names), len(settings)))
    for i, name in enumerate(names):
        for j, setting in enumerate(settings):
            curve = curves[(name, *setting[2:])]
            lams = sorted(curve)
            lam = setting.factor * rows[name] ** RULES[setting.rule]
            means = [np.mean(curve[value]) for value in lams]
            accuracy[i, j] = np.interp(np.log(lam), np.log(lams), means)
    return names, settings, accuracy, np.array([np.mean(list(svc[n].values())) for n in names])


def _factors(power: float) -> list[float]:
    """Powers of two around the useful range of lam at some 500 rows."""
    middle = round(np.log2(128.0 / 500.0**power))
    return [2.0 ** (middle + k) for k in range(-6, 7)]


def left_out(
    names: list[str], accuracy: np.ndarray, svc: np.ndarray, rounds: int = 500
) -> tuple[np.ndarray, np.ndarray]:
    """Choose on half of the families, judge on the others.

    Returns the mean advantage over SVC() on the sets that had no say, round by round, and
    which setting was chosen.
    """
    rng = np.random.default_rng(0)
    advantage = accuracy - svc[:, None]
    family = np.unique([FAMILIES.get(n, n) for n in names], return_inverse=True)[1]
    judged, chosen = [], []
    for _ in range(rounds):
        voting = (rng.permutation(family.max() + 1) % 2 == 0)[family]
        best = int(advantage[voting].mean(axis=0).argmax())
        chosen.append(best)
        judged.append(advantage[~voting, best].mean())
    return np.array(judged), np.array(chosen)


def report(cells: list[Cell], shown: int = 8) -> Iterator[Table]:
    """The best settings of each rule: all settings on small sets, the shared ones on all sets."""
    if not cells:
        yield Table("Search", ["setting"], [["no data"]])
        return
    small = [cell for cell in cells if cell.n <= FULL_UP_TO * 4 // 5]
    for title, chosen in ((f"sets of at most {FULL_UP_TO:,} rows", small), ("all sets", cells)):
        if chosen and (chosen is small or len(small) < len(cells)):
            yield from (_ranking(rule, title, *table(chosen), shown) for rule in RULES)


def _ranking(
    rule: str,
    title: str,
    names: list[str],
    settings: list[Setting],
    accuracy: np.ndarray,
    svc: np.ndarray,
    shown: int,
) -> Table:
    """The settings of one rule, best mean advantage over SVC() first, with the check."""
    mine = [j for j, setting in enumerate(settings) if setting.rule == rule]
    settings, accuracy = [settings[j] for j in mine], accuracy[:, mine]
    advantage = accuracy - svc[:, None]
    families = [FAMILIES.get(name, name) for name in names]
    share = np.array([1.0 / families.count(family) for family in families])
    mean = share @ advantage / share.sum()
    rank = share @ np.array([rankdata(-row.round(6)) for row in accuracy]) / share.sum()
    judged, chosen = left_out(names, accuracy, svc)
    unit = {"constant": "", "root": " sqrt(n)", "linear": " n"}[rule]
    rows = [
        [
            f"{settings[j].factor:g}{unit}",
            *settings[j][2:4],
            "yes" if settings[j].intercept else "no",
            settings[j].gamma,
            f"{100 * mean[j]:+.2f}",
            f"{rank[j]:.0f}",
            int((advantage[:, j] > TIE).sum()),
            int((advantage[:, j] < -TIE).sum()),
            f"{100 * advantage[:, j].min():+.1f}",
        ]
        for j in np.argsort(-mean, kind="stable")[:shown]
    ]
    columns = ["lam", "mu", "theta", "intercept", "gamma", "points over SVC()"]
    columns += ["mean rank", "wins", "losses", "worst"]
    often = settings[np.bincount(chosen).argmax()]
    note = (
        f"{len(names)} sets; versions of a set share one vote; gamma in units of 'scale'. Chosen on"
        f" half of the sets and judged on the others: {100 * judged.mean():+.2f} points; most often"
        f" chosen there: lam={often.factor:g}{unit}, mu={often.mu:g}, theta={often.theta:g},"
        f" intercept {'yes' if often.intercept else 'no'}, gamma={often.gamma:g}."
    )
    return Table(f"Search, {title}, lam {rule}", columns, rows, note)
