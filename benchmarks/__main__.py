"""The runner: ``python -m benchmarks [names] --data-dir DIR --json FILE --markdown FILE``."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.methods import Options
from benchmarks.report import Result, Table, show, write_json, write_markdown

NAMES = (
    "linear",
    "kernel",
    "memory",
    "start",
    "oracle",
    "defaults",
    "multiclass",
    "tuning",
    "regular",
    "large",
    "classes",
    "landmark",
    "sodm",
    "local",
    "bqo",
    "dwpa",
    "spark",
    "gpu",
)
_RESULTS = Path(__file__).parent / "results"  # of the long ones, which continue where they stopped


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that were asked for, one after the other."""
    asked = _parser().parse_args(arguments)
    options = _options(asked)
    print(machine.in_words(machine.describe()))
    results: list[Result] = []
    for name in asked.names or [name for name in NAMES if name != "gpu"]:
        tables: list[Table] = []
        for table in importlib.import_module(f"benchmarks.{name}").run(options):
            show(table)
            tables.append(table)
        results.append(Result(name, _command(name, options), tables))
        if asked.json:
            write_json(results, asked.json)
        if asked.markdown:
            write_markdown(results, asked.markdown)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(NAMES)}")
    given = os.environ.get("OPTIMARGIN_DATA")
    add = parser.add_argument
    add("--data-dir", type=Path, default=Path(given) if given else None, help="the public sets")
    add("--oracle", type=Path, help="recorded results of libodm (default: beside the data)")
    add("--libodm", type=Path, help="folder with libodm-train and libodm-predict")
    add("--json", type=Path, help="write every figure here")
    add("--markdown", type=Path, help="write the tables here")
    add("--repeats", type=int, default=3, help="timings of each method, the best of which counts")
    add("--limit", type=float, default=20.0, help="seconds a method may take for one task")
    add("--only", default="", metavar="TEXT", help="data sets whose name contains this")
    add("--quick", action="store_true", help="tiny generated data: does everything run?")
    add("--no-peers", action="store_true", help="our solvers only")
    add("--results", type=Path, default=_RESULTS, help="where long benchmarks keep what they found")
    add("--pictures", type=Path, metavar="DIR", help="draw the pictures here")
    add("--search", type=Path, metavar="FILE", help="defaults: explore settings, keep them here")
    return parser


def _options(asked: argparse.Namespace) -> Options:
    unknown = sorted(set(asked.names) - set(NAMES))
    if unknown:
        raise SystemExit(f"no benchmark called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    data = asked.data_dir
    beside = None if data is None else data.parent / "oracle" / "libodm-oracle.json"
    return Options(
        data=data,
        oracle=asked.oracle or beside,
        libodm=asked.libodm,
        repeats=asked.repeats,
        quick=asked.quick,
        peers=not asked.no_peers,
        search=asked.search,
        results=None if asked.quick else asked.results,
        pictures=asked.pictures,
        limit=asked.limit,
        only=asked.only,
    )


def _command(name: str, options: Options) -> str:
    """What to type to get the same tables; folders by the names they have in the docs."""
    words = ["python", "-m", "benchmarks", name]
    words += ["--data-dir", "DATA"] if options.data else []
    words += ["--libodm", "LIBODM"] if options.libodm and name == "kernel" else []
    words += ["--repeats", str(options.repeats)]
    words += ["--only", options.only] if options.only else []
    words += ["--quick"] if options.quick else []
    words += ["--no-peers"] if not options.peers else []
    limited = name in ("landmark", "sodm", "bqo", "dwpa")
    words += ["--limit", f"{options.limit:g}"] if limited else []
    drawn = limited or name in ("large", "classes")
    words += ["--pictures", "DIR"] if options.pictures and drawn else []
    words += ["--search", "FILE"] if options.search and name == "defaults" else []
    return shlex.join(words)


if __name__ == "__main__":
    raise SystemExit(main())
