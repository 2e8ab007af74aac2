"""Which solver: by name, or by the shape and conditioning of the problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import scipy.sparse as sp

from optimargin.arrays import brought, is_foreign
from optimargin.loss import is_smooth
from optimargin.problem import Points, Problem, Solution, Start, Status, Stop, drive
from optimargin.sketch import Sketch
from optimargin.solvers.dcd import DCD
from optimargin.solvers.finer import refined
from optimargin.solvers.kernel_newton import KernelNewton, is_exact, is_faster
from optimargin.solvers.landmark import train_all
from optimargin.solvers.ldm import LDM
from optimargin.solvers.ldm_svrg import LDMSVRG
from optimargin.solvers.mcodm import McODM
from optimargin.solvers.nearby import Nearby
from optimargin.solvers.newton import Newton, is_direct
from optimargin.solvers.on_parts import NAMED, PARTED, on_parts, refuse_kinks
from optimargin.solvers.parting import Parting
from optimargin.solvers.rounding import smoothed
from optimargin.solvers.sodm import SODM
from optimargin.solvers.svrg import SVRG

LINEAR = ("auto", "dcd", "newton", "svrg", *NAMED)
KERNEL = ("auto", "dcd", "newton", "landmark", "sodm")
ON_PARTS = ("sodm", *PARTED)  # those of the two that always work on parts of the rows
LDM_LINEAR = ("auto", "dcd", "svrg")
LDM_KERNEL = ("auto", "dcd")
ON_DEVICE = ("auto", "newton", "landmark")
MULTI = ("auto", "dcd", "mcodm-paper")

_STIFF_SPARSE = 10.0  # stiffness beyond which Newton wins on sparse rows with many features
_STIFF_DIRECT = 1.0  # the same on sparse rows with few features, where Newton costs little
_STIFF_ROUNDED = 3.0  # the same with the hinge, rounded over a width of 1, on dense rows
_ROWS_ROUNDED = 4  # rows to a feature, at least, that make a rounded hinge curved enough
_SMALL = 100_000  # kernel values with landmarks
EXACT = 1e-9  # relative gap of an answer that is as good as exact


class Solver(Protocol):
    """Frozen settings and one method."""

    name: str

    def points(self, problem: Problem, start: Start) -> Points:
        """Better and better points, each with both objectives."""
        ...


_ON_KERNELS: dict[str, Callable[[int], Solver]] = {
    "dcd": DCD,
    "newton": KernelNewton,
    "nearby": Nearby,
}
_ON_FEATURES: dict[str, Callable[[int], Solver]] = {"dcd": DCD, "newton": Newton, "svrg": SVRG}

_NO_PARTS = Parting()


def solve(
    name: str,
    problem: Problem,
    start: Start,
    stop: Stop,
    seed: int,
    parting: Parting = _NO_PARTS,
) -> Solution:
    """The answer to a problem by the solver of that name."""
    if is_foreign(problem.y):
        if name not in ON_DEVICE or parting.engine is not None:
            raise ValueError(
                f"solver={name!r} works on NumPy arrays; rows on a device are for 'auto', 'newton'"
                " and 'landmark', without an engine. Set device='cpu' to bring them here."
            )
        if not is_smooth(problem.loss):
            raise ValueError(
                "loss='hinge' has no curvature, which solvers on a device need; choose"
                " 'squared_hinge', or set device='cpu' to bring the rows here."
            )
        if problem.classes > 2 and problem.sketch is None:
            return solve(name, problem.on_host(), start, stop, seed, parting)
    if problem.sketch is not None:
        return over_landmarks(name, problem, [problem], [start], stop, seed)[0]
    if problem.classes > 2:
        if problem.gram is None and parting.engine is not None:
            raise ValueError(
                "engine is for machines of two classes; with more, set multi_class='ovr' or 'ovo',"
                " or leave engine=None."
            )
        if name not in MULTI:
            raise ValueError(
                f"solver={name!r} is for two classes; with more, set multi_class='ovr' or 'ovo',"
                " or leave solver='auto'."
            )
        return McODM(seed, "value" if name == "mcodm-paper" else "index").solve(
            problem, start, stop
        )
    if name == "sodm":
        return SODM(seed, parting).solve(problem, start, stop)
    if problem.gram is None and (parting.engine is not None or name in PARTED):
        return on_parts(name, problem, seed, parting, stop.tol).solve(problem, start, stop)
    solver = choose(name, problem, seed, stop.tol)
    # The last of few Newton steps brings an exact answer: there is no reason to do without it.
    exact = solver.name == "newton" and is_exact(problem)
    goal = min(stop.tol, EXACT) if exact else stop.tol
    found = drive(solver.points(problem, start), stop._replace(tol=goal), solver.name)
    return judged_by(stop.tol, found)


def over_landmarks(
    name: str,
    problem: Problem,
    machines: Sequence[Problem],
    starts: Sequence[Start],
    stop: Stop,
    seed: int,
) -> list[Solution]:
    """The answers as expansions over landmarks; a joint machine is a linear one in features."""
    assert problem.sketch is not None
    if machines[0].classes == 2:
        goal = min(stop.tol, EXACT) if _is_small(problem.sketch) else stop.tol
        found = train_all(problem, machines, starts, stop._replace(tol=goal), seed)
        if is_foreign(problem.y):
            found = refined(problem, machines, found, stop._replace(tol=goal), seed)
        return [judged_by(stop.tol, solution) for solution in found]
    (whole,), (start,) = machines, starts
    joint = name if name in MULTI else "auto"
    answer = solve(joint, whole.featured, start._replace(coef=None), stop, seed)
    coef = problem.sketch.landmarks.expand(brought(answer.coef[:, :-1], problem.y))
    return [replace(answer, coef=coef, solver="landmark")]


def _is_small(sketch: Sketch) -> bool:
    """Whether an exact answer costs next to nothing."""
    return sketch.size <= _SMALL and str(sketch.dtype) == "float64"


def judged_by(tol: float, found: Solution) -> Solution:
    """An answer for which more was attempted than was asked for, judged by what was."""
    if found.gap <= tol and found.status in (Status.PRECISION, Status.MAX_ITER):
        return replace(found, status=Status.CONVERGED)
    return found


def choose(name: str, problem: Problem, seed: int, tol: float = EXACT) -> Solver:
    """The solver of that name; ``"auto"`` weighs shape, sparsity and conditioning."""
    refuse_kinks(name, problem.loss)
    if problem.lam1 or problem.lam2 or not is_smooth(problem.loss):
        if name == "auto" and _is_worth_rounding(problem):
            name = "newton"
        if name == "auto":
            name = "dcd" if _can_be_whitened(problem) else "svrg"
        if name == "newton":
            return Newton(seed, tol=tol)
        return LDM(seed) if name == "dcd" else LDMSVRG(seed)
    if problem.gram is not None:
        if name == "auto":
            name = "newton" if is_foreign(problem.y) or is_faster(problem) else "nearby"
        return _ON_KERNELS[name](seed)
    if name == "auto":
        name = "newton" if is_foreign(problem.y) or not _is_easy(problem) else "dcd"
    return _ON_FEATURES[name](seed)


def _is_easy(problem: Problem) -> bool:
    """Whether coordinate descent gets there first on a linear machine."""
    few = is_direct(problem.d, problem.limit)
    if few and not sp.issparse(problem.X):
        return False
    return problem.stiffness <= (_STIFF_DIRECT if few else _STIFF_SPARSE)


def _is_worth_rounding(problem: Problem) -> bool:
    """Whether Newton's method gets there first on a linear machine with the hinge."""
    if problem.gram is not None or problem.lam1 or problem.lam2:
        return False
    if not is_direct(problem.d, problem.limit) or problem.n < _ROWS_ROUNDED * problem.d:
        return False
    least = _STIFF_SPARSE if sp.issparse(problem.X) else _STIFF_ROUNDED
    return smoothed(problem, 1.0).stiffness > least


def _can_be_whitened(problem: Problem) -> bool:
    """Whether an LDM can do without a variance: with a kernel, or on rows that fit as dense."""
    if problem.gram is not None or not problem.lam1:
        return True
    return is_direct(problem.d, problem.limit) and 24 * problem.n * (problem.d + 1) <= problem.limit
