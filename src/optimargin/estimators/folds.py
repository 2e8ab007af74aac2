"""The folds of a search, posed once for each gamma: what their settings share is made here."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _safe_split

from optimargin.estimators.classifier import MarginClassifier
from optimargin.estimators.judged import Fold, Rows
from optimargin.memory import limit_in_bytes

Split = tuple[np.ndarray, np.ndarray]  # rows to train on, rows to judge by


def prepared(
    plain: MarginClassifier,
    gamma: Any,
    rows: Rows,
    splits: list[Split],
    workers: int,
    pool: ThreadPoolExecutor,
) -> Iterator[list[Fold]]:
    """The folds, as many at a time as the memory limit has room for.

    Their kernel matrices are cut out of that of all rows, where there is one for all.
    """
    model = clone(plain).set_params(**({} if gamma is None else {"gamma": gamma}))
    limit = limit_in_bytes(plain.memory_limit)
    # A fold keeps the kernel values among its training rows, and those of the others with them.
    largest = max(model._footprint(rows.X, len(train)) for train, _ in splits)
    whole = model._footprint(rows.X, len(rows.y))
    shared = None
    if len(splits) > 1 and whole + largest <= limit:
        shared = model._shared(rows.X, limit, workers)
        limit -= whole if shared is not None else 0
    count = int(min(max(limit // max(largest, 1), 1), len(splits)))
    threads = max(1, workers // (count * len(splits)))
    model.set_params(n_jobs=threads, memory_limit=max(limit // count, 1))

    def prepare(number: int) -> Fold:
        return _fold(number, copy.copy(model), rows, splits[number], shared)

    for first in range(0, len(splits), count):
        yield list(pool.map(prepare, range(first, min(first + count, len(splits)))))


def _fold(number: int, model: MarginClassifier, rows: Rows, split: Split, shared: Any) -> Fold:
    train, test = split
    weight = None if rows.weight is None else rows.weight[train]
    X, y = _safe_split(model, rows.X, rows.y, train)
    data = None if shared is None else model._cut(shared, train)
    whole = model._placed(model._pose(X, y, weight, data)[0])
    total = float(len(y) if weight is None else weight.sum())
    whole.sqnorms  # noqa: B018  # once for all settings
    if not len(test):
        return Fold(number, model, whole, total, None, None)
    unseen, labels = _safe_split(model, rows.X, rows.y, test, train)
    judged = Rows(unseen, labels, None if rows.weight is None else rows.weight[test])
    values = None if shared is None else shared.kept[np.ix_(test, train)]
    scores = model._scores_on(whole, unseen, values)
    return Fold(number, model, whole, total, judged, scores)
