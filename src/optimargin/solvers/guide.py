"""What guides Newton's method over landmarks: the factor of a matrix made of some of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from optimargin.arrays import (
    cast,
    is_foreign,
    name_of_dtype,
    namespace,
    number,
    places,
    taken,
)
from optimargin.cholesky import add_to_diagonal, cholesky, solve
from optimargin.features import Features
from optimargin.landmarks import whitened
from optimargin.partition import thinned
from optimargin.problem import Problem
from optimargin.threads import blas_threads, spans

_SAMPLE = 3  # rows in the guide for each landmark, or ..
_CHEAP = 20  # .. so many for each row and landmark: they take as long as a pass
_STALE = 2  # conjugate-gradient steps at least, before a new guide is made
_GUIDE = 0.05  # products that a guide takes for each, in the time of a number read by such a step
_ON_DEVICE = 16  # one row in so many makes a guide on a device, where products cost little
_STALE_THERE = 4  # conjugate-gradient steps there, before a new guide is made
_WORN = 4.0  # what was put in and taken out, over what stays, before a guide is made anew
_HIGHER, _ATTEMPTS = 9.0, 12  # how much more is added to a diagonal at a time, and how often


def make_guide(problem: Problem, part: Any, rng: np.random.Generator) -> Guide | DeviceGuide:
    """A guide for steps on the rows of a part (on a device), or of the problem."""
    if is_foreign(problem.y):
        return DeviceGuide(part, rng)
    return Guide(problem, rng)


class Guide:
    """The factor of I + Phi' diag(h) Phi, made of some of its rows, and how it came about.

    From one step to the next few rows change their curvature, and only these are put in or
    taken out.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        assert problem.sketch is not None
        n, S = problem.sketch.shape
        self.problem, self.sketch = problem, problem.sketch
        self.rank = rng.permutation(n).astype(np.int32)  # the first of these are chosen
        self.most = max(_SAMPLE * S, _CHEAP * n // S)
        self.rows, self.h = np.empty(0, dtype=np.intp), np.empty(0)
        self.H = np.zeros((S, S), dtype=self.sketch.dtype)
        self.moved = 0.0  # trace of all that was put in and taken out: its rounding stays
        self.factor, self.spent = self.H, np.inf

    def solve(self, r: np.ndarray) -> np.ndarray:
        """About (I + Phi' diag(h) Phi)^{-1} r."""
        return cast(solve(self.factor, r), "float64")

    def meet(self, rows: Any, h: np.ndarray) -> None:
        """Follow the system, if the steps that an older guide cost would have paid for it."""
        count, whole, S = len(rows), float(h.sum()), len(self.H)
        if len(rows) > self.most:
            chosen = np.sort(np.argpartition(self.rank[rows], self.most)[: self.most])
            rows, h = rows[chosen], h[chosen]
        other, change = _difference(rows, h, self.rows, self.h)
        work = min(len(other), len(rows)) + S / 6.0
        if self.spent <= max(_STALE, _GUIDE * S * work / (count + 4 * S)):
            return
        was, stays = float(self.h.sum()), float(h.sum())
        is_worn = self.moved * was > _WORN * stays * _trace(self.H)
        if len(other) > len(rows) or is_worn:
            other, change = rows, h
            self.H[:], self.moved = 0.0, 0.0
        self.rows, self.h, self.spent = rows, h, 0.0
        with blas_threads(self.problem.threads, S):
            for sign in (1.0, -1.0):
                side = sign * change > 0.0
                self._add(other[side], change[side], sign)
            self._factor(whole / max(h.sum(), np.finfo(float).tiny))

    def _add(self, rows: np.ndarray, change: np.ndarray, sign: float) -> None:
        L = self.sketch.landmarks.factor
        for part in spans(len(rows), _SAMPLE * len(L)):
            K = self.sketch[rows[part]]
            K *= np.sqrt(np.abs(change[part])).astype(K.dtype)[:, None]
            phi = whitened(L, K, in_place=True)
            more = phi.T @ phi
            (np.add if sign > 0.0 else np.subtract)(self.H, more, out=self.H)
            self.moved += _trace(more)
            del K, phi, more

    def _factor(self, share: float) -> None:
        self.factor = _factored(self.H, self.moved, share)


def _difference(
    rows: np.ndarray, h: np.ndarray, before: np.ndarray, h_before: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows whose numbers are others than before, and by how much; numbers not given are 0."""
    every, places = np.unique(np.concatenate([rows, before]), return_inverse=True)
    change = np.bincount(places, np.concatenate([h, -h_before]), len(every))
    changed = np.abs(change) > 1e-12 * np.abs(h).max(initial=0.0)
    return every[changed], change[changed]


class DeviceGuide:
    """The same of features on a device, made anew when it is stale."""

    def __init__(self, features: Features, rng: np.random.Generator) -> None:
        n, S = features.shape
        self.features, self.rng = features, rng
        self.most = max(_SAMPLE * S, n // _ON_DEVICE)
        self.factor: Any = None
        self.spent = np.inf

    def solve(self, r: Any) -> Any:
        """About (I + Phi' diag(h) Phi)^{-1} r."""
        triangle = self.features.triangle
        s = cast(solve(self.factor, triangle.untwisted(r)), "float64")
        return triangle.untwisted(s, transposed=True)

    def meet(self, rows: Any, h: Any) -> None:
        """Follow the system, whose rows are all, if the last guide is stale."""
        if self.spent <= _STALE_THERE:
            return
        curved, self.spent = places(h > 0.0), 0.0
        if curved.shape[0] > self.most:
            curved = taken(curved, thinned(int(curved.shape[0]), self.most, self.rng))
        some = taken(h, curved)
        share = number(h) / max(number(some), np.finfo(float).tiny)
        H = self.features.hessian(curved, some * share)
        self.factor = _factored(H, _trace(H), unit=self.features.unit)


def _trace(H: Any) -> float:
    return number(cast(namespace(H).linalg.diagonal(H), "float64"))


def _factored(H: Any, scale: float, share: float = 1.0, unit: Any = None) -> Any:
    """The factor of H times share and the identity, or what stands for it.

    Where that drowns in the rounding of numbers of some scale, more is added, until it does not.
    """
    rounding = 4.0 * float(np.finfo(name_of_dtype(H)).eps) * share * scale
    for _ in range(_ATTEMPTS):
        A = H * share if unit is None else H + unit
        add_to_diagonal(A, max(1.0, rounding) if unit is None else rounding)
        try:
            return cholesky(A)
        except np.linalg.LinAlgError:
            rounding *= _HIGHER
    raise np.linalg.LinAlgError("the kernel values are not finite, or of no positive kernel")
