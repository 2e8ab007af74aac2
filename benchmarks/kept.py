"""Results that survive an interrupted run: a file of JSON lines that grows as results come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

Record = dict[str, Any]
Job = TypeVar("Job", bound=Hashable)


class Kept:
    """The records of a benchmark, on disk where a path is given.

    ``recipe`` is all that decides a result beside its key, such as the grid of settings:
    records that were made by another recipe stay in the file and are not seen.
    """

    def __init__(self, path: Path | None, recipe: object) -> None:
        self.path = path
        self.recipe = hashlib.sha256(repr(recipe).encode()).hexdigest()[:8]
        lines = path.read_text(encoding="utf-8").splitlines() if path and path.is_file() else []
        found = [json.loads(line) for line in lines]
        self.records: list[Record] = [r for r in found if r["recipe"] == self.recipe]

    def add(self, record: Record) -> None:
        """Keep a record, now."""
        record = {**record, "recipe": self.recipe}
        self.records.append(record)
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def missing(self, jobs: Iterable[Job], key: Callable[[Record], Job]) -> list[Job]:
        """Those of the jobs whose record is not there yet."""
        done = {key(record) for record in self.records}
        return [job for job in jobs if job not in done]
