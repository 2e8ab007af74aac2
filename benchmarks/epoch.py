"""The seconds of one epoch of a multi-class solver: LIBLINEAR's Crammer-Singer, and ours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks import data
from benchmarks.methods import Options
from benchmarks.report import say
from benchmarks.timing import timed
from optimargin.loss import odm
from optimargin.problem import Problem, Start
from optimargin.solvers.rowwise import begin, freeze, sweep

ROWS = 20_000
_LOOSE = (1e4, 70.0, 50.0, 30.0, 20.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.0, 1.0)
_SEVERAL = 2  # epochs that are timed at least
_LONG = 50  # the same, of a long run
_SWEEPS = 4  # of ours that are timed
_DENSE = 0.1  # share of values that are not zero
_VISITS = 5_000  # to rows, before a clock can be trusted
_TRIALS = 2  # of what is over in no time


def sets(names: tuple[str, ...], options: Options) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Those of the sets that are wanted and there: features in [0, 1], sparse ones as they are."""
    for name in filter(options.wants, names):
        try:
            X, y = data.read(name, options.data)
        except data.NoData:
            say(f"{name}: no data")
            continue
        say(f"{name}: one epoch")
        X, y = data.shuffled(X, y)
        X, y = X[:ROWS], y[:ROWS]
        if X.nnz > _DENSE * X.shape[0] * X.shape[1]:
            X = data.to_unit_interval(X.toarray())
        yield name, X, y


class Epochs(NamedTuple):
    """How many of LIBLINEAR's epochs were timed, and the seconds of one: theirs and ours."""

    few: int
    many: int
    first: float
    shrunk: float
    ours: float


def measure(X: Any, y: np.ndarray, repeats: int) -> Epochs:
    """Both in turns; an epoch of theirs is the difference between two least disturbed runs.

    LIBLINEAR's solver takes no limit of epochs, so tighter and tighter tolerances stand for
    more and more of them.
    """
    n, k = len(y), int(y.max()) + 1
    problem = Problem(X, y, None, odm(float(n), 0.5, 0.5, n), 1.0, classes=k)
    _sweeps(problem, 1)  # compiles
    seconds: dict[int, float] = {}  # by the number of epochs
    ours, few_rows, enough = np.inf, n <= _VISITS, max(_SEVERAL, _VISITS // n)
    for _ in range(repeats * (_TRIALS if few_rows else 1)):
        for tol in _LOOSE:
            model = LinearSVC(multi_class="crammer_singer", C=1.0, tol=tol, random_state=0)
            elapsed, _ = timed(partial(model.fit, X, y))
            count = int(model.n_iter_)
            seconds[count] = min(elapsed, seconds.get(count, np.inf))
            if count > _LONG or (few_rows and count >= min(seconds) + enough):
                break
        ours = min(ours, _sweeps(problem, _SWEEPS))
    once, last = min(seconds), max(seconds)
    few = min((count for count in seconds if count >= once + enough), default=last)
    first, shrunk = (
        (seconds[count] - seconds[once]) / max(count - once, 1) for count in (few, last)
    )
    return Epochs(few - once, last - once, first, shrunk, ours)


def _sweeps(problem: Problem, count: int) -> float:
    """Mean seconds of our first sweeps over all rows."""
    s, seconds, gain = begin(problem, Start()), 0.0, np.empty(problem.n)
    for seed in range(count):
        freeze(problem, s, "index")
        order = np.random.default_rng(seed).permutation(problem.n)
        duals = (s.r, s.M, problem.weight, problem.sqnorms, s.dual, s.beta, s.near)
        one = partial(sweep, problem.loss, s.rows, problem.y, *duals, order, 0.0, gain)
        seconds += timed(one)[0]
    return seconds / count
