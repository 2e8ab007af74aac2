"""The benchmarks run: the runner, its reports and its verdicts, on tiny generated data."""

import importlib
import json
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmark(monkeypatch):
    """Import a module of the benchmarks, which are not installed with the package."""
    pytest.importorskip("rich")
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def test_the_runner_times_our_solvers_and_writes_its_reports(benchmark, tmp_path, capsys):
    found, page = tmp_path / "found.json", tmp_path / "found.md"
    arguments = ["linear", "kernel", "--quick", "--no-peers", "--repeats", "1"]
    assert (
        benchmark("__main__").main([*arguments, "--json", str(found), "--markdown", str(page)]) == 0
    )
    capsys.readouterr()
    report = json.loads(found.read_text())
    assert [result["name"] for result in report["results"]] == ["linear", "kernel"]
    assert report["machine"]["packages"]["optimargin"] != "not installed"
    svm = report["results"][0]["tables"][0]["records"]
    assert {record["method"] for record in svm} >= {"auto", "dcd", "newton", "svrg"}
    assert all(record["gap"] <= 1e-4 for record in svm)
    assert report["results"][0]["command"] in page.read_text()


def test_absent_data_and_peers_are_said_and_do_not_stop_the_run(benchmark, tmp_path):
    methods, data = benchmark("methods"), benchmark("data")
    options = methods.Options(data=tmp_path, quick=True, repeats=1)
    with pytest.raises(data.NoData):
        data.read("w8a", tmp_path)
    with pytest.raises(methods.NotInstalled):
        benchmark("peers.libodm").prepare(None, 1.0, None)
    assert all(table.rows[0][0] == "no data" for table in benchmark("defaults").run(options))


def test_the_shared_objective_agrees_with_the_package(benchmark):
    from optimargin import LinearODMClassifier

    task = benchmark("methods").Task(*benchmark("problems").tall(300), 30.0, 0.5, 0.2)
    model = LinearODMClassifier(lam=30.0, mu=0.5, theta=0.2, tol=1e-8).fit(task.X, task.y)
    fitted = benchmark("methods").Linear(model.coef_.ravel(), float(model.intercept_[0]))
    primal = benchmark("objective").linear_primal(task, fitted)
    assert primal == pytest.approx(model.objective_, rel=1e-9)


def test_rules_for_lam_are_read_off_the_grid(benchmark):
    search = benchmark("search")
    cells = [
        search.Cell(name, 0, n, lam, 0.5, 0.2, True, 1.0, np.log2(lam) / 20, 0.5)
        for name, n in (("small", 100), ("large", 1600))
        for lam in (16.0, 64.0, 256.0, 1024.0, 4096.0)
    ]
    names, settings, accuracy, _ = search.table(cells)
    assert names == ["large", "small"]
    root = next(j for j, s in enumerate(settings) if s.rule == "root" and s.factor == 8.0)
    assert accuracy[:, root] == pytest.approx(np.log2([320.0, 80.0]) / 20)


def test_landmarks_are_compared_and_drawn(benchmark, tmp_path, capsys):
    found = tmp_path / "found.json"
    arguments = ["landmark", "--quick", "--no-peers", "--repeats", "1", "--limit", "60"]
    folders = ["--json", str(found), "--pictures", str(tmp_path)]
    assert benchmark("__main__").main([*arguments, *folders]) == 0
    capsys.readouterr()
    methods, _, _, growth, million, predicted = json.loads(found.read_text())["results"][0][
        "tables"
    ]
    assert float(predicted["rows"][0][3]) > 0.0
    assert {(r["method"], r["size"]) for r in methods["records"]} == {
        ("auto, exact", 0), ("landmark", 20), ("landmark", 40),
    }  # fmt: skip
    assert all(r["accuracy"] > 0.6 for r in methods["records"])
    assert all(r["memory"] >= 0 for r in growth["records"])
    assert [r["rows"] for r in million["records"]] == [2000, 2000]
    assert (tmp_path / "landmark-pareto.png").is_file()


