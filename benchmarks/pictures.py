"""The pictures of the docs; matplotlib is imported here alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers and dashes do it
# in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = (
    "solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (1, 3)),
)  # fmt: skip
_DECADES = 300.0  # ratio of times up to which there is room for ticks between powers of ten
_INK, _GRID = "#333333", "#dddddd"


class Point(NamedTuple):
    """A fit in a picture, and what is written beside it."""

    seconds: float
    accuracy: float
    words: str = ""


class Panel(NamedTuple):
    """A data set: the points of each method, accuracies to reach, and what has no point."""

    title: str
    points: Mapping[str, Sequence[Point]]
    levels: Sequence[float] = ()
    note: str = ""


def training_times(seconds: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Seconds of each method (inner keys) on each data set (outer keys), on a log scale."""
    _dots(seconds, "seconds of one fit", path)


def epochs(seconds: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """Seconds of one pass over the rows, as `training_times`."""
    _dots(seconds, "seconds of one iteration", path)


def excesses(above: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """How far starts (inner keys) are above the optimum, as `training_times`."""
    _dots(above, "objective at the start of a merge, above the optimum and over it", path)


def descents(
    paths: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    path: Path,
    across: str = "seconds",
    down: str = "relative duality gap",
) -> None:
    """What is left against seconds or rounds, both on log scales: a panel for each set."""
    columns = min(len(paths), 4)
    rows = -(-len(paths) // columns)
    size = (1.0 + 3.4 * columns, 0.4 + 3.2 * rows)
    figure, axes = _sheet(rows, columns, size, sharex=False)
    for axis, (name, found) in zip(axes, paths.items(), strict=False):
        for k, (method, (x, left)) in enumerate(found.items()):
            axis.plot(x, left, label=method, **_style(k))
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(across)
        axis.grid(color=_GRID, linewidth=0.7)
    for axis in axes[len(paths) :]:
        axis.set_visible(False)
    for axis in axes[::columns]:
        axis.set_ylabel(down)
    _legend(figure, max(axes[: len(paths)], key=lambda axis: len(axis.lines)))  # all methods
    _save(figure, path)


def by_parts(
    found: Mapping[str, Mapping[str, Sequence[float]]], counts: Sequence[int], path: Path
) -> None:
    """Test accuracy of each method against the number of parts: a panel for each set."""
    figure, axes = _sheet(1, len(found), (3.4 * len(found), 3.4), sharey=False)
    for axis, (name, scores) in zip(axes, found.items(), strict=True):
        for k, (method, values) in enumerate(scores.items()):
            axis.plot(counts, values, label=method, **_style(k))
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("parts")
        axis.grid(color=_GRID, linewidth=0.7)
    axes[0].set_ylabel("test accuracy")
    _legend(figure, axes[0])
    _save(figure, path)


def agreement(
    found: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], path: Path
) -> None:
    """Primal residual, and below it test accuracy, after each round: a column for each case."""
    figure, axes = _sheet(2, len(found), (3.4 * len(found), 5.8), sharey=False)
    for j, (name, lines) in enumerate(found.items()):
        upper, lower = axes[j], axes[len(found) + j]
        for k, (method, (apart, accuracy)) in enumerate(lines.items()):
            rounds = range(1, len(apart) + 1)
            upper.plot(rounds, apart, label=method, **_style(k, marker=""))
            lower.plot(rounds, accuracy, **_style(k, marker=""))
        upper.set_yscale("log")
        upper.set_title(name, fontsize=10)
        lower.set_xlabel("rounds")
        for axis in (upper, lower):
            axis.set_xscale("log")
            axis.grid(color=_GRID, linewidth=0.7)
    axes[0].set_ylabel("primal residual")
    axes[len(found)].set_ylabel("test accuracy")
    _legend(figure, axes[0])
    _save(figure, path)


def _style(k: int, marker: str | None = None) -> dict[str, Any]:
    """How line k is drawn."""
    mark = MARKERS[k] if marker is None else marker
    look = {"color": COLOURS[k], "linestyle": DASHES[k], "marker": mark}
    return {**look, "markersize": 3.0, "linewidth": 1.3}


def _legend(figure: Figure, axis: Any) -> None:
    lines, names = axis.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)


def toy(
    X: np.ndarray,
    y: np.ndarray,
    planes: Mapping[str, np.ndarray],
    locals_: np.ndarray,
    scores: tuple[Sequence[int], Mapping[str, Sequence[float]]],
    path: Path,
) -> None:
    """Points of two classes with the line of each method over those of the parts; accuracies."""
    figure, axes = _sheet(1, len(planes) + 1, (3.4 * (len(planes) + 1), 3.4), False, False)
    low, high = X.min(axis=0) - 0.5, X.max(axis=0) + 0.5
    for k, (axis, (name, plane)) in enumerate(zip(axes, planes.items(), strict=False)):
        for sign, colour, marker in ((1, COLOURS[1], "o"), (-1, COLOURS[0], "s")):
            inside = y == sign
            axis.scatter(*X[inside].T, s=3, color=colour, marker=marker, alpha=0.4, linewidths=0)
        for w in locals_:
            _line(axis, w, low[1], high[1], color=_INK, linewidth=0.3, alpha=0.25)
        _line(axis, plane, low[1], high[1], color=COLOURS[2 + k], linewidth=2.2)
        axis.set_xlim(low[0], high[0])
        axis.set_ylim(low[1], high[1])
        axis.set_title(name, fontsize=10)
    counts, found = scores
    for k, (name, values) in enumerate(found.items()):
        axes[-1].plot(
            counts, values, label=name, color=COLOURS[2 + k], marker=MARKERS[k], linestyle=DASHES[k]
        )
    axes[-1].set_xlabel("parts")
    axes[-1].set_title("test accuracy", fontsize=10)
    axes[-1].grid(color=_GRID, linewidth=0.7)
    axes[-1].legend(frameon=False, fontsize=9)
    _save(figure, path)


def _line(axis: Any, w: np.ndarray, low: float, high: float, **style: Any) -> None:
    """Where w_0 x + w_1 z + w_2 = 0, for z from low to high."""
    if abs(w[0]) > 1e-9:
        z = np.array([low, high])
        axis.plot(-(w[1] * z + w[2]) / w[0], z, **style)


def accuracies(scores: Mapping[str, Sequence[float]], classes: Sequence[int], path: Path) -> None:
    """Mean accuracy of each method with more and more classes.

    Later lines are thinner, so that equal ones can be seen below each other.
    """
    figure, axes = _sheet(1, 1, (7.0, 4.0))
    axis = axes[0]
    for k, (name, values) in enumerate(scores.items()):
        axis.plot(
            classes, values, label=name, color=COLOURS[k], marker=MARKERS[k],
            linestyle=DASHES[k], linewidth=3.0 - 0.6 * k, markersize=10.0 - 2.0 * k,
        )  # fmt: skip
    axis.set_xticks(list(classes))
    axis.set_xlabel("classes of segment")
    axis.set_ylabel("test accuracy")
    axis.grid(axis="y", color=_GRID, linewidth=0.7)
    axis.legend(frameon=False, fontsize=9)
    _save(figure, path)


def histograms(margins: Mapping[int, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Margins over their mean, a panel for each number of classes, a step line a method."""
    figure, axes = _sheet(2, 3, (9.0, 5.2), sharey=False)
    every = np.concatenate([np.asarray(u) for found in margins.values() for u in found.values()])
    low, high = np.quantile(every, [0.005, 0.995])
    edges = np.linspace(min(low, -0.5), high, 31)
    for axis, (count, found) in zip(axes, margins.items(), strict=False):
        for k, (name, u) in enumerate(found.items()):
            inside = np.clip(u, edges[0], edges[-1])  # the last bars hold the rest
            share = np.histogram(inside, edges)[0] / len(inside)
            axis.stairs(share, edges, color=COLOURS[k], fill=True, alpha=0.25)
            axis.stairs(
                share, edges, color=COLOURS[k], linewidth=1.4, linestyle=DASHES[k], label=name
            )
        axis.axvline(0.0, color=_INK, linewidth=0.8, linestyle=(0, (2, 2)))
        axis.set_title(f"{count} classes", fontsize=10)
    for axis in axes[len(margins) :]:
        axis.set_visible(False)
    for axis in axes[3:]:
        axis.set_xlabel("margin / mean margin")
    for axis in axes[::3]:
        axis.set_ylabel("share of test rows")
    lines, names = axes[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)
    _save(figure, path)


def pareto(panels: Sequence[Panel], path: Path) -> None:
    """Accuracy against seconds: a panel for each data set, a line for each method.

    Numbers beside the points are those of features; dotted lines are what is to be reached.
    Errors are on a log scale, so that .99 and .999 are as far apart as .9 and .99.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    size = (max(7.0, 3.9 * columns), 0.9 + 2.7 * rows)
    figure, axes = _sheet(rows, columns, size, sharex=False, sharey=False)
    methods = list(dict.fromkeys(name for panel in panels for name in panel.points))
    lines: dict[str, Any] = {}
    for k, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
        lines |= _panel(axis, panel, methods)
        if k % columns == 0:
            axis.set_ylabel("test accuracy")
        if k + columns >= len(panels):
            axis.set_xlabel("seconds of the fit")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.legend(
        [lines[name] for name in methods], methods, loc="outside upper center",
        ncols=len(methods), frameon=False, fontsize=9,
    )  # fmt: skip
    _save(figure, path)


def _panel(axis: Any, panel: Panel, methods: list[str]) -> dict[str, Any]:
    """One data set of `pareto`; the lines by method."""
    lines = {}
    for name, points in panel.points.items():
        k = methods.index(name)
        x, y = [p.seconds for p in points], [p.accuracy for p in points]
        (lines[name],) = axis.plot(
            x, y, color=COLOURS[k], marker=MARKERS[k], linestyle=DASHES[k], linewidth=1.2,
            markersize=5.5,
        )  # fmt: skip
        for p in points:
            axis.annotate(
                p.words, (p.seconds, p.accuracy), (4, -9), textcoords="offset points",
                fontsize=6.5, color=COLOURS[k],
            )  # fmt: skip
    for level in panel.levels:
        axis.axhline(level, color=_INK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axis.set_xscale("log")
    seconds = [p.seconds for points in panel.points.values() for p in points]
    narrow = max(seconds) <= _DECADES * min(seconds)
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_yscale("function", functions=(_closeness, _accuracy))
    axis.margins(0.14, 0.12)
    axis.text(0.99, 0.02, panel.note, transform=axis.transAxes, fontsize=7, color=_INK, ha="right")
    axis.grid(color=_GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.set_title(panel.title, fontsize=10)
    axis.tick_params(labelsize=8)
    return lines


def _closeness(accuracy: np.ndarray) -> np.ndarray:
    return -np.log10(np.maximum(1.0 - accuracy, 1e-6))


def _accuracy(closeness: np.ndarray) -> np.ndarray:
    return 1.0 - 10.0**-closeness


def _dots(seconds: Mapping[str, Mapping[str, float]], label: str, path: Path) -> None:
    """A line for each data set, a mark for each method; none covers another."""
    figure, axes = _sheet(1, 1, (7.0, 1.4 + 0.34 * len(seconds)))
    axis = axes[0]
    names, methods = list(seconds), list(next(iter(seconds.values())))
    lanes = np.linspace(-0.26, 0.26, len(methods))
    for k, method in enumerate(methods):
        x, y = [seconds[name][method] for name in names], np.arange(len(names)) + lanes[k]
        axis.scatter(x, y, label=method, color=COLOURS[k], marker=MARKERS[k], s=30, zorder=3)
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color=_GRID, linewidth=0.7)
    for k in range(1, len(names)):
        axis.axhline(k - 0.5, color=_GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.set_xlabel(label)
    lines, labels = axis.get_legend_handles_labels()
    figure.legend(
        lines, labels, loc="outside upper center", ncols=len(methods), frameon=False, fontsize=9
    )
    _save(figure, path)


def _sheet(
    rows: int,
    columns: int,
    size: tuple[float, float],
    sharex: bool = True,
    sharey: bool = True,
) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=size, layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
