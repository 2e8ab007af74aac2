"""A sample of rows that are with their parts: some of every part, in one place.

Every part draws its share at random, and the seed and its number decide which rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.engines.local import Part
from optimargin.loss import Loss, scaled


class Drawn(NamedTuple):
    """Some rows, how many each of them stands for, and the codes by which parts know them."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None
    times: np.ndarray
    code: np.ndarray

    def losses(self, loss: Loss) -> Loss:
        """The loss of each row."""
        return loss if self.weight is None else scaled(loss, self.weight)


def draw(part: Part, size: int, n: int, seed: int) -> list[Drawn]:
    """A part's share of a sample of so many rows of n, as a list: those of all parts make one."""
    return [chosen(part, rows_of(part, size, n, seed), size)]


def rows_of(part: Part, size: int, n: int, seed: int) -> np.ndarray:
    """The rows of a part that are in the sample."""
    m = part.problem.n
    count = min(m, -(-size * m // n))
    return np.sort(np.random.default_rng([seed, part.number]).permutation(m)[:count])


def chosen(part: Part, rows: np.ndarray, size: int) -> Drawn:
    """These rows of a part."""
    problem, count = part.problem, len(rows)
    weight = None if problem.weight is None else problem.weight[rows]
    times = np.full(count, problem.n / max(count, 1))
    code = part.number * (size + 1) + np.arange(count)
    return Drawn(problem.X[rows], problem.y[rows], weight, times, code)


def joined(drawn: list[Drawn]) -> Drawn:
    """The rows that all parts have drawn; parts follow each other, so codes are in order."""
    X, y, weight, times, code = zip(*drawn, strict=True)
    rows = sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.concatenate(X)
    weights = None if weight[0] is None else np.concatenate(weight)
    return Drawn(rows, np.concatenate(y), weights, np.concatenate(times), np.concatenate(code))