def test_a_search_on_few_rows_has_fewer_features(benchmark):
    plans = benchmark("plans")
    ours = plans.Plan(plans.OURS, 500, 1.0, 1.0, 0.5, 0.1)
    assert [plans.build(ours, n).n_landmarks for n in (3, 1000, 10_000)] == [1, 200, 500]
    pipeline = plans.build(plans.Plan(plans.PIPELINE, 500, 1.0, 1.0), 1000)
    assert pipeline[0].n_components == 200


class Guess:
    """Right about so many of a hundred rows, whose labels are their features."""

    def __init__(self, n, right):
        self.wrong = 100 - right

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.where(np.arange(len(X)) % 100 < self.wrong, 1.0 - X[:, 0], X[:, 0])


def test_a_search_climbs_to_the_best_setting_from_where_a_coarse_one_ends(benchmark):
    choice, uphill, trial = (benchmark(name) for name in ("choice", "uphill", "trial"))
    best = (3, 5, 1)
    grid = {
        place: choice.Setting(f"{place}", partial(Guess, right=90 - 10 * off))
        for place in product(range(6), range(7), range(2))
        if (off := sum(abs(a - b) for a, b in zip(place, best, strict=True))) < 9
    }
    y = np.tile([0.0, 1.0], 600)
    rows = trial.Rows(y[:, None], y, y[:0, None], y[:0])
    found = uphill.search(grid, rows, limit=60.0)
    assert found.setting.words == f"{best}"
    assert found.fits < 3 * len(grid)
    assert not found.is_cut
    assert uphill.search(grid, rows, limit=0.0).is_cut


def test_sodm_is_followed_level_by_level(benchmark, tmp_path, capsys):
    found = tmp_path / "found.json"
    arguments = ["sodm", "--quick", "--repeats", "1", "--json", str(found), "--limit", "30"]
    assert benchmark("__main__").main([*arguments, "--pictures", str(tmp_path)]) == 0
    capsys.readouterr()
    rbf, levels, _, _, merges, gradients = json.loads(found.read_text())["results"][0]["tables"]
    assert {(r["method"], r["threads"]) for r in rbf["records"]} == {
        ("ODM", 2), ("Ca-ODM", 2), ("DiP-ODM", 2), ("DC-ODM", 2), ("SODM", 2), ("SODM", 1),
    }  # fmt: skip
    assert len(levels["rows"]) == 5
    zero, printed, rescaled, best = (float(v) for v in merges["rows"][0][1:])
    assert best <= rescaled < zero < printed
    assert all(float(row[-1]) <= 1e-4 for row in gradients["rows"])
    names = ("sodm-rbf", "sodm-linear", "sodm-merge", "sodm-gradients")
    assert all((tmp_path / f"{name}.png").is_file() for name in names)


def test_a_rival_is_beaten_who_is_not_more_accurate_or_only_by_chance(benchmark):
    sodm = benchmark("sodm")

    def method(*levels):  # seconds, and an accuracy on each of three splits
        records = [
            {"levels": [{"seconds": s, "accuracy": each[k]} for s, each in levels]}
            for k in range(3)
        ]
        return sodm.averaged(records)["levels"]

    rival = method((1.0, (0.80, 0.80, 0.80)), (2.0, (0.90, 0.92, 0.94)))
    for seconds, each, by_test, by_mean in [
        (2.0, (0.90, 0.92, 0.94), True, True),
        (2.1, (0.99, 0.99, 0.99), False, False),  # too late
        (1.5, (0.89, 0.91, 0.93), False, False),  # lower on every split, by the same
        (1.5, (0.87, 0.93, 0.94), True, False),  # lower by chance
    ]:
        ours = method((0.5, (0.5, 0.6, 0.7)), (seconds, each))
        assert sodm._is_beaten(rival, ours, True) == by_test
        assert sodm._is_beaten(rival, ours, False) == by_mean


def test_a_split_that_ends_early_stands_for_its_later_levels(benchmark):
    level = [{"seconds": 1.0, "accuracy": 0.5}, {"seconds": 2.0, "accuracy": 0.7}]
    found = benchmark("sodm").averaged([{"levels": level}, {"levels": level[:1]}])["levels"]
    assert [one["seconds"] for one in found] == [1.0, 1.5]
    assert [one["accuracy"] for one in found] == pytest.approx([0.5, 0.6])
    assert found[1]["each accuracy"] == [0.7, 0.5]


