"""Time several callables side by side on a noisy machine."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_SETTLE = 0.3  # seconds before each call: some libraries' threads spin for a while


class Timed(NamedTuple):
    """The seconds of every repeat, and what the last one returned."""

    seconds: list[float]
    result: Any

    @property
    def best(self) -> float:
        """The least disturbed repeat."""
        return min(self.seconds)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, and what it returned; warnings of convergence are not news here."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        result = call()
        return time.perf_counter() - began, result


def side_by_side(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, Timed]:
    """Every call ``repeats`` times, taking turns, so that a slow spell of the machine hits all.

    A turn is two calls in a row: the first finds the memory as others left it.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    results: dict[str, Any] = {}
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(_SETTLE)
            for _ in range(2):
                elapsed, results[name] = timed(call)
                seconds[name].append(elapsed)
    return {name: Timed(seconds[name], results[name]) for name in calls}
