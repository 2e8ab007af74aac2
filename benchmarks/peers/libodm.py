"""libodm, the ODM authors' programs: RBF machines by dual coordinate descent.

The time is that of the whole program, which reads its data from a text file and writes its
model to another: some tenths of a second at 8,000 rows.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file

from benchmarks.methods import KernelMethod, NotInstalled, Predict, Task, TooSlow


def prepare(task: Task, limit: float, programs: Path | None) -> Callable[[], Predict]:
    """libodm-train with its default tolerance and no intercept."""
    if programs is None or not (programs / "libodm-train").is_file():
        raise NotInstalled("libodm")
    folder = tempfile.TemporaryDirectory()
    rows, model = Path(folder.name) / "rows", Path(folder.name) / "model"
    dump_svmlight_file(task.X, task.y, str(rows), zero_based=False)
    numbers = {"-k": 2, "-l": task.lam, "-m": task.mu, "-t": task.theta, "-g": task.gamma}
    words = [str(word) for pair in numbers.items() for word in pair]
    command = [str(programs / "libodm-train"), *words, "-q", str(rows), str(model)]

    def train() -> Predict:
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=limit)
        except subprocess.TimeoutExpired as error:
            raise TooSlow("libodm") from error
        return partial(_predict, programs=programs, folder=folder)

    return train


def _predict(X: Any, programs: Path, folder: tempfile.TemporaryDirectory) -> np.ndarray:
    rows, model, answers = (Path(folder.name) / name for name in ("test", "model", "answers"))
    dump_svmlight_file(X, np.ones(X.shape[0]), str(rows), zero_based=False)
    command = [str(programs / "libodm-predict"), "-q", str(rows), str(model), str(answers)]
    subprocess.run(command, check=True, capture_output=True)
    # after two lines of heading: the label, a comma, the decision value
    return np.loadtxt(answers, delimiter=",", skiprows=2, ndmin=2)[:, 0]


def method(programs: Path | None) -> KernelMethod:
    """Libodm as found in the folder of its programs."""
    return KernelMethod("libodm", partial(prepare, programs=programs), "ODM", is_peer=True)
