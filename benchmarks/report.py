"""Tables: on the screen, as Markdown, and as JSON with every figure behind them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine


@dataclass(frozen=True)
class Table:
    """One result: cells for people, records for programs."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """The tables of one benchmark and the command that makes them again."""

    name: str
    command: str
    tables: list[Table]


def show(table: Table) -> None:
    """Print a table; plainly, where nothing draws it."""
    try:
        from rich.console import Console
        from rich.table import Table as RichTable
    except ImportError:
        print("\n".join(_lines(table)))
        return
    # files and pipes have no width of their own
    console = Console(width=None if sys.stdout.isatty() else 160)
    drawn = RichTable(
        *table.columns, title=table.title, title_justify="left", caption_justify="left"
    )
    for row in table.rows:
        drawn.add_row(*map(cell, row))
    console.print(drawn)
    if table.note:
        console.print(table.note + "\n", highlight=False)


def say(text: str) -> None:
    """A line of progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)


def cell(value: Any) -> str:
    """A value as people write it: three digits, or the word that stands for it."""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def verdict(ratio: float, target: float) -> bool:
    """Whether a ratio reaches its target, to the digits shown."""
    return float(f"{ratio:.3g}") >= target


def write_markdown(results: list[Result], path: Path) -> None:
    """Put every table, with the command that reproduces it, where the page has room for it.

    The room of a benchmark is between ``<!-- begin name -->`` and ``<!-- end name -->``; a
    page without it grows at its end.
    """
    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    for result in results:
        begin, end = f"<!-- begin {result.name} -->", f"<!-- end {result.name} -->"
        if begin not in page:
            page += f"\n## {result.name}\n\n{begin}\n{end}\n"
        before, rest = page.split(begin, 1)
        after = rest.split(end, 1)[1]
        page = f"{before}{begin}\n{_markdown(result)}{end}{after}"
    path.write_text(page, encoding="utf-8")


def _markdown(result: Result) -> str:
    lines = ["", "```", result.command, "```", ""]
    for table in result.tables:
        lines += _lines(table)
    lines += [f"Machine: {machine.in_words(machine.describe())}.", ""]
    return "\n".join(lines)


def _lines(table: Table) -> list[str]:
    """A table as Markdown has it."""
    lines = [f"**{table.title}**", ""]
    lines += ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in table.rows]
    return [*lines, "", table.note, ""] if table.note else [*lines, ""]


def write_json(results: list[Result], path: Path) -> None:
    """The machine, and all records."""
    found = {
        "machine": machine.describe(),
        "results": [
            {
                "name": result.name,
                "command": result.command,
                "tables": [
                    {
                        "title": table.title,
                        "columns": list(table.columns),
                        "rows": [list(map(cell, row)) for row in table.rows],
                        "records": table.records,
                    }
                    for table in result.tables
                ],
            }
            for result in results
        ],
    }
    path.write_text(json.dumps(found, indent=1, default=float), encoding="utf-8")
