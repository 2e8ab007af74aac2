"""Passes over rows on a device, by array expressions: what `passes` does with compiled loops.

The rows come in blocks, of X or of features; sums over blocks are double precision.  Products
with features in half precision are split (see `device`), so a pass reads every block once for
each direction and is as good as single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimargin.arrays import cast, name_of_dtype, namespace, number, taken, total_of, zeros
from optimargin.device import columns, product, spans_of
from optimargin.loss import curvature, slope, value
from optimargin.problem import Problem


def margins(problem: Problem, w: Any) -> Any:
    """Every row's margin under w."""
    u, out = zeros(problem.n, problem.y), columns(w[:-1], name_of_dtype(problem.matrix))
    for span in problem.spans(slice(0, problem.n)):
        u[span] = product(taken(problem.matrix, span), out)[:, 0]
    return problem.y * (u + w[-1] * problem.constant)


def pull(problem: Problem, u: Any) -> tuple[float, Any, Any]:
    """The sum of the losses at the margins u, its gradient, and every row's curvature."""
    losses = problem.losses
    g = gradient(problem, slope(losses, u) * problem.y)
    return number(value(losses, u)), g, curvature(losses, u)


def gradient(problem: Problem, s: Any) -> Any:
    """The rows times the numbers s, added up."""
    g = zeros(problem.matrix.shape[1] + 1, problem.y)
    r = columns(s, name_of_dtype(problem.matrix))
    for span in problem.spans(slice(0, problem.n)):
        g[:-1] += product(taken(problem.matrix, span).T, r.rows(span))[:, 0]
    g[-1] = problem.constant * namespace(s).sum(s)
    return g


def curved(problem: Problem, h: Any, v: Any) -> Any:
    """X' diag(h) X v."""
    g, dtype = zeros(v.shape[0], problem.y), name_of_dtype(problem.matrix)
    out = columns(v[:-1], dtype)
    for span in problem.spans(slice(0, problem.n)):
        A = taken(problem.matrix, span)  # read twice, made once
        s = h[span] * (product(A, out)[:, 0] + v[-1] * problem.constant)
        g[:-1] += product(A.T, columns(s, dtype))[:, 0]
        g[-1] += problem.constant * namespace(s).sum(s)
    return g


def answers(asks: Sequence[Any]) -> list[Any]:
    """What several machines ask of features, from one read of those that they share.

    An ask with a model w is for the scores Phi w; one with numbers h for Phi'h; one with both for
    Phi' diag(h) Phi w.
    """
    out: list[Any] = [None] * len(asks)
    for part in {id(ask.part): ask.part for ask in asks}.values():
        own = [m for m, ask in enumerate(asks) if ask.part is part]
        order = sorted(own, key=lambda m: asks[m].h is not None)
        for m, answer in zip(order, _read(part, [asks[m] for m in own]), strict=True):
            out[m] = answer
    return out


def _read(part: Any, asks: Sequence[Any]) -> list[Any]:
    """Scores first, in the order of their asks, and then sums."""
    told = [ask for ask in asks if ask.h is None]
    both = [ask for ask in asks if ask.h is not None and ask.w is not None]
    summed = [ask for ask in asks if ask.h is not None]
    xp = namespace(asks[0].w if asks[0].w is not None else asks[0].h)
    models, dtype = [ask.w for ask in (*told, *both)], part.dtype
    W = columns(part.triangle.twisted(xp.stack(models, axis=1)), dtype) if models else None
    H: Any = xp.stack([ask.h for ask in summed], axis=1) if summed else None
    like = models[0] if models else summed[0].h
    scores = zeros((part.shape[0], len(told)), like)
    sums = zeros((part.shape[1], len(summed)), like)
    for span in part.spans(slice(0, part.shape[0])):
        A = part[span]
        F: Any = None if W is None else product(A, W)
        if told:
            scores[span, ...] = F[:, : len(told)]
        if H is not None:
            r, k = 1.0 * H[span, ...], len(told)
            for j, ask in enumerate(summed):
                if ask.w is not None:
                    r[:, j] *= F[:, k]
                    k += 1
            sums += product(A.T, columns(r, dtype))
    sums = part.triangle.straight(sums)
    return [scores[:, j] for j in range(len(told))] + [sums[:, j] for j in range(len(summed))]


def hessian(problem: Problem, h: Any) -> Any:
    """X' diag(h) X in double precision, the constant feature last."""
    d, bias = problem.matrix.shape[1], problem.constant
    H = zeros((d + 1, d + 1), problem.y)
    for span in problem.spans(slice(0, problem.n)):
        A = cast(taken(problem.matrix, span), "float64")
        hA = A * h[span][:, None]
        H[:d, :d] += A.T @ hA
        H[d, :d] += bias * namespace(hA).sum(hA, axis=0)
        H[d, d] += bias**2 * namespace(h).sum(h[span])
    H[:d, d] = H[d, :d]
    return H


def moments(X: Any, weight: Any) -> tuple[float, float, float]:
    """The weight of the rows, and the sums of their values and of the squares of these."""
    total = squares = 0.0
    for span in spans_of(X, slice(0, X.shape[0])):
        A = cast(taken(X, span), "float64")
        A, AA = (A, A * A) if weight is None else (weight[span] @ A, weight[span] @ (A * A))
        total, squares = total + number(A), squares + number(AA)
    return total_of(weight, X.shape[0]), total, squares
