"""What the parts of a level are asked to do: train, draw a sample, say how their machine is.

See `sodm` for the whole.  A part's state is, for every row:

dual   its dual variable in the part's machine, and ``own`` that of the part's best machine
mean   its dual variable in the average of the machines of all parts
home   the number of the part in which it stood one level before
drawn  the code by which the sample knows it, or -1
coef   its coefficient in the part's machine, and ``margin`` its margin there
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimargin.blend import best_blend
from optimargin.engines.local import LocalShards, Part, State, some_rows
from optimargin.expansion import Expansion
from optimargin.gram import make_gram, raised
from optimargin.kernels import Kernel
from optimargin.loss import is_smooth, is_unbounded, row_gap, scaled, value
from optimargin.problem import Problem, Start, Status, Stop, drive
from optimargin.solvers.dcd import DCD
from optimargin.solvers.drawn import Drawn, chosen, rows_of
from optimargin.solvers.kernel_newton import KernelNewton, is_faster
from optimargin.solvers.roughly import SMALL, solve_roughly
from optimargin.solvers.visited import visited

_SAMPLE = 2048  # rows on which a level's gap is found
_HALFWAY = 0.5  # power of a part's share of the losses: 0 is those of the whole, 1 its own
_WORTH = 1e-3  # relative gain for which the search for the best blend goes on


class Level(NamedTuple):
    """What every part is told: the kernel, how rows were merged, when to stop."""

    kernel: Kernel
    shift: float
    total: float  # weight of all rows
    merge: str
    limit: int  # bytes for a part's kernel matrix; of a whole machine, for all at once
    stop: Stop
    seed: int
    rough: bool = True  # one part among others, or rows with a say ahead of the others
    least: float = 0.0  # share of the mean size of coefficients below which a row has no say


class Told(NamedTuple):
    """What the parts of a level say together; objectives are the machine's if there is one part."""

    unfinished: int
    indefinite: int
    rows: int
    voiced: int  # rows that have a say
    primal: float
    bound: float


# -- what parts are asked to do ------------------------------------------------------------------


def begin(part: Part, n: int, seed: int) -> tuple[State, list[Drawn]]:
    """Draw the part's share of the sample, and note who was drawn and where all rows are from."""
    m, rows = part.problem.n, rows_of(part, _SAMPLE, n, seed)
    own = chosen(part, rows, _SAMPLE)
    code = np.full(m, -1)
    code[rows] = own.code
    dual = part.state.get("dual", np.zeros(m))
    state = {"dual": dual, "own": dual, "home": np.full(m, part.number), "drawn": code}
    return state, [own]


def train(part: Part, level: Level) -> tuple[State, Told]:
    """The machine of a part, from where its pieces stand; and how it went."""
    problem, state = part.problem, part.state
    if not problem.n:
        empty = {name: np.zeros(0) for name in ("coef", "margin", "mean")}
        return {**state, **empty}, Told(0, 0, 0, 0, 0.0, 0.0)
    weight = float(problem.n if problem.weight is None else problem.weight.sum())
    share = level.total / weight if level.merge != "same" and weight > 0.0 else 1.0
    factor = share**_HALFWAY if level.rough and level.merge == "blend" else share
    together = _together(problem, state, level)
    awake = _awake(state, level)
    rows = problem if len(awake) == problem.n else some_rows(problem, awake, problem.threads)
    make = visited if together["dual"].any() else make_gram
    gram = make(level.kernel, rows.X, rows.bias, level.limit, rows.threads)
    local = replace(rows, loss=scaled(rows.loss, factor), gram=raised(gram, level.shift))
    smooth = is_smooth(rows.loss)
    by_newton = smooth and not level.rough and is_faster(local)
    start = _begin(local, {name: v[awake] for name, v in together.items()}, level, by_newton)
    if level.rough and local.n <= SMALL and gram.is_whole:
        found = solve_roughly(local, start, level.stop, level.seed)
    else:
        solver = KernelNewton(level.seed) if by_newton else DCD(level.seed)
        found = drive(solver.points(local, start), level.stop)
    dual = found.coef * rows.y if found.dual is None else found.dual
    losses = local.losses  # a better machine than that of the dual variables, and feasible too
    own = np.clip(found.coef * rows.y, losses.a_min, losses.a_max) if smooth else dual
    new = {"dual": dual, "own": own, "mean": own / share}
    new |= {"coef": found.coef, "margin": found.margin}
    new = {name: _back(v, awake, problem.n) for name, v in new.items()}
    new |= {"home": np.full(problem.n, state["home"].min()), "drawn": state["drawn"]}
    status = found.status
    wrong = int(status is Status.MAX_ITER), int(status is Status.INDEFINITE)
    voiced = int(np.count_nonzero(_has_a_say(new, level)))
    return new, Told(*wrong, problem.n, voiced, found.primal, found.bound)


def _awake(state: State, level: Level) -> np.ndarray:
    """The rows that a part looks at: with others about, those that have a say after a merge."""
    waits = level.rough and level.merge == "blend" and (state["home"] != state["home"][0]).any()
    some = np.flatnonzero(_has_a_say(state, level)) if waits else np.empty(0, dtype=np.intp)
    return some if len(some) else np.arange(len(state["dual"]))


