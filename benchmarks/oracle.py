"""Agreement: with results of libodm that were recorded once, and with LinearSVC.

Every case is solved by every solver that can; the objective is recomputed in double
precision from the fitted model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import LinearSVC

from benchmarks import problems
from benchmarks.data import NoData, read
from benchmarks.methods import Linear, Options, Task
from benchmarks.objective import kernel_primal, linear_primal
from benchmarks.report import Table
from benchmarks.timing import timed
from optimargin import LinearODMClassifier, ODMClassifier

OBJECTIVE, DECISION = 1e-6, 1e-4
_TOL = 1e-11  # |w - w*|^2 <= 2 gap P: what it takes to certify the decision values
_GRAM_UP_TO = 5000  # rows of linear cases that the kernel machine solves too
LINEAR, POLY, RBF = 0, 1, 2


def run(options: Options) -> Iterator[Table]:
    """One table for libodm, one for LinearSVC."""
    if options.oracle is None or not options.oracle.is_file():
        yield Table("libodm's results", ["case"], [["no data"]])
    else:
        yield _against_libodm(json.loads(options.oracle.read_text(encoding="utf-8")), options)
    yield _against_linear_svc(options)


def _against_libodm(cases: list[dict[str, Any]], options: Options) -> Table:
    rows: list[list[Any]] = []
    for number, case in enumerate(cases[:1] if options.quick else cases):
        named = f"{number} {_said(case)}"
        try:
            (X, y), (T, _) = _rows(case, options.data)
        except NoData:
            rows.append([named, "no data", "", "", "", ""])
            continue
        task = Task(X, y, case["lam"], case["mu"], case["th"], case.get("g", 0.0))
        for solver, model in models(case, options.limit):
            timed(partial(model.fit, X, y))
            off = primal(task, case, model) / case["objective"] - 1.0
            decisions = model.decision_function(T[:5]) - np.array(case["decision_first5"])
            rows.append([named, solver, f"{model.dual_gap_:.0e}", *_judge(off, decisions)])
    return _table("libodm's results", rows)


def _judge(off: float, decisions: np.ndarray) -> list[str]:
    """Both differences and a verdict; who has the lower objective is nearer to the optimum."""
    far = float(np.abs(decisions).max())
    verdict = "yes" if abs(off) <= OBJECTIVE and far <= DECISION else "NO"
    return [f"{off:+.1e}", f"{far:.1e}", "ours is lower" if off < -OBJECTIVE else verdict]


def _table(title: str, rows: list[list[Any]]) -> Table:
    columns = ["case", "solver", "our gap", "objective off by", "decisions off by", "agrees"]
    verdicts = [row[-1] for row in rows]
    note = (
        f"{verdicts.count('yes')} of {len(rows)} agree: objective to {OBJECTIVE:g} relative,"
        f" decision values to {DECISION:g}. In {verdicts.count('ours is lower')} ours is lower by"
        " more than that: the other solver had stopped short of the optimum."
    )
    return Table(title, columns, rows, note, [dict(zip(columns, r, strict=True)) for r in rows])


def _rows(case: dict[str, Any], directory: Path | None) -> tuple[problems.Rows, problems.Rows]:
    """Training and test rows as the case's note says."""
    name = case["dataset"]
    X, y = read(name, directory)
    if name == "phishing":
        X, T, y, z = X[:4000], X[4000:8000], y[:4000], y[4000:8000]
    elif name == "heart_scale":
        T, z = X, y
    else:
        T, z = read(f"{name}.t", directory)
    if name == "a7a":
        X, T = X[:, :122], T[:, :122]
    elif case["k"] != LINEAR or X.shape[1] < 50:
        X, T = X.toarray(), T.toarray()
    return (X, problems.signs(y == 1)), (T, problems.signs(z == 1))


def models(case: dict[str, Any], limit: float) -> Iterator[tuple[str, Any]]:
    """Unfitted classifiers for a case, by the name of their solver."""
    numbers = {"lam": case["lam"], "mu": case["mu"], "theta": case["th"]}
    numbers |= {"fit_intercept": bool(case.get("b", False)), "tol": _TOL}
    numbers |= {"max_iter": 10**6, "time_limit": limit, "random_state": 0}
    kernel = {"kernel": {LINEAR: "linear", POLY: "poly", RBF: "rbf"}[case["k"]]}
    kernel |= {"gamma": case.get("g", 1.0), "degree": case.get("deg", 3)}
    kernel |= {"coef0": case.get("c0", 0.0)}
    if case["k"] == LINEAR:
        for solver in ("dcd", "newton", "svrg"):
            yield f"linear {solver}", LinearODMClassifier(solver=solver, **numbers)
    if case["k"] != LINEAR or case["n_train"] <= _GRAM_UP_TO:
        for solver in ("dcd", "newton"):
            yield f"kernel {solver}", ODMClassifier(solver=solver, **kernel, **numbers)


def primal(task: Task, case: dict[str, Any], model: Any) -> float:
    """The objective of a fitted classifier."""
    if case["k"] == LINEAR:
        coef = np.asarray(model.coef_).ravel()
        return linear_primal(task, Linear(coef, float(model.intercept_[0])))
    K = _gram(case, task.X)
    b = np.zeros(len(K))
    b[model.support_] = model.dual_coef_.ravel()
    return kernel_primal(task, K, b)


def _gram(case: dict[str, Any], X: Any) -> np.ndarray:
    if case["k"] == RBF:
        return rbf_kernel(X, gamma=case["g"])
    if case["k"] == POLY:
        return polynomial_kernel(X, degree=case["deg"], gamma=case["g"], coef0=case["c0"])
    return linear_kernel(X)


def _said(case: dict[str, Any]) -> str:
    kernel = ("linear", "poly", "rbf")[case["k"]] + (" + 1" if case.get("b") else "")
    return f"{case['dataset']}, {kernel}, {case['lam']:g}, {case['mu']:g}, {case['th']:g}"


def _against_linear_svc(options: Options) -> Table:
    """The L2-SVM, by LinearSVC and by each of our linear solvers; decisions on all rows."""
    rows: list[list[Any]] = []
    sets: dict[str, Any] = {"generated": lambda: problems.tall(2_000)}
    for name in () if options.quick else ("heart_scale", "svmguide1.scale", "a7a"):
        sets[name] = partial(_two_classes, name, options.data)
    for name, load in sets.items():
        try:
            X, y = load()
        except NoData:
            rows.append([name, "no data", "", "", "", ""])
            continue
        task = Task(X, y, lam=0.1 * len(y))
        judge = LinearSVC(C=0.1, dual=False, tol=1e-10, max_iter=10**6)
        timed(partial(judge.fit, X, y))
        theirs = linear_primal(task, Linear(judge.coef_.ravel(), float(judge.intercept_[0])))
        case = {"k": LINEAR, "lam": task.lam, "mu": 0.0, "th": 0.0, "b": True, "n_train": 10**9}
        for solver, model in models(case, options.limit):
            timed(partial(model.fit, X, y))
            off = primal(task, case, model) / theirs - 1.0
            decisions = model.decision_function(X) - judge.decision_function(X)
            rows.append([name, solver, f"{model.dual_gap_:.0e}", *_judge(off, decisions)])
    return _table("LinearSVC at mu = theta = 0, C = 0.1", rows)


def _two_classes(name: str, directory: Path | None) -> problems.Rows:
    X, y = read(name, directory)
    return X, problems.signs(y == 1)
