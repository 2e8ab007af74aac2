"""What training will take, before it starts: seconds and bytes, exact, in parts, over landmarks.

Work is counted (products, kernel values, bytes read; see the heads of the solvers) and divided by
rates that this machine shows in a few milliseconds.  How many rounds a solver will need is not
known beforehand: the counts below are typical, so seconds are right within a factor of about three.
A choice between solvers goes by usual rates instead, so that it is the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from optimargin.memory import in_words
from optimargin.sketch import footprint
from optimargin.solvers.place import pool_size
from optimargin.threads import blas_threads

_ROUNDS = 30  # of coordinate descent on all rows
_ALL, _CURVED = 16, 25  # passes over the values of all rows, and as many as those of the curved
_GUIDES = 4  # made on the way
_DIRECT = 8.0  # cubes of landmarks in a guide
_SINGLE, _FEW = 4096, 2500  # rows: kernel values are single precision above; exact answers below
_EXACT_UP_TO = 10_000  # rows for which nobody expects anything else than an exact machine
TYPICAL = 2000  # landmarks where their number is yet to be found


class Rates(NamedTuple):
    """What this machine does in a second, with some threads."""

    products: float  # multiplications and additions in a product of matrices, single precision
    values: float  # exponentials
    bytes: float  # read from memory


USUAL = Rates(1.5e11, 2e9, 2.5e10)  # of two cores


class Outlook(NamedTuple):
    """What to expect of a solver."""

    solver: str
    n_landmarks: int | None
    seconds: float
    bytes: float

    def __str__(self) -> str:
        over = "" if self.n_landmarks is None else f" with {self.n_landmarks} landmarks"
        return f"{self.solver}{over}: about {self.seconds:.2g} s and {in_words(self.bytes)}"


@cache
def rates(threads: int) -> Rates:
    """Measured once."""
    A = np.ones((768, 768), dtype=np.float32)
    line, long = np.zeros(1 << 18, dtype=np.float32), np.ones(1 << 23, dtype=np.float32)
    with blas_threads(threads):
        product = _quickest(lambda: A @ A)
    value = _quickest(lambda: np.exp(line, out=line))
    read = _quickest(lambda: long.sum())
    together = min(threads, 2) if threads > 1 else 1  # memory has room for about two
    return Rates(2.0 * 768**3 / product, threads * line.size / value, together * long.nbytes / read)


def _quickest(work: Callable[[], object]) -> float:
    found = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return max(min(found), 1e-9)


def exact(n: int, d: float, limit: float, rate: Rates) -> Outlook:
    """Of the exact solvers, for n rows with d values each."""
    size = 8.0 if n <= _SINGLE else 4.0
    matrix = size * n * n
    fill = n * n * (2.0 * d / rate.products + 1.0 / rate.values)
    times = 1 if matrix <= limit else _ROUNDS
    work = _ROUNDS * matrix * 2.0 / rate.bytes  # coordinate descent has one thread
    factor = 10.0 * n**3 / 3.0 / rate.products if n <= _FEW else 0.0
    return Outlook("exact", None, fill * times + work + factor, min(matrix, limit) + 100.0 * n)


def in_parts(
    n: int, d: float, counts: list[int], threads: int, limit: float, rate: Rates
) -> Outlook:
    """Of exact solvers on parts of the rows, so many of them at every level."""
    seconds, most = 0.0, 0.0
    for count in counts:
        at_once = min(threads, count)
        one = exact(-(-n // count), d, limit / at_once, rate)
        seconds += count * one.seconds / at_once
        most = max(most, at_once * one.bytes)
    return Outlook("sodm", None, seconds, most + 100.0 * n)


def landmark(n: int, d: float, S: int, limit: float, rate: Rates) -> Outlook:
    """Of the solver over S landmarks."""
    S = min(S, n)
    one = n * S * (2.0 * d / rate.products + 1.0 / rate.values)
    values = 4.0 * n * S
    kept = min(max((limit - footprint(n, S, 0)) / values, 0.0), 1.0)
    read = (_ALL + _CURVED / 2) * values / rate.bytes
    again = (1.0 - kept) * (_ALL + _CURVED / 2) * one
    guides = _GUIDES * _DIRECT * S**3 / rate.products
    placing = 1.5 * pool_size(n, S) * (S / 2.0) ** 2 * 4.0 / rate.products + 0.5 * guides
    memory = footprint(n, S, kept * values)
    return Outlook("landmark", S, one + read + again + guides + placing, memory)


def landmarks_pay(n: int, d: float, S: int, limit: float) -> bool:
    """Whether the solver over landmarks is to be taken, at usual rates; never on few rows."""
    if n <= _EXACT_UP_TO:
        return False
    return landmark(n, d, S, limit, USUAL).seconds < exact(n, d, limit, USUAL).seconds
