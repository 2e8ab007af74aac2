"""What the methods of `landmark` choose from: one grid of widths and costs for all of them.

``C`` is the weight of one row's loss, whatever the number of rows, so a choice made on some
of the rows means the same on all.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any, NamedTuple

from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from benchmarks.choice import Setting
from benchmarks.peers import intelex, snapml
from benchmarks.uphill import Place
from optimargin import ODMClassifier

OURS, EXACT = "landmark", "auto, exact"
SVC, PIPELINE, SNAP = "intelex SVC", "Nystroem + LinearSVC", "Snap ML RBF"
METHODS = (OURS, EXACT, SVC, PIPELINE, SNAP)
SIZED = (OURS, PIPELINE, SNAP)  # those with a number of features
PEERS = (SVC, PIPELINE, SNAP)
MULTIPLES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # gamma, in units of 1 / (features x variance)
COSTS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SHAPES = ((0.5, 0.1), (0.1, 0.6))  # mu, theta
ROWS_EACH = 5  # rows for each feature at least: a search on few rows has fewer features


class Plan(NamedTuple):
    """A machine in numbers, which can travel to another process; mu and theta are ours alone."""

    method: str
    size: int
    gamma: float
    C: float
    mu: float = 0.0
    theta: float = 0.0

    @property
    def words(self) -> str:
        """The setting, as people write it."""
        shape = f", mu={self.mu:g}, theta={self.theta:g}" if self.theta else ""
        return f"gamma={self.gamma:.3g}, C={self.C:g}{shape}"


def grid(method: str, size: int, unit: float, quick: bool = False) -> dict[Place, Setting]:
    """All that a method may choose from; ``unit`` is the width that "scale" stands for.

    The least cost comes first, because a large one takes long with every method.
    """
    multiples, costs = (MULTIPLES[:2], COSTS[:1]) if quick else (MULTIPLES, COSTS)
    shapes = SHAPES if method in (OURS, EXACT) else ((0.0, 0.0),)
    found = {}
    for (i, C), (j, multiple), (k, shape) in product(*map(enumerate, (costs, multiples, shapes))):
        plan = Plan(method, size, multiple * unit, C, *shape)
        found[i, j, k] = Setting(plan.words, partial(build, plan))
    return found


def build(plan: Plan, n: int) -> Any:
    """The classifier for n training rows."""
    size = max(min(plan.size, n // ROWS_EACH), 1)
    if plan.method == SVC:
        return intelex.make(plan.C, plan.gamma)
    if plan.method == SNAP:
        return snapml.make_rbf(plan.C, plan.gamma, size)
    if plan.method == PIPELINE:
        features = Nystroem(gamma=plan.gamma, n_components=size, random_state=0)
        return make_pipeline(features, LinearSVC(C=plan.C, random_state=0))
    model = ODMClassifier(
        gamma=plan.gamma,
        lam=plan.C * n * (1.0 - plan.theta) ** 2,
        mu=plan.mu,
        theta=plan.theta,
        multi_class="ovr",
        random_state=0,
    )
    if plan.method == OURS:
        model.set_params(solver="landmark", n_landmarks=size, landmarks="margin")
    return model
