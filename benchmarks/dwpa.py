"""Averages of machines on parts of the rows: figures 1 to 3 and tables 2 and 3 of dwpa.txt.

Toy set     two blobs, and a fifth of one class far away (section 3.1)
Data        as many rows as in the paper: generated sets with the shape of gisette and epsilon
            (6,000 and 1,000), and real texts of news20 in place of real-sim (3,000 and 5,000),
            which is not among our sets
Methods     PA, DWPA, DSVM (ADMM in feature space), the last two also over-relaxed ("acc"); the
            hinge, random parts; C is 1, on the toy set 100 / n
Residual    the norm of all x_m - z, over that of all x_m = z at the end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import bqo, data, pictures, problems
from benchmarks.kept import Kept, Record
from benchmarks.methods import Options
from benchmarks.report import Table, say
from benchmarks.sodm import wide
from benchmarks.timing import timed
from optimargin import LinearSVMClassifier
from optimargin.loss import hinge
from optimargin.problem import Problem
from optimargin.solvers.averaging import judged, learned, projected
from optimargin.solvers.consensus import RELAXED, Consensus, Ridge, ridge_of
from optimargin.solvers.parting import Parting

METHODS = {
    "PA": "pa",
    "DWPA": "dwpa",
    "DWPAacc": "dwpa-acc",
    "DSVM": "admm",
    "DSVMacc": "admm-acc",
}
_TOL, _ROUNDS, _FOLLOWED = 1e-3, 500, 100  # a paper's answer; most rounds, as there; drawn
_BIAS = {3000: (0.868, 0.261, 0.308), 6000: (0.807, 0.064, 0.169)}  # as printed: PA, DWPA, DSVM
_WEIGHT, _TIMES = 100.0, 100  # C n of the toy set; samples of which the bias is the mean
_COMPARED = ("PA", "DWPA", "DWPAacc", "DSVM")
_TEXTS = "news20"  # the set of figure 3
_AGREEING = ("DWPA", "DWPAacc", "DSVM", "DSVMacc")


class Split(NamedTuple):
    """Training and test rows."""

    A: Any
    a: np.ndarray
    B: Any
    b: np.ndarray


def run(options: Options) -> Iterator[Table]:
    """The toy set, its bias, accuracies, and how parts come to agree."""
    counts = (1, 5, 20) if options.quick else (1, 10, 50, 100, 200)
    path = None if options.results is None else options.results / "dwpa.jsonl"
    kept = Kept(path, (_TOL, _ROUNDS, _FOLLOWED, _WEIGHT, _TIMES, counts))
    kept.records = [r for r in kept.records if r.get("limit", np.inf) >= options.limit]
    if options.wants("toy"):
        yield _toy_table(counts, options)
        yield _bias_table(kept, options)
    sets = {name: load for name, load in _sets(options).items() if options.wants(name)}
    found = {name: list(_records(name, load, counts, kept, options)) for name, load in sets.items()}
    found = {name: records for name, records in found.items() if records}
    if found:
        yield _accuracy_table(found, counts, options)
        yield _residual_table(found, counts[1:-1], options)


def toy(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two blobs, and a fifth of one class far away, where the plane between the others passes."""
    y = problems.signs(rng.random(n) < 0.5)
    centre = np.where(y[:, None] > 0, [1.5, -1.0], [-1.5, -1.0])
    centre[(y > 0) & (rng.random(n) < 0.2)] = [-1.0, 4.0]
    return centre + 0.5 * rng.standard_normal((n, 2)), y


def machine(name: str, parts: int, C: float) -> LinearSVMClassifier:
    """A machine by its name in the paper."""
    return LinearSVMClassifier(
        C=C, solver=METHODS[name], n_partitions=parts, partition="random", tol=_TOL,
        max_iter=_ROUNDS, random_state=0,
    )  # fmt: skip


def _toy_table(counts: Sequence[int], options: Options) -> Table:
    rng, n = np.random.default_rng(0), 300 if options.quick else 1000
    (A, a), (B, b) = toy(n, rng), toy(20_000, rng)
    C = _WEIGHT / n
    exact = LinearSVMClassifier(C=C).fit(A, a).score(B, b)
    scores: dict[str, list[float]] = {}
    for name in METHODS:
        say(f"toy, {name}")
        scores[name] = [_fitted(machine(name, k, C), A, a).score(B, b) for k in counts]
    if options.pictures is not None:
        lines = {name: _fitted(machine(name, counts[-1], C), A, a) for name in ("PA", "DWPA")}
        planes = {name: np.append(m.coef_, m.intercept_) for name, m in lines.items()}
        shown = {name: scores[name] for name in ("PA", "DWPA")}
        path = options.pictures / "dwpa-toy.png"
        pictures.toy(A, a, planes, _locals(A, a, counts[-1], C), (counts, shown), path)
    rows = [[name, *(f"{q:.4f}" for q in found)] for name, found in scores.items()]
    note = f"Test accuracy; one machine on all {n:,} rows: {exact:.4f}."
    columns = ["method", *(f"{k} parts" for k in counts)]
    records = [{"method": name, "accuracy": found} for name, found in scores.items()]
    return Table("The toy set (figure 1)", columns, rows, note, records)


