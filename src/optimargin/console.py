"""How the program speaks: results on stdout, everything else on stderr, one line each."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import typer


@contextmanager
def guarded() -> Iterator[None]:
    """Turn what may go wrong with files and arguments into one line and an exit code.

    1: bad data, a bad model or a bad value.  130: Ctrl-C, as shells have it.
    """
    try:
        with warnings.catch_warnings():
            _listen_to_warnings()
            yield
    except BrokenPipeError:  # the reader of a pipe went away; typer ends quietly
        raise
    except (ValueError, OSError, ImportError) as error:
        tell(str(error))
        raise typer.Exit(1) from error
    except MemoryError as error:
        tell(f"Not enough memory. {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        tell("Interrupted; no file was written.")
        raise typer.Exit(130) from error


def _listen_to_warnings() -> None:
    """Show what is meant for users, once and in one line; nothing else."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", UserWarning)
    # Columns were matched by name when the file was read; the matrix has none any more.
    warnings.filterwarnings("ignore", "X does not have valid feature names")
    warnings.showwarning = lambda message, *where: tell(f"Warning: {message}")


def tell(text: str) -> None:
    """One line on stderr, whatever the text was laid out like."""
    typer.echo(f"optimargin: {' '.join(text.split())}", err=True)


@contextmanager
def at_work(text: str, quiet: bool) -> Iterator[None]:
    """A sign of life on stderr, if a person is looking at it."""
    from rich.console import Console

    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress_on_stderr() -> Iterator[None]:
    """Let estimators print their progress without spoiling the results."""
    with redirect_stdout(sys.stderr):
        yield


def show(facts: dict[str, Any], as_json: bool) -> None:
    """Facts by name: a table for people, or one JSON object."""
    if as_json:
        typer.echo(json.dumps(facts, default=_plain))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    Console(highlight=False, markup=False).print(table)


def show_table(head: list[str], rows: list[list[Any]]) -> None:
    """Rows under a line of names, numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(_words, row))
    Console(highlight=False, markup=False).print(table)


def _words(value: Any) -> str:
    """A value as people read it; of a long list, its beginning."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_words(item)}" for name, item in value.items())
    if isinstance(value, list):
        shown = ", ".join(map(_words, value[:12]))
        return shown if len(value) <= 12 else f"{shown}, ... ({len(value)} in all)"
    return "none" if value is None else str(value)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist()