def test_clusters_are_set_beside_landmarks(benchmark, tmp_path, capsys):
    found = tmp_path / "found.json"
    arguments = ["local", "--quick", "--repeats", "1", "--json", str(found)]
    assert benchmark("__main__").main(arguments) == 0
    capsys.readouterr()
    (table,) = json.loads(found.read_text())["results"][0]["tables"]
    assert [r["method"] for r in table["records"]] == ["clusters", "landmarks"]
    assert all(r["accuracy"] > 0.6 and r["prediction"] > 0.0 for r in table["records"])


def test_dual_solvers_are_set_beside_each_other(benchmark, tmp_path, capsys):
    found = tmp_path / "found.json"
    arguments = ["bqo", "--quick", "--limit", "2", "--json", str(found)]
    assert benchmark("__main__").main([*arguments, "--pictures", str(tmp_path)]) == 0
    capsys.readouterr()
    tables = json.loads(found.read_text())["results"][0]["tables"]
    assert len(tables) == 5
    records = tables[0]["records"] + tables[2]["records"]
    assert len(records) == 6 + 8
    for record in records:
        primal, dual = record["primal 0.01"], record["dual 0.01"]
        assert primal is not None or record["status"] == "time_limit"
        assert dual is None or dual[0] >= 1.0
    assert [row[0] for row in tables[-1]["rows"]] == ["primal", "dual"]
    assert (tmp_path / "bqo-dual.png").is_file()


def test_averages_are_set_beside_consensus(benchmark, tmp_path, capsys):
    found = tmp_path / "found.json"
    arguments = ["dwpa", "--quick", "--limit", "2", "--json", str(found)]
    assert benchmark("__main__").main([*arguments, "--pictures", str(tmp_path)]) == 0
    capsys.readouterr()
    toy, bias, accuracy, agreement = json.loads(found.read_text())["results"][0]["tables"]
    scores = {r["method"]: r["accuracy"] for r in toy["records"]}
    assert scores["PA"][-1] < scores["DWPA"][-1] - 0.01
    assert len(bias["rows"]) == 2
    parts = [r["parts"] for r in accuracy["records"] if r["method"] == "DWPA"]
    assert parts == [1, 5, 20]
    assert all(0.5 < r["accuracy"] <= 1.0 for r in accuracy["records"])
    assert {row[2] for row in agreement["rows"]} == {"DWPA", "DWPAacc", "DSVM", "DSVMacc"}
    assert all(
        (tmp_path / f"dwpa-{name}.png").is_file() for name in ("toy", "accuracy", "residual")
    )


def test_a_fit_that_takes_too_long_is_stopped(benchmark):
    plans, trial = benchmark("plans"), benchmark("trial")
    X, y = benchmark("problems").curved(1000)
    make = partial(plans.build, plans.Plan(plans.EXACT, 0, 1.0, 1.0, 0.5, 0.1))
    found = trial.attempt(make, trial.Rows(X, y, X, y), 1, 0.0)
    assert found == {"status": trial.UNFINISHED, "seconds": 0.0}


def test_goals_are_judged_by_the_fastest_machine_that_reaches_them(benchmark):
    goals, plans = benchmark("goals"), benchmark("plans")
    case = goals.Case("set", (), (1, 2), (goals.Goal(2.0, 0.9), goals.Goal(3.0, below=0.05)))
    svc = {"data": "set", "method": plans.SVC, "size": 0, "accuracy": 0.92, "seconds": 8.0}
    ours = [
        {"data": "set", "method": plans.OURS, "size": size, "accuracy": a, "seconds": seconds}
        for size, a, seconds in ((1, 0.87, 1.0), (2, 0.91, 5.0))
    ]
    first, second = goals.judge(case, [svc, *ours])
    assert first[-5:] == [2, "0.9100", 5.0, "1.6", False]
    assert second[-5:] == [1, "0.8700", 1.0, "8", True]
    rival = {**ours[0], "method": plans.PIPELINE, "accuracy": 0.88, "seconds": 3.0}
    assert goals.duels([*ours, rival]) == [["set", 1, plans.PIPELINE, "-0.0100", 3.0, "time"]]
