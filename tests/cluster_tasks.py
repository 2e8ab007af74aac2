"""Tasks of the tests, in a module that executors can import."""

import os
import time

import numpy as np


def total(part, factor):
    return factor * float(part.state["value"].sum())


def pair(part):
    return part.problem.n, np.asarray(part.problem.X.sum(axis=0)).ravel()


def doubled(part, factor):
    return {"value": factor * part.state["value"]}, part.problem.n


def noted(part):
    """Keeps what is there, under any name."""
    return {**part.state, "0/1/more": part.state["value"] + 1.0}, part.problem.n


def doubled_value(part):
    return 2.0 * part.state["value"]


def places(part):
    return [part.number]


def sizes(part):
    return [part.problem.n]


def labels(part):
    return [np.unique(part.problem.y).tolist()]


def shape(part):
    X = part.problem.X
    return [(hasattr(X, "indptr"), str(X.dtype), str(part.problem.y.dtype))]


def squared(part, power):
    """Features of rows that need nothing but the row."""
    X = part.problem.X
    dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return np.hstack([dense**power, part.problem.y[:, None]])


def wrong(part):
    raise ValueError("lam: must be positive.")


def odd(part):
    class Odd(Exception):
        """Cannot be pickled."""

    raise Odd("of an unknown kind")


def slow(part, seconds):
    """The first part is a straggler."""
    if part.number == 0:
        time.sleep(seconds)
    return part.problem.n


def executor(part):
    """The process id of the executor, whose child's child this is."""
    time.sleep(0.3)  # so that both executors have something to do
    daemon = os.getppid()
    with open(f"/proc/{daemon}/stat") as file:
        return [int(file.read().rsplit(")", 1)[1].split()[1])]


def noted_nothing(part):
    return {}, 0


def biased(part):
    return {"value": np.full(part.problem.n, part.problem.bias)}, 0
