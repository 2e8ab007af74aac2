"""Saving estimators and loading them again, as plain arrays and JSON.

The header of a model file says what to build: a class of this package by name, its
parameters, and its fitted attributes, or the steps of a pipeline of these.  JSON has no
arrays, no infinity and no dictionary with keys of its own type, so each of them is
written as an object with one telling key:

    {"array": key}   {"csr": [keys]}   {"text": [...]}   {"scalar": ..., "dtype": ...}
    {"float": "inf"}   {"dict": [[key, value], ...]}   {"list": [...]}   {"tuple": [...]}
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from optimargin import io
from optimargin.io import Arrays, Header, ModelFileError

_SCALERS = {scaler.__name__: scaler for scaler in (MaxAbsScaler, MinMaxScaler, StandardScaler)}


def save(
    estimator: BaseEstimator,
    path: str | os.PathLike[str],
    *,
    columns: dict[str, Any] | None = None,
) -> None:
    """Save a fitted estimator to a model file.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator of this package, or a Pipeline of one behind scikit-learn's
        StandardScaler, MinMaxScaler or MaxAbsScaler.
    path : path-like
        Where the file goes; ``.safetensors`` is the customary suffix.
    columns : dict, optional
        Notes on the data file the estimator was trained on, for the command line: names
        of ``"features"`` and of the ``"label"``.

    Raises
    ------
    ModelFileError
        When a parameter or attribute cannot be saved (a callable kernel, a RandomState),
        or the file cannot be written.
    """
    check_is_fitted(estimator)
    arrays: Arrays = {}
    header = _describe(estimator, "", arrays)
    if columns is not None:
        header["columns"] = columns
    io.write(path, header, arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a fitted estimator from a model file.

    No code of the file is run: it holds none.

    Parameters
    ----------
    path : path-like
        A file written by `save` or by an estimator's ``save``, or a text model of libodm.

    Returns
    -------
    estimator or Pipeline
        As it was saved: the same parameters, attributes and predictions.

    Raises
    ------
    ModelFileError
        When the file is missing, damaged or not a model this version can use.
    """
    return restore(path, *contents(path))


def scaled(classifier: BaseEstimator, scale: str, sparse: bool) -> Any:
    """The classifier behind a scaler that a model file can carry.

    Parameters
    ----------
    classifier : estimator
        A classifier of this package.
    scale : {"standard", "minmax", "none"}
        Zero mean and unit variance, the interval [0, 1], or the features as they are.
    sparse : bool
        Whether the rows are sparse: then zeros stay zeros, the mean is left where it is,
        and "minmax" divides by the largest absolute value.

    Returns
    -------
    Pipeline, or the classifier itself where there is nothing to scale
    """
    if scale == "none":
        return classifier
    if scale == "minmax":
        scaler = MaxAbsScaler() if sparse else MinMaxScaler()
    else:
        scaler = StandardScaler(with_mean=not sparse)
    return Pipeline([("scale", scaler), ("classify", classifier)])


def contents(path: str | os.PathLike[str]) -> tuple[Header, Arrays]:
    """Header and arrays of a model file of either kind."""
    return io.read_libodm(path) if io.is_libodm(path) else io.read(path)


