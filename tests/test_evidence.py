"""The benchmarks of what the papers claim: they run, continue, and judge as they should."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmark(monkeypatch):
    """Import a module of the benchmarks, which are not installed with the package."""
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize(
    ("name", "methods", "drawn"),
    [
        ("regular", {"SVM", "LDA", "ODM^L", "ODM"}, set()),
        ("large", {"LinearSVC", "ODM^L", "ODM", "ODM, svrg"}, {"large-time.png"}),
        ("classes", {"mcODM", "Crammer-Singer"}, {"classes-accuracy.png", "classes-margins.png"}),
    ],
)
def test_each_runs_on_generated_data_and_draws_its_pictures(
    benchmark, tmp_path, capsys, name, methods, drawn
):
    found = tmp_path / "found.json"
    arguments = [name, "--quick", "--repeats", "1", "--json", str(found)]
    assert benchmark("__main__").main([*arguments, "--pictures", str(tmp_path)]) == 0
    capsys.readouterr()
    record = json.loads(found.read_text())["results"][0]["tables"][0]["records"][0]
    assert methods <= set(record["scores"])
    assert all(0.5 < score <= 1.0 for score in record["scores"].values())
    assert {path.name for path in tmp_path.glob("*.png")} == drawn


@pytest.mark.parametrize("name", ["regular", "large", "classes"])
def test_absent_data_is_said(benchmark, tmp_path, name):
    options = benchmark("methods").Options(data=tmp_path, repeats=1)
    first = next(iter(benchmark(name).run(options)))
    assert first.rows[0][0] == "no data"


def test_an_interrupted_run_continues_and_another_recipe_starts_anew(benchmark, tmp_path):
    Kept = benchmark("kept").Kept
    path = tmp_path / "results" / "some.jsonl"
    Kept(path, "grid").add({"seed": 1})
    again = Kept(path, "grid")
    assert again.missing([0, 1, 2], lambda record: record["seed"]) == [0, 2]
    assert again.records[0]["seed"] == 1
    assert Kept(path, "another grid").missing([0, 1], lambda record: record["seed"]) == [0, 1]


def test_verdicts_need_more_evidence_where_splits_overlap(benchmark):
    paired = benchmark("verdicts").paired
    rng = np.random.default_rng(0)
    theirs = rng.normal(0.8, 0.02, 30)
    ours = theirs + rng.normal(0.005, 0.01, 30)
    assert paired(theirs, theirs) == 0
    assert (paired(ours, theirs), paired(theirs, ours)) == (1, -1)
    assert paired(ours, theirs, share=1.0) == 0


def test_the_kernel_discriminant_has_the_direction_of_fishers(benchmark):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3)) + y[:, None]
    model = benchmark("contenders").KernelLDA(1e-8).fit(X @ X.T, y)
    w = model.line.dual_coef_ @ (X - X.mean(axis=0))
    fisher = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y).coef_.ravel()
    assert w / np.linalg.norm(w) == pytest.approx(fisher / np.linalg.norm(fisher), rel=1e-5)


def test_the_printed_tables_are_whole(benchmark):
    printed = benchmark("printed")
    assert set(printed.LINEAR) == set(printed.RBF)
    assert set(printed.LINEAR) | set(printed.LARGE) == set(printed.COPIES)
    for table in (printed.LINEAR, printed.RBF, printed.LARGE):
        # the paper: never significantly worse than the SVM
        assert all("-" not in row.marks[1:] and len(row.marks) == 3 for row in table.values())
