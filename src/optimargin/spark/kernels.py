"""Machines with a kernel on Spark: over landmarks, or on parts that are merged.

landmark  the driver places landmarks in a sample; rows become features of kernel values where they
          are, and Newton's method finds a linear machine in these: one matrix of S x S a step
sodm      machines on parts of the rows, merged level by level; rows with a coefficient come to the
          driver when the last machine is known
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

from optimargin.engines.local import Part
from optimargin.estimators.kernelized import gamma_of
from optimargin.gram import precision
from optimargin.landmarks import Landmarks
from optimargin.loss import scaled
from optimargin.memory import in_words
from optimargin.problem import Problem, Start, Stop
from optimargin.sketch import Sketch
from optimargin.solvers import placed
from optimargin.solvers.drawn import draw, joined
from optimargin.solvers.levels import support, support_size
from optimargin.solvers.parted_newton import PartedNewton
from optimargin.solvers.passes import moments
from optimargin.solvers.place import Wish, landmarks_of, most_landmarks, pool_size
from optimargin.solvers.sodm import SODM, Climbed, elsewhere
from optimargin.spark.training import adopt, seed_of
from optimargin.threads import blas_threads

_BYTES = 1 << 28  # of the sample in which landmarks are placed, at most, beside those of a few rows
_ROWS = 1000  # that the sample has at least
_PACKED = 1 << 29  # bytes of the Hessians of all parts together
_SUPPORT = 1 << 29  # bytes of rows that come to the driver

Piece = tuple[Any, np.ndarray]  # rows, and their coefficients


def learn_kernel(local: Any, shards: Any, stop: Stop) -> None:
    """An expansion over landmarks, or over rows."""
    local.gamma_ = gamma_of(local.gamma, shards.whole.d, partial(shards.sum, _moments))
    learn = _learn_sodm if local.solver == "sodm" else _learn_landmarks
    learn(local, shards, stop)


def _learn_landmarks(local: Any, shards: Any, stop: Stop) -> None:
    landmarks, starts, left_out = _placed(local, shards)
    S, count = len(landmarks), len(shards)
    direct = 4 * (S + 1) * (S + 2) * count <= min(_PACKED, shards.whole.limit)
    solver = PartedNewton(seed_of(local), local._parting(), direct)
    features = shards.featured(_features, landmarks)
    found = placed.linear(features, solver, starts, stop)
    B = landmarks.expand(np.vstack([solution.coef[:-1] for solution in found]))
    index = np.full(S, -1)  # they are rows, and nobody knows which
    model = local._expansion(index, landmarks.Z, B, landmarks.moved.dtype)
    adopt(local, model, [replace(solution, solver="landmark") for solution in found])
    local.residual_, local.exact_gap_ = left_out, np.nan


def _placed(local: Any, shards: Any) -> tuple[Landmarks, list[Start], float]:
    """Landmarks among the rows of a sample, where machines may start, and what is left out."""
    whole, seed = shards.whole, seed_of(local)
    count = None if local.n_landmarks == "auto" else int(local.n_landmarks)
    size = pool_size(whole.n, count or most_landmarks(whole.n, whole.limit))
    each = max(shards.sum(_bytes) // whole.n, 1)
    size = min(size, max(_BYTES // each, count or _ROWS))
    sample = joined(shards.sum(draw, size, whole.n, seed))
    code = sample.y if whole.classes > 2 else (sample.y > 0).astype(np.intp)
    loss = scaled(whole.loss, whole.n / len(code))
    threads = local._threads
    problem = Problem(
        sample.X, code, sample.weight, loss, whole.bias, classes=whole.classes, threads=threads
    )
    kernel = local._kernel()
    wish = Wish(kernel, count, local.landmarks, precision(kernel, sample.X, whole.n), whole.limit)
    with blas_threads(1):
        landmarks, models = landmarks_of(problem, wish, np.random.default_rng(seed))
    starts = [Start(np.append(landmarks.lift(b), 0.0)) for b in models]
    if not starts:
        starts = [Start()] * whole.classes
    sketch = Sketch(landmarks, sample.X, np.empty((0, len(landmarks)), wish.dtype), threads)
    return landmarks, starts, sketch.left_out


def _learn_sodm(local: Any, shards: Any, stop: Stop) -> None:
    solver = SODM(seed_of(local), local._parting())
    kernel, total = local._kernel(), shards.sum(_moments)[0]
    views = placed.views(shards)
    stop = placed.shared(stop, len(views))
    level = solver.level(kernel, total, _room(local, shards), stop)
    found, machines = [], []
    for view in views:
        climbed = solver.climb(view, level, time.perf_counter(), describe=elsewhere)
        found.append(replace(climbed.found, traffic=None))
        machines.append(_supported(climbed))
    found[0] = replace(found[0], traffic=shards.traffic.seen)
    Z, B = united(machines)
    dtype = precision(kernel, Z, shards.whole.n)
    adopt(local, local._expansion(np.full(Z.shape[0], -1), Z, B, dtype), found)
    local.residual_, local.exact_gap_ = 0.0, local.dual_gap_


def _supported(climbed: Climbed) -> list[Piece]:
    """The rows of a machine, and their coefficients."""
    count, size = support_size(climbed.shards, climbed.is_whole)
    if size > _SUPPORT:
        raise MemoryError(
            f"solver='sodm' found a machine of {count} rows, {in_words(size)}, which are more than"
            f" the {in_words(_SUPPORT)} that come to the driver; choose solver='landmark'."
        )
    return support(climbed.shards, climbed.is_whole)


def united(machines: list[list[Piece]]) -> tuple[Any, np.ndarray]:
    """The rows of all machines, each of them once, and a row of coefficients for every machine."""
    X = [rows for machine in machines for rows, _ in machine]
    stacked = sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.concatenate(X)
    b = [np.concatenate([own for _, own in machine]) for machine in machines]
    m = np.repeat(np.arange(len(b)), [len(own) for own in b])
    known: dict[Any, int] = {}
    place = np.array([known.setdefault(key, len(known)) for key in _keys(stacked)], dtype=np.intp)
    B = np.zeros((len(b), len(known)))
    np.add.at(B, (m, place), np.concatenate(b))
    return stacked[np.unique(place, return_index=True)[1]], B


def _keys(X: Any) -> Iterator[Any]:
    """What tells rows apart."""
    if not sp.issparse(X):
        return (row.tobytes() for row in X)
    ends = zip(X.indptr[:-1], X.indptr[1:], strict=True)
    return ((X.indices[a:b].tobytes(), X.data[a:b].tobytes()) for a, b in ends)


def _room(local: Any, shards: Any) -> int:
    """Bytes for the kernel matrix of a part: half of what is free, shared by those at work."""
    if local.memory_limit is not None:
        return int(shards.whole.limit)
    hosts: dict[str, list[tuple[int, int]]] = {}
    for name, free, cores in shards.sum(_host):
        hosts.setdefault(name, []).append((free, cores))
    return min(min(f)[0] // (2 * min(len(f), f[0][1])) for f in hosts.values())


# -- what parts are asked to do ------------------------------------------------------------------


def _moments(part: Part) -> tuple[float, float, float]:
    return moments(part.problem.X, part.problem.weight)


def _features(part: Part, landmarks: Landmarks) -> np.ndarray:
    return landmarks.features(landmarks.values(part.problem.X))


def _bytes(part: Part) -> int:
    X = part.problem.X
    return X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes


def _host(part: Part) -> list[tuple[str, int, int]]:
    free, cores = psutil.virtual_memory().available, psutil.cpu_count() or 1
    return [(socket.gethostname(), int(free), int(cores))]