def restore(path: str | os.PathLike[str], header: Header, arrays: Arrays) -> Any:
    """The estimator that a header describes."""
    try:
        return _build(header, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{path}: the header does not describe a model.") from error


def _describe(estimator: Any, prefix: str, arrays: Arrays) -> Header:
    """The header for an estimator; its arrays go into ``arrays`` under ``prefix``."""
    name = type(estimator).__name__
    if type(estimator) is Pipeline:
        steps = [[key, _describe(step, f"{key}.", arrays)] for key, step in estimator.steps]
        return {"class": name, "steps": steps}
    if type(estimator) not in _classes().values():
        raise ModelFileError(f"An object of type {name} cannot be saved in a model file.")
    params = {
        key: _encode(value, f"The argument {key}", f"{prefix}params.{key}", arrays)
        for key, value in estimator.get_params(deep=False).items()
        if key != "engine"  # where it was trained, no part of the model
    }
    state = {
        key: _encode(value, f"The attribute {key}", f"{prefix}{key}", arrays)
        for key, value in vars(estimator).items()
        if _is_state(type(estimator), key)
    }
    return {"class": name, "params": params, "state": state}


def _build(header: Header, arrays: Arrays) -> Any:
    name = header["class"]
    if name == "Pipeline":
        return Pipeline([(str(key), _build(step, arrays)) for key, step in header["steps"]])
    kind = _classes().get(name)
    if kind is None:
        raise ModelFileError(f"this version of optimargin knows no class {name!r}.")
    params = {key: _decode(value, arrays) for key, value in header["params"].items()}
    for key in params:
        if key not in kind._get_param_names():
            raise ModelFileError(
                f"this version of optimargin knows no argument {key!r} of {name};"
                " the file may come from a newer one."
            )
    estimator = kind(**params)
    for key, value in header["state"].items():
        if not _is_state(kind, key):
            raise ModelFileError(f"{key!r} is not an attribute of a fitted {name}.")
        setattr(estimator, key, _decode(value, arrays))
    return estimator


def _classes() -> dict[str, type[BaseEstimator]]:
    """Every class a model file may name."""
    from optimargin import estimators  # whose modules import this one

    public = {name: getattr(estimators, name) for name in estimators.__all__}
    known = {name: kind for name, kind in public.items() if isinstance(kind, type)}
    return {**known, **_SCALERS}


def _is_state(kind: type, name: str) -> bool:
    """Whether an attribute is part of what fitting found out."""
    return name.endswith("_") and not name.startswith("_")


def _encode(value: Any, what: str, key: str, arrays: Arrays) -> Any:
    """A value as JSON, its arrays set aside under keys that begin with ``key``."""

    def inner(item: Any, place: Any) -> Any:
        return _encode(item, what, f"{key}.{place}", arrays)

    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):  # before float: np.float64 is one
        return {"scalar": inner(value.item(), ""), "dtype": value.dtype.str}
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        tag = "list" if isinstance(value, list) else "tuple"
        return {tag: [inner(item, i) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        pairs = enumerate(value.items())
        return {"dict": [[inner(k, f"{i}.key"), inner(v, k)] for i, (k, v) in pairs]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        # A product with a matrix stored by columns rounds differently, so the order stays.
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        place = _set_aside(value.T if by_columns else value, key, arrays)
        return {"array": place, "order": "F"} if by_columns else {"array": place}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        flat = [inner(item, "") for item in value.ravel().tolist()]
        return {"text": flat, "dtype": value.dtype.str, "shape": list(value.shape)}
    if sp.issparse(value) and value.format == "csr":
        parts = ("data", "indices", "indptr")
        places = [_set_aside(getattr(value, part), f"{key}.{part}", arrays) for part in parts]
        kind = "array" if isinstance(value, sp.sparray) else "matrix"
        return {"csr": places, "shape": list(value.shape), "kind": kind}
    raise ModelFileError(
        f"{what} is of type {type(value).__name__}, which a model file cannot hold."
    )


def _set_aside(array: np.ndarray, key: str, arrays: Arrays) -> str:
    """Keep an array under this key, or one like it: two values may lead to the same key."""
    while key in arrays:
        key += "+"
    arrays[key] = array
    return key


def _decode(value: Any, arrays: Arrays) -> Any:
    """The value that `_encode` was given."""
    if not isinstance(value, dict):
        return value
    for tag, decode in _DECODERS.items():
        if tag in value:
            return decode(value, arrays)
    raise ValueError(f"no value is written as {sorted(value)}")


def _decode_array(value: Any, arrays: Arrays) -> np.ndarray:
    array = arrays[value["array"]]
    return array.T if value.get("order") == "F" else array


def _decode_text(value: Any, arrays: Arrays) -> np.ndarray:
    items = [_decode(item, arrays) for item in value["text"]]
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "OU":
        raise ValueError(f"{dtype} is not a type of text")
    flat = np.empty(len(items), dtype=dtype)
    flat[:] = items
    return flat.reshape(value["shape"])


def _decode_csr(value: Any, arrays: Arrays) -> Any:
    data, indices, indptr = (arrays[place] for place in value["csr"])
    kind = sp.csr_array if value["kind"] == "array" else sp.csr_matrix
    matrix = kind((data, indices, indptr), shape=tuple(value["shape"]))
    matrix.check_format()  # compiled loops trust the indices
    return matrix


_DECODERS: dict[str, Callable[[Any, Arrays], Any]] = {
    "array": _decode_array,
    "csr": _decode_csr,
    "text": _decode_text,
    "scalar": lambda v, arrays: np.dtype(v["dtype"]).type(_decode(v["scalar"], arrays)),
    "float": lambda v, arrays: float(v["float"]),
    "list": lambda v, arrays: [_decode(item, arrays) for item in v["list"]],
    "tuple": lambda v, arrays: tuple(_decode(item, arrays) for item in v["tuple"]),
    "dict": lambda v, arrays: {_decode(k, arrays): _decode(x, arrays) for k, x in v["dict"]},
}
