"""The seconds of one iteration of a multi-class solver: LIBLINEAR's Crammer-Singer, and ours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks import data, multiclass
from benchmarks.methods import Options
from benchmarks.report import say
from benchmarks.timing import timed
from optimargin.loss import odm
from optimargin.problem import Problem

ROWS = 20_000
_LOOSE = (1e4, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
_SEVERAL = 3  # epochs that are timed at least
_SWEEPS = 4
_DENSE = 0.1  # share of values that are not zero
_VISITS = 5_000  # to rows, before a clock can be trusted
_TRIALS = 30  # of what is over in no time


def sets(names: tuple[str, ...], options: Options) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Those of the sets that are wanted and there: features in [0, 1], sparse ones as they are."""
    for name in filter(options.wants, names):
        try:
            X, y = data.read(name, options.data)
        except data.NoData:
            say(f"{name}: no data")
            continue
        say(f"{name}: one iteration")
        X, y = data.shuffled(X, y)
        X, y = X[:ROWS], y[:ROWS]
        if X.nnz > _DENSE * X.shape[0] * X.shape[1]:
            X = data.to_unit_interval(X.toarray())
        yield name, X, y


def seconds(X: Any, y: np.ndarray, repeats: int) -> tuple[float, float]:
    """Crammer-Singer's iteration and ours, the best of several trials."""
    n, classes = len(y), int(y.max()) + 1
    problem = Problem(X, y, None, odm(float(n), 0.5, 0.5, n), 1.0, classes=classes)
    multiclass._sweeps(problem, 1)  # compiles
    ours = min(multiclass._sweeps(problem, _SWEEPS) for _ in range(repeats))
    return _crammer_singer(X, y, repeats), ours


def _crammer_singer(X: Any, y: np.ndarray, repeats: int) -> float:
    """LIBLINEAR's iteration: what a fit with some more of them takes longer, for each.

    Its solver takes no limit of iterations, so a loose tolerance stands for the first few and
    a tighter one for more: so many that the rows they visit take longer than a clock errs.
    """

    def trial(tol: float, times: int) -> tuple[float, int]:
        model = LinearSVC(multi_class="crammer_singer", C=1.0, tol=tol, random_state=0)
        return min(timed(partial(model.fit, X, y))[0] for _ in range(times)), model.n_iter_

    tight, (_, first) = _LOOSE[0], trial(_LOOSE[0], 1)
    for tight in _LOOSE[1:]:
        more = trial(tight, 1)[1] - first
        if more >= max(_SEVERAL, _VISITS // len(y)):
            break
    times = repeats * (1 if len(y) > _VISITS else _TRIALS)
    (short, few), (long, many) = trial(_LOOSE[0], times), trial(tight, times)
    return (long - short) / max(many - few, 1)
