"""Many settings on many folds, on several threads; then the best of them once more, exactly.

Folds take turns, a lam at a time.  Their answers are as good as ``tol`` asks for, which may turn
a few rows of a fold the wrong way.  On so few rows that the plain classifier is exact, the
contenders are trained exactly too, best first, until no other could win unless its score moved
by more than any has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any

import numpy as np

from optimargin.estimators.classifier import MarginClassifier
from optimargin.estimators.folds import Split, prepared
from optimargin.estimators.judged import Fold, Rows, Setting
from optimargin.estimators.path import Grid, Outcome, Scorer, refined, walk
from optimargin.problem import Stop
from optimargin.threads import blas_threads

_AT_ONCE = 4  # contenders that are trained exactly at a time, which keeps all threads busy


def explore(
    plain: MarginClassifier,
    grid: Grid,
    rows: Rows,
    splits: list[Split],
    scorer: Scorer | None,
    workers: int,
) -> Iterator[Outcome]:
    """Every setting on every fold, in the order in which they are done; the last word counts.

    Without a scorer there is nothing to judge by but the leave-one-out bound.
    """
    halt = Event()  # an interrupt reaches one thread only; the others look here
    stop = Stop(plain.tol, plain.max_iter, callback=lambda *_: halt.is_set())
    best = -np.inf
    with ThreadPoolExecutor(workers) as pool, blas_threads(1):
        try:
            for gamma in grid.gammas:
                for folds in prepared(plain, gamma, rows, splits, workers, pool):
                    found: list[Outcome] = []
                    paths = [walk(fold, grid, gamma, stop, scorer) for fold in folds]
                    for outcomes in _in_turn(paths, pool):
                        found += outcomes
                        yield from outcomes
                    if len(folds) == len(splits) and all(fold.is_rough for fold in folds):
                        best = yield from _contest(folds, found, best, stop, scorer, pool)
        except BaseException:
            halt.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _in_turn(paths: list[Iterator[list[Outcome]]], pool: ThreadPoolExecutor) -> Iterator[Any]:
    """What the paths give; each goes to the end of the queue after every step."""
    tasks: dict[Future[Any], Any] = {pool.submit(next, path, None): path for path in paths}
    while tasks:
        for task in wait(tasks, return_when=FIRST_COMPLETED).done:
            path, outcomes = tasks.pop(task), task.result()
            if outcomes is not None:
                tasks[pool.submit(next, path, None)] = path
                yield outcomes


def _contest(
    folds: list[Fold],
    found: list[Outcome],
    best: float,
    stop: Stop,
    scorer: Scorer | None,
    pool: ThreadPoolExecutor,
) -> Generator[Outcome, None, float]:
    """Exact outcomes of the settings that may be the best; returns the best mean score."""
    rough: dict[Setting, list[Outcome]] = defaultdict(list)
    for outcome in found:
        rough[outcome.setting].append(outcome)
    order = sorted(rough, key=lambda setting: -_mean(rough[setting]))
    moved = 0.0
    for first in range(0, len(order), _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        if _mean(rough[some[0]]) + moved < best:
            break
        tasks = {
            setting: [pool.submit(refined, folds[o.fold], o, stop, scorer) for o in rough[setting]]
            for setting in some
        }
        for setting in some:
            exact = [task.result() for task in tasks[setting]]
            moved = max(moved, abs(_mean(exact) - _mean(rough[setting])))
            best = max(best, _mean(exact))
            yield from exact
    return best


def _mean(outcomes: list[Outcome]) -> float:
    return float(np.mean([outcome.score for outcome in outcomes]))
