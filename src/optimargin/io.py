"""Model files: plain arrays and a JSON header, never code.

A model file is a safetensors file.  Its tensors are the model's arrays; its string
metadata has one key, ``optimargin``, whose value is this JSON:

    {"format": "optimargin", "version": 1, "package": "...", "sha256": "...", "header": {}}

``sha256`` covers the rest of that JSON and the name, type, shape and bytes of every
array, so a changed digit anywhere is noticed.  What the header says is up to
``optimargin.estimators.saved``; here it is any JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FORMAT = "optimargin"
VERSION = 1

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


class ModelFileError(ValueError):
    """A model file that cannot be read or written; the message names it and says why."""


def write(path: str | os.PathLike[str], header: Header, arrays: Arrays) -> None:
    """Write a model file, whole or not at all.

    Parameters
    ----------
    path : path-like
        Where the file goes; an existing file is replaced only once the new one is complete.
    header : dict
        Anything JSON can hold.
    arrays : dict of str to ndarray
        Booleans, integers and floating-point numbers of at most 64 bits, of any shape.
        Always stored row by row, little-endian.
    """
    plain = {name: _storable(name, array) for name, array in arrays.items()}
    envelope = {
        "format": FORMAT,
        "version": VERSION,
        "package": _package_version(),
        "header": header,
    }
    envelope["sha256"] = _digest(envelope, plain)
    with replacing(path) as temporary:
        save_file(plain, temporary, metadata={FORMAT: json.dumps(envelope)})


def read(path: str | os.PathLike[str]) -> tuple[Header, Arrays]:
    """Read a model file written by `write`.

    Parameters
    ----------
    path : path-like
        A model file.

    Returns
    -------
    header : dict
        The header as it was given to `write`.
    arrays : dict of str to ndarray
        The arrays, in the types they had.

    Raises
    ------
    ModelFileError
        When the file is missing, cut short, altered, or something else altogether.
    """
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as file:
            envelope = _envelope(path, file.metadata() or {})
            names = file.keys()
            arrays = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        reason = "this is a folder" if path.is_dir() else _reason(error)
        raise ModelFileError(f"{path}: {reason}.") from error
    except SafetensorError as error:
        raise ModelFileError(f"{path}: {_what_is(path)}.") from error
    if envelope.pop("sha256", None) != _digest(envelope, arrays):
        raise ModelFileError(
            f"{path}: the file was altered after it was written (its checksum does not match)."
        )
    return envelope["header"], arrays


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise ModelFileError where no file can be written, before any work is done for it."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        # As root, replacing /dev/null would succeed.
        raise ModelFileError(f"{path}: cannot be written, it is not an ordinary file.")
    if not target.parent.is_dir():
        raise ModelFileError(f"{path}: cannot be written, there is no folder {target.parent}.")
    if not os.access(target.parent, os.W_OK):
        raise ModelFileError(f"{path}: cannot be written, the folder is not yours to write in.")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file next to ``path`` that takes its place when the block ends well.

    When the block raises, the new file goes and whatever was at ``path`` stays.
    """
    check_place(path)
    target = Path(os.path.realpath(path))  # a link keeps pointing where it did
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as empty:
            mode = os.fstat(empty.fileno()).st_mode
        yield temporary
        with temporary.open("rb") as complete:
            os.fsync(complete.fileno())
        temporary.chmod(mode)  # safetensors makes files that only their owner may read
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path}: cannot be written, {_reason(error)}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _storable(name: str, array: np.ndarray) -> np.ndarray:
    """The array row by row and little-endian; safetensors would write a view wrongly."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ModelFileError(f"An array of type {array.dtype} cannot be saved ({name!r}).")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _digest(envelope: dict[str, Any], arrays: Arrays) -> str:
    """SHA-256 over the JSON and over each array's name, type, shape and bytes."""
    sha = hashlib.sha256(json.dumps(envelope, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        sha.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def _envelope(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The JSON around the header, once it is sure that this package can read it."""
    if FORMAT not in metadata:
        raise ModelFileError(f"{path}: a safetensors file, but not a model written by optimargin.")
    try:
        envelope = json.loads(metadata[FORMAT])
        found = envelope["version"]
        sound = isinstance(found, int) and isinstance(envelope["header"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise ModelFileError(f"{path}: the file was altered, its header makes no sense.")
    if found > VERSION:
        raise ModelFileError(
            f"{path}: written by a newer optimargin (file format {found}, this package reads"
            f" {VERSION}); pip install --upgrade optimargin."
        )
    return envelope


def _what_is(path: Path) -> str:
    """What a file is that safetensors refuses, in words."""
    with path.open("rb") as file:
        start = file.read(9)
        size = os.fstat(file.fileno()).st_size
    if size == 0:
        return "the file is empty"
    if start[8:9] == b"{" or size < 9:
        return "the file is cut short or damaged"
    if start[0] == 0x80 and start[1] <= 5:
        return (
            "this is a pickle, not a model file, and loading one could run any code;"
            " save models with estimator.save(path)"
        )
    return "not a model file of optimargin"


def _reason(error: Exception) -> str:
    """What went wrong, without the path that the caller names anyway."""
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    return (getattr(error, "strerror", None) or str(error)).lower()


def _package_version() -> str:
    try:
        return version("optimargin")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


_LIBODM_START = b"instance "
_LIBODM_KERNELS = ("linear", "poly", "rbf", "sigmoid")  # by the number in the file
_LIBODM_PARAMS: dict[str, dict[str, type]] = {
    "poly": {"degree": int, "gamma": float, "coef0": float},
    "rbf": {"gamma": float},
    "sigmoid": {"gamma": float, "coef0": float},
}


def is_libodm(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a text model of libodm."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_LIBODM_START)) == _LIBODM_START
    except OSError:
        return False


def read_libodm(path: str | os.PathLike[str]) -> tuple[Header, Arrays]:
    """Read a text model of libodm, the package of the authors of ODM.

    Its constant feature becomes the intercept of a linear machine.  For a kernel it is a
    feature that is 1 in every row: nothing to a distance, and gamma more in
    gamma x.z + coef0.  The file does not hold lambda, mu and theta: those parameters keep
    their defaults.

    Parameters
    ----------
    path : path-like
        A model written by ``libodm-train``.

    Returns
    -------
    header : dict
        The header `read` would have given.
    arrays : dict of str to ndarray
        ``coef_`` of shape (1, d), or ``dual_coef_`` of shape (1, s) and the s support
        vectors; and the intercept.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path}: {_reason(error)}.") from error
    try:
        settings, body = _libodm_settings(lines)
        kernel = _LIBODM_KERNELS[int(settings["kernel"])]
        d, bias = int(settings["feature"]), int(settings["bias"])
        if kernel == "linear":
            return _libodm_linear(_numbers(lines, body), d, bias)
        params = {name: kind(settings[name]) for name, kind in _LIBODM_PARAMS[kernel].items()}
        count = int(settings["total_sv"])
        if len(lines) < body + count:
            raise ValueError(f"{count} support vectors announced, {len(lines) - body} found")
        rows = [_numbers(lines, body + i) for i in range(count)]
        return _libodm_kernel({"kernel": kernel, **params}, rows, d, bias)
    except (KeyError, IndexError, ValueError) as error:
        reason = str(error)
        if isinstance(error, KeyError):
            reason = f"{error} is missing"
        elif isinstance(error, IndexError):
            reason = "its kernel is unknown"
        raise ModelFileError(f"{path}: a libodm model cut short or damaged, {reason}.") from error


def _libodm_settings(lines: list[str]) -> tuple[dict[str, str], int]:
    """The lines of name and value, and the number of the first line after them."""
    settings: dict[str, str] = {}
    for number, line in enumerate(lines):
        name, _, text = line.strip().partition(" ")
        if name in ("w", "sv"):
            return settings, number + 1
        settings[name] = text
    raise ValueError("it ends before its numbers begin")


def _numbers(lines: list[str], index: int) -> np.ndarray:
    """All numbers of one line, where ``3:0.5`` counts as two."""
    try:
        numbers = np.array(lines[index].replace(":", " ").split(), dtype=np.float64)
    except IndexError:
        raise ValueError("it ends before its numbers begin") from None
    except ValueError:
        raise ValueError(f"line {index + 1} has something that is not a number") from None
    if not np.isfinite(numbers).all():
        raise ValueError(f"line {index + 1} has a number that is not finite")
    return numbers


def _libodm_linear(w: np.ndarray, d: int, bias: int) -> tuple[Header, Arrays]:
    """f(x) = w.x, the last of w being the intercept when there is a constant feature."""
    if len(w) != d:
        raise ValueError(f"{d} weights announced, {len(w)} found")
    arrays = {"coef_": w[None, : d - bias], "intercept_": w[d - bias :]}
    if not bias:
        arrays["intercept_"] = np.zeros(1)
    params = {"fit_intercept": bool(bias)}
    return _libodm_header("LinearODMClassifier", params, d - bias, arrays), arrays


def _libodm_kernel(
    params: dict[str, Any], rows: list[np.ndarray], d: int, bias: int
) -> tuple[Header, Arrays]:
    """f(x) = sum_i coef_i K(x_i, x), with the constant feature moved into the kernel."""
    if any(len(row) % 2 == 0 for row in rows):
        raise ValueError("a support vector ends in the middle of a feature")
    bounds = np.cumsum([0, *(len(row) // 2 for row in rows)])
    numbers = np.concatenate([np.zeros(0), *(row[1::2] for row in rows)]).astype(np.int64)
    values = np.concatenate([np.zeros(0), *(row[2::2] for row in rows)])
    if numbers.size and not 1 <= numbers.min() <= numbers.max() <= d:
        raise ValueError(f"feature {numbers.max()} in a support vector, but there are {d}")
    X = sp.csr_matrix((values, numbers - 1, bounds), shape=(len(rows), d))[:, : d - bias]
    if bias and "coef0" in params:
        params["coef0"] += params["gamma"]
    arrays = {
        "dual_coef_": np.array([[row[0] for row in rows]]),
        "support_": np.arange(len(rows)),  # the file does not say which rows they were
        "intercept_": np.zeros(1),
    }
    header = _libodm_header("ODMClassifier", {**params, "fit_intercept": False}, d - bias, arrays)
    header["state"]["gamma_"] = params["gamma"]
    header["state"]["kernel_dtype_"] = "float64"
    if 8 * X.shape[0] * X.shape[1] <= 12 * X.nnz:  # dense where that takes less memory
        arrays["support_vectors_"] = X.toarray()
        header["state"]["support_vectors_"] = {"array": "support_vectors_"}
    else:
        arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        places = {"csr": ["data", "indices", "indptr"], "shape": list(X.shape), "kind": "matrix"}
        header["state"]["support_vectors_"] = places
    return header, arrays


def _libodm_header(name: str, params: dict[str, Any], d: int, arrays: Arrays) -> Header:
    """The header of an estimator whose fitted attributes are these arrays."""
    arrays["classes_"] = np.array([-1, 1])  # the only labels libodm knows
    state: dict[str, Any] = {attribute: {"array": attribute} for attribute in arrays}
    state |= {"n_features_in_": d, "status_": "imported"}
    return {"class": name, "params": params, "state": state}
