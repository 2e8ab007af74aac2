"""Where a classifier works: where X is, or on the device that was asked for.

Rows come as NumPy arrays or SciPy matrices, or as arrays of PyTorch or CuPy, and answers go back
as they came.  A fitted model is NumPy arrays whatever it was trained on, so that it can be saved
here and used on a computer without that device; a copy for the device is made at first use.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from optimargin.arrays import brought, cast, is_foreign, library, name_of_dtype, namespace, on_host
from optimargin.device import Moved, free_bytes
from optimargin.rowfiles import RowFiles

_PAYS = 2e9  # multiplications of one pass from which a device is worth the way there
_FLOATS = ("float32", "float64")
_HALVES = ("float16", "bfloat16")
_SMALL = ("int8", "uint8", "int16", "uint16", "bool")
_WHOLE = 0.3  # share of a device's free memory that rows moved there may take


def workplace(X: Any, device: Any, work: Callable[[Any], float]) -> Any:
    """An empty array where the work on X is to be done; None where that is NumPy.

    ``work`` counts the multiplications of one pass over the rows.
    """
    if not is_device(device):
        raise ValueError(
            "device must be None (work where X is), 'auto', 'cpu', 'cuda' or 'cuda:N' with a"
            f" number; got {device!r}."
        )
    if device is None or (device == "auto" and is_foreign(X)):
        return _beside(X) if is_foreign(X) else None
    if device == "cpu":
        return None
    if device == "auto":
        X = X if hasattr(X, "shape") else np.asarray(X)
        if sp.issparse(X) or len(X.shape) != 2 or work(X) < _PAYS:
            return None
        return _on_gpu("cuda")
    if sp.issparse(X):
        raise TypeError(f"device={device!r} takes dense rows; X is sparse. Choose device=None.")
    found = _on_gpu(str(device))
    if found is None:
        raise ValueError(
            f"device={device!r} needs a GPU, and PyTorch or CuPy that can use it; choose None to"
            " work where X is, 'cpu', or 'auto'."
        )
    return found


def _beside(X: Any) -> Any:
    """An empty array where X is; PyTorch's in place of CuPy's, where it can be had."""
    if library(X) == "cupy" and importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return torch.zeros((0, 0), device=f"cuda:{X.device.id}")
    return X[:0, ...]


def _on_gpu(device: str) -> Any:
    """An empty array on that device, by whatever library there is; None without one."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            try:
                return torch.zeros((0, 0), device=device)
            except (RuntimeError, AssertionError) as error:
                raise ValueError(
                    f"device={device!r} is not a device of PyTorch: {str(error).splitlines()[0]}"
                ) from error
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        if cupy.cuda.is_available():
            return cupy.zeros((0, 0))
    return None


def is_device(device: Any) -> bool:
    """Whether the argument may name a device."""
    return device is None or re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(device)) is not None


def rows_at(model: Any, X: Any, like: Any, reset: bool) -> Any:
    """Checked rows as arrays beside ``like``; too many of them stay, and are moved in blocks."""
    if isinstance(X, RowFiles):
        model.n_features_in_ = X.shape[1]
        return Moved(X, like)
    if not hasattr(X, "shape") or not hasattr(X, "dtype"):
        X = np.asarray(X)
    if is_foreign(X) and X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: reshape your data.")
    validate_data(model, X, reset=reset, skip_check_array=True)
    if not X.shape[0] or not X.shape[1]:
        raise ValueError(
            f"Found array with shape {tuple(X.shape)} while a minimum of 1 row and 1 feature is"
            " required."
        )
    if not is_foreign(X):
        X = np.ascontiguousarray(X)
        if X.dtype.kind not in "biuf":
            X = X.astype(np.float64)
        size = X.shape[0] * X.shape[1] * max(X.dtype.itemsize, 4)
        if size > _WHOLE * free_bytes(like):
            if not np.isfinite(X).all():
                _refuse()
            return Moved(X, like)
    X = brought(X, like)
    if name_of_dtype(X) not in _FLOATS:
        X = cast(X, "float32" if name_of_dtype(X) in (*_SMALL, *_HALVES) else "float64")
    if not bool(namespace(X).all(namespace(X).isfinite(X))):
        _refuse()
    return X


def floating(X: Any) -> Any:
    """Types taken as they are; small integers fit single precision, the rest needs double."""
    known = hasattr(X, "dtype") and name_of_dtype(X) in _SMALL
    return np.float32 if known else [np.float64, np.float32]


def _refuse() -> None:
    raise ValueError("Input X contains NaN or infinity; an optimargin machine needs numbers.")


def as_given(answer: Any, X: Any) -> Any:
    """An answer as an array of the library, and on the device, of X."""
    return brought(answer, X) if is_foreign(X) else on_host(answer)
