"""What a solver is given, what it says in each round, and what it leaves behind.

The machine minimises, over w in feature space (or the kernel's space),

    P(w) = |w|^2 / 2 + sum_i s_i loss(u_i),   u_i = y_i f(x_i),

and its dual maximises, over the signed variables a,

    D(a) = -|w(a)|^2 / 2 - sum_i psi_i(a_i),   w(a) = sum_i a_i y_i phi(x_i).

P(w) >= D(a) always, with equality at the optimum: the difference is the certificate.
Two cases of it need no extra work and no subtraction of large numbers:

    w = w(a) as in coordinate descent:  P - D = sum_i loss_i(u_i) + psi_i(a_i) + a_i u_i
    a = -slope at the margins of w:     P - D = |w - w(a)|^2 / 2 = |grad P(w)|^2 / 2

The preliminary machine of the ODM paper, the LDM, adds the first two moments of the margins,
lam1 var(u) - lam2 mean(u), over rows of shares p_i.  The mean pulls every dual variable by
the constant lam2 p_i, so w(a) = sum_i (a_i + lam2 p_i) y_i phi(x_i), and both identities
stay (with <= in the second); the variance is taken into the features: see `whiten`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from optimargin.arrays import at_least, is_foreign, on_host, taken, zeros
from optimargin.device import spans_of
from optimargin.gram import Gram, convex
from optimargin.kernelmatrix import KernelMatrix
from optimargin.loss import Loss, scaled, steepest
from optimargin.rows import sqnorms
from optimargin.sketch import Sketch
from optimargin.status import Status as Status
from optimargin.whiten import whitened_features, whitened_gram


@dataclass(frozen=True)
class Problem:
    """The data of one machine, in one place.

    ``y`` holds signs for two classes, and numbers 0 .. classes - 1 for more.  ``weight`` is
    None where every row counts the same.
    ``gram`` is None for a linear machine in the features of ``X``, with a constant
    feature of value ``bias``; a kernel machine finds both inside its ``gram``, or inside its
    ``sketch`` where it is sought among the kernel functions of landmarks.

    Where y is an array of another library than NumPy, everything is on its device, and the two
    are a `KernelMatrix` and `Features`, which have what Newton's method asks of them.
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray | None
    loss: Loss
    bias: float = 0.0
    gram: Gram | None = None
    sketch: Sketch | None = None
    classes: int = 2
    threads: int = 1
    limit: float = np.inf  # bytes that a linear machine may spend on a Hessian
    lam1: float = 0.0  # weight of the variance of the margins
    lam2: float = 0.0  # weight of their mean
    is_spread: bool = True  # over the rows: the loss of one weighs more where there are fewer

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.y.shape[0])

    @property
    def d(self) -> int:
        """Number of features, the constant one not counted."""
        return int(self.X.shape[1])

    @property
    def matrix(self) -> Any:
        """What a pass over the rows reads: their features, or their values with the landmarks."""
        return self.X if self.sketch is None else self.sketch

    @property
    def constant(self) -> float:
        """The constant feature of `matrix`."""
        return self.bias if self.sketch is None else 0.0

    def spans(self, part: slice) -> list[slice]:
        """A range of rows in the pieces in which `matrix` is best read."""
        if self.sketch is not None:
            return self.sketch.spans(part)
        return spans_of(self.X, part) if is_foreign(self.y) else [part]

    @property
    def losses(self) -> Loss:
        """The loss of each row, for whole arrays."""
        return self.loss if self.weight is None else scaled(self.loss, self.weight)

    @property
    def shares(self) -> np.ndarray:
        """What each row counts in the mean and the variance of the margins; their sum is 1."""
        if self.weight is None:
            return np.full(self.n, 1.0 / self.n)
        return self.weight / self.weight.sum()

    @property
    def pull(self) -> Any:
        """What the mean of the margins adds to each dual variable; 0 without one."""
        return self.lam2 * self.shares if self.lam2 else 0.0

    @property
    def kept(self) -> Any:
        """Rows of the whitened problem among those of this one: those with a weight."""
        if self.weight is None or self.gram is None or not self.lam1:
            return slice(None)
        return np.flatnonzero(self.weight)

    @cached_property
    def whitened(self) -> Problem:
        """The same machine on features in which the variance of the margins costs nothing.

        Margins, dual variables and both objectives are the same; the model is not.
        """
        if not self.lam1:
            return self
        kept, y, p = self.kept, self.y[self.kept], self.shares[self.kept]
        weight = None if self.weight is None else self.weight[kept]
        if self.gram is not None:
            gram = whitened_gram(self.gram, np.arange(self.n)[kept], y, self.lam1 * p)
            return replace(self, y=y, weight=weight, gram=gram, bias=0.0, lam1=0.0)
        Z = whitened_features(self.X, self.bias, y, self.lam1 * p)
        return replace(self, X=Z, bias=0.0, lam1=0.0)

    @cached_property
    def sqnorms(self) -> np.ndarray:
        """Squared norm of each row, the constant feature included: the diagonal of K."""
        if self.gram is not None:
            return at_least(self.gram.diag, 0.0)
        if self.sketch is not None:
            return self.sketch.diag
        if not is_foreign(self.y):
            return sqnorms(self.X) + self.bias**2
        out = zeros(self.n, self.y) + self.bias**2
        for span in spans_of(self.X, slice(0, self.n)):
            out[span] += sqnorms(taken(self.X, span))
        return out

    @cached_property
    def features(self) -> np.ndarray:
        """The rows as features of the landmarks: see `featured`."""
        assert self.sketch is not None
        return self.sketch.features()

    @property
    def featured(self) -> Problem:
        """A machine over landmarks as a linear one."""
        return replace(self, X=self.features, sketch=None, bias=0.0)

    @cached_property
    def stiffness(self) -> float:
        """Mean over the rows of the loss's largest curvature times the squared norm.

        Coordinate descent needs a number of epochs that grows with it; Newton does not.
        """
        q, weight = self.sqnorms, self.weight
        return steepest(self.loss) * float(q.sum() if weight is None else weight @ q) / self.n

    def binary(self, y: np.ndarray, **changes: Any) -> Problem:
        """The same rows for a machine of two classes, whose signs are y."""
        return self.changed(y=y, classes=2, **changes)

    def changed(self, **changes: Any) -> Problem:
        """The same rows with other labels, weights or losses."""
        found = replace(self, **changes)
        for name in ("sqnorms", "features"):  # computed once for all of them
            if name in vars(self):
                vars(found)[name] = vars(self)[name]
        return found

    def some(self, chosen: np.ndarray) -> Problem:
        """The problem on some of the rows, by number, which count for all."""
        return replace(
            self,
            X=taken(self.X, chosen),
            y=taken(self.y, chosen),
            weight=None if self.weight is None else taken(self.weight, chosen),
            loss=scaled(self.loss, self.n / len(chosen)),
            sketch=None if self.sketch is None else self.sketch.part(chosen),
        )

    def on_host(self) -> Problem:
        """The problem in NumPy's arrays."""
        weight = None if self.weight is None else on_host(self.weight)
        gram = self.gram.on_host(self.threads) if isinstance(self.gram, KernelMatrix) else None
        return replace(self, X=on_host(self.X), y=on_host(self.y), weight=weight, gram=gram)

    def narrowed(self) -> Problem:
        """The problem without rows of weight zero, where that is cheap: in feature space."""
        in_features = self.gram is None and self.sketch is None
        if not in_features or self.weight is None or is_foreign(self.y) or self.weight.all():
            return self
        keep = np.flatnonzero(self.weight)
        weight = self.weight[keep]
        even = None if (weight == 1.0).all() else weight
        return replace(self, X=self.X[keep], y=self.y[keep], weight=even)

    def convexified(self) -> Problem:
        """The problem with a kernel matrix that has no negative eigenvalues."""
        assert self.gram is not None
        return replace(self, gram=convex(self.gram))