def _has_a_say(state: State, level: Level) -> np.ndarray:
    """Whether a row's coefficients are not small beside the mean of those that are not 0."""
    size = np.abs(state["dual"]) + np.abs(state["own"])
    return size > level.least * size.sum() / max(np.count_nonzero(size), 1)


def _together(problem: Problem, state: State, level: Level) -> State:
    """The variables of the pieces of a part, each its share of their average."""
    found = {name: state[name] for name in ("dual", "own", "home")}
    if level.merge in ("rescaled", "blend") and (state["home"] != state["home"][0]).any():
        home = np.unique(state["home"], return_inverse=True)[1]
        weight = np.ones(problem.n) if problem.weight is None else problem.weight
        share = (np.bincount(home, weight) / weight.sum())[home]
        found |= {name: found[name] * share for name in ("dual", "own")}
    return found


def _begin(local: Problem, state: State, level: Level, by_newton: bool) -> Start:
    """Where the pieces of a part stand together: dual variables, or for Newton a better machine."""
    a = state["own"] if by_newton else state["dual"]
    if not a.any():
        return Start()
    homes, home = np.unique(state["home"], return_inverse=True)
    if len(homes) > 1 and level.merge == "blend" and is_unbounded(local.loss):
        a, u = _blended(local, a, home, is_dual=not by_newton)
        return Start(a * local.y, None, u)
    return Start(a * local.y, None if by_newton else a)


def _back(v: np.ndarray, index: np.ndarray, n: int) -> np.ndarray:
    """Numbers of some rows among those of all, which have none."""
    out = np.zeros(n)
    out[index] = v
    return out


def _blended(
    local: Problem, a: np.ndarray, home: np.ndarray, is_dual: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The best combination of the machines of pieces, in the dual objective or in the primal one.

    With its margins.
    """
    gram = local.gram
    assert gram is not None
    A = np.where(home == np.arange(home.max() + 1)[:, None], a, 0.0)
    U = np.stack([local.y * gram.apply(piece * local.y) for piece in A])
    G = A @ U.T
    worth = _WORTH * abs(float(G.sum()))
    c, _ = best_blend(local.loss, local.weight, is_dual, G, A if is_dual else U, worth)
    return c @ A, c @ U


def _scores(part: Part, level: Level, Z: Any) -> tuple[np.ndarray, list[tuple[Any, Any]]]:
    """What the rows of a part add to the scores of Z, and the dual variables of rows drawn."""
    problem, state = part.problem, part.state
    b = state["mean"] * problem.y
    keep, drawn = np.flatnonzero(b), np.flatnonzero(state["drawn"] >= 0)
    own = [(state["drawn"][drawn], state["mean"][drawn])]
    if not len(keep):
        return np.zeros(Z.shape[0]), own
    over = Expansion(level.kernel, problem.X[keep], b[None, keep], problem.X.dtype)
    return over.scores(Z, problem.threads)[:, 0] + problem.bias**2 * b.sum(), own


def _coefficients(part: Part, is_whole: bool) -> np.ndarray:
    state, problem = part.state, part.problem
    b = state["coef"] if is_whole else state["mean"] * problem.y
    return b if problem.weight is None else np.where(problem.weight > 0.0, b, 0.0)


def _support(part: Part, is_whole: bool) -> list[tuple[Any, np.ndarray]]:
    b = _coefficients(part, is_whole)
    keep = np.flatnonzero(b)
    return [(part.problem.X[keep], b[keep])]


def _support_size(part: Part, is_whole: bool) -> tuple[int, int]:
    keep = np.flatnonzero(_coefficients(part, is_whole))
    X = part.problem.X
    if sp.issparse(X):
        entries = int(np.diff(X.indptr)[keep].sum())
        return len(keep), entries * (X.data.itemsize + X.indices.itemsize)
    return len(keep), len(keep) * X.shape[1] * X.dtype.itemsize


def support(shards: LocalShards, is_whole: bool) -> list[tuple[Any, np.ndarray]]:
    """The rows of the machine with their coefficients, from part after part."""
    return shards.sum(_support, is_whole)


def support_size(shards: LocalShards, is_whole: bool) -> tuple[int, int]:
    """How many rows those are, and how many bytes."""
    return shards.sum(_support_size, is_whole)


# -- the sample ----------------------------------------------------------------------------------


def look(shards: LocalShards, sample: Drawn, level: Level) -> tuple[float, float, np.ndarray]:
    """The objective of a level's machine and its bound, by the sample; and margins there."""
    f, own = shards.sum(_scores, level, sample.X)
    a = np.zeros(len(sample.y))  # rows that are in no part any more have none
    for code, mean in own:
        a[np.searchsorted(sample.code, code)] = mean
    u, losses = sample.y * f + level.shift * a, sample.losses(shards.whole.loss)
    primal = float(sample.times @ (0.5 * a * u + value(losses, u)))
    return primal, primal - float(sample.times @ row_gap(losses, a, u)), u
