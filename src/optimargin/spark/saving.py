"""Models on disk: params as JSON, the fitted classifier as a model file in a Parquet column.

    path/metadata   one line of JSON, as all Python stages of Spark write it
    path/data       Parquet: the bytes of a safetensors model file, in pieces

Spark writes and reads both, so any file system that it knows will do; nothing is pickled, and
loading runs no code of the file.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter

from optimargin.estimators.saved import load, save
from optimargin.io import ModelFileError

_PIECE = 1 << 24  # bytes of a piece
_SCHEMA = "piece int, content binary"


class ModelWriter(MLWriter):
    """Writes a fitted model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def saveImpl(self, path: str) -> None:
        """Write to a folder that does not exist, or that ``overwrite`` has cleared."""
        content = _packed(self.model.toLocal())
        starts = range(0, len(content), _PIECE)
        pieces = [(k, bytearray(content[s : s + _PIECE])) for k, s in enumerate(starts)]
        DefaultParamsWriter.saveMetadata(self.model, path, self.sparkSession)
        frame = self.sparkSession.createDataFrame(pieces, _SCHEMA)
        frame.coalesce(1).write.parquet(f"{path}/data")


class ModelReader(MLReader[Any]):
    """Reads a model of a class."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def load(self, path: str) -> Any:
        """The model as it was saved: the same params, uid and predictions."""
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        own = f"{self.kind.__module__}.{self.kind.__name__}"
        if metadata["class"] != own:
            raise ModelFileError(f"{path} holds a {metadata['class']}, not a {own}.")
        pieces = self.sparkSession.read.schema(_SCHEMA).parquet(f"{path}/data").collect()
        content = b"".join(bytes(row.content) for row in sorted(pieces, key=lambda row: row.piece))
        model = self.kind(_unpacked(content, path))
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _packed(classifier: Any) -> bytes:
    """The bytes of a model file."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "model.safetensors"
        save(classifier, place)
        return place.read_bytes()


def _unpacked(content: bytes, path: str) -> Any:
    """The classifier of a model file."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "model.safetensors"
        place.write_bytes(content)
        try:
            return load(place)
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {str(error).removeprefix(f'{place}: ')}") from None
