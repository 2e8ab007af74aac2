"""Machines of cells: a kernel machine where rows are, in place of one for all.

Problem   for every cell, min P over its rows and those just outside of it, with the losses that
          the rows have in the whole.  A kernel that falls with distance hardly sees rows of other
          cells, so the machines together are about the one of all rows
Update    one pass: every cell is solved, exactly or over landmarks of its own.  With more than two
          classes it has a machine for each that it has rows of, against the rest; where it has
          rows of one class only, its scores are constants
Source    the early prediction of divide-and-conquer SVM.  Ours: cells of about equal size, rows of
          the neighbours, and the scores of several cells blended (see `cells`)
Cost      with m rows in a cell n m kernel values, none of which outlasts its cell; rows travel
          once, one number for every row and machine and a line for every cell come back
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.cells import make_centres, neighbours, ranked
from optimargin.engines.local import LocalEngine, Part, State, some_rows
from optimargin.gram import make_gram, precision
from optimargin.kernels import RBF, Kernel, Laplacian, Linear
from optimargin.problem import Problem, Start, Status, Stop
from optimargin.solvers.outlook import TYPICAL, landmarks_pay
from optimargin.solvers.place import Wish, place
from optimargin.solvers.train import Plan, train

HOW = ("margin", "greedy", "random")  # landmarks that are rows
ROWS = 2500  # of a cell, where nobody says how many cells there are to be
_STATUSES = tuple(Status)


@dataclass(frozen=True)
class Local:
    """What every cell is told.

    ``count`` landmarks, None as many as pay, where ``exact`` does not forbid them; kernel values
    may take ``limit`` bytes.
    """

    kernel: Kernel
    count: int | None
    exact: bool
    how: str
    limit: float
    stop: Stop
    seed: int

    def has_landmarks(self, problem: Problem) -> bool:
        """Whether a cell's machines are sought over landmarks."""
        if self.exact or self.count is not None:
            return not self.exact and problem.n > (self.count or 0)
        if not isinstance(self.kernel, RBF | Laplacian | Linear):
            return False
        X = problem.X
        values = X.nnz / problem.n if sp.issparse(X) else problem.d
        return landmarks_pay(problem.n, values, TYPICAL, self.limit)


class Cells(NamedTuple):
    """Where the cells are, and which rows (by number) each of them learns from, cell by cell."""

    centres: np.ndarray
    sizes: np.ndarray
    row: np.ndarray
    cell: np.ndarray


class Facts(NamedTuple):
    """Of every cell: rows it learnt from, objective, gap, rounds, seconds, status, constants.

    ``constant`` has a line for every cell and a column for every score.
    """

    rows: np.ndarray
    primal: np.ndarray
    gap: np.ndarray
    rounds: np.ndarray
    seconds: np.ndarray
    status: list[Status]
    constant: np.ndarray

    @property
    def worst(self) -> int:
        """The cell whose machine is farthest from what was asked for."""
        late = [status is not Status.CONVERGED for status in self.status]
        return max(range(len(late)), key=lambda k: (late[k], self.gap[k]))


def make_cells(problem: Problem, count: int | None, overlap: float, seed: int) -> Cells:
    """The rows in cells: so many, or as many as have about `ROWS` rows each."""
    X, n = problem.X, problem.n
    count = -(-n // ROWS) if count is None else min(count, n)
    centres = make_centres(X, count, np.random.default_rng(seed))
    near = ranked(X, centres, 2, problem.threads)
    sizes = np.bincount(near.cell[:, 0], minlength=len(centres))
    if not sizes.all():  # the pool had rows there, and all of them are nearer to others
        centres = centres[sizes > 0]
        near = ranked(X, centres, 2, problem.threads)
        sizes = np.bincount(near.cell[:, 0], minlength=len(centres))
    row, cell = np.arange(n), near.cell[:, 0]
    if len(centres) > 1 and overlap > 0.0:
        more, theirs = neighbours(near, centres, overlap)
        row, cell = np.append(row, more), np.append(cell, theirs)
    order = np.argsort(cell, kind="stable")
    return Cells(centres, sizes, row[order], cell[order])


def solve_cells(
    problem: Problem, cells: Cells, local: Local, engine: Any = None
) -> tuple[np.ndarray, Facts]:
    """The coefficient of every entry of ``cells.row``, a column for each score; and the facts."""
    some = len(cells.row) > problem.n or not np.array_equal(cells.row, np.arange(problem.n))
    # In the order of the cells every part is a slice, and is not copied again.
    ordered = some_rows(problem, cells.row, problem.threads) if some else problem
    engine, count = LocalEngine() if engine is None else engine, len(cells.centres)
    shards = engine.scatter(ordered, cells.cell, {"cell": cells.cell})
    shards, lines = shards.step(_train, local, count)
    rows, primal, gap, rounds, seconds, status, *constant = lines.toarray()
    said = [_STATUSES[int(k)] for k in status]
    numbers = rows.astype(np.intp), primal, gap, rounds.astype(np.intp), seconds
    return shards.gather("coef"), Facts(*numbers, said, np.column_stack(constant))


def _train(part: Part, local: Local, count: int) -> tuple[State, sp.csr_array]:
    """The machines of a cell, and its column in a table of all cells: see `Facts`."""
    began = time.perf_counter()
    problem, state = part.problem, part.state
    columns = 1 if problem.classes == 2 else problem.classes
    coef = np.zeros((problem.n, columns))
    present, code = np.unique(problem.y, return_inverse=True)
    constant = np.full(problem.classes, -1.0)
    line = [float(problem.n), 0.0, 0.0, 0.0]
    status = Status.CONVERGED
    if len(present) == 1:
        constant[present] = 1.0
    else:
        own = replace(problem, y=code, classes=len(present))
        index, B, solutions = _machines(own, local)
        if len(present) == 2 < problem.classes:
            B = np.vstack([-B, B])  # of two classes, one is the other's rest
        where = present if columns > 1 else np.zeros(1, dtype=np.intp)
        coef[np.ix_(index, where)] = B.T
        constant[present] = 0.0
        late = max(solutions, key=lambda s: (s.status is not Status.CONVERGED, s.gap))
        status = late.status
        line[1:] = [sum(s.primal for s in solutions), late.gap, max(s.rounds for s in solutions)]
    line += [time.perf_counter() - began, float(_STATUSES.index(status)), *constant[-columns:]]
    place = np.arange(len(line)), np.full(len(line), state["cell"][0])
    return {"coef": coef}, sp.csr_array((line, place), shape=(len(line), count))


def _machines(problem: Problem, local: Local) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Rows of an expansion, the coefficients of each machine, and the answers."""
    plan = Plan("auto", "ovr", local.stop, local.seed, bounds=False)
    index, starts = np.arange(problem.n), list[Start]()
    if local.has_landmarks(problem):
        dtype = precision(local.kernel, problem.X)
        wish = Wish(local.kernel, local.count, local.how, dtype, local.limit)
        problem, starts = place(problem, wish, local.seed)
        assert problem.sketch is not None
        index = problem.sketch.landmarks.index
    else:
        gram = make_gram(local.kernel, problem.X, problem.bias, int(local.limit), problem.threads)
        problem = replace(problem, gram=gram)
    solutions = [machine.solution for machine in train(plan, problem, starts)[1]]
    return index, np.vstack([s.coef for s in solutions]), solutions
