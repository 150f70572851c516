"""The TFLite reader: a flatbuffer of operators into a Graph, one converter per TFLite operator."""

from __future__ import annotations

import os
from collections.abc import Iterable

from mrt.frontend.shared.format import Format
from mrt.frontend.shared.inputs import ReadOptions, Shapes, Values, read_options
from mrt.frontend.tflite.signature import looks_like_tflite
from mrt.symbol import Graph

__all__ = ["FORMAT", "from_tflite"]


def from_tflite(
    model: str | os.PathLike[str] | bytes,
    batch: int = 1,
    shapes: Shapes | None = None,
    values: Values | None = None,
    split: Iterable[str] = (),
) -> Graph:
    """The float graph of a TFLite model, given as a path or as the bytes of the file. Needs the extra `tflite`.

    batch, shapes, values, split: as `load_model` takes them. Every float becomes float32. Weights that are stored as
    float16, or as integers with scales, stand for the real values that they mean. In a quantized network each tensor of
    integers with a scale is rounded to those, and weights stay integers; inputs are integers, outputs what they mean.
    Symbols are called as the tensors are, with a number where two have one name. Values that do not depend on the data
    are computed, the constant added to a matrix product becomes its bias, and the network is turned into one with the
    channels first, whose inputs and outputs stay as they were. Operators that no output needs are dropped.

    Raises ModelFileError where the file is no whole TFLite model, or tflite is not installed; UnsupportedOperatorError
    where operators, or uses of an operator, are not covered (operators all at once), or integers have a form that is
    not read; GraphError where a dimension is still open, a shape or value does not fit, or an operator
    does not fit its inputs.
    """
    return _read(model, read_options(batch, shapes, values, split))


def _read(model: str | os.PathLike[str] | bytes, options: ReadOptions) -> Graph:
    FORMAT.check_installed()
    from mrt.frontend.tflite.reader import read_graph

    return read_graph(model, options)


FORMAT = Format(
    name="tflite",
    extra="tflite",
    looks_like=looks_like_tflite,
    read=_read,
    file="a TFLite file",
    suffix=".tflite",
    takes_shapes=True,
    takes_values=True,
)
