"""What a solution says of the error with each row left out: see `bounds` for the theorems."""

from __future__ import annotations

import numpy as np

from optimargin.arrays import is_foreign, number
from optimargin.bounds import MeanProducts, ldm_loo_bound, loo_bound, risk
from optimargin.loss import dual_of, is_smooth, of_row
from optimargin.problem import Problem, Solution
from optimargin.threads import spans

_BLOCK = 1 << 15  # rows at a time: the temporaries are many


def left_out(problem: Problem, solution: Solution) -> np.ndarray:
    """The paper's leave-one-out bound, and the count that holds.

    They are theorems about two classes; a loss with kinks needs dual variables, which stay with
    the parts where rows are in parts.
    """
    if problem.classes == 2 and is_smooth(problem.loss):
        return _by_margins(problem, solution)
    if problem.classes > 2 or solution.dual is None:
        return np.full(2, np.nan)
    return _ldm(problem, solution)


def _by_margins(problem: Problem, solution: Solution) -> np.ndarray:
    if is_foreign(problem.y):
        return _on_device(problem, solution)
    loss, totals, size = problem.loss, np.zeros(2), 0.0
    for span in spans(problem.n, _BLOCK):
        weight = None if problem.weight is None else problem.weight[span]
        own, norms = of_row(loss, problem.weight, span), problem.sqnorms[span]
        count = float(len(norms) if weight is None else weight.sum())
        if count > 0.0:
            a = dual_of(own, solution.margin[span])
            rules = [loo_bound(loss, a, norms, weight, rule=rule) for rule in ("paper", "count")]
            totals, size = totals + count * np.array(rules), size + count
    return totals / size


def _on_device(problem: Problem, solution: Solution) -> np.ndarray:
    loss, weight = problem.loss, problem.weight
    a, size = dual_of(loss, solution.margin), problem.n if weight is None else number(weight)
    each = [risk(loss, a, problem.sqnorms, rule) for rule in ("paper", "count")]
    return np.array([number(r if weight is None else weight * r) / size for r in each])


def _ldm(problem: Problem, solution: Solution) -> np.ndarray:
    # SVRG whitens no rows; their norms as given are larger, which keeps the bounds valid.
    rows = vars(problem).get("whitened", problem)
    kept = problem.kept if rows is not problem else slice(None)
    assert solution.dual is not None  # see `left_out`
    a, u = solution.dual[kept], solution.margin[kept]
    theorem = loo_bound(rows.loss, a, rows.sqnorms, rows.weight, rule="paper")
    count = ldm_loo_bound(
        a,
        u,
        _mean_products(rows),
        rows.weight,
        lam1=problem.lam1,
        lam2=problem.lam2,
        whitened=rows is not problem,
    )
    return np.array([theorem, count])


def _mean_products(rows: Problem) -> MeanProducts:
    c = rows.shares * rows.y
    if rows.gram is not None:
        f = rows.gram.apply(c)
        return MeanProducts(rows.sqnorms, rows.y * f, float(c @ f))
    m, constant = c @ rows.X, rows.bias**2 * float(c.sum())
    f = rows.X @ m + constant
    return MeanProducts(rows.sqnorms, rows.y * f, float(m @ m + constant * c.sum()))