def _locals(A: np.ndarray, a: np.ndarray, parts: int, C: float) -> np.ndarray:
    """The machines of the parts."""
    shards = Parting(parts, "random").scattered(Problem(A, a, None, hinge(C), 1.0), 0)
    return learned(shards, 0)[1]


def _fitted(model: LinearSVMClassifier, X: Any, y: np.ndarray) -> LinearSVMClassifier:
    """The machine after a fit that may end before its tolerance."""
    timed(partial(model.fit, X, y))
    return model


def _bias_table(kept: Kept, options: Options) -> Table:
    """The mean of |w - w*| over samples; w* from many rows."""
    sizes, times = ((100, 200), 2) if options.quick else ((3000, 6000), _TIMES)
    many = 2_000 if options.quick else 200_000
    parts = 10 if options.quick else 100
    for n in kept.missing(sizes, lambda r: r.get("bias of")):
        rng = np.random.default_rng(n)
        X, y = toy(many, rng)
        best = LinearSVMClassifier(C=_WEIGHT / many, tol=1e-5).fit(X, y)
        goal = np.append(best.coef_, best.intercept_)
        away: dict[str, list[float]] = {name: [] for name in ("PA", "DWPA", "DSVM")}
        say(f"toy, bias with {n} rows")
        for _ in range(times):
            A, a = toy(n, rng)
            for name, found in away.items():
                model = _fitted(machine(name, parts, _WEIGHT / n), A, a)
                w = np.append(model.coef_, model.intercept_)
                found.append(float(np.linalg.norm(w - goal)))
        kept.add({"bias of": n, "away": away})
    rows = []
    for r in (r for r in kept.records if r.get("bias of") in sizes):
        printed = [f"{v:.3f}" for v in _BIAS.get(r["bias of"], ())] or [""] * 3
        rows.append([r["bias of"], *(f"{np.mean(v):.4f}" for v in r["away"].values()), *printed])
    columns = ["rows", "PA", "DWPA", "DSVM", "printed: PA", "DWPA", "DSVM"]
    note = f"Mean of |w - w*| over {times} samples, {parts} parts; w* from {many:,} rows."
    return Table("Bias on the toy set (table 2)", columns, rows, note)


def _sets(options: Options) -> dict[str, Callable[[], Split]]:
    if options.quick:
        return {"epsilon": lambda: _split(*bqo.dense(bqo.Shape(260, 10, 10, "")), 200)}
    return {
        "gisette": _gisette,
        "epsilon": lambda: _split(*bqo.dense(bqo.Shape(7_000, 2_000, 2_000, "")), 6_000),
        _TEXTS: partial(_news20, options),
    }


def _gisette() -> Split:
    X, y = wide(7_000, 5_000)
    return _split(data.to_unit_interval(X) / np.sqrt(X.shape[1]), y, 6_000)


def _news20(options: Options) -> Split:
    real = {p.name: p for p in problems.linear(quick=False)}
    X, y = real["news20, unit rows"].load(options.data)
    return _split(X[:8_000], y[:8_000], 3_000)


def _split(X: Any, y: np.ndarray, n: int) -> Split:
    return Split(X[:n], y[:n], X[n:], y[n:])


def _records(
    name: str, load: Callable[[], Split], counts: Sequence[int], kept: Kept, options: Options
) -> list[Record]:
    """What every method reaches in how many parts; nothing where there is no data."""
    jobs = [(name, "one machine", 1, "accuracy")]
    jobs += [(name, method, k, "accuracy") for method in _COMPARED for k in counts]
    if options.quick or name == _TEXTS:
        jobs += [(name, method, k, "residual") for k in counts[1:-1] for method in _AGREEING]
    missing = kept.missing(jobs, _key)
    if missing:
        try:
            split = load()
        except data.NoData:
            say(f"{name}: no data")
            return []
        for _, method, k, what in missing:
            say(f"{name}, {method}, {k} parts, {what}")
            head = {"data": name, "method": method, "parts": k, "what": what}
            measure = _reached if what == "accuracy" else _agreed
            kept.add({**head, **measure(split, method, k, options)})
    found = {_key(r): r for r in kept.records if "data" in r}
    return [found[job] for job in jobs]


def _key(r: Record) -> tuple[Any, ...]:
    return tuple(r.get(name) for name in ("data", "method", "parts", "what"))


