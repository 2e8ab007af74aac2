"""The main job, end to end: files in, a model and a picture out, an SVM beside it.

Run by ``make demo``.  Every line that starts with $ is a command you can type yourself.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import optimargin
from optimargin import MarginDistributionDisplay, ODMClassifier, margin_statistics, margins

OUT = Path("demo-output")


def say(text: str) -> None:
    print(text, flush=True)


def command(*words: str) -> None:
    """Run the command line as a user would, and show it."""
    say("$ optimargin " + " ".join(words))
    subprocess.run([sys.executable, "-m", "optimargin", *words], check=True)
    say("")


def write_files() -> dict[str, tuple[np.ndarray, ...]]:
    """Two of scikit-learn's data sets as files: one CSV, one LIBSVM."""
    OUT.mkdir(exist_ok=True)
    parts = {}
    for name, load in (("cancer", load_breast_cancer), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        parts[name] = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
        X_train, X_test, y_train, y_test = parts[name]
        for half, rows, labels in (("train", X_train, y_train), ("test", X_test, y_test)):
            if name == "cancer":
                names = [f"x{j}" for j in range(rows.shape[1])]
                np.savetxt(
                    OUT / f"{name}.{half}.csv",
                    np.column_stack([rows, labels]),
                    delimiter=",",
                    header=",".join([*names, "benign"]),
                    comments="",
                    fmt="%.10g",
                )
            else:
                dump_svmlight_file(rows, labels, str(OUT / f"{name}.{half}.svm"), zero_based=False)
    return parts


def beside_an_svm(name: str, model_file: Path, parts: tuple[np.ndarray, ...]) -> dict[str, object]:
    """Accuracy and margins of the trained model and of scikit-learn's SVC with its defaults."""
    X_train, X_test, y_train, y_test = parts
    models = {
        "SVM (SVC)": make_pipeline(StandardScaler(), SVC()).fit(X_train, y_train),
        "ODM": optimargin.load(model_file),
    }
    say(f"{name}, test part     accuracy   margin mean   margin variance   variance / mean^2")
    for title, model in models.items():
        found = margin_statistics(margins(model, X_test, y_test))
        relative = found.variance / found.mean**2
        say(
            f"  {title:18s} {model.score(X_test, y_test):9.4f} {found.mean:13.4f}"
            f" {found.variance:17.4f} {relative:19.4f}"
        )
    say("")
    return models


def many_rows() -> None:
    """A kernel machine on 200,000 rows, and an SVM on as many as it can do in that time or so."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(220_000, 10)).astype(np.float32)
    y = np.sin(3.0 * X[:, :4]).sum(axis=1) + np.prod(2.0 * X[:, 4:6], axis=1) > 0.0
    X_test, y_test = X[200_000:], y[200_000:]
    say("              rows    seconds   test accuracy")
    model = ODMClassifier(gamma=0.3, n_landmarks=2000, random_state=0)
    for title, machine, n in (
        ("SVM (SVC)", SVC(gamma=0.3), 10_000),
        ("ODM", model, 10_000),
        ("ODM", model, 200_000),
    ):
        began = time.perf_counter()
        machine.fit(X[:n], y[:n])
        seconds = time.perf_counter() - began
        say(f"  {title:9s} {n:7,d} {seconds:10.1f} {machine.score(X_test, y_test):15.4f}")
    say(
        f"  The last one is over {len(model.support_)} landmarks ({model.solver_!r}), at most"
        f" {model.dual_gap_:.1e} of its objective above the best over them.\n"
    )


def main() -> None:
    parts = write_files()
    say("Two classes: breast cancer, from a CSV file\n")
    model, test = OUT / "cancer.safetensors", OUT / "cancer.test.csv"
    command("train", str(OUT / "cancer.train.csv"), "--model", str(model))
    command("predict", str(model), str(test), "--output", str(OUT / "cancer.predicted.csv"))
    command("evaluate", str(model), str(test))
    models = beside_an_svm("breast cancer", model, parts["cancer"])

    say("Ten classes: digits, from a LIBSVM file\n")
    digits = OUT / "digits.safetensors"
    command("train", str(OUT / "digits.train.svm"), "--model", str(digits), "--scale", "standard")
    command("info", str(digits))
    beside_an_svm("digits", digits, parts["digits"])

    say("Many rows, an RBF kernel: time grows as the rows do, not as their square\n")
    many_rows()

    picture = OUT / "margins.png"
    _, X_test, _, y_test = parts["cancer"]
    display = MarginDistributionDisplay.from_estimators(models, X_test, y_test, scale="mean")
    display.figure_.savefig(picture, dpi=150, bbox_inches="tight")
    say("Written:")
    for file in (model, digits, OUT / "cancer.predicted.csv", picture):
        say(f"  {file.resolve()}")


if __name__ == "__main__":
    main()
