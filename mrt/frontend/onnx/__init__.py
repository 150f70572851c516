"""The ONNX reader: opset 9 to 21 directly into a Graph, one converter per ONNX operator."""

from mrt.frontend.onnx.reader import from_onnx

__all__ = ["from_onnx"]
