"""Which solver: by name, or by the shape and conditioning of the problem."""

from __future__ import annotations

from typing import Protocol

import scipy.sparse as sp

from optimargin.loss import is_smooth, steepest
from optimargin.problem import Points, Problem, Start
from optimargin.solvers.dcd import DCD
from optimargin.solvers.kernel_newton import KernelNewton
from optimargin.solvers.newton import Newton, is_direct
from optimargin.solvers.svrg import SVRG

LINEAR = ("auto", "dcd", "newton", "svrg")
KERNEL = ("auto", "dcd", "newton")

_STIFF = 100.0  # mean of a row's curvature times squared norm beyond which Newton wins
_SLACK = 1.0  # the same for sparse rows with few features, where Newton costs little
_SMALL = 500  # rows of a kernel machine that Newton solves exactly in no time
_FACTORED = 12_000  # rows of a kernel machine whose Newton systems can be factored


class Solver(Protocol):
    """Frozen settings and one method."""

    name: str

    def points(self, problem: Problem, start: Start) -> Points:
        """Better and better points, each with both objectives."""
        ...


def stiffness(problem: Problem) -> float:
    """Mean over the rows of the loss's curvature times the squared norm.

    Coordinate descent needs a number of epochs that grows with it; Newton does not.
    """
    q, weight = problem.sqnorms, problem.weight
    return steepest(problem.loss) * float(q.sum() if weight is None else weight @ q) / problem.n


def choose(name: str, problem: Problem, seed: int) -> Solver:
    """The solver of that name; ``"auto"`` weighs shape, sparsity and conditioning."""
    if problem.gram is not None:
        if name == "auto":
            small = problem.n <= _SMALL
            stiff = problem.n <= _FACTORED and stiffness(problem) > _STIFF
            name = "newton" if small or stiff else "dcd"
        return DCD(seed) if name == "dcd" else KernelNewton(seed)
    if name == "auto":
        name = "dcd" if not is_smooth(problem.loss) or _is_easy(problem) else "newton"
    return {"dcd": DCD, "newton": Newton, "svrg": SVRG}[name](seed)


def _is_easy(problem: Problem) -> bool:
    """Whether coordinate descent gets there first on a linear machine."""
    few = is_direct(problem)
    if few and not sp.issparse(problem.X):
        return False
    return stiffness(problem) <= (_SLACK if few else _STIFF)
