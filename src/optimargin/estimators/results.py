"""What a search found, in the form of scikit-learn's GridSearchCV."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.stats import rankdata

from optimargin.estimators.judged import Setting
from optimargin.estimators.path import Outcome


def cv_results(settings: list[Setting], outcomes: Iterable[Outcome], folds: int) -> dict[str, Any]:
    """Scores and times of every setting, by fold and on average, and the ranks."""
    place = {setting: k for k, setting in enumerate(settings)}
    figures = np.full((3, len(settings), folds), np.nan)
    for outcome in outcomes:
        figures[:, place[outcome.setting], outcome.fold] = outcome[2:5]
    params = [params_of(setting) for setting in settings]
    found: dict[str, Any] = {}
    for name, values in zip(("fit_time", "score_time"), figures[1:], strict=True):
        found |= {f"mean_{name}": values.mean(axis=1), f"std_{name}": values.std(axis=1)}
    for name in params[0]:
        found[f"param_{name}"] = np.ma.MaskedArray([p[name] for p in params], mask=False)
    found["params"] = params
    scores = figures[0]
    found |= {f"split{i}_test_score": scores[:, i].copy() for i in range(folds)}
    mean = scores.mean(axis=1)
    found |= {"mean_test_score": mean, "std_test_score": scores.std(axis=1)}
    lowest = np.nanmin(mean) - 1 if not np.isnan(mean).all() else 0.0
    ranks = rankdata(-np.where(np.isnan(mean), lowest, mean), method="min")
    return found | {"rank_test_score": ranks.astype(np.int32)}


def params_of(setting: Setting) -> dict[str, Any]:
    """The setting as arguments of the classifier."""
    return {name: value for name, value in setting._asdict().items() if value is not None}


def followed(outcomes: Iterable[Outcome], total: int, name: str) -> Iterator[Outcome]:
    """The same outcomes, with one live line about them."""
    began, best, seen = time.perf_counter(), -np.inf, set()
    for outcome in outcomes:
        best = max(best, outcome.score)
        seen.add((outcome.setting, outcome.fold))
        done = len(seen)
        print(
            f"\r[{name}] {done} of {total} fits, best score of a fold {best:.4g},"
            f" {time.perf_counter() - began:.1f} s ",
            end="",
            flush=True,
        )
        yield outcome
    print()
