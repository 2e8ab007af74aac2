"""Model files: what goes in comes out, and whatever is wrong with a file is said."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from optimargin import io
from optimargin.estimators import LinearODMClassifier, ODMClassifier, saved
from optimargin.io import ModelFileError

DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", ">f8", ">i4")
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | text
    | st.floats(width=32).map(np.float32)
    | st.integers(-9, 9).map(np.int64)
    | st.booleans().map(np.bool_)
)
texts = st.lists(text, max_size=4)
leaves = (
    scalars
    | arrays
    | arrays.map(np.asfortranarray)
    | texts.map(lambda items: np.array(items, dtype=object))
    | texts.map(lambda items: np.array(items, dtype=str))
    | st.integers(0, 5).map(
        lambda seed: sp.random_array((3, 4), density=0.4, format="csr", rng=seed)
    )
)
keys = text | st.integers() | st.booleans() | st.integers(-9, 9).map(np.int64)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=6,
)


def complaint(path: Path) -> str:
    """What is said of a bad model file, which must be one line that names the file."""
    with pytest.raises(ModelFileError) as caught:
        saved.load(path)
    words = str(caught.value)
    assert str(path) in words
    assert "\n" not in words
    assert words.endswith(".")
    return words


def same(a: Any, b: Any) -> bool:
    """Equal in value, type, shape and memory order."""
    if isinstance(a, np.ndarray):
        layout = a.flags.f_contiguous and not a.flags.c_contiguous
        other = b.flags.f_contiguous and not b.flags.c_contiguous
        kind = a.dtype.newbyteorder("<")
        return (
            b.dtype == kind
            and a.shape == b.shape
            and layout == other
            and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if type(a) is not type(b):
        return False
    if sp.issparse(a):
        return all(
            same(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr")
        )
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(*pair)
            for items in zip(a.items(), b.items(), strict=True)
            for pair in zip(*items, strict=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """A small problem of three classes."""
    return make_classification(90, 6, n_informative=4, n_classes=3, random_state=0)


@settings(deadline=None)
@given(st.dictionaries(text, arrays, max_size=4), st.dictionaries(text, st.lists(text)))
def test_headers_and_arrays_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, parts: dict[str, np.ndarray], header: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("io") / "model"
    io.write(path, header, parts)
    back, found = io.read(path)
    assert back == header
    assert found.keys() == parts.keys()
    for name, array in parts.items():
        assert found[name].dtype == array.dtype.newbyteorder("<")
        assert found[name].shape == array.shape
        assert (
            np.ascontiguousarray(found[name]).tobytes() == array.astype(found[name].dtype).tobytes()
        )


@settings(deadline=None)
@given(values)
def test_every_value_an_estimator_may_hold_comes_back(value: Any) -> None:
    parts: io.Arrays = {}
    header = json.loads(json.dumps(saved._encode(value, "it", "it", parts)))
    plain = {key: io._storable(key, array) for key, array in parts.items()}
    assert same(value, saved._decode(header, plain))


def test_a_strided_view_is_saved_as_what_it_shows(tmp_path: Path) -> None:
    view = np.arange(20.0).reshape(4, 5)[::2, ::-2]
    io.write(tmp_path / "model", {}, {"view": view})
    assert np.array_equal(io.read(tmp_path / "model")[1]["view"], view)


def test_no_single_changed_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "model"
    io.write(path, {"class": "ODMClassifier", "numbers": [1, 2.5]}, {"w": np.arange(3.0)})
    whole = path.read_bytes()
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= 1
        path.write_bytes(altered)
        complaint(path)


def test_no_shortened_file_is_taken_for_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    io.write(path, {"class": "ODMClassifier"}, {"w": np.arange(3.0)})
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        assert "cut short or damaged" in complaint(path)


def test_files_of_other_kinds_are_refused_by_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model"
    assert "no such file" in complaint(path)
    assert "folder" in complaint(tmp_path)
    path.write_bytes(b"")
    assert "empty" in complaint(path)
    path.write_text("A page of text, and nothing else.\n")
    assert "not a model file" in complaint(path)
    path.write_bytes(bytes(200))
    assert "not a model file" in complaint(path)
    save_file({"w": np.ones(3)}, path)
    assert "safetensors file, but not a model" in complaint(path)
    save_file({"w": np.ones(3)}, path, metadata={"optimargin": "[1, 2]"})
    assert "header makes no sense" in complaint(path)


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "model").write_bytes(pickle.dumps(Bomb(), protocol))
        assert "pickle" in complaint(tmp_path / "model")
    assert not (tmp_path / "exploded").exists()


def test_a_newer_format_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "VERSION", 2)
    io.write(tmp_path / "model", {}, {})
    monkeypatch.undo()
    words = complaint(tmp_path / "model")
    assert "format 2" in words
    assert "pip install --upgrade optimargin" in words


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    io.write(path, {"which": "old"}, {})

    def stop_half_way(parts: Any, place: Path, metadata: Any) -> None:
        place.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(io, "save_file", stop_half_way)
    with pytest.raises(KeyboardInterrupt):
        io.write(path, {"which": "new"}, {})
    assert io.read(path)[0] == {"which": "old"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    io.write(tmp_path / "model", {}, {})
    (tmp_path / "other").touch()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    for place in (tmp_path / "absent" / "model", tmp_path, Path("/dev/null")):
        with pytest.raises(ModelFileError, match=f"{place}: cannot be written"):
            io.write(place, {}, {})
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "estimator",
    [LinearODMClassifier(), ODMClassifier(), ODMClassifier(kernel="poly", degree=2)],
    ids=["linear", "rbf", "poly"],
)
def test_a_loaded_estimator_scores_to_the_last_bit(
    rows: Any, tmp_path: Path, estimator: Any, classes: int, order: Any, dtype: str
) -> None:
    X, y = np.asarray(rows[0], dtype=dtype, order=order), rows[1] % classes
    fitted = clone(estimator).set_params(random_state=0).fit(X, y)
    fitted.save(tmp_path / "model")
    loaded = saved.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.get_params() == fitted.get_params()
    for name, value in vars(fitted).items():
        if name.endswith("_") and not name.startswith("_"):
            assert same(value, getattr(loaded, name)), name
    assert np.array_equal(clone(loaded).fit(X, y).predict(X), fitted.predict(X))


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("estimator", [LinearODMClassifier(), ODMClassifier()])
def test_sparse_machines_come_back_sparse(
    rows: Any, tmp_path: Path, estimator: Any, kind: Any
) -> None:
    X = kind(np.where(np.abs(rows[0]) > 1, rows[0], 0))
    fitted = clone(estimator).fit(X, rows[1])
    fitted.save(tmp_path / "model")
    loaded = saved.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(X), fitted.decision_function(X))


def test_names_of_classes_and_features_come_back(rows: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rows[0], columns=list("abcdef"))
    y = np.array(["côte", "mer", "île"], dtype=object)[rows[1]]
    fitted = LinearODMClassifier(class_weight={"mer": 2.0}).fit(X, y)
    fitted.save(tmp_path / "model")
    loaded = saved.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    assert list(loaded.feature_names_in_) == list("abcdef")
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X[list("fedcba")])


def test_arguments_come_back_with_their_types(rows: Any, tmp_path: Path) -> None:
    params = {
        "lam": np.float32(0.1),
        "class_weight": {0: 1.0, 1: 2.5, 2: 1},
        "max_iter": np.int64(7),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seven rounds need not be enough
        LinearODMClassifier(**params).fit(*rows).save(tmp_path / "model")
    loaded = saved.load(tmp_path / "model").get_params()
    assert all(same(loaded[name], value) for name, value in params.items())


@pytest.mark.parametrize(
    "params",
    [{"kernel": lambda A, B: A @ B.T}, {"random_state": np.random.RandomState(0)}],
    ids=["kernel", "random_state"],
)
def test_an_argument_that_is_code_is_refused_by_name(
    rows: Any, tmp_path: Path, params: dict[str, Any]
) -> None:
    fitted = ODMClassifier(**params).fit(*rows)
    with pytest.raises(ModelFileError, match=f"argument {next(iter(params))}"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler()])
def test_a_scaled_machine_comes_back_with_its_scaler(
    rows: Any, tmp_path: Path, scaler: Any
) -> None:
    fitted = make_pipeline(clone(scaler), ODMClassifier()).fit(*rows)
    saved.save(fitted, tmp_path / "model")
    loaded = saved.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(rows[0]), fitted.decision_function(rows[0]))


def test_an_estimator_of_somebody_else_is_not_saved(rows: Any, tmp_path: Path) -> None:
    class Mine(ODMClassifier):
        """A subclass, whose methods a model file could not hold."""

    with pytest.raises(ModelFileError, match="Mine"):
        saved.save(Mine().fit(*rows), tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"class": "Popen"}, "no class 'Popen'"),
        ({"class": ["ODMClassifier"]}, "does not describe a model"),
        ({"params": {"zeta": 1}}, "no argument 'zeta'"),
        ({"params": None}, "does not describe a model"),
        ({"state": {"predict": 1}}, "'predict' is not an attribute"),
        ({"state": {"__class__": 1}}, "'__class__' is not an attribute"),
        ({"state": {"coef_": {"array": "absent"}}}, "does not describe a model"),
        ({"state": {"coef_": {"eval": "1"}}}, "does not describe a model"),
    ],
)
def test_a_header_this_version_cannot_use_is_refused(
    rows: Any, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "model"
    LinearODMClassifier().fit(*rows).save(path)
    header, parts = io.read(path)
    io.write(path, header | change, parts)
    assert reason in complaint(path)


def test_sparse_indices_beyond_the_matrix_are_refused(rows: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    ODMClassifier().fit(sp.csr_matrix(rows[0]), rows[1]).save(path)
    header, parts = io.read(path)
    key = header["state"]["support_vectors_"]["csr"][1]
    io.write(path, header, parts | {key: parts[key] + 100})
    assert "does not describe a model" in complaint(path)
