"""The program: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_iris
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from optimargin import cli, datasets, machines
from optimargin.commands import app
from optimargin.console import progress_on_stderr
from optimargin.estimators import LinearODMClassifier, ODMClassifier, saved

NAMES = ["a", "b", "c", "d"]
RUNNER = CliRunner(env={"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"})


def run(*words: Any, code: int = 0) -> Any:
    """Run the program with these words and expect this exit code."""
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def facts(*words: Any) -> dict[str, Any]:
    """What the program prints with --json: one object and nothing else on stdout."""
    return json.loads(run(*words, "--json").stdout)


def complaint(*words: Any, code: int = 1) -> str:
    """What the program says when it fails: one line on stderr, nothing on stdout."""
    result = run(*words, code=code)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def table(path: Path, X: np.ndarray, y: Any = None, names: list[str] | None = NAMES) -> Path:
    """A CSV file."""
    columns = [*X.T.tolist(), *([] if y is None else [list(y)])]
    head = [",".join([*names, *([] if y is None else ["kind"])])] if names else []
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([*head, *lines]))
    return path


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    """Three kinds of flower, the features far from each other in size."""
    X, y = load_iris(return_X_y=True)
    return X * [1, 10, 100, 1000], np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, iris: Any) -> Path:
    """A folder with data and a model trained on them."""
    folder = tmp_path_factory.mktemp("cli")
    table(folder / "iris.csv", *iris)
    run("train", folder / "iris.csv", "--model", folder / "model", "--lam", 100, "-q")
    return folder


@pytest.mark.parametrize("command", ["train", "predict", "evaluate", "margins", "info"])
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    assert f"optimargin {command} iris" in run(command, "--help").stdout


def test_a_trained_file_is_the_scaled_machine_of_the_library(place: Path, iris: Any) -> None:
    X, y = iris
    model = saved.load(place / "model")
    same = make_pipeline(StandardScaler(), ODMClassifier(lam=100, random_state=0)).fit(X, y)
    assert np.allclose(model.decision_function(X), same.decision_function(X), atol=1e-9)


def test_predictions_are_those_of_the_loaded_model(place: Path, iris: Any, tmp_path: Path) -> None:
    X, model = iris[0], saved.load(place / "model")
    new = table(tmp_path / "new.csv", X)
    expected = model.predict(X).tolist()
    assert run("predict", place / "model", new).stdout.split() == expected
    assert facts("predict", place / "model", new)["predictions"] == expected
    assert run("predict", place / "model", new, "--output", tmp_path / "out").stdout == ""
    assert (tmp_path / "out").read_text().split() == expected
    run("predict", place / "model", new, "--scores", "-o", tmp_path / "scores.csv")
    read = datasets.read(tmp_path / "scores.csv", label="prediction")
    assert np.array_equal(read.X, model.decision_function(X))
    assert read.feature_names == ["setosa", "versicolor", "virginica"]


def test_columns_are_matched_by_name_so_their_order_does_not_matter(
    place: Path, iris: Any, tmp_path: Path
) -> None:
    X, y = iris
    straight = run("predict", place / "model", place / "iris.csv").stdout
    turned = table(tmp_path / "turned.csv", X[:, ::-1], y, NAMES[::-1])
    assert run("predict", place / "model", turned).stdout == straight
    assert facts("evaluate", place / "model", turned)["accuracy"] > 0.9
    renamed = table(tmp_path / "renamed.csv", X, y, ["a", "b", "c", "e"])
    assert "no column 'd'" in complaint("predict", place / "model", renamed)


def test_a_model_saved_by_the_library_knows_its_columns_too(
    place: Path, iris: Any, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = iris
    fitted = LinearODMClassifier().fit(pandas.DataFrame(X, columns=NAMES), y)
    fitted.save(tmp_path / "m")
    turned = table(tmp_path / "turned.csv", X[:, ::-1], None, NAMES[::-1])
    result = run("predict", tmp_path / "m", turned)
    expected = fitted.predict(pandas.DataFrame(X, columns=NAMES))
    assert result.stdout.split() == expected.tolist()
    assert result.stderr == ""
    accuracy = facts("evaluate", tmp_path / "m", place / "iris.csv")["accuracy"]
    assert accuracy == pytest.approx(np.mean(expected == y))


def test_the_label_is_found_wherever_it_stands(place: Path, iris: Any, tmp_path: Path) -> None:
    X, y = iris
    first = np.column_stack([y.astype(object), X.astype(object)])
    named = table(tmp_path / "named.csv", first, None, ["kind", *NAMES])
    other = table(tmp_path / "other.csv", first, None, ["species", *NAMES])
    expected = facts("evaluate", place / "model", place / "iris.csv")
    assert facts("evaluate", place / "model", named) == expected
    assert facts("evaluate", place / "model", other) == expected
    bare = table(tmp_path / "bare.csv", first, None, None)
    assert facts("evaluate", place / "model", bare, "--label", 1) == expected
    assert "is one of them the label's?" in complaint("predict", place / "model", bare)
    assert run("predict", place / "model", bare, "--label", 1).stdout.split()[0] == "setosa"


def test_evaluation_adds_up(place: Path, iris: Any) -> None:
    y, report = iris[1], facts("evaluate", place / "model", place / "iris.csv")
    predicted = saved.load(place / "model").predict(iris[0])
    assert report["accuracy"] == pytest.approx(np.mean(predicted == y))
    labels = ["setosa", "versicolor", "virginica"]
    assert np.array_equal(report["confusion"], confusion_matrix(y, predicted, labels=labels))
    peer = precision_recall_fscore_support(y, predicted, labels=labels)
    assert np.allclose(
        [list(report["classes"][label].values()) for label in labels], np.transpose(peer)
    )
    margin = facts("margins", place / "model", place / "iris.csv")
    assert margin["mean"] == pytest.approx(report["margin"]["mean"])
    assert margin["error"] == pytest.approx(1 - report["accuracy"])
    shown = run("evaluate", place / "model", place / "iris.csv").stdout
    assert all(name in shown for name in ("accuracy", "versicolor", "variance"))


def test_margins_are_drawn_into_a_file(place: Path, tmp_path: Path) -> None:
    picture = tmp_path / "margins.png"
    for kind in ("cumulative", "histogram"):
        words = ("margins", place / "model", place / "iris.csv", "--plot", picture, "--kind", kind)
        assert "median" in run(*words).stdout
        assert picture.read_bytes().startswith(b"\x89PNG")
        picture.unlink()


def test_several_classes_are_told_in_plain_json(place: Path, tmp_path: Path) -> None:
    words = ("train", place / "iris.csv", "-o", tmp_path / "m", "--multi-class", "ovo", "--json")
    for said in (run("info", place / "model", "--json"), run(*words)):
        json.loads(said.stdout, parse_constant=pytest.fail)  # NaN is not JSON
    assert facts("info", tmp_path / "m")["parameters"]["multi_class"] == "ovo"
    assert facts("info", place / "model")["solver"] == "mcodm"


def test_info_tells_what_training_told(place: Path, tmp_path: Path) -> None:
    told = facts("train", place / "iris.csv", "-o", tmp_path / "m", "--mu", 0.3, "--kernel", "poly")
    found = facts("info", tmp_path / "m")
    assert told["parameters"] == found["parameters"]
    assert found["parameters"]["mu"] == 0.3
    assert found["status"] == told["status"] == "converged"
    assert found["support_vectors"] == len(saved.load(tmp_path / "m")[-1].support_)
    assert (found["feature_names"], found["label"]) == (NAMES, "kind")
    assert "poly" in run("info", tmp_path / "m").stdout


@pytest.mark.parametrize("scale", ["auto", "standard", "minmax", "none"])
def test_sparse_rows_stay_sparse_under_every_scaling(scale: str, tmp_path: Path) -> None:
    y = np.arange(60) % 2 * 2 - 1
    noise = sp.random(60, 5000, density=0.01, random_state=0)
    X = sp.hstack([np.maximum(y, 0)[:, None] * 5.0, noise], format="csr")
    dump_svmlight_file(X, y, str(tmp_path / "rows"), zero_based=False)
    words = ("train", tmp_path / "rows", "-o", tmp_path / "m", "--scale", scale, "--lam", 1000)
    run(*words)
    model = saved.load(tmp_path / "m")
    assert sp.issparse((model[-1] if scale in ("standard", "minmax") else model).support_vectors_)
    assert facts("evaluate", tmp_path / "m", tmp_path / "rows")["accuracy"] == 1
    assert set(run("predict", tmp_path / "m", tmp_path / "rows").stdout.split()) == {"-1", "1"}


def test_a_machine_trained_on_a_table_takes_sparse_rows(
    place: Path, iris: Any, tmp_path: Path
) -> None:
    X = np.where(np.arange(4) % 2, iris[0], 0)
    dump_svmlight_file(X, np.zeros(150), str(tmp_path / "rows"), zero_based=False)
    assert sp.issparse(datasets.read(tmp_path / "rows").X)
    expected = saved.load(place / "model").predict(X).tolist()
    assert run("predict", place / "model", tmp_path / "rows").stdout.split() == expected


def test_labels_that_look_like_numbers_meet_classes_that_are_text(tmp_path: Path) -> None:
    X = np.column_stack([np.arange(9.0), np.arange(9.0) % 3])
    run(
        "train", table(tmp_path / "a.csv", X, ["1", "2", "x"] * 3, ["a", "b"]), "-o", tmp_path / "m"
    )
    some = table(tmp_path / "b.csv", X[[0, 1]], ["1", "2"], ["a", "b"])
    assert facts("evaluate", tmp_path / "m", some)["rows"] == 2
    other = table(tmp_path / "c.csv", X[:2], ["1", "y"], ["a", "b"])
    assert "the label 'y' is not a class of the model" in complaint(
        "evaluate", tmp_path / "m", other
    )


def test_options_reach_the_machine(place: Path, tmp_path: Path) -> None:
    words = "--linear --solver dcd --lam 3 --theta 0.4 --tol 0.01 --no-intercept --balanced"
    more = "--max-iter 50 --time-limit 30 --memory-limit 1GB --jobs 1 --seed 7 --scale minmax"
    run("train", place / "iris.csv", "-o", tmp_path / "m", *words.split(), *more.split())
    model = saved.load(tmp_path / "m")
    expected = LinearODMClassifier(
        solver="dcd",
        lam=3.0,
        theta=0.4,
        tol=0.01,
        fit_intercept=False,
        class_weight="balanced",
        max_iter=50,
        time_limit=30.0,
        memory_limit="1GB",
        n_jobs=1,
        random_state=7,
    )
    assert model[-1].get_params() == expected.get_params()
    assert type(model[0]).__name__ == "MinMaxScaler"


def test_a_machine_that_did_not_converge_is_saved_with_a_warning(
    place: Path, tmp_path: Path
) -> None:
    words = ("--linear", "--solver", "dcd", "--max-iter", 1, "--tol", 1e-12, "--json")
    result = run("train", place / "iris.csv", "-o", tmp_path / "m", *words)
    assert json.loads(result.stdout)["status"] == "max_iter"
    assert len(result.stderr.splitlines()) == 1
    assert "Warning" in result.stderr
    assert "raise max_iter" in result.stderr


def test_uneven_features_are_noted_when_nothing_scales_them(place: Path, tmp_path: Path) -> None:
    words = ("train", place / "iris.csv", "-o", tmp_path / "m", "--linear")
    assert "--scale" in run(*words, "--scale", "none").stderr
    assert run(*words).stderr == ""
    assert "--scale" not in run(*words, "--scale", "none", "--quiet").stderr


def test_progress_goes_to_stderr(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = machines.read_training_rows(place / "iris.csv", {"format": None, "header": None})
    with progress_on_stderr():
        fitted = machines.fit(machines.blank(True, {}), rows, "auto", True, print)
    said = capsys.readouterr()
    assert said.out == ""
    assert "round" in said.err
    assert fitted[-1].verbose == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--lam -1", "'lam'"),
        ("--gamma wide", "'gamma'"),
        ("--solver simplex", "'solver'"),
        ("--memory-limit lots", "memory_limit"),
        ("--label colour", "no column 'colour'"),
        ("--label 9", "no column at position 8"),
        ("--format parquet", "not a Parquet file"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_1(
    place: Path, tmp_path: Path, words: str, reason: str
) -> None:
    said = complaint("train", place / "iris.csv", "-o", tmp_path / "m", *words.split())
    assert reason in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "train",
        "train {data}",
        "train {data} -o m --kernel foo",
        "train {data} -o m --linear --gamma 1",
        "train {data} -o m --label 0",
        "predict {data}",
        "nonsense",
    ],
)
def test_wrong_usage_is_exit_code_2(place: Path, words: str) -> None:
    result = run(*words.format(data=place / "iris.csv").split(), code=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_bad_files_are_one_line_and_exit_code_1(place: Path, tmp_path: Path) -> None:
    good, absent = place / "iris.csv", tmp_path / "absent"
    assert "no such file" in complaint("train", absent, "-o", tmp_path / "m")
    assert "no folder" in complaint("train", good, "-o", absent / "m")
    assert "not a model file" in complaint("info", good)
    assert "no such file" in complaint("evaluate", absent, good)
    assert "no such file" in complaint("margins", place / "model", absent)
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b,kind\n1,2,x\n3,oops,y\n")
    assert "line 3, column 'b'" in complaint("train", bad, "-o", tmp_path / "m")
    assert "no folder" in complaint("predict", place / "model", good, "-o", absent / "out")


def test_ctrl_c_leaves_the_old_model_and_nothing_else(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    run("train", place / "iris.csv", "-o", path, "--linear")
    before = path.read_bytes()

    def interrupted(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearODMClassifier, "fit", interrupted)
    assert "Interrupted" in complaint("train", place / "iris.csv", "-o", path, "--linear", code=130)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_package_is_named_with_the_way_to_get_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = complaint("train", place / "iris.csv", "-o", tmp_path / "m")
    assert "pip install 'optimargin[cli]'" in said
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "optimargin.commands")
    monkeypatch.delitem(sys.modules, "optimargin.console")
    with pytest.raises(SystemExit, match=r"typer: pip install 'optimargin\[cli\]'"):
        cli.main()
