"""What a benchmark is given and what it compares: options, methods, and why one is absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class NotInstalled(RuntimeError):
    """A peer that this machine does not have."""


class TooSlow(RuntimeError):
    """A method that was stopped at the time limit."""


class Options(NamedTuple):
    """What the command line asked for."""

    data: Path | None = None
    oracle: Path | None = None
    libodm: Path | None = None
    repeats: int = 3
    quick: bool = False
    peers: bool = True
    search: Path | None = None
    results: Path | None = None
    pictures: Path | None = None
    limit: float = 20.0
    only: str = ""

    def wants(self, data: str) -> bool:
        """Whether --only leaves this data set in."""
        return self.only in data


class Task(NamedTuple):
    """A learning problem: rows, labels -1 and +1, and the numbers of the ODM objective."""

    X: Any
    y: np.ndarray
    lam: float
    mu: float = 0.0
    theta: float = 0.0
    gamma: float = 0.0

    @property
    def C(self) -> float:
        """LIBLINEAR's C, the weight of one row's loss."""
        return self.lam / len(self.y)


class Linear(NamedTuple):
    """A linear model."""

    coef: np.ndarray
    intercept: float


class LinearMethod(NamedTuple):
    """Fits a linear model to a task at one of its own tolerances, loosest first.

    ``prepare`` takes a task, a tolerance and a time limit in seconds; the call it returns is
    what is timed.
    """

    name: str
    prepare: Callable[[Task, float, float], Callable[[], Linear]]
    tolerances: tuple[float, ...]
    is_peer: bool = False


Predict = Callable[[Any], np.ndarray]


class KernelMethod(NamedTuple):
    """Trains an RBF machine with its default tolerance.

    ``prepare`` takes a task and a time limit in seconds; the call it returns is what is
    timed, and gives back a function that predicts.
    """

    name: str
    prepare: Callable[[Task, float], Callable[[], Predict]]
    family: str  # methods of one family find the same model, so they share a C
    is_peer: bool = False
