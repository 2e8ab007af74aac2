"""Row ranges, and threads to work on them.

Sums are made range by range in a fixed order, and the ranges depend on the shape of the
data alone, so no result depends on how many threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

R = TypeVar("R")
T = TypeVar("T")

_BLOCK = 1 << 19  # values in a block of rows
_COLUMNS = 800  # of a matrix that more than one thread of BLAS works on


def spans(n: int, width: int) -> list[slice]:
    """Consecutive slices of at most ``width`` rows that cover n rows."""
    return [slice(s, min(s + width, n)) for s in range(0, n, width)]


def blocks(X: Any) -> list[slice]:
    """Slices that cover the rows of X, of some megabytes each."""
    return spans(X.shape[0], max(256, _BLOCK // max(X.shape[1], 1)))


def shares(n: int, count: int) -> list[slice]:
    """At most ``count`` consecutive slices of about equal length that cover n rows."""
    return spans(n, max(1, -(-n // max(count, 1))))


def spread(task: Callable[[R], T], ranges: Sequence[R], threads: int) -> list[T]:
    """``[task(r) for r in ranges]``, on several threads where the task releases the GIL.

    The caller works too, and everybody takes the next range when done with one: waking
    a thread costs as much as a pass over some thousand rows, so it happens once for each.
    """
    if threads <= 1 or len(ranges) <= 1:
        return [task(r) for r in ranges]
    results: list[Any] = [None] * len(ranges)
    turns = iter(range(len(ranges)))

    def work() -> None:
        for k in turns:
            results[k] = task(ranges[k])

    helpers = [_pool(threads).submit(work) for _ in range(min(threads, len(ranges)) - 1)]
    try:
        work()
    finally:
        for _ in turns:  # after an error nobody starts anything new
            pass
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    return results


def blas_threads(count: int, size: float = math.inf) -> AbstractContextManager[Any]:
    """Inside this context the BLAS libraries use at most ``count`` threads of their own.

    For matrices with fewer columns than pay, given by ``size``, it is one: on a busy machine
    threads wait for each other longer than they work.
    """
    count = count if size >= _COLUMNS else 1
    return _controller().limit(limits=count, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: starting them anew costs more than a pass over small data."""
    return ThreadPoolExecutor(threads, thread_name_prefix="optimargin")