class Point(NamedTuple):
    """Where a solver stands: a model with its margins and both objectives.

    ``coef`` is w (length d + 1) for a linear machine and the expansion over the rows
    (length n) or the landmarks for a kernel machine; ``dual`` is a, where the solver has one.
    """

    coef: np.ndarray
    dual: np.ndarray | None
    margin: np.ndarray
    primal: float
    bound: float
    rounds: int


class Start(NamedTuple):
    """Where to begin: an earlier model, an earlier dual variable, or neither.

    ``margin`` holds the margins of ``coef``, where somebody knows them already; ``seen`` tells on
    how many rows it was found, 0 being all of them.
    """

    coef: np.ndarray | None = None
    dual: np.ndarray | None = None
    margin: np.ndarray | None = None
    seen: int = 0


class Round(NamedTuple):
    """One line of the history."""

    round: int
    objective: float
    gap: float
    time: float


Points = Generator[Point, None, Status | None]  # what a solver gives: see drive
T = TypeVar("T")
Asking = Generator[Any, Any, T]  # yields questions, is sent answers, and returns something


class Stop(NamedTuple):
    """When to stop: at a relative duality gap, after some rounds or seconds, or on demand."""

    tol: float = 1e-4
    max_iter: int = 1000
    time_limit: float | None = None
    callback: Callable[[Round, Point], bool] | None = None


