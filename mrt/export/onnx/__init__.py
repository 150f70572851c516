"""The ONNX exporter: an integer graph as a model of ONNX's own operators, one exporter per operator."""

from mrt.export.onnx.model import to_onnx

__all__ = ["to_onnx"]
