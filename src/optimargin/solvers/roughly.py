"""A few rounds of dual coordinate descent in one compiled call, for small parts among many.

Problem   max_a D(a) for a kernel machine on the rows of a part, as in `dcd`
Update    a round is that of `dcd`: a look, the leap to the best blend of the last dual variables,
          and sweeps over the rows that gain most; the model is the best blend of the last three
Cost      as there.  A round on some hundred rows takes as long as a few calls from Python, for
          which threads wait in line; here they do not meet until the part is done
"""

from __future__ import annotations

import numpy as np

from optimargin.blend import best_blend
from optimargin.loss import is_smooth, is_unbounded
from optimargin.problem import Problem, Solution, Start, Status, Stop, relative_gap
from optimargin.rows import compiled
from optimargin.solvers.dcd import DCD, WORTH_KERNEL, begin, certify, passes

SMALL = 4096  # rows of a part that may do without a look at the clock
_SPAN = 3  # models in whose span the best is looked for
_WORTH = 0.01  # share of the gap that makes another step of that search worth it
_WORTH_LEAPING = 1e-3  # the same for the dual variables


def solve_roughly(problem: Problem, start: Start, stop: Stop, seed: int) -> Solution:
    """The machine after some rounds; all kernel values are there."""
    a, rows = begin(problem, start)
    kind = is_smooth(problem.loss), is_unbounded(problem.loss)
    seed = int(np.random.default_rng(seed).integers(1, 2**62))
    data = problem.loss, rows, problem.y, problem.weight, problem.sqnorms
    a = a.copy()  # moves
    b, u, primal, bound, rounds = _rounds(*data, a, kind, stop.max_iter, stop.tol, seed)
    status = Status.CONVERGED if relative_gap(primal, bound) <= stop.tol else Status.MAX_ITER
    if rounds < 0:
        status = Status.INDEFINITE
    return Solution(b * problem.y, a, u, primal, bound, status, max(rounds, 0), DCD.name)


@compiled
def _products(A, U):
    """A U'; a loop is compiled sooner than a call of BLAS."""
    G = np.zeros((len(A), len(U)))
    for j in range(len(A)):
        for k in range(len(U)):
            for i in range(A.shape[1]):
                G[j, k] += A[j, i] * U[k, i]
    return G


@compiled
def _blend(c, A, out):
    """Write sum_j c_j A[j]."""
    for i in range(len(out)):
        total = 0.0
        for j in range(len(c)):
            total += c[j] * A[j, i]
        out[i] = total


@compiled
def _shift(A, new):
    """Put a row before the others, of which the last is lost."""
    for j in range(len(A) - 1, 0, -1):
        A[j, :] = A[j - 1]
    A[0, :] = new


@compiled
def _rounds(loss, rows, y, weight, q, a, kind, most, tol, seed):
    """Rounds from ``a`` on; -1 of them where the matrix has a negative eigenvalue."""
    smooth, unbounded = kind
    n, scored, state, k = len(a), a.any(), np.uint64(seed), 0
    u, gain, members = np.empty(n), np.empty(n), np.empty(n, np.int64)
    B, V = np.zeros((_SPAN, n)), np.zeros((_SPAN, n))  # models as they are met, with margins
    A, U = np.zeros((_SPAN, n)), np.zeros((_SPAN, n))  # dual variables after leaps
    best, best_u, least, bound = a.copy(), np.zeros(n), np.inf, -np.inf
    while True:
        total, gap = certify(loss, rows, y, weight, q, a, 0, n, u, gain, scored)
        norm2 = 0.0
        for i in range(n):
            norm2 += a[i] * u[i]
        primal = 0.5 * norm2 + total
        if not norm2 >= -1e-6 * abs(primal):
            return best, best_u, primal, bound, -1
        bound = max(bound, primal - gap)
        if primal < least:
            least, best[:], best_u[:] = primal, a, u
        if k:  # the first model of all is zero or from elsewhere
            _shift(B, a)
            _shift(V, u)
        if smooth and k >= _SPAN:
            c, found = best_blend(loss, weight, False, _products(B, V), V, _WORTH * gap)
            if found < least:
                least = found
                _blend(c, B, best)
                _blend(c, V, best_u)
        if k == most or least - bound <= tol * max(abs(least), abs(bound)):
            return best, best_u, least, bound, k
        _shift(A, a)
        _shift(U, u)
        if unbounded and k:
            worth = _WORTH_LEAPING * (least - bound)
            c, _ = best_blend(loss, weight, True, _products(A, U), A, worth)
            _blend(c, A, a)
            _blend(c, U, u)
            A[0, :], U[0, :] = a, u
            for i in range(n):
                rows.f[i] = y[i] * u[i]
        floor, count = WORTH_KERNEL * gain.mean(), 0
        for i in range(n):
            if gain[i] > floor:
                members[count] = i
                count += 1
        state = passes(loss, rows, y, weight, q, a, members[:count], floor, gain, state)
        scored = True
        k += 1
