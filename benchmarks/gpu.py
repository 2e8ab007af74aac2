"""The same machines on a GPU: seconds of a fit from arrays that are on the card, and from the host.

Protocol    one GPU, PyTorch; a fit of each kind to warm up, then the median of ``--repeats`` (3)
Generated   X ~ N(0, I) of 18 features; s = sin(2 x0) + x1 x2 - x3^2 / 2 + tanh(x4 + x5) + noise of
            deviation 1/2; y is whether s is above its median; gamma 0.05, lam 1e5, mu 0.5,
            theta 0.2, random landmarks, features in half precision, to a gap of 1e-5
Floor       of a step: the product of the features with themselves, made use of its symmetry, at the
            rate that a product of 8,192 x 8,192 has here; our steps take other products, so a
            share above 1 means that they are quicker than that product
Real        features in [0, 1]; the split and the goals of the benchmark `landmark`
Agreement   of the objective with that of a fit on the CPU in double precision, on fewer rows

It runs from a checkout alone: ``PYTHONPATH=src python -m benchmarks gpu --data-dir DATA``.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import data, goals
from benchmarks.methods import NotInstalled, Options
from benchmarks.report import Table, say
from optimargin import LinearODMClassifier, ODMClassifier

ROWS, FEATURES, JUDGES = 4_000_000, 18, 200_000
SETTING = {"gamma": 0.05, "lam": 1e5, "mu": 0.5, "theta": 0.2}
SIZES = {1024: (0.5, 0.8418), 4096: (1.0, 0.8632), 8192: (3.5, 0.8653)}  # seconds, accuracy before
_TOL, _PROBE = 1e-5, 8192
_GB = 1e9


class Real(NamedTuple):
    """A machine for a public set: what to reach in how many seconds, and how."""

    name: str
    accuracy: float
    seconds: float
    setting: dict[str, Any]


_HALF = {"precision": "half", "multi_class": "ovr", "random_state": 0}
_WIDE = {"theta": 0.6, "mu": 0.1, **_HALF}
REAL = (
    Real("covtype", 0.95, 60.0, {"C": 30.0, "gamma": 32.0, "n_landmarks": 32_000, **_WIDE}),
    Real("mnist", 0.985, 5.0, {"C": 10.0, "gamma": 0.03, "n_landmarks": 4_000, **_WIDE}),
    Real("ijcnn1", 0.994, 1.0, {"C": 55.0, "gamma": 3.0, "n_landmarks": 4_000, **_WIDE}),
)


def run(options: Options) -> Iterator[Table]:
    """Landmarks, exact and linear machines on generated rows; public sets; agreement."""
    import torch

    if not torch.cuda.is_available():
        raise NotInstalled("a GPU that PyTorch can use")
    yield _generated(torch, options)
    yield _others(torch, options)
    yield _real(torch, options)
    yield _agreement(torch, options)


def rows_of(torch: Any, n: int, seed: int = 0) -> tuple[Any, Any]:
    """Generated rows and labels -1, +1, on the card."""
    g = torch.Generator(device="cuda").manual_seed(seed)
    X = torch.randn(n, FEATURES, device="cuda", generator=g)
    s = torch.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] - 0.5 * X[:, 3] ** 2
    s += torch.tanh(X[:, 4] + X[:, 5]) + 0.5 * torch.randn(n, device="cuda", generator=g)
    return X, (s > s.median()).long() * 2 - 1


class Timed(NamedTuple):
    """Of some fits: the last model, the median of their seconds, and the most bytes taken."""

    model: Any
    seconds: float
    bytes: int


def timed(torch: Any, make: Callable[[], Any], X: Any, y: Any, repeats: int) -> Timed:
    """One fit to warm up, then others."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(repeats + 1):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
            began = time.perf_counter()
            model = make().fit(X, y)
            torch.cuda.synchronize()
            found.append(time.perf_counter() - began)
    return Timed(model, statistics.median(found[1:]), torch.cuda.max_memory_allocated())


def _rate(torch: Any) -> float:
    """Operations a second of a product of half-precision matrices."""
    A = torch.randn(_PROBE, _PROBE, device="cuda").half()
    for _ in range(3):
        A @ A
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        A @ A
    torch.cuda.synchronize()
    return 10 * 2.0 * _PROBE**3 / (time.perf_counter() - began)


def _generated(torch: Any, options: Options) -> Table:
    rows, judges = (40_000, 10_000) if options.quick else (ROWS, JUDGES)
    X, y = rows_of(torch, rows + judges)
    T, t = X[rows:], y[rows:]
    X, y = X[:rows].clone(), y[:rows].clone()
    there = X.cpu().numpy(), y.cpu().numpy()
    rate, cells = _rate(torch), []
    for S, (goal, before) in SIZES.items():
        settings = {"n_landmarks": S, "landmarks": "random", "random_state": 0, "tol": _TOL}
        settings |= {"solver": "landmark", "precision": "half", **SETTING}

        def make(settings: dict[str, Any] = settings, **more: Any) -> ODMClassifier:
            return ODMClassifier(**settings, **more)

        say(f"{S} landmarks")
        here = timed(torch, make, X, y, options.repeats)
        moved = timed(torch, lambda make=make: make(device="cuda"), *there, options.repeats)
        model, steps = here.model, here.model.n_iter_
        floor = rows * S * S / rate
        share = steps * floor / float(model.history_["time"][-1])
        accuracy = model.score(T, t)
        cells.append(
            [f"{S:,}", here.seconds, goal, here.seconds <= goal, moved.seconds,
             moved.seconds <= 2.0 * goal, f"{accuracy:.4f}", f"{before:.4f}",
             f"{model.dual_gap_:.1e}", steps, floor, share, f"{here.bytes / _GB:.1f}"]
        )  # fmt: skip
    columns = ["landmarks", "seconds", "at most", "met", "from the host", "met", "accuracy"]
    columns += ["before", "gap", "steps", "floor of a step", "share of it", "GB"]
    note = (
        f"{rows:,} generated rows of {FEATURES} features, half precision, judged on {judges:,}"
        f" others. Median of {options.repeats} after one. From the host: NumPy arrays and"
        " device='cuda', at most twice as long. Before: the accuracy of the prototype. Floor: one"
        f" product of the features with themselves at {rate / 1e12:.0f} TFLOP/s, half of it by"
        " symmetry; share: that times the steps, over the seconds of all steps. On"
        f" {torch.cuda.get_device_name()}, PyTorch {torch.__version__}."
    )
    return Table("Landmark machines on a GPU", columns, cells, note)


