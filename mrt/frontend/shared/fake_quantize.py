"""FakeQuantize of the formats that have it: OpenVINO's, and what OpenVINO and its tools write into ONNX files."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.quantized import fake_quantized_constant
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.fake_quantize import FakeQuantize

_LIMITS = ("input_low", "input_high", "output_low", "output_high")


def fake_quantized(node: ModelNode, levels: int) -> Symbol | Array:
    """The node's first input through FakeQuantize, its limits the four others; of a constant a quantized constant.

    Raises UnsupportedOperatorError where a limit is computed from the data, GraphError where one does not broadcast.
    """
    limits = tuple(node.known(index, role) for index, role in enumerate(_LIMITS, start=1))
    data = node.array(0)
    if data is None:
        inputs = [node.symbol(0), *(node.symbol(index, role) for index, role in enumerate(_LIMITS, start=1))]
        return node.apply(FakeQuantize(levels=levels), inputs)
    return _constant(node, data, limits, levels)


def _constant(node: ModelNode, data: Array, limits: tuple[Array, ...], levels: int) -> Array:
    constant = fake_quantized_constant(data, limits, levels)
    try:
        values = constant.values()
    except ValueError:
        raise GraphError(
            f"{node.label}: limits of shapes {[limit.shape for limit in limits]} do not broadcast to {data.shape}"
        ) from None
    node.scope.keep_quantized(values, constant)
    return values
