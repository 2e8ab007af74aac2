"""Two processes of one thread each, for benchmarks of accuracy: nobody's time is taken there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from joblib import Parallel, delayed, parallel_config

_PROCESSES = 2


def spread(function: Callable[..., Any], jobs: Iterable[Any], *, here: bool) -> Iterator[Any]:
    """``function(*job)`` for each of the jobs, in any order; ``here`` for few and small ones."""
    backend: dict[str, Any] = {} if here else {"inner_max_num_threads": 1}
    with parallel_config("sequential" if here else "loky", **backend):
        pool = Parallel(n_jobs=1 if here else _PROCESSES, return_as="generator_unordered")
        yield from pool(delayed(function)(*job) for job in jobs)
