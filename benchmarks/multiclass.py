"""Several classes: accuracy by the protocol of the mcODM paper, and the cost of an epoch."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import accuracy, epoch
from benchmarks.methods import Options
from benchmarks.report import Table

EPOCHS = ("letter", "usps", "news20", "mnist")


def run(options: Options) -> Iterator[Table]:
    """Epochs, then accuracy, which takes long."""
    yield _epochs(options)
    yield accuracy.table(options)


def _epochs(options: Options) -> Table:
    columns = ["data", "rows", "classes", "epochs", "LIBLINEAR", "ours", "LIBLINEAR / ours"]
    columns += ["of epochs", "LIBLINEAR, shrunk"]
    rows = []
    for name, X, y in epoch.sets(() if options.quick else EPOCHS, options):
        e = epoch.measure(X, y, options.repeats)
        cells = [e.few, f"{e.first:.4f}", f"{e.ours:.4f}", e.first / e.ours]
        rows.append([name, len(y), int(y.max()) + 1, *cells, e.many, f"{e.shrunk:.4f}"])
    note = (
        "Seconds an epoch: of LIBLINEAR's first few, which shrink from the first on; of our first"
        " four, over all rows; and the mean of many of LIBLINEAR's, most of them over few rows."
        " Both are given the same matrix, and both leave out its zeros before the clock starts."
    )
    return Table("Cost of an epoch", columns, rows, note)
