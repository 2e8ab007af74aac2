"""Pictures of margin distributions, in the manner of scikit-learn's displays.

matplotlib is imported at the first picture and nowhere before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optimargin.margins import (
    MarginStatistics,
    cumulative,
    final_estimator,
    margin_statistics,
    margins,
    margins_from_scores,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, which colour-blind readers can tell apart; the dashes keep
# curves apart in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_LABELS = {
    "none": "Margin",
    "mean": "Margin / mean margin",
    "norm": "Margin / |w|",
}
_FEWEST, _MOST = 10, 60  # bars, where the data choose
_ENTRY_HEIGHT = 0.07  # of the axis, left free above the bars for each line of the legend


class MarginDistributionDisplay:
    """Margin distributions of one or more models.

    Use `from_estimator`, `from_estimators` or `from_predictions` to make one.

    Parameters
    ----------
    margins : mapping of str to array-like of shape (n,)
        The margins of each model, by its name.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows, the same for all models.
    scale : {"none", "mean", "norm"}, default="none"
        What the margins were divided by; written at the axis.

    Attributes
    ----------
    statistics : dict of str to MarginStatistics
        The numbers of each model; mean and variance go into the legend.
    ax_, figure_ : Axes, Figure
        Where the last picture is.
    lines_ : list of Artist
        One a model, in order: a Line2D (cumulative) or a StepPatch (histogram).
    zero_line_ : Line2D
        The vertical line between wrong and right.
    """

    ax_: Axes
    figure_: Figure | SubFigure
    lines_: list[Artist]
    zero_line_: Line2D

    def __init__(
        self, margins: Mapping[str, Any], *, sample_weight: Any = None, scale: str = "none"
    ) -> None:
        self.margins = margins
        self.sample_weight = sample_weight
        self.scale = scale

    @property
    def statistics(self) -> dict[str, MarginStatistics]:
        """The numbers of each model."""
        return {name: margin_statistics(u, self.sample_weight) for name, u in self.margins.items()}

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        kind: str = "cumulative",
        scale: str = "none",
        sample_weight: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> MarginDistributionDisplay:
        """Draw the margins of one fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
            With ``decision_function`` and ``classes_``, see `optimargin.margins.margins`.
        X, y : array-likes of shape (n, d) and (n,)
            Rows and labels.
        kind : {"cumulative", "histogram"}, default="cumulative"
            Share of rows up to each margin, or share of rows in each interval.
        scale : {"none", "mean", "norm"}, default="none"
            What the margins are divided by.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.
        name : str, default=None
            Name in the legend; the class of the estimator if None.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        **kwargs
            For `plot`.

        Returns
        -------
        MarginDistributionDisplay
        """
        models = [estimator] if name is None else {name: estimator}
        return cls.from_estimators(
            models, X, y, kind=kind, scale=scale, sample_weight=sample_weight, ax=ax, **kwargs
        )

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any] | Sequence[Any],
        X: Any,
        y: Any,
        *,
        kind: str = "cumulative",
        scale: str = "none",
        sample_weight: Any = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> MarginDistributionDisplay:
        """Draw the margins of several fitted classifiers on the same rows.

        Parameters
        ----------
        estimators : mapping of str to classifier, or sequence of classifiers
            Models by name, or named after their classes.
        X, y : array-likes of shape (n, d) and (n,)
            Rows and labels.
        kind, scale, sample_weight, ax, **kwargs
            As in `from_estimator`; ``scale="mean"`` puts models of different scales on
            one axis.

        Returns
        -------
        MarginDistributionDisplay
        """
        models = estimators if isinstance(estimators, Mapping) else _named(estimators)
        found = {
            name: margins(model, X, y, scale=scale, sample_weight=sample_weight)
            for name, model in models.items()
        }
        display = cls(found, sample_weight=sample_weight, scale=scale)
        return display.plot(ax, kind=kind, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        scores: Any,
        *,
        classes: Any = None,
        kind: str = "cumulative",
        scale: str = "none",
        sample_weight: Any = None,
        name: str = "Classifier",
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> MarginDistributionDisplay:
        """Draw the margins that belong to decision values.

        Parameters
        ----------
        y : array-like of shape (n,)
            Labels.
        scores : array-like of shape (n,) or (n, k)
            One decision value a row, positive for ``classes[1]``, or one score a class.
        classes : array-like of shape (k,), default=None
            Labels in the order of the scores; the sorted labels of ``y`` if None.
        kind, scale, sample_weight, name, ax, **kwargs
            As in `from_estimator`; "norm" needs a model and is not possible here.

        Returns
        -------
        MarginDistributionDisplay
        """
        labels = np.unique(np.asarray(y)) if classes is None else classes
        u = margins_from_scores(scores, y, labels, scale=scale, sample_weight=sample_weight)
        display = cls({name: u}, sample_weight=sample_weight, scale=scale)
        return display.plot(ax, kind=kind, **kwargs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        kind: str = "cumulative",
        bins: int | Sequence[float] | None = None,
        **kwargs: Any,
    ) -> MarginDistributionDisplay:
        """Draw the distributions.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if None.
        kind : {"cumulative", "histogram"}, default="cumulative"
            Share of rows up to each margin, or share of rows in each interval.
        bins : int or sequence of float, default=None
            Histogram only: about how many intervals, or their edges.  All models share
            them, and unless edges are given no interval has 0 inside.
        **kwargs
            For matplotlib's ``Axes.plot`` (cumulative) or ``Axes.stairs`` (histogram).

        Returns
        -------
        MarginDistributionDisplay
            This one, with ``ax_``, ``figure_``, ``lines_`` and ``zero_line_``.
        """
        if kind not in {"cumulative", "histogram"}:
            raise ValueError(f"kind must be 'cumulative' or 'histogram', not {kind!r}.")
        statistics = self.statistics  # before a figure opens: it checks margins and weights
        ax = new_axes() if ax is None else ax
        edges = np.empty(0) if kind == "cumulative" else _edges(self._pooled(), bins)
        self.zero_line_ = ax.axvline(0.0, color="0.4", linewidth=0.8, zorder=1)
        self.lines_ = []
        for number, (name, u) in enumerate(self.margins.items()):
            style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
            style["label"] = _entry(name, statistics[name])
            if kind == "cumulative":
                style["linestyle"] = DASHES[number % len(DASHES)]
                line = _draw_steps(ax, u, self.sample_weight, {**style, **kwargs})
            else:
                line = _draw_bars(ax, u, self.sample_weight, edges, {**style, **kwargs})
            self.lines_.append(line)
        _furnish(ax, kind, _LABELS[self.scale], len(self.lines_))
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _pooled(self) -> np.ndarray:
        """The margins of all models, rows of weight zero left out."""
        return np.concatenate([cumulative(u, self.sample_weight)[0] for u in self.margins.values()])


def new_axes() -> Axes:
    """Where to draw, if nobody says."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib; install it with: pip install matplotlib"
        ) from error
    return pyplot.subplots()[1]


