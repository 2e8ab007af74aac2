"""How the rows of a problem are divided, for solvers that work on parts of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optimargin.engines.local import LocalEngine, LocalShards, State, Traffic
from optimargin.kernels import Kernel, Linear
from optimargin.partition import partition
from optimargin.problem import Problem

_ROWS = 2500  # of a part, at most, where nobody says how many parts there are to be
_LINEAR = 8  # parts of a linear machine, which may be of any size


@dataclass(frozen=True)
class Parting:
    """How many parts (None is as many as seem right), made by which rule, and who holds them.

    ``engine=None`` is for solvers that need parts the same as threads of this computer.
    ``fan_in``, ``levels``, ``merge`` and ``survivors`` are of merges: see `solvers.sodm`.
    """

    count: int | None = None
    how: str = "stratified"
    strata: int = 32
    fan_in: int = 4
    levels: int | None = None
    merge: str = "auto"
    survivors: bool = False
    engine: Any = None

    @property
    def rule(self) -> str:
        """The rule of merges; rivals of SODM do not rescale."""
        if self.merge != "auto":
            return self.merge
        return "same" if self.survivors or self.how == "kmeans" else "blend"

    def parts_of(self, problem: Problem) -> int:
        """How many parts: a power of the fan-in where they will be merged."""
        if self.count is not None:
            return min(self.count, problem.n)
        return self._usual(problem.n) if problem.gram is not None else min(_LINEAR, problem.n)

    def levels_of(self, n: int) -> list[int]:
        """How many parts every level of a kernel machine on n rows has."""
        counts = [min(self.count or self._usual(n), n)]
        while counts[-1] > 1 and len(counts) != self.levels:
            counts.append(-(-counts[-1] // self.fan_in))
        return counts

    def _usual(self, n: int) -> int:
        count = 1
        while n > count * _ROWS:
            count *= self.fan_in
        return count

    def numbers(self, problem: Problem, count: int, rng: np.random.Generator) -> np.ndarray:
        """The number of every row's part."""
        kernel: Kernel = Linear() if problem.gram is None else problem.gram.kernel
        X, y, threads = problem.X, problem.y, problem.threads
        return partition(self.how, X, y, count, rng, kernel, self.strata, threads)

    def scatter(
        self,
        problem: Problem,
        part: np.ndarray,
        state: State | None = None,
        traffic: Traffic | None = None,
    ) -> LocalShards:
        """The problem with its engine."""
        engine = LocalEngine() if self.engine is None else self.engine
        return engine.scatter(problem, part, state, traffic)

    def scattered(self, problem: Problem, seed: int) -> LocalShards:
        """The problem in as many parts as there are to be; the seed decides which rows make one."""
        part = self.numbers(problem, self.parts_of(problem), np.random.default_rng(seed))
        return self.scatter(problem, part)
