"""The ONNX reader: opset 9 to 28 directly into a Graph, one converter per ONNX operator."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mrt.frontend.shared.format import Format
from mrt.frontend.shared.inputs import ReadOptions, Shapes, Values, read_options
from mrt.symbol import Graph

if TYPE_CHECKING:
    import onnx

__all__ = ["FORMAT", "from_onnx"]

_FIRST_FIELD = b"\x08"
"""The tag of ir_version, with which every writer begins a file, since it is field 1."""


def from_onnx(
    model: str | os.PathLike[str] | onnx.ModelProto,
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
) -> Graph:
    """The float graph of an ONNX model of opset 9 to 28, given as a path or loaded.

    batch, shapes, values, split: as `load_model` takes them; a symbolic size is the same wherever its name stands.
    Every float becomes float32. Symbols are called as the ONNX values are. Nodes and initializers that no output needs
    are dropped. A model in which nothing is a float, such as `QuantizedModel.to_onnx` writes, gives the graph of its
    integers.

    Raises ModelFileError where the file is no whole ONNX model or its external data are missing;
    UnsupportedOperatorError where operators, or attributes of an operator, are not covered (operators all at once);
    GraphError where a dimension is still open, a shape or value does not fit, the opset is not read, or the model is
    malformed.
    """
    return _read(model, read_options(batch, shapes, values, split))


def _read(model: str | os.PathLike[str] | onnx.ModelProto, options: ReadOptions) -> Graph:
    from mrt.frontend.onnx.reader import read_graph

    return read_graph(model, options)


FORMAT = Format(
    name="onnx",
    extra=None,
    looks_like=lambda start: start.startswith(_FIRST_FIELD),
    read=_read,
    file="an ONNX file",
    suffix=".onnx",
    takes_shapes=True,
    takes_values=True,
)