def _others(torch: Any, options: Options) -> Table:
    few = options.quick
    cells = []
    X, y = rows_of(torch, 20_000 if few else ROWS)
    found = timed(torch, lambda: LinearODMClassifier(tol=1e-6), X, y, options.repeats)
    cells.append(_cells("linear", X, found, 0.1, 1e-6))
    g = torch.Generator(device="cuda").manual_seed(1)
    d = 200 if few else 2000
    X = torch.randn(4_000 if few else 400_000, d, device="cuda", generator=g) / d**0.5
    w = torch.randn(d, device="cuda", generator=g)
    y = X @ w + 0.3 * torch.randn(len(X), device="cuda", generator=g) > 0.0
    found = timed(torch, lambda: LinearODMClassifier(tol=1e-6), X, y.long(), options.repeats)
    cells.append(_cells("linear", X, found, 0.5, 1e-6))
    X, y = rows_of(torch, 5_000 if few else 100_000)
    exact = lambda: ODMClassifier(solver="newton", tol=1e-4, **SETTING)  # noqa: E731
    cells.append(_cells("exact, RBF", X, timed(torch, exact, X, y, options.repeats), 2.0, 1e-4))
    columns = ["machine", "rows", "features", "seconds", "at most", "met", "gap", "steps", "GB"]
    note = "From arrays on the card; the exact machine may take 60 GB."
    return Table("Linear and exact machines on a GPU", columns, cells, note)


def _cells(name: str, X: Any, found: Timed, goal: float, tol: float) -> list[Any]:
    gap = found.model.dual_gap_
    met = found.seconds <= goal and gap <= tol
    head = [name, f"{len(X):,}", X.shape[1], found.seconds, goal, met]
    return [*head, f"{gap:.1e}", found.model.n_iter_, f"{found.bytes / _GB:.1f}"]


def _real(torch: Any, options: Options) -> Table:
    cells = []
    for real in REAL:
        if not options.wants(real.name) or options.quick:
            continue
        case = next(c for c in goals.CASES if c.name == real.name)
        try:
            rows = goals.load(case, options)
        except data.NoData:
            cells.append([real.name, "no data"] + [""] * 7)
            continue
        say(real.name)
        A, a, B, b = (torch.asarray(part, device="cuda") for part in rows)
        settings = dict(real.setting)
        n, cost = len(a), settings.pop("C")
        settings["lam"] = cost * n * (1.0 - settings["theta"]) ** 2
        make = lambda settings=settings: ODMClassifier(solver="landmark", **settings)  # noqa: E731
        found = timed(torch, make, A, a, options.repeats)
        accuracy = found.model.score(B, b)
        words = ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
                          for k, v in real.setting.items())  # fmt: skip
        cells.append(
            [real.name, f"{n:,}", words, f"{accuracy:.4f}", real.accuracy, found.seconds,
             real.seconds, accuracy >= real.accuracy and found.seconds <= real.seconds,
             f"{found.bytes / _GB:.1f}"]
        )  # fmt: skip
    columns = ["data", "rows", "setting", "accuracy", "at least", "seconds", "at most", "met", "GB"]
    note = (
        "Features in [0, 1], arrays on the card; the parts of mnist, four fifths of the others."
        " lam = C n (1-theta)^2."
    )
    return Table("Public sets on a GPU", columns, cells, note)


def _agreement(torch: Any, options: Options) -> Table:
    n = 5_000 if options.quick else 100_000
    X, y = rows_of(torch, n)
    there = X.cpu().numpy(), y.cpu().numpy()
    settings = {"n_landmarks": 500, "landmarks": "random", "random_state": 0, "tol": 1e-9}
    settings |= {"solver": "landmark", **SETTING}
    known = ODMClassifier(precision="double", **settings).fit(*there).objective_
    cells = []
    for precision, goal in (("half", 1e-4), ("single", 1e-4), ("double", 1e-8)):
        model = ODMClassifier(precision=precision, **settings).fit(X, y)
        off = abs(model.objective_ - known) / known
        cells.append(
            [precision, f"{off:.1e}", f"{goal:.0e}", off <= goal, f"{model.dual_gap_:.0e}"]
        )
    columns = ["precision", "objective off by", "at most", "met", "gap"]
    note = f"{n:,} generated rows, 500 landmarks, tol=1e-9; the CPU in double precision."
    return Table("A GPU against the CPU", columns, cells, note)
