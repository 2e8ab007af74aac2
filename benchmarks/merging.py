"""Where a merge starts from: the objective at zero, as printed, rescaled, and at the best scale.

math.md section 4.  Machines on p parts make an average; the printed rule starts from p times that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import pictures, problems
from benchmarks.methods import Options
from benchmarks.report import Table
from optimargin import ODMClassifier
from optimargin.linesearch import best_step
from optimargin.loss import odm, value

_ROWS, _PARTS, _LAMS = 8_000, 4, (1e2, 1e3, 1e4)
_GAMMA, _MU, _THETA = 2.0, 0.5, 0.1
RULES = ("zero", "concatenate", "rescaled", "best scale")


def table(options: Options) -> Table:
    """The objective of every start, relative to the optimum."""
    n = 400 if options.quick else _ROWS
    X, y = problems.curved(n)
    rows, starts = [], {}
    for lam in _LAMS:
        given: dict[str, Any] = {"lam": lam, "mu": _MU, "theta": _THETA, "gamma": _GAMMA}
        exact = ODMClassifier(solver="newton", **given).fit(X, y)
        best = exact.objective_ * (1.0 - exact.dual_gap_)
        mean = ODMClassifier(
            solver="sodm", n_partitions=_PARTS, levels=1, random_state=0, **given
        ).fit(X, y)
        f = mean.decision_function(X)
        u, norm2 = y * f, float(mean.dual_coef_[0] @ f[mean.support_])
        loss = odm(lam, _MU, _THETA, n)
        scale = best_step(loss, None, np.zeros(n), u, 0.0, norm2)
        found = [
            (0.5 * t**2 * norm2 + float(value(loss, t * u).sum())) / best - 1.0
            for t in (0.0, float(_PARTS), 1.0, scale)
        ]
        starts[f"lam = {lam:g}"] = dict(zip(RULES, found, strict=True))
        rows.append([f"{lam:g}", *(f"{v:.2g}" for v in found)])
    if options.pictures is not None:
        pictures.excesses(starts, options.pictures / "sodm-merge.png")
    note = (
        f"{n:,} generated rows, {_PARTS} parts, RBF kernel with gamma {_GAMMA:g}: how far the start"
        " of the merged problem is above its optimum, over the optimum. The printed rule starts"
        " further away than from nothing."
    )
    return Table("Where a merge starts from", ["lam", *RULES], rows, note)
