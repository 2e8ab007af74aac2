"""The program ``optimargin``: train, predict, evaluate, margins, info.

This file only finds out whether the program can run; what it does is in
``optimargin.commands``.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program with the arguments of the command line."""
    try:
        from optimargin.commands import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"optimargin: the program needs {error.name}: pip install 'optimargin[cli]'.")
    app(prog_name="optimargin")
