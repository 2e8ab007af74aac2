"""The sets of `landmark`: which rows, how many features, and what is asked of ours there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import train_test_split

from benchmarks import data, plans, problems
from benchmarks.kept import Record
from benchmarks.methods import Options
from benchmarks.report import verdict
from benchmarks.trial import UNFINISHED, Rows

GENERATED = "generated"
ABSENT = "not installed"
BOTH, NEITHER = "both", "NEITHER"


class Goal(NamedTuple):
    """An accuracy, or SVC's less ``below``; and how many times as fast as SVC to reach it."""

    speed: float
    accuracy: float | None = None
    below: float = 0.0

    @property
    def words(self) -> str:
        """The accuracy to reach."""
        if self.accuracy is not None:
            return f"{self.accuracy:g}"
        return f"SVC's - {self.below:g}" if self.below else "SVC's"


class Case(NamedTuple):
    """A data set: its files, numbers of features to compare at, and the goals."""

    name: str
    parts: tuple[str, ...]
    sizes: tuple[int, ...]
    goals: tuple[Goal, ...]
    alone: tuple[int, ...] = ()  # more features for ours only: rivals would take hours
    is_small: bool = False  # the exact machine is trained too
    has_test: bool = False  # the second file is the test part
    positive: int | None = None  # the class that is told from the rest
    is_beyond_svc: bool = False  # nobody would wait for SVC


def _both(name: str) -> tuple[str, str]:
    return name, f"{name}.t"


CASES = (
    Case("svmguide1", _both("svmguide1"), (100, 500), (Goal(1.0, below=0.001),), is_small=True),
    Case(
        "phishing", ("phishing",), (250,), (Goal(1.0, below=0.001),), alone=(1000,), is_small=True
    ),
    Case("a7a", _both("a7a"), (250,), (Goal(10.0),), alone=(500, 1000)),
    Case(
        "ijcnn1",
        _both("ijcnn1"),
        (1000,),
        (Goal(1.0, 0.994), Goal(2.0, 0.994)),
        alone=(2000, 2500, 3000, 3500),
    ),
    Case(
        "cod-rna",
        _both("cod-rna"),
        (300,),
        (Goal(5.0, 0.967), Goal(20.0, 0.965)),
        alone=(1000, 2000),
    ),
    Case("skin_nonskin", ("skin_nonskin",), (300,), (Goal(2.0, 0.999),)),
    Case(
        "covtype",
        ("covtype",),
        (),  # one fit of a pipeline takes minutes
        (Goal(1.0, 0.90),),
        alone=(1000, 2000, 4000, 7000),
        positive=1,
        is_beyond_svc=True,
    ),
    Case("mnist", _both("mnist"), (1000,), (Goal(5.0, 0.98),), alone=(1250, 1500), has_test=True),
)
QUICK = Case(GENERATED, (), (20, 40), (Goal(1.0, below=0.1), Goal(1.0, 0.7)), is_small=True)


def load(case: Case, options: Options) -> Rows:
    """Four fifths to learn from and the rest, or the parts of the set; float32 in [0, 1]."""
    if case.name == GENERATED:
        X, y = problems.curved(600)
        return split(X, (y > 0).astype(int))
    read = [data.read(part, options.data) for part in case.parts]
    X, y = sp.vstack([X for X, _ in read], format="csr"), np.concatenate([y for _, y in read])
    if case.positive is not None:
        y = (y == case.positive).astype(int)
    X = data.to_unit_interval(X.toarray().astype(np.float32))
    if case.has_test:
        first = len(read[0][1])
        A, a = data.shuffled(X[:first], y[:first])
        return Rows(A, a, X[first:], y[first:])
    return split(X, y)


def split(X: np.ndarray, y: np.ndarray, seed: int = 0) -> Rows:
    """Four fifths to learn from, and a fifth to be judged by."""
    A, B, a, b = train_test_split(
        X.astype(np.float32, copy=False), y, test_size=0.2, stratify=y, random_state=seed
    )
    return Rows(A, a, B, b)


def judge(case: Case, records: Sequence[Record]) -> list[list[Any]]:
    """For each goal: what is asked, our fastest machine that is accurate enough, and the ratio."""
    svc = next((r for r in records if r["method"] == plans.SVC), {})
    ours = [r for r in records if r["method"] in (plans.OURS, plans.EXACT) and "accuracy" in r]
    return [[case.name, *_row(goal, ours, svc)] for goal in case.goals if ours]


def _row(goal: Goal, ours: list[Record], svc: Record) -> list[Any]:
    theirs = f"{svc['accuracy']:.4f}" if "accuracy" in svc else svc.get("status", "")
    head = [goal.words, goal.speed, theirs, svc.get("seconds", "")]
    if goal.accuracy is None and "accuracy" not in svc:
        return [*head, "", "", "", "", ""]
    level = svc["accuracy"] - goal.below if goal.accuracy is None else goal.accuracy
    # a hair, because accuracies are ratios of counts
    enough = [r for r in ours if r["accuracy"] >= level - 1e-9]
    if not enough:
        best = max(ours, key=lambda r: r["accuracy"])
        return [*head, best["size"] or "all", f"{best['accuracy']:.4f}", best["seconds"], "", False]
    fastest = min(enough, key=lambda r: r["seconds"])
    cells = [fastest["size"] or "all", f"{fastest['accuracy']:.4f}", fastest["seconds"]]
    if "seconds" not in svc:
        return [*head, *cells, "", ""]
    ratio = svc["seconds"] / fastest["seconds"]
    more = "> " if svc.get("status") == UNFINISHED else ""
    return [*head, *cells, f"{more}{ratio:.3g}", verdict(ratio, goal.speed)]


def duels(records: Sequence[Record]) -> list[list[Any]]:
    """Ours against each rival at equal numbers of features: accuracy, time, and who is ahead."""
    found = {(r["method"], r["size"]): r for r in records}
    pairs = [
        (mine, found[rival, size])
        for (method, size), mine in found.items()
        for rival in (plans.PIPELINE, plans.SNAP)
        if method == plans.OURS and "accuracy" in mine and (rival, size) in found
    ]
    return [[mine["data"], mine["size"], its["method"], *_duel(mine, its)] for mine, its in pairs]


def _duel(mine: Record, its: Record) -> list[Any]:
    if "accuracy" not in its:
        return [its["status"], "", "" if its["status"] == ABSENT else BOTH]
    gain, ratio = mine["accuracy"] - its["accuracy"], its["seconds"] / mine["seconds"]
    ahead = {(True, True): BOTH, (True, False): "accuracy", (False, True): "time"}
    return [f"{gain:+.4f}", ratio, ahead.get((gain > 0.0, ratio > 1.0), NEITHER)]
