"""One memory budget: how much there is, and how it is written."""

from __future__ import annotations

import os
import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {u + "i": 2 ** (10 * p) for p, u in enumerate("kmgt", start=1)}


def limit_in_bytes(limit: int | float | str | None) -> int:
    """Bytes meant by ``memory_limit``: a number of bytes, text such as "2GB", or None.

    None is half of the memory that is free now.
    """
    if limit is None:
        return available() // 2
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgt]?i?)b?\s*", limit.lower())
        if match is None or match[2] not in _UNITS:
            raise ValueError(
                "memory_limit must be a number of bytes, text such as '500MB' or '2GiB',"
                f" or None; got {limit!r}."
            )
        return int(float(match[1]) * _UNITS[match[2]])
    return int(limit)


def available() -> int:
    """Bytes of memory that are free now."""
    try:
        import psutil
    except ImportError:  # in a checkout that is used where nothing can be installed
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(psutil.virtual_memory().available)


def in_words(size: float) -> str:
    """A number of bytes for people: '1.5 GB'."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
