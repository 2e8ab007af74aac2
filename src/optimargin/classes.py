"""More than two classes: the problems they become, and the scores that come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from optimargin.arrays import cast, is_foreign, namespace, number, on_host, pick, total_of
from optimargin.loss import scaled
from optimargin.problem import Problem

MANY = ("mcodm", "mcodm-paper", "ovr", "ovo")

Part = Callable[[Problem], Problem]  # makes one machine's problem out of the whole


def parts(kind: str, classes: int) -> list[Part]:
    """The machines that tell so many classes apart, each made when its turn comes."""
    if classes == 2:
        return [partial(_against_the_rest, 1)]
    if kind == "ovr":
        return [partial(_against_the_rest, m) for m in range(classes)]
    if kind == "ovo":
        return [partial(_pair, i, j) for i, j in combinations(range(classes), 2)]
    return [lambda whole: whole]


def _against_the_rest(m: int, whole: Problem) -> Problem:
    return whole.binary(signs(whole.y == m))


def _pair(i: int, j: int, whole: Problem) -> Problem:
    """Class j against class i; the rows of others weigh nothing, and lam is spread over fewer."""
    inside = (whole.y == i) | (whole.y == j)
    weight, loss = pick(inside, 1.0 if whole.weight is None else whole.weight), whole.loss
    if whole.is_spread:
        loss = scaled(loss, total_of(whole.weight, whole.n) / max(number(weight), 1e-300))
    return whole.binary(signs(whole.y == j), weight=weight, loss=loss)


def signs(positive: Any) -> Any:
    """+1 where true and -1 elsewhere: a byte each, or a number as its device has them."""
    if is_foreign(positive):
        return 2.0 * cast(positive, "float64") - 1.0
    return positive.view(np.int8) * np.int8(2) - np.int8(1)


def votes(scores: np.ndarray, classes: int) -> np.ndarray:
    """One score a class from those of all pairs: votes, and sums of scores to break ties."""
    count, sums = np.zeros((len(scores), classes)), np.zeros((len(scores), classes))
    for column, (i, j) in zip(scores.T, combinations(range(classes), 2), strict=True):
        count[:, j] += column > 0
        count[:, i] += column <= 0
        sums[:, j] += column
        sums[:, i] -= column
    return count + sums / (3.0 * (np.abs(sums) + 1.0))


def decisions(scores: Any, classes: int, kind: str) -> Any:
    """What a classifier says of its machines' scores: a number a row, or one for each class."""
    if classes > 2 and kind == "ovo":
        return votes(on_host(scores), classes)
    return scores[:, 0] if scores.shape[1] == 1 else scores


def winners(scores: Any) -> Any:
    """The number of the class that the decisions favour."""
    if scores.ndim == 1:
        return cast(scores > 0, "int64")
    return namespace(scores).argmax(scores, axis=1)
