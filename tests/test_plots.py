"""Pictures of margin distributions: what is drawn is what was counted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from optimargin.margins import margin_statistics, margins
from optimargin.plots import MarginDistributionDisplay

matplotlib.use("Agg")
from matplotlib import pyplot

KINDS = ["cumulative", "histogram"]


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.fixture(params=[2, 4])
def rows(request) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(80, 3, centers=request.param, cluster_std=5.0, random_state=1)


def heights(display: MarginDistributionDisplay, at: int = 0) -> np.ndarray:
    return display.lines_[at].get_data().values


def edges(display: MarginDistributionDisplay, at: int = 0) -> np.ndarray:
    return display.lines_[at].get_data().edges


@pytest.mark.parametrize("weighted", [False, True])
def test_the_cumulative_curve_rises_from_0_to_1_and_passes_the_error_at_0(rows, weighted) -> None:
    X, y = rows
    model = LogisticRegression().fit(X, y)
    weight = np.arange(len(y)) % 3 if weighted else None
    display = MarginDistributionDisplay.from_estimator(model, X, y, sample_weight=weight)
    x, share = display.lines_[0].get_data()
    assert (np.diff(x) >= 0).all()
    assert (np.diff(share) > 0).all()
    assert (share[0], share[-1]) == (0.0, 1.0)
    assert display.lines_[0].get_drawstyle() == "steps-post"
    error = margin_statistics(margins(model, X, y), weight).error
    assert error > 0
    assert share[x < 0].max() == pytest.approx(error)


@pytest.mark.parametrize("bins", [None, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bars_hold_every_row_once_and_none_has_0_inside(rows, weighted, bins) -> None:
    X, y = rows
    model = LogisticRegression().fit(X, y)
    weight = np.arange(len(y)) % 3 if weighted else None
    display = MarginDistributionDisplay.from_estimator(
        model, X, y, kind="histogram", sample_weight=weight, bins=bins
    )
    assert heights(display).sum() == pytest.approx(1)
    assert 0.0 in edges(display)
    wrong = heights(display)[edges(display)[1:] <= 0].sum()
    assert wrong == pytest.approx(margin_statistics(margins(model, X, y), weight).error)


def test_given_edges_are_kept() -> None:
    display = MarginDistributionDisplay({"one": [0.5, 1.5, 1.7]})
    display.plot(kind="histogram", bins=[0, 1, 2])
    np.testing.assert_allclose(heights(display), [1 / 3, 2 / 3])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_margins_can_be_drawn(kind: str) -> None:
    display = MarginDistributionDisplay({"one": np.ones(5)}).plot(kind=kind)
    drawn = display.lines_[0].get_data()
    assert (drawn[1][-1] if kind == "cumulative" else drawn.values.sum()) == 1.0


def test_several_models_share_their_intervals(rows) -> None:
    X, y = rows
    models = [LogisticRegression(C=C).fit(X, y) for C in (1e-3, 1.0)]
    models.append(make_pipeline(StandardScaler(), LinearSVC()).fit(X, y))
    display = MarginDistributionDisplay.from_estimators(models, X, y, kind="histogram")
    assert len(display.lines_) == len(display.margins) == 3
    grid = np.unique(np.concatenate([edges(display, at) for at in range(3)]))
    np.testing.assert_allclose(np.diff(grid), edges(display)[1] - edges(display)[0])
    for name, model in zip(display.margins, models, strict=True):
        np.testing.assert_array_equal(display.margins[name], margins(model, X, y))


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_give_the_picture_of_their_estimator(rows, kind: str) -> None:
    X, y = rows
    model = LinearSVC().fit(X, y)
    of_model = MarginDistributionDisplay.from_estimator(model, X, y, kind=kind, scale="mean")
    of_scores = MarginDistributionDisplay.from_predictions(
        y, model.decision_function(X), kind=kind, scale="mean"
    )
    assert of_model.ax_ is not of_scores.ax_
    for left, right in zip(*(d.lines_[0].get_data() for d in (of_model, of_scores)), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("kind", KINDS)
def test_a_display_draws_where_it_is_told(kind: str) -> None:
    figure, axes = pyplot.subplots(1, 2)
    display = MarginDistributionDisplay({"a": [-1.0, 2.0], "b": [1.0, 3.0]})
    assert display.plot(axes[1], kind=kind, color="black").ax_ is axes[1]
    assert display.figure_ is figure
    assert not axes[0].lines
    assert display.zero_line_.get_xdata() == [0, 0]
    assert len(axes[1].get_legend().get_texts()) == 2


def test_a_refused_picture_leaves_no_figure_behind() -> None:
    display = MarginDistributionDisplay({"one": [1.0, 2.0]}, sample_weight=[1.0])
    with pytest.raises(ValueError, match="sample_weight"):
        display.plot()
    with pytest.raises(ValueError, match="kind"):
        MarginDistributionDisplay({"one": [1.0]}).plot(kind="pie")
    assert not pyplot.get_fignums()


def test_matplotlib_waits_for_the_first_picture() -> None:
    code = "import sys, optimargin.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_matplotlib_the_picture_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        MarginDistributionDisplay({"one": [1.0]}).plot()
