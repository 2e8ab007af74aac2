"""Where the figures come from: machine, operating system, versions."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "optimargin",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "scikit-learn-intelex",
    "snapml",
)


def describe() -> dict[str, object]:
    """Processor, cores, memory, system and package versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_GB": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def in_words(machine: dict) -> str:
    """One line for the head of a report."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_GB']} GB,"
        f" {machine['system']}, Python {machine['python']}; {versions}"
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
