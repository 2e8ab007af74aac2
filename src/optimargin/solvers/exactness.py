"""How far a machine over landmarks is from the one over all rows.

A model over landmarks is also one of the whole machine, with at most the objective it has, and
the dual variables a of its rows are also dual variables there.  So

    P - D(t a),   D(t a) = -t^2 a'YKYa / 2 - sum_i psi_i(t a_i),   t the best multiple

is a duality gap of the whole machine.  Rows that do not pull have a_i = 0: a'YKYa takes the kernel
values among those that do.  Where these are too many, K is replaced by more than it is,
K <= Q + tr(K - Q) I with Q the kernel of the landmarks; the trace is estimated from a sample.
"""

from __future__ import annotations

import numpy as np

from optimargin.arrays import name_of_dtype, number, places, taken
from optimargin.expansion import Expansion
from optimargin.loss import conjugate, dual_of
from optimargin.problem import Problem, Solution, relative_gap
from optimargin.sketch import Sketch
from optimargin.solvers.passes import pull

_FREE = 1_000  # pulling rows whose kernel values cost nothing worth mentioning


def exact_gap(problem: Problem, solution: Solution, share: float = 1.0) -> float:
    """The relative gap with the whole machine; nan for more than two classes at once.

    It may take as many kernel values as there are with the landmarks, or a share of that.
    """
    if problem.sketch is None or problem.classes > 2:
        return np.nan if problem.sketch is not None else solution.gap
    sketch, losses = problem.sketch, problem.losses
    a = dual_of(losses, solution.margin)
    pulling = places((a > 0.0) | (a < 0.0))
    n, S = sketch.shape
    if pulling.shape[0] <= max(_FREE, np.sqrt(share * n * S)):
        square = _square(problem, sketch, pulling, taken(a * problem.y, pulling))
    else:
        g = sketch.inward(pull(problem, solution.margin).gradient)
        square = float(g @ g) + sketch.left_out * number(sketch.diag) * float(a @ a)
    # psi is a square and a linear part on either side of zero, so D(t a) is a parabola in t >= 0.
    linear, ridge = _parts(losses, a)
    t = max(linear / (square + ridge), 0.0) if square + ridge > 0.0 else 0.0
    bound = t * linear - 0.5 * t * t * (square + ridge)
    return relative_gap(solution.primal, max(bound, 0.0))


def _parts(losses, a: np.ndarray) -> tuple[float, float]:
    """Numbers b and c with -sum psi(t a) = b t - c t^2 / 2 for t >= 0."""
    one, two = -number(conjugate(losses, a)), -number(conjugate(losses, 2.0 * a))
    return 2.0 * one - 0.5 * two, 2.0 * one - two


def _square(problem: Problem, sketch: Sketch, rows: np.ndarray, c: np.ndarray) -> float:
    """The square c'Kc over some of the rows."""
    landmarks, A = sketch.landmarks, taken(sketch.X, rows)
    whole = Expansion(landmarks.kernel, A, c[None, :], name_of_dtype(landmarks.moved))
    f = whole.scores(A, problem.threads)[:, 0]
    return float(c @ f) + landmarks.bias**2 * number(c) ** 2
