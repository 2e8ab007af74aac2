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
                said = self._said(X[span], near, threads)
                out[span] = np.einsum("ij,ijm->im", near.weight, said)
        return out

    def _said(self, X: Any, near: Near, threads: int) -> np.ndarray:
        """What each of the cells near a row says of it."""
        said, asked = self.constant[near.cell], near.cell.shape[1]
        order = np.argsort(near.cell, axis=None, kind="stable")
        ends = np.searchsorted(near.cell.ravel()[order], np.arange(len(self.centres) + 1))

        def task(cell: int) -> None:
            row, place = np.divmod(order[ends[cell] : ends[cell + 1]], asked)
            said[row, place] += self._expansions[cell].scores(X[row])

        has_rows = np.diff(self.ends) > 0
        busy = np.flatnonzero((np.diff(ends) > 0) & has_rows)
        _ = self._expansions  # made once, not by every thread
        spread(task, busy.tolist(), threads)
        return said
