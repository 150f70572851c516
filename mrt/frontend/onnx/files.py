"""Bytes of an ONNX model: the protobuf file and the tensors in it or beside it."""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper

from mrt.errors import ModelFileError
from mrt.frontend.shared.refusals import check_size
from mrt.paths import as_path
from mrt.symbol import Array


def read_model(model: str | os.PathLike[str] | onnx.ModelProto) -> tuple[onnx.ModelProto, Path | None, str]:
    """The model, the folder of its external data (None where it came from no file), and what to call it in errors.

    Raises ModelFileError where the file cannot be read or is no whole ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        return _checked(model, "the model"), None, "the model"
    path = as_path(model, "model", to_read=True, or_pipe=True)
    try:
        content = _content(path)
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder; an ONNX file is needed") from None
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist; give the path of an ONNX file") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
    parsed = onnx.ModelProto()
    try:
        parsed.ParseFromString(content)
    except (DecodeError, ValueError):
        raise ModelFileError(f"{path} is no ONNX model, or a truncated one; export or copy it again") from None
    return _checked(parsed, str(path)), path.parent, str(path)


def _content(path: Path) -> memoryview | bytes:
    """The bytes of a file, where it can be mapped without a copy of them."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):  # a pipe, an empty file
            return file.read()


def read_tensor(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """The values of a tensor, in its own dtype (bfloat16 as float32, which holds it exactly).

    Raises ModelFileError where its bytes are missing, too few or many, or outside the model's folder; GraphError where
    its shape is one that no tensor has.
    """
    check_size(f"tensor {tensor.name}", tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = _with_external_data(tensor, folder)
    try:
        array = numpy_helper.to_array(tensor)
    except Exception:  # what it raises on tensors that are malformed is said nowhere
        kind = onnx.TensorProto.DataType.Name(tensor.data_type) if tensor.data_type in _DATA_TYPES else "unknown"
        raise ModelFileError(
            f"tensor {tensor.name}: its values do not fill shape {tuple(tensor.dims)} of {kind}; the file is damaged"
        ) from None
    return widen(array)


def widen(array: Array) -> Array:
    """bfloat16, which NumPy does not know itself, as float32; any other array as it is."""
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


_DATA_TYPES = frozenset(onnx.TensorProto.DataType.values())


def _checked(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    if not model.HasField("graph") or not model.opset_import:
        raise ModelFileError(f"{name} is no ONNX model: it states no graph or no opset; export or copy it again")
    if not model.graph.output:
        raise ModelFileError(f"{name} has no outputs; export it with at least one")
    if not all(_is_text(word) for word in _words(model.graph)):
        raise ModelFileError(f"{name} holds names that are no text; the file is damaged: export or copy it again")
    return model


def _words(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    """The names of values and nodes, and the operators."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
    for named in (*graph.input, *graph.output, *graph.initializer):
        yield named.name


def _is_text(word: str | bytes) -> bool:
    """Whether a string of the file is text on one line; protobuf gives bytes for what is not UTF-8."""
    return isinstance(word, str) and (word.isprintable() or min(word) >= " ")


def _with_external_data(tensor: onnx.TensorProto, folder: Path | None) -> onnx.TensorProto:
    """A copy of the tensor that holds its bytes itself."""
    if folder is None:
        raise ModelFileError(
            f"tensor {tensor.name} lies in an external file, but the model was given without its folder; "
            "give the path of the model file"
        )
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _external_path(tensor.name, entries.get("location", ""), folder)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    except ValueError:
        raise ModelFileError(f"tensor {tensor.name}: offset or length of its external data is no number") from None
    needed = _bytes_of(tensor)
    if length >= 0 and needed is not None and length != needed:
        raise ModelFileError(f"tensor {tensor.name}: {length} bytes of external data are stated; {needed} are needed")
    try:
        with path.open("rb") as file:
            file.seek(offset)
            # However much the file holds, no more is read than the tensor has.
            content = file.read(length if length >= 0 else -1 if needed is None else needed)
    except (OSError, ValueError, OverflowError):
        raise ModelFileError(
            f"tensor {tensor.name}: its external data file {path} cannot be read at offset {offset}; "
            "copy it beside the model"
        ) from None
    if len(content) < length:
        raise ModelFileError(
            f"tensor {tensor.name}: {path} ends after {len(content)} of {length} bytes; the file is truncated"
        )
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=content)


def _bytes_of(tensor: onnx.TensorProto) -> int | None:
    """How many bytes the tensor's values are, None where several share one, or the type is not known."""
    kinds = onnx.TensorProto
    if tensor.data_type not in _DATA_TYPES or tensor.data_type in (kinds.STRING, kinds.UNDEFINED):
        return None
    if re.search(r"INT[24]|FLOAT4", kinds.DataType.Name(tensor.data_type)):
        return None
    itemsize: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return int(math.prod(tensor.dims)) * itemsize


def _external_path(tensor: str, location: str, folder: Path) -> Path:
    """Where a tensor's bytes lie. A model may not name files outside its own folder, whatever links there are."""
    if not location:
        raise ModelFileError(f"tensor {tensor} lies in an external file whose location is not given")
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        is_inside, is_file = path.is_relative_to(root), path.is_file()
    except (OSError, ValueError, RuntimeError):
        raise ModelFileError(f"tensor {tensor}: external data {location[:80]!r} is no name that a file has") from None
    if not is_inside:
        raise ModelFileError(
            f"tensor {tensor}: external data {location!r} lies outside the model's folder; put it beside the model"
        )
    if not is_file:
        raise ModelFileError(f"tensor {tensor}: its external data file {path} is missing; copy it beside the model")
    return path
