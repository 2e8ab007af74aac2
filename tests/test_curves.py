"""Pictures of training: what is drawn is what the history says."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from optimargin import LinearODMClassifier, ODMClassifier, TrainingCurveDisplay

matplotlib.use("Agg")
from matplotlib import pyplot

X, y = make_moons(300, noise=0.2, random_state=0)
UNSEEN = make_moons(100, noise=0.2, random_state=1)


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def test_levels_are_drawn_as_they_were_judged() -> None:
    model = ODMClassifier(solver="sodm", n_partitions=4, fan_in=2).fit(X, y, validation=UNSEEN)
    other = LinearODMClassifier().fit(X, y, validation=UNSEEN)
    display = TrainingCurveDisplay.from_estimators({"SODM": model, "linear": other})
    for name, fitted in (("SODM", model), ("linear", other)):
        line = display.lines_[name]
        np.testing.assert_array_equal(line.get_xdata(), fitted.history_["time"])
        np.testing.assert_array_equal(line.get_ydata(), fitted.history_["accuracy"])
    assert display.ax_.get_xscale() == "log"
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["SODM", "linear"]


def test_a_pipeline_and_its_gaps_by_rounds() -> None:
    model = make_pipeline(StandardScaler(), LinearODMClassifier()).fit(X, y)
    axes = pyplot.figure().subplots()
    display = TrainingCurveDisplay.from_estimators({"linear": model}, y="gap", x="round", ax=axes)
    assert display.ax_ is axes
    assert axes.get_yscale() == "log"
    assert axes.get_xscale() == "linear"


def test_what_is_missing_is_named() -> None:
    model = LinearODMClassifier().fit(X, y)
    with pytest.raises(ValueError, match=r"fit with validation=\(X, y\)"):
        TrainingCurveDisplay.from_estimators({"linear": model})
    with pytest.raises(ValueError, match="has no history_; fit it first"):
        TrainingCurveDisplay.from_estimators({"linear": LinearODMClassifier()})
    with pytest.raises(ValueError, match="x must be one of time, round"):
        TrainingCurveDisplay.from_estimators({"linear": model}, y="gap", x="luck")
