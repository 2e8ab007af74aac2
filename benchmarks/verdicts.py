"""Who wins: paired t-tests between two methods on the same random splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as student

LEVEL = 0.05
MARKS = {1: " •", 0: "", -1: " ○"}  # as the papers print them


def paired(ours: Sequence[float], theirs: Sequence[float], share: float = 0.0) -> int:
    """+1 if ours are significantly higher at 95 %, -1 if lower, 0 otherwise.

    ``share`` is the size of the test part relative to the training part.  Splits of one data
    set overlap, so their results are not independent and the plain test (share 0, the one of
    the papers) finds too much; with the share its variance gets the correction of Nadeau and
    Bengio (2003).
    """
    difference = np.subtract(ours, theirs)
    n = len(difference)
    if n < 2 or not difference.any():
        return 0
    spread = np.sqrt((1.0 / n + share) * difference.var(ddof=1))
    if spread == 0.0:
        return int(np.sign(difference[0]))
    statistic = difference.mean() / spread
    return int(np.sign(statistic)) if 2.0 * student.sf(abs(statistic), n - 1) < LEVEL else 0


def counts(verdicts: Sequence[int]) -> str:
    """Wins/ties/losses."""
    return "/".join(str(list(verdicts).count(sign)) for sign in (1, 0, -1))


def tally(
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    ours: str,
    rivals: Sequence[str],
    share: float = 0.0,
) -> list[str]:
    """Wins/ties/losses of a method against each rival over data sets (set, method, scores)."""
    return [
        counts([paired(found[ours], found[rival], share) for found in scores.values()])
        for rival in rivals
    ]


def mean_and_spread(scores: Sequence[float]) -> str:
    """Mean and standard deviation, to the digits of the papers."""
    return f"{np.mean(scores):.3f} ± {np.std(scores):.3f}"
