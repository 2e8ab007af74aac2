"""Calls go one way: every import is read, and none may point upwards."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "optimargin"
LAYERS = [
    {"memory", "status", "threads", "datafile", "rowparts", "rowfiles"},
    {"arrays"},
    {"device"},
    {"loss"},
    {"rows", "bounds"},
    {"kernels", "blend", "cholesky", "linesearch", "classwise", "multiclass"},
    {"gram", "landmarks"},
    {"expansion", "kernelmatrix", "partition", "cells", "whiten"},
    {"sketch", "features"},
    {"problem", "margins", "patchwork"},
    {"classes", "engines"},
    {"solvers"},
    {"io", "tables", "datasets", "plots"},
    {"curves"},
    {"estimators"},
    {"machines", "console", "spark"},
    {"commands"},
    {"cli"},
    {"__main__", "__init__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONLY = {
    "sklearn": {"estimators", "datasets", "plots", "arrays"},
    "torch": {"device", "estimators"},
    "cupy": {"device", "estimators"},
    "matplotlib": {"plots", "curves"},
    "typer": {"commands", "console", "cli"},
    "rich": {"commands", "console", "cli"},
    "pyarrow": {"spark", "tables", "datasets", "datafile", "rowparts", "engines"},
    "pyspark": {"engines", "spark"},
    "py4j": {"engines"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    own = part(path)
    if own == "__init__":
        return
    for name in imports(path):
        words = name.split(".")
        if words[0] == "optimargin" and len(words) > 1 and words[1] in LEVEL:
            lazily = own == "estimators" and words[1] == "estimators"
            assert LEVEL[words[1]] <= LEVEL[own] or lazily, f"{own} imports {name}"
        if words[0] in ONLY:
            assert own in ONLY[words[0]], f"{own} imports {name}"


def test_every_file_has_a_place():
    assert {part(path) for path in FILES} == set(LEVEL)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, optimargin; print({'numba', 'sklearn', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_files_keep_their_size():
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 400, path
