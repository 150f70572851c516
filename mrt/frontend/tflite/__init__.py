"""The TFLite reader: a flatbuffer of operators into a Graph, one converter per TFLite operator."""

from __future__ import annotations

import os

from mrt.errors import MRTError
from mrt.symbol import Graph

__all__ = ["from_tflite"]


def from_tflite(model: str | os.PathLike[str] | bytes, batch: int = 1) -> Graph:
    """The float graph of a TFLite model, given as a path or as the bytes of the file. Needs the extra `tflite`.

    A dynamic first dimension of an input is fixed to `batch`; every float becomes float32. Weights that are stored as
    float16, or as integers with scales, stand for the real values that they mean. In a quantized network each tensor of
    integers with a scale is rounded to those, and weights stay integers; inputs are integers, outputs what they mean.
    Symbols are called as the tensors are, with a number where two have one name. Values that do not depend on the data
    are computed, the constant added to a matrix product becomes its bias, and the network is turned into one with the
    channels first, whose inputs and outputs stay as they were. Operators that no output needs are dropped.

    Raises ModelFileError where the file is no whole TFLite model; UnsupportedOperatorError where operators, or uses of
    an operator, are not covered (operators all at once), or integers have a form that is not read; GraphError where
    another dimension is dynamic, or an operator does not fit its inputs; MRTError where tflite is not installed.
    """
    try:
        import tflite  # noqa: F401
    except ImportError:
        raise MRTError(
            "reading TFLite models needs the package tflite; install it with: pip install 'mrt-quantizer[tflite]'"
        ) from None
    from mrt.frontend.tflite.reader import read_graph

    return read_graph(model, batch)
