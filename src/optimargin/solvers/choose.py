"""Which solver: by name, or by the shape and conditioning of the problem."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp

from optimargin.problem import Points, Problem, Start
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton
from optimargin.solvers.newton import Newton
from optimargin.solvers.svrg import SVRG

LINEAR = ("auto", "dcd", "newton", "svrg")
KERNEL = ("auto", "dcd", "newton")

_EASY = 3e3  # curvature of the loss times squared norms of the rows, see stiffness
_SMALL = 500  # rows of a kernel machine that Newton solves exactly in no time
_DIRECT = 1500  # features of a linear machine whose Hessian is factored


class Solver(Protocol):
    """Frozen settings and one method."""

    name: str

    def points(self, problem: Problem, start: Start) -> Points:
        """Better and better points, each with both objectives."""
        ...


def stiffness(problem: Problem, norms: np.ndarray) -> float:
    """Sum over the rows of curvature times squared norm: trace of the Hessian of the loss.

    Coordinate descent needs a number of epochs that grows with it; Newton does not.
    """
    steepest = 1.0 / min(problem.loss.ridge_lo, problem.loss.ridge_hi)
    return float(steepest * (problem.weight @ norms))


def choose(name: str, problem: Problem, seed: int) -> Solver:
    """The solver of that name; ``"auto"`` weighs shape, sparsity and conditioning."""
    if problem.gram is not None:
        if name == "auto":
            hard = stiffness(problem, problem.gram.diag) > _EASY * problem.n
            name = "newton" if problem.n <= _SMALL or hard else "dcd"
        return DCD(seed) if name == "dcd" else KernelNewton()
    if name == "auto":
        name = "newton" if problem.d <= _DIRECT or not sp.issparse(problem.X) else "dcd"
    return {"dcd": DCD, "newton": Newton, "svrg": SVRG}[name](seed)
