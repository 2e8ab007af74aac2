"""Pictures of training: what a classifier reached, round by round or level by level.

matplotlib is imported at the first picture and nowhere before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optimargin.margins import final_estimator
from optimargin.plots import COLOURS, DASHES, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

_LABELS = {
    "accuracy": "Accuracy on validation rows",
    "objective": "Objective",
    "gap": "Relative duality gap",
    "time": "Seconds",
    "round": "Round",
}
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LOGARITHMIC = ("gap", "objective", "time")


class TrainingCurveDisplay:
    """What classifiers reached while they were trained.

    Use `from_estimators` to make one.

    Parameters
    ----------
    histories : mapping of str to dict of ndarrays
        The ``history_`` of each classifier, by its name.

    Attributes
    ----------
    lines_ : dict of str to Line2D
    ax_, figure_ : Axes, Figure

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from optimargin import ODMClassifier, TrainingCurveDisplay
    >>> X, y = make_moons(400, noise=0.2, random_state=0)
    >>> model = ODMClassifier(solver="sodm", n_partitions=8, fan_in=2)
    >>> model = model.fit(X[:300], y[:300], validation=(X[300:], y[300:]))
    >>> display = TrainingCurveDisplay.from_estimators({"SODM": model})
    """

    lines_: dict[str, Line2D]
    ax_: Axes
    figure_: Figure | SubFigure | None

    def __init__(self, histories: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        self.histories = dict(histories)

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any],
        *,
        y: str = "accuracy",
        x: str = "time",
        ax: Axes | None = None,
    ) -> TrainingCurveDisplay:
        """Draw the histories of fitted classifiers (or pipelines that end in one).

        Parameters
        ----------
        estimators : mapping of str to estimator
            Fitted classifiers, by the name that the legend shows.
        y : {"accuracy", "objective", "gap"}, default="accuracy"
            What to draw; "accuracy" needs ``fit(..., validation=(X, y))``.
        x : {"time", "round"}, default="time"
            What to draw it against.
        ax : Axes, default=None
            Where to draw; a new figure if None.

        Returns
        -------
        display : TrainingCurveDisplay
        """
        found = {}
        for name, estimator in estimators.items():
            history = getattr(final_estimator(estimator), "history_", None)
            if history is None:
                raise ValueError(f"estimators: {name!r} has no history_; fit it first.")
            found[name] = history
        return cls(found).plot(y=y, x=x, ax=ax)

    def plot(
        self, *, y: str = "accuracy", x: str = "time", ax: Axes | None = None
    ) -> TrainingCurveDisplay:
        """Draw, with a mark for each round; see `from_estimators`."""
        for name, value, allowed in (("y", y, _LABELS), ("x", x, ("time", "round"))):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")
        for name, history in self.histories.items():
            if y not in history:
                raise ValueError(
                    f"The history of {name!r} has no {y}; fit with validation=(X, y), which one"
                    " machine (two classes, or multi_class='mcodm') can be judged by."
                )
        axes = new_axes() if ax is None else ax
        self.lines_ = {}
        for k, (name, history) in enumerate(self.histories.items()):
            (self.lines_[name],) = axes.plot(
                history[x],
                history[y],
                label=name,
                color=COLOURS[k % len(COLOURS)],
                linestyle=DASHES[k % len(DASHES)],
                marker=_MARKERS[k % len(_MARKERS)],
                markersize=4.0,
            )
        if x in _LOGARITHMIC:
            axes.set_xscale("log")
        if y in _LOGARITHMIC:
            axes.set_yscale("log")
        axes.set_xlabel(_LABELS[x])
        axes.set_ylabel(_LABELS[y])
        axes.legend()
        self.ax_, self.figure_ = axes, axes.figure
        return self
