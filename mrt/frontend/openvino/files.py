"""Bytes of an OpenVINO IR: the .xml of operators and the .bin of constants, which OpenVINO reads from memory."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import openvino

from mrt.errors import GraphError, ModelFileError, UnsupportedOperatorError
from mrt.frontend.openvino.signature import looks_like_ir
from mrt.paths import as_path
from mrt.symbol import Array

_DTYPES = {
    **dict.fromkeys(("f16", "bf16", "f32", "f64"), "float32"),
    **{"i4": "int8", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"},
    **{"u1": "uint8", "u4": "uint8", "u8": "uint8", "boolean": "bool"},
}
"""The dtype of a tensor in the graph by the name of its element type; u16 to u64 are read of constants alone."""
_CONSTANT_DTYPES = _DTYPES | {"f64": "float64", "u16": "int32", "u32": "int64", "u64": "uint64"}

_PACKED = frozenset({"i4", "u1", "u4"})

_REASON = 300
"""How much of another program's error is shown."""


def read_model(model: str | os.PathLike[str] | openvino.Model) -> tuple[openvino.Model, str]:
    """The model, a copy of one that is given loaded, and what errors call it.

    Raises ModelFileError where a file cannot be read, or they are no whole IR. Both are read into memory first, so that
    what stands in them is data and names no other file.
    """
    if isinstance(model, openvino.Model):
        return model.clone(), "the model"
    path = as_path(model, "model", to_read=True)
    text = _content(path, "an OpenVINO .xml file")
    weights = _content(path.with_suffix(".bin"), f"it holds the constants of {path} and lies beside it")
    if not looks_like_ir(text):
        raise ModelFileError(f"{path} is no OpenVINO IR: it has no <net> with layers; convert the model again")
    if not _is_text(text):
        raise ModelFileError(f"{path} is no text in UTF-8; the file is damaged: convert the model again")
    tensor = openvino.Tensor(np.frombuffer(weights, np.uint8))
    try:
        return openvino.Core().read_model(text, tensor), str(path)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} and its .bin are no whole OpenVINO IR: {reason_of(error)}") from None


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def reason_of(error: Exception) -> str:
    """What OpenVINO says, on one line."""
    words = " ".join(str(error).split())
    return words[:_REASON] or type(error).__name__


def tensor_of(constant: openvino.Node) -> openvino.Tensor:
    """The values of a Constant."""
    tensor = openvino.Tensor(constant.get_output_element_type(0), constant.get_output_shape(0))
    constant.evaluate([tensor], [])
    return tensor


def array_of(tensor: openvino.Tensor, title: str) -> Array:
    """A known tensor as an array of its own; floats of 16 bits as float32, integers of 4 bits as ones of 8.

    Raises UnsupportedOperatorError for a type that is not read.
    """
    kind = str(tensor.element_type.get_type_name())
    if kind not in _CONSTANT_DTYPES:
        raise UnsupportedOperatorError(f"{title} is of type {kind}; one of {', '.join(_CONSTANT_DTYPES)} is needed")
    dtype, shape = _CONSTANT_DTYPES[kind], tuple(tensor.shape)
    if not math.prod(shape):
        return np.empty(shape, dtype)
    # Several integers in a byte are taken apart only where they are asked for in another type.
    asked = np.dtype("int32" if kind in _PACKED else dtype)
    values = openvino.op.Constant(tensor).get_data(dtype=asked)
    return np.array(values, dtype, order="C").reshape(shape)


def element_type(output: openvino.Output) -> str:
    return str(output.get_element_type().get_type_name())


def dtype_of(output: openvino.Output, name: str) -> str:
    """The dtype of a tensor in the graph; UnsupportedOperatorError where graphs have none for its type."""
    kind = element_type(output)
    if kind not in _DTYPES:
        raise UnsupportedOperatorError(f"{name} is of type {kind}; one of {', '.join(_DTYPES)} is needed")
    return _DTYPES[kind]


def static_shape(output: openvino.Output, label: str) -> tuple[int, ...]:
    """The shape of an output; GraphError where a size of it depends on the data."""
    shape = output.get_partial_shape()
    if shape.is_dynamic:
        raise GraphError(f"{label}: gives a tensor of shape {shape}; a shape that is known while reading is needed")
    return tuple(int(size.get_length()) for size in shape)


def _content(path: Path, needed: str) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder; {needed}") from None
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist; {needed}") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from None
