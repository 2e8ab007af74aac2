"""Placing landmarks: which rows stand for all, and how many of them.

random    any rows
greedy    the row that the ones before it explain least, of a pool (sodm.txt, eq. (6))
kmeans    centres of clusters of a pool
margin    ours: machines on a pool of rows, each with twice the landmarks of the last.  A row is
          drawn with a chance in proportion to |a_i| sqrt(r_i), its dual variable times what the
          landmarks leave out of it: the gradient of the whole machine, outside of what the
          landmarks can express, is a sum of just these.  Few rows pull, those near the
          boundary, so fewer landmarks do.  Twice as many are drawn as can join; the greedy choice
          among them, by the same measure, leaves out those that resemble each other

Where their number is not given, it doubles until the loss on held-out rows of the pool gains no
more; every set begins with the last one, and its machine where the last one ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from optimargin.arrays import (
    brought,
    cast,
    is_foreign,
    name_of_dtype,
    namespace,
    number,
    on_host,
    taken,
    zeros,
)
from optimargin.classes import signs
from optimargin.features import Features, make_features
from optimargin.kernels import Kernel
from optimargin.landmarks import (
    Landmarks,
    centre_of,
    make_landmarks,
    moved,
    pivoted_cholesky,
)
from optimargin.loss import dual_of, value
from optimargin.memory import in_words
from optimargin.partition import centres
from optimargin.problem import Problem, Start, Stop
from optimargin.sketch import Sketch, footprint, make_sketch
from optimargin.solvers.landmark import train_all
from optimargin.threads import blas_threads

HOW = ("margin", "greedy", "random", "kmeans")
_POOL = 10_000  # rows among which landmarks are chosen, at least
_POOL_EACH = 10  # the same for each landmark
_FIRST = 4  # one landmark in so many is the first machine's, or ..
_FEW = 100  # .. every other one, where that would be fewer
_DRAWN = 2  # rows that are drawn for each that joins
_ROUGH = Stop(tol=0.01, max_iter=6)  # of a machine that only tells where to place landmarks
_BLOCK = 64  # rows that are judged at a time by the greedy choice, at most
_JUDGES = 0.2  # share of the pool that is held out where the number of landmarks is to be found
_GAIN = 0.02  # share of the held-out loss below which twice the landmarks are not worth it
_ROUNDING = 1e-5  # share of the largest residual that may be rounding, in single precision
_MOST = 4000  # landmarks that are chosen without being asked for


Models = list[np.ndarray]  # expansions over landmarks


@dataclass(frozen=True)
class Wish:
    """What was asked for: how many landmarks (None is as many as pay), and how to choose them.

    ``how`` is a name, or the landmarks themselves, and then ``index`` may tell their row numbers.
    Kernel values are of the type ``dtype``, and training may take ``limit`` bytes.  A machine
    that is ``joint`` for several classes is trained on features, which then take the place of the
    values.
    """

    kernel: Kernel
    count: int | None
    how: Any
    dtype: Any
    limit: float
    index: np.ndarray | None = None
    joint: bool = False

    def at(self, problem: Problem, index: np.ndarray) -> Landmarks:
        """Landmarks at some of the rows."""
        Z = taken(problem.X, index)
        return make_landmarks(self.kernel, Z, index, problem.bias, value_type(self.dtype))

    def beside(self, problem: Problem, Z: Any) -> Landmarks:
        """Landmarks that are no rows."""
        index = np.full(Z.shape[0], -1) if self.index is None else self.index
        if is_foreign(problem.y):
            Z = brought(Z, problem.y, value_type(self.dtype))
        return make_landmarks(self.kernel, Z, index, problem.bias, value_type(self.dtype))

    def sketch(
        self, problem: Problem, landmarks: Landmarks, limit: float, machines: int = 1
    ) -> Any:
        """What rows and landmarks have in common: kernel values, or features on a device."""
        if is_foreign(problem.y):
            return make_features(landmarks, problem.X, np.dtype(self.dtype).name)
        return make_sketch(landmarks, problem.X, limit, problem.threads, machines)


def value_type(dtype: Any) -> np.dtype:
    """The precision of kernel values, where features may be half."""
    return max(np.dtype(dtype), np.dtype(np.float32))


def place(problem: Problem, wish: Wish, seed: int) -> tuple[Problem, list[Start]]:
    """The problem over landmarks, and where its machines may start.

    ``problem`` has numbered classes, and neither a kernel matrix nor landmarks.
    """
    landmarks, models = landmarks_of(problem, wish, np.random.default_rng(seed))
    if wish.joint and not is_foreign(problem.y):
        _check_features(problem, landmarks, wish)
    limit = footprint(problem.n, len(landmarks), 0) if wish.joint else wish.limit
    sketch = wish.sketch(problem, landmarks, limit, 1 if wish.joint else _count(problem))
    seen = pool_size(problem.n, len(landmarks))
    return replace(problem, sketch=sketch), [Start(coef, seen=seen) for coef in models]


def _check_features(problem: Problem, landmarks: Landmarks, wish: Wish) -> None:
    """Whether a joint machine has room for its features and dual variables."""
    n, S, size = problem.n, len(landmarks), np.dtype(wish.dtype).itemsize
    need = footprint(n, S, float(size) * n * S + 8.0 * n * problem.classes)
    if need > wish.limit:
        raise MemoryError(
            f"memory_limit is {in_words(wish.limit)}, but one machine for {problem.classes} classes"
            f" over {S} landmarks needs {in_words(need)} for {n} rows; choose fewer with"
            " n_landmarks, or multi_class='ovr', which keeps to any limit."
        )


def landmarks_of(
    problem: Problem, wish: Wish, rng: np.random.Generator
) -> tuple[Landmarks, Models]:
    """The landmarks, and models over them that came up on the way.

    They are of the machine of two classes, or of each class against the rest; there may be none.
    """
    if not isinstance(wish.how, str):
        return wish.beside(problem, wish.how), []
    count = wish.count or most_landmarks(problem.n, wish.limit)
    pool = _pool(problem, count, rng)
    order = np.arange(len(pool))  # which is random
    if wish.how == "greedy":
        order = greedy(
            wish, taken(problem.X, pool), problem.bias, min(count, len(pool)), problem.threads
        )
    count = min(count, len(order))
    index, models = pool[order[:count]], Models()
    if len(pool) <= 2 * _FEW and wish.count is None:
        index = pool  # nothing to be gained from fewer
    elif wish.count is None or (wish.how == "margin" and count < problem.n):
        index, models = _grown(problem, wish, pool, order, count, rng)
    if wish.how == "kmeans":
        rows = taken(problem.X, pool)
        rows = on_host(rows) if is_foreign(rows) else rows
        return wish.beside(problem, centres(rows, len(index), rng)), []
    return wish.at(problem, index), models


def most_landmarks(n: int, limit: float) -> int:
    """As many landmarks as n rows are given without being asked, within so many bytes."""
    count = min(n, _MOST)
    while count > 1 and footprint(n, count, 0) > limit:
        count //= 2
    return count


def _pool(problem: Problem, count: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers of the rows among which so many landmarks are chosen, in random order."""
    size = pool_size(problem.n, count)
    if problem.weight is None:
        return rng.choice(problem.n, size, replace=False)
    heavy = np.flatnonzero(on_host(problem.weight) > 0.0)
    return rng.permutation(heavy)[:size]


