"""All settings on one fold: each machine starts from the answers to its neighbours.

From small to large lam, a machine starts from the best blend of the nearest answers.  Where the
upper side of the loss does not count, mu does not either, and settings of equal lam / (1-theta)^2
differ by a factor: the blend finds such answers without a step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from optimargin.classes import parts
from optimargin.estimators.classifier import number_of
from optimargin.estimators.judged import Fold, Judged, Setting
from optimargin.loss import odm
from optimargin.problem import Problem, Solution, Start, Status, Stop
from optimargin.solvers.choose import EXACT, judged_by
from optimargin.solvers.mcodm import convex_start
from optimargin.solvers.nearby import blended
from optimargin.solvers.train import Machine, Plan, train

_NEAREST = 6  # answers to blend
_LAMS_BACK = 2  # lams among which to look for them, beside the one at hand

Scorer = Callable[[Judged, Any, np.ndarray, np.ndarray | None], float]


class Grid(NamedTuple):
    """The values to combine."""

    lams: list[float | str]
    mus: list[float]
    thetas: list[float]
    gammas: list[float | str | None]


class Outcome(NamedTuple):
    """How a setting did on one fold; ``models`` are kept where more exact ones may be asked for."""

    setting: Setting
    fold: int
    score: float
    fit_time: float
    score_time: float
    status: Status
    models: list[np.ndarray] | None = None


class Known(NamedTuple):
    """A setting whose machines are trained."""

    setting: Setting
    lam: float
    solutions: list[Solution]


def walk(
    fold: Fold, grid: Grid, gamma: Any, stop: Stop, scorer: Scorer | None
) -> Iterator[list[Outcome]]:
    """The outcomes of each lam in turn, from small to large.

    From large to small mu: answers change less, the more the upper side counts.
    """
    plan, known = _plan(fold, stop, scorer is None), deque[list[Known]](maxlen=_LAMS_BACK + 1)
    pairs = [(theta, mu) for theta in grid.thetas for mu in sorted(grid.mus, reverse=True)]
    convex = {theta: Start() for theta in grid.thetas}  # see mcodm.convex_start
    for lam in sorted(grid.lams, key=lambda lam: number_of(lam, grid.thetas[0], fold.total)):
        known.append([])
        outcomes = []
        for theta, mu in pairs:
            began = time.perf_counter()
            setting, number = Setting(gamma, lam, mu, theta), number_of(lam, theta, fold.total)
            problem = fold.rough.changed(loss=odm(number, mu, theta, fold.total))
            if fold.is_joint:
                if mu == max(grid.mus):
                    convex[theta] = convex_start(problem.narrowed(), convex[theta], stop, plan.seed)
                problem, machines = train(plan, problem, [convex[theta]])
            elif not fold.is_definite:
                problem, machines = train(plan, problem)
            else:
                near = _nearest(setting, number, [k for row in known for k in row])
                problem, machines = _from(near, plan, problem)
            if not fold.is_joint:
                known[-1].append(Known(setting, number, [_lightened(m, problem) for m in machines]))
            outcomes.append(_judge(fold, setting, problem, machines, scorer, began))
        yield outcomes


def refined(fold: Fold, outcome: Outcome, stop: Stop, scorer: Scorer | None) -> Outcome:
    """The same setting as exactly as the plain classifier trains it, from models that are near."""
    assert outcome.models is not None
    began, (_, lam, mu, theta) = time.perf_counter(), outcome.setting
    number = number_of(lam, theta, fold.total)
    problem = fold.whole.changed(loss=odm(number, mu, theta, fold.total))
    starts = [Start(coef) for coef in outcome.models]
    exact = stop._replace(tol=min(stop.tol, EXACT))
    plan = _plan(fold, exact, scorer is None)._replace(solver="nearby")
    problem, machines = train(plan, problem, starts)
    machines = [m._replace(solution=judged_by(stop.tol, m.solution)) for m in machines]
    return _judge(fold, outcome.setting, problem, machines, scorer, began)._replace(models=None)


def _plan(fold: Fold, stop: Stop, bounds: bool) -> Plan:
    model = fold.model
    seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
    return Plan(model._solver(), model.multi_class, stop, seed, bounds)


def _nearest(setting: Setting, number: float, known: list[Known]) -> list[Known]:
    """The settings with the most similar losses, nearest first."""

    def distance(other: Known) -> float:
        theirs = other.setting
        steep = np.log(number / other.lam) - 2 * np.log((1 - setting.theta) / (1 - theirs.theta))
        upper = np.log((setting.mu + 1e-3) / (theirs.mu + 1e-3))
        return abs(steep) + 0.3 * abs(upper) + abs(setting.theta - theirs.theta)

    return sorted(known, key=distance)[:_NEAREST]


def _lightened(machine: Machine, problem: Problem) -> Solution:
    """What the next ones need to start: the model, and its margins where blends are made."""
    found = machine.solution
    margin = found.margin[:0] if problem.gram is None else found.margin
    return replace(found, margin=margin, dual=None, history=[])


def _from(near: list[Known], plan: Plan, problem: Problem) -> tuple[Problem, list[Machine]]:
    """Kernel machines start from blends, linear ones from the nearest answer."""
    if not near:
        return train(plan, problem)
    if problem.gram is None:
        return train(plan, problem, [Start(s.coef) for s in near[0].solutions])
    makers = parts(plan.kind, problem.classes)
    starts = [
        blended(maker(problem), [known.solutions[m] for known in near])
        for m, maker in enumerate(makers)
    ]
    solver = "nearby" if plan.solver == "auto" else plan.solver
    return train(plan._replace(solver=solver), problem, starts)


def _judge(
    fold: Fold,
    setting: Setting,
    whole: Problem,
    machines: list[Machine],
    scorer: Scorer | None,
    began: float,
) -> Outcome:
    trained = time.perf_counter()
    if scorer is None:
        score = -float(np.mean([m.loo[1] for m in machines]))
    else:
        assert fold.test is not None
        X, y, weight = fold.test
        score = float(scorer(Judged(fold, setting, whole, machines), X, y, weight))
    times = trained - began, time.perf_counter() - trained
    status = next(
        (m.solution.status for m in machines if m.solution.status is not Status.CONVERGED),
        Status.CONVERGED,
    )
    models = [m.solution.coef for m in machines] if fold.is_rough else None
    return Outcome(setting, fold.number, score, *times, status, models)
