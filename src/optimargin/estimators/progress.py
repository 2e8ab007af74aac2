"""What people see while a machine is trained, and how they can stop it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

from optimargin.problem import Point, Round, Solution, Status

try:  # scikit-learn 1.9 and later
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: this version of scikit-learn has no callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """The method as it is."""
        return method


Watch = Callable[[Round, Point], bool]


def has_callbacks(estimator: Any) -> bool:
    """Whether somebody has set callbacks on the estimator or handed some down to it."""
    return bool(getattr(estimator, "_skl_callbacks", None))


@contextmanager
def watching(
    estimator: Any,
    X: Any,
    y: Any,
    attributes: Callable[[Point], dict[str, Any]] | None,
    judge: Judge | None = None,
) -> Iterator[Watch | None]:
    """A function to call after each round, which says whether to stop.

    It drives scikit-learn's callbacks and, with ``verbose``, one live line.
    ``attributes`` turns a point into fitted attributes, for callbacks that ask for a
    fitted estimator and for the ``judge``.
    """
    context = None
    if has_callbacks(estimator):
        context = estimator._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
    if context is None and not estimator.verbose and judge is None:
        yield None
        return

    def watch(round: Round, point: Point) -> bool:
        if estimator.verbose:
            live_line(estimator, round)
        if judge is not None and attributes is not None:
            judge(attributes(point))
        if context is None:
            return False
        task = context.subcontext(task_name="round")
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        return bool(
            task.call_on_fit_task_end(
                estimator=estimator,
                X=X,
                y=y,
                reconstruction_attributes=None
                if attributes is None
                else partial(attributes, point),
            )
        )

    try:
        yield watch
    finally:
        if estimator.verbose:
            print(file=sys.stdout)
    if context is not None:
        context.call_on_fit_task_end(estimator=estimator, X=X, y=y)


class Judge:
    """The accuracy on rows that were held out, after each round."""

    def __init__(self, estimator: Any, validation: Any) -> None:
        try:
            self.X, self.y = validation
        except (TypeError, ValueError):
            raise ValueError("validation must be a pair (X, y) of rows and their labels.") from None
        self.estimator = estimator
        self.seen: list[float] = []

    def __call__(self, attributes: dict[str, Any]) -> None:
        """Note how good a classifier with these attributes is."""
        fitted = copy(self.estimator)
        vars(fitted).update(attributes)
        self.seen.append(float(fitted.score(self.X, self.y)))


def live_line(estimator: Any, round: Round) -> None:
    """Write over the last line: round, objective, gap and time."""
    print(
        f"\r[{type(estimator).__name__}] round {round.round}: objective {round.objective:.6g},"
        f" relative gap {round.gap:.1e}, {round.time:.1f} s ",
        end="",
        flush=True,
    )


def how_good(solution: Solution, tol: float, name: str) -> str:
    """Why the solver stopped, how good the answer is, and what to change if it is not."""
    said = (
        f"{name}: '{solution.solver}' stopped ({solution.status.value}) after {solution.rounds}"
        f" rounds; the objective is at most {solution.gap:.1e} of its value above the optimum"
        f" (relative duality gap; tol={tol:.1e})."
    )
    if solution.status is Status.CONVERGED:
        return said
    return f"{said} To get closer: {solution.status.advice}."
