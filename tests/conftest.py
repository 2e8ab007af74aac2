"""Compiled code of a test run is cached under a hash of the sources.

An edit in ``loss.py`` does not refresh loops that were compiled into other files' caches,
so every state of the sources gets a cache of its own.
"""

import hashlib
import os
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parent.parent
DIGEST = hashlib.sha256()
for source in sorted((ROOT / "src").rglob("*.py")):
    DIGEST.update(source.read_bytes())
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba-cache" / DIGEST.hexdigest()[:16]))

matplotlib.use("Agg")
