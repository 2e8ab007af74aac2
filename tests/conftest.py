"""Compiled code of a test run is cached under a hash of the sources.

An edit in ``loss.py`` does not refresh loops that were compiled into other files' caches,
so every state of the sources gets a cache of its own.

Hypothesis draws the same examples each time, so that a run is red for a reason;
``HYPOTHESIS=explore pytest`` draws new ones.
"""

import hashlib
import os
from pathlib import Path

import matplotlib
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
DIGEST = hashlib.sha256()
for source in sorted((ROOT / "src").rglob("*.py")):
    DIGEST.update(source.read_bytes())
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".numba-cache" / DIGEST.hexdigest()[:16]))

matplotlib.use("Agg")

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS", "fixed"))
