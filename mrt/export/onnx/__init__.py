"""The ONNX exporter: an integer graph as a model of ONNX's own operators, one exporter per operator."""

from mrt.export.onnx.any_batch import ANY, with_any_batch
from mrt.export.onnx.model import to_onnx
from mrt.export.onnx.real import to_real_onnx

__all__ = ["ANY", "to_onnx", "to_real_onnx", "with_any_batch"]
