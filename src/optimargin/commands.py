"""The commands of the program, one function each.

Whatever takes long to import is imported by the command that needs it, so that
``--help`` answers at once.
"""

from __future__ import annotations

import csv
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimargin.console import at_work, guarded, progress_on_stderr, show, show_table, tell

if TYPE_CHECKING:
    from optimargin.machines import Machine

app = typer.Typer(
    help="Optimal margin distribution machines: train, predict, look at margins.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


class Kernel(StrEnum):
    """Kernels by name."""

    rbf = "rbf"
    linear = "linear"
    laplacian = "laplacian"
    poly = "poly"
    sigmoid = "sigmoid"


class Scale(StrEnum):
    """Ways to scale features."""

    auto = "auto"
    standard = "standard"
    minmax = "minmax"
    none = "none"


class Format(StrEnum):
    """Data files."""

    libsvm = "libsvm"
    csv = "csv"
    parquet = "parquet"


class Kind(StrEnum):
    """Pictures of margins."""

    cumulative = "cumulative"
    histogram = "histogram"


DataFile = Annotated[Path, typer.Argument(metavar="DATA", help="LIBSVM, CSV or Parquet file.")]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file, or a text model of libodm.")
]
Label = Annotated[
    str | None,
    typer.Option(
        help="Column of the labels: its name, its number counted from 1, or 'last'.",
        rich_help_panel="Data",
    ),
]
FileFormat = Annotated[
    Format | None, typer.Option(help="Guessed from the file.", rich_help_panel="Data")
]
NamesLine = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether a CSV file begins with names. Guessed.",
        rich_help_panel="Data",
    ),
]
ZeroBased = Annotated[
    bool,
    typer.Option(
        "--zero-based",
        help="Feature numbers of a LIBSVM file begin at 0.",
        rich_help_panel="Data",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]


def _machine(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Machine")


def _solver(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Solver")


@app.command(
    epilog="Example: [bold]optimargin train iris.csv --model iris.safetensors --lam 100[/bold]"
)
def train(
    data: DataFile,
    model: Annotated[Path, typer.Option("--model", "-o", help="Where the model file goes.")],
    linear: Annotated[bool, typer.Option("--linear", help="A linear machine: no kernel.")] = False,
    scale: Annotated[
        Scale,
        typer.Option(
            help="How to scale features; the model file carries the scaler. auto: standard for"
            " dense rows, none for sparse ones. Sparse rows are never centred."
        ),
    ] = Scale.auto,
    kernel: Annotated[Kernel | None, _machine("rbf by default.")] = None,
    lam: Annotated[float | None, _machine("Weight of the losses.")] = None,
    mu: Annotated[float | None, _machine("Weight of margins above 1 + theta.")] = None,
    theta: Annotated[float | None, _machine("Half-width of the band around 1, in [0, 1).")] = None,
    gamma: Annotated[str | None, _machine("Kernel width: 'scale', 'auto' or a number.")] = None,
    degree: Annotated[float | None, _machine("Degree of poly.")] = None,
    coef0: Annotated[float | None, _machine("Constant in poly and sigmoid.")] = None,
    balanced: Annotated[
        bool,
        typer.Option(
            "--balanced", help="Give each class the same weight.", rich_help_panel="Machine"
        ),
    ] = False,
    intercept: Annotated[
        bool | None,
        typer.Option(
            "--intercept/--no-intercept",
            help="Add a constant feature; by default if linear.",
            rich_help_panel="Machine",
        ),
    ] = None,
    multi_class: Annotated[
        str | None, _machine("More than two classes: mcodm, mcodm-paper, ovr or ovo.")
    ] = None,
    solver: Annotated[
        str | None,
        _solver(
            "auto, dcd, newton; landmark, sodm with a kernel; if linear svrg, dsvrg, bqo, admm."
        ),
    ] = None,
    n_landmarks: Annotated[
        int | None, _solver("Landmarks of a kernel machine on many rows; found by default.")
    ] = None,
    n_partitions: Annotated[
        int | None, _solver("Parts of the rows, for solvers that work on them.")
    ] = None,
    tol: Annotated[float | None, _solver("Relative duality gap to reach.")] = None,
    max_iter: Annotated[int | None, _solver("Most rounds.")] = None,
    time_limit: Annotated[float | None, _solver("Most seconds.")] = None,
    memory_limit: Annotated[str | None, _solver("Memory for kernel values: 2GB, 500MB.")] = None,
    jobs: Annotated[int | None, _solver("Threads; all cores by default.")] = None,
    seed: Annotated[int, _solver("Decides the order of the rows.")] = 0,
    label: Label = "last",
    n_features: Annotated[
        int | None,
        typer.Option(help="Features of a LIBSVM file that uses fewer.", rich_help_panel="Data"),
    ] = None,
    format: FileFormat = None,
    header: NamesLine = None,
    zero_based: ZeroBased = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a machine and write it to a model file."""
    kernel_only = {
        "kernel": kernel and kernel.value,
        "gamma": _number_or_word(gamma),
        "degree": degree,
        "coef0": coef0,
        "n_landmarks": n_landmarks,
    }
    given = [name for name, value in kernel_only.items() if value is not None]
    if linear and given:
        raise typer.BadParameter(f"--{given[0].replace('_', '-')} has no meaning with --linear.")
    params = {
        **kernel_only,
        "lam": lam,
        "mu": mu,
        "theta": theta,
        "multi_class": multi_class,
        "solver": solver,
        "n_partitions": n_partitions,
        "fit_intercept": intercept,
        "class_weight": "balanced" if balanced else None,
        "tol": tol,
        "max_iter": max_iter,
        "time_limit": time_limit,
        "memory_limit": memory_limit,
        "n_jobs": jobs,
        "random_state": seed,
    }
    with guarded():
        from optimargin import io, machines

        # What can be known to be wrong is said before the data are read.
        blank = machines.blank(linear, params)
        io.check_place(model)
        with at_work(f"Reading {data} ...", quiet):
            reading = _reading(label, format, header, zero_based)
            rows = machines.read_training_rows(data, {**reading, "n_features": n_features})
        began = time.perf_counter()
        with progress_on_stderr():
            live = not quiet and sys.stderr.isatty()
            fitted = machines.fit(blank, rows, scale.value, live, _silent if quiet else tell)
        seconds = time.perf_counter() - began
        machines.save(fitted, model, rows)
        facts = machines.describe(fitted)
        show({"model": str(model), "rows": len(rows.y), "seconds": seconds, **facts}, as_json)


@app.command(
    epilog="Example: [bold]optimargin predict iris.safetensors new.csv --output kinds.txt[/bold]"
)
def predict(
    model: ModelFile,
    data: DataFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; stdout by default.")
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="CSV with decision values beside the labels.")
    ] = False,
    label: Label = None,
    format: FileFormat = None,
    header: NamesLine = None,
    zero_based: ZeroBased = False,
    as_json: AsJson = False,
) -> None:
    """Predict the label of each row, one a line.

    Columns are matched by name where the model knows names; otherwise --label tells which
    column to leave out, if the file still has its labels.
    """
    with guarded():
        from optimargin import io, machines

        machine = machines.open_machine(model)
        X, _ = machines.read_rows(machine, data, _reading(label, format, header, zero_based))
        values = machine.estimator.decision_function(X)
        labels = machines.decide(values, machine.classes)
        if output is not None:
            with io.replacing(output) as temporary, temporary.open("w", newline="") as file:
                _write_predictions(file, machine, labels, values if scores else None)
        if as_json:
            facts = {"predictions": labels, **({"scores": values} if scores else {})}
            show(facts, as_json)
        elif output is None:
            _write_predictions(sys.stdout, machine, labels, values if scores else None)


@app.command(epilog="Example: [bold]optimargin evaluate iris.safetensors test.csv[/bold]")
def evaluate(
    model: ModelFile,
    data: DataFile,
    label: Label = None,
    format: FileFormat = None,
    header: NamesLine = None,
    zero_based: ZeroBased = False,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with labels: accuracy, each class, confusion, margins."""
    with guarded():
        from optimargin import machines

        machine = machines.open_machine(model)
        X, y = machines.read_labelled_rows(
            machine, data, _reading(label, format, header, zero_based)
        )
        report = machines.evaluate(machine, X, y)
        if as_json:
            show(report, as_json)
            return
        show({name: report[name] for name in ("rows", "accuracy", "margin")}, as_json)
        names = [str(name) for name in report["classes"]]
        head = ["class", "precision", "recall", "f1", "rows"]
        show_table(head, [[name, *report["classes"][name].values()] for name in names])
        rows = zip(names, report["confusion"], strict=True)
        show_table(["true \\ predicted", *names], [[name, *counts] for name, counts in rows])


@app.command(
    epilog="Example: [bold]optimargin margins iris.safetensors test.csv --plot margins.png[/bold]"
)
def margins(
    model: ModelFile,
    data: DataFile,
    plot: Annotated[Path | None, typer.Option(help="Draw the margins into this file.")] = None,
    kind: Annotated[Kind, typer.Option(help="What to draw.")] = Kind.cumulative,
    label: Label = None,
    format: FileFormat = None,
    header: NamesLine = None,
    zero_based: ZeroBased = False,
    as_json: AsJson = False,
) -> None:
    """Tell how the margins of labelled rows are distributed.

    The margin of a row is y f(x) for two classes, and beyond two the score of its own class
    less the best other score. Negative margins are errors.
    """
    with guarded():
        from optimargin import io, machines

        if plot is not None:
            io.check_place(plot)
        machine = machines.open_machine(model)
        X, y = machines.read_labelled_rows(
            machine, data, _reading(label, format, header, zero_based)
        )
        values = machine.estimator.decision_function(X)
        facts = machines.margin_facts(machine, values, y)
        if plot is not None:
            machines.draw_margins(machine, values, y, plot, kind.value, model.stem)
        show(facts, as_json)


@app.command(epilog="Example: [bold]optimargin info iris.safetensors[/bold]")
def info(model: ModelFile, as_json: AsJson = False) -> None:
    """Tell what is in a model file."""
    with guarded():
        from optimargin import machines

        machine = machines.open_machine(model)
        facts = {"model": str(model), "bytes": model.stat().st_size}
        facts |= machines.describe(machine.estimator)
        if machine.features is not None:
            facts |= {"feature_names": machine.features, "label": machine.columns.get("label")}
        show(facts, as_json)


def _write_predictions(file: Any, machine: Machine, labels: Any, scores: Any) -> None:
    """One label a line, or CSV with the scores beside it."""
    writer = csv.writer(file, lineterminator="\n")
    if scores is None:
        writer.writerows([label] for label in labels.tolist())
        return
    head = ["score"] if scores.ndim == 1 else machine.classes.tolist()
    writer.writerow(["prediction", *head])
    columns = scores.reshape(len(labels), -1).tolist()
    writer.writerows([label, *row] for label, row in zip(labels.tolist(), columns, strict=True))


def _reading(
    label: str | None, format: Format | None, header: bool | None, zero_based: bool
) -> dict[str, Any]:
    """Arguments of `optimargin.datasets.read`, which counts columns from 0."""
    column: str | int | None = label
    if label is not None and label.lstrip("-").isdigit():
        if int(label) == 0:
            raise typer.BadParameter("--label counts columns from 1.")
        column = int(label) - (int(label) > 0)
    kind = format and format.value
    return {"label": column, "format": kind, "header": header, "zero_based": zero_based}


def _number_or_word(text: str | None) -> float | str | None:
    """A number where the text is one; the machine judges the rest."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _silent(text: str) -> None:
    """Say nothing."""
