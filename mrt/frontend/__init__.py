"""Readers of trained networks: each turns a model of another program into a float Graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mrt.errors import GraphError, ModelFileError
from mrt.frontend.mxnet import check_shapes, from_mxnet, read_checkpoint
from mrt.frontend.onnx import from_onnx
from mrt.frontend.openvino import from_openvino
from mrt.frontend.shared.sniffing import sniff_format
from mrt.frontend.tflite import from_tflite
from mrt.paths import as_path
from mrt.symbol import Graph

__all__ = ["from_mxnet", "from_onnx", "from_openvino", "from_tflite", "load_model"]


def load_model(
    path: str | os.PathLike[str], batch: int = 1, shapes: Mapping[str, Sequence[int]] | None = None
) -> Graph:
    """The float graph of a model file, its kind told by its content.

    An ONNX file; an MXNet NAME-symbol.json with its NAME-NNNN.params beside it, of which the highest number is taken;
    a Relay text with its parameters beside it; a TFLite file; the .xml of an OpenVINO IR with its .bin beside it; a
    .pt2 archive of torch.export.save. `batch` is the size
    that a dynamic batch dimension is fixed to; `shapes` are those of an MXNet model's inputs by name, which its file
    need not say.

    Raises ModelFileError where the file is missing, is a folder, or is of no kind that is read, GraphError where
    shapes are given for a file that says its own, and whatever the reader of the kind raises.
    """
    path = as_path(path, "path", to_read=True)
    check_shapes(shapes)
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder; a model file is needed")
    if not path.exists():
        raise ModelFileError(f"{path} does not exist; give the path of a model file")
    kind = sniff_format(path)
    if kind == "mxnet":
        return read_checkpoint(path, batch, shapes)
    if shapes:
        raise GraphError(f"shapes are given for {', '.join(shapes)}, but {path} says the shapes of its inputs itself")
    if kind == "relay":
        from mrt.frontend.relay import read_relay_file

        return read_relay_file(path, batch)
    if kind == "tflite":
        return from_tflite(path, batch)
    if kind == "openvino":
        return from_openvino(path, batch)
    if kind == "torch":
        from mrt.frontend.torch import from_torch

        return from_torch(path, batch)
    return from_onnx(path, batch)