@dataclass(frozen=True)
class Solution:
    """A model with its certificate.

    ``gap`` is relative: (primal - bound) / max(|primal|, |bound|).  ``traffic`` counts the rounds
    of calls to parts of the rows and the bytes they took, where there were any.
    """

    coef: np.ndarray
    dual: np.ndarray | None
    margin: np.ndarray
    primal: float
    bound: float
    status: Status
    rounds: int
    solver: str = ""
    history: list[Round] = field(default_factory=list)
    traffic: tuple[int, int] | None = None

    @property
    def gap(self) -> float:
        """Relative duality gap of the model."""
        return relative_gap(self.primal, self.bound)


def relative_gap(primal: float, bound: float) -> float:
    """(P - D) / max(|P|, |D|), never below zero."""
    size = max(abs(primal), abs(bound))
    return max(primal - bound, 0.0) / size if size > 0 else 0.0


def counted_on(points: Points, rounds: int) -> Points:
    """The same points, after so many rounds of something else."""
    while True:
        try:
            point = next(points)
        except StopIteration as end:
            return end.value
        yield point._replace(rounds=rounds + point.rounds)


def drive(points: Points, stop: Stop, solver: str = "") -> Solution:
    """Draw points from a solver until the certificate or a limit says to stop.

    Keeps the best primal point and the best bound seen.  A solver that yields the same
    point again has no news but offers a chance to stop; one that ends by itself cannot
    improve any more, and may return the status that says why.
    """
    try:
        asked = next(driven(points, stop, solver))
    except StopIteration as end:
        return end.value
    raise TypeError(f"a solver that asks ({asked!r}) is not driven alone")


def driven(points: Generator[Any, Any, Any], stop: Stop, solver: str = "") -> Asking[Solution]:
    """What `drive` does; what a solver yields that is no point is asked of the caller."""
    began, paused = time.perf_counter(), 0.0
    history: list[Round] = []
    last = yield from _next(points)
    assert isinstance(last, Point)
    best, bound = last, last.bound
    while True:
        seconds = time.perf_counter() - began - paused
        if last is not best and last.primal <= best.primal:
            best = last
        bound = max(bound, last.bound)
        gap = relative_gap(best.primal, bound)
        asked = False
        if not history or last.rounds > history[-1].round:
            history.append(Round(last.rounds, best.primal, gap, seconds))
            asked = stop.callback is not None and stop.callback(history[-1], best)
            paused = time.perf_counter() - began - seconds  # what others do is not our time
        if gap <= stop.tol:
            status = Status.CONVERGED
        elif asked:
            status = Status.CALLBACK
        elif last.rounds >= stop.max_iter:
            status = Status.MAX_ITER
        elif stop.time_limit is not None and seconds >= stop.time_limit:
            status = Status.TIME_LIMIT
        else:
            said = yield from _next(points)
            if isinstance(said, Point):
                last = said
                continue
            status = said
        break
    return Solution(
        best.coef,
        best.dual,
        best.margin,
        best.primal,
        bound,
        status,
        last.rounds,
        solver,
        history,
    )


def _next(points: Generator[Any, Any, Any]) -> Asking[Point | Status]:
    """The next point, or why there is none."""
    answer = None
    while True:
        try:
            said = points.send(answer)
        except StopIteration as end:
            return end.value or Status.PRECISION
        if isinstance(said, Point):
            return said
        answer = yield said
