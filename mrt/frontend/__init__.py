"""Readers of trained networks: each turns a model of another program into a float Graph."""

from mrt.frontend.formats import batch_first, load_model
from mrt.frontend.mxnet import from_mxnet
from mrt.frontend.onnx import from_onnx
from mrt.frontend.openvino import from_openvino
from mrt.frontend.tflite import from_tflite

__all__ = ["batch_first", "from_mxnet", "from_onnx", "from_openvino", "from_tflite", "load_model"]