def _reached(split: Split, method: str, parts: int, options: Options) -> Record:
    """Test accuracy, and seconds a round."""
    A, a, B, b = split
    if method == "one machine":
        return {"accuracy": LinearSVMClassifier(tol=_TOL).fit(A, a).score(B, b)}
    model = machine(method, parts, 1.0).set_params(time_limit=options.limit)
    timed(partial(model.fit, A[:300], a[:300]))  # compiled before the clock
    seconds, _ = timed(partial(model.fit, A, a))
    pace = seconds / max(model.traffic_["rounds"], 1)
    found: Record = {"accuracy": model.score(B, b), "pace": pace, "status": model.status_}
    return {**found, **({"limit": options.limit} if model.status_ == "time_limit" else {})}


def _agreed(split: Split, method: str, parts: int, options: Options) -> Record:
    rounds = 12 if options.quick else _FOLLOWED
    apart, accuracy = residuals(split, method, parts, rounds)
    return {"apart": np.maximum(apart, 1e-12).tolist(), "accuracies": accuracy}


def _accuracy_table(
    found: dict[str, list[Record]], counts: Sequence[int], options: Options
) -> Table:
    rows, shown = [], dict[str, dict[str, list[float]]]()
    for name, records in found.items():
        of = {(r["method"], r["parts"]): r for r in records if r["what"] == "accuracy"}
        exact = of["one machine", 1]["accuracy"]
        lines = shown.setdefault(name, {})
        for method in _COMPARED:
            lines[method] = [of[method, k]["accuracy"] for k in counts]
            paces = [f"{1e3 * of[method, k]['pace']:.3g}" for k in counts[1:]]
            rows.append([name, method, *(f"{q:.4f}" for q in lines[method]), f"{exact:.4f}"])
            rows[-1] += paces
        lines["one machine"] = [exact] * len(counts)
    if options.pictures is not None:
        pictures.by_parts(shown, counts, options.pictures / "dwpa-accuracy.png")
    columns = ["data", "method", *(f"{k} parts" for k in counts), "one machine"]
    columns += [f"ms a round, {k}" for k in counts[1:]]
    note = f"Test accuracy; to a relative gap of {_TOL:g}, {_ROUNDS} rounds or {options.limit:g} s."
    every = [r for records in found.values() for r in records if r["what"] == "accuracy"]
    return Table("Accuracy and time a round (figure 2, table 3)", columns, rows, note, every)


def residuals(
    split: Split, method: str, parts: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Residual and test accuracy after each round."""
    problem = Problem(split.A, split.a, None, hinge(1.0), 1.0, threads=2)
    shards = Parting(parts, "random").scattered(problem, 0)
    alpha = RELAXED if method.endswith("acc") else 1.0
    basis = None
    if method.startswith("DWPA"):
        shards, W = learned(shards, 0)
        _, pulled = judged(shards, W.mean(axis=0), 1)
        shards, basis, z = projected(shards, W)
        stands = Consensus(0, alpha).stands(shards, ridge_of(basis), z, basis @ pulled)
    else:
        zero = np.zeros(problem.d + 1)
        stands = Consensus(0, alpha).stands(shards, Ridge(), zero, zero)
    apart, accuracy = [], []
    for _, stand in zip(range(rounds + 1), stands, strict=False):
        w = stand.z if basis is None else stand.z @ basis
        size = np.sqrt(parts) * float(np.linalg.norm(stand.z))
        apart.append(stand.residual / size if size > 0.0 else 0.0)
        scores = split.B @ w[:-1] + w[-1]
        accuracy.append(float(np.mean((scores > 0) == (split.b > 0))))
    return apart[1:], accuracy[1:]


def _residual_table(
    found: dict[str, list[Record]], counts: Sequence[int], options: Options
) -> Table:
    at = [r for r in (1, 3, 10, 30, 100) if options.quick is False or r <= 10]
    rows: list[list[Any]] = []
    shown: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for name, records in found.items():
        for r in (r for r in records if r["what"] == "residual"):
            pairs = list(zip(r["apart"], r["accuracies"], strict=True))
            cells = [f"{pairs[k - 1][0]:.2g} / {pairs[k - 1][1]:.4f}" for k in at]
            rows.append([name, r["parts"], r["method"], *cells])
            lines = shown.setdefault(f"{name}, {r['parts']} parts", {})
            lines[r["method"]] = r["apart"], r["accuracies"]
    if options.pictures is not None and shown:
        pictures.agreement(shown, options.pictures / "dwpa-residual.png")
    columns = ["data", "parts", "method", *(f"after {r} rounds" for r in at)]
    note = "Relative primal residual / test accuracy. DWPA begins with the machines of PA."
    return Table("How parts come to agree (figure 3)", columns, rows, note)