def _named(estimators: Sequence[Any]) -> dict[str, Any]:
    """Models by the names of their classes, numbered where a name comes again."""
    seen: Counter[str] = Counter()
    found = {}
    for estimator in estimators:
        plain = type(final_estimator(estimator)).__name__
        seen[plain] += 1
        found[plain if seen[plain] == 1 else f"{plain} {seen[plain]}"] = estimator
    return found


def _entry(name: str, numbers: MarginStatistics) -> str:
    return f"{name}: mean {numbers.mean:.3g}, variance {numbers.variance:.3g}"


def _draw_steps(ax: Axes, u: Any, sample_weight: Any, style: dict[str, Any]) -> Artist:
    """The curve leaves the axis at the smallest margin and reaches 1 at the largest."""
    steps, shares = cumulative(u, sample_weight)
    x, share = np.r_[steps[:1], steps], np.r_[0.0, shares]
    return ax.plot(x, share, **{"drawstyle": "steps-post", "linewidth": 1.6, **style})[0]


def _draw_bars(
    ax: Axes, u: Any, sample_weight: Any, edges: np.ndarray, style: dict[str, Any]
) -> Artist:
    """Outlined bars with a faint filling, so that models behind one another stay visible.

    Empty intervals at either end are left out: their outline would lie on the axis.
    """
    from matplotlib.colors import to_rgba

    weight = np.ones(len(u)) if sample_weight is None else np.asarray(sample_weight, float)
    share = np.histogram(u, edges, weights=weight)[0] / weight.sum()
    filled = np.flatnonzero(share)
    if len(filled):  # else nothing is inside the edges that were given
        share, edges = share[filled[0] : filled[-1] + 1], edges[filled[0] : filled[-1] + 2]
    colour = style.pop("color")
    look = {"fill": True, "facecolor": to_rgba(colour, 0.22), "edgecolor": colour}
    return ax.stairs(share, edges, **{"linewidth": 1.4, **look, **style})


def _furnish(ax: Axes, kind: str, label: str, count: int) -> None:
    """Labels, limits and a legend that covers no data."""
    ax.set(xlabel=label)
    ax.spines[["top", "right"]].set_visible(False)
    if kind == "cumulative":
        ax.set(ylabel="Share of rows up to this margin", ylim=(0.0, 1.02))
        ax.legend(loc="best", frameon=False, fontsize="small")
    else:
        ax.set(ylabel="Share of rows")
        ax.margins(y=_ENTRY_HEIGHT * (count + 1))
        ax.legend(loc="upper right", frameon=False, fontsize="small")


def _edges(u: np.ndarray, bins: int | Sequence[float] | None) -> np.ndarray:
    """Equal intervals over all margins, with 0 at an edge where it is in their range.

    So no bar mixes rows that are wrong with rows that are right.
    """
    if bins is None:
        count = int(np.clip(len(np.histogram_bin_edges(u, "auto")) - 1, _FEWEST, _MOST))
    elif isinstance(bins, int | np.integer):
        count = int(bins)
    else:
        return np.asarray(bins, dtype=np.float64)
    low, high = float(u.min()), float(u.max())
    width = (high - low) / count if high > low else 1.0
    first = np.floor(low / width)
    last = max(np.ceil(high / width), first + 1)
    return np.arange(first, last + 1) * width
