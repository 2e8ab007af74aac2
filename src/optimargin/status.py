"""Why a solver stopped, and what to do about it."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """Why a solver stopped; ``advice`` says what to do about it."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    TIME_LIMIT = "time_limit"
    CALLBACK = "callback"
    PRECISION = "precision"
    INDEFINITE = "indefinite"
    LEVELS = "levels"
    AVERAGED = "averaged"

    @property
    def advice(self) -> str:
        """What the user can change to get a better answer."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "nothing to do",
    Status.MAX_ITER: "raise max_iter, or continue from here with warm_start=True,"
    " or try another solver (where there is a choice, 'newton' does not mind a large lam),"
    " or scale the features",
    Status.TIME_LIMIT: "raise time_limit, or continue from here with warm_start=True",
    Status.CALLBACK: "a callback asked to stop; continue with warm_start=True",
    Status.PRECISION: "no step improves the objective in this arithmetic any more;"
    " scale the features, pass X as float64, or accept the answer with a larger tol",
    Status.LEVELS: "the last merge that was asked for, or one that no longer changed the objective;"
    " raise levels, or lower tol",
    Status.AVERAGED: "no other average of the parts' machines is better; choose a solver that goes"
    " on, such as 'bqo' or 'admm', or fewer parts",
    Status.INDEFINITE: "the kernel matrix is not positive semi-definite, so the problem is not"
    " convex; choose another kernel (for sigmoid, a smaller gamma or coef0) or a smaller lam",
}
