"""The machines of cells as one function: a row is judged by those of the nearest cells.

Rows are grouped by the cells that they ask, a cell is one task, and what the cells say is added up
in the order of their distance: nothing depends on how many threads there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from optimargin.cells import Near, ranked
from optimargin.expansion import Expansion
from optimargin.kernels import Kernel
from optimargin.threads import blas_threads, spans, spread

_ROWS = 1 << 17  # judged at a time


@dataclass(frozen=True, eq=False)
class Patchwork:
    """Functions sum_j B[m, j] K(z_j, .) + constant[cell, m] over the rows z_j of each cell.

    The cell k has the rows from ``ends[k]`` to ``ends[k + 1]`` of ``Z``.
    """

    kernel: Kernel
    centres: np.ndarray
    Z: Any
    B: np.ndarray
    ends: np.ndarray
    constant: np.ndarray
    dtype: Any

    @cached_property
    def _expansions(self) -> list[Expansion]:
        return [
            Expansion(self.kernel, self.Z[a:b], self.B[:, a:b], self.dtype)
            for a, b in pairwise(self.ends.tolist())
        ]

    def scores(self, X: Any, asked: int, threads: int) -> np.ndarray:
        """The values at the rows of X, an array of shape (rows of X, rows of B)."""
        out = np.empty((X.shape[0], len(self.B)))
        with blas_threads(1):  # ours are enough
            for span in spans(X.shape[0], _ROWS):
                near = ranked(X[span], self.centres, asked, threads)
                weight = near.weight
                said = self._said(X[span], near, weight > 0.0, threads)
                out[span] = np.einsum("ij,ijm->im", weight, said)
        return out

    def _said(self, X: Any, near: Near, asked: np.ndarray, threads: int) -> np.ndarray:
        """What each of the cells near a row says of it, where it is asked."""
        said = self.constant[near.cell]
        cell = near.cell[asked]
        order = np.argsort(cell, kind="stable")
        row, place = (index[order] for index in np.nonzero(asked))
        ends = np.searchsorted(cell[order], np.arange(len(self.centres) + 1))
        expansions = self._expansions

        def task(k: int) -> None:
            some = slice(ends[k], ends[k + 1])
            said[row[some], place[some]] += expansions[k].scores(X[row[some]])

        busy = np.flatnonzero((np.diff(ends) > 0) & (np.diff(self.ends) > 0))
        spread(task, busy.tolist(), threads)
        return said