def pool_size(n: int, count: int) -> int:
    """Among how many of n rows so many landmarks are chosen."""
    return min(n, max(_POOL, _POOL_EACH * count))


def greedy(wish: Wish, X: Any, bias: float, count: int, threads: int) -> np.ndarray:
    """The rows of X that a pivoted Cholesky factor takes, in the order in which it does."""
    dtype = value_type(wish.dtype)
    A, kernel = moved(X, centre_of(wish.kernel, X), dtype), wish.kernel
    block, rounding = max(1, min(_BLOCK, count // 20)), 1e3 * float(np.finfo(dtype).eps)
    with blas_threads(threads):
        diag = kernel.diag(A) + bias**2
        return pivoted_cholesky(
            lambda index: kernel.block(A, taken(A, index)) + bias**2,
            on_host(diag),
            count,
            block,
            rounding,
            dtype,
        ).pivots


# -- growth -------------------------------------------------------------------------------------


def _grown(
    problem: Problem,
    wish: Wish,
    pool: np.ndarray,
    order: np.ndarray,
    most: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, Models]:
    """The rows that became landmarks of machines on the pool, and the last models."""
    judges = None
    if wish.count is None:
        held = rng.choice(len(pool), int(_JUDGES * len(pool)), replace=False)
        judges = problem.some(pool[held])
        stays = np.ones(len(pool), dtype=bool)
        stays[held] = False
        order = (np.cumsum(stays) - 1)[order[stays[order]]]
        pool = pool[stays]
        most = min(most, len(order))
    some, seed = problem.some(pool), int(rng.integers(2**31))
    count = min(most, _FEW)
    if judges is None:
        count = max(most // _FIRST if most >= _FIRST * _FEW else most // 2, 1)
    places, models, before = order[:count], Models(), np.inf
    while count < most or judges is not None:
        sketch = wish.sketch(some, wish.at(some, places), wish.limit, _count(some))
        models = _models(replace(some, sketch=sketch), models, seed)
        if judges is not None:
            loss = _loss(judges, sketch, models)
            if loss > (1.0 - _GAIN) * before or count == most:
                break
            before = loss
        more = min(most, 2 * count)
        if wish.how == "margin":
            places = _joined(sketch, places, _pulls(some, sketch, models), more, rng)
        else:
            places = order[:more]
        count = len(places)
        models = [_longer(b, count) for b in models]
    return pool[places], models


def _longer(b: Any, count: int) -> Any:
    """An expansion over more landmarks, of which the first are those it has."""
    more = zeros(count - int(b.shape[0]), b)
    return namespace(b).concat([b, more])


def _joined(
    sketch: Sketch | Features,
    places: np.ndarray,
    pulls: Pulls,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """So many places: those there are, and others that pull and are unlike each other.

    Where too few rows pull, others fill the rest.
    """
    free = np.ones(len(pulls.dual), dtype=bool)
    free[places] = False
    chances = pulls.dual * np.sqrt(pulls.left) * free
    missing = count - len(places)
    size = min(_DRAWN * missing, int(np.count_nonzero(chances)))
    if size:
        drawn = rng.choice(len(chances), size, replace=False, p=chances / chances.sum())
        if size > missing:
            drawn = drawn[_unlike(sketch, drawn, pulls, missing)]
        places, free[drawn] = np.append(places, drawn), False
    rest = rng.permutation(np.flatnonzero(free))[: count - len(places)]
    return np.append(places, rest)


def _unlike(sketch: Sketch | Features, rows: np.ndarray, pulls: Pulls, count: int) -> np.ndarray:
    """The greedy choice among rows by what the landmarks leave out, times the dual variables."""
    landmarks = sketch.landmarks
    kernel, bias, A = landmarks.kernel, landmarks.bias, landmarks.near(taken(sketch.X, rows))
    dual = pulls.dual[rows] / pulls.dual[rows].max()
    if isinstance(sketch, Features):
        order, dtype = np.argsort(rows), name_of_dtype(A)
        phi = taken(cast(sketch.exactly(rows[order]), dtype), np.argsort(order))
        scale = brought(dual, A, dtype)

        def columns(index: np.ndarray) -> Any:
            K = kernel.block(A, taken(A, index)) + bias**2 - phi @ taken(phi, index).T
            return K * scale[:, None] * taken(scale, index)[None, :]

        diag = pulls.left[rows] * dual**2
        return pivoted_cholesky(columns, diag, count, _BLOCK, _ROUNDING, dtype).pivots
    dual = dual.astype(A.dtype)
    with blas_threads(sketch.threads, len(landmarks)):
        phi = landmarks.features(sketch[rows])
        R = kernel.block(A, A)
        R += bias**2
        R -= phi @ phi.T
        R *= dual[:, None]
        R *= dual
        (factored,) = scipy.linalg.get_lapack_funcs(("pstrf",), (R,))
        _, pivots, rank, _ = factored(R.T, lower=1, overwrite_a=1)
    return pivots[: min(rank, count)] - 1


def _count(problem: Problem) -> int:
    """How many machines there are: one for two classes, else one for each."""
    return 1 if problem.classes == 2 else problem.classes


def _sides(problem: Problem) -> list[np.ndarray]:
    """Signs of the rows, for each class against the rest."""
    first = 1 if problem.classes == 2 else 0
    return [signs(problem.y == m) for m in range(first, problem.classes)]


def _models(problem: Problem, before: Models, seed: int) -> Models:
    """About the machine of two classes, or those of each class against the rest."""
    sketch = problem.sketch
    assert sketch is not None
    machines = [problem.binary(side) for side in _sides(problem)]
    zero = zeros(len(sketch.landmarks), problem.y)
    starts = [Start(b) for b in before or [zero] * len(machines)]
    return [found.coef for found in train_all(problem, machines, starts, _ROUGH, seed)]


class Pulls(NamedTuple):
    """Of each row the size of its dual variables, and what the landmarks leave out of it."""

    dual: np.ndarray
    left: np.ndarray


def _pulls(problem: Problem, sketch: Sketch | Features, models: Models) -> Pulls:
    """How rows pull at landmarks that are not there, over all machines."""
    losses, F = problem.losses, sketch.scores(models)
    sides = _sides(problem)
    total = sum(dual_of(losses, y * F[:, m]) ** 2 for m, y in enumerate(sides))
    with blas_threads(problem.threads, len(sketch.landmarks)):
        return Pulls(np.sqrt(on_host(total)), on_host(sketch.residual()))


def _loss(judges: Problem, sketch: Sketch | Features, models: Models) -> float:
    """What rows that were held out lose."""
    F = sketch.of_others(judges.X).scores(models)
    return sum(number(value(judges.losses, y * F[:, m])) for m, y in enumerate(_sides(judges)))
